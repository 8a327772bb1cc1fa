"""Rows about a conversation: append, read the newest, a turn, read all."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from urllib.parse import urlsplit

from langchain_core.messages import BaseMessage

from langmem_adapters.langchain import BrainChatMessageHistory
from langmem_adapters.protocols import Store
from langmem_adapters.stores.redis import RedisStore
from tests.benchmarks.bench import Bench
from tests.benchmarks.goals import at_most, faster, flat, over
from tests.benchmarks.harness import Case, Line, Row
from tests.benchmarks.history_peers import Conversation, conversations
from tests.benchmarks.limits import RedisList, SQLiteLog
from tests.benchmarks.payloads import as_bytes, conversation
from tests.benchmarks.round_trips import RoundTrips

__all__ = ["ROWS"]

_K = 20
_SIZES = (10, 1_000, 10_000, 100_000)
_SPARE = 1 << 16  # numbers above those of any session, for what is appended to it


def _limit(bench: Bench, kind: str, synchronous: str = "normal") -> SQLiteLog | RedisList:
    if kind == "redis":
        return RedisList(bench.redis_url, str(bench.path("limit")))
    return SQLiteLog(bench.connection(synchronous))


def _ours(store: Store, messages: Sequence[BaseMessage], memory_k: int | None = None) -> BrainChatMessageHistory:
    history = BrainChatMessageHistory("s", store=store, memory_k=memory_k)
    for start in range(0, len(messages), 1000):
        history.add_messages(messages[start : start + 1000])
    return history


def _peers(stack: ExitStack, bench: Bench, kind: str, messages: Sequence[BaseMessage]) -> dict[str, Conversation]:
    found = dict(conversations(bench, kind, messages, slow=len(messages) <= 10_000))
    for peer in found.values():
        stack.callback(peer.close)
    return found


def _fresh(size: int) -> Callable[[], BaseMessage]:
    """Messages that no session holds, with ids of their own."""
    numbers = itertools.count(size + _SPARE)
    return lambda: conversation(1, next(numbers))[0]


def _append(bench: Bench, *, kind: str, sizes: Sequence[int], synchronous: str = "normal") -> Iterator[Line]:
    for size in bench.sizes(*sizes):
        messages = conversation(size)
        with bench.store(kind, synchronous=synchronous) as store, ExitStack() as stack:
            peers = _peers(stack, bench, kind, messages) if synchronous == "normal" else {}
            yield _appended(bench, messages, _ours(store, messages), _limit(bench, kind, synchronous), peers)


def _appended(
    bench: Bench,
    messages: Sequence[BaseMessage],
    history: BrainChatMessageHistory,
    limit: SQLiteLog | RedisList,
    peers: Mapping[str, Conversation],
) -> Line:
    data = as_bytes(messages)
    limit.fill(data)
    case = Case(
        lambda _: limit.append(data[-1]),
        lambda message: history.add_messages([message]),
        {name: peer.append for name, peer in peers.items()},
        given=_fresh(len(messages)),
    )
    return bench.line(f"{len(messages):,}", case)


def _newest(bench: Bench, *, kind: str, sizes: Sequence[int]) -> Iterator[Line]:
    for size in bench.sizes(*sizes):
        messages = conversation(size)
        with bench.store(kind) as store, ExitStack() as stack:
            history, limit = _ours(store, messages, _K), _limit(bench, kind)
            limit.fill(as_bytes(messages))
            assert history.messages == messages[-len(history.messages) :]
            assert len(history.messages) >= min(size, _K) - 2  # a window begins with a question
            peers = _peers(stack, bench, kind, messages) if size <= 10_000 else {}
            case = Case(
                partial(_call, partial(limit.newest, _K)),
                partial(_call, partial(getattr, history, "messages")),
                {name: partial(_call, peer.newest) for name, peer in peers.items()},
            )
            yield bench.line(f"{size:,}", case)


def _call(work: Callable[[], object], _: object) -> object:
    return work()


def _turn(bench: Bench) -> Iterator[Line]:
    """Read the newest, append a question and its answer."""
    pair = as_bytes(conversation(2))

    def bare(limit: RedisList, _: object) -> None:
        limit.newest(_K)
        limit.append(*pair)

    def ours(history: BrainChatMessageHistory, two: Sequence[BaseMessage]) -> None:
        assert history.messages
        history.add_messages(two)

    def theirs(peer: Conversation, two: Sequence[BaseMessage]) -> None:
        peer.newest()
        for message in two:
            peer.append(message)

    for size in bench.sizes(*_SIZES):
        messages = conversation(size)
        with bench.store("redis") as store, ExitStack() as stack:
            limit = RedisList(bench.redis_url, str(bench.path("limit")))
            limit.fill(as_bytes(messages))
            peers = _peers(stack, bench, "redis", messages) if size <= 10_000 else {}
            case = Case(
                partial(bare, limit),
                partial(ours, _ours(store, messages, _K)),
                {name: partial(theirs, peer) for name, peer in peers.items()},
                given=partial(_pair, _fresh(size)),
            )
            yield bench.line(f"{size:,}", case)


def _pair(fresh: Callable[[], BaseMessage]) -> list[BaseMessage]:
    return [fresh(), fresh()]


def _round_trips(bench: Bench) -> Iterator[Line]:
    address = urlsplit(bench.redis_url)
    for size in bench.sizes(*_SIZES):
        with RoundTrips(address.port or 0) as door:
            store = RedisStore(f"redis://127.0.0.1:{door.port}/0", prefix=f"{bench.path('trips')}:")
            history = _ours(store, conversation(size), _K)
            fresh = _fresh(size)
            before = door.count
            _ = history.messages
            history.add_messages([fresh(), fresh()])
            yield Line(f"{size:,}", "trips", 2, door.count - before, {})
            store.close()


def _read_all(bench: Bench, *, kind: str) -> Iterator[Line]:
    size = 2_000 if bench.short else 10_000
    messages = conversation(size)
    with bench.store(kind) as store, ExitStack() as stack:
        history, limit = _ours(store, messages), _limit(bench, kind)
        limit.fill(as_bytes(messages))
        assert history.messages == messages
        case = Case(
            lambda _: limit.everything(),
            lambda _: history.messages,
            {name: partial(_call, peer.everything) for name, peer in _peers(stack, bench, kind, messages).items()},
            items=size,
        )
        yield bench.line(f"{size:,}", case)


_LIST = "RPUSH and LRANGE by redis-py"
_INSERT = "one INSERT OR IGNORE in a WAL file, the id unique, synchronous {}"
ROWS = (
    Row(
        "append-redis",
        "Append one message, Redis, by length of the session",
        "RPUSH by redis-py",
        partial(_append, kind="redis", sizes=_SIZES),
        (at_most(1.5), flat(1.2)),
        gate=2.0,
    ),
    Row(
        "append-sqlite",
        "Append one message, SQLite file, by length of the session",
        _INSERT.format("NORMAL"),
        partial(_append, kind="sqlite", sizes=_SIZES),
        (at_most(2.5), faster(30)),
        gate=5.0,
    ),
    Row(
        "append-sqlite-full",
        "Append one message, SQLite file that survives power cuts (`?synchronous=full`)",
        _INSERT.format("FULL"),
        partial(_append, kind="sqlite", sizes=(10_000,), synchronous="full"),
        (at_most(1.3),),
    ),
    Row(
        "newest-redis",
        "The newest 20 as LangChain messages, Redis, by length of the session",
        "LRANGE by redis-py, bytes only",
        partial(_newest, kind="redis", sizes=_SIZES),
        (at_most(3.0), faster(500, but=1, size="10,000")),
        gate=8.0,
    ),
    Row(
        "newest-sqlite",
        "The newest 20 as LangChain messages, SQLite file, by length of the session",
        "one SELECT, bytes only",
        partial(_newest, kind="sqlite", sizes=_SIZES),
        (at_most(8.0), faster(500, but=1, size="10,000")),
        gate=30.0,
    ),
    Row("turn", "A turn: read the newest 20, append two messages; Redis", _LIST, _turn, (flat(1.2),)),
    Row("round-trips", "Round trips of such a turn, counted at the socket", "two", _round_trips, (at_most(1),)),
    Row(
        "read-all-redis",
        "Read a whole session as messages, Redis, per message",
        "LRANGE by redis-py, bytes only",
        partial(_read_all, kind="redis"),
        (over(9e-6), faster(3)),
    ),
    Row(
        "read-all-sqlite",
        "Read a whole session as messages, SQLite file, per message",
        "one SELECT, bytes only",
        partial(_read_all, kind="sqlite"),
        (over(9e-6), faster(3)),
    ),
)
