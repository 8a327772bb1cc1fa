"""Rows about a process: what importing costs, how many turns it serves at once, and what it holds in memory."""

from __future__ import annotations

import asyncio
import gc
import itertools
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from redis.asyncio import ConnectionPool, Redis

from langmem_adapters.langchain import BrainChatMessageHistory, ExperienceCache
from langmem_adapters.stores.redis import RedisStore
from tests.benchmarks.bench import Bench, installed
from tests.benchmarks.goals import at_least, over, within
from tests.benchmarks.harness import Goal, Line, Row
from tests.benchmarks.payloads import LLM, answer, conversation, prompt
from tests.benchmarks.round_trips import RoundTrips

__all__ = ["ROWS", "commands_of"]

# --- import

_TIMED = "import time, sys\nstart = time.process_time()\n{}\nprint(time.process_time() - start)\n{}"
_HOSTS = {"langchain_core", "langchain", "langgraph", "llama_index", "chromadb", "numpy", "redis"}
_CHECK = f"assert not {_HOSTS!r} & set(sys.modules), 'a host was imported before it was used'"
_OURS = {
    "the package": "import pydantic.main; import langmem_adapters",
    "a memory on a file": "import pydantic.main; from langmem_adapters import BrainMemory, open_store",
}
_PEERS = {
    "langchain_core.chat_history": "langchain_core.chat_history",
    "llama_index.core": "llama_index.core",
    "chromadb": "chromadb",
}


def _import(bench: Bench) -> Iterator[Line]:
    rounds = 3 if bench.short else 9
    statements = {"limit": "import pydantic.main", **_OURS}
    peers = {name: f"import {module}" for name, module in _PEERS.items() if bench.peers and installed(module)}
    times: dict[str, list[float]] = {name: [] for name in (*statements, *peers)}
    for number in range(rounds):
        for name, statement in statements.items():
            times[name].append(_in_a_process(_TIMED.format(statement, _CHECK)))
        for name, statement in peers.items() if number < (1 if bench.short else 3) else ():
            times[name].append(_in_a_process(_TIMED.format(statement, "")))
    median = {name: statistics.median(took) * 1e3 for name, took in times.items()}
    for name in _OURS:
        yield Line(name, "ms", median["limit"], median[name], {peer: median[peer] for peer in peers})


def _in_a_process(code: str) -> float:
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


# --- many turns at once

_TURNS = 200
_CONNECTIONS = 64
_TICK = 0.001  # seconds from which on a task wants its turn again


def _concurrent(bench: Bench) -> Iterator[Line]:
    """Turns a second, and the longest time for which the loop did nothing else."""
    rounds = 3 if bench.short else 9
    commands = commands_of(bench)
    store = RedisStore(bench.redis_url, prefix=f"{bench.path('concurrent')}:")
    asyncio.run(_watched(_turns(store, 0)))  # fills the sessions
    rates: dict[str, list[float]] = {"limit": [], "ours": []}
    blocks: dict[str, list[float]] = {"limit": [], "ours": []}
    for number in range(1, rounds + 1):
        runs: dict[str, Callable[[], Coroutine[Any, Any, tuple[float, float]]]] = {
            "limit": partial(_bare_turns, bench.redis_url, commands),
            "ours": partial(_watched, _turns(store, number)),
        }
        for name in sorted(runs, reverse=bool(number % 2)):
            gc.collect()
            took, longest = asyncio.run(runs[name]())
            rates[name].append(_TURNS / took)
            blocks[name].append(longest * 1e3)
    store.close()
    rate = {name: statistics.median(found) for name, found in rates.items()}
    block = {name: statistics.median(found) for name, found in blocks.items()}
    yield Line("turns", "1/s", rate["limit"], rate["ours"], {})
    yield Line("longest block", "ms", block["limit"], block["ours"], {})


def _turns(store: RedisStore, number: int) -> Callable[[], Awaitable[object]]:
    """A turn of every session; what is said is there before it is measured, as the bare loop's commands are."""

    async def turn(session: int) -> None:
        history = BrainChatMessageHistory(f"s{session}", store=store, memory_k=20)
        await history.aget_messages()
        await history.aadd_messages(messages[session])

    async def turns() -> None:
        await asyncio.gather(*(turn(session) for session in range(_TURNS)))

    fresh = itertools.count(number * _TURNS * 4)
    count = 20 if number == 0 else 4
    messages = [conversation(count, next(fresh) * count) for _ in range(_TURNS)]
    return turns


async def _bare_turns(url: str, commands: Sequence[Sequence[Sequence[bytes]]]) -> tuple[float, float]:
    """The commands of our turns by redis.asyncio: nothing is parsed, and nothing is made of the answers.

    It has as many connections as our store, and they are open before it begins, as ours are.
    """
    client = Redis(connection_pool=ConnectionPool.from_url(url, max_connections=_CONNECTIONS, protocol=2))
    places = asyncio.Semaphore(_CONNECTIONS)

    async def turn() -> None:
        for transaction in commands:
            async with places:
                pipeline = client.pipeline(transaction=True)
                for command in transaction:
                    pipeline.execute_command(*command)
                await pipeline.execute()

    async def turns() -> None:
        await asyncio.gather(*(turn() for _ in range(_TURNS)))

    await asyncio.gather(*(client.ping() for _ in range(_CONNECTIONS)))
    measured = await _watched(turns)
    await client.connection_pool.disconnect()
    return measured


