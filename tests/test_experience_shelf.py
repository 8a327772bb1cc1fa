"""ExperiencePool in full: search by meaning, bounds (C11), ids and tags (D4), what it saved, moving in and out."""

from __future__ import annotations

import gc
import json
import math
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from langmem_adapters import (
    ConfigurationError,
    Experience,
    ExperiencePool,
    SerializationError,
    open_index,
)
from langmem_adapters.experience import Saved, read_metagpt_pool
from langmem_adapters.experience.requests import as_text, search_text
from langmem_adapters.keys import fingerprint
from langmem_adapters.model import Metric, Score, Trajectory
from langmem_adapters.protocols import Page, Store
from langmem_adapters.stores.memory import MemoryStore
from langmem_adapters.stores.redis import RedisStore
from langmem_adapters.stores.sqlite import SQLiteStore
from langmem_adapters.testing import FakeClock
from tests.benchmarks.round_trips import RoundTrips
from tests.faults import Refusing

ROOT = Path(__file__).parent.parent
PLACE = ("experience", "", "", "")


def keep(pool: ExperiencePool, req: Any, resp: Any = "", **fields: Any) -> Experience:
    return pool.create(Experience(req=req, resp=resp, **fields))


def scored(val: int) -> Metric:
    return Metric(score=Score(val=val))


def requests(pool: ExperiencePool) -> list[Any]:
    return [found.req for found in pool.all()]


# --- search


def test_similar_experiences_are_found_best_first(any_store: Store) -> None:
    pool = ExperiencePool(any_store, index=open_index("memory:"))
    for req in ("the capital of France", "the capital of Spain", "a recipe for onion soup"):
        keep(pool, req, req[::-1])
    found = pool.query("what is France's capital?", k=2)
    assert [similar.experience.req for similar in found] == ["the capital of France", "the capital of Spain"]
    assert 1 >= found[0].score > found[1].score > 0
    assert found[0].experience.resp == "ecnarF fo latipac eht"
    assert (pool.query("zebra"), pool.query("capital", k=0), pool.query("")) == ([], [], [])
    exact = pool.query("the capital of Spain", query_type="exact")
    assert [(s.experience.req, s.score) for s in exact] == [("the capital of Spain", 1.0)]
    assert pool.query("capital of Spain", query_type="exact") == []
    pool.enable_read = False
    assert pool.query("the capital of Spain") == pool.query("the capital of Spain", query_type="exact") == []


def test_d4_a_hundred_nearer_ones_of_others_do_not_hide_the_one(any_store: Store) -> None:
    index = open_index("memory:")
    mine = ExperiencePool(any_store, tag="mine", index=index)
    keep(mine, "a bike")
    for tag, user, tenant in (("other", "", ""), ("mine", "u", ""), ("mine", "", "t")):
        for n in range(100):
            keep(ExperiencePool(any_store, tag=tag, user=user, tenant=tenant, index=index), f"where is my bike {n}")
    assert [s.experience.req for s in mine.query("where is my bike", k=5)] == ["a bike"]
    assert len(mine.query("where is my bike", k=5, tag="other")) == 5
    assert {s.experience.tag for s in mine.query("bike", k=200, tag="other")} == {"other"}
    mine.clear("other")
    assert (mine.query("bike", tag="other"), mine.count(), mine.at("other").count()) == ([], 1, 0)
    assert mine.at(None) is mine.at("mine") is mine


def test_what_was_deleted_replaced_or_expired_is_not_found(any_store: Store) -> None:
    clock = FakeClock()
    index = open_index("memory:")
    pool = ExperiencePool(any_store, index=index, clock=clock)
    blind = ExperiencePool(any_store, clock=clock)
    for n in range(20):
        keep(pool, f"bike {n}", n)
    keep(pool, "bike old", expires_at=clock() + 1)
    assert len(pool.query("bike", k=50)) == 21
    pool.delete("bike 0")
    assert len(index.search(PLACE, "bike", 50)) == 20
    blind.delete("bike 1")
    blind.invalidate(lambda e: e.req == "bike 2")
    pool.invalidate(lambda e: e.req == "bike 3")
    keep(blind, "bike 4", "new")
    clock.advance(2)
    found = {s.experience.req: s.experience.resp for s in pool.query("bike", k=50)}
    assert found == {f"bike {n}": n for n in range(4, 20)} | {"bike 4": "new"}
    assert len(index.search(PLACE, "bike", 50)) == 16  # the expired one went when it was found
    pool.clear()
    assert index.search(PLACE, "bike", 50) == []
    keep(blind, "bike again")
    assert [s.experience.req for s in pool.query("bike")] == ["bike again"]


