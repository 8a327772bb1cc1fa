"""The test bench itself: Redis servers, the network guard, and the real OpenAI client on cassettes."""

from __future__ import annotations

import asyncio
import functools
import json
import operator
import socket
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import redis
from langchain_core.messages import AIMessage, HumanMessage, message_chunk_to_message
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel
from vcr.cassette import Cassette
from vcr.errors import CannotOverwriteExistingCassetteException

from tests import servers
from tests.conftest import NetworkGuard, NetworkUsed
from tests.openai_server import OpenAIServer, cassette
from tests.servers import RedisServer, redis_servers

CASSETTES = Path(__file__).parent / "cassettes"


# --- Redis --------------------------------------------------------------------------------------------------


def test_every_flavour_runs_without_modules(any_redis_server: RedisServer) -> None:
    with redis.Redis.from_url(any_redis_server.url()) as client:
        assert client.ping()
        modules = {module[b"name"] for module in client.module_list()}
    assert modules <= {b"lua", b"vectorset"}  # Valkey 9 carries its scripting engine as one, Redis 8 a type of its own


def test_shared_server_survives_a_test_that_leaves_keys(redis_server: RedisServer, key_prefix: str) -> None:
    with redis.Redis.from_url(redis_server.url(3)) as client:
        assert client.set(f"{key_prefix}a", b"1", nx=True)


def test_killed_server_comes_back_on_its_port_with_what_it_logged(
    start_redis: Callable[..., RedisServer],
) -> None:
    server = start_redis("--appendonly", "yes", "--appendfsync", "always")
    url = server.url()
    with redis.Redis.from_url(url) as client:
        client.set("a", b"1")
        server.kill()
        with pytest.raises(redis.ConnectionError):
            client.get("a")
        assert server.start().url() == url
        assert client.get("a") == b"1"


def test_server_that_cannot_start_says_why() -> None:
    server = RedisServer(next(iter(redis_servers().values())), args=("--no-such-option", "1"))
    with pytest.raises(RuntimeError, match="no-such-option"):
        server.start()
    server.close()


def test_a_start_that_is_interrupted_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: int) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(servers, "_answers", interrupt)
    server = RedisServer(next(iter(redis_servers().values())))
    with pytest.raises(KeyboardInterrupt):
        server.start()
    assert not server.running
    server.close()


def test_one_flavour_can_be_chosen_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANGMEM_TEST_REDIS", "valkey")
    assert list(redis_servers()) == ["valkey"]
    monkeypatch.setenv("LANGMEM_TEST_REDIS", "memcached")
    assert redis_servers() == {}


# --- the network guard --------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["192.0.2.1", "2001:db8::1", "example.com"])
def test_h4_leaving_the_machine_is_refused_and_remembered(network_guard: NetworkGuard, host: str) -> None:
    with pytest.raises(NetworkUsed, match=host):
        socket.create_connection((host, 80), timeout=1)
    assert network_guard.attempts == [host]
    network_guard.attempts.clear()  # otherwise this test fails, as it should


async def test_h4_asyncio_is_refused_too(network_guard: NetworkGuard) -> None:
    with pytest.raises(NetworkUsed, match=r"192\.0\.2\.1"):
        await asyncio.open_connection("192.0.2.1", 80)
    network_guard.attempts.clear()


def test_unix_sockets_stay_open(start_redis: Callable[..., RedisServer], tmp_path: Path) -> None:
    path = tmp_path / "redis.sock"
    start_redis("--unixsocket", str(path))
    with redis.Redis.from_url(f"unix://{path}") as client:
        assert client.ping()


# --- the real client on a cassette --------------------------------------------------------------------------


class Forecast(BaseModel):
    """A forecast."""

    city: str
    days: int
    sunny: bool


@tool
def weather(city: str) -> str:
    """Tell the weather of a city."""
    return f"rain in {city}"


