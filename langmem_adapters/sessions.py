"""Sessions of a user: list, rename, delete, export and import them."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import NamedTuple, cast

from langmem_adapters import views
from langmem_adapters.codec import decode, encode, encode_plain
from langmem_adapters.conversation.export import exported_lines
from langmem_adapters.conversation.export_lines import Line, is_valid_value, parse_lines
from langmem_adapters.conversation.log import CREATED, brain_namespace
from langmem_adapters.conversation.merging import Merge
from langmem_adapters.conversation.session import TITLE, read_title
from langmem_adapters.conversation.tombstones import content_id
from langmem_adapters.errors import ConfigurationError, Conflict, NotSealed, SerializationError
from langmem_adapters.expiry import EMPTY_TTL_SECONDS, EXPIRES, ExpiringSession, Refresh, check_expiry
from langmem_adapters.flow import Flow, arun, gather, run, step
from langmem_adapters.keys import SUBAGENT_SUFFIX
from langmem_adapters.longterm import longterm_namespace
from langmem_adapters.model import Message, Scope, SessionInfo, salvage
from langmem_adapters.progress import Progress, advancing
from langmem_adapters.protocols import Listed, Page, Store
from langmem_adapters.sharing import Shared
from langmem_adapters.validation import check_integer, check_store, check_sync_functions, check_text, checked_scope
from langmem_adapters.warn_once import warn_of_damage

__all__ = ["Line", "Sessions", "parse_lines"]

_PAGE_SIZE = 20  # lines that a worker thread reads at once; they may be pictures
_MAX_SUBAGENT_DEPTH = 8  # levels of subagents: each agent is called by a tool of the one above it


class ImportResult(NamedTuple):
    """How many messages were new, those left out as the session had deleted them, and changed ids: by content id."""

    new: int
    deleted: set[str]
    renamed: dict[str, str]

    def as_stored(self, messages: Iterable[Message]) -> list[Message]:
        """The imported messages that the session has not deleted, with the ids that it gave them."""
        stored = []
        for message in messages:
            key = content_id(message)  # not its id, which several of them may have
            if key not in self.deleted:
                stored.append(message.model_copy(update={"id": self.renamed.get(key, message.id)}))
        return stored


class Sessions(Shared):
    """The sessions of one user (or those without a user).

    Args:
        store: Where the sessions are kept.
        user, tenant: The owner of the sessions; those of other owners are never seen.
        ttl: Seconds after which a session that is imported or renamed expires; None: never.
        refresh: What restarts the ``ttl``, as in :class:`~langmem_adapters.brain.BrainMemory`.
        clock: Returns Unix seconds.

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
        check_expiry(ttl, refresh)
        check_sync_functions(clock=clock)
        self.store = store
        self.scope: Scope = checked_scope(tenant=tenant, user=user)
        self.ttl = ttl
        self.refresh: Refresh = refresh
        self._clock = clock
        self._parent = brain_namespace(self.scope)[:-1]

    def list_sessions(self, limit: int | None = 20, *, cursor: str | None = None) -> list[SessionInfo]:
        """The sessions, latest activity first; ``cursor`` is that of the last session of the previous page.

        The cost is that of the page, however many sessions there are.
        """
        return run(self._list(limit, cursor))

    async def alist_sessions(self, limit: int | None = 20, *, cursor: str | None = None) -> list[SessionInfo]:
        """:meth:`list_sessions`, without blocking the event loop."""
        return await arun(self._list(limit, cursor))

    def count(self) -> int:
        """How many sessions there are."""
        return len(run(step(self.store.recent, self._parent)))

    async def acount(self) -> int:
        """:meth:`count`, without blocking the event loop."""
        return len(await arun(step(self.store.recent, self._parent)))

    def rename_session(self, session: str, title: str) -> bool:
        """Give a session a title; returns False if there is no such session."""
        return run(self._rename(session, title))

    async def arename_session(self, session: str, title: str) -> bool:
        """:meth:`rename_session`, without blocking the event loop."""
        return await arun(self._rename(session, title))

    def delete_session(self, session: str) -> bool:
        """Delete a session: history, knowledge, summary, and without a user its own long-term memory.

        The sessions of its subagents (see BrainMemoryMiddleware) are deleted too. False, if there was no session.
        A user's long-term memory outlasts the session; ``clear(long_term=True)`` of a brain that has it removes what
        was said there.
        """
        return run(self._delete(session))

    async def adelete_session(self, session: str) -> bool:
        """:meth:`delete_session`, without blocking the event loop."""
        return await arun(self._delete(session))

    def export(self, session: str | None = None, *, progress: Progress = False) -> Generator[bytes, None, None]:
        """Export one session, or all, as JSON Lines: a line for the session, then one for each message.

        Reads a page at a time, so a long history need not fit into memory. ``progress`` shows the lines; see
        :data:`~langmem_adapters.progress.Progress`.
        """
        names = [session] if session is not None else [row.namespace[-1] for row in self.store.recent(self._parent)]
        names.reverse()  # oldest activity first, so that an import restores the same order
        total = None
        if progress is not False:
            logs = run(gather(step(self.store.scan, self._namespace(name), limit=0) for name in names))
            total = sum(1 + log.total for log in logs)
        with advancing(progress, "exporting", total, "lines") as advance:
            for line in exported_lines(self.store, map(self._namespace, names)):
                advance(1)
                yield encode_plain(line) + b"\n"

    async def aexport(self, session: str | None = None, *, progress: Progress = False) -> AsyncGenerator[bytes, None]:
        """:meth:`export`, without blocking the event loop."""
        lines = self.export(session, progress=progress)
        while page := await arun(step(lambda: list(islice(lines, _PAGE_SIZE)))):
            for line in page:
                yield line

    def import_(self, lines: Iterable[bytes | str], *, progress: Progress = False) -> int:
        """Add exported sessions to this user's; returns how many messages were new.

        All lines are read before the first is written, so a malformed line changes nothing. Importing the same lines
        again adds nothing, and does not restore what a session has archived or deleted since. An existing session keeps
        its title, facts and summary. A message with a known id but other content is added under a new id. A summary is
        left out if it would hide messages that it does not cover. ``progress`` shows the lines that are written.

        Import only lines that you trust: they may hold system messages, and name files of this machine, which
        LlamaIndex shows its model.
        """
        return run(self.import_flow(lines, progress)).new

    async def aimport(self, lines: Iterable[bytes | str], *, progress: Progress = False) -> int:
        """:meth:`import_`, without blocking the event loop."""
        return (await arun(self.import_flow(lines, progress))).new

    def __repr__(self) -> str:
        return f"Sessions({self.store!r}, user={self.scope.user!r})"

    def _repr_html_(self) -> str:
        return views.render_safely(self, self._view)

    def _view(self) -> str:
        """The latest sessions by id only, as titles and counts would cost a read for each."""
        cells = [
            (row.namespace[-1], views.format_time(row.updated_at)) for row in self.store.recent(self._parent, limit=20)
        ]
        user = f"user {self.scope.user}" if self.scope.user else ""
        return views.rows("The latest sessions", ("session", "last activity"), cells, details=[user])

    # --- flows

    def _namespace(self, session: str) -> tuple[str, ...]:
        check_text("a session's id, such as info.session,", session)
        return (*self._parent, session)

    def _expiring_session(self, session: str) -> ExpiringSession:
        scope = self.scope.model_copy(update={"session": session})
        linked_namespace = None if scope.user else longterm_namespace(scope)
        return ExpiringSession(
            self.store,
            self._namespace(session),
            ttl=self.ttl,
            refresh=self.refresh,
            clock=self._clock,
            linked_namespace=linked_namespace,
        )

    def _list(self, limit: int | None, cursor: str | None) -> Flow[list[SessionInfo]]:
        if limit is not None:
            check_integer("limit", limit)
            if limit < 1:
                return views.Listing([], views.sessions)
        before = None if cursor is None else self._parse_cursor(cursor)
        rows = yield from step(self.store.recent, self._parent, limit=limit, before=before)
        return views.Listing((yield from gather(map(self._session_info, rows))), views.sessions)

    def _parse_cursor(self, cursor: str) -> Listed:
        """The row of the store's list after which a page begins. Raises ConfigurationError."""
        try:
            at, session = cursor.split(" ", 1)
            updated_at = float(at)
        except (AttributeError, ValueError):
            updated_at, session = math.nan, ""
        if not (math.isfinite(updated_at) and session):
            raise ConfigurationError(
                f"a cursor is the .cursor of the last session of the previous page, not {cursor!r:.50}"
            )
        return Listed(self._namespace(session), updated_at)

    def _session_info(self, row: Listed) -> Flow[SessionInfo]:
        try:
            page = yield from step(self.store.scan, row.namespace, limit=1, keys=[TITLE, CREATED])
        except NotSealed as damage:  # one damaged session must not fail the whole list
            warn_of_damage(row.namespace, f"the title or time of creation of a session is left out: {damage}")
            page = yield from step(self.store.scan, row.namespace, limit=1)
        try:
            title, created_at = read_title(page.values.get(TITLE)), _creation_time(page)
        except SerializationError as sealed:  # encrypted, and there is no codec
            warn_of_damage(row.namespace, f"the title and time of creation of a session are left out: {sealed}")
            title, created_at = "", None
        return SessionInfo(
            session=row.namespace[-1],
            title=title,
            messages=page.total,
            created_at=created_at,
            updated_at=row.updated_at,
            cursor=f"{row.updated_at!r} {row.namespace[-1]}",
        )

    def _exist(self, *sessions: str, beside: Iterable[str] = ()) -> Flow[bool]:
        """Whether any of these sessions has messages or values, ``beside`` those of some keys."""
        namespaces = list(map(self._namespace, sessions))
        logs = yield from gather(step(self.store.scan, namespace, limit=0) for namespace in namespaces)
        if any(log.total for log in logs):
            return True
        values = yield from gather(step(self.store.get, namespace) for namespace in namespaces)
        return any(each.keys() - beside for each in values)

    def _rename(self, session: str, title: str) -> Flow[bool]:
        check_text("a title", title)
        expiring, put, own_keys = self._expiring_session(session), {TITLE: encode(title)}, (TITLE, EXPIRES)
        while True:
            page = yield from expiring.scan(limit=0, keys=[TITLE])
            values = page.values
            if not (page.total or values or (yield from self._exist(session))):
                return False
            read_title(values.get(TITLE))  # raises if it is sealed and there is no codec
            if not (yield from expiring.try_write(put=put, guard={TITLE: values.get(TITLE)})):
                continue  # another writer was first
            if values or (yield from self._exist(session, beside=own_keys)):
                return True
            with suppress(Conflict):  # it was deleted just now, and must not come back
                clear = partial(self.store.write, delete=own_keys, guard=put, ttl=EMPTY_TTL_SECONDS)
                yield from step(clear, self._namespace(session))

    def _delete(self, session: str) -> Flow[bool]:
        name = self._namespace(session)[-1]
        subagents = [name + depth * SUBAGENT_SUFFIX for depth in range(_MAX_SUBAGENT_DEPTH, 0, -1)]
        existed = yield from self._exist(*subagents, name)
        yield from gather(map(self._clear, subagents))
        yield from self._clear(name)  # last, so that it is still there if this fails half-way
        return existed

    def _clear(self, session: str) -> Flow[None]:
        namespaces = [self._namespace(session)]
        if not self.scope.user:
            longterm = longterm_namespace(self.scope.model_copy(update={"session": session}))
            namespaces = [longterm, *namespaces, longterm]  # twice, as messages may be moved there meanwhile
        for namespace in namespaces:
            yield from step(self.store.clear, namespace)

    def import_flow(self, given: Iterable[bytes | str], progress: Progress = False) -> Flow[ImportResult]:
        """:meth:`import_`, as a part of a larger flow."""
        merges = yield from step(self._read_import, given)
        total = sum(merge.line_count for merge in merges)
        with advancing(progress, "importing", total, "lines") as advance:
            result = ImportResult(0, set(), {})
            for merge in merges:
                added = yield from merge.write(advance)
                result.deleted.update(merge.deleted)
                result.renamed.update(merge.renamed)
                result = result._replace(new=result.new + added)
            return result

    def _read_import(self, lines: Iterable[bytes | str]) -> list[Merge]:
        merges: dict[str, Merge] = {}
        for line in parse_lines(lines):
            name = line["session"]
            if name not in merges:
                merges[name] = Merge(self.store, self._namespace(name), self._expiring_session(name))
            merges[name].add_line(line)
        return [*merges.values()]


def _creation_time(page: Page) -> float | None:
    """When a session began: the stored time, or else that of its first message, if there is one."""
    created = page.values.get(CREATED)
    if created is not None and is_valid_value(CREATED, created):
        return cast("float | None", decode(created))
    first = salvage(page.items[0].data, "the first message") if page.items else None
    return None if first is None else first.created_at
