"""How much memory a call takes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import TypeVar

__all__ = ["traced"]

T = TypeVar("T")


def traced(call: Callable[[], T]) -> tuple[T, int, int]:
    """What a call gives, and how many bytes of its own are held after it, and were at the most."""
    tracemalloc.start()
    try:
        return call(), *tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
