"""The conformance kit finds stores that err, each in one way that ordinary databases err in."""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any

import pytest

from langmem_adapters.errors import Conflict, SerializationError
from langmem_adapters.keys import Namespace, encode_namespace
from langmem_adapters.protocols import Appended, Item, Listed, Page
from langmem_adapters.stores.memory import MemoryStore
from langmem_adapters.testing import FakeClock, StoreConformance


class Kit(StoreConformance):
    def let_ttl_pass(self, store: Any, clock: FakeClock, seconds: float) -> None:  # noqa: ARG002 - it runs on the clock
        clock.advance(seconds)


class Folding(MemoryStore):
    """Takes names, ids and keys for the same that are not: ``fold`` says which."""

    def name(self, text: str) -> str:
        return text

    def id(self, text: str) -> str:
        return text

    def key(self, text: str) -> str:
        return text

    def _content(self, namespace: Namespace) -> Any:
        return super()._content(self._place(namespace))

    def _touch(self, namespace: Namespace, content: Any, ttl: float | None) -> None:
        super()._touch(self._place(namespace), content, ttl)

    def _place(self, namespace: Namespace) -> Namespace:
        return tuple(map(self.name, namespace))

    def append(self, namespace: Namespace, entries: Sequence[tuple[str, bytes]], **options: Any) -> Appended:
        return super().append(namespace, [(self.id(id_), data) for id_, data in entries], **options)

    def write(self, namespace: Namespace, *, put: Mapping[str, bytes] | None = None, **change: Any) -> None:
        super().write(namespace, put={self.key(key): data for key, data in (put or {}).items()}, **change)


class NamesWithoutCase(Folding):
    def name(self, text: str) -> str:
        return text.lower()


class NamesNormalized(Folding):
    def name(self, text: str) -> str:
        return unicodedata.normalize("NFC", text)


class IdsWithoutCase(Folding):
    def id(self, text: str) -> str:
        return text.lower()


class IdsCutAtNul(Folding):
    def id(self, text: str) -> str:
        return text.partition("\0")[0]


class KeysWithoutSpaces(Folding):
    def key(self, text: str) -> str:
        return text.rstrip(" ")


class KeysCutShort(Folding):
    def key(self, text: str) -> str:
        return text[:255]


class IdsOfUnknownCharacters(Folding):
    def id(self, text: str) -> str:
        return text.encode("utf-8", "replace").decode()


class KeysOfUnknownCharacters(Folding):
    def key(self, text: str) -> str:
        return text.encode("utf-8", "replace").decode()


class NoneIsEmpty(MemoryStore):
    def write(self, namespace: Namespace, *, guard: Mapping[str, bytes | None] | None = None, **change: Any) -> None:
        held = self.get(namespace)
        told = {key: held.get(key) for key, value in (guard or {}).items() if not value and not held.get(key)}
        super().write(namespace, guard={**(guard or {}), **told}, **change)


class RemovesById(MemoryStore):
    def write(self, namespace: Namespace, *, remove: Sequence[Item] = (), **change: Any) -> None:
        ids = {item.id for item in remove}
        super().write(namespace, remove=[i for i in self.scan(namespace).items if i.id in ids], **change)


class WithoutTtlKeepsIt(MemoryStore):
    def write(self, namespace: Namespace, *, ttl: float | None = None, **change: Any) -> None:
        dates = self.dates(namespace)
        super().write(namespace, ttl=dates.expires_in if dates and ttl is None else ttl, **change)


class KnownEntriesKeepTheTtl(MemoryStore):
    def append(self, namespace: Namespace, entries: Sequence[tuple[str, bytes]], **options: Any) -> Appended:
        dates = self.dates(namespace)
        if dates and {id_ for id_, _ in entries} <= {item.id for item in self.scan(namespace).items}:
            options["ttl"] = dates.expires_in
        return super().append(namespace, entries, **options)


class ConflictSetsTheTtl(MemoryStore):
    def write(self, namespace: Namespace, *, ttl: float | None = None, **change: Any) -> None:
        try:
            super().write(namespace, ttl=ttl, **change)
        except Conflict:
            super().append(namespace, [], ttl=ttl)
            raise


class ReadingKeepsAlive(MemoryStore):
    def scan(self, namespace: Namespace, **which: Any) -> Page:
        if (dates := self.dates(namespace)) and dates.expires_in:
            super().append(namespace, [], ttl=1000)
        return super().scan(namespace, **which)


