"""Move a whole store into another one: namespace by namespace, compared at the end, and resumed where it stopped.

A journal in the target records what was copied, and in which state. So a namespace that has changed in the source
since is copied again, one that the source has lost is removed, and data that others wrote to the target stays.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from langmem_adapters.errors import ConfigurationError
from langmem_adapters.flow import Flow, arun, gather, is_flow, run, step
from langmem_adapters.inspection import Dates, unwrap
from langmem_adapters.keys import Namespace, decode_namespace, encode_namespace, to_bytes
from langmem_adapters.progress import Progress, advancing
from langmem_adapters.protocols import Item, Store
from langmem_adapters.records.paging import FIRST_PAGE_SIZE, MAX_TOGETHER, LogReader
from langmem_adapters.validation import check_store, check_text

_SMALL_PAGE_SIZE = 4  # entries, which may be pictures, where so many of each namespace are in memory together
_MAX_ROUNDS = 3  # how often namespaces that changed meanwhile are copied again
_EXPIRY_TOLERANCE_SECONDS = 2.0  # between reading the same expiry in two stores
_JOURNAL_KIND = "migration"
_PROBE_TTL_SECONDS = 60.0


class Migrated(NamedTuple):
    """What a migration did. ``differing`` are namespaces that a writer kept changing: stop it, and run again."""

    namespaces: int
    entries: int
    copied: int
    removed: int
    differing: list[Namespace]


class Migration:
    """Makes a store hold what another one holds: every namespace's log, values, expiry and time of the last write.

    Sequence numbers may differ, and indexes rebuild themselves. Nothing in the source is changed.
    Sealed data is moved as it is.

    Args:
        source, target: Stores whose namespaces have dates, as all of this library's stores do.
        name: Identifies the migration: the same for all its runs, such as the source's address.
        progress: Shows the namespaces, once as they are copied and once as they are compared; see
            :data:`~langmem_adapters.progress.Progress`.

    Raises:
        ConfigurationError: A store has no dates; both are the same store, even by different URLs; or the target has a
            namespace of the same name with other content, and then nothing in that namespace is changed.

    >>> from langmem_adapters import BrainMemory, open_store
    >>> old, new = open_store("memory:"), open_store("memory:")
    >>> BrainMemory(old, "monday").add_talk("Good morning.")
    >>> Migration(old, new).run().copied
    1
    >>> BrainMemory(new, "monday").count()
    1
    """

    def __init__(self, source: Store, target: Store, *, name: str = "", progress: Progress = False) -> None:
        check_store(source)
        check_store(target)
        check_text("name", name)
        self._source, self._target = unwrap(source), unwrap(target)
        for store in (self._source, self._target):
            if not hasattr(store, "set_dates"):
                raise ConfigurationError(f"{store!r} cannot be migrated, as it has no methods dates and set_dates")
        self._journal: Namespace = (_JOURNAL_KIND, name)
        self._progress = progress
        self._copied: set[Namespace] = set()

    def run(self) -> Migrated:
        """Copy, and compare."""
        return run(self._migrate())

    async def arun(self) -> Migrated:
        """:meth:`run`, without blocking the event loop."""
        return await arun(self._migrate())

    def _migrate(self) -> Flow[Migrated]:
        yield from step(self._refuse_same_store)
        for number in range(_MAX_ROUNDS):
            namespaces, entries, differing = yield from self._settle_all("comparing" if number else "copying")
            if not differing:
                break
        journal = yield from step(self._target.get, self._journal)
        removed = sum((yield from gather(map(self._remove_lost, journal), at_once=MAX_TOGETHER)))
        if not differing:
            yield from step(self._target.clear, self._journal)
        return Migrated(len(namespaces), entries, len(self._copied), removed, differing)

    def _refuse_same_store(self) -> None:
        """A copy onto itself would undo what others write meanwhile. One store may have many URLs."""
        probe, token = (*self._journal, "probe"), os.urandom(16)
        self._target.write(probe, put={"token": token}, ttl=_PROBE_TTL_SECONDS)
        is_same = self._source.get(probe).get("token") == token
        self._target.clear(probe)
        if is_same:
            raise ConfigurationError("a store cannot be migrated into itself: give two different stores")

    def _settle_all(self, activity: str) -> Flow[tuple[set[Namespace], int, list[Namespace]]]:
        """Settle all existing namespaces; returns their names, the number of entries, and which were copied."""
        namespaces: set[Namespace] = set()
        entries, differing = 0, list[Namespace]()
        count: int | None = None
        if self._progress is not False:
            count = yield from step(lambda: sum(1 for _ in self._source_namespaces()))
        with advancing(self._progress, activity, count, "namespaces") as advance:

            def settle(namespace: Namespace) -> Flow[None]:
                nonlocal entries
                total, has_changed = yield from self._settle(namespace)
                namespaces.add(namespace)
                entries += total
                if has_changed:
                    differing.append(namespace)
                advance(1)

            remaining = self._source_namespaces()
            while together := (yield from step(lambda: list(islice(remaining, MAX_TOGETHER)))):
                yield from gather(map(settle, together))
        return namespaces, entries, differing

    def _source_namespaces(self) -> Iterator[Namespace]:
        return (namespace for namespace in self._source.namespaces() if namespace[:1] != (_JOURNAL_KIND,))

    def _settle(self, namespace: Namespace) -> Flow[tuple[int, bool]]:
        """Make a namespace the same in both stores; returns its length and whether it had to be copied."""
        target_content = yield from _read_content(self._target, namespace)
        is_same = False
        # What is copied as a whole is not read before: a source may be large and far away.
        if target_content.digest != _EMPTY_DIGEST or (yield from self._is_source_empty(namespace)):
            is_same = (yield from _read_content(self._source, namespace)).digest == target_content.digest
        dates = yield from step(self._source.dates, namespace)  # last, so that even an empty namespace still exists
        if dates is None:
            return 0, False  # it has expired, or was deleted
        if is_same:
            yield from self._copy_dates(namespace, dates)
            return target_content.entries.total, False
        values, entries = yield from self._prepare_target(namespace, target_content)
        yield from self._copy(namespace, values, entries, dates.expires_in)
        self._copied.add(namespace)
        return entries.total, True

    def _is_source_empty(self, namespace: Namespace) -> Flow[bool]:
        log = yield from step(self._source.scan, namespace, limit=0)
        return not (log.total or (yield from step(self._source.get, namespace)))

    def _prepare_target(self, namespace: Namespace, target_content: _Content) -> Flow[tuple[dict[str, bytes], _Digest]]:
        """The source's values and entries that the target has already; clears a copy of an earlier state."""
        if target_content.digest == _EMPTY_DIGEST:
            return {}, _Digest()
        values = yield from step(self._target.get, namespace)
        source_values = yield from step(self._source.get, namespace)
        if values.items() <= source_values.items():
            expected = yield from _read_content(self._source, namespace, target_content.entries.total, values)
            if expected.digest == target_content.digest:
                return values, target_content.entries
        if target_content.digest not in (yield from self._recorded_states(namespace)):
            raise ConfigurationError(
                f"the target holds something else under {'/'.join(namespace)!r}:"
                " migrate into an empty store, or remove it there"
            )
        yield from step(self._target.clear, namespace)
        return {}, _Digest()

    def _copy(self, namespace: Namespace, values: dict[str, bytes], digest: _Digest, ttl: float | None) -> Flow[None]:
        """Append what is missing, then put the values. The dates are set in the next round, when all is the same.

        Before each write the journal records what the target holds, what it will hold, as the run may end there, and
        what the write alone leaves, as the copy may expire there.
        """
        state = digest.hexdigest_with(values)
        skip = digest.total  # entries that the target has already
        log = LogReader(self._source, namespace, size=_first_page_size(self._source, self._target))
        while page := (yield from log.next_page()):
            missing = page[skip:]
            skip = max(skip - len(page), 0)
            if missing:
                digest.add(missing)
                alone = _Digest()
                alone.add(missing)
                after = digest.hexdigest_with(values)
                yield from self._record_states(namespace, state, after, alone.hexdigest_with({}))
                state = after
                entries = [(item.id, item.data) for item in missing]
                keys = [*values][:1]
                appended = yield from step(self._target.append, namespace, entries, keys=keys, ttl=ttl)
                if appended.total < digest.total or len(appended.values) < len(keys):
                    return  # the copy has expired just now: the next round begins it anew
        source_values = yield from step(self._source.get, namespace)
        after = digest.hexdigest_with(values | source_values)
        yield from self._record_states(namespace, state, after, _Digest().hexdigest_with(source_values))
        yield from step(self._target.write, namespace, put=source_values, ttl=ttl)

    def _record_states(self, namespace: Namespace, *states: str) -> Flow[None]:
        put = {encode_namespace(namespace): " ".join(states).encode()}
        yield from step(self._target.write, self._journal, put=put)

    def _recorded_states(self, namespace: Namespace) -> Flow[list[str]]:
        """What the target may hold of a copied namespace, if nobody else wrote to it."""
        name = encode_namespace(namespace)
        recorded = yield from step(self._target.get, self._journal, [name])
        states: bytes = recorded.get(name, b"")
        return states.decode().split()

    def _copy_dates(self, namespace: Namespace, dates: Dates) -> Flow[None]:
        target_dates = yield from step(self._target.dates, namespace)
        if target_dates is None:  # it exists, and is empty
            yield from self._record_states(namespace, _EMPTY_DIGEST)
            yield from step(self._target.write, namespace, ttl=dates.expires_in)
        elif dates.updated_at in {None, target_dates.updated_at} and _is_close(
            target_dates.expires_in, dates.expires_in
        ):
            return
        yield from step(self._target.set_dates, namespace, dates)

    def _remove_lost(self, name: str) -> Flow[bool]:
        """Remove what was copied if the source no longer has it, such as data that a user has deleted meanwhile."""
        namespace = decode_namespace(name)
        if (yield from step(self._source.dates, namespace)) is not None:
            return False
        exists = (yield from step(self._target.dates, namespace)) is not None  # it may have expired there too
        target_content = yield from _read_content(self._target, namespace)
        is_unchanged_copy = exists and target_content.digest in (yield from self._recorded_states(namespace))
        if is_unchanged_copy:
            yield from step(self._target.clear, namespace)
        yield from step(self._target.write, self._journal, delete=[name])
        return is_unchanged_copy


