"""The directory of a parent namespace in Redis: its children, sorted by their last write.

Children expire without telling it, so a row may be of a child that is gone; whoever meets such a row removes it. Some
rows are also checked as new children come, so that a directory that is never listed does not grow for ever.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from langmem_adapters.errors import Conflict, StoreError, StoreUnavailable
from langmem_adapters.keys import Namespace
from langmem_adapters.protocols import Listed
from langmem_adapters.stores.redis_errors import is_full
from langmem_adapters.stores.redis_keys import NO_EXPIRY, Keys
from langmem_adapters.stores.redis_packing import pack
from langmem_adapters.stores.redis_wire import Wire

_Row = tuple[float, bytes]  # last write and name; the directory is in falling order of rows

_PAGE_SIZE = 1000  # rows read at once where there is no limit
_EXPIRY_FACTOR = 1.25  # a directory outlives its children by a quarter, so it is rarely extended
_MAX_NEIGHBOURS = 100  # children checked beside a directory's first one, since they were made at the same moment
_MAX_ATTEMPTS = 128  # only the maker of a directory lets it expire, and each new child interferes
_SWEEP_INTERVAL = 64  # new children between sweeps; one checks four times as many rows, so most are of living ones


class Directory:
    """Lists the children of ``parent``."""

    def __init__(self, wire: Wire, keys: Keys, parent: Namespace) -> None:
        self._wire = wire
        self._keys = keys
        self._parent = parent
        self._key = keys.directory(parent)

    @staticmethod
    def may_expire_before(lifetime: int, replies: Sequence[Any]) -> bool:
        """Whether a child with a lifetime (ms) may outlive the directory, by the replies to its listing."""
        remaining, children = replies[-2:]
        return bool(0 <= remaining < lifetime or (remaining == NO_EXPIRY and children == 1))

    def extend_expiry(self, lifetime: int) -> None:
        """Make the directory live longer than a child that was just listed, but not for ever.

        A directory without expiry is kept for children without expiry, unless this child has just created it.
        """
        reads = [pack("PTTL", self._key), pack("ZRANGE", self._key, 0, _MAX_NEIGHBOURS, "WITHSCORES")]
        was_unavailable = False
        for _ in range(_MAX_ATTEMPTS):
            old_replies = self._wire.send(*((self._key, command) for command in reads))
            max_lifetime = self._max_lifetime(lifetime, *old_replies)
            if max_lifetime is None:
                return
            extension = pack("PEXPIRE", self._key, int(max_lifetime * _EXPIRY_FACTOR))
            decide = partial(_extend_if_unchanged, extension, old_replies)
            try:
                if self._wire.transact_watched(self._key, reads, decide) is not None:
                    return
            except Conflict:  # if it only has to live longer, the next writer would do it too
                continue
            except StoreUnavailable:
                if was_unavailable:  # for writes only, as a replica is: as where it is refused
                    return
                was_unavailable = True  # the answer may be lost: it is checked
            except StoreError as error:  # the write itself was made, and the next one tries again
                if is_full(error):  # it takes no transaction, but lists no other child meanwhile, either
                    self._wire.send((self._key, extension))
                return

    @staticmethod
    def is_sweep_due(replies: Sequence[Any]) -> bool:
        """Whether it is time to look for rows of children that are gone, by the replies to a listing."""
        added, _, children = replies[-3:]
        return bool(added) and children % _SWEEP_INTERVAL == 0

    def sweep(self, children: int) -> None:
        """Remove rows of gone children in a random part, since the oldest rows may be of lasting children."""
        count = 4 * _SWEEP_INTERVAL
        start = random.randint(0, max(children - count, 0))  # noqa: S311 - any place will do
        with suppress(StoreError):  # the write itself was made; a later sweep tries again
            read = pack("ZRANGE", self._key, start, start + count - 1, "WITHSCORES")
            self._existing_rows(_parse_rows(self._wire.send((self._key, read))[0]))

    def newest(self, limit: int | None, before: Listed | None) -> Iterator[Listed]:
        """Yield the existing children, by falling last write and name."""
        last_row = None if before is None else (before.updated_at, self._keys.for_namespace(before.namespace).row)
        count = _PAGE_SIZE if limit is None else min(limit, _PAGE_SIZE)
        while limit is None or limit > 0:
            rows = self._rows_after(last_row, count)
            existing_rows = self._existing_rows(rows)[:limit]
            yield from (Listed(self._keys.child(self._parent, name), updated_at) for updated_at, name in existing_rows)
            if len(rows) < count:
                return
            last_row = rows[-1]
            limit = None if limit is None else limit - len(existing_rows)
            count = min(2 * count, _PAGE_SIZE)  # where some children are gone, many may be

    def _existing_rows(self, rows: Sequence[_Row]) -> list[_Row]:
        """The rows of children that exist; other rows are removed."""
        children = [self._keys.data_keys(self._keys.child(self._parent, name)) for _, name in rows]
        key_counts = self._wire.send(*((keys[0], pack("EXISTS", *keys)) for keys in children))
        self._remove_rows([row for row, count in zip(rows, key_counts, strict=True) if not count])
        return [row for row, count in zip(rows, key_counts, strict=True) if count]

    def _rows_after(self, last_row: _Row | None, count: int) -> list[_Row]:
        """Read rows after ``last_row``; those of the same instant are sorted by name, so some of them precede it."""
        highest = "+inf" if last_row is None else repr(last_row[0])
        rows: list[_Row] = []
        offset = 0
        while len(rows) < count:
            bounds = (highest, "-inf", "BYSCORE", "REV", "LIMIT", offset, count, "WITHSCORES")
            page = _parse_rows(self._wire.send((self._key, pack("ZRANGE", self._key, *bounds)))[0])
            rows += [row for row in page if last_row is None or row < last_row]
            offset += len(page)
            if len(page) < count:
                break
        return rows[:count]

    def _max_lifetime(self, lifetime: int, remaining: int, reply: list[Any]) -> int | None:
        """The lifetime (ms) of the longest-lived child; None if the directory's expiry is right."""
        names = [name for _, name in _parse_rows(reply)]
        if remaining >= 0:
            return None if remaining >= lifetime else lifetime
        if remaining != NO_EXPIRY or len(names) > _MAX_NEIGHBOURS:
            return None
        children = [self._keys.data_keys(self._keys.child(self._parent, name)) for name in names]
        ttls = self._wire.send(*((key, pack("PTTL", key)) for keys in children for key in keys))
        return None if NO_EXPIRY in ttls else max([lifetime, *ttls])

    def _remove_rows(self, rows: Sequence[_Row]) -> None:
        """Remove rows of gone children, unless they were written since, or the server refuses it."""
        if not rows:
            return
        names = [name for _, name in rows]

        def decide(replies: list[Any]) -> list[bytes] | None:
            scores = [None if score is None else float(score) for score in replies[0]]
            unchanged = [name for (updated_at, name), score in zip(rows, scores, strict=True) if score == updated_at]
            return [pack("ZREM", self._key, *unchanged)] if unchanged else None

        with suppress(StoreError):  # a later check removes them
            self._wire.transact_watched(self._key, [pack("ZMSCORE", self._key, *names)], decide)


def _extend_if_unchanged(extension: bytes, old_replies: list[Any], new_replies: list[Any]) -> list[bytes] | None:
    """The extension; None if a child was written since, which may be one without expiry or with a longer one."""
    (old_ttl, old_rows), (new_ttl, new_rows) = old_replies, new_replies
    is_unchanged = new_rows == old_rows and new_ttl <= old_ttl and (new_ttl == NO_EXPIRY) == (old_ttl == NO_EXPIRY)
    return [extension] if is_unchanged else None


def _parse_rows(reply: list[Any]) -> list[_Row]:
    """Parse ZRANGE WITHSCORES: a flat list, or in RESP3 a list of pairs."""
    pairs = reply if reply and isinstance(reply[0], list) else zip(reply[::2], reply[1::2], strict=True)
    return [(float(score), name) for name, score in pairs]
