"""Keeps what is asked beside a LangChain run, such as for a summary, out of its callbacks, streams and checkpoints."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

from langmem_adapters.flow import Flow, call_either, within

_RUNTIME = "__pregel_runtime"
_NO_RUN = nullcontext()
_CHECKPOINT_KEYS = {"thread_id", "checkpoint_ns", "checkpoint_id", "checkpoint_map"}


def call_without_callbacks(
    call: Callable[..., Any] | None, acall: Callable[..., Awaitable[Any]] | None, refusal: str, *args: Any
) -> Flow[Any]:
    """:func:`call_either`, out of sight of a LangChain run's callbacks, which would stream the answer to its user."""
    return within(outside_run, call_either(call, acall, refusal, *args))


def outside_run() -> AbstractContextManager[None]:
    """Keep what is called in this block out of the callbacks, streams and checkpoints of a run around it."""
    # Not imported here, and perhaps only now by another thread.
    variable = getattr(sys.modules.get("langchain_core.runnables.config"), "var_child_runnable_config", None)
    config = variable and variable.get()
    return _outside(variable, config) if variable and config else _NO_RUN


@contextmanager
def _outside(variable: ContextVar[Any], config: dict[str, Any]) -> Iterator[None]:
    configurable = _without_graph(config.get("configurable") or {})
    token = variable.set({**config, "callbacks": None, "configurable": configurable})  # what else is configured stays
    try:
        yield
    finally:
        variable.reset(token)


def _without_graph(configurable: dict[str, Any]) -> dict[str, Any]:
    """Without what would make a graph that is asked a part of the run's: it would stream and keep what it says."""
    rest = {
        name: value
        for name, value in configurable.items()
        if name == _RUNTIME or not (name in _CHECKPOINT_KEYS or str(name).startswith("__pregel_"))
    }
    runtime: Any = rest.get(_RUNTIME)
    if hasattr(runtime, "override"):
        rest[_RUNTIME] = runtime.override(stream_writer=lambda _: None)
    return rest
