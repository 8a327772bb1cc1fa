"""Other ways to keep a conversation, each behind the three operations that are measured."""

from __future__ import annotations

import asyncio
import importlib
import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import redis
from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage, messages_from_dict, messages_to_dict

from tests.benchmarks.bench import Bench, installed

__all__ = ["Conversation", "conversations", "histories"]

_CHUNK = 1000
_SHOWN = 80  # of LlamaIndex's Memory: what its default of 30,000 tokens has room for
_Opens = Callable[[Bench, Sequence[BaseMessage]], "Conversation"]


class Conversation(NamedTuple):
    """A conversation that somebody keeps."""

    append: Callable[[BaseMessage], object]
    newest: Callable[[], Sequence[object]]  # 20 of them, as messages of the peer's host
    everything: Callable[[], Sequence[object]]
    close: Callable[[], object] = lambda: None


def conversations(
    bench: Bench, kind: str, messages: Sequence[BaseMessage], *, slow: bool = True
) -> Iterator[tuple[str, Conversation]]:
    """Those that can be measured here, with these messages in them; the bench is told which cannot, and why.

    ``slow=False`` leaves out those that rewrite the whole conversation with every message.
    """
    for name, (module, opens, is_slow) in _PEERS[kind].items():
        if not bench.peers or (is_slow and not slow):
            continue
        if not installed(module):
            bench.absent[name] = "not installed"
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield name, opens(bench, messages)
        except Exception as error:  # noqa: BLE001 - whatever keeps a peer from working here, the table says it
            bench.absent[name] = f"{type(error).__name__}: {str(error).splitlines()[0][:80]}"


def histories(bench: Bench, kind: str) -> Iterator[tuple[str, Callable[[str], BaseChatMessageHistory]]]:
    """LangChain's histories, by session, as ``RunnableWithMessageHistory`` wants them."""
    if not bench.peers or not installed("langchain_community"):
        return
    found: Any = importlib.import_module("langchain_community.chat_message_histories")
    if kind == "redis":
        yield "LangChain Redis", lambda session: found.RedisChatMessageHistory(session, url=bench.redis_url)
        return
    engine = importlib.import_module("sqlalchemy").create_engine(f"sqlite:///{bench.path('histories')}")
    yield "LangChain SQL", lambda session: found.SQLChatMessageHistory(session, connection=engine)


def _of_history(history: BaseChatMessageHistory, messages: Sequence[BaseMessage]) -> Conversation:
    for start in range(0, len(messages), _CHUNK):
        history.add_messages(messages[start : start + _CHUNK])
    return Conversation(
        lambda message: history.add_messages([message]), lambda: history.messages[-20:], lambda: history.messages
    )


def _langchain_redis(bench: Bench, messages: Sequence[BaseMessage]) -> Conversation:
    found: Any = importlib.import_module("langchain_community.chat_message_histories")
    return _of_history(found.RedisChatMessageHistory(str(bench.path("s")), url=bench.redis_url), messages)


def _langchain_sql(bench: Bench, messages: Sequence[BaseMessage]) -> Conversation:
    found: Any = importlib.import_module("langchain_community.chat_message_histories")
    return _of_history(found.SQLChatMessageHistory("s", connection=f"sqlite:///{bench.path('sql')}"), messages)


def _blob(bench: Bench, messages: Sequence[BaseMessage]) -> Conversation:
    """MetaGPT's way, in its essence: the conversation is one value, read and written as a whole."""
    client: Any = redis.Redis.from_url(bench.redis_url)
    key = str(bench.path("blob"))
    client.set(key, json.dumps(messages_to_dict(messages)))

    def everything() -> list[BaseMessage]:
        return list(messages_from_dict(json.loads(client.get(key))))

    def append(message: BaseMessage) -> None:
        client.set(key, json.dumps([*json.loads(client.get(key)), *messages_to_dict([message])]))

    return Conversation(append, lambda: everything()[-20:], everything)


def _llama_message(message: BaseMessage) -> Any:
    llms: Any = importlib.import_module("llama_index.core.llms")
    role = {"human": "user", "ai": "assistant", "tool": "tool"}[message.type]
    about = {"id": message.id, "name": message.name, **message.additional_kwargs, **message.response_metadata}
    if isinstance(message, AIMessage):
        about |= {"tool_calls": message.tool_calls, "usage": message.usage_metadata}
    if isinstance(message, ToolMessage):
        about |= {"tool_call_id": message.tool_call_id, "artifact": message.artifact}
    return llms.ChatMessage(role=role, content=message.text, additional_kwargs=about)


