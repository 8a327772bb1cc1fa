"""Delete a user: everything that this library keeps for them, everywhere, and nothing else.

Kept by user: sessions (history, knowledge, summary, title), working memory, long-term memory, experiences with
their leases, and items in LangGraph namespaces that name the user; with their words and vectors in the indexes. Kept
by tenant only: the answers of ``ExperienceCache`` and ``ExperienceNodeCache``. Their keys are hashes, which name no
user; use their ``clear`` or a ttl. Data stored without a user belongs to its session.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TypeAlias

from langmem_adapters.erasure_counts import count_entries
from langmem_adapters.errors import ConfigurationError, LangmemError, SearchError, StoreError, StoreUnavailable
from langmem_adapters.experience.shelf.invalidation import outdate
from langmem_adapters.experience.shelf.read_cache import invalidate
from langmem_adapters.files.scrubbing import can_list_namespaces, is_damaged, namespaces_in, scrub
from langmem_adapters.flow import Flow, arun, gather, run, step
from langmem_adapters.inspection import unwrap
from langmem_adapters.keys import Namespace, encode_namespace
from langmem_adapters.protocols import Index, Store
from langmem_adapters.records.following import own_index_errors
from langmem_adapters.records.namespace_tree import NamespaceTree
from langmem_adapters.records.paging import MAX_TOGETHER
from langmem_adapters.validation import check_index, check_store, check_sync_function

__all__ = ["PLACES", "Report", "adelete_user", "delete_user", "delete_user_flow"]

PLACES = (
    "sessions",
    "messages",
    "knowledge",
    "summaries",
    "working",
    "memories",
    "experiences",
    "leases",
    "items",
    "indexed",
)
"""What is counted: ``items`` are LangGraph's; ``indexed`` counts namespaces of which indexes held something."""

_KINDS = ("brain", "working", "longterm", "experience")
_LANGGRAPH_KIND = "langgraph"
_JOURNAL_KIND = "migration"
_MAX_PASSES = 4
_DATA_RETURNS_MESSAGE = "its data comes back: an index that holds it was not given, or a writer goes on"
_Listed: TypeAlias = Mapping[Index, set[Namespace]]
_log = logging.getLogger("langmem_adapters")

Report: TypeAlias = Callable[[str, int], object]
"""Is called with a place and how much of it has just been deleted."""


def delete_user(
    store: Store,
    indexes: Sequence[Index] = (),
    *,
    user: str,
    tenant: str = "",
    items: Sequence[Namespace] | None = None,
    report: Report | None = None,
) -> dict[str, int]:
    """Delete a user, and every trace of them in the files behind store and indexes.

    Nobody should write for the user meanwhile; a second call removes what such writers leave. Deleting an unknown
    user is no error, and removes traces too.

    Args:
        store: Where their data is; a sealed store needs no key.
        indexes: Every index that follows the store, lexical or vector.
        user: Whom to delete; not empty.
        tenant: The user's tenant.
        items: The prefixes of the user's LangGraph namespaces; default ``("memories", user)`` and
            ``(user, "memories")``. Other namespaces that contain the user are logged, and stay. LangGraph refuses a
            label with a period, such as an e-mail address: give ``items`` with the label that you used instead.
        report: Is called after each deletion with one of :data:`PLACES` and the amount.

    Returns:
        How much there was, by :data:`PLACES`.

    Raises:
        ConfigurationError: The user is empty, or a prefix of ``items`` would include items of other users.
        StoreError, StoreUnavailable, SearchError: Some places failed; the message names them. All others are done,
            and the same call continues with the rest.

    >>> from langmem_adapters import BrainMemory, open_store
    >>> store = open_store("memory:")
    >>> BrainMemory(store, "monday", user="ada").add_talk("Where is my bike?")
    >>> BrainMemory(store, "monday", user="bob").add_talk("Hello.")
    >>> deleted = delete_user(store, user="ada")
    >>> deleted["sessions"], deleted["messages"], BrainMemory(store, "monday", user="bob").count()
    (1, 1, 1)
    """
    return run(delete_user_flow(store, indexes, user=user, tenant=tenant, items=items, report=report))


async def adelete_user(
    store: Store,
    indexes: Sequence[Index] = (),
    *,
    user: str,
    tenant: str = "",
    items: Sequence[Namespace] | None = None,
    report: Report | None = None,
) -> dict[str, int]:
    """:func:`delete_user`, without blocking the event loop."""
    return await arun(delete_user_flow(store, indexes, user=user, tenant=tenant, items=items, report=report))


