"""What was read a moment ago: never older than was said, never what this process has changed, never too much."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, Generation

from langmem_adapters import ConfigurationError, Experience, ExperiencePool
from langmem_adapters.codec import decode
from langmem_adapters.encryption import AESGCMCodec
from langmem_adapters.experience.shelf.read_cache import ReadCache, invalidate
from langmem_adapters.flow import run
from langmem_adapters.langchain import CachedChatModel, ExperienceCache
from langmem_adapters.langchain.caching.request import request_key
from langmem_adapters.model import Score
from langmem_adapters.protocols import Store
from langmem_adapters.sealing import SealedStore
from langmem_adapters.stores.memory import MemoryStore
from langmem_adapters.testing import FakeClock

KEY = request_key("p", "m")
PLACE = ("experience", "", "", "langchain")
KEEP = 10.0


# --- the tier itself


def recent(clock: FakeClock | None = None) -> ReadCache:
    return ReadCache(PLACE, KEEP, clock=clock or FakeClock())


def test_it_is_as_young_as_was_said_and_not_a_moment_older() -> None:
    clock = FakeClock()
    tier = recent(clock)
    token = tier.token()
    clock.advance(1)  # the read takes so long, and what it read may have changed since it began
    tier.keep("k", b"v", token)
    clock.advance(KEEP - 1.5)
    assert tier.get("k") == b"v"
    clock.advance(0.5)
    assert tier.get("k") is None


def test_what_was_read_while_anything_changed_is_not_kept() -> None:
    tier = recent()
    token = tier.token()
    tier.invalidate(["another"])
    tier.keep("k", b"v", token)
    assert tier.get("k") is None


def test_a_clock_that_was_set_back_makes_nothing_younger() -> None:
    clock = FakeClock()
    tier = recent(clock)
    tier.keep("k", b"v", tier.token())
    clock.advance(-1)
    assert tier.get("k") is None


def test_changes_are_told_by_namespace() -> None:
    tier = recent()
    for namespace, keys, left in [
        ((*PLACE, "semantic"), None, b"v"),
        (("experience", "", "", "other"), None, b"v"),
        (PLACE, ["other"], b"v"),
        (PLACE, ["k"], None),
        (PLACE, None, None),
        (PLACE[:3], None, None),
    ]:
        tier.keep("k", b"v", tier.token())
        invalidate(namespace, keys)
        assert tier.get("k") == left


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_seconds_are_above_nothing_and_bounded(seconds: float) -> None:
    with pytest.raises(ConfigurationError, match="keep is a number of seconds"):
        ExperienceCache(store=MemoryStore(), keep=seconds)


def test_threads_keep_it_within_its_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("langmem_adapters.experience.shelf.read_cache._MAX_ENTRIES", 8)
    monkeypatch.setattr("langmem_adapters.experience.shelf.read_cache._MAX_BYTES", 200)
    tier = recent()

    def work(number: int) -> None:
        for n in range(2000):
            key = str((n * 7 + number) % 13)
            tier.keep(key, b"x" * (n % 40), tier.token())
            tier.get(key)
            if n % 50 == 0:
                invalidate(PLACE, [key])

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    held = [data for _, data in tier._lru.values()]
    assert 0 < len(held) <= 8
    assert tier._lru.size == sum(map(len, held)) <= 200


def test_what_was_read_a_moment_ago_and_is_no_answer_is_a_miss_and_is_healed(any_store: Store) -> None:
    cache = ExperienceCache(store=any_store, keep=KEEP, on_error="raise")
    cache.pool.create(Experience(resp="no generations"), key=KEY)
    assert cache.pool.lookup(key=KEY) is not None
    assert cache.lookup("p", "m") is None
    assert cache.stats()["unreadable"] == 1
    assert any_store.get(PLACE) == {}


def _in_child(tier: ReadCache, out: Any) -> None:
    invalidate(PLACE, ["other"])
    before = tier.get("k")
    tier.keep("k", b"child", tier.token())
    out.put((before, tier.get("k")))


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="there is no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_begins_with_none_even_if_a_lock_was_held() -> None:
    tier = recent()
    tier.keep("k", b"v", tier.token())
    context = multiprocessing.get_context("fork")
    out = context.Queue()
    with tier._lock:
        child = context.Process(target=_in_child, args=(tier, out))
        child.start()
    try:
        assert out.get(timeout=60) == (None, b"child")
    finally:
        child.join(60)
        child.kill()
    assert tier.get("k") == b"v"


# --- in front of a cache


class Counting:
    """A store that counts the looks at it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.looks = 0

    def get(self, *arguments: Any) -> dict[str, bytes]:
        self.looks += 1
        return self._store.get(*arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def answer(text: str = "Paris", **fields: Any) -> list[Generation]:
    usage = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
    return [ChatGeneration(message=AIMessage(text, usage_metadata=usage, **fields))]


def said(found: list[Generation] | None) -> str | None:
    return None if found is None else found[0].text


@pytest.fixture
def store(any_store: Store) -> Any:
    return Counting(any_store)


@pytest.fixture
def cache(store: Any, clock: FakeClock) -> ExperienceCache:
    cache = ExperienceCache(store=store, keep=KEEP, clock=clock)
    cache.update("p", "m", answer())
    assert said(cache.lookup("p", "m")) == "Paris"
    store.looks = 0
    return cache


async def test_a_repeated_hit_asks_no_store_and_is_a_new_object_each_time(cache: ExperienceCache, store: Any) -> None:
    found = [cache.lookup("p", "m"), await cache.alookup("p", "m"), cache.lookup("p", "m")]
    assert store.looks == 0
    messages: list[Any] = [generations[0].message for generations in found if generations]  # type: ignore[attr-defined]
    assert len({message.id for message in messages}) == 3
    messages[0].response_metadata.clear()
    messages[0].content = "mine"
    assert messages[1].response_metadata["cache"] == "hit"
    assert said(cache.lookup("p", "m")) == "Paris"
    assert (cache.stats()["hits"], cache.stats()["misses"], cache.stats()["saved_tokens"]) == (5, 0, 15)


def test_by_default_each_hit_asks_the_store(store: Any) -> None:
    cache = ExperienceCache(store=store)
    cache.update("p", "m", answer())
    store.looks = 0
    for looks in (1, 2, 3):
        cache.lookup("p", "m")
        assert store.looks == looks


def test_what_others_change_is_seen_after_so_long_and_no_longer(
    cache: ExperienceCache, any_store: Store, clock: FakeClock
) -> None:
    any_store.clear(PLACE)  # as another process would
    clock.advance(KEEP - 0.001)
    assert said(cache.lookup("p", "m")) == "Paris"
    clock.advance(0.001)
    assert cache.lookup("p", "m") is None


def _refreshed(cache: ExperienceCache, _: Any) -> None:
    with cache.refresh():
        assert cache.lookup("p", "m") is None
        cache.update("p", "m", answer("Lyon"))


CHANGES: list[tuple[str | None, Callable[[ExperienceCache, Any], object]]] = [
    (None, lambda cache, _: cache.delete(str(_key(cache)))),
    (None, lambda cache, _: cache.clear()),
    (None, lambda cache, _: cache.invalidate(lambda found: found[0].text == "Paris")),
    (None, lambda cache, _: cache.invalidate(tag="langchain")),
    ("Lyon", lambda cache, _: cache.update("p", "m", answer("Lyon"))),
    ("Lyon", _refreshed),
    (None, lambda _, store: ExperienceCache(store=store).clear()),
    (None, lambda _, store: ExperiencePool(store, tag="langchain").clear()),
    (None, lambda _, store: ExperiencePool(store, tag="langchain").invalidate(lambda _: True)),
    (None, lambda _, store: ExperiencePool(store, tag="other").clear("langchain")),
    (None, lambda _, store: ExperienceCache(store=store, tag="other").invalidate(tag="langchain")),
    ("Lyon", lambda _, store: ExperienceCache(store=store).update("p", "m", answer("Lyon"))),
    ("Lyon", lambda _, store: ExperienceCache(store=store, max_bytes=9999).update("p", "m", answer("Lyon"))),
]


def _key(cache: ExperienceCache) -> object:
    found: Any = cache.lookup("p", "m")
    return found[0].message.response_metadata["cache_key"]


@pytest.mark.parametrize(("then", "change"), CHANGES)
def test_what_this_process_changes_is_seen_at_once(
    then: str | None, change: Callable[[ExperienceCache, Any], object], cache: ExperienceCache, store: Any
) -> None:
    change(cache, store)
    assert said(cache.lookup("p", "m")) == then
    assert said(ExperienceCache(store=store).lookup("p", "m")) == then


def test_a_score_is_seen_at_once(cache: ExperienceCache) -> None:
    key = KEY
    kept = cache.pool.lookup(None, key=key)
    assert kept is not None
    assert run(cache.pool.score_flow(kept, Score(val=3), key=key))
    scored = cache.pool.recent(key) or cache.pool.lookup(None, key=key)
    assert scored is not None
    assert scored.metric is not None


def test_an_answer_expires_in_time_all_the_same(store: Any, clock: FakeClock) -> None:
    cache = ExperienceCache(store=store, keep=KEEP, ttl=5, clock=clock)
    cache.update("p", "m", answer())
    assert cache.lookup("p", "m")
    clock.advance(5)
    assert cache.lookup("p", "m") is None
    assert (cache.stats()["hits"], cache.stats()["misses"], cache.stats()["expired"]) == (1, 1, 1)


def test_what_was_evicted_is_not_served(store: Any, any_store: Store, clock: FakeClock) -> None:
    cache = ExperienceCache(store=store, keep=KEEP, max_entries=4, clock=clock)
    for n in range(20):
        cache.update(f"p{n}", "m", answer(str(n)))
        cache.lookup(f"p{n}", "m")
    served = [n for n in range(20) if cache.lookup(f"p{n}", "m")]
    kept = any_store.get(PLACE)
    assert served == [n for n in range(20) if request_key(f"p{n}", "m") in kept]
    assert 0 < len(served) <= 4


def test_bypass_and_refresh_go_by_it(cache: ExperienceCache) -> None:
    with cache.bypass():
        assert cache.lookup("p", "m") is None
    with cache.refresh():
        assert cache.lookup("p", "m") is None
    cache.pool.enable_read = False
    assert cache.lookup("p", "m") is None


def test_tenants_and_tags_never_mix(store: Any, clock: FakeClock) -> None:
    whose = [("", "a"), ("", "b"), ("acme", "a"), ("acme", "b")]
    caches = [ExperienceCache(store=store, tenant=t, tag=tag, keep=KEEP, clock=clock) for t, tag in whose]
    for n, cache in enumerate(caches):
        cache.update("p", "m", answer(str(n)))
    for _ in range(2):
        assert [said(cache.lookup("p", "m")) for cache in caches] == ["0", "1", "2", "3"]
    caches[2].clear()
    assert [said(cache.lookup("p", "m")) for cache in caches] == ["0", "1", None, "3"]


class Reversing:
    """A codec whose stored form says nothing."""

    def encode(self, data: bytes) -> bytes:
        return data[::-1]

    def decode(self, data: bytes) -> bytes:
        return data[::-1]


def test_it_stands_before_a_sealed_store_too(any_store: Store, clock: FakeClock) -> None:
    sealed = SealedStore(any_store, codec=Reversing(), redactor=lambda text: text.replace("4711", "[pin]"))
    cache = ExperienceCache(store=sealed, keep=KEEP, clock=clock)
    cache.update("p", "m", answer("4711"))
    assert [said(cache.lookup("p", "m")) for _ in range(2)] == ["[pin]"] * 2


@pytest.mark.parametrize("whose", ["a newer version", "who has the key"])
async def test_what_others_can_read_is_a_miss_each_time_and_stays_theirs(any_store: Store, whose: str) -> None:
    if whose == "who has the key":
        ExperienceCache(store=SealedStore(any_store, codec=AESGCMCodec({"k": bytes(32)}))).update("p", "m", answer())
    else:
        any_store.write(PLACE, put={KEY: b'{"v":99,"resp":[]}'}, append=[(KEY, b"")])
    theirs = any_store.get(PLACE)
    cache = ExperienceCache(store=any_store, keep=KEEP)
    assert [cache.lookup("p", "m") for _ in range(3)] == [None] * 3
    assert await cache.alookup("p", "m") is None
    assert any_store.get(PLACE) == theirs


def test_what_cannot_be_read_is_a_miss_and_healed(any_store: Store, clock: FakeClock) -> None:
    cache = ExperienceCache(store=any_store, keep=KEEP, clock=clock)
    for damaged in (b"no experience", Experience(resp=[{"message": 4}]).to_bytes()):
        any_store.write(PLACE, put={KEY: damaged}, append=[(KEY, b"")])
        assert cache.lookup("p", "m") is None
        assert cache.lookup("p", "m") is None
        cache.update("p", "m", answer())
        assert said(cache.lookup("p", "m")) == "Paris"
        cache.clear()


def test_a_wrapped_model_finds_it_too(store: Any, clock: FakeClock) -> None:
    model = CachedChatModel(
        FakeListChatModel(responses=["a", "b"]), ExperienceCache(store=store, keep=KEEP, clock=clock)
    )
    model.invoke("p")
    first = model.invoke("p")
    store.looks = 0
    again = model.invoke("p")
    assert store.looks == 0
    assert (first.content, again.content) == ("a", "a")
    assert first.id != again.id


class Placed(FakeListChatModel):
    """Says where it is, and tells LangChain no more than what it was given to say."""

    base_url: str | None = None

    def _call(self, *_: Any, **__: Any) -> str:
        return f"from {self.base_url}"


async def test_a_model_that_is_elsewhere_has_answers_of_its_own(store: Any, clock: FakeClock) -> None:
    cache = ExperienceCache(store=store, keep=KEEP, clock=clock)
    for url in (None, None, "http://b", "http://c"):
        model = Placed(responses=["a"], base_url=url, cache=cache)
        assert model.invoke("Hi").content == (await model.ainvoke("Hi")).content == f"from {url}"
    store.looks = 0
    assert Placed(responses=["a"], base_url="http://b", cache=cache).invoke("Hi").content == "from http://b"
    assert store.looks == 0


def test_the_stored_entry_is_as_it_was(cache: ExperienceCache, any_store: Store) -> None:
    before = any_store.get(PLACE)
    for _ in range(10):
        cache.lookup("p", "m")
    assert any_store.get(PLACE) == before
    assert decode(before[KEY])["resp"]