def test_real_client_is_replayed(
    openai_cassette: Callable[[str], AbstractContextManager[Cassette]], chat_openai: Callable[..., ChatOpenAI]
) -> None:
    with openai_cassette("bench_sync") as tape:
        model = chat_openai()
        answer = model.invoke("Where is my bike?")
        assert answer.content == "You said: Where is my bike?"
        assert answer.usage_metadata is not None
        assert answer.usage_metadata["total_tokens"] == 10

        parts = list(chat_openai(stream_usage=True).stream("Tell me a story"))
        assert [part.content for part in parts if part.content] == [
            "You",
            " said:",
            " Tell",
            " me",
            " a",
            " story",
        ]
        assert sum(part.usage_metadata["total_tokens"] for part in parts if part.usage_metadata) == 10

        question = HumanMessage("What is the weather in Paris and Rome?")
        asked = model.bind_tools([weather]).invoke([question])
        assert [(call["name"], call["args"]) for call in asked.tool_calls] == [
            ("weather", {"city": "Paris"}),
            ("weather", {"city": "Rome"}),
        ]
        results = [weather.invoke(call) for call in asked.tool_calls]
        assert model.invoke([question, asked, *results]).content == "The tool says: rain in Rome"

        forecast = model.with_structured_output(Forecast, method="json_schema").invoke("Tomorrow in Oslo")
        assert forecast == Forecast(city="Oslo", days=1, sunny=True)
        by_call = model.with_structured_output(Forecast, method="function_calling").invoke("Tomorrow in Bonn")
        assert by_call == Forecast(city="Bonn", days=1, sunny=True)
    assert len(tape.requests) == 6


async def test_real_async_client_is_replayed(
    openai_cassette: Callable[[str], AbstractContextManager[Cassette]], chat_openai: Callable[..., ChatOpenAI]
) -> None:
    with openai_cassette("bench_async"):
        model = chat_openai()
        answers = await asyncio.gather(model.ainvoke("one"), model.ainvoke("two"))
        assert [answer.content for answer in answers] == ["You said: one", "You said: two"]
        parts = [part async for part in model.bind_tools([weather]).astream("The weather in Paris?")]
        message = message_chunk_to_message(functools.reduce(operator.add, parts))
        assert isinstance(message, AIMessage)
        assert [call["args"] for call in message.tool_calls] == [{"city": "Paris"}]


def test_a_call_that_was_not_recorded_fails(chat_openai: Callable[..., ChatOpenAI]) -> None:
    with cassette("bench_sync", record=False), pytest.raises(CannotOverwriteExistingCassetteException):
        chat_openai().invoke("Never asked before")


def test_cassettes_hold_neither_a_key_nor_a_machine() -> None:
    for path in CASSETTES.glob("*.yaml"):
        text = path.read_text().lower()
        assert "headers: {}" in text
        for word in ("authorization", "bearer", "user-agent", "x-stainless", "localhost"):
            assert word not in text, f"{word} in {path.name}"


# --- the script ---------------------------------------------------------------------------------------------


def ask(server: OpenAIServer, **request: Any) -> Any:
    body = json.dumps({"model": "gpt-4o-mini", **request}).encode()
    call = urllib.request.Request(f"{server.url}/chat/completions", body)
    with urllib.request.urlopen(call) as response:
        return json.loads(response.read())


def test_script_remembers_a_name_and_fails_on_request() -> None:
    messages = [{"role": "user", "content": text} for text in ("My name is Ada", "What is my name?")]
    with OpenAIServer() as server:
        answer = ask(server, messages=messages, n=2)
        assert [choice["message"]["content"] for choice in answer["choices"]] == ["Your name is Ada."] * 2
        with pytest.raises(urllib.error.HTTPError) as caught:
            ask(server, messages=[{"role": "user", "content": "fail with 429"}])
        caught.value.close()
        assert caught.value.code == 429
        assert len(server.requests) == 2
