"""What goes from a pool goes everywhere: evicted, expired or deleted, from the store, its log and the index."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from langmem_adapters import Experience, ExperiencePool, SearchError, StoreUnavailable, open_index, open_vectors
from langmem_adapters.concurrency.workers import ask
from langmem_adapters.embedding import Embedder
from langmem_adapters.experience.pool_flows import _expiry_from_bytes
from langmem_adapters.flow import run
from langmem_adapters.indexes.lexical import LexicalIndex
from langmem_adapters.indexes.vector import VectorIndex
from langmem_adapters.indexes.vector_sqlite import SQLiteVectors
from langmem_adapters.keys import fingerprint
from langmem_adapters.model import Metric, Score
from langmem_adapters.protocols import Index, Page, Store
from langmem_adapters.stores.memory import MemoryStore
from langmem_adapters.stores.redis import RedisStore
from langmem_adapters.testing import FakeClock
from tests.benchmarks.round_trips import RoundTrips

PLACE = ("experience", "", "", "")


class Watched(MemoryStore):
    """A store that counts what is read of a log, and lets something happen before the next write, or one after it."""

    scanned = 0
    waits = 0
    closed = False
    meanwhile: Callable[[], object] | None = None

    def scan(self, *args: Any, **kwargs: Any) -> Page:
        page = super().scan(*args, **kwargs)
        self.scanned += len(page.items)
        return page

    def write(self, *args: Any, **kwargs: Any) -> None:
        if self.meanwhile is not None and self.waits == 0:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
        self.waits = max(self.waits - 1, 0)
        if self.closed:
            raise StoreUnavailable("read-only")
        super().write(*args, **kwargs)


class Letters:
    """An embedder that counts the bikes with a number, and lets something happen while it works."""

    def __init__(self) -> None:
        self.bikes = 0
        self.meanwhile: Callable[[], object] | None = None

    def __call__(self, texts: Sequence[str]) -> list[list[float]]:
        self.bikes += sum(text.startswith("bike ") for text in texts)
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return [[1.0, *(byte / 255 for byte in hashlib.sha256(text.encode()).digest()[:8])] for text in texts]


@pytest.fixture
def letters() -> Letters:
    return Letters()


@pytest.fixture(params=["words", "meaning"])
def index(request: pytest.FixtureRequest, letters: Letters) -> Iterator[Index]:
    made = open_index("memory:")
    if request.param == "meaning":
        made = open_vectors("memory:", Embedder(letters, name="letters", remembered=0))
    yield made
    made.close()


def keep(pool: ExperiencePool, req: Any, resp: Any = "", **how: Any) -> Experience:
    key = how.pop("key", None)
    return pool.create(Experience(req=req, resp=resp, **how), key=key)


def indexed(index: Index) -> set[str]:
    return {hit.id for hit in index.search(PLACE, "bike", 10_000)}


def kept(store: Store) -> set[str]:
    return {key for key in store.get(PLACE) if "\0" not in key}


def found(pool: ExperiencePool, req: str, k: int = 1) -> list[Any]:
    return [similar.experience.resp for similar in pool.query(req, k=k)]


# --- the index


def test_what_is_evicted_leaves_the_index(any_store: Store, index: Index) -> None:
    pool = ExperiencePool(any_store, index=index, max_entries=10)
    for n in range(60):
        keep(pool, f"bike {n}")
        if n % 7 == 0:
            pool.query("bike")
            assert indexed(index) == kept(any_store)
    assert indexed(index) <= kept(any_store)
    assert len(kept(any_store)) <= 10


def test_what_goes_while_its_text_is_embedded_leaves_the_index_too(letters: Letters) -> None:
    store = MemoryStore()
    index = open_vectors("memory:", Embedder(letters, name="letters", remembered=0))
    pool, blind = ExperiencePool(store, index=index), ExperiencePool(store)
    for n in range(30):
        keep(pool, f"bike {n}", n)
    letters.meanwhile = lambda: blind.invalidate(lambda e: e.resp not in {7, 29})
    assert found(pool, "bike 7") == [7]
    assert indexed(index) == kept(store)
    assert letters.bikes == 30 + 1  # and the query


def test_what_is_put_again_while_the_index_forgets_it_stays_in_the_index() -> None:
    class Late(LexicalIndex):
        meanwhile: Callable[[], object] | None = None

        def apply(self, namespace: Any, **change: Any) -> None:
            meanwhile = self.meanwhile
            if meanwhile is not None and change.get("delete"):
                self.meanwhile = None
                meanwhile()
            super().apply(namespace, **change)

    store, index = MemoryStore(), Late(":memory:")
    pool, other = (ExperiencePool(store, index=index) for _ in range(2))
    for n in range(3):
        keep(pool, f"bike {n}", n)
    assert len(found(pool, "bike", k=9)) == 3

    def again() -> None:
        keep(other, "bike 1", "again")
        other.query("bike")

    index.meanwhile = again
    assert pool.delete("bike 1")
    assert found(pool, "bike 1") == ["again"]

    def another() -> None:
        keep(other, "bike 4", 4)
        other.query("boat")  # which follows, and finds nothing that has gone

    index.meanwhile = another
    assert pool.invalidate(lambda e: e.resp == 2) == 1
    assert indexed(index) == kept(store)
    assert len(kept(store)) == 3


def test_an_index_need_not_begin_anew_when_what_it_saw_last_goes(any_store: Store, letters: Letters) -> None:
    clock = FakeClock()
    index = open_vectors("memory:", Embedder(letters, name="letters", remembered=0))
    pool = ExperiencePool(any_store, index=index, clock=clock)
    for n in range(20):
        keep(pool, f"bike {n}", n, key=str(n))
    pool.query("bike")
    asked = letters.bikes
    keep(pool, "boat", "new", key="19")  # another text
    assert found(pool, "boat", k=20)
    assert pool.invalidate(lambda e: e.resp == "new") == 1
    pool.query("ship")
    keep(pool, "a car", expires_at=clock() + 1)
    pool.query("ship")
    clock.advance(2)
    for n in range(15):
        assert pool.delete(key=str(n))
        pool.query("ship")
    assert letters.bikes == asked
    assert indexed(index) == kept(any_store) == {"15", "16", "17", "18"}


def test_a_deletion_leaves_what_another_embedder_made(letters: Letters) -> None:
    store, vectors = MemoryStore(), SQLiteVectors(":memory:")
    pool, other = (
        ExperiencePool(store, index=VectorIndex(vectors, Embedder(embed, name=name, remembered=0)))
        for embed, name in ((letters, "letters"), (Letters(), "other"))
    )
    for n in range(3):
        keep(pool, f"bike {n}", n)
    pool.query("bike")
    assert other.delete("bike 1")
    assert sorted(found(pool, "bike", k=9)) == [0, 2]
    assert letters.bikes == 3


def test_what_is_gone_leaves_the_index_while_its_embedder_is_away(any_store: Store, letters: Letters) -> None:
    vectors = SQLiteVectors(":memory:")
    pool = ExperiencePool(any_store, index=VectorIndex(vectors, Embedder(letters, name="letters", remembered=0)))
    for n in range(3):
        keep(pool, f"bike {n}", n)
    pool.query("bike")

    def away(_: Sequence[str]) -> list[list[float]]:
        raise ConnectionError

    fresh = ExperiencePool(any_store, index=VectorIndex(vectors, Embedder(away, name="letters")))
    assert fresh.delete("bike 1")
    assert indexed(VectorIndex(vectors, Embedder(letters, name="letters", remembered=0))) == kept(any_store)


def test_an_index_that_fails_does_not_fail_what_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    class Away(LexicalIndex):
        away = False

        def apply(self, namespace: Any, **change: Any) -> None:
            if self.away:
                raise SearchError("a secret is in the way")
            super().apply(namespace, **change)

    store, index = MemoryStore(), Away(":memory:")
    pool = ExperiencePool(store, index=index, max_entries=3)
    for n in range(3):
        keep(pool, f"bike {n}", n)
    pool.query("bike")
    index.away = True
    with caplog.at_level("INFO", "langmem_adapters"):
        keep(pool, "bike 3", 3)
    assert "removed entries stay in the index until a search drops them: SearchError" in caplog.text
    assert "secret" not in caplog.text
    with pytest.raises(SearchError):
        pool.delete("bike 3")
    index.away = False
    assert sorted(found(pool, "bike", k=9)) == sorted(e.resp for e in pool.all())
    assert indexed(index) == kept(store)


# --- what has expired


def test_what_is_damaged_is_found_by_nothing_until_it_is_kept_anew(any_store: Store, index: Index) -> None:
    pool = ExperiencePool(any_store, index=index)
    for n in range(2):
        keep(pool, f"bike {n}", n)
    any_store.write(PLACE, put={fingerprint("bike 0"): b"cut off"})
    assert found(pool, "bike", k=5) == [1]
    keep(pool, "bike 0", "whole")
    assert sorted(map(str, found(pool, "bike", k=5))) == ["1", "whole"]


def test_what_expired_goes_when_it_is_found(any_store: Store, index: Index) -> None:
    clock = FakeClock()
    pool = ExperiencePool(any_store, index=index, clock=clock)
    for n in range(40):
        keep(pool, f"bike {n}", n, expires_at=clock() + 1)
    keep(pool, "my old bike", "live")
    pool.query("bike")
    clock.advance(2)
    assert found(pool, "bike") == ["live"]
    assert len(indexed(index)) == len(kept(any_store)) < 5


def test_a_store_that_cannot_be_written_is_searched_among_the_expired(caplog: pytest.LogCaptureFixture) -> None:
    clock, store = FakeClock(), Watched()
    pool = ExperiencePool(store, index=open_index("memory:"), clock=clock)
    for n in range(40):
        keep(pool, f"bike {n}", n, expires_at=clock() + 1)
    keep(pool, "my old bike", "live")
    clock.advance(2)
    store.closed = True
    with caplog.at_level("INFO", "langmem_adapters"):
        assert found(pool, "bike") == ["live"]
    assert "unusable entries could not be removed: StoreUnavailable" in caplog.text


def test_what_is_kept_anew_while_a_search_removes_it_stays() -> None:
    clock, store = FakeClock(), Watched()
    pool = ExperiencePool(store, index=open_index("memory:"), clock=clock)
    keep(pool, "bike", "old", expires_at=clock() + 1)
    pool.query("bike")
    clock.advance(2)
    store.meanwhile = lambda: keep(pool, "bike", "new")
    pool.query("bike")
    assert found(pool, "bike") == ["new"]


@pytest.mark.parametrize("bounds", [{}, {"max_entries": 1000}, {"max_bytes": 1_000_000}])
def test_what_expired_goes_with_later_writes_also_from_behind_what_stays(
    any_store: Store, index: Index, bounds: dict[str, int]
) -> None:
    clock = FakeClock()
    pool = ExperiencePool(any_store, index=index, clock=clock, **bounds)  # type: ignore[arg-type]
    for n in range(30):
        keep(pool, f"old bike {n}", "stays")
    for n in range(250):
        keep(pool, f"bike {n}", "goes", expires_at=clock() + 1)
    pool.query("bike")
    clock.advance(2)
    for n in range(100):
        keep(pool, f"new bike {n}", "new")
    assert len(kept(any_store)) == any_store.scan(PLACE, limit=0).total == 130
    assert indexed(index) <= kept(any_store)
    assert {key.partition("\0")[0] for key in any_store.get(PLACE) if "\0" in key} <= {"bytes"}
    assert pool.stats()["evicted"] == 0


def test_of_many_entries_some_more_go_at_once_so_that_not_every_write_has_to_look_for_one() -> None:
    pool = ExperiencePool(MemoryStore(), max_entries=256)
    for n in range(260):
        keep(pool, n)
        assert pool.stats()["evicted"] == (0 if n < 256 else 3 if n < 259 else 6)


@pytest.mark.parametrize("bound", [1, 3, 8, 20])
def test_what_was_just_kept_stays_though_all_others_were_used(any_store: Store, bound: int) -> None:
    pool = ExperiencePool(any_store, max_entries=bound)
    for n in range(30):
        keep(pool, n)
        assert pool.lookup(n) is not None
        assert pool.count() == min(n + 1, bound)


def test_what_was_used_and_has_expired_is_not_spared(any_store: Store) -> None:
    clock = FakeClock()
    pool = ExperiencePool(any_store, max_entries=9, ttl=10, clock=clock)
    for n in range(9):
        keep(pool, n)
        pool.lookup(n)
    clock.advance(11)
    keep(pool, "new")
    assert {item.id for item in any_store.scan(PLACE, limit=100).items} == kept(any_store)
    assert pool.stats()["evicted"] == 8


def test_what_can_be_served_is_not_swept(any_store: Store) -> None:
    clock = FakeClock()
    pool = ExperiencePool(any_store, clock=clock, ttl=60)
    for n in range(50):
        keep(pool, n)
    clock.advance(59)
    for n in range(50):
        keep(pool, n)
        pool.delete(-n - 1)
    assert pool.count() == 50


def test_what_expires_in_this_moment_has_expired(any_store: Store) -> None:
    clock = FakeClock()
    pool = ExperiencePool(any_store, clock=clock)
    for n in range(20):
        keep(pool, n, key=f"old {n}", expires_at=clock() + 5)
    clock.advance(5)
    for n in range(100):
        keep(pool, n, key=f"new {n}")
    assert kept(any_store) == {f"new {n}" for n in range(100)}


def test_what_is_cut_off_goes_with_later_writes(any_store: Store) -> None:
    pool = ExperiencePool(any_store)
    for n in range(20):
        keep(pool, n, key=f"old {n}", expires_at=4e9)
    whole = any_store.get(PLACE)
    cut = {key: data[:-1] for key, data in whole.items()} | {"old 3": b"}"}
    any_store.write(PLACE, put=cut)
    for n in range(100):
        keep(pool, n, key=f"new {n}")
    assert kept(any_store) == {f"new {n}" for n in range(100)}


def test_what_can_be_served_is_read_once_by_a_look_for_what_cannot() -> None:
    class Counting(Watched):
        read = 0

        def get(self, namespace: Any, keys: Sequence[str] | None = None) -> dict[str, bytes]:
            self.read += len(keys or ())
            return super().get(namespace, keys)

    store = Counting()
    pool = ExperiencePool(store, ttl=60)
    for n in range(200):
        pool.create(Experience(resp=n), key=f"key {n}")
    assert store.read < 200 + store.scanned  # before each write, and in each look
    assert store.scanned > 200


FIELDS = ("expires_at", "metric", '"expires_at":0', '{"metric":1}', "x")
VALUES = st.recursive(
    st.none() | st.integers(-9, 9) | st.sampled_from(FIELDS) | st.text(max_size=3) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=2),
    max_leaves=5,
)


@given(
    fields=st.fixed_dictionaries(
        {},
        optional={
            "req": VALUES,
            "resp": VALUES,
            "metric": st.builds(Metric, model=st.sampled_from(FIELDS)),
            "expires_at": st.floats(0, 5e9) | st.just(float("inf")),
            "of_later": VALUES,
        },
    )
)
def test_the_bytes_of_an_entry_tell_when_it_expires_as_it_does_itself(fields: dict[str, Any]) -> None:
    experience = Experience(timestamp=1.0, **fields)
    until = _expiry_from_bytes(experience.to_bytes())
    if until > float("-inf"):
        assert experience.metric is None
        assert until == (float("inf") if experience.expires_at is None else experience.expires_at)
    else:  # it has to be read
        assert {"metric", "of_later", "req", "resp"} & fields.keys()


# --- deleting


@pytest.mark.parametrize("with_index", [False, True])
def test_a_deletion_does_not_read_the_whole_log(with_index: bool) -> None:
    clock, store = FakeClock(), Watched()
    pool = ExperiencePool(store, index=open_index("memory:") if with_index else None, clock=clock, ttl=60)
    for n in range(2000):
        keep(pool, f"bike {n}")
    if with_index:
        pool.query("bike")
    store.scanned = 0
    assert pool.delete("bike 1000")
    clock.advance(61)
    assert pool.lookup("bike 1500") is None
    assert store.get(PLACE, [key for key in kept(store) if b"bike 1500" in store.get(PLACE)[key]]) == {}
    assert store.scanned < 100


@pytest.mark.parametrize("how", ["delete", "invalidate", "expire"])
def test_what_a_pool_without_an_index_removed_and_kept_again_is_found(any_store: Store, how: str) -> None:
    clock = FakeClock()
    index = open_index("memory:")
    pool = ExperiencePool(any_store, index=index, clock=clock)
    blind = ExperiencePool(any_store, clock=clock)
    for n in range(40):
        keep(blind, f"bike {n}", n, expires_at=clock() + 1 if n == 30 else None)
    assert len(found(pool, "bike", k=50)) == 40
    if how == "delete":
        assert blind.delete("bike 30")
    elif how == "invalidate":
        assert blind.invalidate(lambda e: e.resp == 30) == 1
    else:
        clock.advance(2)
        assert blind.lookup("bike 30") is None
    assert len(found(pool, "bike", k=50)) == 39
    keep(blind, "bike 30", "again")
    assert found(pool, "bike 30") == ["again"]
    assert sorted(map(str, found(pool, "bike", k=50))) == sorted({*map(str, range(40)), "again"} - {"30"})
    assert any_store.scan(PLACE, limit=0).total == 40
    assert not [key for key in any_store.get(PLACE) if "\0" in key]


def test_deletions_alone_leave_nothing_for_good(any_store: Store) -> None:
    pool = ExperiencePool(any_store)
    for n in range(200):
        keep(pool, n)
    for n in range(200):
        assert pool.delete(n)
    assert any_store.scan(PLACE, limit=0).total < 10
    assert len(any_store.get(PLACE)) < 10


def test_what_was_used_and_deleted_is_not_in_use_when_it_is_kept_again(any_store: Store) -> None:
    pool = ExperiencePool(any_store, max_entries=100)
    for n in range(30):
        keep(pool, n)
        assert pool.lookup(n)
    for n in range(30):
        assert pool.delete(n)
        used = {key for key in any_store.get(PLACE) if key.startswith("used")}
        assert len(used) == len(kept(any_store)) == 29 - n


def test_what_is_pointed_out_leaves_the_index_at_once(any_store: Store, letters: Letters) -> None:
    index = open_vectors("memory:", Embedder(letters, name="letters", remembered=0))
    pool = ExperiencePool(any_store, index=index)
    for n in range(20):
        keep(pool, f"bike {n}", n)
    pool.query("bike")
    asked = letters.bikes
    assert pool.invalidate(lambda e: e.resp >= 15) == 5
    assert indexed(index) == kept(any_store)
    assert found(pool, "bike", k=50)
    assert letters.bikes == asked  # the entry that the index saw last is gone, but it need not begin anew


def test_what_goes_by_itself_is_told() -> None:
    clock = FakeClock()
    pool = ExperiencePool(MemoryStore(), clock=clock)
    for n in range(9):
        keep(pool, "old", key=f"old {n}", expires_at=clock() + 1)
    clock.advance(2)
    evicted: list[tuple[str, bytes]] = []
    for n in range(9):
        run(pool.create_flow(Experience(resp=n), key=f"new {n}", evicted=evicted))
    assert sorted(key for key, _ in evicted) == [f"old {n}" for n in range(9)]


def test_what_is_renewed_while_a_look_finds_it_expired_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, store = FakeClock(), MemoryStore()
    pool, other = (ExperiencePool(store, clock=clock) for _ in range(2))
    for n in range(9):
        keep(pool, "old", key=f"old {n}", expires_at=clock() + 1)
    clock.advance(2)
    scan = store.scan

    def scan_then_renew(*args: Any, **kwargs: Any) -> Page:
        page = scan(*args, **kwargs)
        if "old 3" in page.values:
            monkeypatch.setattr(store, "scan", scan)
            keep(other, "old", "new", key="old 3")  # of the same text, so that it stays in its place
        return page

    monkeypatch.setattr(store, "scan", scan_then_renew)
    for n in range(40):
        keep(pool, "new", key=f"new {n}")
    assert store.scan == scan
    assert kept(store) == {"old 3", *(f"new {n}" for n in range(40))}
    assert pool.stats()["expired"] == 9


def test_a_look_for_what_has_expired_takes_one_read(distant: tuple[RedisStore, RoundTrips]) -> None:
    pool = ExperiencePool(distant[0])
    for n in range(20):
        run(pool.create_flow(Experience(resp=n), key=f"old {n}"))
    before = distant[1].count
    for n in range(200):
        run(pool.create_flow(Experience(resp=n), key=f"new {n}"))
    sweeps = sum(zlib.crc32(f"new {n}".encode()) % 4 == 0 for n in range(200))
    assert sweeps > 20
    assert distant[1].count - before == 200 + sweeps


def test_what_another_writer_replaced_meanwhile_is_looked_at_again() -> None:
    store = Watched()
    pool = ExperiencePool(store)
    for n in range(3):
        keep(pool, n, "bad")

    def replace() -> None:
        keep(pool, 1, "good")

    store.meanwhile = replace
    assert pool.invalidate(lambda e: e.resp == "bad") == 2
    assert [e.resp for e in pool.all()] == ["good"]
    store.meanwhile = lambda: keep(pool, 1, "better")
    assert pool.delete(1)
    assert pool.count() == 0
    keep(pool, 1, "bad")
    store.meanwhile = lambda: pool.delete(1)
    assert pool.invalidate(lambda e: e.resp == "bad") == 0


def test_what_another_writer_replaced_while_it_was_read_is_still_a_hit() -> None:
    store = Watched()
    pool = ExperiencePool(store, max_entries=5)
    keep(pool, "q", "old")
    store.meanwhile = lambda: keep(pool, "q", "new")
    read = [pool.lookup("q"), pool.lookup("q")]
    assert [each.resp for each in read if each] == ["old", "new"]


# --- the same key


@pytest.mark.parametrize("bounds", [{}, {"max_entries": 50}, {"max_bytes": 100_000}])
def test_another_text_under_the_same_key_is_found_by_its_own_words(any_store: Store, bounds: dict[str, int]) -> None:
    indexes = [open_index("memory:") for _ in range(2)]
    pool, other = (ExperiencePool(any_store, index=index, **bounds) for index in indexes)  # type: ignore[arg-type]
    blind = ExperiencePool(any_store, **bounds)  # type: ignore[arg-type]
    keep(pool, "how to bake bread", "old", key="k")
    keep(pool, "a bell", key="b")
    assert found(pool, "bread") == found(other, "bread") == ["old"]
    for writer, req, gone in ((pool, "how to mend a bike", "bread"), (blind, "how to sail a boat", "bike")):
        assert writer.lookup(key="k") is not None  # marked as used, where there are bounds
        keep(writer, req, req, key="k")
        for reader in (pool, other):
            assert found(reader, req) == [req]
            assert found(reader, gone) == []
    keep(blind, None, "nothing to be found by", key="k")
    assert found(pool, "boat") == found(other, "boat") == []
    assert any_store.scan(PLACE, limit=0).total == 2


def test_two_writers_of_one_key_leave_one_whole_entry() -> None:
    store, index = Watched(), open_index("memory:")
    pool = ExperiencePool(store, index=index)
    store.meanwhile = lambda: keep(pool, "a boat", "first", key="k")
    keep(pool, "a bike", "second", key="k")
    assert (found(pool, "bike"), found(pool, "boat")) == (["second"], [])
    store.meanwhile = lambda: pool.delete(key="k")
    keep(pool, "a bike", "third", key="k")
    assert found(pool, "bike") == ["third"]

    def quicker() -> None:
        keep(pool, "a boat", "fourth", key="k")
        assert found(pool, "boat") == ["fourth"]

    store.meanwhile, store.waits = quicker, 1  # between the look at the old text and the change
    keep(pool, "a car", "fifth", key="k")
    assert (found(pool, "car"), found(pool, "boat")) == (["fifth"], [])
    store.meanwhile, store.waits = quicker, 1
    keep(pool, "a car", "sixth", key="k")
    assert (found(pool, "car"), found(pool, "boat")) == (["sixth"], [])


def test_a_score_is_not_given_to_what_took_the_place_of_what_was_scored() -> None:
    store = Watched()
    pool = ExperiencePool(store)
    made = keep(pool, "q", "old")
    key = next(iter(kept(store)))
    store.meanwhile = lambda: keep(pool, "q", "new")
    assert run(pool.score_flow(made, Score(val=9), key=key)) is False
    served = pool.lookup("q")
    assert served is not None
    assert (served.resp, served.metric) == ("new", None)
    assert run(pool.score_flow(served, Score(val=9), key=key)) is True
    assert pool.all()[0].metric is not None
    pool.delete("q")
    assert run(pool.score_flow(served, Score(val=9), key=key)) is False


def test_a_score_is_given_whatever_others_keep_meanwhile() -> None:
    """All writers of bounded bytes change the same count of them."""
    store = Watched()
    pool = ExperiencePool(store, max_bytes=10_000)
    made = keep(pool, "q", "a")
    key = next(iter(kept(store)))
    assert pool.lookup("q")  # marks it as used
    store.meanwhile = lambda: keep(pool, "other", "b")
    assert run(pool.score_flow(made, Score(val=9), key=key)) is True
    assert pool.count() == 2


@pytest.mark.parametrize("keep_", [None, 5.0])
def test_a_look_that_meets_an_old_entry_leaves_what_another_has_put_in_its_place(keep_: float | None) -> None:
    store, clock = Watched(), FakeClock()
    pool = ExperiencePool(store, ttl=60, keep=keep_, clock=clock)
    others = ExperiencePool(store, ttl=60, clock=clock)
    keep(pool, "q", "old")
    clock.advance(58)
    assert pool.lookup("q")
    clock.advance(2)
    store.meanwhile = lambda: keep(others, "q", "new")
    assert pool.lookup("q") is None
    assert [each.resp for each in pool.all()] == ["new"]


# --- counts and switches


def test_evictions_of_writers_at_the_same_time_are_all_counted() -> None:
    pool = ExperiencePool(MemoryStore(), max_entries=1)
    keep(pool, "a")
    writing = pool.create_flow(Experience(req="b", resp=1))
    answer, _ = ask(next(writing))
    keep(pool, "c")
    with pytest.raises(StopIteration):
        writing.send(answer)
    assert (pool.stats()["stored"], pool.stats()["evicted"], pool.count()) == (3, 2, 1)


def test_what_is_too_large_goes_at_once_with_what_it_would_replace() -> None:
    pool = ExperiencePool(MemoryStore(), max_bytes=1000)
    keep(pool, "q", "small")
    evicted: list[tuple[str, bytes]] = []
    run(pool.create_flow(Experience(req="q", resp="x" * 2000), evicted=evicted))
    assert (pool.count(), len(evicted), pool.stats()["evicted"]) == (0, 1, 1)


def test_the_pool_under_another_tag_has_the_same_switches(any_store: Store) -> None:
    keep(ExperiencePool(any_store, tag="other"), "q", "kept")
    pool = ExperiencePool(any_store)
    assert pool.query("q", query_type="exact", tag="other")
    pool.enable_read = False
    assert pool.query("q", query_type="exact", tag="other") == []
    off = ExperiencePool(any_store, enabled=False)
    for switched in (off, ExperiencePool(any_store, enable_write=False)):
        keep(switched.at("other"), "new")
    assert ExperiencePool(any_store, tag="other").count() == 1
    assert off.at("other").lookup("q") is None


async def test_nothing_is_imported_where_storing_is_switched_off(any_store: Store) -> None:
    source = ExperiencePool(MemoryStore())
    keep(source, "a"), keep(source, "b")
    lines = list(source.export())
    for switched in (ExperiencePool(any_store, enabled=False), ExperiencePool(any_store, enable_write=False)):
        assert (switched.import_(lines), await switched.aimport(lines)) == (0, 0)
    assert ExperiencePool(any_store).count() == 0
    assert await ExperiencePool(any_store).aimport(lines) == 2


# --- whatever happens


_REQUESTS = st.sampled_from(["a red bike", "a blue bike", "a bike and a boat", None])
_STEPS = st.tuples(
    st.sampled_from(["put", "put", "put", "brief", "get", "delete", "drop", "wait", "query"]),
    st.integers(0, 9),
    _REQUESTS,
    st.booleans(),
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(_STEPS, max_size=50), st.sampled_from([{}, {"max_entries": 4}, {"max_bytes": 900}]))
def test_store_log_and_index_agree(steps: list[tuple[str, int, Any, bool]], bounds: dict[str, Any]) -> None:
    clock, store, index = FakeClock(), MemoryStore(), open_index("memory:")
    pools = [ExperiencePool(store, clock=clock, index=each, **bounds) for each in (index, None)]
    for what, n, req, blind in steps:
        pool, key = pools[blind], f"k{n}"
        if what in {"put", "brief"}:
            keep(pool, req, n, key=key, expires_at=clock() + 5 if what == "brief" else None)
        elif what == "get":
            pool.lookup(key=key)
        elif what == "delete":
            pool.delete(key=key)
        elif what == "drop":
            pool.invalidate(lambda e, n=n: e.resp == n)  # type: ignore[misc]
        elif what == "wait":
            clock.advance(3)
        else:
            pools[0].query("bike", k=20)
    expected = {e.resp for e in pools[0].all() if e.req}
    assert set(found(pools[0], "bike", k=20)) == expected
    log = [item.id for item in store.scan(PLACE).items]
    assert kept(store) <= set(log)
    assert len(log) == len(set(log))
    values = store.get(PLACE)
    assert {key.partition("\0")[2] for key in values if key.startswith("gone\0")} == set(log) - kept(store)
    if "max_bytes" in bounds and "bytes\0" in values:
        assert int(values["bytes\0"]) == sum(len(values[key]) for key in kept(store))
