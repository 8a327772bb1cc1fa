"""Warnings that are given once for each cause: while something is down, each call would say the same."""

from __future__ import annotations

import logging

__all__ = ["BROKEN", "WarnOnce"]

BROKEN = "; it is asked again in a moment, and until it answers calls fail at once"
"""What a breaker adds to the cause of an outage that it knows of already."""

_log = logging.getLogger("langmem_adapters")
_MOST = 1_000  # causes that are remembered; some name what changes, such as a line or a key


class WarnOnce:
    """Logs a warning the first time that it comes up.

    >>> warn = WarnOnce()
    >>> warn("the run goes on without its cache", OSError("disk full"))
    """

    def __init__(self) -> None:
        self._known: set[str] = set()

    def __call__(self, sentence: str, error: Exception | None = None) -> None:
        """Say what happened, and because of what error."""
        said = sentence if error is None else f"{sentence}: {type(error).__name__}: {error}"
        cause = said.removesuffix(BROKEN)
        if cause in self._known:
            return
        if len(self._known) >= _MOST:
            self._known.clear()
        self._known.add(cause)
        _log.warning("%s", said)
