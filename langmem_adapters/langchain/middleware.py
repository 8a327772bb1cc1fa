"""BrainMemoryMiddleware: a session's memory around the model calls of an agent."""

from __future__ import annotations

import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, Literal, TypeVar

from langchain_core.messages import BaseMessage, SystemMessage, convert_to_messages
from typing_extensions import NotRequired

from langmem_adapters.brain import BrainMemory
from langmem_adapters.concurrency.counts import Counts
from langmem_adapters.concurrency.forks import no_fork
from langmem_adapters.concurrency.locks import ForkSafeLock
from langmem_adapters.conversation.reflection import MODEL_COUNTERS
from langmem_adapters.conversation.session import Context
from langmem_adapters.errors import MissingDependency
from langmem_adapters.expiry import Refresh
from langmem_adapters.flow import Flow, arun, run, step
from langmem_adapters.indexes import index_of, vectors_of
from langmem_adapters.langchain.convert import from_message
from langmem_adapters.langchain.threads.conversation import (
    conversation_of,
    latest_question,
    latest_question_text,
    with_question,
)
from langmem_adapters.langchain.threads.prompt_budget import PromptBudget, memory_section, with_section
from langmem_adapters.langchain.threads.recording import (
    count_recorded,
    initial_state_update,
    load_context,
    make_text_of,
    messages_so_far,
    record,
)
from langmem_adapters.langchain.threads.run_messages import THREAD_KEY, UNRECORDED_KEY, newest, with_lost_messages
from langmem_adapters.langchain.threads.thread import SUMMARY_KEY
from langmem_adapters.langchain.threads.view import Thread
from langmem_adapters.longterm import LongTermMemory
from langmem_adapters.lru import LRU
from langmem_adapters.model import Message, Recalled, Scope, Summary
from langmem_adapters.outages import Outages
from langmem_adapters.prompts import Prompts
from langmem_adapters.protocols import Index, Store
from langmem_adapters.sharing import Shared
from langmem_adapters.stores import resolve_store
from langmem_adapters.tokens import TokenCounter, approximate_tokens
from langmem_adapters.validation import check_count, check_on_error, checked_scope
from langmem_adapters.warn_once import WarnOnce

try:
    from langchain.agents.middleware import AgentMiddleware, AgentState, ModelRequest, ModelResponse
    from langchain.agents.middleware.types import ExtendedModelResponse, OmitFromOutput, PrivateStateAttr
    from langchain.chat_models import init_chat_model
    from langchain.embeddings import init_embeddings
    from langgraph.runtime import Runtime
    from langgraph.types import Command

    from langmem_adapters.langchain.threads.scope import Lookup, ScopeResolver, checked_owner, owner_update, task_of
except ImportError as error:
    raise MissingDependency("langchain", "langgraph") from error

T = TypeVar("T")
_DEFAULT_MAX_TOKENS = 8000  # tokens; the base of summarize_at without max_tokens
_MAX_BRAINS = 256  # sessions that are remembered for flush()


class BrainState(AgentState[Any]):
    """What the middleware keeps in a thread beside its messages."""

    brain_summary: NotRequired[Annotated[str, OmitFromOutput]]
    brain_recorded: NotRequired[Annotated[str, PrivateStateAttr]]
    brain_said: NotRequired[Annotated[list[BaseMessage], PrivateStateAttr, newest]]
    brain_older: NotRequired[Annotated[str, PrivateStateAttr]]
    brain_began: NotRequired[Annotated[str, PrivateStateAttr]]
    brain_thread: NotRequired[Annotated[str, PrivateStateAttr]]
    brain_knew: NotRequired[Annotated[list[str], PrivateStateAttr]]
    brain_first: NotRequired[Annotated[dict[str, str], PrivateStateAttr]]
    brain_sent: NotRequired[Annotated[dict[str, str], PrivateStateAttr]]
    brain_owner: NotRequired[Annotated[str, PrivateStateAttr]]
    brain_left: NotRequired[Annotated[dict[str, list[BaseMessage]], PrivateStateAttr]]


