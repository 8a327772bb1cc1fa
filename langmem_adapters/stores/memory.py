"""A store in this process's memory: for tests and experiments, and the oracle for tests of the other stores."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from langmem_adapters.clocks import unix_time
from langmem_adapters.concurrency.forks import no_fork
from langmem_adapters.concurrency.locks import ForkSafeLock
from langmem_adapters.errors import Conflict
from langmem_adapters.inspection import Dates, Health, KindStats, StoreStats
from langmem_adapters.keys import Namespace, encode_namespace
from langmem_adapters.protocols import Appended, Item, Listed, Page
from langmem_adapters.sharing import Shared
from langmem_adapters.validation import check_seconds

_WRITES_PER_CULL = 256  # writes between two removals of expired namespaces


@dataclass
class _Content:
    log: list[Item] = field(default_factory=list)  # by rising number
    by_id: dict[str, Item] = field(default_factory=dict)  # the same items
    values: dict[str, bytes] = field(default_factory=dict)
    updated_at: float = 0.0
    expires_at: float | None = None

    def has_expired(self, now: float) -> bool:
        return self.expires_at is not None and self.expires_at <= now

    def position(self, seq: int) -> int:
        """Where the first item with at least this number is in the log."""
        return bisect_left(self.log, seq, key=lambda item: item.seq)

    def remove(self, items: Sequence[Item]) -> None:
        """Remove items of the log; only those between the first and the last of them are looked at."""
        seqs = {item.seq for item in items}
        if seqs:
            part = slice(self.position(min(seqs)), self.position(max(seqs) + 1))
            self.log[part] = [item for item in self.log[part] if item.seq not in seqs]
        for item in items:
            self.by_id.pop(item.id, None)


class MemoryStore(Shared):
    """Implements :class:`~langmem_adapters.protocols.Store` with dictionaries. ``clock`` gives Unix seconds."""

    def __init__(self, *, clock: Callable[[], float] = unix_time) -> None:
        self._clock = clock
        self._lock = ForkSafeLock()
        self._children: dict[Namespace, dict[Namespace, _Content]] = {}  # by parent: whoever lists one reads no other
        self._seq = 0
        self._writes = 0

    def get(self, namespace: Namespace, keys: Sequence[str] | None = None) -> dict[str, bytes]:
        with no_fork, self._lock.held():
            values = self._content(namespace).values
            return dict(values) if keys is None else _select_values(values, keys)

    def scan(
        self,
        namespace: Namespace,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int | None = None,
        reverse: bool = False,
        keys: Sequence[str] = (),
    ) -> Page:
        with no_fork, self._lock.held():
            content = self._content(namespace)
            end = len(content.log) if before is None else content.position(before)
            positions = range(content.position(after + 1), end)[:: -1 if reverse else 1][:limit]
            return Page([content.log[n] for n in positions], len(content.log), _select_values(content.values, keys))

    def append(
        self,
        namespace: Namespace,
        entries: Sequence[tuple[str, bytes]],
        *,
        put: Mapping[str, bytes] | None = None,
        keys: Sequence[str] = (),
        ttl: float | None = None,
    ) -> Appended:
        with no_fork, self._lock.held():
            content = self._content(namespace)
            values = _select_values(content.values, keys)
            new = self._apply_change(namespace, content, put or {}, (), entries, (), ttl)
            return Appended(new, len(content.log), values)

    def write(
        self,
        namespace: Namespace,
        *,
        put: Mapping[str, bytes] | None = None,
        delete: Sequence[str] = (),
        append: Sequence[tuple[str, bytes]] = (),
        remove: Sequence[Item] = (),
        guard: Mapping[str, bytes | None] | None = None,
        ttl: float | None = None,
    ) -> None:
        with no_fork, self._lock.held():
            content = self._content(namespace)
            for key, expected in (guard or {}).items():
                if content.values.get(key) != expected:
                    raise Conflict(f"the value {key!r} was changed by another writer")
            self._apply_change(namespace, content, put or {}, delete, append, remove, ttl)

    def clear(self, namespace: Namespace) -> None:
        with no_fork, self._lock.held():
            self._remove(namespace)

    def recent(self, parent: Namespace, *, limit: int | None = None, before: Listed | None = None) -> list[Listed]:
        encode_namespace(parent)  # refuses what the other stores refuse
        with no_fork, self._lock.held():
            now = self._clock()
            children = self._children.get(parent, {}).items()
            rows = [
                Listed(name, content.updated_at)
                for name, content in children
                if name and not content.has_expired(now)  # the root is beside its own children
            ]
        rows.sort(key=_recency, reverse=True)
        if before is not None:
            rows = [row for row in rows if _recency(row) < _recency(before)]
        return rows[:limit]

    def namespaces(self, prefix: Namespace = ()) -> Iterator[Namespace]:
        with no_fork, self._lock.held():
            contents = self._contents_below(prefix)
        yield from (name for name, _ in contents)

    def health(self) -> Health:
        return Health(ok=True, address="memory:", seconds=0.0)

    def stats(self) -> StoreStats:
        kinds: dict[str, KindStats] = {}
        size = 0
        with no_fork, self._lock.held():
            for namespace, content in self._contents_below(()):
                kind = namespace[0] if namespace else ""
                namespaces, expiring, entries = kinds.get(kind, KindStats())
                expires = content.expires_at is not None
                kinds[kind] = KindStats(namespaces + 1, expiring + expires, entries + len(content.log))
                size += sum(map(len, content.values.values())) + sum(len(item.data) for item in content.log)
        return StoreStats("memory:", dict(sorted(kinds.items())), size=size)

    def dates(self, namespace: Namespace) -> Dates | None:
        with no_fork, self._lock.held():
            content = self._existing_content(namespace)
            if content is None:
                return None
            remaining = None if content.expires_at is None else content.expires_at - self._clock()
            return Dates(content.updated_at, remaining)

    def set_dates(self, namespace: Namespace, dates: Dates) -> None:
        with no_fork, self._lock.held():
            if content := self._existing_content(namespace):
                content.updated_at = content.updated_at if dates.updated_at is None else dates.updated_at
                content.expires_at = None if dates.expires_in is None else self._clock() + dates.expires_in

    def discard(self, namespace: Namespace, before: float) -> bool:
        with no_fork, self._lock.held():
            content = self._existing_content(namespace)
            if content is None or content.updated_at >= before:
                return False
            self._remove(namespace)
            return True

    def close(self) -> None:
        """Nothing to release; the content stays as long as the object."""

    def __repr__(self) -> str:
        return "MemoryStore()"

    def _apply_change(  # noqa: PLR0917 - all of them each time
        self,
        namespace: Namespace,
        content: _Content,
        put: Mapping[str, bytes],
        delete: Sequence[str],
        append: Sequence[tuple[str, bytes]],
        remove: Sequence[Item],
        ttl: float | None,
    ) -> list[bool]:
        """Apply the whole change or none of it; return for each entry whether it is new."""
        last_seq = self._seq
        removed = [entry for item in remove if (entry := content.by_id.get(item.id)) and entry.seq == item.seq]
        old_values = _select_values(content.values, [*delete, *put])
        new: list[bool] = []
        try:
            for key in delete:
                content.values.pop(key, None)
            content.values.update(put)
            content.remove(removed)
            for id_, data in append:
                is_new = id_ not in content.by_id
                new.append(is_new)
                if is_new:
                    self._seq += 1
                    item = content.by_id[id_] = Item(self._seq, id_, data)
                    content.log.append(item)
            self._touch(namespace, content, ttl)
        except BaseException:  # such as KeyboardInterrupt: restore the old content
            content.values = {key: value for key, value in content.values.items() if key not in put} | old_values
            restored = {item for item in content.log if item.seq <= last_seq}.union(removed)
            content.log = sorted(restored)
            content.by_id = {item.id: item for item in content.log}
            raise
        return new

    def _content(self, namespace: Namespace) -> _Content:
        return self._existing_content(namespace) or _Content()

    def _contents_below(self, prefix: Namespace) -> list[tuple[Namespace, _Content]]:
        encode_namespace(prefix)  # refuses what the other stores refuse
        self._remove_expired()
        depth = len(prefix)
        return [(name, content) for name, content in self._contents() if name[:depth] == prefix]

    def _contents(self) -> Iterator[tuple[Namespace, _Content]]:
        return (pair for children in self._children.values() for pair in children.items())

    def _existing_content(self, namespace: Namespace) -> _Content | None:
        encode_namespace(namespace)
        content = self._children.get(namespace[:-1], {}).get(namespace)
        return None if content is None or content.has_expired(self._clock()) else content

    def _touch(self, namespace: Namespace, content: _Content, ttl: float | None) -> None:
        """Store the content of a namespace, with the time of this write and the new expiry."""
        check_seconds("ttl", ttl)
        now = self._clock()
        self._writes += 1
        if self._writes % _WRITES_PER_CULL == 0:
            self._remove_expired()
        self._children.setdefault(namespace[:-1], {})[namespace] = content
        content.updated_at = now  # last: whatever interrupts the write, it has changed neither time
        content.expires_at = None if ttl is None else now + ttl

    def _remove_expired(self) -> None:
        now = self._clock()
        for name in [name for name, content in self._contents() if content.has_expired(now)]:
            self._remove(name)

    def _remove(self, namespace: Namespace) -> None:
        children = self._children.get(namespace[:-1], {})
        children.pop(namespace, None)
        if not children:
            self._children.pop(namespace[:-1], None)


def _select_values(values: dict[str, bytes], keys: Sequence[str]) -> dict[str, bytes]:
    return {key: values[key] for key in keys if key in values}


def _recency(row: Listed) -> tuple[float, str]:
    return row.updated_at, encode_namespace(row.namespace)
