"""What every test may ask for, and what holds for all of them: a clean environment and no network."""

from __future__ import annotations

import gc
import ipaddress
import os
import re
import signal
import socket
import sys
import time
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, ExitStack
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
import redis
from vcr.cassette import Cassette

from langmem_adapters import warn_once
from langmem_adapters.experience.shelf import index as shelf_index
from langmem_adapters.protocols import Store
from langmem_adapters.records import keyed
from langmem_adapters.stores import redis_wire
from langmem_adapters.stores.memory import MemoryStore
from langmem_adapters.stores.redis import RedisStore
from langmem_adapters.stores.redis_outage import Retries
from langmem_adapters.stores.sqlite import SQLiteStore
from langmem_adapters.testing import FakeClock
from tests.benchmarks.round_trips import RoundTrips
from tests.chroma_server import ChromaServer
from tests.openai_server import REPLAY_URL, OpenAIServer, cassette
from tests.servers import RedisServer, no_redis, redis_servers

if TYPE_CHECKING:
    from langchain_openai import ChatOpenAI

_REDIS = redis_servers()
_STORES = os.environ.get("LANGMEM_TEST_STORES", "memory,sqlite,redis").split(",")
_RECORD = os.environ.get("LANGMEM_RECORD") == "1"
_FOREIGN_SETTINGS = ("LANGCHAIN_", "LANGGRAPH_", "LANGMEM_", "LANGSMITH_", "OPENAI_", "REDIS_URL")

# Days are those of the machine's time zone.
os.environ["TZ"] = "UTC"
if hasattr(time, "tzset"):  # not on Windows
    time.tzset()

# A busy machine is no failure.
hypothesis.settings.register_profile("langmem", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, max_examples=50)
hypothesis.settings.register_profile("brief", deadline=None, max_examples=15)
hypothesis.settings.load_profile("langmem")
_EXAMPLES = "_hypothesis_internal_use_settings"  # where Hypothesis keeps what a test's decorator says


def pytest_configure() -> None:
    """End a run that is told to end (by ``timeout``) as one that is interrupted: else its servers would stay behind."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect the tests without the garbage collector: what is made there stays, and a sixth of the time went to it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _clean_environment() -> Iterator[None]:
    """No setting of the person who runs the tests decides about their outcome."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.upper().startswith(_FOREIGN_SETTINGS)]:
            patch.delenv(name)
        yield


@pytest.fixture(scope="module", autouse=True)
def _keep_the_old() -> None:
    """Keep what was imported, and what other modules made, out of the garbage collector's sight.

    It would look through all of it again and again, which took a fifth of the tests' time.
    """
    gc.collect()
    gc.freeze()


# --- no network ---------------------------------------------------------------------------------------------


class NetworkUsed(RuntimeError):  # noqa: N818 - it says what happened
    """Something wanted to leave this machine."""


class NetworkGuard:
    """An audit hook that refuses all addresses but loopback and the file system, and remembers the attempts.

    Patched methods would be restored by other plugins (pytest-socket does) after the first test.
    """

    def __init__(self) -> None:
        self.attempts: list[str] = []
        self.on = True

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.on or not event.startswith("socket."):
            return
        if event in {"socket.connect", "socket.sendto", "socket.sendmsg"}:
            sock, address = args
            host = address[0] if sock.family in {socket.AF_INET, socket.AF_INET6} and address else None
        elif event in {"socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"}:
            host = args[0]
        else:
            return
        if not _is_local(host):
            self.attempts.append(str(host))
            raise NetworkUsed(f"this test wanted to reach {host}; the tests run without a network")


def _is_local(host: object) -> bool:
    name = host.decode() if isinstance(host, bytes) else host
    if name in {None, "", "localhost"}:
        return True
    try:
        address = ipaddress.ip_address(str(name))
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


@pytest.fixture(scope="session")
def network_guard() -> Iterator[NetworkGuard]:
    guard = NetworkGuard()
    sys.addaudithook(guard)
    yield guard
    guard.on = False  # a hook cannot be taken out


