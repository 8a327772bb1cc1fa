"""Stores of clients and pools of asyncio, or that decode answers: these say where to connect, and as whom."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio
from langchain_core.messages import HumanMessage

from langmem_adapters import WorkingMemory, open_store
from langmem_adapters.errors import ConfigurationError, StoreUnavailable
from langmem_adapters.langchain import BrainChatMessageHistory
from langmem_adapters.stores import redis_wire
from langmem_adapters.stores.redis import RedisStore
from langmem_adapters.testing import FakeClock
from tests.servers import RedisServer
from tests.test_store_redis import NS, keys, sentinel
from tests.test_store_redis_outage import works
from tests.waiting import until

CLIENTS = pytest.mark.parametrize(
    "client_of",
    [
        redis.asyncio.Redis,
        partial(redis.Redis, decode_responses=True),
        lambda **where: redis.asyncio.Redis(**where).connection_pool,
        lambda **where: redis.Redis(**where, decode_responses=True).connection_pool,
    ],
    ids=["asyncio", "str", "pool of asyncio", "pool of str"],
)


def names(client: redis.Redis) -> list[str]:
    return [each["name"] for each in client.client_list()]


@CLIENTS
def test_it_connects_there_as_the_same_user(
    start_redis: Callable[..., RedisServer], client_of: Callable[..., Any], key_prefix: str
) -> None:
    server = start_redis("--requirepass", "hidden")
    with redis.Redis(port=server.port, db=2, password="hidden") as raw:
        raw.acl_setuser("ada", enabled=True, passwords=["+secret"], commands=["+@all"], keys=["*"])
        client = client_of(port=server.port, db=2, username="ada", password="secret", client_name="mine")
        store = RedisStore(client, prefix=key_prefix, max_connections=3)
        assert store.append(NS, [("a", b"\xff")]).new == [True]
        assert [item.data for item in store.scan(NS).items] == [b"\xff"]
        assert raw.exists(keys(store)["log"])
        assert repr(store) == f"RedisStore('redis://localhost:{server.port}/2')"
        assert "mine" in names(raw)
        store.close()
        until(lambda: "mine" not in names(raw))  # nothing is left open


@pytest.mark.parametrize("pool", [redis.ConnectionPool, redis.BlockingConnectionPool])
def test_a_pool_that_was_told_no_host_is_named_by_its_address(pool: Any) -> None:
    assert repr(RedisStore(pool(port=7001, db=2))) == "RedisStore('redis://localhost:7001/2')"
    assert repr(RedisStore(pool())) == "RedisStore('redis://localhost:6379/0')"


@CLIENTS
def test_it_connects_to_the_same_host(client_of: Callable[..., Any]) -> None:
    assert repr(RedisStore(client_of(host="elsewhere", port=7001))) == "RedisStore('redis://elsewhere:7001/0')"


@CLIENTS
def test_a_socket_file(start_redis: Callable[..., RedisServer], client_of: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "redis.sock"
    start_redis("--unixsocket", str(path))
    with closing(RedisStore(client_of(unix_socket_path=str(path), db=3))) as store:
        assert store.append(NS, [("a", b"")]).new == [True]
        assert repr(store) == f"RedisStore('unix://{path}?db=3')"
    with redis.Redis(unix_socket_path=str(path), db=3) as raw:
        assert raw.exists(keys(store)["log"])


@pytest.mark.parametrize(
    "sentinels_of",
    [redis.asyncio.sentinel.Sentinel, partial(redis.sentinel.Sentinel, decode_responses=True)],
    ids=["asyncio", "str"],
)
def test_the_primary_that_sentinels_name(
    redis_server: RedisServer, sentinels_of: Callable[..., Any], key_prefix: str, tmp_path: Path
) -> None:
    with sentinel(redis_server, tmp_path) as port:
        sentinels = sentinels_of([("127.0.0.1", 1), ("127.0.0.1", port)], min_other_sentinels=0)
        with closing(RedisStore(sentinels.master_for("mine", db=2), prefix=key_prefix)) as store:
            assert store.append(NS, [("a", b"")]).new == [True]
            with redis.Redis(port=redis_server.port, db=2) as raw:
                assert raw.exists(keys(store)["log"])
            store.clear(NS)
        lonely = sentinels_of([("127.0.0.1", port)], min_other_sentinels=1).master_for("mine")
        with (
            closing(RedisStore(lonely, prefix=key_prefix, retry_for=0)) as store,
            pytest.raises(StoreUnavailable),
        ):
            store.get(NS)


async def test_an_application_keeps_its_client_of_asyncio(redis_server: RedisServer, key_prefix: str) -> None:
    client = redis.asyncio.Redis(port=redis_server.port)
    store = open_store(client)
    session = key_prefix
    history = BrainChatMessageHistory(session, store=store)
    await history.aadd_messages([HumanMessage("Where is my bike?", id="m")])
    await client.set(key_prefix, b"beside")
    assert [message.content for message in await history.aget_messages()] == ["Where is my bike?"]
    state = WorkingMemory(store)
    await state.astore(session, {"step": 1})
    assert len(await state.aretrieve(session)) == 1
    await history.aclear()
    await state.adelete(session)
    store.close()
    assert await client.getdel(key_prefix) == b"beside"
    await client.aclose()


class OwnConnection(redis.asyncio.Connection):
    """Of somebody who connects through a tunnel, say."""


async def greet(_: Any) -> None:
    raise AssertionError("nothing connects")


class AwaitedLogin(redis.CredentialProvider):
    async def get_credentials_async(self) -> tuple[str, str]:
        raise AssertionError("nothing connects")


@pytest.mark.parametrize(
    ("client", "why"),
    [
        (
            redis.asyncio.Redis(connection_pool=redis.asyncio.ConnectionPool(connection_class=OwnConnection)),
            "has connections of a make of their own, tests.test_store_redis_clients.OwnConnection",
        ),
        (redis.asyncio.Redis(redis_connect_func=greet), "calls a function of yours as it connects"),
        (
            redis.asyncio.Redis(credential_provider=AwaitedLogin()),
            "has a credential provider with nothing but get_credentials_async",
        ),
    ],
    ids=["class", "function", "credentials"],
)
def test_what_only_the_client_knows(client: Any, why: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{why} does not tell a store how to connect: give it a URL"):
        open_store(client)


class Vault(redis.CredentialProvider):
    """Gives the login of the default user, until it fails."""

    def __init__(self) -> None:
        self.error: Exception | None = None

    def get_credentials(self) -> tuple[str, str]:
        if self.error:
            raise self.error
        return "default", "hidden"

    async def get_credentials_async(self) -> tuple[str, str]:
        return self.get_credentials()


def is_idle(_: RedisServer, clock: FakeClock) -> None:
    clock.advance(61)  # the store connects anew


def is_hung_up_on(server: RedisServer, _: FakeClock) -> None:
    with redis.Redis(port=server.port) as raw:
        raw.client_kill_filter(skipme=True)


@pytest.mark.parametrize("kind", [RuntimeError, OSError, redis.ResponseError])
@pytest.mark.parametrize(
    ("client_of", "befalls"),
    [(redis.Redis, is_hung_up_on), (redis.asyncio.Redis, is_hung_up_on), (redis.asyncio.Redis, is_idle)],
)
def test_a_credential_provider_that_fails_is_an_outage(
    start_redis: Callable[..., RedisServer],
    client_of: Callable[..., Any],
    befalls: Callable[[RedisServer, FakeClock], None],
    clock: FakeClock,
    tmp_path: Path,
    *,
    kind: type[Exception],
) -> None:
    server, vault = start_redis(), Vault()
    with sentinel(server, tmp_path) as port:
        if befalls is is_idle:
            sentinels = redis.asyncio.sentinel.Sentinel([("127.0.0.1", port)])  # type: ignore[no-untyped-call]
            client = sentinels.master_for("mine", credential_provider=vault)
        else:
            client = client_of(port=server.port, credential_provider=vault)
        with closing(RedisStore(client, clock=clock, retry_for=0)) as store:
            assert store.append(NS, [("a", b"")]).new == [True]
            vault.error = kind("the token tok_123 has expired")
            befalls(server, clock)
            reason = rf"see why the credential provider of its client fails \({kind.__name__}\)$"
            with pytest.raises(StoreUnavailable, match=reason) as caught:
                store.get(NS)
            assert caught.value.__cause__
            assert caught.value.__cause__.__cause__ is vault.error
            vault.error = None
            until(lambda: works(store))
            assert [item.id for item in store.scan(NS).items] == ["a"]
        if isinstance(client, redis.Redis):  # of the others, no connection was used
            client.close()


class Closed(redis.Connection):
    """Closed by another thread each time when it is about to send; ``is_closing`` says whether that goes on."""

    is_closing = False

    def send_packed_command(self, command: Iterable[bytes], check_health: bool = True) -> None:
        super().send_packed_command(map(self.send_part, command), check_health)  # type: ignore[no-untyped-call]

    def send_part(self, part: bytes) -> bytes:
        if self.is_closing:
            self.disconnect()  # type: ignore[no-untyped-call]  # redis-py has it so
        return part


class HungUpOn(Closed):
    """As redis-py tells what the server did."""

    def send_part(self, part: bytes) -> bytes:
        if self.is_closing:
            self.disconnect()  # type: ignore[no-untyped-call]
            raise redis.ConnectionError("Connection closed by server.")
        return part


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    return lambda is_closing: monkeypatch.setattr(Closed, "is_closing", is_closing)


def test_a_client_that_its_owner_closes_in_use_is_a_typed_error(
    redis_server: RedisServer, key_prefix: str, closed: Callable[[bool], None]
) -> None:
    pool = redis.ConnectionPool(connection_class=Closed, port=redis_server.port)
    with closing(RedisStore(pool, prefix=key_prefix)) as store:
        assert store.append(NS, [("a", b"")]).new == [True]
        closed(True)
        why = "has lost a connection that another thread closed: close a client when no thread uses it any more"
        for guard in (None, {"k": None}):
            with pytest.raises(StoreUnavailable, match=why):
                store.write(NS, put={"k": b""}, guard=guard)
        closed(False)
        assert store.scan(NS, keys=["k"]).values == {}  # at once: the server was not down
    pool.disconnect()


def test_a_credential_provider_that_fails_as_a_lent_connection_connects_anew(
    start_redis: Callable[..., RedisServer], closed: Callable[[bool], None]
) -> None:
    server, vault = start_redis(), Vault()
    again = redis.retry.Retry(redis.backoff.NoBackoff(), 1)
    pool = redis.ConnectionPool(connection_class=HungUpOn, port=server.port, credential_provider=vault, retry=again)
    with closing(RedisStore(pool)) as store:
        assert store.append(NS, [("a", b"")]).new == [True]
        vault.error = RuntimeError("the token tok_123 has expired")
        closed(True)
        with pytest.raises(StoreUnavailable, match=r"credential provider of its client fails \(RuntimeError\)$"):
            store.get(NS)
    pool.disconnect()


def test_a_write_whose_answer_is_lost_is_no_failure_of_the_credential_provider(
    redis_server: RedisServer, key_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    transact = redis_wire._transact

    def losing(connection: Any, commands: Any) -> list[Any]:
        transact(connection, commands)
        raise redis.ConnectionError("Connection closed by server.")

    client = redis.Redis(port=redis_server.port, credential_provider=Vault())
    with client, closing(RedisStore(client, prefix=key_prefix)) as store:
        monkeypatch.setattr(redis_wire, "_transact", losing)
        with pytest.raises(StoreUnavailable, match="may have been made: read again"):
            store.write(NS, put={"n": b"1"}, guard={"n": None})
        assert store.get(NS) == {"n": b"1"}