class ValuesOutliveTheLog(MemoryStore):
    written: Mapping[str, bytes] | None = None

    def append(self, namespace: Namespace, entries: Sequence[tuple[str, bytes]], **options: Any) -> Appended:
        appended = super().append(namespace, entries, **options)
        self._content(namespace).values.update(self.written or {})
        return appended

    def write(self, namespace: Namespace, *, put: Mapping[str, bytes] | None = None, **change: Any) -> None:
        self.written = put
        super().write(namespace, put=put, **change)


class LimitCountsTheExpired(MemoryStore):
    def recent(self, parent: Namespace, *, limit: int | None = None, before: Listed | None = None) -> list[Listed]:
        rows = [Listed(n, c.updated_at) for n, c in self._contents() if n[:-1] == parent]
        chosen = {row.namespace for row in sorted(rows, key=lambda row: row.updated_at)[-limit if limit else 0 :]}
        return [row for row in super().recent(parent, before=before) if not limit or row.namespace in chosen]


class BackwardsFromTheBeginning(MemoryStore):
    def scan(self, namespace: Namespace, *, after: int = 0, reverse: bool = False, **which: Any) -> Page:
        return super().scan(namespace, after=0 if reverse else after, reverse=reverse, **which)


class LimitBeforeAfter(MemoryStore):
    def scan(self, namespace: Namespace, *, after: int = 0, reverse: bool = False, **which: Any) -> Page:
        page = super().scan(namespace, reverse=reverse, **which)
        return page._replace(items=[item for item in page.items if item.seq > after])


