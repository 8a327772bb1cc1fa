"""Expire a session as a whole. A rule says which writes and reads restart its time to live."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final, Literal, TypeAlias, get_args

from langmem_adapters.codec import decode, encode, is_number
from langmem_adapters.errors import ConfigurationError, Conflict, SerializationError, StoreError
from langmem_adapters.flow import Flow, step
from langmem_adapters.keys import Namespace
from langmem_adapters.protocols import Appended, Page, Store
from langmem_adapters.validation import check_seconds
from langmem_adapters.warn_once import warn_of_outage

Refresh: TypeAlias = Literal["write", "read", "never"]
"""What restarts a session's time to live: each write; each write or read; nothing, so it runs from the first write."""

EXPIRES: Final = "expires"
"""The key of the value that holds a session's deadline (Unix seconds), where the store cannot be asked for it."""

EMPTY_TTL_SECONDS: Final = 60.0
"""Seconds after which an emptied namespace expires: a guarded write can empty a namespace, but not remove it."""

MIN_RESTART_FRACTION: Final = 0.1
"""Reads within this fraction of the ttl after the last restart cause no write."""
_NEAR_DEADLINE_SECONDS = 5.0
"""Within this many seconds of the deadline, it is read again before a write. Another object may have restarted the
session; a write with the old deadline could let it expire before the write's reply tells of the new one."""


def check_expiry(ttl: float | None, refresh: Refresh) -> None:
    """Raise ConfigurationError for an invalid ttl or an unknown refresh rule."""
    check_seconds("ttl", ttl)
    if refresh not in get_args(Refresh):
        raise ConfigurationError(f'refresh is "write", "read" or "never", not {refresh!r}')


