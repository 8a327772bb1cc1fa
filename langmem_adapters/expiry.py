"""When a session expires: as a whole, and by a rule that says which writes and reads start its time anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, Literal, TypeAlias, get_args

from langmem_adapters.codec import decode, encode, is_number
from langmem_adapters.errors import ConfigurationError, Conflict, SerializationError, StoreError
from langmem_adapters.flow import Flow, step
from langmem_adapters.keys import Namespace
from langmem_adapters.protocols import Appended, Page, Store
from langmem_adapters.validation import check_seconds
from langmem_adapters.warn_once import WarnOnce

__all__ = ["EXPIRES", "LINGER", "Expiring", "Refresh", "check_expiry"]

Refresh: TypeAlias = Literal["write", "read", "never"]
"""What starts a session's time anew: each write; reads too; nothing, it is counted from the first write."""

EXPIRES: Final = "expires"
"""The value of a session that holds its deadline, where the store cannot be asked for it: Unix seconds."""

LINGER: Final = 60.0
"""Seconds after which what was emptied is gone: a guarded write can empty a namespace, and not remove it."""

_warn = WarnOnce()
NOTICEABLE: Final = 0.1
"""Of a ttl: reads within so much of it after the last start cost no write."""
_SOON = 5.0
"""Seconds to a deadline in which it is read again before a write: of a session begun anew meanwhile, which the write
would end with it, nothing may be left when the write is told of that."""


def check_expiry(ttl: float | None, refresh: Refresh) -> None:
    """Raise ConfigurationError for what is no time to live, or no rule for when it starts anew."""
    check_seconds("ttl", ttl)
    if refresh not in get_args(Refresh):
        raise ConfigurationError(f'refresh is "write", "read" or "never", not {refresh!r}')