class TwoWrites(MemoryStore):
    """Values first and then the log, as without a transaction; whoever reads in between sees it."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock=clock)
        self.between, self.read = threading.Event(), threading.Event()

    def scan(self, namespace: Namespace, **which: Any) -> Page:
        self.between.wait(1)
        page = super().scan(namespace, **which)
        self.read.set()
        return page

    def write(self, namespace: Namespace, *, append: Sequence[tuple[str, bytes]] = (), **change: Any) -> None:
        super().write(namespace, **change)
        self._pause()
        super().write(namespace, append=append)

    def _pause(self) -> None:
        self.between.set()
        self.read.wait(1)


class TwoAppends(TwoWrites):
    def write(self, namespace: Namespace, **change: Any) -> None:
        MemoryStore.write(self, namespace, **change)

    def append(self, namespace: Namespace, entries: Sequence[tuple[str, bytes]], **options: Any) -> Appended:
        first = super().append(namespace, entries[:1], **options)
        self._pause()
        rest = super().append(namespace, entries[1:], **options)
        return rest._replace(new=first.new + rest.new)


class LooksBeforeItAppends(MemoryStore):
    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock=clock)
        self._looked = threading.Barrier(8)

    def append(self, namespace: Namespace, entries: Sequence[tuple[str, bytes]], **options: Any) -> Appended:
        known = {item.id for item in self.scan(namespace).items}
        self._looked.wait()
        appended = super().append(namespace, entries, **options)
        return appended._replace(new=[id_ not in known for id_, _ in entries])


class LooksBeforeItPuts(LooksBeforeItAppends):
    def append(
        self, namespace: Namespace, entries: Sequence[tuple[str, bytes]], *, keys: Sequence[str] = (), **options: Any
    ) -> Appended:
        values = self.get(namespace, keys)
        return super().append(namespace, entries, **options)._replace(values=values)


class AThousandAtMost(MemoryStore):
    def get(self, namespace: Namespace, keys: Sequence[str] | None = None) -> dict[str, bytes]:
        return super().get(namespace, keys and keys[:1000])


class OnePageOfNames(MemoryStore):
    def namespaces(self, prefix: Namespace = ()) -> Iterator[Namespace]:
        return islice(super().namespaces(prefix), 1000)


class OnePageOfChildren(MemoryStore):
    def recent(self, parent: Namespace, *, limit: int | None = None, before: Listed | None = None) -> list[Listed]:
        return super().recent(parent, limit=limit or 1000, before=before)


class LiveValues(MemoryStore):
    def get(self, namespace: Namespace, keys: Sequence[str] | None = None) -> dict[str, bytes]:
        return self._content(namespace).values if keys is None else super().get(namespace, keys)


class LiveNames(MemoryStore):
    def namespaces(self, prefix: Namespace = ()) -> Iterator[Namespace]:
        return (name for name, _ in self._contents() if name[: len(prefix)] == prefix)


class NumbersByLengthOnceClosed(MemoryStore):
    def close(self) -> None:
        self._seq = max(len(content.log) for _, content in self._contents())


class NumbersFromOneOnceCleared(MemoryStore):
    def clear(self, namespace: Namespace) -> None:
        super().clear(namespace)
        self._seq = 0


class IdsOutliveClear(MemoryStore):
    cleared: frozenset[str] = frozenset()

    def clear(self, namespace: Namespace) -> None:
        self.cleared |= {item.id for item in self.scan(namespace).items}
        super().clear(namespace)

    def append(self, namespace: Namespace, entries: Sequence[tuple[str, bytes]], **options: Any) -> Appended:
        return super().append(namespace, [entry for entry in entries if entry[0] not in self.cleared], **options)


class ValuesLostOnceClosed(MemoryStore):
    def close(self) -> None:
        for _, content in self._contents():
            content.values.clear()


class RefusesHalfWay(MemoryStore):
    def append(self, namespace: Namespace, entries: Sequence[tuple[str, bytes]], **options: Any) -> Appended:
        appended = super().append(namespace, [entry for entry in entries if entry[0].isascii()], **options)
        if len(appended.new) < len(entries):
            raise SerializationError("this id cannot be stored")
        return appended


class TotalWithinBounds(MemoryStore):
    def scan(self, namespace: Namespace, *, after: int = 0, before: int | None = None, **which: Any) -> Page:
        page = super().scan(namespace, after=after, before=before, **which)
        return page._replace(total=len(page.items)) if after or before else page


class ValuesOfAWholeScan(MemoryStore):
    def scan(self, namespace: Namespace, *, after: int = 0, **which: Any) -> Page:
        page = super().scan(namespace, after=after, **which)
        return page._replace(values={}) if after else page


class BeforeNothingIsAll(MemoryStore):
    def scan(self, namespace: Namespace, *, before: int | None = None, **which: Any) -> Page:
        return super().scan(namespace, before=before or None, **which)


class AfterGoesByItsEntry(MemoryStore):
    def scan(self, namespace: Namespace, *, after: int = 0, **which: Any) -> Page:
        there = {item.seq for item in super().scan(namespace).items}
        return super().scan(namespace, after=after if after in there else 0, **which)


class OnlyPutsSetTheTtl(MemoryStore):
    def write(self, namespace: Namespace, *, ttl: float | None = None, **change: Any) -> None:
        dates = self.dates(namespace)
        super().write(namespace, ttl=dates.expires_in if dates and not change.get("put") else ttl, **change)


class TtlInWholeSeconds(MemoryStore):
    def append(
        self, namespace: Namespace, entries: Sequence[tuple[str, bytes]], *, ttl: float | None = None, **options: Any
    ) -> Appended:
        return super().append(namespace, entries, ttl=(ttl and int(ttl)) or None, **options)


class TheExpiredLogComesBack(MemoryStore):
    def write(self, namespace: Namespace, **change: Any) -> None:
        old = dict(self._contents()).get(namespace)
        super().write(namespace, **change)
        content = self._content(namespace)
        if old is not None and old is not content:
            content.log[:0] = old.log
            content.by_id.update(old.by_id)


class NamesAsPatterns(MemoryStore):
    def namespaces(self, prefix: Namespace = ()) -> Iterator[Namespace]:
        pattern = "/".join([*prefix, "*"])
        return (name for name in super().namespaces() if fnmatchcase("/".join([*name, ""]), pattern))


class NamesAsLike(MemoryStore):
    def namespaces(self, prefix: Namespace = ()) -> Iterator[Namespace]:
        pattern = re.escape(encode_namespace(prefix)).replace("_", ".")
        return (name for name in super().namespaces() if re.match(pattern, encode_namespace(name)))


class NamesKeptByTheirBeginning(MemoryStore):
    length = 1000

    def _content(self, namespace: Namespace) -> Any:
        begins = self.beginning(namespace)
        same = next((name for name, _ in self._contents() if self.beginning(name) == begins), namespace)
        return super()._content(same)

    def beginning(self, namespace: Namespace) -> Namespace:
        return tuple(part[: self.length] for part in namespace)


class NamesKeptUpToNul(NamesKeptByTheirBeginning):
    def beginning(self, namespace: Namespace) -> Namespace:
        return tuple(part.partition("\0")[0] for part in namespace)


class ParentsAreChildrenToo(MemoryStore):
    def recent(self, parent: Namespace, *, limit: int | None = None, before: Listed | None = None) -> list[Listed]:
        rows = super().recent(parent, limit=limit, before=before)
        above = {name[: len(parent) + 1] for name in self.namespaces(parent)} - set(self.namespaces()) - {parent}
        return rows + [Listed(name, 0.0) for name in above]


class NoChildrenAtTheRoot(MemoryStore):
    def recent(self, parent: Namespace, **page: Any) -> list[Listed]:
        return super().recent(parent, **page) if parent else []


class PagesByTheRowItself(MemoryStore):
    def recent(self, parent: Namespace, *, limit: int | None = None, before: Listed | None = None) -> list[Listed]:
        rows = super().recent(parent)
        return rows[rows.index(before) + 1 if before in rows else 0 :][:limit]


class RewritesTheLog(MemoryStore):
    """Reads the log, leaves out what is removed, and writes the rest, as with a file of JSON."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock=clock)
        self.appended = threading.Event()

    def append(self, namespace: Namespace, entries: Sequence[tuple[str, bytes]], **options: Any) -> Appended:
        appended = super().append(namespace, entries, **options)
        self.appended.set()
        return appended

    def write(self, namespace: Namespace, *, remove: Sequence[Item] = (), **change: Any) -> None:
        left = [item for item in self.scan(namespace).items if item not in remove]
        self.appended.clear()
        self.appended.wait(0.1)
        super().write(namespace, **change)
        content = self._content(namespace)
        content.log, content.by_id = left, {item.id: item for item in left}