def test_search_needs_an_index_and_a_known_way() -> None:
    pool = ExperiencePool(MemoryStore())
    with pytest.raises(ConfigurationError, match="give it index="):
        pool.query("q")
    with pytest.raises(ConfigurationError, match='query_type is "exact" or "semantic", not'):
        pool.query("q", query_type="near")  # type: ignore[arg-type]


def test_words_of_a_request() -> None:
    assert as_text([{"role": "user", "content": [{"type": "text", "text": "a"}]}, "b", None, 1.5]) == "text a b 1.5"
    assert len(as_text("x" * 100_000)) == 100_000
    assert len(search_text("x" * 100_000)) == 10_000


# --- deleting


def test_deleting_by_id(any_store: Store) -> None:
    pool = ExperiencePool(any_store)
    kept = [keep(pool, n) for n in range(5)]
    assert (pool.delete(uuid=kept[3].uuid), pool.delete(uuid=kept[3].uuid), pool.delete(uuid="")) == (
        True,
        False,
        False,
    )
    assert requests(pool) == [0, 1, 2, 4]


def test_deleting_and_updating_for_ever_does_not_grow_the_log(any_store: Store) -> None:
    pool = ExperiencePool(any_store)
    keep(pool, "stays")
    for n in range(200):
        keep(pool, "same", n)
        keep(pool, n)
        assert pool.delete(n)
    assert any_store.scan(PLACE, limit=0).total < 50
    assert requests(pool) == ["stays", "same"]
    for n in range(100):
        keep(pool, n)
    assert pool.invalidate(lambda e: isinstance(e.req, int)) == 100
    assert any_store.scan(PLACE, limit=0).total < 50


def test_a_key_with_a_nul_is_refused() -> None:
    pool = ExperiencePool(MemoryStore())
    with pytest.raises(ConfigurationError, match="NUL"):
        pool.create(Experience(resp=1), key="used\0x")
    with pytest.raises(ConfigurationError, match="NUL"):
        pool.lookup(key="bytes\0")
    with pytest.raises(ConfigurationError, match="a key of an experience is a text, not int"):
        pool.lookup(key=5)  # type: ignore[arg-type]


# --- bounds


@pytest.mark.parametrize("bound", [{"max_entries": 0}, {"max_bytes": -1}])
def test_a_bound_that_keeps_nothing_is_refused(bound: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError, match="is a number of 1 or more, or None"):
        ExperiencePool(MemoryStore(), **bound)  # type: ignore[arg-type]


def test_c11_the_longest_unused_goes_first(any_store: Store) -> None:
    pool = ExperiencePool(any_store, max_entries=3)
    other = ExperiencePool(any_store, max_entries=3)
    for req in "abc":
        keep(pool, req)
    assert other.lookup("a") is not None  # used, in another process
    keep(pool, "d")
    assert set(requests(pool)) == {"a", "c", "d"}
    keep(pool, "e")
    assert set(requests(pool)) == {"a", "d", "e"}
    keep(pool, "f"), keep(pool, "g"), keep(pool, "h")
    assert set(requests(pool)) == {"f", "g", "h"}  # not used since
    assert (pool.stats()["evicted"], pool.stats()["stored"]) == (5, 8)


def test_c11_of_the_unused_the_worst_score_goes_first(any_store: Store) -> None:
    pool = ExperiencePool(any_store, max_entries=4)
    for req, val in (("best", 10), ("bad", 2), ("good", 8)):
        keep(pool, req, metric=scored(val))
    keep(pool, "unscored")
    gone: list[Any] = []
    for n in range(3):
        before = set(requests(pool))
        keep(pool, n, metric=scored(9))
        gone += before - set(requests(pool))
    assert gone == ["bad", "unscored", "good"]