class BrainMemoryMiddleware(AgentMiddleware[Any, Any, Any], Shared):
    """Memory for ``create_agent`` (implements ``langchain.agents.middleware.AgentMiddleware``).

    Each model call is shown the session's newest messages within a budget, in a form that every provider accepts. The
    system message holds, marked as data, the summary of older messages and the memories that fit the newest question.
    Middleware that sets another system message, as ``dynamic_prompt`` does, goes before this one in the list. The
    thread itself is not changed, and what was shown from memory is not stored again. A run is appended to the session
    as a whole when it ends: parallel runs do not mix, and a failed run leaves no half of a turn. One instance serves
    every user, with a checkpointer or without; clients may send the whole conversation or only what is new. The session
    keeps, but does not show, messages that a saved thread no longer has (time travel, RemoveMessage) or that other
    middleware hides, and what an agent in a node said before a retry. What was deleted from the session is not shown.

    Args:
        url: The store's URL; default ``LANGMEM_STORE_URL``, ``REDIS_URL``, ``sqlite:///langmem.db``.
        store: A store of your own instead of a URL.
        index: What finds long-term memories; default: the one of the URL, or for a store of your own one in memory.
        embedder: Finds them by meaning, too: a LangChain or LlamaIndex embedding model, or LangChain's name for one,
            such as "openai:text-embedding-3-small". The vectors are stored beside the index.
        user, session, tenant: Whose memory: an id, or a function that takes the runtime and returns one, such as
            ``lambda runtime: runtime.server_info.user.identity`` in a LangGraph server with users. Default: the
            context's ``user_id``; its ``session_id``, else the thread's id (with ``"|tools"`` appended for an agent
            that another agent's tool calls); no tenant. A run for which a function finds none is refused.
        long_term: Whether messages beyond ``memory_k``, or with ``model`` those that were summarised, move to their
            user's memory. Each run needs a user then.
        recall_k: How many memories a model call is shown at most; 0: none.
        memory_k: How many messages a model call is shown at most.
        max_tokens: Tokens of system message, memory and messages together; None: ``memory_k`` alone limits them. Memory
            takes a third of it at most, and never more than 2,000 tokens.
        model: Makes summaries. It is separate from the agent's own, and a small one will do: a chat model, its name
            (``"openai:gpt-4o-mini"``) or anything else that BrainMemory takes. None: no summaries.
        summarize_at: Tokens of messages beyond which the oldest become part of the summary; default: half of
            ``max_tokens``, so that nothing leaves the window before it is summarized, or 4,000.
        summarize_in, max_summary_tokens, archive, counter, prompts, ttl, refresh, clock, new_id: See BrainMemory.
        on_error: What an outage of the store does to a run: "degrade" goes on without memory, is logged once for
            each cause and counted in :meth:`stats`; "raise" raises.

    >>> from langchain.agents import create_agent
    >>> from langchain_core.language_models import FakeListChatModel
    >>> from langmem_adapters.langchain import BrainMemoryMiddleware
    >>> memory = BrainMemoryMiddleware("memory:", max_tokens=4000)
    >>> agent = create_agent(FakeListChatModel(responses=["In the shed."]), middleware=[memory])
    >>> context = {"user_id": "ada", "session_id": "monday"}
    >>> found = agent.invoke({"messages": [("user", "Where is my bike?")]}, context=context)
    >>> memory.brain("monday", user="ada").count()
    2
    """

    state_schema: type[BrainState] = BrainState

    def __init__(
        self,
        url: str | None = None,
        *,
        store: Store | None = None,
        index: Index | None = None,
        embedder: Any = None,
        user: Lookup | None = None,
        session: Lookup | None = None,
        tenant: Lookup = "",
        long_term: bool = True,
        recall_k: int = 5,
        memory_k: int = 200,
        max_tokens: int | None = None,
        model: Any = None,
        summarize_at: int | None = None,
        summarize_in: Literal["background", "inline"] = "background",
        max_summary_tokens: int = 400,
        archive: bool = True,
        counter: TokenCounter = approximate_tokens,
        prompts: Prompts | None = None,
        ttl: float | None = None,
        refresh: Refresh = "write",
        on_error: Literal["degrade", "raise"] = "degrade",
        clock: Callable[[], float] = time.time,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        super().__init__()
        check_on_error(on_error)
        check_count("recall_k", recall_k, minimum=0)
        if max_tokens is not None:
            check_count("max_tokens", max_tokens)
        if model is not None and summarize_at is None:
            summarize_at = max((max_tokens or _DEFAULT_MAX_TOKENS) // 2, 1)
        self._store = resolve_store(url, store)
        self._index = index_of(url, store) if index is None else index
        self._vectors = vectors_of(url, store, init_embeddings(embedder) if isinstance(embedder, str) else embedder)
        self._scope = ScopeResolver(user, session, tenant, long_term or callable(user), tenant != "")
        self._long_term, self._recall_k = long_term, recall_k
        self._memory_k, self._max_tokens, self._counter, self._on_error = memory_k, max_tokens, counter, on_error
        self._clock_and_ids: dict[str, Any] = {"clock": clock, "new_id": new_id}
        self._settings: dict[str, Any] = {
            "memory_k": memory_k,
            "model": init_chat_model(model) if isinstance(model, str) else model,
            "summarize_at": summarize_at,
            "summarize_in": summarize_in,
            "max_summary_tokens": max_summary_tokens,
            "archive": archive,
            "counter": counter,
            "prompts": prompts,
            "ttl": ttl,
            "refresh": refresh,
        }
        self._text_of = make_text_of(self._store)
        self._counts = Counts()
        self._outages = Outages("the agent goes on without its memory", self._counts)
        self._warn = WarnOnce()
        self._lock = ForkSafeLock()
        self._brains: LRU[Scope, BrainMemory] = LRU(_MAX_BRAINS)
        self._make_brain(Scope(user="check", session="check"))  # so that a wrong setting raises here

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._store!r})"

    # --- hooks

    def before_agent(self, state: BrainState, runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Find which of the thread's messages the session has, and refuse a run without a scope."""
        return run(self._start_run(state, runtime))

    async def abefore_agent(self, state: BrainState, runtime: Runtime[Any]) -> dict[str, Any] | None:
        """:meth:`before_agent`, without blocking the event loop."""
        return await arun(self._start_run(state, runtime))

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ExtendedModelResponse[Any]:
        """Show the model its window, the summary and what is recalled."""
        prepared, unrecorded = run(self._prepare_request(request))
        return ExtendedModelResponse(handler(prepared), Command(update={UNRECORDED_KEY: unrecorded}))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ExtendedModelResponse[Any]:
        """:meth:`wrap_model_call`, without blocking the event loop."""
        prepared, unrecorded = await arun(self._prepare_request(request))
        return ExtendedModelResponse(await handler(prepared), Command(update={UNRECORDED_KEY: unrecorded}))

    def after_agent(self, state: BrainState, runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Append what the run said to the session."""
        return run(self._finish_run(state, runtime))

    async def aafter_agent(self, state: BrainState, runtime: Runtime[Any]) -> dict[str, Any] | None:
        """:meth:`after_agent`, without blocking the event loop."""
        return await arun(self._finish_run(state, runtime))

    # --- outside of runs

    def brain(self, session: str, *, user: str = "", tenant: str = "") -> BrainMemory:
        """The memory of a session, with the settings of this middleware."""
        return self._brain(checked_scope(tenant=tenant, user=user, session=session))

    def stats(self) -> dict[str, int]:
        """Counts of recorded messages, memories found and errors; and of model calls and tokens, by all sessions."""
        return {name: self._counts[name] for name in ("recorded", "recalled", "errors", *MODEL_COUNTERS)}

    def flush(self) -> None:
        """Wait for summaries that are being made in the background."""
        with no_fork, self._lock.held():
            brains = self._brains.values()
        for brain in brains:
            brain.flush()

    async def aflush(self) -> None:
        """:meth:`flush`, without blocking the event loop."""
        await arun(step(self.flush))

    # --- flows

    def _start_run(self, state: BrainState, runtime: Runtime[Any]) -> Flow[dict[str, Any] | None]:
        scope = self._scope(runtime)
        brain = self._brain(scope)
        first_id = next((message.id for message in convert_to_messages(state["messages"][:1])), None)
        thread_mark = str(state.get(THREAD_KEY) or first_id or self._clock_and_ids["new_id"]())
        update = {THREAD_KEY: thread_mark, **owner_update(scope, state)}
        context = yield from self._attempt(step(brain.context), None)
        if context is not None:
            thread = Thread(with_lost_messages(state)["messages"], thread_mark, {**state, **update}, self._text_of)
            update |= yield from self._attempt(initial_state_update(brain, thread, context), {})
            update[SUMMARY_KEY] = context.summary.text if context.summary else ""
        return {name: value for name, value in update.items() if state.get(name) != value} or None

    def _prepare_request(self, request: ModelRequest[Any]) -> Flow[tuple[ModelRequest[Any], list[BaseMessage]]]:
        scope, system = checked_owner(self._scope(request.runtime), request.state), request.system_message
        brain = self._brain(scope)
        state = with_lost_messages(request.state)
        mark = str(state.get(THREAD_KEY) or "")
        full_thread = Thread(state["messages"], mark, state, self._text_of)
        is_full = list(map(id, request.messages)) == list(map(id, state["messages"]))
        thread = full_thread if is_full else Thread(request.messages, mark, state, self._text_of)
        loaded = yield from self._attempt(load_context(brain, thread), None)
        if loaded is not None:
            context, start = loaded
        else:  # in an outage, the state still has a summary
            context = Context(Summary(text=str(state.get(SUMMARY_KEY) or "")), [])
            start = yield from count_recorded(None, thread, context)
        count: int | None = start
        if not is_full:
            count = yield from self._attempt(count_recorded(brain if loaded else None, full_thread, context), None)
        unrecorded = state.get(UNRECORDED_KEY) or [] if count is None else messages_so_far(full_thread, count)
        conversation: list[Message] | None = None
        if loaded is not None:
            task = task_of(request.runtime)
            flow = conversation_of(brain, context, thread, start, full_thread, limit=self._memory_k, task=task)
            conversation = yield from self._attempt(flow, None)
        question_message = latest_question(unrecorded)
        question = question_message.text if question_message else latest_question_text(thread)
        shown = with_question(thread[:] if conversation is None else conversation, question_message)
        budget = PromptBudget(
            shown, question_message, system, memory_k=self._memory_k, max_tokens=self._max_tokens, counter=self._counter
        )
        memories = yield from self._recall(brain, question, budget.messages_for(system, budget.memory_tokens))
        system, visible = self._with_memories(budget, system, context.summary, memories)
        messages: list[Any] = [thread.original(message) or from_message(message) for message in visible]
        return request.override(messages=messages, system_message=system), unrecorded

    def _with_memories(
        self, budget: PromptBudget, system: SystemMessage | None, summary: Summary | None, memories: Sequence[Recalled]
    ) -> tuple[SystemMessage | None, Sequence[Message]]:
        """The system message with the memories that no visible message repeats, and the visible messages."""
        while True:
            section = memory_section(summary.text if summary else "", memories, budget.memory_tokens, self._counter)
            extended = with_section(system, section) if section else system
            visible = budget.messages_for(extended)
            texts = {message.text for message in visible}
            unrepeated = [memory for memory in memories if memory.text not in texts]
            if len(unrepeated) == len(memories):
                self._counts.add("recalled", len(memories))
                return extended, visible
            memories = unrepeated

    def _recall(self, brain: BrainMemory, question: str, shown: Sequence[Message]) -> Flow[list[Recalled]]:
        if brain.long_term is None or not self._recall_k:
            return []
        return (yield from self._attempt(brain.long_term.search_flow(question, self._recall_k, exclude=shown), []))

    def _finish_run(self, state: BrainState, runtime: Runtime[Any]) -> Flow[dict[str, Any] | None]:
        known = with_lost_messages(state)
        thread = Thread(known["messages"], str(state.get(THREAD_KEY) or ""), known, self._text_of)
        brain = self._brain(checked_owner(self._scope(runtime), state))
        recording = record(brain, thread, task=task_of(runtime), warn=self._warn)
        recorded = yield from self._attempt(recording, None)
        if recorded is None:
            count = yield from count_recorded(None, thread, Context(None, []))
            return {UNRECORDED_KEY: messages_so_far(thread, count)}
        recorded_count, update = recorded
        self._counts.add("recorded", recorded_count)
        return update or None

    def _attempt(self, flow: Flow[T], fallback: T) -> Flow[T]:
        return (yield from self._outages.attempt(flow, fallback, self._on_error))

    # --- memories of sessions

    def _brain(self, scope: Scope) -> BrainMemory:
        with no_fork, self._lock.held():
            return self._brains.get_or_make(scope, lambda: self._make_brain(scope))

    def _make_brain(self, scope: Scope) -> BrainMemory:
        settings: dict[str, Any] = {"user": scope.user, "tenant": scope.tenant, **self._clock_and_ids}
        vectors, has_long_term = self._vectors, self._long_term and scope.user
        long_term = LongTermMemory(self._store, self._index, vectors=vectors, **settings) if has_long_term else None
        brain = BrainMemory(self._store, scope.session, long_term=long_term, **settings, **self._settings)
        brain._stats.add_to(self._counts)  # noqa: SLF001 - one of its own
        return brain
