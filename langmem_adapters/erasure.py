"""Deleting a user: everything of ours that is kept for them, everywhere, and nothing else.

By user are kept sessions (history, knowledge, summary, title), working memory, long-term memory, experiences with
their leases, and items in LangGraph namespaces that name the user; with what indexes of words and vectors have of
them. By tenant alone are kept the answers of ``ExperienceCache`` and ``ExperienceNodeCache``, whose keys are hashes
that no user can be told from: they have a ``clear`` and a ttl. What was stored without a user belongs to its session.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from langmem_adapters.conversation.log import ARCHIVE
from langmem_adapters.conversation.session import KNOWLEDGE
from langmem_adapters.conversation.stored_summary import SUMMARY
from langmem_adapters.errors import ConfigurationError, LangmemError, SearchError, StoreError, StoreUnavailable
from langmem_adapters.experience.shelf.read_cache import invalidate
from langmem_adapters.experience.shelf.under_way import outdate
from langmem_adapters.files.scrubbing import is_listed, named_in, scrub
from langmem_adapters.flow import Flow, arun, run, step
from langmem_adapters.inspection import bare
from langmem_adapters.keys import Namespace, encode_namespace
from langmem_adapters.protocols import Index, Store
from langmem_adapters.records.namespace_tree import Tree
from langmem_adapters.validation import check_index, check_store

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
"""What is counted: ``items`` are LangGraph's, ``indexed`` the namespaces that indexes had something of."""

_KINDS = ("brain", "working", "longterm", "experience")
_LANGGRAPH = "langgraph"
_JOURNALS = "migration"
_PASSES = 4
_COMES_BACK = "its data comes back: an index that holds it was not given, or a writer goes on"
_POOL = 4  # parts of a pool's namespace
_log = logging.getLogger("langmem_adapters")

Report: TypeAlias = Callable[[str, int], None]
"""Is told a place and how much of it has gone just now."""


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

    Nobody should write for the user meanwhile; what they leave, the same call removes later. Deleting one who is not
    there is no error, and removes traces too.

    Args:
        store: Where their data are; of a sealed one, no key is needed.
        indexes: Every index that follows the store, of words and of vectors.
        user: Whom; not empty.
        tenant: Whose user.
        items: How the LangGraph namespaces begin that are theirs; default ``("memories", user)`` and
            ``(user, "memories")``. If others have the user as a part, that is logged, and they stay. LangGraph takes
            no user with a period, such as an address: give ``items``, as you have written it.
        report: Is told, each time that something has gone, which of :data:`PLACES` it was in, and how much it was.

    Returns:
        How much there was, by :data:`PLACES`.

    Raises:
        ConfigurationError: The user is empty, or a prefix of items would take in those of others.
        StoreError, StoreUnavailable, SearchError: Some places failed, which the message names. All others are done,
            and the same call goes on with what is left.

    >>> from langmem_adapters import BrainMemory, open_store
    >>> store = open_store("memory:")
    >>> BrainMemory(store, "monday", user="ada").add_talk("Where is my bike?")
    >>> BrainMemory(store, "monday", user="bob").add_talk("Hello.")
    >>> gone = delete_user(store, user="ada")
    >>> gone["sessions"], gone["messages"], BrainMemory(store, "monday", user="bob").count()
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
    indexes = tuple(indexes)
    for index in indexes:
        check_index("index", index)
    prefixes = [("memories", user), (user, "memories")] if items is None else [tuple(prefix) for prefix in items]
    otherwise = "." in user or "\0" in user  # is it written, as LangGraph refuses it as a part of a namespace
    if not all(prefix and (user in prefix or otherwise) for prefix in prefixes):
        raise ConfigurationError(
            "each prefix of items needs the user as one of its parts: others would lose their data"
        )
    erasure = _Erasure(bare(store), indexes, tenant=tenant, user=user, prefixes=prefixes, report=report)
    for kind in _KINDS:
        yield from step(erasure.attempt, kind, lambda kind=kind: erasure.clear((kind, tenant, user)))
    yield from step(erasure.attempt, _LANGGRAPH, erasure.clear_items)
    yield from step(erasure.attempt, _JOURNALS, erasure.clear_journals)
    yield from step(erasure.attempt, "traces", lambda: scrub(erasure.store, *erasure.indexes))
    erasure.conclude()
    return {place: erasure.counts[place] for place in PLACES}