class RemovesFirst(TwoWrites):
    def _pause(self) -> None:
        self.read.clear()
        self.between.set()
        self.read.wait(0.1)

    def write(self, namespace: Namespace, *, remove: Sequence[Item] = (), **change: Any) -> None:
        MemoryStore.write(self, namespace, remove=remove)
        self._pause()
        MemoryStore.write(self, namespace, **change)


class GuardsOnlyAgainstGuards(MemoryStore):
    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock=clock)
        self.guarded, self.appended = threading.Lock(), threading.Event()

    def append(self, namespace: Namespace, entries: Sequence[tuple[str, bytes]], **options: Any) -> Appended:
        appended = super().append(namespace, entries, **options)
        self.appended.set()
        return appended

    def write(self, namespace: Namespace, *, guard: Any = None, **change: Any) -> None:
        with self.guarded:
            super().write(namespace, guard=guard)
            self.appended.clear()
            self.appended.wait(0.1)
            super().write(namespace, **change)


class ViewsForBytes(MemoryStore):
    def scan(self, namespace: Namespace, **which: Any) -> Page:
        page = super().scan(namespace, **which)
        items: list[Any] = [item._replace(data=memoryview(item.data)) for item in page.items]  # type: ignore[arg-type]
        return page._replace(items=items)


class ViewsFromAppends(MemoryStore):
    def append(self, namespace: Namespace, entries: Sequence[tuple[str, bytes]], **options: Any) -> Appended:
        appended = super().append(namespace, entries, **options)
        views: Any = {key: memoryview(value) for key, value in appended.values.items()}
        return appended._replace(values=views)