def delete_user_flow(
    store: Store,
    indexes: Sequence[Index] = (),
    *,
    user: str,
    tenant: str = "",
    items: Sequence[Namespace] | None = None,
    report: Report | None = None,
) -> Flow[dict[str, int]]:
    """:func:`delete_user`, as a part of a larger flow."""
    if not isinstance(user, str) or not user:
        raise ConfigurationError("delete_user needs a user: a text that is not empty")
    if not isinstance(tenant, str):
        raise ConfigurationError("a tenant is a text")
    check_store(store)
    if not isinstance(indexes, Iterable):
        raise ConfigurationError(f"indexes are a list, such as [open_index(url)], not one {type(indexes).__name__}")
    indexes = tuple(dict.fromkeys(indexes))  # one that was given twice is cleared once
    for index in indexes:
        check_index("index", index)
    check_sync_function("report", report)
    prefixes = [("memories", user), (user, "memories")] if items is None else _checked_prefixes(items, user)
    erasure = _Erasure(unwrap(store), indexes, tenant, user, prefixes, report or (lambda *_: None))
    places: list[str] = [_LANGGRAPH_KIND, *_KINDS]
    for _ in range(_MAX_PASSES):
        erasure.listing = None  # a running search may have indexed some again
        remaining = places
        places = []
        for place in remaining:
            if (yield from step(erasure.attempt, place, partial(erasure.clear, place))):
                places.append(place)
    for place in places:  # each pass has found something there
        erasure.failures.setdefault(place, StoreError(_DATA_RETURNS_MESSAGE))
    for root in erasure.roots:
        yield from step(erasure.attempt, root[0], partial(erasure.clear_rest, root))
    yield from step(erasure.attempt, _JOURNAL_KIND, erasure.clear_journals)
    yield from step(erasure.attempt, "traces", lambda: scrub(erasure.store, *erasure.indexes))
    erasure.conclude()
    return {place: erasure.counts[place] for place in PLACES}


def _checked_prefixes(items: Sequence[Namespace], user: str) -> list[Namespace]:
    given = list(items)
    if any(isinstance(prefix, str) for prefix in given):
        raise ConfigurationError('items are a list of prefixes, such as [("docs", user)], not one prefix')
    prefixes = [tuple(prefix) for prefix in given]
    # LangGraph refuses such labels, so the user is written differently there.
    is_written_differently = "." in user or "\0" in user
    if not all(prefix and (user in prefix or is_written_differently) for prefix in prefixes):
        raise ConfigurationError(
            "each prefix of items needs the user as one of its parts: others would lose their data"
        )
    return prefixes