class _Erasure:
    """Blocking; meant for a flow's steps."""

    def __init__(
        self,
        store: Store,
        indexes: tuple[Index, ...],
        *,
        tenant: str,
        user: str,
        prefixes: Sequence[Namespace],
        report: Report | None,
    ) -> None:
        self.store = store
        self.indexes = indexes
        self.counts: Counter[str] = Counter()
        self._tenant = tenant
        self._user = user
        self._prefixes = prefixes
        self._report = report
        self._failures: dict[str, LangmemError] = {}  # by place

    def attempt(self, place: str, work: Callable[[], object]) -> None:
        """Do one part; where it fails, the others are still done."""
        try:
            work()
        except LangmemError as error:
            self._failures[place] = error

    def conclude(self) -> None:
        """Raise what has failed."""
        if not self._failures:
            return
        error = next(iter(self._failures.values()))
        kind = next((kind for kind in (StoreUnavailable, SearchError) if isinstance(error, kind)), StoreError)
        places = ", ".join(self._failures)
        raise kind(f"a user was not deleted completely, call delete_user again: {places} failed ({error})") from error

    def clear(self, prefix: Namespace) -> None:
        """Delete all namespaces that begin with a prefix."""
        parents = {prefix, *(namespace[:-1] for namespace in self._clear_all(prefix, lambda _: True))}
        for index in self.indexes:
            if not is_listed(index):
                index.clear(prefix)  # of which the store may know nothing any more
        self._drop(prefix)
        for parent in parents:  # of Redis, the list of children may still name some that had expired
            self.store.recent(parent)

    def _drop(self, namespace: Namespace) -> None:
        """Delete a namespace from the store, and from what this process has read of it a moment ago."""
        outdate(namespace)
        try:
            self.store.clear(namespace)
        finally:
            invalidate(namespace)

    def _clear_all(self, prefix: Namespace, chosen: Callable[[Namespace], bool]) -> set[Namespace]:
        """Delete the chosen namespaces until none is found, as a search under way may index some again.

        Also found is what indexes have in the store's own file, whether they were given or not.
        """
        everything = set[Namespace]()
        for _ in range(_PASSES):
            held = {
                index: named_in(index, prefix, kind="index") if is_listed(index) else None for index in self.indexes
            }
            names = [self.store.namespaces(prefix), named_in(self.store, prefix, kind="store")]
            beside = [named_in(self.store, prefix, kind="index"), *(each or () for each in held.values())]
            found = {name for name in set[Namespace]().union(*names, *beside) if chosen(name)}
            if not found:
                return everything
            for namespace in sorted(found):
                has = [index for index, each in held.items() if each is None or namespace in each]
                self._clear(namespace, has, indexed=int(any(held[index] is not None for index in has)))
            everything |= found
        raise StoreError(_COMES_BACK)

    def _clear(self, namespace: Namespace, indexes: Sequence[Index], *, indexed: int) -> None:
        """Delete a namespace: from the store behind the indexes, so that it is found again where one fails.

        A search under way may have told an index of it in between; of one that is not listed, nobody would see that.
        """
        counts = _counted(self.store, namespace)
        for index in indexes:
            index.clear(namespace)
        self._drop(namespace)
        for index in indexes:
            if not is_listed(index):
                index.clear(namespace)
        counts["indexed"] = indexed
        self.counts.update(counts)
        for place, number in counts.items():
            if self._report is not None and number:
                self._report(place, number)

    def clear_journals(self) -> None:
        """Let journals of migrations that were not finished forget the names of what has gone."""
        root = (_LANGGRAPH, self._tenant)
        prefixes: list[Namespace] = [(kind, self._tenant, self._user) for kind in _KINDS]
        prefixes += [(*root, part, *prefix) for part in ("items", "tree") for prefix in self._prefixes]
        names = tuple(encode_namespace(prefix) for prefix in prefixes)
        for journal in list(self.store.namespaces((_JOURNALS,))):
            noted = [key for key in self.store.get(journal) if key.startswith(names)]
            if noted:
                self.store.write(journal, delete=noted)

    # --- LangGraph

    def clear_items(self) -> None:
        """Delete the items of the user's namespaces, and these from the tree in which they are found."""
        root = (_LANGGRAPH, self._tenant)
        tree = Tree(self.store, (*root, "tree"))
        others = set[Namespace]()

        def is_own(namespace: Namespace) -> bool:
            labels = namespace[3:]
            own = any(labels[: len(prefix)] == prefix for prefix in self._prefixes)
            if self._user in labels and not own:
                others.add(namespace)
            return own

        for _ in range(_PASSES):
            for prefix in self._prefixes:
                self._clear_all((*root, "tree", *prefix), lambda _: True)
                tree.prune(prefix, is_own=lambda node: self._user in node)
            if not self._clear_all((*root, "items"), is_own):
                break  # else items that were put behind the first look have lost their branch, and others grow one
        else:
            raise StoreError(_COMES_BACK)
        if others:
            _log.warning(
                "%d LangGraph namespaces were kept: they name a deleted user outside of the prefixes of items=",
                len(others),
            )


def _counted(store: Store, namespace: Namespace) -> Counter[str]:
    """What is in a namespace of the store, by keys alone: it may be encrypted."""
    kind = namespace[0]
    total = store.scan(namespace, limit=0).total
    if kind == "working":
        return Counter(working=total)
    keys = list(store.get(namespace))
    if kind == "longterm":
        return Counter(memories=sum("\0" not in key for key in keys))  # beside them there is a mark, with a NUL
    if kind == "experience":
        # Beside a pool's entries there are marks, with a NUL; what lies below serves them.
        place = "experiences" if len(namespace) == _POOL else "leases" if namespace[_POOL:] == ("leases",) else ""
        return Counter({place: sum("\0" not in key for key in keys)} if place else {})
    if kind == _LANGGRAPH:
        # Beside items, whose keys are encoded names, there is a census; the tree has no items.
        return Counter(items=sum(namespace[2] == "items" and key.endswith("/") for key in keys))
    facts = sum(key.startswith(KNOWLEDGE) for key in keys)
    exists, summary = int(bool(total or keys)), int(SUMMARY in keys)
    messages = total + sum(key.startswith(ARCHIVE) for key in keys)
    return Counter(sessions=exists, messages=messages, knowledge=facts, summaries=summary)
