"""What langchain-redis checks of its chat history, asked of ours on every store, in words of our own.

Left out is what only a search index has: its schema, its creation and its query language. Sessions are searched by
``langmem-adapters search``.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from langmem_adapters import ConfigurationError, StoreUnavailable
from langmem_adapters.langchain import BrainChatMessageHistory
from langmem_adapters.protocols import Store
from langmem_adapters.stores.memory import MemoryStore
from langmem_adapters.stores.redis import RedisStore
from langmem_adapters.stores.sqlite import SQLiteStore
from langmem_adapters.testing import FakeClock
from tests.servers import RedisServer


@pytest.fixture
def chat(any_store: Store) -> BrainChatMessageHistory:
    return BrainChatMessageHistory("monday", store=any_store)


def contents(history: BrainChatMessageHistory) -> list[object]:
    return [message.content for message in history.messages]


# --- adding and reading


def test_a_new_session_is_an_empty_list(chat: BrainChatMessageHistory) -> None:
    assert chat.messages == []
    assert chat.session_id == "monday"
    assert chat.brain.count() == 0


def test_the_url_comes_behind_the_session_as_with_those_of_redis_and_sql(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/memory.db"
    BrainChatMessageHistory("monday", url).add_user_message("Where is my bike?")
    assert contents(BrainChatMessageHistory("monday", url=url)) == ["Where is my bike?"]


def test_a_question_and_an_answer_come_back_with_their_types(chat: BrainChatMessageHistory) -> None:
    chat.add_message(HumanMessage("Where is my bike?"))
    chat.add_message(AIMessage("In the shed."))
    assert [type(message) for message in chat.messages] == [HumanMessage, AIMessage]
    assert contents(chat) == ["Where is my bike?", "In the shed."]


def test_texts_are_added_as_messages_of_user_and_model(chat: BrainChatMessageHistory) -> None:
    chat.add_user_message("Where is my bike?")
    chat.add_ai_message("In the shed.")
    chat.add_user_message(HumanMessage("Thanks.", name="ada"))
    assert [(message.type, message.content, message.name) for message in chat.messages] == [
        ("human", "Where is my bike?", None),
        ("ai", "In the shed.", None),
        ("human", "Thanks.", "ada"),
    ]


@pytest.mark.parametrize(
    "message",
    [
        HumanMessage("text"),
        AIMessage("text"),
        SystemMessage("text"),
        ChatMessage(role="judge", content="text"),
        FunctionMessage(name="add", content="5"),
        ToolMessage("5", tool_call_id="call-1"),
        AIMessage("", tool_calls=[{"name": "add", "args": {"a": 2, "b": 3}, "id": "call-1", "type": "tool_call"}]),
        HumanMessage("text", additional_kwargs={"custom_field": "custom value", "number": 42}),
    ],
    ids=lambda message: f"{message.type}-{len(str(message))}",
)
def test_every_kind_of_message_keeps_its_fields(chat: BrainChatMessageHistory, message: BaseMessage) -> None:
    chat.add_message(message)
    (found,) = chat.messages
    assert type(found) is type(message)
    assert found.model_copy(update={"id": None}) == message


@pytest.mark.parametrize(
    "content",
    [
        "",
        "x" * 100_000,
        "Grüße, 世界! \U0001f30d αβγδε ñáéíóú",
        'It says "quoted", {braces}, [brackets], \\ backslashes, a tab\t and a null \0',
        json.dumps({"type": "human", "data": {"content": [1, 2, None]}}),
        '{"$type": "bytes", "$value": "AA=="}',
        "a line\r\nand\u2028another",
    ],
    ids=["empty", "100 kB", "unicode", "special", "json", "codec's own mark", "line ends"],
)
def test_any_text_comes_back_as_it_was(chat: BrainChatMessageHistory, content: str) -> None:
    chat.add_messages([HumanMessage(content), AIMessage(content)])
    assert contents(chat) == [content, content]


def test_messages_that_are_added_in_quick_succession_keep_their_order(chat: BrainChatMessageHistory) -> None:
    for n in range(200):
        chat.add_message(HumanMessage(f"number {n}"))
    assert contents(chat) == [f"number {n}" for n in range(200)]
    assert chat.brain.count() == 200


# --- clearing


def test_clearing_leaves_nothing_however_much_there_was(chat: BrainChatMessageHistory) -> None:
    chat.clear()
    assert chat.messages == []
    chat.add_messages([HumanMessage(f"number {n}") for n in range(1200)])
    chat.clear()
    assert chat.messages == []
    assert chat.brain.count() == 0
    chat.add_user_message("A new beginning.")
    assert contents(chat) == ["A new beginning."]


def test_clearing_one_session_leaves_the_others(any_store: Store) -> None:
    one, other = (BrainChatMessageHistory(name, store=any_store) for name in ("one", "other"))
    for history in (one, other):
        history.add_messages([HumanMessage(f"{history.session_id}: question"), AIMessage("answer")])
    one.clear()
    assert contents(one) == []
    assert contents(other) == ["other: question", "answer"]


# --- sessions


def test_two_objects_on_one_session_see_each_others_messages(any_store: Store) -> None:
    one, other = (BrainChatMessageHistory("monday", store=any_store) for _ in range(2))
    one.add_user_message("from the one")
    assert contents(other) == ["from the one"]
    other.add_ai_message("from the other")
    assert contents(one) == contents(other) == ["from the one", "from the other"]


@pytest.mark.parametrize(
    "session",
    [
        "550e8400-e29b-41d4-a716-446655440000",
        "session_测试_\U0001f680",
        "user@example.org|a,b;c.d",
        "with spaces and\nlines",
        "{tag}:*?[x]",
        "-",
        "../../etc",
        "\ud800 half a pair",
    ],
)
def test_any_session_id(any_store: Store, session: str) -> None:
    history = BrainChatMessageHistory(session, store=any_store)
    history.add_messages([HumanMessage("hello"), AIMessage("hello back")])
    assert contents(BrainChatMessageHistory(session, store=any_store)) == ["hello", "hello back"]
    assert contents(BrainChatMessageHistory(session + "x", store=any_store)) == []
    history.clear()
    assert contents(history) == []


@pytest.mark.parametrize("session", ["", None, 5])
def test_a_session_needs_an_id(session: object) -> None:
    with pytest.raises(ValueError, match="a session id is a text that is not empty"):
        BrainChatMessageHistory(session, store=MemoryStore())  # type: ignore[arg-type]


# --- expiry


@pytest.fixture(params=["memory", "sqlite"])
def timed(request: pytest.FixtureRequest, tmp_path: object) -> Iterator[tuple[Store, FakeClock]]:
    clock = FakeClock()
    store: Store = MemoryStore(clock=clock) if request.param == "memory" else SQLiteStore(f"{tmp_path}/s", clock=clock)
    yield store, clock
    store.close()


def test_a_session_expires_as_a_whole(timed: tuple[Store, FakeClock]) -> None:
    store, clock = timed
    history = BrainChatMessageHistory("monday", store=store, ttl=60)
    history.add_user_message("first")
    clock.advance(59)
    history.add_ai_message("second")
    clock.advance(59)
    assert contents(history) == ["first", "second"]
    clock.advance(2)
    assert contents(history) == []


def test_all_keys_of_a_session_in_redis_expire_together(redis_server: RedisServer, key_prefix: str) -> None:
    store = RedisStore(redis_server.url(), prefix=key_prefix)
    BrainChatMessageHistory("monday", store=store, ttl=2**31 - 1).add_user_message("hello")
    client = redis.Redis.from_url(redis_server.url())
    left = {client.ttl(key) for key in client.scan_iter(f"{key_prefix}*")}
    assert left
    assert min(left) > 2**31 - 60
    client.close()
    store.close()


@pytest.mark.parametrize("ttl", [0, -1, float("nan")])
def test_a_ttl_that_is_no_time_is_refused(ttl: float) -> None:
    with pytest.raises(ConfigurationError, match="above 0"):
        BrainChatMessageHistory("monday", store=MemoryStore(), ttl=ttl)


# --- servers


@pytest.mark.parametrize("name", ["custom:", "very_long_prefix_" * 10 + ":", "test-prefix_with.special@chars:", ""])
def test_prefixes_keep_applications_apart(redis_server: RedisServer, key_prefix: str, name: str) -> None:
    stores = [RedisStore(redis_server.url(), prefix=f"{key_prefix}{part}{name}") for part in ("a", "b")]
    histories = [BrainChatMessageHistory("monday", store=store) for store in stores]
    for n, history in enumerate(histories):
        history.add_user_message(f"of application {n}")
    assert [contents(history) for history in histories] == [["of application 0"], ["of application 1"]]
    histories[0].clear()
    assert [contents(history) for history in histories] == [[], ["of application 1"]]
    for store in stores:
        store.close()


def test_a_client_of_ones_own_is_used_and_stays_open(redis_server: RedisServer, key_prefix: str) -> None:
    client = redis.Redis.from_url(redis_server.url())
    store = RedisStore(client, prefix=key_prefix)
    history = BrainChatMessageHistory("monday", store=store)
    history.add_messages([HumanMessage("hello"), AIMessage("hello back")])
    assert contents(history) == ["hello", "hello back"]
    store.close()
    assert client.ping()
    client.close()


def test_after_connections_were_cut_it_goes_on(redis_server: RedisServer, key_prefix: str) -> None:
    client = redis.Redis.from_url(redis_server.url())
    history = BrainChatMessageHistory("monday", store=RedisStore(client, prefix=key_prefix))
    history.add_user_message("before")
    client.connection_pool.disconnect()
    history.add_ai_message("after")
    assert contents(history) == ["before", "after"]
    client.close()


def test_a_server_that_is_not_there_is_one_sentence_at_the_first_use() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    history = BrainChatMessageHistory("monday", store=RedisStore(f"redis://:secret@127.0.0.1:{port}/0"))
    with pytest.raises(StoreUnavailable) as caught:
        history.add_user_message("hello")
    assert f"127.0.0.1:{port}" in str(caught.value)
    assert "secret" not in str(caught.value)
