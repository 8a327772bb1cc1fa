"""Rows about a cache of models: hits, repeated hits, updates."""

from __future__ import annotations

import hashlib
import importlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from langchain_core.caches import BaseCache, InMemoryCache
from langchain_core.load import dumps
from langchain_core.outputs import Generation

from langmem_adapters.langchain import ExperienceCache
from tests.benchmarks.bench import Bench, installed
from tests.benchmarks.goals import at_most, flat, within
from tests.benchmarks.harness import Case, Line, Row
from tests.benchmarks.limits import RedisStrings, SQLiteValues
from tests.benchmarks.payloads import LLM, answer, as_bytes, prompt

__all__ = ["ROWS"]

_ANSWERS = 1000  # that are made; entries beyond have one of them again
_STRIDE = 7919  # from one hit to the next, so that none is asked for again soon


def _limit(bench: Bench, kind: str) -> SQLiteValues | RedisStrings:
    if kind == "redis":
        return RedisStrings(bench.redis_url, str(bench.path("limit")))
    return SQLiteValues(bench.connection())


def _peers(bench: Bench, kind: str, size: int) -> dict[str, BaseCache]:
    """The peers' caches, empty."""
    if not bench.peers:
        return {}
    peers: dict[str, BaseCache] = {"InMemoryCache": InMemoryCache()}
    if not installed("langchain_community"):
        bench.absent["SQLiteCache, RedisCache, GPTCache"] = "not installed"
        return peers
    found: Any = importlib.import_module("langchain_community.cache")
    if kind == "redis":
        driver: Any = importlib.import_module("redis")
        return {**peers, "RedisCache": found.RedisCache(driver.Redis.from_url(bench.redis_url))}
    peers["SQLiteCache"] = found.SQLiteCache(str(bench.path("cache")))
    if installed("gptcache"):
        peers["GPTCache"] = found.GPTCache(partial(_gptcache, folder=str(bench.path("map")), size=size))
    else:
        bench.absent["GPTCache"] = "not installed"
    return peers


def _gptcache(cache: Any, *, folder: str, size: int) -> None:
    factory: Any = importlib.import_module("gptcache.manager.factory")
    pre: Any = importlib.import_module("gptcache.processor.pre")
    map_: Any = factory.manager_factory("map", data_dir=folder, max_size=10 * size)
    cache.init(pre_embedding_func=pre.get_prompt, data_manager=map_)


def _key(text: str) -> bytes:
    """What the least that any cache has to do makes of a request: a hash."""
    return hashlib.sha256((text + LLM).encode()).digest()[:16]


def _fill(caches: Sequence[BaseCache], limit: SQLiteValues | RedisStrings, prompts: Sequence[str]) -> None:
    answers = [answer(number) for number in range(_ANSWERS)]
    data = as_bytes([one.message for one in answers])
    for number, text in enumerate(prompts):
        for cache in caches:
            if not hasattr(cache, "cache_schema"):
                cache.update(text, LLM, [answers[number % _ANSWERS]])
        limit.put(_key(text), data[number % _ANSWERS])
    for cache in caches:
        if hasattr(cache, "cache_schema"):
            _fill_table(cache, prompts, [dumps(one) for one in answers])


def _fill_table(cache: Any, prompts: Sequence[str], answers: Sequence[str]) -> None:
    """SQLiteCache in one transaction, as it takes minutes by itself."""
    rows = [
        {"prompt": text, "llm": LLM, "idx": 0, "response": answers[number % _ANSWERS]}
        for number, text in enumerate(prompts)
    ]
    with cache.engine.begin() as transaction:
        transaction.execute(cache.cache_schema.__table__.insert(), rows)


