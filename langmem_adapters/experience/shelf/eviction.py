"""The eviction policy of a shelf: CLOCK (second chance) with scores. It drops entries expired or beyond the bounds.

Each write looks at a few entries at the old end of the log, and never more. An entry that was used since it last stood
there moves back to the new end (a use mark, written once a round, tells); of the others the lowest worth is dropped
first. Any process may do it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from langmem_adapters.errors import ConfigurationError
from langmem_adapters.experience.shelf.rows import BYTES, USED, Rows, is_used, number
from langmem_adapters.protocols import Item, Page

__all__ = ["Evicted", "Eviction"]

Evicted = list[tuple[str, bytes]]
"""Keys and values of dropped entries."""

_LOOK = 8  # entries of the old end that one pass looks at
_PASSES = 8  # at most, on one write
_SPARING = 4  # passes in which used entries are spared
_SLACK = 128  # one extra entry is dropped for each so many of the bound, so that not every write has to evict


class _Choice(NamedTuple):
    """What to drop from the old end, and what to put back to the new end."""

    drop: list[Item]
    spare: list[Item]
    values: dict[str, bytes]


class Eviction:
    """Keeps a shelf within its bounds. Blocking; meant for a flow's steps.

    Args:
        rows: The entries.
        max_entries, max_bytes: The bounds; None: unbounded.
        worth: Returns the worth of an entry; None for one that is worthless, such as an expired one.
    """

    def __init__(
        self, rows: Rows, *, max_entries: int | None, max_bytes: int | None, worth: Callable[[bytes], float | None]
    ) -> None:
        for name, bound in (("max_entries", max_entries), ("max_bytes", max_bytes)):
            if bound is not None and not (isinstance(bound, int | float) and bound >= 1):
                raise ConfigurationError(f"{name} is a number above 0, or None, not {bound!r:.50}")
        self._rows = rows
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._worth = worth
        self._swept = 0  # how far sweeps have read the log

    def evict(self, evicted: Evicted) -> list[Item]:
        """Drop entries beyond the bounds; returns the items that left the log, and adds the entries to ``evicted``."""
        left: list[Item] = []
        for count in range(_PASSES):
            page = self._rows.store.scan(self._rows.namespace, limit=_LOOK, keys=[BYTES])
            entries, size = self._excess(page)
            if entries <= 0 and size <= 0:
                break
            if self._max_entries is not None and entries > 0:
                entries += min(_LOOK - 1, self._max_entries // _SLACK)
            left += self._carry_out(self._choose(page.items, entries, size, sparing=count < _SPARING), evicted)
        return left

    def sweep(self, evicted: Evicted | None = None) -> list[Item]:
        """Drop worthless entries among the next few; without ``evicted``, only log items that have no value.

        If all of them are dropped, the next few are looked at too. Returns the items that left the log.
        """
        left: list[Item] = []
        for _ in range(_PASSES):
            items = self._rows.store.scan(self._rows.namespace, after=self._swept, limit=_LOOK).items
            self._swept = items[-1].seq if len(items) == _LOOK else 0
            items, values = self._rows.together(items)
            drop = [item for item in items if self._is_spent(values.get(item.id), unread=evicted is None)]
            if drop:
                left += self._carry_out(_Choice(drop, [], values), [] if evicted is None else evicted)
            if len(drop) < _LOOK:
                break
        return left

    def _is_spent(self, data: bytes | None, *, unread: bool) -> bool:
        return data is None or not (unread or self._worth(data) is not None)

    def _excess(self, page: Page) -> tuple[int, int]:
        entries = 0 if self._max_entries is None else page.total - self._max_entries
        size = 0 if self._max_bytes is None else number(page.values.get(BYTES)) - self._max_bytes
        return entries, size

    def _choose(self, items: Sequence[Item], entries: int, size: int, *, sparing: bool) -> _Choice:
        items, values = self._rows.together(items)
        worths = {item.id: self._worth(values[item.id]) for item in items if item.id in values}
        used = [item for item in items if sparing and is_used(item.id, values) and worths.get(item.id) is not None]
        drop = [item for item in items if worths.get(item.id) is None]  # expired, damaged, or deleted
        rest = [item for item in items if item not in drop and item not in used]
        for item in sorted(rest, key=lambda item: worths[item.id] or 0.0):
            if len(drop) >= entries and sum(len(values.get(item.id, b"")) for item in drop) >= size:
                break
            drop.append(item)
        return _Choice(drop, used, values)

    def _carry_out(self, chosen: _Choice, evicted: Evicted) -> list[Item]:
        drop, spare, values = chosen
        keys = [item.id for item in drop]
        done = self._rows.change(
            keys,
            put={USED + item.id: str(item.seq).encode() for item in spare},  # so a slower evictor's guard fails
            delete=self._rows.with_marks(keys),
            remove=[*drop, *spare],
            append=[(item.id, b"") for item in spare],
            guard={key: values.get(key) for key in self._rows.with_marks([*keys, *(item.id for item in spare)])},
        )
        if done:
            evicted += [(key, values[key]) for key in keys if key in values]
        return drop if done else []
