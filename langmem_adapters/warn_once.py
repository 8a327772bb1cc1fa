"""Warnings that are logged once per cause: during an outage, every call would say the same."""

from __future__ import annotations

import logging
from collections.abc import Hashable

BREAKER_SUFFIX = "; it is asked again in a moment, and until it answers calls fail at once"
"""The suffix that a breaker adds to the cause of an outage that it already knows."""

_log = logging.getLogger("langmem_adapters")
_MAX_CAUSES = 1_000  # some contain what changes, such as a line or a key


class WarnOnce:
    """Logs each warning the first time only.

    >>> warn = WarnOnce()
    >>> warn("the run goes on without its cache", OSError("disk full"))
    """

    def __init__(self) -> None:
        self._seen_causes: set[tuple[str, int]] = set()

    def __call__(self, sentence: str, error: Exception | None = None, *, about: Hashable = None) -> None:
        """Log what happened, and the error that caused it. The same ``about`` something else is another cause."""
        text = sentence if error is None else f"{sentence}: {type(error).__name__}: {error}"
        cause = text.removesuffix(BREAKER_SUFFIX), hash(about)
        if cause in self._seen_causes:
            return
        if len(self._seen_causes) >= _MAX_CAUSES:
            self._seen_causes.clear()
        self._seen_causes.add(cause)
        _log.warning("%s", text)


_warn_of_damage = WarnOnce()
_warn_of_outage = WarnOnce()


def warn_of_damage(stored: Hashable, sentence: str) -> None:
    """Log once in this process that something stored cannot be read; ``stored`` is its bytes, or where it is."""
    _warn_of_damage(sentence, about=stored)


def warn_of_outage(sentence: str, error: Exception) -> None:
    """Log once in this process who goes on without what; whoever does may be made anew for each user or call."""
    _warn_of_outage(sentence, error)