def _llama_redis(bench: Bench, messages: Sequence[BaseMessage]) -> Conversation:
    store: Any = importlib.import_module("llama_index.storage.chat_store.redis").RedisChatStore(bench.redis_url)
    key = str(bench.path("llama"))
    store.set_messages(key, [_llama_message(message) for message in messages])
    return Conversation(
        lambda message: store.add_message(key, _llama_message(message)),
        lambda: store.get_messages(key)[-20:],
        lambda: store.get_messages(key),
    )


def _llama_sql(bench: Bench, messages: Sequence[BaseMessage]) -> Conversation:
    found: Any = importlib.import_module("llama_index.core.storage.chat_store.sql")
    store = found.SQLAlchemyChatStore("messages", async_database_uri=f"sqlite+aiosqlite:///{bench.path('llama')}")
    loop = asyncio.new_event_loop()
    wait = loop.run_until_complete
    for start in range(0, len(messages), _CHUNK):
        wait(store.add_messages("s", [_llama_message(message) for message in messages[start : start + _CHUNK]]))

    def close() -> None:
        wait(store._async_engine.dispose())
        loop.close()

    return Conversation(
        lambda message: wait(store.add_message("s", _llama_message(message))),
        lambda: wait(store.get_messages("s", limit=20, offset=max(len(messages) - 20, 0))),
        lambda: wait(store.get_messages("s")),
        close,
    )


def _llama_memory(bench: Bench, messages: Sequence[BaseMessage]) -> Conversation:
    """All but the newest are in its archive, as they would be by now: it moves them there one by one."""
    found: Any = importlib.import_module("llama_index.core.memory")
    status: Any = importlib.import_module("llama_index.core.storage.chat_store.base_db").MessageStatus
    memory = found.Memory.from_defaults("s", async_database_uri=f"sqlite+aiosqlite:///{bench.path('memory')}")
    loop = asyncio.new_event_loop()
    wait = loop.run_until_complete
    archived = [_llama_message(message) for message in messages[:-_SHOWN]]
    for start in range(0, len(archived), _CHUNK):
        wait(memory.sql_store.add_messages("s", archived[start : start + _CHUNK], status.ARCHIVED))
    wait(memory.sql_store.add_messages("s", [_llama_message(message) for message in messages[-_SHOWN:]]))

    def close() -> None:
        wait(memory.sql_store._async_engine.dispose())
        loop.close()

    return Conversation(
        lambda message: wait(memory.aput(_llama_message(message))),
        lambda: wait(memory.aget())[-20:],
        lambda: wait(memory.aget_all()),
        close,
    )


def _sqlite_saver(bench: Bench, messages: Sequence[BaseMessage]) -> Conversation:
    graphs: Any = importlib.import_module("langgraph.graph")
    saver: Any = importlib.import_module("langgraph.checkpoint.sqlite").SqliteSaver
    manager = saver.from_conn_string(str(bench.path("saver")))
    builder = graphs.StateGraph(graphs.MessagesState)
    builder.add_node("answer", lambda _: {"messages": []})
    builder.add_edge("__start__", "answer")
    graph = builder.compile(checkpointer=manager.__enter__())
    config = {"configurable": {"thread_id": "s"}}
    graph.update_state(config, {"messages": list(messages)})

    def everything() -> list[BaseMessage]:
        return list(graph.get_state(config).values["messages"])

    return Conversation(
        lambda message: graph.update_state(config, {"messages": [message]}),
        lambda: everything()[-20:],
        everything,
        lambda: manager.__exit__(None, None, None),
    )


_PEERS: dict[str, dict[str, tuple[str, _Opens, bool]]] = {
    "redis": {
        "LangChain Redis": ("langchain_community", _langchain_redis, False),
        "LlamaIndex RedisChatStore": ("llama_index.storage.chat_store.redis", _llama_redis, False),
        "MetaGPT's way": ("redis", _blob, False),
    },
    "sqlite": {
        "LangChain SQL": ("langchain_community", _langchain_sql, False),
        "LlamaIndex SQL": ("aiosqlite", _llama_sql, False),
        "LlamaIndex Memory": ("aiosqlite", _llama_memory, False),
        "LangGraph SqliteSaver": ("langgraph.checkpoint.sqlite", _sqlite_saver, True),
    },
}