class Expiring:
    """One session in its store. Every write gives all of the session the same time to live.

    Args:
        store, namespace: Where the session is.
        ttl: Seconds; None: it never expires.
        refresh: See :data:`Refresh`. Beside the default, "write", the session keeps its deadline as a value. With
            "read", a read is followed by a write once a tenth of the ttl is gone; where that fails, as on a replica,
            what was read is given all the same. With "never", an object reads the deadline before its first write, and
            before those that come close to it.
        clock: Gives Unix seconds.
        along: A namespace that expires with the session, if there is anything in it.
    """

    def __init__(
        self,
        store: Store,
        namespace: Namespace,
        *,
        ttl: float | None,
        refresh: Refresh,
        clock: Callable[[], float],
        along: Namespace | None = None,
    ) -> None:
        check_expiry(ttl, refresh)
        self._store = store
        self._namespace = namespace
        self._ttl = ttl
        self._refresh = refresh
        self._clock = clock
        self._along = along
        self._keys = [] if ttl is None or refresh == "write" else [EXPIRES]
        self._deadline: float | None = None  # with "never", once it is known

    def append(self, entries: Sequence[tuple[str, bytes]], *, keys: Sequence[str] = ()) -> Flow[Appended]:
        """:meth:`Store.append`."""
        ttl = yield from self._left()
        asked = [*keys, *self._keys]
        appended = yield from step(self._store.append, self._namespace, entries, keys=asked, ttl=ttl)
        if self._ttl is not None and self._keys:
            ttl = yield from self._settled(self._ttl, appended.values.pop(EXPIRES, None), ttl)
        yield from self._carry_along(ttl)
        return appended

    def _settled(self, ttl: float, found: bytes | None, left: float | None) -> Flow[float | None]:
        """What the session has left by the deadline that an append ``found``, which gave it what it was to have."""
        deadline = _read(found)
        if found is None:  # it has just begun
            left = ttl if (yield from self._begin(ttl, None)) else left
        elif self._refresh == "never" and deadline != self._deadline and (other := self._until(deadline)) is not None:
            # Another object has begun it anew since, and what this one knew would end it too soon.
            self._deadline, left = deadline, other
            with suppress(Conflict):  # it was cleared, or begun anew once more
                yield from step(self._store.write, self._namespace, guard={EXPIRES: found}, ttl=left)
        return left

    def write(self, **change: Any) -> Flow[None]:
        """:meth:`Store.write`."""
        ttl = yield from self._left()
        if ttl is not None and self._refresh == "read":
            change["put"] = {**change.get("put", {}), EXPIRES: encode(self._clock() + ttl)}
        yield from step(self._store.write, self._namespace, ttl=ttl, **change)
        yield from self._carry_along(ttl)

    def try_write(self, **change: Any) -> Flow[bool]:
        """:meth:`write`; False, where another writer was quicker and nothing has changed."""
        try:
            yield from self.write(**change)
        except Conflict:
            return False
        return True

    def scan(self, *, keys: Sequence[str] = (), **bounds: Any) -> Flow[Page]:
        """:meth:`Store.scan`."""
        page = yield from step(self._store.scan, self._namespace, keys=[*keys, *self._keys], **bounds)
        yield from self._was_read(page.values, exists=bool(page.total or page.values))
        return page

    def get(self, keys: Sequence[str] | None) -> Flow[dict[str, bytes]]:
        """:meth:`Store.get`."""
        wanted = None if keys is None else [*keys, *self._keys]
        values = yield from step(self._store.get, self._namespace, wanted)
        yield from self._was_read(values, exists=bool(values))
        return values

    def clear(self) -> Flow[None]:
        """:meth:`Store.clear`."""
        self._deadline = None
        yield from step(self._store.clear, self._namespace)

    def left_along(self) -> float | None:
        """Seconds that what expires along has left, where that is less than the ttl; nothing is read for it."""
        return None if self._along is None or self._refresh != "never" else self._until(self._deadline)

    def _left(self) -> Flow[float | None]:
        """Seconds that the session has from a write on."""
        if self._ttl is None or self._refresh != "never":
            return self._ttl
        deadline = self._deadline if (self._until(self._deadline) or 0.0) > _SOON else None
        while (left := self._until(deadline)) is None:
            found = yield from step(self._store.get, self._namespace, self._keys)
            deadline = _read(found.get(EXPIRES))
            # One that has passed while the session is there was left by writes under another rule.
            if self._until(deadline) is None and (yield from self._begin(self._ttl, found.get(EXPIRES))) is not None:
                return self._ttl  # whatever the time is by now: a ttl may be shorter than a write takes
        self._deadline = deadline
        return left

    def _until(self, deadline: float | None) -> float | None:
        """Seconds until a deadline; None for one that cannot be the session's."""
        if deadline is None or self._ttl is None:
            return None
        left = deadline - self._clock()
        return left if 0 < left <= self._ttl else None

    def _begin(self, ttl: float, known: bytes | None) -> Flow[float | None]:
        """Start the time anew, unless the deadline is another by now; gives the deadline."""
        deadline = self._clock() + ttl
        try:
            put, guard = {EXPIRES: encode(deadline)}, {EXPIRES: known}
            yield from step(self._store.write, self._namespace, put=put, guard=guard, ttl=ttl)
        except Conflict:
            return None
        self._deadline = deadline
        return deadline

    def _was_read(self, values: dict[str, bytes], *, exists: bool) -> Flow[None]:
        data = values.pop(EXPIRES, None)
        if self._ttl is None or self._refresh == "write":
            return
        deadline = _read(data)
        if self._refresh == "never":
            self._deadline = deadline  # another writer may have begun the session anew
        elif exists:
            left = self._until(deadline)
            # Guarded, so that what was cleared meanwhile does not come back, and of several readers one writes.
            if left is None or left < self._ttl * (1 - NOTICEABLE):
                try:
                    yield from self._begin(self._ttl, data)
                    yield from self._carry_along(self._ttl)
                except StoreError as error:
                    _warn("a session was read, but its expiry could not be renewed", error)

    def _carry_along(self, ttl: float | None) -> Flow[None]:
        if self._along is None or ttl is None:
            return
        if (yield from step(self._store.scan, self._along, limit=0)).total:
            yield from step(self._store.write, self._along, ttl=ttl)


def _read(data: bytes | None) -> float | None:
    """A stored deadline; None, where there is none that can be read: then the time starts anew."""
    with suppress(SerializationError):
        deadline = None if data is None else decode(data)
        if is_number(deadline):
            return float(deadline)
    return None