@dataclass(eq=False, repr=False)
class ExpiringSession:
    """One session in its store. Every write gives the whole session the same time to live.

    Args:
        store, namespace: Where the session is.
        ttl: Seconds; None: the session never expires.
        refresh: See :data:`Refresh`. Unless it is "write", the default, the session stores its deadline as a value.
            With "read", a read is followed by a write once a tenth of the ttl has passed; if that write fails, as on a
            replica, the read still succeeds. With "never", an object reads the deadline before its first write, and
            before a write that is close to the deadline.
        clock: Gives Unix seconds.
        linked_namespace: A namespace that expires with the session, if it holds anything.
    """

    store: Store
    namespace: Namespace
    _: KW_ONLY
    ttl: float | None
    refresh: Refresh
    clock: Callable[[], float]
    linked_namespace: Namespace | None = None

    def __post_init__(self) -> None:
        check_expiry(self.ttl, self.refresh)
        self._deadline_keys = [] if self.ttl is None or self.refresh == "write" else [EXPIRES]
        self._deadline: float | None = None  # with "never", once it is known

    def append(self, entries: Sequence[tuple[str, bytes]], *, keys: Sequence[str] = ()) -> Flow[Appended]:
        """:meth:`Store.append`."""
        ttl = self.ttl if self.refresh != "never" else (yield from self._ttl_for_write())
        requested_keys = [*keys, *self._deadline_keys]
        appended = yield from step(self.store.append, self.namespace, entries, keys=requested_keys, ttl=ttl)
        if self.ttl is not None and self._deadline_keys:
            ttl = yield from self._reconcile_deadline(self.ttl, appended.values.pop(EXPIRES, None), ttl)
        if self.linked_namespace is not None:
            yield from self._extend_linked(ttl)
        return appended

    def _reconcile_deadline(self, ttl: float, stored: bytes | None, remaining: float | None) -> Flow[float | None]:
        """The seconds until the ``stored`` deadline that an append read, after it set the expiry to ``remaining``."""
        if stored is None:  # the session has just begun
            is_restarted = yield from self._restart(ttl, None)
            return ttl if is_restarted else remaining
        deadline = _parse_deadline(stored)
        if self.refresh != "never" or deadline == self._deadline:
            return remaining
        # By a clock that is behind, it may lie more than the ttl ahead.
        stored_remaining = 0.0 if deadline is None else min(deadline - self.clock(), ttl)
        if stored_remaining <= 0:
            return remaining
        # Another object has restarted the session, and the deadline known here would end it too soon.
        self._deadline = deadline
        with suppress(Conflict):  # it was cleared, or restarted once more
            yield from step(self.store.write, self.namespace, guard={EXPIRES: stored}, ttl=stored_remaining)
        return stored_remaining

    def write(self, **change: Any) -> Flow[None]:
        """:meth:`Store.write`."""
        ttl = yield from self._ttl_for_write()
        if ttl is not None and self.refresh == "read":
            change["put"] = {**change.get("put", {}), EXPIRES: encode(self.clock() + ttl)}
        yield from step(self.store.write, self.namespace, ttl=ttl, **change)
        yield from self._extend_linked(ttl)

    def try_write(self, **change: Any) -> Flow[bool]:
        """:meth:`write`; returns False if another writer was first and nothing has changed."""
        try:
            yield from self.write(**change)
        except Conflict:
            return False
        return True

    def scan(self, *, keys: Sequence[str] = (), **bounds: Any) -> Flow[Page]:
        """:meth:`Store.scan`."""
        page = yield from step(self.store.scan, self.namespace, keys=[*keys, *self._deadline_keys], **bounds)
        yield from self._refresh_after_read(page.values, exists=bool(page.total or page.values))
        return page

    def get(self, keys: Sequence[str] | None) -> Flow[dict[str, bytes]]:
        """:meth:`Store.get`."""
        requested_keys = None if keys is None else [*keys, *self._deadline_keys]
        values = yield from step(self.store.get, self.namespace, requested_keys)
        yield from self._refresh_after_read(values, exists=bool(values))
        return values

    def clear(self) -> Flow[None]:
        """:meth:`Store.clear`."""
        self._deadline = None
        yield from step(self.store.clear, self.namespace)

    def linked_ttl(self) -> float | None:
        """The remaining seconds of ``linked_namespace``, if fewer than the ttl; reads nothing from the store."""
        if self.linked_namespace is None or self.refresh != "never":
            return None
        return self._seconds_until(self._deadline)

    def _ttl_for_write(self) -> Flow[float | None]:
        """The seconds that a write made now gives the session."""
        if self.ttl is None or self.refresh != "never":
            return self.ttl
        remaining = self._seconds_until(self._deadline)
        if remaining is not None and remaining > _NEAR_DEADLINE_SECONDS:
            return remaining
        while True:
            values = yield from step(self.store.get, self.namespace, self._deadline_keys)
            stored = values.get(EXPIRES)
            deadline = _parse_deadline(stored)
            remaining = self._seconds_until(deadline)
            if remaining is not None:
                self._deadline = deadline
                return remaining
            # A deadline that has passed while the session still exists was left by writes under another rule.
            if (yield from self._restart(self.ttl, stored)):
                return self.ttl  # without another check: a ttl may be shorter than a write takes

    def _seconds_until(self, deadline: float | None) -> float | None:
        """Seconds until a deadline; None for a deadline that cannot be the session's."""
        if deadline is None or self.ttl is None:
            return None
        remaining = deadline - self.clock()
        return remaining if 0 < remaining <= self.ttl else None

    def _restart(self, ttl: float, stored: bytes | None) -> Flow[bool]:
        """Restart the time to live; False if another writer has changed the ``stored`` deadline."""
        deadline = self.clock() + ttl
        try:
            put, guard = {EXPIRES: encode(deadline)}, {EXPIRES: stored}
            yield from step(self.store.write, self.namespace, put=put, guard=guard, ttl=ttl)
        except Conflict:
            return False
        self._deadline = deadline
        return True

    def _refresh_after_read(self, values: dict[str, bytes], *, exists: bool) -> Flow[None]:
        data = values.pop(EXPIRES, None)
        if self.ttl is None or self.refresh == "write":
            return
        deadline = _parse_deadline(data)
        if self.refresh == "never":
            self._deadline = deadline  # another writer may have restarted the session
        elif exists:
            remaining = self._seconds_until(deadline)
            # Guarded, so that a cleared session does not come back, and only one of several readers writes.
            if remaining is None or remaining < self.ttl * (1 - MIN_RESTART_FRACTION):
                try:
                    yield from self._restart(self.ttl, data)
                    yield from self._extend_linked(self.ttl)
                except StoreError as error:
                    warn_of_outage("a session was read, but its expiry could not be renewed", error)

    def _extend_linked(self, ttl: float | None) -> Flow[None]:
        if self.linked_namespace is None or ttl is None:
            return
        if (yield from step(self.store.scan, self.linked_namespace, limit=0)).total:
            yield from step(self.store.write, self.linked_namespace, ttl=ttl)


def _parse_deadline(data: bytes | None) -> float | None:
    """A stored deadline; None if it is missing or unreadable, in which case the time to live restarts."""
    with suppress(SerializationError):
        deadline = None if data is None else decode(data)
        if is_number(deadline):
            return float(deadline)
    return None
