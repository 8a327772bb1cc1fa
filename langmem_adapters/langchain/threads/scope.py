"""Whose memory a run of an agent has: found in its runtime, or refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import copy_context
from typing import Any, NamedTuple, TypeAlias

from langgraph.runtime import Runtime

from langmem_adapters.errors import ConfigurationError
from langmem_adapters.keys import SUBAGENT
from langmem_adapters.model import Scope
from langmem_adapters.validation import id_of

__all__ = ["Lookup", "ScopeOf", "task_of"]

Lookup: TypeAlias = str | Callable[[Runtime[Any]], object]
"""An id, or a function that finds it in the runtime of a run."""

_TOOLS = "tools"  # what create_agent calls the node in which tools run


def _user_of(runtime: Runtime[Any]) -> object:
    return _of_context(runtime, "user_id")


def _session_of(runtime: Runtime[Any]) -> object:
    info = runtime.execution_info  # None outside of a run
    named = _of_context(runtime, "session_id")
    return (info and info.thread_id) if named is None or named == "" else named


def _of_context(runtime: Runtime[Any], name: str) -> object:
    context = runtime.context
    return context.get(name) if isinstance(context, Mapping) else getattr(context, name, None)


class ScopeOf(NamedTuple):
    """Finds the scope of a run. ``needs_user`` refuses one without a user; one without a session always is."""

    user: Lookup | None  # None: the context's ``user_id``
    session: Lookup | None  # None: the context's ``session_id``, else the thread's id; of a subagent, one beside that
    tenant: Lookup
    needs_user: bool

    def __call__(self, runtime: Runtime[Any]) -> Scope:
        """The scope. Raises ConfigurationError where it is incomplete: nobody is given somebody else's memory."""
        user = _id("user", _user_of if self.user is None else self.user, runtime)
        session = _id("session", _session_of if self.session is None else self.session, runtime)
        if self.needs_user and not user:
            raise ConfigurationError(
                'whose memory? Pass context={"user_id": …} to the run, or give the middleware user= or long_term=False'
            )
        if not session:
            raise ConfigurationError(
                'which session? Pass config={"configurable": {"thread_id": …}} or context={"session_id": …} to the run,'
                " or give the middleware session="
            )
        if self.session is None:
            session += _tools_above(runtime)
        return Scope(tenant=_id("tenant", self.tenant, runtime), user=user, session=session)

    def as_of_now(self, runtime: Runtime[Any]) -> Callable[[], Scope]:
        """What finds the scope later as it is found now: a function of the user's may ask what run it is in."""
        context = copy_context()
        return lambda: context.run(lambda: self(runtime))


def _tools_above(runtime: Runtime[Any]) -> str:
    """What the name of a session ends with, in which an agent speaks that a tool of another calls: once for each.

    It is given the other's context and thread, but what a model says to it is not said in the other's conversation.
    """
    return SUBAGENT * sum(node == _TOOLS for node, _ in _nodes_above(runtime))


def task_of(runtime: Runtime[Any]) -> str:
    """As which part of a task of another's graph an agent runs, the same each time that is tried; else empty.

    A graph in that graph, in a node of which the agent runs, gives its own tasks other ids each time.
    """
    above = [(node, task) for node, task in _nodes_above(runtime) if task]
    return "/".join([*(task for _, task in above[:1]), *(node for node, _ in above)])


def _nodes_above(runtime: Runtime[Any]) -> list[tuple[str, str]]:
    """The nodes in which an agent runs, from the outermost, and the ids of their tasks.

    There are no ids above an agent that keeps a thread of its own (``checkpointer=True``). What numbers the calls that
    a task makes has none either, and is no node.
    """
    info = runtime.execution_info
    parts = info.checkpoint_ns.split("|")[:-1] if info else []  # the last one is the agent's own node
    return [(node, task) for node, _, task in (part.partition(":") for part in parts)]


def _id(name: str, found: Lookup, runtime: Runtime[Any]) -> str:
    return id_of(name, found(runtime) if callable(found) else found)