def test_c11_expired_and_damaged_ones_go_before_all_others(any_store: Store) -> None:
    clock = FakeClock()
    pool = ExperiencePool(any_store, max_entries=4, clock=clock)
    keep(pool, "low", metric=scored(1))
    keep(pool, "old", metric=scored(10), expires_at=clock() + 1)
    keep(pool, "damaged", metric=scored(10))
    keep(pool, "x", metric=scored(10))
    key = next(k for k, v in any_store.get(PLACE).items() if b"damaged" in v)
    any_store.write(PLACE, put={key: b"nonsense"})
    clock.advance(2)
    keep(pool, "y"), keep(pool, "z")
    assert set(requests(pool)) == {"low", "x", "y", "z"}


def test_c11_everything_in_use_still_leaves_room_for_the_new(any_store: Store) -> None:
    pool = ExperiencePool(any_store, max_entries=100)
    for n in range(100):
        keep(pool, n)
    for n in range(100):
        assert pool.lookup(n)
    keep(pool, "new")
    assert len(requests(pool)) <= 100
    assert "new" in requests(pool)


def test_c11_bytes_are_bounded_and_counted(any_store: Store) -> None:
    pool = ExperiencePool(any_store, max_bytes=2000)

    def held() -> int:
        return sum(len(data) for key, data in any_store.get(PLACE).items() if "\0" not in key)

    for n in range(60):
        keep(pool, n % 25, "x" * (n * 7 % 300))
        if n % 5 == 0:
            pool.delete(n % 7)
        if n % 9 == 0:
            pool.lookup(n % 25)
        assert held() <= 2000
        assert int(any_store.get(PLACE)["bytes\0"]) == held()
    assert pool.count() > 3
    keep(pool, "all the others stay", "y" * 5000)
    assert pool.count() > 3
    assert pool.lookup("all the others stay") is None
    pool.invalidate(lambda _: True)
    assert int(any_store.get(PLACE)["bytes\0"]) == held() == 0


@settings(max_examples=30, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.tuples(st.sampled_from(["put", "get", "delete"]), st.integers(0, 12)), max_size=60),
    st.integers(1, 6),
)
def test_c11_whatever_happens_the_bound_holds_and_log_and_values_agree(
    steps: list[tuple[str, int]], bound: int
) -> None:
    store = MemoryStore()
    pool = ExperiencePool(store, max_entries=bound, index=open_index("memory:"))
    for what, n in steps:
        if what == "put":
            keep(pool, f"request {n}", n)
            found = pool.lookup(f"request {n}")
            assert found is None or found.resp == n
        elif what == "get":
            pool.lookup(f"request {n}")
        else:
            pool.delete(f"request {n}")
        assert len(requests(pool)) <= bound
    values = store.get(PLACE)
    entries = {key for key in values if "\0" not in key}
    assert entries <= {item.id for item in store.scan(PLACE).items}
    assert {key.partition("\0")[2] for key in values if key.startswith("used\0")} <= entries
    assert {s.experience.req for s in pool.query("request", k=50)} == set(requests(pool))


def test_c11_any_number_of_inserts_leaves_a_thousand_rows_and_a_small_file(tmp_path: Path) -> None:
    path = tmp_path / "pool.db"
    store = SQLiteStore(path)
    pool = ExperiencePool(store, max_entries=1000)
    for n in range(_C11_INSERTS):
        keep(pool, n, "x" * 500)
    store.close()
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT count(*), count(value) FROM langmem_log").fetchone()
        assert 900 < rows[0] == rows[1] <= 1000
        assert connection.execute("SELECT count(*) FROM langmem_values").fetchone()[0] <= 1000  # marks of use
    size = path.stat().st_size
    assert size < 3_000_000  # what is freed is used again
    pool.invalidate(lambda e: e.req % 10 > 0)
    store.vacuum()
    store.close()
    assert path.stat().st_size < size / 4


_C11_INSERTS = int(os.environ.get("C11_INSERTS", "10000"))  # ten turnovers show what a hundred do

