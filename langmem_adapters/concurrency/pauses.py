"""Waiting: by the sleep that there is at that moment, as gevent may have come after this was imported."""

from __future__ import annotations

import time

__all__ = ["sleep"]


def sleep(seconds: float) -> None:
    """Wait for seconds, in which other threads and greenlets go on."""
    time.sleep(seconds)