async def _watched(work: Callable[[], Awaitable[object]]) -> tuple[float, float]:
    """Seconds that it took, and the most that the loop computed while a task only wanted its turn.

    The second is time of the processor, in the loop's thread: what other processes of a busy machine take is not it.
    """
    longest = 0.0

    async def tick() -> None:
        nonlocal longest
        while True:
            before = time.thread_time()
            await asyncio.sleep(_TICK)
            longest = max(longest, time.thread_time() - before)

    ticking = asyncio.create_task(tick())
    start = time.perf_counter()
    await work()
    took = time.perf_counter() - start
    ticking.cancel()
    return took, longest


def commands_of(bench: Bench) -> list[list[list[bytes]]]:
    """What a turn of ours sends, transaction by transaction, as seen at the socket."""
    with RoundTrips(urlsplit(bench.redis_url).port or 0) as door:
        store = RedisStore(f"redis://127.0.0.1:{door.port}/0", prefix=f"{bench.path('seen')}:")
        history = BrainChatMessageHistory("s", store=store, memory_k=20)
        history.add_messages(conversation(20))
        before = len(door.sent)
        _ = history.messages
        history.add_messages(conversation(4, 20))
        sent = bytes(door.sent[before:])
        store.close()
    transactions: list[list[list[bytes]]] = []
    for command in _parsed(sent):
        if command == [b"MULTI"]:
            transactions.append([])
        elif command != [b"EXEC"]:
            transactions[-1].append(command)
    return transactions


def _parsed(sent: bytes) -> Iterator[list[bytes]]:
    """Read commands as a server does: arrays of strings."""
    place = 0

    def number() -> int:
        nonlocal place
        end = sent.index(b"\r\n", place)
        value = int(sent[place + 1 : end])
        place = end + 2
        return value

    while place < len(sent):
        words = []
        for _ in range(number()):
            length = number()
            words.append(sent[place : place + length])
            place += length + 2
        yield words


def _at_line(number: int, goal: Goal) -> Goal:
    """A goal for one of the lines alone."""
    return Goal(goal.text, lambda lines: goal.judge(lines[number : number + 1]))


# --- memory


def _sessions(bench: Bench) -> Iterator[Line]:
    """Growth of a process that serves one new session after the other, by blocks of memory."""
    served = 2_000 if bench.short else 10_000
    with bench.store("sqlite") as store:
        _serve(store, range(500))
        before = _held()
        _serve(store, range(500, 500 + served))
        yield Line(f"{served:,} sessions", "blocks", None, _held() - before, {})


def _serve(store: Any, sessions: range) -> None:
    messages = conversation(4)
    for session in sessions:
        history = BrainChatMessageHistory(f"session-{session}", store=store, memory_k=20)
        history.add_messages(messages)
        assert len(history.messages) == 4


def _operations(bench: Bench) -> Iterator[Line]:
    """Growth over operations of every kind: append, read, hit, miss, update."""
    # pydantic keeps up to 16,384 short strings of what it reads, so the long form begins when it has them.
    warm, operations = (5_000, 20_000) if bench.short else (300_000, 1_000_000)
    with bench.store("sqlite") as store:
        cache = ExperienceCache(store=store, tag="memory")
        _operate(store, cache, warm, 0)
        before = _held()
        _operate(store, cache, operations, warm)
        yield Line(f"{operations:,} operations", "blocks", None, _held() - before, {})


def _operate(store: Any, cache: ExperienceCache, count: int, start: int) -> None:
    generation = answer(1)
    for number in range(start, start + count, 5):
        history = BrainChatMessageHistory(f"session-{number % 1000}", store=store, memory_k=20)
        history.add_messages(conversation(1, number // 1000))
        assert history.messages
        asked = prompt(number % 2000)
        cache.lookup(asked, LLM)
        cache.update(asked, LLM, [generation])
        cache.lookup(prompt(-number - 1), LLM)


def _held() -> int:
    """Blocks of Python's own allocator that are in use: an object has one or a few."""
    gc.collect()
    return sys.getallocatedblocks()


def _grows(blocks: int) -> Goal:
    def judge(lines: Sequence[Line]) -> tuple[str, bool | None]:
        worst = max(line.ours for line in lines)
        return f"{worst:,.0f}", worst <= blocks

    return Goal(f"≤ {blocks:,} more blocks than before", judge)


_NOTHING = "none: the process before"
ROWS = (
    Row("import", "Import in a fresh process", "pydantic's own", _import, (_at_line(0, over(30e-3)),)),
    Row(
        "concurrent",
        f"{_TURNS} async turns at once in one process, Redis",
        "redis.asyncio sending the same commands",
        _concurrent,
        (_at_line(0, at_least(0.8)), _at_line(1, within(20e-3, size="longest block"))),
    ),
    Row("memory-sessions", "Memory held after serving many sessions", _NOTHING, _sessions, (_grows(10_000),)),
    Row("memory-operations", "Memory held after many operations", _NOTHING, _operations, (_grows(10_000),)),
)