ALIKE = Kit.test_names_ids_and_keys_that_look_alike_are_others
HALF = Kit.test_what_is_half_a_character_is_kept_or_refused
GUARD = Kit.test_a_guard_that_fails_changes_nothing
EXPIRES = Kit.test_a_namespace_expires_as_a_whole
ANEW = Kit.test_each_write_states_the_expiry_anew
SCAN = Kit.test_scan_reads_the_newest_and_what_came_after
PAGE = Kit.test_more_namespaces_are_listed_than_go_onto_a_page
WHOLE = Kit.test_a_reader_sees_no_half_of_a_change
ODD = Kit.test_names_of_any_characters_are_kept_apart
CHILDREN = Kit.test_recent_lists_children_by_last_write_and_pages
PREFIX = Kit.test_namespaces_go_by_whole_parts_of_the_prefix
RISE = Kit.test_numbers_rise_after_the_newest_was_removed
KIND = Kit.test_a_change_of_any_kind_states_the_expiry_anew
BOUNDS = Kit.test_bounds_may_be_those_of_removed_entries_and_bound_the_entries_alone
FAULTS: list[tuple[Any, Any, dict[str, Any]]] = [
    *((kind, ALIKE, {}) for kind in (NamesWithoutCase, NamesNormalized, IdsWithoutCase, IdsCutAtNul)),
    *((kind, ALIKE, {}) for kind in (KeysWithoutSpaces, KeysCutShort, NamesKeptByTheirBeginning, NamesKeptUpToNul)),
    *((kind, HALF, {}) for kind in (IdsOfUnknownCharacters, KeysOfUnknownCharacters, RefusesHalfWay)),
    *((NoneIsEmpty, GUARD, {"guard": guard}) for guard in ({"b": b""}, {"empty": None})),
    (RemovesById, Kit.test_what_was_written_again_is_not_what_was_to_be_removed, {}),
    (IdsOutliveClear, Kit.test_clear_removes_one_namespace_and_nothing_else, {}),
    (NumbersByLengthOnceClosed, RISE, {}),
    (NumbersFromOneOnceCleared, Kit.test_numbers_rise_after_the_namespace_was_removed, {}),
    (ValuesLostOnceClosed, Kit.test_a_closed_store_can_be_used_again, {}),
    *((kind, BOUNDS, {}) for kind in (TotalWithinBounds, ValuesOfAWholeScan, AfterGoesByItsEntry)),
    *((kind, KIND, {}) for kind in (OnlyPutsSetTheTtl, TtlInWholeSeconds)),
    *((kind, ODD, {"odd": odd}) for kind, odd in ((NamesAsPatterns, "*"), (NamesAsLike, "_"))),
    *((kind, CHILDREN, {}) for kind in (ParentsAreChildrenToo, PagesByTheRowItself)),
    (RewritesTheLog, Kit.test_a_removal_loses_nothing_that_is_appended_meanwhile, {}),
    (RemovesFirst, Kit.test_a_reader_sees_no_half_of_a_removal, {}),
    (GuardsOnlyAgainstGuards, Kit.test_writers_on_threads_lose_no_update, {}),
    *(
        (kind, ANEW, {})
        for kind in (WithoutTtlKeepsIt, KnownEntriesKeepTheTtl, ConflictSetsTheTtl, TheExpiredLogComesBack)
    ),
    *((kind, EXPIRES, {}) for kind in (ReadingKeepsAlive, ValuesOutliveTheLog, LimitCountsTheExpired)),
    *((kind, SCAN, {}) for kind in (BackwardsFromTheBeginning, LimitBeforeAfter, BeforeNothingIsAll)),
    *((kind, WHOLE, {}) for kind in (TwoWrites, TwoAppends)),
    (LooksBeforeItAppends, Kit.test_an_id_that_threads_append_at_once_is_new_to_one_of_them, {}),
    (LooksBeforeItPuts, Kit.test_a_value_that_threads_replace_with_an_append_is_told_to_one_of_them, {}),
    (AThousandAtMost, Kit.test_many_are_read_and_changed_at_once, {}),
    *((kind, PAGE, {}) for kind in (OnePageOfNames, OnePageOfChildren)),
    (LiveValues, Kit.test_what_a_store_gave_is_the_callers, {}),
    *((kind, PREFIX, {}) for kind in (LiveNames, NoChildrenAtTheRoot)),
    *((kind, Kit.test_large_data_comes_back_whole, {}) for kind in (ViewsForBytes, ViewsFromAppends)),
]


@pytest.mark.parametrize(("kind", "test", "also"), FAULTS, ids=[f"{kind.__name__}-{also}" for kind, _, also in FAULTS])
def test_a_store_that_errs_is_found(kind: Any, test: Any, also: dict[str, Any]) -> None:
    """By this test of the kit; a store that does not err passes it in the tests of each store."""
    clock = FakeClock()
    store = kind(clock=clock)
    wants = {"clock": clock} if "clock" in test.__annotations__ else {}
    with pytest.raises((AssertionError, pytest.fail.Exception, RuntimeError, Conflict)):
        test(Kit(), store=store, **wants, **also)
