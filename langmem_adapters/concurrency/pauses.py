"""Sleep, by the function that ``time`` has at that moment: gevent may replace it after the import."""

from __future__ import annotations

import time


def sleep(seconds: float) -> None:
    """Sleep for seconds, while other threads and greenlets run."""
    time.sleep(seconds)
