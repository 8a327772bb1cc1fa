"""The directory of a parent namespace in Redis: its children, sorted by their last write.

Children expire without telling it, so a row may be of a child that is gone; whoever meets such a row removes it. Some
rows are also checked as new children come, so that a directory that is never listed does not grow for ever.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from langmem_adapters.errors import Conflict, StoreError, StoreUnavailable
from langmem_adapters.keys import Namespace
from langmem_adapters.protocols import Listed
from langmem_adapters.stores.redis_keys import FOR_EVER, Keys
from langmem_adapters.stores.redis_packing import pack
from langmem_adapters.stores.redis_wire import Wire

__all__ = ["Directory"]

_Row = tuple[float, bytes]  # last write and name; the directory is in falling order of rows

_PAGE = 1000  # rows read at once where there is no limit
_SPARE = 1.25  # a directory outlives its children by a quarter, so it is rarely extended
_NEIGHBOURS = 100  # children checked beside a directory's first one, since they were made at the same moment
_ATTEMPTS = 128  # attempts: only the maker of a directory lets it expire, and each new child interferes
_GROWTH = 64  # new children between two sweeps, which check four times as many rows, so most rows are of living ones


class Directory:
    """Lists the children of ``parent``."""

    def __init__(self, wire: Wire, keys: Keys, parent: Namespace) -> None:
        self._wire = wire
        self._keys = keys
        self._parent = parent
        self._key = keys.directory(parent)

    @staticmethod
    def may_end_before(lifetime: int, listed: Sequence[Any]) -> bool:
        """Whether a child with a lifetime (ms) may outlive the directory, by the replies to its listing."""
        left, children = listed[-2:]
        return bool(0 <= left < lifetime or (left == FOR_EVER and children == 1))

    def outlive(self, row: bytes, lifetime: int) -> None:
        """Make the directory live longer than a child that was just listed, but not for ever.

        A directory without expiry is kept for children without expiry, unless this child has just created it.
        """
        look = [pack("PTTL", self._key), pack("ZRANGE", self._key, 0, _NEIGHBOURS, "WITHSCORES")]
        for _ in range(_ATTEMPTS):
            before = self._wire.send(*((self._key, command) for command in look))
            longest = self._longest(row, lifetime, *before)
            if longest is None:
                return
            extension = pack("PEXPIRE", self._key, int(longest * _SPARE))

            def decide(now: list[Any], before: list[Any] = before, extension: bytes = extension) -> list[bytes] | None:
                # A child written since may be one without expiry.
                same = now[1] == before[1] and (now[0] == FOR_EVER) == (before[0] == FOR_EVER)
                return [extension] if same else None

            # If it only has to live longer, the next writer would do it too; after a lost answer, it is checked.
            with suppress(Conflict, StoreUnavailable):
                if self._wire.optimistic(self._key, look, decide) is not None:
                    return

    @staticmethod
    def has_grown(listed: Sequence[Any]) -> bool:
        """Whether it is time to look for rows of children that are gone, by the replies to a listing."""
        added, _, children = listed[-3:]
        return bool(added) and children % _GROWTH == 0

    def sweep(self, children: int) -> None:
        """Remove rows of gone children in a random part, since the oldest rows may be of lasting children."""
        count = 4 * _GROWTH
        start = random.randint(0, max(children - count, 0))  # noqa: S311 - any place will do
        with suppress(StoreError):  # the write itself was made; a later sweep tries again
            look = pack("ZRANGE", self._key, start, start + count - 1, "WITHSCORES")
            self._alive(_rows(self._wire.send((self._key, look))[0]))

    def newest(self, limit: int | None, before: Listed | None) -> Iterator[Listed]:
        """Yield the existing children, by falling last write and name."""
        last = None if before is None else (before.updated_at, self._keys.place(before.namespace).row)
        while limit is None or limit > 0:
            count = _PAGE if limit is None else limit
            rows = self._after(last, count)
            found = self._alive(rows)
            yield from (Listed(self._keys.child(self._parent, name), at) for at, name in found)
            if len(rows) < count:
                return
            last = rows[-1]
            limit = None if limit is None else limit - len(found)

    def _alive(self, rows: Sequence[_Row]) -> list[_Row]:
        """The rows of children that exist; other rows are removed."""
        children = [self._keys.of(self._keys.child(self._parent, name)) for _, name in rows]
        alive = self._wire.send(*((keys[0], pack("EXISTS", *keys)) for keys in children))
        self._remove([row for row, keys in zip(rows, alive, strict=True) if not keys])
        return [row for row, keys in zip(rows, alive, strict=True) if keys]

    def _after(self, last: _Row | None, count: int) -> list[_Row]:
        """Read rows after ``last``; those of the same instant are sorted by name, so some of them precede it."""
        highest = "+inf" if last is None else repr(last[0])
        rows: list[_Row] = []
        offset = 0
        while len(rows) < count:
            bounds = (highest, "-inf", "BYSCORE", "REV", "LIMIT", offset, count, "WITHSCORES")
            page = _rows(self._wire.send((self._key, pack("ZRANGE", self._key, *bounds)))[0])
            rows += [row for row in page if last is None or row < last]
            offset += len(page)
            if len(page) < count:
                break
        return rows[:count]

    def _longest(self, row: bytes, lifetime: int, left: int, reply: list[Any]) -> int | None:
        """The lifetime (ms) of the longest-lived child; None if the directory's expiry is right."""
        names = [name for _, name in _rows(reply) if name != row]
        if left >= 0:
            return None if left >= lifetime else lifetime
        if left != FOR_EVER or len(names) >= _NEIGHBOURS:
            return None
        children = [self._keys.of(self._keys.child(self._parent, name)) for name in names]
        lives = self._wire.send(*((key, pack("PTTL", key)) for keys in children for key in keys))
        return None if FOR_EVER in lives else max([lifetime, *lives])

    def _remove(self, rows: Sequence[_Row]) -> None:
        """Remove rows of gone children, unless they were written since, or the server refuses it."""
        if not rows:
            return
        names = [name for _, name in rows]

        def decide(replies: list[Any]) -> list[bytes] | None:
            times = [None if score is None else float(score) for score in replies[0]]
            same = [name for (at, name), now in zip(rows, times, strict=True) if now == at]
            return [pack("ZREM", self._key, *same)] if same else None

        with suppress(StoreError):  # a later check removes them
            self._wire.optimistic(self._key, [pack("ZMSCORE", self._key, *names)], decide)


def _rows(reply: list[Any]) -> list[_Row]:
    """Parse ZRANGE WITHSCORES: a flat list, or in RESP3 a list of pairs."""
    pairs = reply if reply and isinstance(reply[0], list) else zip(reply[::2], reply[1::2], strict=True)
    return [(float(score), name) for name, score in pairs]
