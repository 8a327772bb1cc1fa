"""Keeps model calls beside a LangChain run, such as for a summary or a score, out of the run's callbacks."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from langmem_adapters.flow import Flow, call_either, within

__all__ = ["call_without_callbacks"]


def call_without_callbacks(
    call: Callable[[], Any] | None, acall: Callable[[], Awaitable[Any]] | None, refusal: str
) -> Flow[Any]:
    """:func:`call_either`, out of sight of a LangChain run's callbacks, which would stream the answer to its user."""
    return within(_without_callbacks, call_either(call, acall, refusal))


@contextmanager
def _without_callbacks() -> Iterator[None]:
    # Not imported here, and perhaps only now by another thread.
    variable = getattr(sys.modules.get("langchain_core.runnables.config"), "var_child_runnable_config", None)
    config = variable and variable.get()
    if not (variable and config):
        yield
        return
    token = variable.set({**config, "callbacks": None})  # what else the run configures stays
    try:
        yield
    finally:
        variable.reset(token)
