"""Results that are being made: one that was begun before its key was removed or refreshed is not kept.

Otherwise a call that read its data before a change, and ends after it, would restore a result removed as out of date.
This concerns calls of this process only: the result of a call in another process is kept.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from langmem_adapters.concurrency.locks import ForkSafeLock
from langmem_adapters.keys import Namespace

_MAX_REMOVALS = 10_000  # removals that are remembered; a result begun before all of them counts as outdated


class _Removal(NamedTuple):
    number: int
    namespace: Namespace
    keys: frozenset[str] | None  # None: all in or below the namespace

    def affects(self, namespace: Namespace, key: str) -> bool:
        if self.keys is None:
            return namespace[: len(self.namespace)] == self.namespace
        return namespace == self.namespace and key in self.keys


class StartMark:
    """Marks the moment in which making a result for a key has begun: ``at``, in Unix seconds.

    >>> mark = StartMark(("experience", "", "", "capitals"), "France", at=1.0)
    >>> mark.is_outdated
    False
    >>> outdate(("experience", "", "", "capitals"))
    >>> mark.is_outdated
    True
    """

    def __init__(self, namespace: Namespace, key: str, at: float) -> None:
        self.at = at
        self._namespace, self._key, self._number = namespace, key, next(_numbers)

    @property
    def is_outdated(self) -> bool:
        """Whether the key was removed or refreshed since."""
        if not _removals or _removals[-1].number < self._number:  # mostly: nothing was removed since
            return False
        with _lock.held():
            later = list(itertools.takewhile(lambda removal: removal.number > self._number, reversed(_removals)))
        return len(later) == _MAX_REMOVALS or any(removal.affects(self._namespace, self._key) for removal in later)


def outdate(namespace: Namespace, keys: Sequence[str] | None = None) -> None:
    """Outdate results being made for these keys, or for all in or below a namespace. Call it before their removal."""
    with _lock.held():
        _removals.append(_Removal(next(_numbers), namespace, None if keys is None else frozenset(keys)))


_lock = ForkSafeLock()
_numbers = itertools.count(1)
_removals: deque[_Removal] = deque(maxlen=_MAX_REMOVALS)  # the newest at the end
