"""What is being made to be kept: nothing of it is, that was begun before its place was cleared, or asked for anew.

Who removes what is out of date would else be given it again: by a call that has looked at the world before the change,
and ends after it. This process alone is told; a call that is made in another is kept.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Sequence

from langmem_adapters.concurrency.locks import ForkSafeLock
from langmem_adapters.keys import Namespace

__all__ = ["Begun", "outdate"]


class _Place:
    """One key of a namespace, as long as something is made for it."""

    cleared = 0


class Begun:
    """Something that is being made for a key, from the moment in which this is taken.

    >>> begun = Begun(("experience", "", "", "capitals"), "France")
    >>> begun.is_outdated
    False
    >>> outdate(("experience", "", "", "capitals"))
    >>> begun.is_outdated
    True
    """

    def __init__(self, namespace: Namespace, key: str) -> None:
        with _lock.held():
            self._place = _places.setdefault((namespace, key), _Place())
            self._number = next(_numbers)

    @property
    def is_outdated(self) -> bool:
        """Whether its place was cleared since."""
        return self._number < self._place.cleared


def outdate(namespace: Namespace, keys: Sequence[str] | None = None) -> None:
    """Say that what is being made for these keys, or for all in or below a namespace, is: before they are removed."""
    with _lock.held():
        below = [place for place in _places if place[0][: len(namespace)] == namespace] if keys is None else []
        for place in (*below, *((namespace, key) for key in keys or ())):
            if (found := _places.get(place)) is not None:
                found.cleared = next(_numbers)


_lock = ForkSafeLock()
_numbers = itertools.count(1)
_places: weakref.WeakValueDictionary[tuple[Namespace, str], _Place] = weakref.WeakValueDictionary()