def _hit(bench: Bench, *, kind: str, sizes: Sequence[int]) -> Iterator[Line]:
    for size in bench.sizes(*sizes):
        prompts = [prompt(number) for number in range(size)]
        with bench.store(kind) as store:
            cache, limit = ExperienceCache(store=store), _limit(bench, kind)
            peers = _peers(bench, kind, size) if size <= 10_000 else {}
            _fill([cache, *peers.values()], limit, prompts)
            found = cache.lookup(prompts[1], LLM) or [Generation(text="")]
            assert found[0].text == answer(1).text
            yield bench.line(f"{size:,}", _asked(prompts, cache, limit, peers))


def _asked(
    prompts: Sequence[str], cache: BaseCache, limit: SQLiteValues | RedisStrings, peers: Mapping[str, BaseCache]
) -> Case:
    """Ask for one after the other, none of them again soon."""
    numbers = itertools.count(0, _STRIDE)
    return Case(
        lambda text: limit.get(_key(text)),
        lambda text: cache.lookup(text, LLM),
        {name: partial(_look, peer) for name, peer in peers.items()},
        given=lambda: prompts[next(numbers) % len(prompts)],
    )


def _look(cache: BaseCache, text: str) -> object:
    return cache.lookup(text, LLM)


def _again(bench: Bench, *, kind: str) -> Iterator[Line]:
    """The same hit over and over, with the in-process tier that an application would switch on."""
    size = 10_000
    prompts = [prompt(number) for number in range(size)]
    with bench.store(kind) as store:
        cache = ExperienceCache(store=store, keep=60)
        memory = InMemoryCache()
        limit = _limit(bench, kind)
        _fill([cache, memory], limit, prompts)
        case = Case(
            lambda _: limit.get(_key(prompts[1])),
            lambda _: cache.lookup(prompts[1], LLM),
            {"InMemoryCache": lambda _: memory.lookup(prompts[1], LLM)} if bench.peers else {},
        )
        yield bench.line(f"{size:,}", case)


def _update(bench: Bench, *, kind: str) -> Iterator[Line]:
    size = 10_000
    with bench.store(kind) as store:
        cache = ExperienceCache(store=store)
        peers, limit = _peers(bench, kind, size), _limit(bench, kind)
        _fill([cache, *peers.values()], limit, [prompt(number) for number in range(size)])
        numbers = itertools.count(size)
        generation = answer(1)
        (data,) = as_bytes([generation.message])
        case = Case(
            lambda text: limit.put(_key(text), data),
            lambda text: cache.update(text, LLM, [generation]),
            {name: partial(_keep, peer, generation) for name, peer in peers.items()},
            given=lambda: prompt(next(numbers)),
        )
        yield bench.line(f"{size:,}", case)


def _keep(cache: BaseCache, generation: Generation, text: str) -> object:
    return cache.update(text, LLM, [generation])


_GET = {
    "sqlite": "a hash of the request and one SELECT, bytes only",
    "redis": "a hash of the request and GET by redis-py, bytes only",
}
_PUT = {
    "sqlite": "a hash of the request and one INSERT OR REPLACE in a WAL file, synchronous NORMAL",
    "redis": "a hash of the request and SET by redis-py",
}
_PLACES = {"sqlite": "SQLite file", "redis": "Redis"}

ROWS = (
    *(
        Row(
            f"hit-{kind}",
            f"Exact cache hit to a ChatGeneration, {place}, by entries",
            _GET[kind],
            partial(_hit, kind=kind, sizes=(10_000, 100_000)),
            (at_most(2.0), flat(1.2)),
            gate=gate,
        )
        for (kind, place), gate in zip(_PLACES.items(), (9.0, 2.75), strict=True)
    ),
    *(
        Row(
            f"hit-again-{kind}",
            f"The same hit again, {place}, 10,000 entries",
            _GET[kind],
            partial(_again, kind=kind),
            (within(20e-6),),
        )
        for kind, place in _PLACES.items()
    ),
    *(
        Row(
            f"update-{kind}",
            f"Cache update, {place}, 10,000 entries",
            _PUT[kind],
            partial(_update, kind=kind),
            (at_most(2.0),),
        )
        for kind, place in _PLACES.items()
    ),
)
