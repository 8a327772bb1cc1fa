"""Sessions of a user: listed, titled, deleted, carried from one store to another."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from langmem_adapters import views
from langmem_adapters.codec import decode, encode
from langmem_adapters.conversation import KNOWLEDGE, SUMMARY, TITLE, read_title
from langmem_adapters.departed import DEPARTED, have_departed, is_departed
from langmem_adapters.errors import SerializationError
from langmem_adapters.expiry import EXPIRES, Expiring, Refresh
from langmem_adapters.flow import Flow, arun, run, step
from langmem_adapters.given import check_store, check_text, checked_scope, lines_of
from langmem_adapters.keys import fingerprint
from langmem_adapters.log import ARCHIVED, CREATED, brain_namespace, entry_id
from langmem_adapters.longterm import longterm_namespace
from langmem_adapters.model import Message, SessionInfo, Summary, salvage
from langmem_adapters.progress import Progress, advancing
from langmem_adapters.protocols import Listed, Store

__all__ = ["Line", "Sessions", "parse_lines"]

_PAGE = 500
_VERSION = 1
Line = dict[str, Any]
"""One line of an export, as data: ``{"v": 1, "type": "session" | "message", "session": …}``."""


class Sessions:
    """The sessions of one user (or of nobody in particular).

    Args:
        store: Where they are kept.
        user, tenant: Whose sessions; those of others are never seen.
        ttl: Seconds after which a session that is imported or renamed expires; None: never.
        refresh: What starts that time anew, as in :class:`~langmem_adapters.brain.BrainMemory`.
        clock: Gives Unix seconds.

    >>> from langmem_adapters import BrainMemory, Sessions, open_store
    >>> store = open_store("memory:")
    >>> BrainMemory(store, "monday", user="ada").add_talk("Good morning.")
    >>> [(info.session, info.messages) for info in Sessions(store, user="ada").list_sessions()]
    [('monday', 1)]
    """

    def __init__(
        self,
        store: Store,
        *,
        user: str = "",
        tenant: str = "",
        ttl: float | None = None,
        refresh: Refresh = "write",
        clock: Callable[[], float] = time.time,
    ) -> None:
        check_store(store)
        self.store = store
        self.scope = checked_scope(tenant=tenant, user=user)
        self.ttl = ttl
        self.refresh = refresh
        self._clock = clock
        self._parent = brain_namespace(self.scope)[:-1]

    def list_sessions(self, limit: int | None = 20, *, after: SessionInfo | None = None) -> list[SessionInfo]:
        """The sessions with the latest activity first; ``after`` is the last one of the page before.

        Costs reads for the page, however many sessions there are.
        """
        return run(self._list(limit, after))

    async def alist_sessions(self, limit: int | None = 20, *, after: SessionInfo | None = None) -> list[SessionInfo]:
        """:meth:`list_sessions`, without blocking the event loop."""
        return await arun(self._list(limit, after))

    def count(self) -> int:
        """How many sessions there are."""
        return len(run(step(self.store.recent, self._parent)))

    async def acount(self) -> int:
        """:meth:`count`, without blocking the event loop."""
        return len(await arun(step(self.store.recent, self._parent)))

    def rename_session(self, session: str, title: str) -> bool:
        """Give a session a title; False, if there is no such session."""
        return run(self._rename(session, title))

    async def arename_session(self, session: str, title: str) -> bool:
        """:meth:`rename_session`, without blocking the event loop."""
        return await arun(self._rename(session, title))

    def delete_session(self, session: str) -> bool:
        """Remove a session: history, knowledge, summary, and without a user its own long-term memory.

        False, if there was none. A user's long-term memory outlasts the session.
        """
        return run(self._delete(session))

    async def adelete_session(self, session: str) -> bool:
        """:meth:`delete_session`, without blocking the event loop."""
        return await arun(self._delete(session))

    def export(self, session: str | None = None, *, progress: Progress = False) -> Iterator[bytes]:
        """One session, or all, as JSON Lines: a line for the session, then one for each message.

        Reads a page at a time, so a long history never has to fit into memory. ``progress`` shows the lines; see
        :data:`~langmem_adapters.progress.Progress`.
        """
        # The oldest activity first, so that an import brings about the same order.
        names = [session] if session is not None else [info.session for info in self.list_sessions(limit=None)][::-1]
        total = None if progress is False else sum(1 + self._length(name) for name in names)
        with advancing(progress, "exporting", total, "lines") as advance:
            for name in names:
                for line in self._lines(name):
                    advance(1)
                    yield _dump(line) + b"\n"

    async def aexport(self, session: str | None = None, *, progress: Progress = False) -> AsyncIterator[bytes]:
        """:meth:`export`, without blocking the event loop."""
        lines = self.export(session, progress=progress)
        while page := await arun(step(lambda: list(islice(lines, _PAGE)))):
            for line in page:
                yield line

    def import_(self, lines: Iterable[bytes | str], *, progress: Progress = False) -> int:
        """Add exported sessions to this user's; returns how many messages were new.

        All lines are read before the first is written, so a malformed line changes nothing. Importing the same
        lines again adds nothing. A title and a summary that a session has already stay. ``progress`` shows the lines
        that are written.
        """
        return run(self._import(list(parse_lines(lines)), progress))

    async def aimport(self, lines: Iterable[bytes | str], *, progress: Progress = False) -> int:
        """:meth:`import_`, without blocking the event loop."""
        return await arun(self._import(list(parse_lines(lines)), progress))

    def __repr__(self) -> str:
        return f"Sessions({self.store!r}, user={self.scope.user!r})"

    def _repr_html_(self) -> str:
        return views.attempt(self, self._view)

    def _view(self) -> str:
        """The latest sessions by name, as titles and counts would be a look at each."""
        cells = [(row.namespace[-1], views.when(row.updated_at)) for row in self.store.recent(self._parent, limit=20)]
        user = f"user {self.scope.user}" if self.scope.user else ""
        return views.rows("The latest sessions", ("session", "last activity"), cells, details=[user])

    # --- flows

    def _namespace(self, session: str) -> tuple[str, ...]:
        return (*self._parent, session)

    def _expiring(self, session: str) -> Expiring:
        scope = self.scope.model_copy(update={"session": session})
        along = None if scope.user else longterm_namespace(scope)
        return Expiring(
            self.store,
            self._namespace(session),
            ttl=self.ttl,
            refresh=self.refresh,
            clock=self._clock,
            along=along,
        )

    def _list(self, limit: int | None, after: SessionInfo | None) -> Flow[list[SessionInfo]]:
        if limit is not None and limit < 1:
            return views.Listing([], views.sessions)
        before = None
        if after is not None:
            before = Listed(self._namespace(after.session), after.updated_at or 0.0)
        rows = yield from step(self.store.recent, self._parent, limit=limit, before=before)
        found = []
        for row in rows:
            found.append((yield from self._info(row)))  # noqa: PERF401 - a comprehension cannot ask
        return views.Listing(found, views.sessions)

    def _info(self, row: Listed) -> Flow[SessionInfo]:
        page = yield from step(self.store.scan, row.namespace, limit=1, keys=[TITLE, CREATED])
        first = salvage(page.items[0].data, "the first message") if page.items else None
        created_at = decode(page.values[CREATED]) if CREATED in page.values else first and first.created_at
        return SessionInfo(
            session=row.namespace[-1],
            title=read_title(page.values.get(TITLE)),
            messages=page.total,
            created_at=created_at,
            updated_at=row.updated_at,
        )

    def _exists(self, session: str) -> Flow[bool]:
        page = yield from step(self.store.scan, self._namespace(session), limit=0)
        return bool(page.total or (yield from step(self.store.get, self._namespace(session))))

    def _rename(self, session: str, title: str) -> Flow[bool]:
        check_text("a title", title)
        if not (yield from self._exists(session)):
            return False
        yield from self._expiring(session).write(put={TITLE: encode(title)})
        return True

    def _delete(self, session: str) -> Flow[bool]:
        existed = yield from self._exists(session)
        yield from step(self.store.clear, self._namespace(session))
        if not self.scope.user:
            own = longterm_namespace(self.scope.model_copy(update={"session": session}))
            yield from step(self.store.clear, own)
        return existed

    def _length(self, session: str) -> int:
        return self.store.scan(self._namespace(session), limit=0).total

    def _lines(self, session: str) -> Iterator[Line]:
        values = self.store.get(self._namespace(session))
        kept = {key: _loaded(data) for key, data in sorted(values.items()) if key != EXPIRES}
        yield {"v": _VERSION, "type": "session", "session": session, "values": kept}
        after = 0
        while items := self.store.scan(self._namespace(session), after=after, limit=_PAGE).items:
            for item in items:
                message = salvage(item.data, f"log entry {item.seq}")
                if message is not None:
                    kept = _loaded(message.to_bytes())
                    yield {"v": _VERSION, "type": "message", "session": session, "message": kept}
            after = items[-1].seq

    def _import(self, lines: Sequence[Line], progress: Progress) -> Flow[int]:
        with advancing(progress, "importing", len(lines), "lines") as advance:
            return (yield from self._write(lines, advance))

    def _write(self, lines: Sequence[Line], advance: Callable[[int], None]) -> Flow[int]:
        entries: dict[str, list[tuple[str, bytes]]] = {}
        known: dict[str, Mapping[str, bytes]] = {}
        for line in lines:
            session = line["session"]
            if session not in known:
                known[session] = yield from step(self.store.get, self._namespace(session))
            if line["type"] == "session":
                put = {key: _dump(value) for key, value in line["values"].items() if key not in known[session]}
                yield from self._expiring(session).write(put=put)
                advance(1)
            else:
                entry = (entry_id(line["message"]["id"]), _dump(line["message"]))
                entries.setdefault(session, []).append(entry)
        added = 0
        for session, messages in entries.items():
            expiring = self._expiring(session)
            for start in range(0, len(messages), _PAGE):
                page = messages[start : start + _PAGE]
                added += sum((yield from expiring.append(_without_departed(page, known[session]))).new)
                advance(len(page))
        return added


def _without_departed(entries: Sequence[tuple[str, bytes]], values: Mapping[str, bytes]) -> list[tuple[str, bytes]]:
    """The entries that have not left the session since they were imported before."""
    if DEPARTED not in values:
        return list(entries)
    gone = have_departed(values, [Message.from_bytes(data) for _, data in entries])
    return [entry for entry, has_left in zip(entries, gone, strict=True) if not has_left]


def parse_lines(lines: Iterable[bytes | str]) -> Iterator[Line]:
    """Read and check the lines of an export. Raises SerializationError, naming the line, at the first wrong one."""
    for number, raw in enumerate(lines_of(lines), start=1):
        if not raw.strip():
            continue
        try:
            line = _checked(json.loads(raw), number)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, SerializationError) as error:
            raise SerializationError(f"line {number} is not a session or a message: {error!s:.200}") from error
        yield line


def _checked(line: Any, number: int) -> Line:
    if line["v"] != _VERSION or not isinstance(line["session"], str) or not line["session"]:
        raise ValueError("not a line of this version's export")
    if line["type"] == "message":
        # an id that is the same when the same lines are imported again
        line["message"]["id"] = str(line["message"].get("id") or fingerprint(number, line))
        Message.from_bytes(_dump(line["message"]))
    elif line["type"] == "session":
        for key, value in line["values"].items():
            _check(key, _dump(value))
    else:
        raise ValueError('its type is neither "session" nor "message"')
    return dict(line)


def _check(key: str, data: bytes) -> None:
    """Raise where a session's value is not what its readers expect; unknown ones are a newer version's."""
    if key.startswith(KNOWLEDGE):
        int(key[len(KNOWLEDGE) :])
        Message.from_bytes(data)
    elif key.startswith(f"{ARCHIVED}/"):
        Message.from_bytes(data)
    elif key == ARCHIVED and type(decode(data)) is not int:
        raise TypeError("its number of archived messages is not a number")
    elif key == DEPARTED and not is_departed(decode(data)):
        raise TypeError("its marks of messages that left are not what they have to be")
    elif key == SUMMARY:
        Summary.from_bytes(data)
    elif key == TITLE and not isinstance(decode(data), str):
        raise TypeError("its title is not a text")
    elif key == CREATED and not isinstance(decode(data), int | float | None):
        raise TypeError("its time of creation is not a number")


def _loaded(data: bytes) -> Any:
    """Stored JSON as it stands, with the codec's marks."""
    try:
        return json.loads(data)
    except ValueError as error:
        raise SerializationError(f"a stored value cannot be read: {error}") from error


def _dump(value: Any) -> bytes:
    """JSON that is stored as it stands: what the codec has marked must not be marked twice."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # lone surrogates
        return json.dumps(value, separators=(",", ":")).encode()
