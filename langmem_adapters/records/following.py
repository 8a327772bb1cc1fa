"""Incremental indexing: an index follows a namespace's log, whoever else follows or clears it at the same time.

An index changes only if it is still where its follower read on from. An index that was cleared meanwhile must not look
like one that never began: so each beginning sets a position of its own, before the log's first entry. It has the id of
that entry, which shows whether the log was cleared since, even if the index is only half done by then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from langmem_adapters.errors import Conflict, SearchError
from langmem_adapters.keys import Namespace
from langmem_adapters.protocols import START, Document, Index, Item, Position, Store
from langmem_adapters.records.journal import TIDIED, place, tidied
from langmem_adapters.records.paging import PAGE

__all__ = ["IndexChange", "begin", "follow", "steadily"]

_DROPS = 3  # times that an index is dropped during a search, after which the result is returned
_BEGINNINGS = 10  # beginnings in one call: two embedders that share an index would replace each other's work for ever
_log = logging.getLogger("langmem_adapters")

T = TypeVar("T")


class IndexChange(NamedTuple):
    """What some entries of a log change in an index."""

    upsert: Sequence[Document]
    delete: Sequence[str] = ()


class _Unseen(NamedTuple):
    since: Position | None
    items: list[Item]
    tidied: int


def follow(
    store: Store,
    index: Index,
    namespace: Namespace,
    change_of: Callable[[list[Item]], IndexChange],
    *,
    new_id: Callable[[], str],
    at_once: Callable[[list[Item]], int] = len,
    report: Callable[[int], None] | None = None,
    begun: Callable[[], None] | None = None,
    astray: Callable[[], None] | None = None,
    form: str = "",
) -> Position | None:
    """Bring an index up to the store, page by page; returns its position then, or None if it has not begun.

    Args:
        store: Where the log is.
        index: What follows it.
        namespace: The namespace of both the log and the index.
        change_of: Gives what a page of entries changes; it may read the store.
        new_id: Gives an id to each beginning.
        at_once: Gives how many of a page's entries form one change of the index, which others wait for.
        report: Is called after each page with its number of entries.
        begun: Is called when the index begins anew, empty.
        astray: Is called before that if the log lost the entry of the index's position for no known reason.
        form: Names what the texts are made of: an index of texts of another form begins anew.

    Raises:
        SearchError: The index failed, or was replaced again and again.
    """
    beginnings = 0
    while True:
        news = _news(store, index, namespace, form, astray)
        if not news.items:
            return news.since
        try:
            if news.since is None:
                beginnings += 1
                if beginnings > _BEGINNINGS:
                    raise SearchError("an index was replaced repeatedly: one with another embedder may share it")
                begin(index, namespace, f"{news.items[0].id}@{new_id()}")
                if begun:
                    begun()
                continue
            items = news.items[: at_once(news.items)]
            change = change_of(items)
            position = _stamped(place(items[-1], news.tidied), form)
            index.apply(namespace, upsert=change.upsert, delete=change.delete, position=position, since=news.since)
        except Conflict:
            continue  # another follower has cleared or advanced the index: see where it is now
        if report:
            report(len(items))


def steadily(
    follow: Callable[[], Position | None], index: Index, namespace: Namespace, search: Callable[[], list[T]]
) -> list[T]:
    """Search an index that is up to date; search again if nothing was found and somebody dropped it in between."""
    for _ in range(_DROPS):
        stands = follow()
        found = search()
        if found or stands is None or index.position(namespace) == stands:
            break
    return found


def begin(index: Index, namespace: Namespace, id_: str) -> None:
    """Begin an index that has not begun; raises Conflict if another follower has begun it."""
    index.apply(namespace, position=(0, id_), since=START)


def _stamped(position: Position, form: str) -> Position:
    return (position[0], f"{position[1]}#{form}") if form else position


def _news(
    store: Store, index: Index, namespace: Namespace, form: str, astray: Callable[[], None] | None = None
) -> _Unseen:
    """An index's position, and a page of what came after it; the last entry that it saw is read with the page."""
    since = index.position(namespace)
    after = max(since[0] - 1, 0) if since else 0
    page = store.scan(namespace, after=after, limit=PAGE + 1, keys=[TIDIED])
    to = tidied(page.values)
    # Without ``astray``, entries leave the log one by one, or the index holds more than the log tells.
    if since is None or (since[0] == 0 and (astray is None or to > 0 or _begins_so(page.items, since))):
        return _Unseen(since, page.items[:PAGE], to)
    if page.items and since == _stamped(place(page.items[0], to), form):
        return _Unseen(since, page.items[1:], to)
    if index.position(namespace) != since:
        return _news(store, index, namespace, form, astray)  # another follower has advanced it meanwhile
    if astray and since[0] > to and since[0] not in {item.seq for item in page.items[:1]}:
        astray()
    _log.info(
        "the index of %r is rebuilt: its store was cleared, replaced or tidied, or its texts are made differently",
        namespace[0],
    )
    index.clear(namespace)
    return _news(store, index, namespace, form)


def _begins_so(items: Sequence[Item], since: Position) -> bool:
    """Whether a log begins as it did when an index was begun; if not, it was cleared, maybe during a change."""
    return any(since[1].startswith(f"{item.id}@") for item in items[:1])
