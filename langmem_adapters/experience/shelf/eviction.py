"""The eviction policy of a shelf: CLOCK (second chance) with scores. It drops entries expired or beyond the bounds.

Each write looks at a few entries at the old end of the log, and never more. An entry that was used since it last stood
there moves back to the new end (a use mark, written once a round, tells); of the others the lowest worth is dropped
first. Any process may do it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from langmem_adapters.errors import ConfigurationError
from langmem_adapters.experience.shelf.rows import BYTES, USED, Rows, is_used, parse_count
from langmem_adapters.protocols import Item

Evicted = list[tuple[str, bytes]]
"""Keys and values of dropped entries."""

_PASS_SIZE = 8  # entries of the old end that one pass looks at
_MAX_PASSES = 8  # at most, on one write
_SPARING_PASSES = 4  # passes in which used entries are spared
_SLACK_DIVISOR = 128  # one extra entry is dropped for each so many of the bound, so that not every write has to evict


class Eviction:
    """Keeps a shelf within its bounds. Blocking; meant for a flow's steps.

    See :class:`~langmem_adapters.experience.shelf.shelf.Shelf` for the bounds and the ``worth``.
    """

    def __init__(
        self, rows: Rows, *, max_entries: int | None, max_bytes: int | None, worth: Callable[[bytes], float | None]
    ) -> None:
        for name, bound in (("max_entries", max_entries), ("max_bytes", max_bytes)):
            if bound is not None and not (isinstance(bound, int | float) and bound >= 1):
                raise ConfigurationError(f"{name} is a number of 1 or more, or None, not {bound!r:.50}")
        self._rows = rows
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._worth = worth
        self._sweep_cursor = 0  # how far sweeps have read the log
        self._next_to_sweep: list[Item] = []  # the last items that they have read

    def evict(self, key: str, evicted: Evicted) -> list[Item]:
        """Drop entries beyond the bounds; returns the items that left the log, and adds the entries to ``evicted``.

        The entry of ``key``, which was just written, is spared as used ones are: in a small shelf it may stand first.
        """
        removed: list[Item] = []
        for pass_number in range(_MAX_PASSES):
            page = self._rows.store.scan(self._rows.namespace, limit=_PASS_SIZE, keys=[BYTES])
            entries = 0 if self._max_entries is None else page.total - self._max_entries
            size = 0 if self._max_bytes is None else parse_count(page.values.get(BYTES)) - self._max_bytes
            if entries <= 0 and size <= 0:
                break
            if self._max_entries is not None and entries > 0:
                entries += min(_PASS_SIZE - 1, self._max_entries // _SLACK_DIVISOR)
            items, values = self._rows.read_items(page.items)
            wanted = [item for item in items if item.id == key or is_used(item.id, values)]
            drop, spare = self._choose(items, values, entries, size, wanted if pass_number < _SPARING_PASSES else [])
            removed += self._apply(drop, spare, values, evicted)
        return removed

    def sweep(self, evicted: Evicted | None = None) -> list[Item]:
        """Drop worthless entries among the next few; without ``evicted``, only log items that have no value.

        If all of them are worthless, the next few are looked at too. Returns the items that left the log.
        """
        removed: list[Item] = []
        worth = self._worth
        if evicted is None:  # after a removal: what was read before it does not show it
            self._next_to_sweep, evicted, worth = [], [], lambda _: 0.0
        for _ in range(_MAX_PASSES):
            items = self._next_to_sweep
            keys = [item.id for item in items]
            # Values are read with the items after theirs: mostly all are worth something, and one read is enough.
            page = self._rows.store.scan(self._rows.namespace, after=self._sweep_cursor, limit=_PASS_SIZE, keys=keys)
            self._next_to_sweep = page.items
            self._sweep_cursor = page.items[-1].seq if len(page.items) == _PASS_SIZE else 0
            seen = page.values
            worthless = [item for item in items if item.id not in seen or worth(seen[item.id]) is None]
            if worthless:
                present, values = self._rows.read_items(items)
                drop = [item for item in worthless if item in present and values.get(item.id) == seen.get(item.id)]
                if drop:
                    removed += self._apply(drop, [], values, evicted)
            if len(worthless) < len(items) or not page.items:
                break
        return removed

    def _choose(
        self, items: Sequence[Item], values: Mapping[str, bytes], entries: int, size: int, wanted: Sequence[Item]
    ) -> tuple[list[Item], list[Item]]:
        """What to drop from the old end, and what to put back to the new end."""
        worths = {item.id: self._worth(values[item.id]) for item in items if item.id in values}
        spared = [item for item in wanted if worths.get(item.id) is not None]
        drop = [item for item in items if worths.get(item.id) is None]  # expired, damaged, or deleted
        rest = [item for item in items if item not in drop and item not in spared]
        for item in sorted(rest, key=lambda item: worths[item.id] or 0.0):
            if len(drop) >= entries and sum(len(values.get(item.id, b"")) for item in drop) >= size:
                break
            drop.append(item)
        return drop, spared

    def _apply(self, drop: list[Item], spare: list[Item], values: Mapping[str, bytes], evicted: Evicted) -> list[Item]:
        keys = [item.id for item in drop]
        is_applied = self._rows.change(
            keys,
            put={USED + item.id: str(item.seq).encode() for item in spare},  # so a slower evictor's guard fails
            delete=self._rows.with_marks(keys),
            remove=[*drop, *spare],
            append=[(item.id, b"") for item in spare],
            guard={key: values.get(key) for key in self._rows.with_marks([*keys, *(item.id for item in spare)])},
        )
        if not is_applied:
            return []
        evicted += [(key, values[key]) for key in keys if key in values]
        return drop
