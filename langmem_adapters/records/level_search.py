"""Searches of an index that follows a log: where it has nothing to follow, as mostly, the store is asked once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeAlias, TypeVar

from langmem_adapters.errors import Conflict
from langmem_adapters.flow import Flow, blocking, run, step
from langmem_adapters.protocols import Position
from langmem_adapters.records.following import Follower, own_index_errors

T = TypeVar("T")
Read: TypeAlias = Callable[[Sequence[str]], dict[str, bytes]]
"""Reads values by their keys; missing ones are left out."""


class LevelSearches:
    """The searches of one index; ``read`` reads values for a search of an index that has just followed."""

    def __init__(self, follower: Follower, *, read: Read) -> None:
        self.follower = follower
        self._read = read
        self.wrote_since_followed: bool = False
        """Whether this process has written since the index followed: a search then has it follow first."""
        self._others_write = False  # of late, as searches have found

    @property
    def expects_news(self) -> bool:
        """Whether a search that begins now has the index follow first."""
        return self._level_position() is None

    def flow(self, search: Callable[[Read], Flow[T]], catch_up: Callable[[], Position | None]) -> Flow[T]:
        """Search an index that is up to date; ``search`` is given what reads values, those with a NUL excepted.

        Mostly there is nothing to follow: so the index is searched as it is, and the first read of values tells whether
        it was level. If it was not, it follows by ``catch_up`` and is searched again; then it follows first until that
        has found nothing, as who has written now may soon write again.
        """
        with own_index_errors(self.follower.index):
            position = self._level_position()
            if position is not None:
                with suppress(_IndexBehind):
                    result = yield from self._search_at(position, search)
                    if self.follower.has_remained(position):
                        return result

        def search_again() -> T:
            return run(search(self._read))

        result = yield from step(self.after_following, search_again, catch_up)
        return result

    def after_following(self, search: Callable[[], T], catch_up: Callable[[], Position | None]) -> T:
        """Search an index that has followed by ``catch_up``; notes whether others had written."""
        own_news = self.wrote_since_followed
        with own_index_errors(self.follower.index):
            position = self.follower.position()
            result = self.follower.search(catch_up, search)
            if not own_news:
                self._others_write = position is not None and self.follower.position() != position
        return result

    def _level_position(self) -> Position | None:
        """Where the index is, if it may be level with the log; None if news are expected, or it has not begun."""
        if self.wrote_since_followed or self._others_write:
            return None
        return self.follower.position()

    def _search_at(self, position: Position, search: Callable[[Read], Flow[T]]) -> Flow[T]:
        """Search an index that is at a position; raises _IndexBehind if that is not level with the log."""
        reader = _LevelReader(self._read, partial(self.follower.read_level, position))
        result = yield from search(reader.get)
        if not reader.is_level:  # nothing was found, so nothing was read
            yield from step(reader.get, [])
        return result


class _IndexBehind(Conflict):
    """The log has news that the index had not followed."""


class _LevelReader:
    """Reads values for a search of an index; the first read raises _IndexBehind if that is not level with the log."""

    def __init__(self, read: Read, read_if_level: Callable[[Sequence[str]], Flow[dict[str, bytes] | None]]) -> None:
        self.is_level = False
        self._read = read
        self._read_if_level = read_if_level

    @blocking
    def get(self, keys: Sequence[str]) -> Flow[dict[str, bytes]]:
        if self.is_level:
            return (yield from step(self._read, keys))
        keys = without_nul(keys)
        values = yield from self._read_if_level(keys)
        if values is None:
            raise _IndexBehind
        self.is_level = True
        return {key: values[key] for key in keys if key in values}


def without_nul(keys: Sequence[str]) -> list[str]:
    """These keys without those of values beside the records, or of marks of entries."""
    return [key for key in keys if "\0" not in key]
