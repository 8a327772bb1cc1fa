"""Keeps model calls beside a run, such as for a summary or a judge's verdict, out of what the run streams."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from langchain_core.runnables.config import var_child_runnable_config

__all__ = ["detached_from_run"]


@contextmanager
def detached_from_run() -> Iterator[None]:
    """Keep model calls in this block out of the run's callbacks."""
    token = var_child_runnable_config.set(None)
    try:
        yield
    finally:
        var_child_runnable_config.reset(token)