def _first_page_size(*stores: Store) -> int:
    """How many entries of a namespace are held while others wait for an answer of one of these stores."""
    return _SMALL_PAGE_SIZE if any(is_flow(store.scan) for store in stores) else FIRST_PAGE_SIZE


def _is_close(first: float | None, second: float | None) -> bool:
    if first is None or second is None:
        return first is second
    return abs(first - second) < _EXPIRY_TOLERANCE_SECONDS


class _Digest:
    """A hash of a namespace's entries in their order, without their numbers, and of its values."""

    def __init__(self) -> None:
        self.total = 0
        self._hash = hashlib.sha256()

    def add(self, page: Sequence[Item]) -> None:
        for item in page:
            _update_hash(self._hash, to_bytes(item.id), item.data)
        self.total += len(page)

    def hexdigest_with(self, values: dict[str, bytes]) -> str:
        copy = self._hash.copy()
        _update_hash(copy, b"values of %d" % self.total)
        for key, data in sorted(values.items()):
            _update_hash(copy, to_bytes(key), data)
        return copy.hexdigest()


def _update_hash(hash_: hashlib._Hash, *parts: bytes) -> None:
    for part in parts:
        hash_.update(b"%d:%b" % (len(part), part))


class _Content(NamedTuple):
    """What a namespace holds: a hash of its entries, which can be extended, and one of its entries and values."""

    entries: _Digest
    digest: str


_EMPTY_DIGEST = _Digest().hexdigest_with({})


def _read_content(
    store: Store, namespace: Namespace, limit: int | None = None, values: dict[str, bytes] | None = None
) -> Flow[_Content]:
    """What a namespace holds, or would hold with ``limit`` entries and these values."""
    digest = _Digest()
    log = LogReader(store, namespace, size=_first_page_size(store))
    while page := (yield from log.next_page()):
        digest.add(page if limit is None else page[: limit - digest.total])
        if digest.total == limit:
            break
    if values is None:
        values = yield from step(store.get, namespace)
    return _Content(digest, digest.hexdigest_with(values))
