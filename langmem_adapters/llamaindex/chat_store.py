"""BrainChatStore and SyncBrainChatStore: sessions as LlamaIndex's chat stores.

They are two classes because LlamaIndex gives the same names to coroutines in AsyncDBChatStore and to plain functions
in BaseChatStore: ``get_messages`` cannot be both. What they do is written once, in session.py.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import Any

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.storage.chat_store.base import BaseChatStore
from llama_index.core.storage.chat_store.base_db import AsyncDBChatStore, MessageStatus
from llama_index.core.storage.chat_store.loading import RECOGNIZED_CHAT_STORES
from pydantic import (
    BaseModel,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)
from typing_extensions import Self

from langmem_adapters.brain import BrainMemory
from langmem_adapters.conversation.log import brain_namespace
from langmem_adapters.expiry import Refresh
from langmem_adapters.flow import Flow, arun, run, step
from langmem_adapters.llamaindex.session import ChatSession
from langmem_adapters.model import Scope
from langmem_adapters.protocols import Store
from langmem_adapters.stores import MissingStore, has_no_password, masked_url, resolve_store

_ACTIVE = MessageStatus.ACTIVE
_last_read: ContextVar[ChatSession | None] = ContextVar("langmem_adapters.llamaindex.read", default=None)
"""The session that this task has read last: a ``Memory`` reads, counts, and then archives the oldest that it read."""


class _UserSessions(BaseModel):
    """The sessions of a user on a store: what both chat stores are made of."""

    url: str | None = Field(default=None, description="The URL of the store, with its password masked.")
    user: str = ""
    tenant: str = ""
    ttl: float | None = Field(default=None, description="Seconds after which a session expires; None: never.")
    refresh: Refresh = Field(default="write", description="What restarts the ttl.")
    _store: Store = PrivateAttr()
    _can_reopen: bool = PrivateAttr()

    def __init__(self, url: str | None, store: Store | None, **settings: Any) -> None:
        opened = resolve_store(url, store)
        # A dump that names a store of the caller's own cannot be loaded, so that nobody gets another one unawares.
        super().__init__(url=masked_url(url) if store is None else repr(store), **settings)
        self._store = opened
        self._can_reopen = store is None and has_no_password(url)
        self._session("any")  # raises for wrong settings

    @classmethod
    def class_name(cls) -> str:
        """The name by which LlamaIndex knows this class."""
        return cls.__name__

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        """A copy on the same store, as connections are not copied."""
        return super().__deepcopy__({**(memo or {}), id(self._store): self._store})

    def __reduce__(self) -> tuple[Callable[[], BaseModel], tuple[()]]:
        fields = {name: getattr(self, name) for name in _UserSessions.model_fields}  # neither connections nor passwords
        if not self._can_reopen:
            fields |= {"url": None, "store": MissingStore(f"a {type(self).__name__}")}
        return partial(type(self), **fields), ()

    def _session(self, key: str) -> ChatSession:
        brain = BrainMemory(self._store, key, user=self.user, tenant=self.tenant, ttl=self.ttl, refresh=self.refresh)
        return ChatSession(brain)

    def _keys(self) -> Flow[list[str]]:
        rows = yield from step(self._store.recent, brain_namespace(Scope(tenant=self.tenant, user=self.user))[:-1])
        return [row.namespace[-1] for row in rows]


class BrainChatStore(_UserSessions, AsyncDBChatStore):
    """The short-term store of a ``Memory`` (implements LlamaIndex's ``AsyncDBChatStore``).

    A key is a session: its active messages are those of ``BrainMemory(store, key)`` and of LangChain's
    ``BrainChatMessageHistory(key)``; archived ones are kept beside them, and are deleted with the session.
    Blocks, tool calls and additional arguments come back equal. No method blocks the event loop. A copy has the same
    store. A dump holds the URL with its password masked, and cannot be loaded if there was one; a pickle opens the
    store of the URL anew. With a store of its own, or a password in its URL, it is pickled without its store, and each
    use of what is loaded raises StoreUnavailable.

    Args:
        url: The store's URL; default ``LANGMEM_STORE_URL``, ``REDIS_URL``, ``sqlite:///langmem.db``.
        store: A store of your own instead of a URL.
        user, tenant: Whose sessions these are; those of others are never seen.
        ttl: Seconds after which a session expires as a whole; None: never.
        refresh: What restarts that time, as in :class:`~langmem_adapters.brain.BrainMemory`.

    >>> from llama_index.core.llms import ChatMessage
    >>> from llama_index.core.memory import Memory
    >>> from langmem_adapters.llamaindex import BrainChatStore
    >>> memory = Memory.from_defaults("session-1", chat_store=BrainChatStore("memory:"), tokenizer_fn=str.split)
    >>> memory.put(ChatMessage("Where is my bike?"))
    >>> [message.content for message in memory.get()]
    ['Where is my bike?']
    """

    def __init__(  # in each class, as type checkers would otherwise derive one from the fields
        self,
        url: str | None = None,
        *,
        store: Store | None = None,
        user: str = "",
        tenant: str = "",
        ttl: float | None = None,
        refresh: Refresh = "write",
    ) -> None:
        super().__init__(url, store, user=user, tenant=tenant, ttl=ttl, refresh=refresh)

    async def get_messages(
        self, key: str, status: MessageStatus | None = _ACTIVE, limit: int | None = None, offset: int | None = None
    ) -> list[ChatMessage]:
        """The messages with a status, oldest first; with ``status=None`` the archived ones, then the active ones."""
        session = self._session(key)
        messages = await arun(session.read(status, limit, offset))
        _last_read.set(session if status == _ACTIVE and limit is None else None)
        return messages

    async def count_messages(self, key: str, status: MessageStatus | None = _ACTIVE) -> int:
        """How many messages with a status there are; with ``status=None``, how many in all."""
        return await arun(self._session(key).count(status))

    async def add_message(self, key: str, message: ChatMessage, status: MessageStatus = _ACTIVE) -> None:
        """Append a message."""
        await arun(self._session(key).add([message], status))

    async def add_messages(self, key: str, messages: list[ChatMessage], status: MessageStatus = _ACTIVE) -> None:
        """Append messages in their order, all or none."""
        await arun(self._session(key).add(messages, status))

    async def set_messages(self, key: str, messages: list[ChatMessage], status: MessageStatus = _ACTIVE) -> None:
        """Replace all messages of the key, archived ones too, in one write; one that is being added meanwhile stays."""
        _last_read.set(None)
        await arun(self._session(key).replace(messages, status))

    async def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        """Delete the active message at a position, from 0 or, counted from the end, -1; None if there is none."""
        _last_read.set(None)
        return await arun(self._session(key).remove_at(idx))

    async def delete_messages(self, key: str, status: MessageStatus | None = None) -> None:
        """Delete the messages with a status; with ``status=None`` the whole session, its summary and title too."""
        _last_read.set(None)
        await arun(self._session(key).remove_all(status))

    async def delete_oldest_messages(self, key: str, n: int) -> list[ChatMessage]:
        """Delete the oldest ``n`` active messages and return them."""
        _last_read.set(None)
        return await arun(self._session(key).remove_oldest(n, archive=False))

    async def archive_oldest_messages(self, key: str, n: int) -> list[ChatMessage]:
        """Archive the oldest ``n`` active messages, in one write, and return them.

        Of messages that the same task has just read, those that somebody else has removed since count as archived, so
        that a ``Memory`` gives its memory blocks all that it archives.
        """
        session = self._session(key).continuing(_last_read.get())
        archived = await arun(session.remove_oldest(n, archive=True))
        _last_read.set(session)
        return archived

    async def get_keys(self) -> list[str]:
        """The sessions of the user, the most recently written first."""
        return await arun(self._keys())


class SyncBrainChatStore(_UserSessions, BaseChatStore):
    """The same sessions for LlamaIndex's older memories, such as ``ChatMemoryBuffer`` (implements ``BaseChatStore``).

    It holds the active messages, and takes the arguments of a :class:`BrainChatStore`. What is added is stored at once,
    so it has no ``persist()``. Each ``get()`` of a ``ChatSummaryMemoryBuffer`` deletes the session and writes it anew,
    so title, knowledge and archive are lost.

    With a store of its own, or a password in its URL, a workflow's context leaves the memory out: give each run its
    ``memory``. With any other URL, a context that goes on has the memory again, but a ``ChatSummaryMemoryBuffer``
    without its model, and LlamaIndex cannot load a ``SimpleComposableMemory``: give each of their runs a context of its
    own.

    The async twins run on the library's own threads, not on the few of the event loop, which LlamaIndex would take. A
    subclass that changes a method changes its twin too.

    >>> from llama_index.core.llms import ChatMessage
    >>> from llama_index.core.memory import ChatMemoryBuffer
    >>> from langmem_adapters.llamaindex import SyncBrainChatStore
    >>> store = SyncBrainChatStore("memory:", user="ada")
    >>> memory = ChatMemoryBuffer.from_defaults(chat_store=store, chat_store_key="session-1", tokenizer_fn=str.split)
    >>> memory.put(ChatMessage("Where is my bike?"))
    >>> [message.content for message in memory.get()]
    ['Where is my bike?']
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        store: Store | None = None,
        user: str = "",
        tenant: str = "",
        ttl: float | None = None,
        refresh: Refresh = "write",
    ) -> None:
        super().__init__(url, store, user=user, tenant=tenant, ttl=ttl, refresh=refresh)

    @model_validator(mode="wrap")
    @classmethod
    def _load(cls, data: Any, load: ModelWrapValidatorHandler[Self]) -> Self:
        """Load a dump, too, in which LlamaIndex writes the name of the class."""
        return load({name: data[name] for name in data if name != "class_name"} if isinstance(data, dict) else data)

    @model_serializer(mode="wrap")
    def custom_model_dump(self, handler: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        """Its fields; in Python's form, a URL that opens no store is bytes.

        A workflow's context leaves out a memory that ``json.dumps`` refuses, and takes that of the next run. It would
        write one with a text, and then could not load it.
        """
        data = {**handler(self), "class_name": self.class_name()}
        if not self._can_reopen and info.mode == "python" and isinstance(url := data.get("url"), str):
            data["url"] = url.encode(errors="replace")
        return data

    def set_messages(self, key: str, messages: list[ChatMessage]) -> None:
        """Replace all messages of the key, archived ones too, in one write."""
        run(self._session(key).replace(messages))

    def get_messages(self, key: str) -> list[ChatMessage]:
        """The messages, oldest first."""
        return run(self._session(key).read(_ACTIVE, None, None))

    def add_message(self, key: str, message: ChatMessage) -> None:
        """Append a message."""
        run(self._session(key).add([message]))

    def delete_messages(self, key: str) -> list[ChatMessage] | None:
        """Delete the session, its archive, summary and title too; returns its messages, or None if there were none."""
        return run(self._session(key).forget())

    def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        """Delete the message at a position, from 0 or, counted from the end, -1; None if there is none."""
        return run(self._session(key).remove_at(idx))

    def delete_last_message(self, key: str) -> ChatMessage | None:
        """Delete the newest message; None if there is none."""
        return run(self._session(key).remove_at(-1))

    def get_keys(self) -> list[str]:
        """The sessions of the user, the most recently written first."""
        return run(self._keys())

    async def aset_messages(self, key: str, messages: list[ChatMessage]) -> None:
        """:meth:`set_messages`, without blocking the event loop."""
        await arun(self._session(key).replace(messages))

    async def aget_messages(self, key: str) -> list[ChatMessage]:
        """:meth:`get_messages`, without blocking the event loop."""
        return await arun(self._session(key).read(_ACTIVE, None, None))

    async def async_add_message(self, key: str, message: ChatMessage) -> None:
        """:meth:`add_message`, without blocking the event loop."""
        await arun(self._session(key).add([message]))

    async def adelete_messages(self, key: str) -> list[ChatMessage] | None:
        """:meth:`delete_messages`, without blocking the event loop."""
        return await arun(self._session(key).forget())

    async def adelete_message(self, key: str, idx: int) -> ChatMessage | None:
        """:meth:`delete_message`, without blocking the event loop."""
        return await arun(self._session(key).remove_at(idx))

    async def adelete_last_message(self, key: str) -> ChatMessage | None:
        """:meth:`delete_last_message`, without blocking the event loop."""
        return await arun(self._session(key).remove_at(-1))

    async def aget_keys(self) -> list[str]:
        """:meth:`get_keys`, without blocking the event loop."""
        return await arun(self._keys())


# Otherwise an older memory could be dumped, as contexts of workflows are, but never loaded again.
RECOGNIZED_CHAT_STORES[SyncBrainChatStore.class_name()] = SyncBrainChatStore  # type: ignore[assignment] # it is a dictionary for any
