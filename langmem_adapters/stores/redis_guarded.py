"""Guarded writes of the Redis store. Those of several threads to one namespace go together.

Each of them watches the namespace's values, so of several that are sent side by side only one succeeds at a time, and
the others begin again.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any

from redis.exceptions import ResponseError

from langmem_adapters.concurrency.forks import reset_in_child
from langmem_adapters.concurrency.workers import MAX_BATCH
from langmem_adapters.errors import Conflict, StoreError, StoreUnavailable
from langmem_adapters.keys import to_bytes
from langmem_adapters.stores.redis_keys import NamespaceKeys
from langmem_adapters.stores.redis_packing import pack
from langmem_adapters.stores.redis_wire import Wire

_MAX_BATCH_BYTES = 1 << 18  # after which no more writes join a transaction
_MAX_LINES = 256  # that are kept; should one in use be dropped, its namespace has two


@dataclass(eq=False, repr=False)
class _Write:
    """One guarded write, and its answer: the replies to its commands, or an error."""

    commands: Sequence[bytes]
    guard: Mapping[str, bytes | None]
    changes: Mapping[str, bytes | None]
    answer: list[Any] | Exception | None = None

    def take_answer(self) -> list[Any]:
        """Return or raise the answer, once: an error as one of its own, since several writes may share it.

        A shared one's traceback would show the frames of other callers; one that is kept here would be a cycle.
        """
        answer, self.answer = self.answer, None
        if isinstance(answer, Exception):
            raise copy(answer) from answer.__cause__
        return answer or []

    def conflict(self, values: Mapping[str, bytes | None]) -> Conflict | None:
        """The error of this write if these are the values before it."""
        for key, value in self.guard.items():
            if values[key] != value:
                return Conflict(f"the value {key!r} was changed by another writer")
        return None


class _Line:
    """The writes to one namespace that wait, and whose turn it is to send."""

    def __init__(self) -> None:
        self.turn = threading.RLock()  # reentrant: a signal's handler may write while its thread is writing
        self.waiting: deque[_Write] = deque()

    def take(self) -> list[_Write]:
        """Take the first of those that wait, as many as fit."""
        writes: list[_Write] = []
        size = 0
        with suppress(IndexError):  # none is left
            while len(writes) < MAX_BATCH and size < _MAX_BATCH_BYTES:
                writes.append(self.waiting.popleft())
                size += sum(map(len, writes[-1].commands))
        return writes


class GuardedWrites:
    """The guarded writes of a store."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        reset_in_child(self)

    def reset_state(self) -> None:
        # By namespace, and by the kind of lock, which gevent may replace.
        self._line_of: Callable[[bytes, object], _Line] = lru_cache(_MAX_LINES)(lambda *_: _Line())

    def write(
        self,
        redis_keys: NamespaceKeys,
        commands: Sequence[bytes],
        *,
        guard: Mapping[str, bytes | None],
        put: Mapping[str, bytes],
        delete: Sequence[str],
    ) -> list[Any]:
        """Send commands, which put and delete these values, if those of ``guard`` are what it says; else Conflict.

        Returns the replies.
        """
        write = _Write(commands, guard, {**dict.fromkeys(delete), **put})
        line = self._line_of(redis_keys.values, threading.RLock)
        try:
            line.waiting.append(write)
            with line.turn:
                while write.answer is None and (writes := line.take()):
                    self._send_together(redis_keys, writes, line)
            if write.answer is None:  # another thread took it, and was interrupted
                raise self._wire.lost_write()
        finally:
            with suppress(ValueError):  # after an interrupt, nobody is to send it later
                line.waiting.remove(write)
        return write.take_answer()

    def _send_together(self, redis_keys: NamespaceKeys, writes: Sequence[_Write], line: _Line) -> None:
        others = line.waiting.copy()
        refusal = self._send(redis_keys, writes)
        if refusal is not None:  # it was tried for as long as any of these would be
            for other in others:
                with suppress(ValueError):  # it waits no more
                    line.waiting.remove(other)
                    other.answer = refusal

    def _send(self, redis_keys: NamespaceKeys, writes: Sequence[_Write]) -> StoreError | None:
        """Send these in one transaction, as if one after the other, and give each its answer.

        Returns the error, if the server answered again and again that it takes no writes now, as while it is a replica.
        """
        names = list(dict.fromkeys(name for write in writes for name in write.guard))
        sent: list[_Write] = []

        def decide(replies: list[Any]) -> Sequence[bytes] | None:
            values: dict[str, bytes | None] = dict(zip(names, replies[0], strict=True))
            sent.clear()
            for write in writes:
                write.answer = write.conflict(values)
                if write.answer is None:
                    sent.append(write)
                    values.update(write.changes)
            return [command for write in sent for command in write.commands] if sent else None

        read = pack("HMGET", redis_keys.values, *map(to_bytes, names))
        try:
            replies = self._wire.transact_watched_unchecked(redis_keys.values, [read], decide)
        except StoreError as error:
            is_outage = isinstance(error, StoreUnavailable)
            if len(writes) > 1 and not (is_outage or isinstance(error, Conflict)):  # perhaps for one of them only
                for write in writes:
                    self._send(redis_keys, [write])
                return None
            for write in writes:
                write.answer = error
            return error if is_outage and isinstance(error.__cause__, ResponseError) else None
        own_replies = iter(replies or ())
        for write in sent:
            write.answer = self._wire.checked(list(islice(own_replies, len(write.commands))))
        return None
