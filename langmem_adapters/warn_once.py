"""Warnings that are logged once per cause: during an outage, every call would say the same."""

from __future__ import annotations

import logging

__all__ = ["BREAKER_SUFFIX", "WarnOnce"]

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
        self._seen_causes: set[str] = set()

    def __call__(self, sentence: str, error: Exception | None = None) -> None:
        """Log what happened, and the error that caused it."""
        text = sentence if error is None else f"{sentence}: {type(error).__name__}: {error}"
        cause = text.removesuffix(BREAKER_SUFFIX)
        if cause in self._seen_causes:
            return
        if len(self._seen_causes) >= _MAX_CAUSES:
            self._seen_causes.clear()
        self._seen_causes.add(cause)
        _log.warning("%s", text)