@pytest.fixture(autouse=True)
def _no_warning_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever another test has damaged or stopped, a warning of the same is given again."""
    monkeypatch.setattr(warn_once, "_warn_of_damage", warn_once.WarnOnce())
    monkeypatch.setattr(warn_once, "_warn_of_outage", warn_once.WarnOnce())


@pytest.fixture
def no_log_is_tidied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise one write of a memory in 32, by its random id, asks the store for more."""
    monkeypatch.setattr(keyed, "_WRITES_PER_CHECK", 2**32 + 1)


@pytest.fixture(autouse=True)
def _no_network(network_guard: NetworkGuard) -> Iterator[None]:
    """Fail a test even where the library under it swallowed the refusal."""
    yield
    attempts = network_guard.attempts.copy()
    network_guard.attempts.clear()
    if attempts:
        pytest.fail(f"this test wanted to reach {', '.join(attempts)}; the tests run without a network")


# --- Redis --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def _redis_by_name() -> Iterator[Callable[[str], RedisServer]]:
    """One shared server a flavour, started when it is first asked for."""
    running: dict[str, RedisServer] = {}
    with ExitStack() as stack:

        def server(name: str) -> RedisServer:
            if name not in running:
                running[name] = stack.enter_context(RedisServer(_redis_path(name)))
            return running[name]

        yield server


def _redis_path(name: str | None = None) -> Path:
    if not _REDIS:
        pytest.fail(no_redis(), pytrace=False)
    return _REDIS[name or next(iter(_REDIS))]


@pytest.fixture(scope="session")
def redis_server(_redis_by_name: Callable[[str], RedisServer]) -> RedisServer:
    """A real server, shared by all tests of the process: use `key_prefix`, and never stop it."""
    return _redis_by_name(next(iter(_REDIS), ""))


@pytest.fixture(scope="session", params=list(_REDIS) or [""])
def any_redis_server(request: pytest.FixtureRequest, _redis_by_name: Callable[[str], RedisServer]) -> RedisServer:
    """Each flavour that is here in turn, shared as `redis_server` is."""
    return _redis_by_name(request.param)


@pytest.fixture
def start_redis() -> Iterator[Callable[..., RedisServer]]:
    """Start servers of the test's own, to configure or to kill: ``start_redis("--appendonly", "yes")``."""
    with ExitStack() as stack:

        def start(*args: str) -> RedisServer:
            return stack.enter_context(RedisServer(_redis_path(), args=args))

        yield start


@pytest.fixture
def no_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Redis stores report a server that refuses at once, and not after a second in which it may come back."""
    monkeypatch.setattr(redis_wire, "Retries", lambda _seconds: Retries(0))


@pytest.fixture
def patient_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that waits no more than a moment for a thread that embeds may miss something on a crowded machine."""
    monkeypatch.setattr(shelf_index, "_WAIT_SECONDS", 60.0)


@pytest.fixture
def clock() -> FakeClock:
    """Stands still until it is told."""
    return FakeClock()


@pytest.fixture
def key_prefix() -> str:
    """A prefix that no other test writes under."""
    return f"test-{uuid.uuid4().hex[:12]}:"


@pytest.fixture(params=_STORES)
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An empty store of each kind in turn."""
    if request.param == "memory":
        store: Store = MemoryStore()
    elif request.param == "sqlite":
        store = SQLiteStore(tmp_path / "store.db")
    else:
        server = request.getfixturevalue("redis_server")
        store = RedisStore(server.url(), prefix=request.getfixturevalue("key_prefix"))
    yield store
    store.close()


@pytest.fixture
def set_time_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Changes the local time zone, until the test ends; not on Windows."""

    def change(zone: str) -> None:
        monkeypatch.setenv("TZ", zone)
        time.tzset()

    yield change
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def distant(redis_server: RedisServer, key_prefix: str) -> Iterator[tuple[RedisStore, RoundTrips]]:
    """A Redis store that is connected and has asked for transactions, and what counts its round trips.

    Its database is its own, and empty: a SCAN of one that other tests have filled takes more trips.
    """
    with redis.Redis("127.0.0.1", redis_server.port, db=1) as raw:
        raw.flushdb()
    with RoundTrips(redis_server.port) as door:
        store = RedisStore(f"redis://127.0.0.1:{door.port}/1", prefix=key_prefix)
        store.append(("nothing",), [("a", b"")])
        store.clear(("nothing",))
        yield store, door
        store.close()


