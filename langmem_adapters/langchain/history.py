"""BrainChatMessageHistory: a session as LangChain's chat history."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from langmem_adapters import text
from langmem_adapters.brain import BrainMemory
from langmem_adapters.conversation.turn import Turn, close_interrupted
from langmem_adapters.errors import ConfigurationError, LangmemError
from langmem_adapters.expiry import Refresh
from langmem_adapters.flow import Flow, arun, run
from langmem_adapters.langchain.convert import from_message, from_summary, to_message, to_stored_message
from langmem_adapters.langchain.message_views import MessageView, message_views, read_messages
from langmem_adapters.langchain.threads.snapshots import Reader, Snapshots, is_cut_off
from langmem_adapters.langchain.threads.storable import append_messages
from langmem_adapters.langchain.threads.turn import Piece, gather, mark_interrupted_message
from langmem_adapters.longterm import RECALLED, LongTermMemory
from langmem_adapters.model import Message, MessageData, Summary
from langmem_adapters.protocols import Store
from langmem_adapters.sharing import Shared
from langmem_adapters.stores import resolve_store
from langmem_adapters.validation import check_at_most_one, check_scope, checked_list
from langmem_adapters.views import render_safely
from langmem_adapters.warn_once import WarnOnce

_UNLIMITED_WINDOW = 1_000_000_000  # messages; the window if none is asked for
_SUMMARIZED_WINDOW = 200  # messages; the window if a summary covers the older ones
_warn = WarnOnce()  # shared, as a history is made for each call


class BrainChatMessageHistory(Shared, BaseChatMessageHistory):
    """Chat history on a store (implements ``langchain_core.chat_history.BaseChatMessageHistory``).

    Every message comes back equal, of the same class, in the order of writing. A streamed chunk comes back as the
    whole message, and an object in a tool's artifact as its data; what cannot be stored there, such as an array,
    is left out with one warning. A message that is added on its own, with the id and the content of a stored one,
    counts as that message: LangChain's own caches replay ids, ours do not.

    Making a history does no I/O, so an outage shows at its first read or write. All histories of a process share
    their connections, so make one for each call:
    ``RunnableWithMessageHistory(chain, lambda session_id: BrainChatMessageHistory(session_id))``.

    Within one run of a chain's step, reads repeat the first one until this object writes; outside of a run, each read
    is fresh. At the end of its turn, ``RunnableWithMessageHistory`` reads again to learn how many messages it was
    given; it gets the same list, whatever other turns wrote in between, even through the same object.

    With any of ``memory_k``, ``max_tokens`` and ``model``, ``messages`` is what a model may be shown: the newest
    messages, never a tool's result without its call, and before them a SystemMessage with the summary, if there is
    one. That SystemMessage is not stored when it is added back.

    ``messages`` is a copy: appending to it stores nothing, and to cut it to the newest, give ``memory_k``. A subclass
    that shows or stores other messages overrides ``messages`` and ``aget_messages``, or ``add_messages`` and
    ``aadd_messages``: all other methods call these.

    Args:
        session_id: Any text.
        url: The store's URL; default ``LANGMEM_STORE_URL``, ``REDIS_URL``, ``sqlite:///langmem.db``.
        store: A store of your own instead of a URL.
        brain: A BrainMemory instead of both, with settings of its own; only ``memory_k`` may be given beside it.
        user, tenant: Whose session it is; sessions of others are never seen.
        memory_k: How many messages are shown at most. None: all, or the newest 200 with ``summarize_at``.
        long_term: The memory that receives what leaves that window; it then leaves the history.
        model: Makes summaries, as in BrainMemory.
        summarize_at: Tokens of messages beyond which the oldest become part of the summary, in the background.
        max_tokens: Tokens of messages that are shown at most; the summary is not counted.
        ttl: Seconds after which the session expires; None: never.
        refresh: What restarts that time: each "write", each "read" too, or "never"; see BrainMemory.

    >>> from langmem_adapters.langchain import BrainChatMessageHistory
    >>> history = BrainChatMessageHistory("session-1", url="memory:")
    >>> history.add_user_message("Where is my bike?")
    >>> [message.content for message in history.messages]
    ['Where is my bike?']
    """

    def __init__(  # without super().__init__(), which would warn of its own deprecation in our users' logs
        self,
        session_id: str = "",
        url: str | None = None,
        *,
        store: Store | None = None,
        brain: BrainMemory | None = None,
        user: str = "",
        tenant: str = "",
        memory_k: int | None = None,
        long_term: LongTermMemory | None = None,
        model: Any = None,
        summarize_at: int | None = None,
        max_tokens: int | None = None,
        ttl: float | None = None,
        refresh: Refresh = "write",
    ) -> None:
        check_at_most_one("BrainChatMessageHistory", url=url, store=store, brain=brain)
        if long_term is not None and memory_k is None and summarize_at is None:
            raise ConfigurationError("long_term takes what leaves the window: give memory_k= or summarize_at= too")
        settings: dict[str, Any] = {
            "long_term": long_term,
            "model": model,
            "summarize_at": summarize_at,
            "max_tokens": max_tokens,
            "ttl": ttl,
        }
        if brain is None:
            default_window = _UNLIMITED_WINDOW if summarize_at is None else _SUMMARIZED_WINDOW
            brain = BrainMemory(
                resolve_store(url, store),
                session_id,
                user=user,
                tenant=tenant,
                memory_k=default_window if memory_k is None else memory_k,
                refresh=refresh,
                **settings,
            )
        elif not isinstance(brain, BrainMemory):
            raise ConfigurationError(f"brain is a BrainMemory, not {type(brain).__name__}")
        elif ignored := [name for name, value in settings.items() if value is not None]:
            raise ConfigurationError(f"a brain has settings of its own: give them to it, not {', '.join(ignored)} here")
        else:
            check_scope(brain.scope, session=session_id, user=user, tenant=tenant)
        if memory_k is None and (brain.long_term or brain.model is not None or brain.max_tokens is not None):
            memory_k = brain.memory_k
        self.brain = brain
        self.session_id: str = brain.scope.session
        self._window = memory_k
        self._snapshots = Snapshots()

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]  # a property, as LangChain's own docs have it
        """The history, oldest message first."""
        reader = Reader.from_caller(self._snapshots.last_write)
        snapshot = self._snapshots.messages_for(reader)
        return list(run(self._take_snapshot(reader)) if snapshot is None else snapshot)

    async def aget_messages(self) -> list[BaseMessage]:
        """:attr:`messages`, without blocking the event loop."""
        reader = Reader.from_caller(self._snapshots.last_write)
        snapshot = self._snapshots.messages_for(reader)
        return list(await arun(self._take_snapshot(reader)) if snapshot is None else snapshot)

    def _take_snapshot(self, reader: Reader) -> Flow[list[BaseMessage]]:
        messages = yield from self._read_messages()
        self._snapshots.keep(reader, messages)
        return messages

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Append messages in their order, all or none, in one round trip.

        If the reader of ``RunnableWithMessageHistory.stream`` has left it, the turn's messages are stored as those of
        an interrupted turn: see :meth:`record_turn`.
        """
        new = _without_recalled(messages)
        if is_cut_off():
            self._write(close_interrupted(gather(new, _warn), mark_interrupted_message))
        else:
            self._write(map(to_stored_message, new))

    async def aadd_user_message(self, message: HumanMessage | str) -> None:
        """:meth:`add_user_message`, without blocking the event loop."""
        await self.aadd_message(message if isinstance(message, HumanMessage) else HumanMessage(message))

    async def aadd_ai_message(self, message: AIMessage | str) -> None:
        """:meth:`add_ai_message`, without blocking the event loop."""
        await self.aadd_message(message if isinstance(message, AIMessage) else AIMessage(message))

    async def aadd_message(self, message: BaseMessage) -> None:
        """:meth:`add_message`, without blocking the event loop."""
        await self.aadd_messages([message])

    async def aadd_messages(self, messages: Sequence[BaseMessage]) -> None:
        """:meth:`add_messages`, without blocking the event loop."""
        await self._awrite(map(to_stored_message, _without_recalled(messages)))

    def record_turn(self, question: Piece) -> Turn[Piece]:
        """Record a question with its answer, or with as much of it as there is when the turn is interrupted.

        The chain inside must not store the turn itself. The last message of an interrupted turn has
        ``response_metadata["interrupted"]``.

        >>> from langchain_core.language_models import FakeListChatModel
        >>> from langmem_adapters.langchain import BrainChatMessageHistory
        >>> history = BrainChatMessageHistory("bikes", url="memory:")
        >>> with history.record_turn("Where is my bike?") as turn:
        ...     for chunk in turn.watch(FakeListChatModel(responses=["In the shed."]).stream("Where is my bike?")):
        ...         pass
        >>> [message.content for message in history.messages]
        ['Where is my bike?', 'In the shed.']
        """
        question_message = HumanMessage(question) if isinstance(question, str) else question
        _checked_messages([question_message])
        return Turn(
            to_message(question_message),
            pieces=(str, BaseMessage),
            gather=partial(gather, warn=_warn),
            write=self._write,
            awrite=self._awrite,
            mark=mark_interrupted_message,
            new_id=self.brain._flows.new_id,  # noqa: SLF001 - a part of this turn
        )

    def clear(self) -> None:
        """Forget the session, with its knowledge, summary and title."""
        run(self._clear())

    async def aclear(self) -> None:
        """:meth:`clear`, without blocking the event loop."""
        await arun(self._clear())

    def _read_messages(self) -> Flow[list[BaseMessage]]:
        """Read, and build the messages in the same thread, so that an event loop is not kept busy with it."""
        if self._window is None:  # builds no Message objects
            return read_messages((yield from self.brain._flows.entries(None)))  # noqa: SLF001 - a part of this flow
        if self.brain.max_tokens is None:
            summary, newest = yield from self.brain._flows.newest(self._window, message_views)  # noqa: SLF001 - same
            views = text.newest_window(newest, self._window, MessageView.without_calls)
            return [*_summary_messages(summary), *[view.message for view in views]]
        context = yield from self.brain._context(self._window, None)  # noqa: SLF001 - same
        return [*_summary_messages(context.summary), *map(from_message, context.messages)]

    def _append(self, messages: Iterable[Message | MessageData]) -> Flow[None]:
        stored = list(messages)  # converted in the same thread as well
        with self._snapshots:  # inside of the flow, which ends later than whoever is cancelled as he awaits it
            yield from append_messages(self.brain, stored, _warn)

    def _clear(self) -> Flow[None]:
        with self._snapshots:
            yield from self.brain._flows.clear(None)  # noqa: SLF001 - a part of this flow

    def _write(self, messages: Iterable[Message | MessageData]) -> None:
        run(self._append(messages))

    async def _awrite(self, messages: Iterable[Message | MessageData]) -> None:
        await arun(self._append(messages))

    def __str__(self) -> str:
        """The messages as text, as LangChain has it; in an outage, the reason instead: printing raises nothing."""
        try:
            return super().__str__()
        except LangmemError as failure:
            return f"{self!r}, whose messages cannot be read: {failure}"

    def __repr__(self) -> str:
        return f"BrainChatMessageHistory({self.session_id!r}, brain={self.brain!r})"

    def _repr_html_(self) -> str:
        return render_safely(self, lambda: self.brain._view(self._window))  # noqa: SLF001 - a view of the same


def _summary_messages(summary: Summary | None) -> list[BaseMessage]:
    return [] if summary is None else [from_summary(summary)]


def _without_recalled(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    return [message for message in _checked_messages(messages) if not message.additional_kwargs.get(RECALLED)]


def _checked_messages(messages: Iterable[BaseMessage]) -> list[BaseMessage]:
    return checked_list(messages, 'a history is given a list of messages, such as HumanMessage("…")', BaseMessage)
