"""BrainMemory: the short-term memory of one conversation."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Literal

from typing_extensions import Self, Unpack

from langmem_adapters import validation, views
from langmem_adapters.concurrency.counts import Counts
from langmem_adapters.conversation.log import readable_entries
from langmem_adapters.conversation.model_tasks import CONTEXT_TOKENS, ModelTasks
from langmem_adapters.conversation.reflection import Reflection
from langmem_adapters.conversation.remembering import Remembering
from langmem_adapters.conversation.session import TITLE, Context, Conversation, count_visible, read_title
from langmem_adapters.conversation.stored_summary import SUMMARY, read_summary
from langmem_adapters.conversation.tombstones import DEPARTED, count_departed
from langmem_adapters.conversation.turn import Turn, mark_interrupted, merge_pieces
from langmem_adapters.errors import ConfigurationError
from langmem_adapters.expiry import Refresh
from langmem_adapters.flow import Flow, arun, run
from langmem_adapters.longterm import LongTermMemory
from langmem_adapters.metagpt import import_flow
from langmem_adapters.model import Message, MessageData, Scope, Summary
from langmem_adapters.prompts import Prompts
from langmem_adapters.protocols import Store
from langmem_adapters.sharing import Shared
from langmem_adapters.tokens import TokenCounter, approximate_tokens


class BrainMemory(Shared, Remembering, Reflection):
    """The short-term memory of one session (MetaGPT's ``BrainMemory``): history, knowledge, summary, title.

    The history is only appended to, never rewritten as a whole, so any number of writers may share a session.
    Every method has an async twin whose name begins with ``a``. The constructor reads nothing.

    Args:
        store, session: Where the session is kept, and its id: any text that is not empty.
        user, tenant: The owner of the session; sessions of other owners are never seen.
        memory_k: How many of the newest messages :meth:`window` shows, and with ``long_term`` how many are kept.
        long_term: Takes the messages beyond ``memory_k``, or with ``summarize_at`` those that were summarised. Without
            it, they stay in the history (see ``archive``).
        model: Writes summaries, titles and the like: any LangChain or LlamaIndex model, or a function from prompt
            to text. Each method that needs a model also accepts another one.
        summarize_at: With a model: when the messages exceed this many tokens, the oldest are summarised, so that
            half as many tokens stay. None: only :meth:`summarize` makes a summary.
        summarize_in: "background" (a worker thread, after the write has returned) or "inline" (before it returns).
        max_summary_tokens: The longest summary, in tokens. A longer answer costs a second call, to shorten it.
        max_tokens: The longest window, in tokens; None: only ``memory_k`` bounds it. It also caps ``summarize_at``, but
            alone moves nothing to ``long_term``.
        archive: Whether messages are kept after they have been summarised: in ``long_term`` if there is one, else in
            the history, outside the window. False: they are deleted.
        counter: Counts tokens; default: an estimate by characters.
        prompts: The prompts for the model, made as ``langmem_adapters.prompts.Prompts(title=…)``.
        ttl: Seconds after which the whole session expires; None: never.
        refresh: What restarts the ``ttl``. "write": each write. "read": each read too; a read then costs a write, and
            counts as activity, once a tenth of the ``ttl`` has passed. "never": nothing, it runs from the session's
            first write. All writers of a session must use the same value.
        clock, new_id: Functions that return Unix seconds, and an id for a message that has none.

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
        model: Any = None,
        summarize_at: int | None = None,
        summarize_in: Literal["background", "inline"] = "background",
        max_summary_tokens: int = 400,
        max_tokens: int | None = None,
        archive: bool = True,
        counter: TokenCounter = approximate_tokens,
        prompts: Prompts | None = None,
        ttl: float | None = None,
        refresh: Refresh = "write",
        clock: Callable[[], float] = time.time,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        if not isinstance(session, str) or not session:
            raise ConfigurationError(f"a session id is a text that is not empty, not {session!r}")
        validation.check_count("memory_k", memory_k)
        if summarize_at is not None:
            validation.check_count("summarize_at", summarize_at)
            if model is None:
                raise ConfigurationError("summarize_at needs a model= to summarise with")
        if summarize_in not in ("background", "inline"):
            raise ConfigurationError(f'summarize_in is "background" or "inline", not {summarize_in!r}')
        validation.check_count("max_summary_tokens", max_summary_tokens)
        if max_tokens is not None:
            validation.check_count("max_tokens", max_tokens)
        self.store = store
        self.scope: Scope = validation.checked_scope(tenant=tenant, user=user, session=session)
        self.memory_k = memory_k
        self.max_tokens = max_tokens
        self.long_term = long_term
        self.model = model
        self.ttl = ttl
        self.refresh: Refresh = refresh
        self._stats = Counts()
        self._flows = Conversation(
            store,
            self.scope,
            memory_k=memory_k,
            long_term=long_term,
            ttl=ttl,
            refresh=refresh,
            moves_overflow=summarize_at is None,
            removes_messages=long_term is not None or not archive,
            clock=clock,
            new_id=new_id,
        )
        self._counter = counter
        prompts = Prompts() if prompts is None else prompts
        token_budget = CONTEXT_TOKENS if summarize_at is None else summarize_at
        token_budget = token_budget if max_tokens is None else min(token_budget, max_tokens)
        self._tasks = ModelTasks(
            self._flows,
            model=model,
            summarize_at=token_budget,
            archive=archive,
            max_summary_tokens=max_summary_tokens,
            counter=counter,
            prompts=prompts,
            stats=self._stats,
        )
        self._recall_heading = prompts.recalled
        self._summarize_mode: str | None = summarize_in if summarize_at is not None else None
        if self._summarize_mode == "background":
            self._tasks.check_background()

    @classmethod
    def from_metagpt(cls, blob: str | bytes, store: Store, session: str, **arguments: Any) -> Self:
        """Import what MetaGPT's ``BrainMemory.dumps`` left in Redis; importing it again adds nothing twice."""
        brain = cls(store, session, **arguments)
        run(import_flow(brain.store, brain._flows.session, blob))
        return brain

    @classmethod
    async def afrom_metagpt(cls, blob: str | bytes, store: Store, session: str, **arguments: Any) -> Self:
        """:meth:`from_metagpt`, without blocking the event loop."""
        brain = cls(store, session, **arguments)
        await arun(import_flow(brain.store, brain._flows.session, blob))
        return brain

    # --- history

    def add_messages(self, messages: Sequence[Message]) -> None:
        """Append messages in order, all or none.

        A message whose id and content the session holds already is a repeated delivery and is not added again.
        """
        run(self._add(messages))

    async def aadd_messages(self, messages: Sequence[Message]) -> None:
        """:meth:`add_messages`, without blocking the event loop."""
        await arun(self._add(messages))

    def add_talk(self, text: str, **fields: Unpack[validation.MessageFields]) -> None:
        """Append what the user said; ``fields`` are those of a Message, such as ``name`` or ``metadata``."""
        run(self._add([validation.make_message("user", text, fields)]))

    async def aadd_talk(self, text: str, **fields: Unpack[validation.MessageFields]) -> None:
        """:meth:`add_talk`, without blocking the event loop."""
        await arun(self._add([validation.make_message("user", text, fields)]))

    def add_answer(self, text: str, **fields: Unpack[validation.MessageFields]) -> None:
        """Append what the assistant answered."""
        run(self._add([validation.make_message("assistant", text, fields)]))

    async def aadd_answer(self, text: str, **fields: Unpack[validation.MessageFields]) -> None:
        """:meth:`add_answer`, without blocking the event loop."""
        await arun(self._add([validation.make_message("assistant", text, fields)]))

    def record_turn(self, question: str | Message) -> Turn[str | Message]:
        """Record a question with its answer, or with the part that had come when the turn was interrupted.

        >>> from langmem_adapters import BrainMemory, open_store
        >>> brain = BrainMemory(open_store("memory:"), "session-1")
        >>> with brain.record_turn("Where is my bike?") as turn:
        ...     for text in turn.watch(["In ", "the ", "shed."]):
        ...         break
        >>> [(message.text, message.metadata) for message in brain.messages()]
        [('Where is my bike?', {}), ('In ', {'interrupted': True})]
        """
        question_message = Message(role="user", content=question) if isinstance(question, str) else question
        return Turn(
            validation.checked_messages([question_message])[0],
            pieces=(str, Message),
            gather=merge_pieces,
            write=self.add_messages,
            awrite=self.aadd_messages,
            mark=mark_interrupted,
            new_id=self._flows.new_id,
        )

    def messages(self, limit: int | None = None) -> list[Message]:
        """The history, oldest message first, or only its newest ``limit`` messages."""
        return run(self._flows.messages(limit))

    async def amessages(self, limit: int | None = None) -> list[Message]:
        """:meth:`messages`, without blocking the event loop."""
        return await arun(self._flows.messages(limit))

    def window(self, k: int | None = None, *, max_tokens: int | None = None) -> list[Message]:
        """The newest ``k`` (default ``memory_k``) messages, as a list that a model accepts.

        It has no tool result without its call, no call without its result, and begins with a user's message, so it
        may be shorter than ``k``. See :func:`langmem_adapters.text.window`.
        """
        return run(self._context(k, max_tokens)).messages

    async def awindow(self, k: int | None = None, *, max_tokens: int | None = None) -> list[Message]:
        """:meth:`window`, without blocking the event loop."""
        return (await arun(self._context(k, max_tokens))).messages

    def count(self) -> int:
        """How many messages the history holds."""
        return run(self._flows.session.scan(limit=0)).total

    async def acount(self) -> int:
        """:meth:`count`, without blocking the event loop."""
        return (await arun(self._flows.session.scan(limit=0))).total

    def exists(self, text: str) -> bool:
        """Whether a message of the history has exactly this text."""
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
        """Replace the stored summary; an empty text removes it. No message is removed."""
        run(self._flows.set_summary(summary))

    async def aset_summary(self, summary: str) -> None:
        """:meth:`set_summary`, without blocking the event loop."""
        await arun(self._flows.set_summary(summary))

    def set_title(self, title: str) -> None:
        """Give the session a title."""
        run(self._flows.set_title(title))

    async def aset_title(self, title: str) -> None:
        """:meth:`set_title`, without blocking the event loop."""
        await arun(self._flows.set_title(title))

    def context(self, k: int | None = None, *, max_tokens: int | None = None) -> Context:
        """The summary, and the window of the messages that it does not cover."""
        return run(self._context(k, max_tokens))

    async def acontext(self, k: int | None = None, *, max_tokens: int | None = None) -> Context:
        """:meth:`context`, without blocking the event loop."""
        return await arun(self._context(k, max_tokens))

    def __repr__(self) -> str:
        return f"BrainMemory({self.store!r}, {self.scope.session!r}, user={self.scope.user!r})"

    def _repr_html_(self) -> str:
        return views.render_safely(self, lambda: self._view(self.memory_k))

    def _view(self, k: int | None) -> str:
        """The session as a chat with a window of ``k``, from one scan of a page, which does not count as activity."""
        keys = [TITLE, SUMMARY, DEPARTED]
        page = self.store.scan(self._flows.namespace, limit=views.MAX_MESSAGES, reverse=True, keys=keys)
        redacted = getattr(self.store, "redacted", lambda data: data)  # entries may be older than the redactor
        entries = readable_entries(item._replace(data=redacted(item.data)) for item in reversed(page.items))
        values = {key: redacted(data) for key, data in page.values.items()}
        summary = read_summary(values.get(SUMMARY))
        return views.conversation(
            [message for _, message in entries],
            title=read_title(values.get(TITLE)),
            details=[f"session {self.scope.session}", f"user {self.scope.user}" if self.scope.user else ""],
            summary=summary.text if summary else "",
            total=page.total,
            inside=None if k is None else count_visible(page, entries, k, self.max_tokens, self._counter),
            departed=count_departed(values),
        )

    # --- flows

    def _add(self, messages: Sequence[Message | MessageData]) -> Flow[None]:
        if self._summarize_mode == "inline":
            yield from self._tasks.check_inline()
        yield from self._flows.add(messages)
        if self._summarize_mode == "inline":
            yield from self._tasks.compact()
        elif self._summarize_mode:
            self._tasks.compact_in_background()

    def _context(self, k: int | None, max_tokens: int | None) -> Flow[Context]:
        k = self.memory_k if k is None else k
        return (yield from self._flows.context(k, self.max_tokens if max_tokens is None else max_tokens, self._counter))