# --- Chroma -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def _chroma_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChromaServer]:
    server = ChromaServer(tmp_path_factory.mktemp("chroma-server"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def chroma_server(_chroma_server: ChromaServer) -> ChromaServer:
    """A real server, shared by all tests of the process, which takes seconds to start; empty, and it may be killed."""
    _chroma_server.renew()
    return _chroma_server


# --- model calls --------------------------------------------------------------------------------------------


@pytest.fixture
def openai_base_url() -> Iterator[str]:
    """The scripted server while recording, an address where nobody answers otherwise."""
    if not _RECORD:
        yield REPLAY_URL
        return
    with OpenAIServer() as server:
        yield server.url


@pytest.fixture
def openai_cassette(openai_base_url: str) -> Callable[[str], AbstractContextManager[Cassette]]:  # noqa: ARG001 - starts it
    """``with openai_cassette("name"):`` answers model calls from tests/cassettes/name.yaml.

    ``LANGMEM_RECORD=1`` records it anew, against the script of tests/openai_server.py.
    """
    return partial(cassette, record=_RECORD)


@pytest.fixture
def chat_openai(openai_base_url: str) -> Callable[..., ChatOpenAI]:
    """Build the real client, to be used inside of a cassette: ``chat_openai(temperature=0)``."""
    from langchain_openai import ChatOpenAI  # noqa: PLC0415 - a second, which few tests need to spend

    def build(**kwargs: Any) -> ChatOpenAI:
        settings = {
            "model": "gpt-4o-mini",
            "api_key": "test",
            "base_url": openai_base_url,
            "max_retries": 0,
        }
        return ChatOpenAI(**(settings | kwargs))

    return build


_FOREIGN = re.compile(
    r"^\s*(?:from|import) (?:chromadb|cryptography|langchain|langgraph|llama_index|numpy|opentelemetry|redis|rich|typer"
    r"|langmem_adapters\.(?:arshai|cli|encryption|indexes\.vector|langchain|langgraph|llamaindex|settings|stores\.redis|"
    r"telemetry))",
    re.MULTILINE,
)


# They meet other packages in no other way than the rest does, and take more than half of the time.
_ALIKE = """
    arshai brain cache_outage cache_proof cache_removal cached_together callbacks_that_fail
    classes_told_apart compaction docs embedding_beside erasure experience_eviction experience_shelf expiry fast_paths
    following forks importing interleavings interleavings_of_chats interleavings_of_erasure interleavings_of_items
    interleavings_of_meanings isolation
    langchain_history_peers langchain_overlap langchain_thread
    langchain_thread_view langchain_turn langgraph_items longterm middleware_clients middleware_recording
    middleware_taken_back operations plots policies progress recall_filters read_cache remembering
    replay scored_answers sealing semantic_cache sessions signal_cases store_redis store_redis_acl stores
    store_redis_faults store_redis_full store_redis_outage store_redis_together taking_back
    tombstones understanding validation vector_quantized vector_sqlite vectors_follow views windows working
""".split()  # noqa: SIM905 - a list of them would take a line for each


@cache
def _is_own(path: Path) -> bool:
    return path.stem.removeprefix("test_") in _ALIKE or not _FOREIGN.search(path.read_text(encoding="utf-8"))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import what ``-m "not own"`` leaves out: that took longer than many of the tests."""
    leaves_out = "not own" in config.getoption("markexpr")
    return True if leaves_out and collection_path.suffix == ".py" and _is_own(collection_path) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what the run with the oldest versions leaves out, see the markers in pyproject.toml."""
    for item in items:
        if {"chat_openai", "openai_cassette"} & set(getattr(item, "fixturenames", ())):
            item.add_marker("recorded")
        if _is_own(item.path):
            item.add_marker("own")
        _shorten(getattr(item, "obj", None))


def _shorten(test: Any) -> None:
    """With the profile "brief", a test that asks for many examples has no more than the others."""
    most, own = hypothesis.settings().max_examples, getattr(test, _EXAMPLES, None)
    if own is not None and own.max_examples > most and hypothesis.settings.get_current_profile_name() == "brief":
        setattr(test, _EXAMPLES, hypothesis.settings(own, max_examples=most))