_INSERTER = """
import sys
from langmem_adapters import Experience, ExperiencePool, open_store
pool = ExperiencePool(open_store(sys.argv[1]), max_entries=50, max_bytes=20_000)
for n in range(150):
    pool.create(Experience(req=[int(sys.argv[2]), n], resp="x" * (n % 300)))
    pool.lookup([int(sys.argv[2]), n - 20])
"""


def test_c11_four_processes_keep_the_bounds_together(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/pool.db"
    command = [sys.executable, "-W", "error", "-c", _INSERTER, url]
    started = [subprocess.Popen([*command, str(n)], stderr=subprocess.PIPE, cwd=ROOT) for n in range(4)]
    said = [process.communicate(timeout=120)[1] for process in started]
    assert [process.returncode for process in started] == [0] * 4, said
    store = SQLiteStore(tmp_path / "pool.db")
    values = store.get(PLACE)
    held = [data for key, data in values.items() if "\0" not in key]
    assert 20 < len(held) <= 50
    assert int(values["bytes\0"]) == sum(map(len, held)) <= 20_000
    assert store.scan(PLACE, limit=0).total == len(held)
    store.close()


def test_a_hit_that_cannot_be_marked_as_used_is_still_a_hit(caplog: pytest.LogCaptureFixture) -> None:
    store = Refusing()
    pool = ExperiencePool(store, max_entries=5)
    keep(pool, "q", "a")
    store.reason = "read-only"
    with caplog.at_level("INFO", "langmem_adapters"):
        found = pool.lookup("q")
    assert found is not None
    assert "could not be marked" in caplog.text


# --- savings


def test_what_is_deleted_and_kept_again_is_found_again(any_store: Store) -> None:
    pool = ExperiencePool(any_store, index=open_index("memory:"))
    for n in range(20):
        pool.create(Experience(req=f"question number {n}", resp=n))
    assert [similar.experience.resp for similar in pool.query("number 3", k=1)] == [3]
    assert pool.delete("question number 3")
    assert 3 not in [similar.experience.resp for similar in pool.query("number 3", k=20)]
    pool.create(Experience(req="question number 3", resp="three"))
    assert [similar.experience.resp for similar in pool.query("number 3", k=1)] == ["three"]


def test_part7_savings_by_metric_and_prices() -> None:
    pool = ExperiencePool(MemoryStore(), prices={"m": (3.0, 15.0)})
    usage: Any = {"model": "m", "input_tokens": 1000, "output_tokens": 100}
    keep(pool, 1, metric=Metric(time_cost=2.5, **usage))
    keep(pool, 2, metric=Metric(money_cost=1.0, **usage))
    keep(pool, 3, metric=Metric(model="unknown", input_tokens=1000))
    keep(pool, 4)
    assert pool.saved() == Saved(0.0, 0, 0.0)
    for req in (1, 1, 2, 3, 4, "none"):
        pool.lookup(req)
    seconds, tokens, money = pool.saved()
    assert (seconds, tokens) == (5.0, 1100 * 3 + 1000)
    assert money == pytest.approx(2 * 0.0045 + 1.0)
    assert (pool.stats()["hits"], pool.stats()["misses"]) == (5, 1)
    with pytest.raises(ConfigurationError, match="the prices of 'm' are a tuple of two numbers"):
        ExperiencePool(MemoryStore(), prices={"m": 5})  # type: ignore[dict-item]


# --- in and out


def test_what_has_expired_by_now_is_not_imported() -> None:
    clock = FakeClock()
    pool = ExperiencePool(MemoryStore(), tag="old", ttl=10, clock=clock)
    pool.create(Experience(req="old", resp=1))
    clock.advance(6)
    pool.create(Experience(req="new", resp=2))
    lines = list(pool.export())
    clock.advance(5)
    other = ExperiencePool(MemoryStore(), tag="new", clock=clock)
    assert (other.import_(lines), other.count()) == (1, 1)
    assert other.lookup("new") is not None


def test_export_and_import(any_store: Store) -> None:
    clock = FakeClock()
    pool = ExperiencePool(any_store, tag="a", clock=clock)
    keep(pool, {"q": (1, b"x")}, {"a": {1, 2}}, metric=scored(7), traj=Trajectory(plan="p"), entry_type="Manual")
    pool.create(Experience(resp=None), key="own key")
    keep(pool, "old", expires_at=clock() - 1)
    lines = list(pool.export())
    assert len(lines) == 2
    assert all(line.endswith(b"\n") and json.loads(line)["type"] == "experience" for line in lines)
    other = ExperiencePool(MemoryStore(), tag="b", clock=clock)
    for _ in range(2):
        assert other.import_([*lines, b"\n"]) == 2
    assert [e.model_copy(update={"tag": "a"}) for e in other.all()] == pool.all()
    assert other.lookup({"q": (1, b"x")}).resp == {"a": {1, 2}}  # type: ignore[union-attr]
    assert other.lookup(key="own key") is not None


@pytest.mark.parametrize("max_entries", [None, 240])
def test_imported_experiences_are_as_if_each_was_created(any_store: Store, max_entries: int | None) -> None:
    pool = ExperiencePool(MemoryStore(), tag="a")
    for n in range(250):
        keep(pool, f"request {n}", n)
    other = ExperiencePool(any_store, tag="b", index=open_index("memory:"), max_entries=max_entries)
    keep(other, "request 120", "an earlier answer")  # so that its page is not all new
    lines = list(pool.export())
    assert other.import_([*lines, lines[-1]]) == 251
    assert other.stats()["stored"] == 252
    assert 230 <= other.count() <= (max_entries or 250)
    for n in (249, 200 if max_entries else 120):  # in a bounded pool, the earliest is evicted first
        found, imported = other.lookup(f"request {n}"), pool.lookup(f"request {n}")
        assert imported is not None
        assert found == imported.model_copy(update={"tag": "b"})
        assert other.query(f"request {n}", k=1)[0].experience == found


def test_new_experiences_are_imported_a_page_at_a_time(distant: tuple[RedisStore, RoundTrips]) -> None:
    pool = ExperiencePool(MemoryStore(), tag="a")
    for n in range(200):
        keep(pool, f"request {n}", n)
    other = ExperiencePool(distant[0], tag="b")
    before = distant[1].count
    assert other.import_(pool.export()) == 200
    assert distant[1].count - before == 2 * 2  # pages, each written under a watch


def test_an_import_of_partly_known_experiences_takes_few_round_trips(distant: tuple[RedisStore, RoundTrips]) -> None:
    pool = ExperiencePool(MemoryStore(), tag="a")
    for n in range(200):
        keep(pool, f"request {n}", n)
    other = ExperiencePool(distant[0], tag="b")
    for n in range(0, 200, 20):
        keep(other, f"request {n}", "an earlier answer")
    other.create(Experience(req="of another text"), key=fingerprint("request 33"))
    keep(other, "request 34", "deleted")
    other.delete("request 34")
    before = distant[1].count
    assert other.import_(pool.export()) == 200
    assert distant[1].count - before < 25  # 200 experiences, of which two move in the log
    imported = {e.req: e.resp for e in other.all()}
    assert imported == {f"request {n}": n for n in range(200)}
    assert other.count() == len(other.all()) == 200
    assert other.stats()["stored"] == 200 + 12


@pytest.mark.parametrize(
    "bad",
    [
        b"no json my-secret",
        b"[]",
        b'{"type":"session","v":1}',
        b'{"type":"experience","v":2,"key":"k","experience":{"v":1}}',
        b'{"type":"experience","v":1,"key":"k","experience":{"v":9,"resp":"my-secret"}}',
        b'{"type":"experience","v":1,"experience":{"v":1}}',
        b'{"type":"experience","v":1,"key":"used\\u0000k","experience":{"v":1}}',
        b"[" * 100_000,
    ],
)
def test_a_bad_line_is_named_and_nothing_is_imported(bad: bytes) -> None:
    pool = ExperiencePool(MemoryStore())
    keep(pool, "q")
    good = next(pool.export())
    other = ExperiencePool(MemoryStore())
    gc.collect()  # else what other tests left may be finalised in the depth of a line, where there is no room for it
    with pytest.raises(SerializationError, match=r"line 3 is not an experience") as caught:
        other.import_([good, b"", bad])
    assert "my-secret" not in str(caught.value) + str(caught.value.__cause__) + str(caught.value.__context__)
    assert other.count() == 0


def test_what_is_no_line_of_an_export_is_named() -> None:
    pool = ExperiencePool(MemoryStore())
    keep(pool, "q")
    other = ExperiencePool(MemoryStore())
    for bad, what in ((5, "int"), ({"type": "experience"}, "dict")):
        with pytest.raises(ConfigurationError, match=f"a line of an export is text or bytes, not {what}"):
            other.import_([*pool.export(), bad])  # type: ignore[list-item]
    with pytest.raises(ConfigurationError, match="an import takes the lines of an export, or its text, not int"):
        other.import_(5)  # type: ignore[arg-type]
    assert other.count() == 0


METAGPT = {
    "req": "Write a game",
    "resp": "print(1)",
    "metric": {"time_cost": 1500.0, "money_cost": 0.002, "score": {"val": 9, "reason": "runs"}},
    "exp_type": "success",
    "entry_type": "Automatic",
    "tag": "Engineer.write_code",
    "traj": {"plan": "p", "action": "a", "observation": "o", "reward": 1},
    "timestamp": 1_700_000_000.5,
    "uuid": "6b1bb1c5-7f5b-4b5c-9a44-5f0b0f2f2b11",
}


def node(obj: Any, cls: str = "Experience", mod: str = "metagpt.exp_pool.schema") -> dict[str, Any]:
    metadata = {"is_obj": True, "obj": None, "obj_json": obj, "obj_cls_name": cls, "obj_mod_name": mod}
    return {"id_": "n", "embedding": None, "metadata": metadata, "text": "Write a game", "class_name": "TextNode"}


def docstore(tmp_path: Path, *nodes: Any) -> Path:
    data = {str(n): {"__data__": one, "__type__": "1"} for n, one in enumerate(nodes)}
    (tmp_path / "docstore.json").write_text(json.dumps({"docstore/data": data, "docstore/metadata": {}}))
    return tmp_path


def check_metagpt(found: list[Experience]) -> None:
    assert len(found) == 1
    assert (found[0].req, found[0].resp, found[0].tag, found[0].uuid) == (
        "Write a game",
        "print(1)",
        "Engineer.write_code",
        METAGPT["uuid"],
    )
    assert found[0].metric == Metric(time_cost=1.5, money_cost=0.002, score=Score(val=9, reason="runs"))
    assert (found[0].traj, found[0].timestamp) == (
        Trajectory(plan="p", action="a", observation="o", reward=1),
        1.7e9 + 0.5,
    )


def test_metagpts_bm25_pool(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = docstore(
        tmp_path,
        node(json.dumps({"req": "req", "resp": "resp"})),  # MetaGPT's made-up first one
        node(json.dumps(METAGPT)),
        node(json.dumps(METAGPT), "system", "os") | {"metadata": {"obj_json": '{"req": "no response"}'}},
        node("no json"),
        "text",
        None,
    )
    check_metagpt(read_metagpt_pool(folder))
    check_metagpt(read_metagpt_pool(str(folder / "docstore.json")))
    assert "4 records of" in caplog.text


def test_of_metagpts_pool_only_the_made_up_experience_is_left_out(tmp_path: Path) -> None:
    real = {"req": "req", "resp": "resp", "tag": "echo"}
    (found,) = read_metagpt_pool(docstore(tmp_path, node('{"req": "req", "resp": "resp"}'), node(json.dumps(real))))
    assert found.tag == "echo"


@pytest.mark.parametrize(
    ("wrong", "metric", "kind"),
    [
        ({"metric": {"time_cost": 1200, "score": {"val": 0, "reason": "bad"}}}, Metric(time_cost=1.2), "success"),
        ({"metric": {"score": {"val": 11}}, "exp_type": "failure"}, Metric(), "failure"),
        ({"metric": {"time_cost": "long", "score": {"val": 8}}}, Metric(score=Score(val=8)), "success"),
        ({"metric": "none", "exp_type": "weird", "traj": 5}, None, "success"),
        (
            {"metric": {"time_cost": 10**400, "money_cost": math.inf, "score": {"val": 8}}},
            Metric(score=Score(val=8)),
            "success",
        ),
        ({"metric": {"time_cost": math.nan, "money_cost": 0.1}}, Metric(money_cost=0.1), "success"),
    ],
)
def test_of_metagpts_experience_what_is_none_here_is_left_out(
    tmp_path: Path, wrong: dict[str, Any], metric: Metric | None, kind: str
) -> None:
    (found,) = read_metagpt_pool(docstore(tmp_path, node(json.dumps({**METAGPT, **wrong}))))
    assert (found.req, found.resp, found.metric, found.exp_type) == ("Write a game", "print(1)", metric, kind)


def test_the_experiences_of_metagpt_are_in_order_beside_those_with_times_that_are_none(tmp_path: Path) -> None:
    times = (3.0, math.nan, 2.0, math.inf, 1.0, 10**400)
    records = [{"req": "r", "resp": str(at), "timestamp": at} for at in times]
    found = read_metagpt_pool(docstore(tmp_path, *(node(json.dumps(record)) for record in records)))
    assert [each.timestamp for each in found] == [None, None, None, 1.0, 2.0, 3.0]


def test_no_class_is_imported_by_a_name_in_a_pool(tmp_path: Path) -> None:
    (tmp_path / "evil_module.py").write_text("raise SystemExit('imported')")
    folder = docstore(tmp_path, node(json.dumps(METAGPT), "Evil", "evil_module"))
    sys.path.insert(0, str(tmp_path))
    try:
        check_metagpt(read_metagpt_pool(folder))
    finally:
        sys.path.remove(str(tmp_path))
    assert "evil_module" not in sys.modules


def test_metagpts_chroma_pool(tmp_path: Path) -> None:
    chromadb = pytest.importorskip("chromadb")
    script = (
        "import chromadb, json, sys\n"
        "client = chromadb.PersistentClient(sys.argv[1], chromadb.Settings(anonymized_telemetry=False))\n"
        "collection = client.create_collection('experience_pool', embedding_function=None)\n"
        "node = json.loads(sys.argv[2])\n"
        "metadata = {'is_obj': True, 'obj_json': node['metadata']['obj_json'], '_node_content': sys.argv[2]}\n"
        "collection.add(ids=['a'], embeddings=[[0.1, 0.2]], metadatas=[metadata], documents=['Write a game'])\n"
        "client.create_collection('another', embedding_function=None).add(\n"
        "    ids=['b'], embeddings=[[0.1]], metadatas=[{'_node_content': json.dumps(node)}])\n"
        "collection.get(), client.get_collection('another', embedding_function=None).get()\n"
    )
    subprocess.run([sys.executable, "-c", script, tmp_path, json.dumps(node(json.dumps(METAGPT)))], check=True)
    assert chromadb
    check_metagpt(read_metagpt_pool(tmp_path, collection="experience_pool"))
    check_metagpt(read_metagpt_pool(tmp_path / "chroma.sqlite3", collection="another"))
    assert len(read_metagpt_pool(tmp_path)) == 2
    assert read_metagpt_pool(tmp_path, collection="none") == []
    older, newer = ({**METAGPT, "resp": f"of BM25, at {at}", "timestamp": at} for at in (1.0, 1e12))
    docstore(tmp_path, *(node(json.dumps(each)) for each in (newer, older)))  # of another ``retrieval_type``
    said = [each.resp for each in read_metagpt_pool(tmp_path)]
    assert said == ["of BM25, at 1.0", "print(1)", "print(1)", "of BM25, at 1000000000000.0"]


def test_all_databases_of_a_chroma_are_read_and_of_what_is_damaged_nothing_is_quoted(tmp_path: Path) -> None:
    pytest.importorskip("chromadb")
    script = (
        "import chromadb, json, sys\n"
        "settings = chromadb.Settings(\n"
        "    is_persistent=True, persist_directory=sys.argv[1], anonymized_telemetry=False)\n"
        "chromadb.AdminClient(settings).create_database('other')\n"
        "for database in ('default_database', 'other'):\n"
        "    client = chromadb.PersistentClient(sys.argv[1], settings, database=database)\n"
        "    experience = json.dumps({'req': 'my-secret', 'resp': database})\n"
        "    client.create_collection('pool', embedding_function=None).add(\n"
        "        ids=['a'], embeddings=[[0.1]], metadatas=[{'obj_json': experience}])\n"
    )
    subprocess.run([sys.executable, "-c", script, tmp_path], check=True)
    (tmp_path / "chroma.sqlite3-old").mkdir()  # is no file of SQLite's
    assert [each.resp for each in read_metagpt_pool(tmp_path)] == ["default_database", "other"]
    with closing(sqlite3.connect(tmp_path / "chroma.sqlite3")) as connection, connection:
        connection.execute(
            "UPDATE embedding_metadata SET string_value = CAST(x'ff' || string_value AS TEXT) WHERE id = 1"
        )
    assert [each.resp for each in read_metagpt_pool(tmp_path)] == ["other"]


@pytest.mark.parametrize("name", ["docstore.json", "chroma.sqlite3"])
@pytest.mark.parametrize("content", [b"my-secret", b"[]", b"", b'{"a": 1}'])
def test_what_is_no_pool_is_said_to_be_none(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SerializationError, match="is not a") as caught:
        read_metagpt_pool(tmp_path / name)
    assert "my-secret" not in str(caught.value)
    with pytest.raises(SerializationError, match=r"has neither a docstore\.json nor"):
        read_metagpt_pool(tmp_path / "nowhere")


def test_a_metagpt_pool_moves_in(tmp_path: Path, any_store: Store) -> None:
    pool = ExperiencePool(any_store, tag="here", index=open_index("memory:"))
    for experience in read_metagpt_pool(docstore(tmp_path, node(json.dumps(METAGPT)))):
        pool.create(experience)
    assert pool.query("write me a game")[0].experience.resp == "print(1)"


class Scanned(MemoryStore):
    """Counts the items that are read from a log."""

    items = 0

    def scan(self, *args: Any, **kwargs: Any) -> Page:
        page = super().scan(*args, **kwargs)
        self.items += len(page.items)
        return page


@pytest.mark.parametrize("way", ["expired", "deleted"])
def test_what_has_no_text_comes_back_without_a_look_through_all_others(way: str) -> None:
    clock, store = FakeClock(), Scanned()
    pool = ExperiencePool(store, ttl=60, clock=clock)
    for n in range(2_000):
        pool.create(Experience(resp=n), key=str(n))
    clock.advance(90 if way == "expired" else 0)
    store.items = 0
    for n in range(20):
        assert pool.lookup(key=str(n)) is None if way == "expired" else pool.delete(key=str(n))
        pool.create(Experience(resp=-n), key=str(n))
        assert resp_of(pool.lookup(key=str(n))) == -n
    assert store.items < 2_000
    assert pool.count() == (20 if way == "expired" else 2_000)


def resp_of(found: Experience | None) -> Any:
    return None if found is None else found.resp


@pytest.mark.parametrize("between", [0, 1])
def test_what_comes_back_without_a_text_is_not_found_by_the_one_it_had(any_store: Store, between: int) -> None:
    index = open_index("memory:")
    found, unfound = ExperiencePool(any_store, index=index), ExperiencePool(any_store)
    for n in range(200):  # so far behind nobody comes by to clear away
        unfound.create(Experience(resp=n), key=str(n))
    found.create(Experience(req="capital of France", resp="Paris"), key="k")
    found.create(Experience(req="capital of Italy", resp="Rome"), key="other")
    assert [each.experience.resp for each in found.query("capital of France", k=1)] == ["Paris"]
    for n in range(1 + between):
        unfound.delete(key="k")
        unfound.create(Experience(resp=n), key="k")
    found.create(Experience(req="capital of Spain", resp="Madrid"), key="third")
    hits = found.query("capital of France")
    assert {each.experience.resp for each in hits} == {"Rome", "Madrid"}
