"""BrainChatMessageHistory: a session as LangChain's chat history."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.messages import BaseMessage
from langchain_core.runnables.config import var_child_runnable_config

from langmem_adapters.brain import BrainMemory
from langmem_adapters.errors import ConfigurationError
from langmem_adapters.langchain.convert import from_message, to_message
from langmem_adapters.longterm import LongTermMemory
from langmem_adapters.protocols import Store
from langmem_adapters.stores import shared_store

__all__ = ["BrainChatMessageHistory"]

_MOST = 1_000_000_000  # messages; where no window is asked for


class BrainChatMessageHistory(BaseChatMessageHistory):
    """Chat history on a store (implements ``langchain_core.chat_history.BaseChatMessageHistory``).

    Every message comes back equal, of the same class, in the order of writing; a streamed chunk comes back as the
    whole message. Making one is free of I/O, and all of a process share their connections, so make one for each
    call: ``RunnableWithMessageHistory(chain, lambda session_id: BrainChatMessageHistory(session_id))``.

    Inside a running chain the first read is kept until this object writes: the chain reads twice, and must not
    see what other turns wrote in between. Outside of one, each read is fresh.

    Args:
        session_id: Any text.
        url: The store's URL; default ``LANGMEM_STORE_URL``, ``REDIS_URL``, ``sqlite:///langmem.db``.
        store: A store of your own instead of a URL.
        brain: A BrainMemory instead of both, with the settings it was made with.
        user, tenant: Whose session it is; sessions of others are never seen.
        memory_k: ``messages`` gives only the newest ones, at most so many, never a tool's result without its
            call. None: all of them.
        long_term: Takes what leaves that window.
        ttl: Seconds after the last write at which the session expires; None: never.

    >>> from langmem_adapters.langchain import BrainChatMessageHistory
    >>> history = BrainChatMessageHistory("session-1", url="memory:")
    >>> history.add_user_message("Where is my bike?")
    >>> [message.content for message in history.messages]
    ['Where is my bike?']
    """

    def __init__(  # without super().__init__(), which would warn of its own deprecation in our users' logs
        self,
        session_id: str = "",
        *,
        url: str | None = None,
        store: Store | None = None,
        brain: BrainMemory | None = None,
        user: str = "",
        tenant: str = "",
        memory_k: int | None = None,
        long_term: LongTermMemory | None = None,
        ttl: float | None = None,
    ) -> None:
        if sum(given is not None for given in (url, store, brain)) > 1:
            raise ConfigurationError("give BrainChatMessageHistory one of url, store and brain")
        if long_term is not None and memory_k is None:
            raise ConfigurationError("long_term takes what leaves the window: give memory_k= too")
        if brain is None:
            brain = BrainMemory(
                store or shared_store(url),
                session_id,
                user=user,
                tenant=tenant,
                memory_k=_MOST if memory_k is None else memory_k,
                long_term=long_term,
                ttl=ttl,
            )
        elif session_id not in {"", brain.scope.session}:
            raise ConfigurationError(f"this brain is session {brain.scope.session!r}, not {session_id!r}")
        else:
            memory_k = brain.memory_k if brain.long_term else memory_k
        self.brain = brain
        self.session_id = brain.scope.session
        self._window = memory_k
        self._snapshot: list[BaseMessage] | None = None

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]  # a property, as LangChain's own docs have it
        """The history, oldest message first."""
        if self._snapshot is None or not _in_chain():
            kept = self.brain.messages() if self._window is None else self.brain.window(self._window)
            self._snapshot = [from_message(message) for message in kept]
        return list(self._snapshot)

    async def aget_messages(self) -> list[BaseMessage]:
        """:attr:`messages`, without blocking the event loop."""
        if self._snapshot is None or not _in_chain(awaited=True):
            kept = await (self.brain.amessages() if self._window is None else self.brain.awindow(self._window))
            self._snapshot = [from_message(message) for message in kept]
        return list(self._snapshot)

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Append messages in their order, all or none, in one round trip."""
        self._snapshot = None
        self.brain.add_messages([to_message(message) for message in messages])

    async def aadd_messages(self, messages: Sequence[BaseMessage]) -> None:
        """:meth:`add_messages`, without blocking the event loop."""
        self._snapshot = None
        await self.brain.aadd_messages([to_message(message) for message in messages])

    def clear(self) -> None:
        """Forget the session, with its knowledge, summary and title."""
        self._snapshot = None
        self.brain.clear()

    async def aclear(self) -> None:
        """:meth:`clear`, without blocking the event loop."""
        self._snapshot = None
        await self.brain.aclear()

    def __repr__(self) -> str:
        return f"BrainChatMessageHistory({self.session_id!r}, brain={self.brain!r})"


def _in_chain(*, awaited: bool = False) -> bool:
    """Whether a runnable is running here. Before Python 3.11, LangChain cannot tell this to coroutines."""
    return var_child_runnable_config.get() is not None or (awaited and sys.version_info < (3, 11))
