"""Whose memory a run of an agent has: found in its runtime, or refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import takewhile
from typing import Any, Final, NamedTuple, TypeAlias

from langchain_core.messages import BaseMessage, convert_to_messages
from langgraph.runtime import Runtime

from langmem_adapters.errors import ConfigurationError
from langmem_adapters.keys import SUBAGENT_SUFFIX, fingerprint
from langmem_adapters.langchain.convert import role_of
from langmem_adapters.langchain.threads.run_messages import RECORDED_KEY, SENT_KEY, UNRECORDED_KEY, merge_run_messages
from langmem_adapters.model import Scope
from langmem_adapters.providers.finish_reasons import field
from langmem_adapters.validation import id_text

Lookup: TypeAlias = str | Callable[[Runtime[Any]], object]
"""An id, or a function that finds it in the runtime of a run."""

OWNER_KEY: Final = "brain_owner"
"""Key in a thread's state: a fingerprint of the tenant and the user for whom its latest run began."""

LEFT_KEY: Final = "brain_left"
"""Key in a thread's state: what runs of others left unrecorded, by :data:`OWNER_KEY`, until their next run."""

_TOOLS_NODE = "tools"  # what create_agent calls the node in which tools run


def _default_session(runtime: Runtime[Any]) -> object:
    session_id = field(runtime.context, "session_id")
    if session_id is not None and session_id != "":
        return session_id
    info = runtime.execution_info  # None outside of a run
    return info.thread_id if info else None


def _default_user(runtime: Runtime[Any]) -> object:
    return field(runtime.context, "user_id")


class ScopeResolver(NamedTuple):
    """Finds the scope of a run. Refuses a run without a session, or without a user or tenant that it needs."""

    user: Lookup | None  # None: the context's ``user_id``
    session: Lookup | None  # None: the context's ``session_id``, else the thread's id; a subagent's has a suffix
    tenant: Lookup
    needs_user: bool
    needs_tenant: bool

    def __call__(self, runtime: Runtime[Any]) -> Scope:
        """The scope. Raises ConfigurationError if it is incomplete, so that nobody is given another's memory."""
        user = _resolve_id("user", _default_user if self.user is None else self.user, runtime)
        session = _resolve_id("session", _default_session if self.session is None else self.session, runtime)
        if self.needs_user and not user:
            raise ConfigurationError(
                'the run has no user: pass it context={"user_id": …}, or give the middleware user= or long_term=False'
            )
        if not session:
            raise ConfigurationError(
                'the run has no session: pass it config={"configurable": {"thread_id": …}} or'
                ' context={"session_id": …}, or give the middleware session='
            )
        if self.session is None:
            session += _subagent_suffix(runtime)
        tenant = _resolve_id("tenant", self.tenant, runtime)
        if self.needs_tenant and not tenant:
            raise ConfigurationError("the run has no tenant: the middleware's tenant= found none")
        return Scope(tenant=tenant, user=user, session=session)


def owner_update(scope: Scope, state: Mapping[str, Any]) -> dict[str, Any]:
    """The new state of a thread when a run begins: for whom, and what waits for others to be recorded as theirs.

    A run leaves messages unrecorded if it fails, is never resumed, or cannot reach the store.
    """
    mark = _owner_mark(scope)
    last_mark = state.get(OWNER_KEY, mark)
    if last_mark == mark or RECORDED_KEY not in state:
        return {OWNER_KEY: mark}
    said, recorded_id = _left_messages(state)
    left = {**(state.get(LEFT_KEY) or {}), **({last_mark: said} if said else {})}
    update = {UNRECORDED_KEY: left.pop(mark, []), LEFT_KEY: left, SENT_KEY: {}}
    return {OWNER_KEY: mark, RECORDED_KEY: recorded_id, **update}


def _left_messages(state: Mapping[str, Any]) -> tuple[list[BaseMessage], str]:
    """What the thread's last run left unrecorded, and the id of the thread's last message before the new run."""
    said, recorded_id = state.get(UNRECORDED_KEY) or [], state[RECORDED_KEY]
    messages = convert_to_messages(state["messages"])
    unrecorded = messages[next((n + 1 for n, message in enumerate(messages) if message.id == recorded_id), 0) :]
    known_ids = {*(message.id for message in said), *(state.get(SENT_KEY) or ())}
    positions = [n for n, message in enumerate(unrecorded) if message.id in known_ids]
    if not positions:
        return said, recorded_id
    answers = takewhile(lambda message: role_of(message) != "user", unrecorded[positions[-1] + 1 :])
    run_messages = [*unrecorded[positions[0] : positions[-1] + 1], *answers]
    return merge_run_messages(said, run_messages), str(run_messages[-1].id)


def checked_owner(scope: Scope, state: Mapping[str, Any]) -> Scope:
    """The scope of a run that goes on. Raises ConfigurationError if it began for somebody else.

    Whoever approves may not be who asked: the conversation and its memories stay with the latter.
    """
    mark = _owner_mark(scope)
    if state.get(OWNER_KEY, mark) != mark:  # a state of an earlier version says nothing
        raise ConfigurationError("the run began for another user or tenant: resume it with the context of who asked")
    return scope


def _owner_mark(scope: Scope) -> str:
    return fingerprint(scope.tenant, scope.user)


def _subagent_suffix(runtime: Runtime[Any]) -> str:
    """The suffix for the session of an agent that a tool of another agent calls: once for each level.

    It is given the outer agent's context and thread, but what a model says to it is not said in that conversation.
    """
    return SUBAGENT_SUFFIX * sum(node == _TOOLS_NODE for node, _ in _outer_nodes(runtime))


def task_of(runtime: Runtime[Any]) -> str:
    """The task of an outer graph, and the part of it, as which an agent runs: the same at each try; empty without one.

    A graph that is nested in the outer one, around the agent, gives its own tasks new ids each time.
    """
    outer = [(node, task) for node, task in _outer_nodes(runtime) if task]
    return "/".join([*(task for _, task in outer[:1]), *(node for node, _ in outer)])


def _outer_nodes(runtime: Runtime[Any]) -> list[tuple[str, str]]:
    """The nodes in which an agent runs, from the outermost, and the ids of their tasks.

    There are no ids above an agent that keeps a thread of its own (``checkpointer=True``). The number of a call that a
    task makes has no id either, and is no node.
    """
    info = runtime.execution_info
    parts = info.checkpoint_ns.split("|")[:-1] if info else []  # the last one is the agent's own node
    return [(node, task) for node, _, task in (part.partition(":") for part in parts)]


def _resolve_id(name: str, lookup: Lookup, runtime: Runtime[Any]) -> str:
    return id_text(name, lookup(runtime) if callable(lookup) else lookup)
