"""BrainMemory: what a conversation said, knows and is about."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from langmem_adapters.conversation import Conversation
from langmem_adapters.errors import ConfigurationError
from langmem_adapters.flow import arun, run
from langmem_adapters.longterm import LongTermMemory
from langmem_adapters.model import Message, Recalled, Scope, Summary
from langmem_adapters.protocols import Store

__all__ = ["BrainMemory"]


class BrainMemory:
    """The short-term memory of one session (MetaGPT's ``BrainMemory``): history, knowledge, summary, title.

    Messages are appended one by one, never rewritten as a whole, so any number of writers may share a session.
    Every method has an async twin with an ``a`` in front. Constructing one reads nothing.

    Args:
        store: Where it is kept.
        session: The session's id: any text.
        user, tenant: Whose session it is; sessions of others are never seen.
        memory_k: How many of the newest messages :meth:`window` shows, and with ``long_term`` how many are kept.
        long_term: Takes the messages that leave the window. Without it nothing ever leaves the history.
        ttl: Seconds after the last write at which the whole session expires; None: never.
        clock: Gives Unix seconds.
        new_id: Gives an id to a message that has none.

    >>> from langmem_adapters import BrainMemory, open_store
    >>> brain = BrainMemory(open_store("memory:"), "session-1")
    >>> brain.add_talk("Where is my bike?")
    >>> brain.add_answer("In the shed.")
    >>> print(brain.history_text())
    user: Where is my bike?
    assistant: In the shed.
    """

    def __init__(
        self,
        store: Store,
        session: str,
        *,
        user: str = "",
        tenant: str = "",
        memory_k: int = 200,
        long_term: LongTermMemory | None = None,
        ttl: float | None = None,
        clock: Callable[[], float] = time.time,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        if not isinstance(session, str) or not session:
            raise ConfigurationError(f"a session id is a text that is not empty, not {session!r}")
        if memory_k < 1:
            raise ConfigurationError(f"memory_k is at least 1, not {memory_k}")
        if ttl is not None and ttl <= 0:
            raise ConfigurationError(f"ttl is a number of seconds above 0, not {ttl}")
        self.store = store
        self.scope = Scope(tenant=tenant, user=user, session=session)
        self.memory_k = memory_k
        self.long_term = long_term
        self.ttl = ttl
        self._flows = Conversation(
            store, self.scope, memory_k=memory_k, long_term=long_term, ttl=ttl, clock=clock, new_id=new_id
        )

    # --- history

    def add_messages(self, messages: Sequence[Message]) -> None:
        """Append messages in their order, all or none.

        A message whose id the session holds already, with the same content, is a repeated delivery and is not
        added again.
        """
        run(self._flows.add(messages))

    async def aadd_messages(self, messages: Sequence[Message]) -> None:
        """:meth:`add_messages`, without blocking the event loop."""
        await arun(self._flows.add(messages))

    def add_talk(self, text: str, **fields: Any) -> None:
        """Append what the user said; ``fields`` are those of a Message, such as ``name`` or ``metadata``."""
        run(self._flows.add([Message(role="user", content=text, **fields)]))

    async def aadd_talk(self, text: str, **fields: Any) -> None:
        """:meth:`add_talk`, without blocking the event loop."""
        await arun(self._flows.add([Message(role="user", content=text, **fields)]))

    def add_answer(self, text: str, **fields: Any) -> None:
        """Append what the assistant answered."""
        run(self._flows.add([Message(role="assistant", content=text, **fields)]))

    async def aadd_answer(self, text: str, **fields: Any) -> None:
        """:meth:`add_answer`, without blocking the event loop."""
        await arun(self._flows.add([Message(role="assistant", content=text, **fields)]))

    def messages(self, limit: int | None = None) -> list[Message]:
        """The history from its oldest message, or only the newest ``limit`` of it."""
        return run(self._flows.messages(limit))

    async def amessages(self, limit: int | None = None) -> list[Message]:
        """:meth:`messages`, without blocking the event loop."""
        return await arun(self._flows.messages(limit))

    def window(self, k: int | None = None) -> list[Message]:
        """The newest ``k`` (default ``memory_k``) messages as a model may be shown them.

        A tool's result is never without its call nor a call without its result, and the first message is a
        user's; so there may be fewer than ``k``. See :func:`langmem_adapters.text.window`.
        """
        return run(self._flows.window(self.memory_k if k is None else k))

    async def awindow(self, k: int | None = None) -> list[Message]:
        """:meth:`window`, without blocking the event loop."""
        return await arun(self._flows.window(self.memory_k if k is None else k))

    def count(self) -> int:
        """How many messages the history holds."""
        return run(self._flows.scan(limit=0)).total

    async def acount(self) -> int:
        """:meth:`count`, without blocking the event loop."""
        return (await arun(self._flows.scan(limit=0))).total

    def exists(self, text: str) -> bool:
        """Whether a message of the history says exactly this."""
        return run(self._flows.exists(text))

    async def aexists(self, text: str) -> bool:
        """:meth:`exists`, without blocking the event loop."""
        return await arun(self._flows.exists(text))

    def history_text(self) -> str:
        """The summary, if there is one, and the history as ``role: text`` lines."""
        return run(self._flows.history_text())

    async def ahistory_text(self) -> str:
        """:meth:`history_text`, without blocking the event loop."""
        return await arun(self._flows.history_text())

    def clear(self) -> None:
        """Forget the session: history, knowledge, summary and title. The long-term memory stays."""
        run(self._flows.clear())

    async def aclear(self) -> None:
        """:meth:`clear`, without blocking the event loop."""
        await arun(self._flows.clear())

    # --- knowledge, summary, title

    def add_knowledge(self, messages: Sequence[Message | str]) -> None:
        """Keep facts beside the history, in their order."""
        run(self._flows.add_knowledge(messages))

    async def aadd_knowledge(self, messages: Sequence[Message | str]) -> None:
        """:meth:`add_knowledge`, without blocking the event loop."""
        await arun(self._flows.add_knowledge(messages))

    def get_knowledge(self) -> list[Message]:
        """The facts that were added, oldest first."""
        return run(self._flows.get_knowledge())

    async def aget_knowledge(self) -> list[Message]:
        """:meth:`get_knowledge`, without blocking the event loop."""
        return await arun(self._flows.get_knowledge())

    def get_summary(self) -> Summary | None:
        """The stored summary."""
        return run(self._flows.get_summary())

    async def aget_summary(self) -> Summary | None:
        """:meth:`get_summary`, without blocking the event loop."""
        return await arun(self._flows.get_summary())

    def set_summary(self, summary: str) -> None:
        """Replace the stored summary. No message is removed."""
        run(self._flows.set_summary(summary))

    async def aset_summary(self, summary: str) -> None:
        """:meth:`set_summary`, without blocking the event loop."""
        await arun(self._flows.set_summary(summary))

    def get_title(self) -> str:
        """The session's title; empty if it was never given one."""
        return run(self._flows.get_title())

    async def aget_title(self) -> str:
        """:meth:`get_title`, without blocking the event loop."""
        return await arun(self._flows.get_title())

    def set_title(self, title: str) -> None:
        """Give the session a title."""
        run(self._flows.set_title(title))

    async def aset_title(self, title: str) -> None:
        """:meth:`set_title`, without blocking the event loop."""
        await arun(self._flows.set_title(title))

    # --- recall

    def recall(self, query: str, k: int | None = None) -> list[Recalled]:
        """Search the long-term memory; what the window still shows is not repeated."""
        return run(self._flows.recall(query, k))

    async def arecall(self, query: str, k: int | None = None) -> list[Recalled]:
        """:meth:`recall`, without blocking the event loop."""
        return await arun(self._flows.recall(query, k))

    def __repr__(self) -> str:
        return f"BrainMemory({self.store!r}, {self.scope.session!r}, user={self.scope.user!r})"