@dataclass(eq=False, repr=False)
class _Erasure:
    """The blocking parts; meant for a flow's steps."""

    store: Store
    indexes: tuple[Index, ...]
    tenant: str
    user: str
    prefixes: Sequence[Namespace]
    report: Report
    listing: list[Namespace] | None = None  # what the store held in this pass

    def __post_init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.failures: dict[str, LangmemError] = {}  # by place
        self._root = (_LANGGRAPH_KIND, self.tenant)
        self.roots: list[Namespace] = [(kind, self.tenant, self.user) for kind in _KINDS]
        self.roots += [(*self._root, part, *prefix) for part in ("items", "tree") for prefix in self.prefixes]
        self._place = ""
        self._failed_indexes = set[tuple[str, Index]]()  # with the place
        self._deleted = set[Namespace]()
        self._foreign = set[Namespace]()  # of LangGraph

    def attempt(self, place: str, work: Callable[[], object]) -> bool:
        """Do one part, and return whether it did anything; if it fails, the others are still done."""
        self._place = place
        try:
            return bool(work())
        except LangmemError as error:
            self.failures.setdefault(place, error)
            return False

    def conclude(self) -> None:
        """Tell what was kept, and raise an error that names the parts that failed."""
        if self._foreign:
            _log.warning(
                "%d LangGraph namespaces were kept: they name a deleted user outside of the prefixes of items=",
                len(self._foreign),
            )
        if not self.failures:
            return
        error = next(iter(self.failures.values()))
        kind = next((kind for kind in (StoreUnavailable, SearchError) if isinstance(error, kind)), StoreError)
        places = ", ".join(self.failures)
        raise kind(f"a user was not deleted completely, call delete_user again: {places} failed ({error})") from error

    def clear(self, place: str) -> bool:
        """Delete what there is of a place; returns whether there was any."""
        if place != _LANGGRAPH_KIND:
            return self._clear_below((place, self.tenant, self.user))
        tree = NamespaceTree(self.store, (*self._root, "tree"))
        for prefix in self.prefixes:  # before the look, so that nothing is left without a branch
            tree.prune(prefix, is_own=lambda node: self.user in node)
        are_found = [self._clear_below((*self._root, "tree", *prefix)) for prefix in self.prefixes]
        return any([*are_found, self._clear_below((*self._root, "items"), self._is_own_item)])

    def clear_rest(self, prefix: Namespace) -> None:
        """Clear what no list of namespaces shows."""
        for index in self.indexes:
            if not can_list_namespaces(index):
                self._clear_index(index, prefix)  # the store may no longer know of what it holds
        if prefix[0] != _LANGGRAPH_KIND:  # there, an item that has just come would go without its branch of the tree
            run(self._clear_stored(prefix))
        parents = {each[:-1] for each in (prefix, *self._deleted) if each[: len(prefix)] == prefix}
        for parent in {prefix, *parents}:
            self.store.recent(parent)  # in Redis, this removes expired children from the list of children

    def _clear_stored(self, namespace: Namespace) -> Flow[None]:
        """Delete a namespace from the store, and from this process's read cache."""
        outdate(namespace)
        try:
            yield from step(self.store.clear, namespace)
        finally:
            invalidate(namespace)

    def _clear_below(self, prefix: Namespace, is_chosen: Callable[[Namespace], bool] = lambda _: True) -> bool:
        """Delete the chosen namespaces that begin with a prefix; returns whether there were any.

        Namespaces of indexes in the store's own file are found too, whether the indexes were given or not.
        """
        listed = {index: self._list(index, prefix) for index in self._sound_indexes() if can_list_namespaces(index)}
        indexed = namespaces_in(self.store, prefix, kind="index").union(*listed.values())
        namespaces = {namespace for namespace in self._stored(prefix) | indexed if is_chosen(namespace)}
        errors: list[LangmemError] = []
        run(gather((self._clear_namespace(each, listed, errors) for each in sorted(namespaces)), at_once=MAX_TOGETHER))
        if errors:
            raise errors[0]
        self._deleted |= namespaces
        return bool(namespaces)

    def _stored(self, prefix: Namespace) -> set[Namespace]:
        """What the store holds below a prefix."""
        if self.listing is None:
            self.listing = list(self._list_stored())
        listing = {namespace for namespace in self.listing if namespace[: len(prefix)] == prefix}
        return listing | namespaces_in(self.store, prefix, kind="store")

    def _list_stored(self) -> Iterator[Namespace]:
        """What the store holds of the user: Redis, which looks through all its keys, is asked once for all places."""
        list_naming = getattr(self.store, "namespaces_naming", None)
        if list_naming is None:
            return chain.from_iterable(map(self.store.namespaces, (*self.roots[: len(_KINDS)], self._root)))
        is_complete = all(self.user in prefix for prefix in self.prefixes)
        return chain(list_naming(self.user), () if is_complete else self.store.namespaces(self._root))

    def _clear_namespace(self, namespace: Namespace, listed: _Listed, errors: list[LangmemError]) -> Flow[None]:
        """Delete a namespace: from the store last, so that it is found again if an index fails.

        A running search may index it again in between. Only a listed index would show that; any other is cleared twice.
        """
        if errors:
            return
        try:
            counts = yield from count_entries(self.store, namespace)
        except StoreUnavailable:
            raise
        except StoreError:  # what cannot be read, goes all the same
            counts = Counter()
        indexes = [index for index in self._sound_indexes() if index not in listed or namespace in listed[index]]
        for index in indexes:
            self._clear_index(index, namespace)
        counts["indexed"] = int(any(index in listed for index in indexes))
        try:
            yield from self._clear_stored(namespace)
            self.counts.update(counts)
            for place, number in (+counts).items():
                self.report(place, number)
            for index in indexes:
                if not can_list_namespaces(index):
                    self._clear_index(index, namespace)
        except LangmemError as error:  # not raised here: those that the store deletes together with it are counted, too
            errors.append(error)

    def _sound_indexes(self) -> list[Index]:
        return [index for index in self.indexes if (self._place, index) not in self._failed_indexes]

    def _list(self, index: Index, prefix: Namespace) -> set[Namespace]:
        """What the file of an index holds. One that is damaged is cleared first, which may remove it."""
        with suppress(StoreError):
            return namespaces_in(index, prefix, kind="index")
        self._clear_index(index, prefix)
        return namespaces_in(index, prefix, kind="index") if index in self._sound_indexes() else set()

    def _clear_index(self, index: Index, namespace: Namespace) -> None:
        """Clear a namespace of an index. If that fails, all else goes, as its file still lists the namespace, if any.

        Of what a server or a Chroma folder holds, only the store knows the names, so that stays; unless the folder is
        damaged, which another call would not change.
        """
        try:
            with own_index_errors(index):
                index.clear(namespace)
        except LangmemError as error:
            if not (can_list_namespaces(index) or is_damaged(index)):
                raise
            self.failures.setdefault(self._place, error)
            self._failed_indexes.add((self._place, index))

    def clear_journals(self) -> None:
        """Remove the deleted names from the journals of unfinished migrations."""
        names = tuple(map(encode_namespace, self.roots))
        for journal in list(self.store.namespaces((_JOURNAL_KIND,))):
            deleted_keys = [key for key in self.store.get(journal) if key.startswith(names)]
            if deleted_keys:
                self.store.write(journal, delete=deleted_keys)

    def _is_own_item(self, namespace: Namespace) -> bool:
        """Whether a namespace of items begins with a prefix of the user; others that name them are noted."""
        labels = namespace[3:]
        has_prefix = any(labels[: len(prefix)] == prefix for prefix in self.prefixes)
        if self.user in labels and not has_prefix:
            self._foreign.add(namespace)
        return has_prefix
