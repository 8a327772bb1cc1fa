"""An index and its store agree in the end, whoever clears, rebuilds, tidies or follows at the same time (E2, E4)."""

from __future__ import annotations

import itertools
import os
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.store.base import PutOp

from langmem_adapters.codec import encode
from langmem_adapters.embedding import Embedder
from langmem_adapters.errors import Conflict, SearchError
from langmem_adapters.flow import run
from langmem_adapters.indexes.lexical import LexicalIndex
from langmem_adapters.indexes.vector import VectorIndex
from langmem_adapters.indexes.vector_sqlite import SQLiteVectors
from langmem_adapters.keys import Namespace
from langmem_adapters.langgraph import LongTermStore
from langmem_adapters.longterm import LongTermMemory, longterm_namespace
from langmem_adapters.model import Hit, Message, Scope
from langmem_adapters.protocols import START, Document, Index, Item, Page, Position, Store
from langmem_adapters.recall.memories import memory_id
from langmem_adapters.records import following, journal
from langmem_adapters.records.journal import COMPACTION_KEY, compact_log
from langmem_adapters.records.keyed import Records
from langmem_adapters.stores.memory import MemoryStore
from langmem_adapters.stores.redis import RedisStore
from tests.benchmarks.round_trips import RoundTrips
from tests.faults import Overtaken, Unplugged
from tests.test_cached_together import in_a_fork
from tests.vector_places import word_vectors

NOTES = ("notes",)
MEMORIES = longterm_namespace(Scope(user="ada"))
_forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
_threads_beside = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")


class Gate:
    """Stops whoever comes first, once."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.open = threading.Event()

    def __call__(self) -> None:
        if not self.reached.is_set():
            self.reached.set()
            assert self.open.wait(60)


class Kept:
    """An index that shows what it holds, and lets something else happen before each change."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.at: Position | None = None
        self.before: Callable[[], None] = lambda: None
        self.given = 0

    def apply(
        self,
        namespace: Namespace,  # noqa: ARG002 - there is one
        *,
        upsert: Sequence[Document] = (),
        delete: Sequence[str] = (),
        position: Position | None = None,
        since: Position | None = None,
    ) -> None:
        self.before()
        if since is not None and (self.at or START) != since:
            raise Conflict("changed by another follower")
        for id_ in delete:
            self.texts.pop(id_, None)
        self.texts |= {document.id: document.text for document in upsert}
        self.given += len(upsert)
        self.at = position or self.at

    def position(self, namespace: Namespace) -> Position | None:  # noqa: ARG002 - there is one
        return self.at

    def search(self, namespace: Namespace, query: str, k: int) -> list[Hit]:  # noqa: ARG002 - nobody searches
        return []

    def clear(self, namespace: Namespace) -> None:  # noqa: ARG002 - there is one
        self.texts, self.at = {}, None

    def close(self) -> None:
        pass


_ids = itertools.count()


def new_id() -> str:
    return f"e{next(_ids)}"


def records(store: Store, index: Index, vectors: Index | None = None, *, new_id: Callable[[], str] = new_id) -> Records:
    return Records(store, NOTES, index=index, vectors=vectors, text_of=lambda _, data: data.decode(), new_id=new_id)


def put(kept: Records, keys: Sequence[str], text: str = "bike") -> None:
    for key in keys:
        kept.put({key: f"{text} {key}".encode()})


def truth(kept: Records) -> dict[str, str]:
    return {key: data.decode() for key, data in kept.all()}


# --- threads, stopped where it hurts


class HeldIndex(LexicalIndex):
    """Stops before it changes anything for the second time: after the first page."""

    gate: Gate | None = None
    changes = 0

    def apply(self, namespace: Namespace, **change: Any) -> None:
        self.changes += bool(change.get("upsert"))
        if self.changes == 2 and self.gate is not None:
            self.gate()
        super().apply(namespace, **change)


@pytest.mark.parametrize("rebuilt_by", ["drop", "rebuild elsewhere"])
def test_e4_an_index_dropped_while_it_is_followed_holds_everything_again(tmp_path: Path, rebuilt_by: str) -> None:
    store, index = MemoryStore(), HeldIndex(tmp_path / "index.db")
    here, index.gate = records(store, index), Gate()
    elsewhere = records(store, LexicalIndex(tmp_path / "index.db"))
    keys = [f"k{n}" for n in range(1_200)]
    put(here, keys)
    thread = threading.Thread(target=here.follow)
    thread.start()
    assert index.gate.reached.wait(60)
    here.clear_indexes()
    if rebuilt_by == "rebuild elsewhere":
        elsewhere.follow()
    index.gate.open.set()
    thread.join()
    assert {hit.id for hit in index.search(NOTES, "bike", 2_000)} == set(keys)


def test_an_index_that_another_moves_while_it_is_looked_at_is_not_dropped() -> None:
    """As where an entry is removed from a log, and the index that stands at it steps back."""

    class Moving(MemoryStore):
        moves: list[Callable[[], None]] = []  # noqa: RUF012 - of one test

        def scan(self, namespace: Namespace, **bounds: Any) -> Page:
            if self.moves:
                self.moves.pop()()
            return super().scan(namespace, **bounds)

    store, index = Moving(), Kept()
    here = records(store, index)
    put(here, ["one", "two"])
    here.follow()
    first, last = store.scan(NOTES).items

    def step_back() -> None:
        store.write(NOTES, remove=[last])
        index.apply(NOTES, position=(first.seq, first.id), since=(last.seq, last.id))

    store.moves.append(step_back)
    here.follow()
    assert (index.given, index.at) == (2, (first.seq, first.id)), "nothing was told twice"


def test_a_log_that_was_read_to_its_end_is_not_looked_at_again(distant: tuple[RedisStore, RoundTrips]) -> None:
    store, door = distant
    index = Kept()
    here = records(store, index)
    put(here, ["one", "two"])
    here.follow()
    put(here, ["three"])
    before = door.count
    here.follow()
    assert door.count - before == 2  # what is new in the log, and the record that it names
    assert index.texts == truth(here)


@pytest.fixture
def places(tmp_path: Path) -> Iterator[Callable[[Callable[[list[str]], None]], VectorIndex]]:
    """Vector indexes of one file, as several processes have them; each asks something of its own before it embeds."""
    made: list[VectorIndex] = []

    def make(before: Callable[[list[str]], None] = lambda _: None) -> VectorIndex:
        def embed(texts: list[str]) -> list[list[float]]:
            before(texts)
            return word_vectors(texts)

        made.append(VectorIndex(SQLiteVectors(tmp_path / "vectors.db"), Embedder(embed, name="words", remembered=0)))
        return made[-1]

    yield make
    for index in made:
        index.close()


def held_by(vectors: VectorIndex) -> set[str]:
    return {hit.id for hit in vectors.search(NOTES, "bike", 10_000)}


def test_e2_what_is_cleared_while_it_is_embedded_does_not_come_back(places: Callable[..., VectorIndex]) -> None:
    gate = Gate()
    vectors = places(lambda texts: gate() if "bike secret" in texts else None)
    here = records(MemoryStore(), LexicalIndex(":memory:"), vectors)
    put(here, ["secret", "other"])
    thread = threading.Thread(target=here.follow, kwargs={"index": vectors})
    thread.start()
    assert gate.reached.wait(60)
    here.clear()  # waits for no embedder
    gate.open.set()
    thread.join()
    assert held_by(vectors) == set()


@pytest.mark.parametrize("late", ["after the other", "before the other"])
def test_e2_two_that_follow_one_index_keep_no_ghosts(places: Callable[..., VectorIndex], late: str) -> None:
    """One clears while another embeds, which ends either after the first has embedded anew, or in the middle."""
    store, gate = MemoryStore(), Gate()
    slow = places(lambda texts: gate() if "bike secret" in texts else None)
    other = places(lambda texts: let_go() if "bike new" in texts and late == "before the other" else None)
    here, there = (records(store, LexicalIndex(":memory:"), each) for each in (slow, other))
    put(here, ["secret"])
    thread = threading.Thread(target=here.follow, kwargs={"index": slow})

    def let_go() -> None:
        gate.open.set()
        thread.join()

    thread.start()
    assert gate.reached.wait(60)
    there.clear()
    put(there, ["new"])
    there.follow(index=other)
    let_go()
    here.follow(index=slow)
    assert held_by(slow) == {"new"}
    assert other.position(NOTES) == (store.scan(NOTES).items[-1].seq, store.scan(NOTES).items[-1].id)


class Measured(LexicalIndex):
    """An index that knows how much it was told at once."""

    most = 0

    def apply(
        self,
        namespace: Namespace,
        *,
        upsert: Sequence[Document] = (),
        delete: Sequence[str] = (),
        position: Position | None = None,
        since: Position | None = None,
    ) -> None:
        self.most = max(self.most, len(upsert) + len(delete))
        super().apply(namespace, upsert=upsert, delete=delete, position=position, since=since)


def said_at_once(index: LexicalIndex, count: int) -> tuple[int, int]:
    """How many memories an index finds, that were added at once, and then when all of them are gone."""
    memory = LongTermMemory(MemoryStore(), index, user="ada")
    memory.add([Message(role="user", content=f"bike {n}") for n in range(count)])
    found = len(memory.search("bike", 2 * count))
    memory.delete([one.id for one in memory.all()])
    return found, len(memory.search("bike", 2 * count))


def put_at_once(index: LexicalIndex, count: int) -> tuple[int, int]:
    store = LongTermStore(store=MemoryStore(), index=index)
    names = [(("memories",), f"{n}") for n in range(count)]
    store.batch([PutOp(*name, {"text": "bike"}) for name in names])
    found = len(store.search(("memories",), query="bike", limit=2 * count))
    store.batch([PutOp(*name, None) for name in names])
    return found, len(store.search(("memories",), query="bike", limit=2 * count))


@pytest.mark.parametrize("at_once", [said_at_once, put_at_once])
def test_however_much_comes_at_once_an_index_is_told_a_part_at_a_time(
    at_once: Callable[[LexicalIndex, int], tuple[int, int]],
) -> None:
    index = Measured(":memory:")  # in the store's own file it would keep all who write there waiting
    assert at_once(index, 2300) == (2300, 0)
    assert index.most <= 500
    index.close()


def test_each_entry_is_reported_once_however_much_it_names() -> None:
    here = records(MemoryStore(), Kept())
    here.put({f"k{n}": b"bike" for n in range(1200)})
    put(here, ["k0", "k1", "new"])
    told: list[int] = []
    here.follow(told.append)
    assert told == [1, 1, 4]  # of these, the third names 200


def test_many_that_come_one_by_one_are_told_together() -> None:
    index = Measured(":memory:")
    memory = LongTermMemory(MemoryStore(), index, user="ada")
    for n in range(240):
        memory.add([Message(role="user", content=f"bike {n} {m}") for m in range(3)])
    assert len(memory.search("bike", 1000)) == 720
    assert index.most == 498  # of 166 entries
    index.close()


def test_who_begins_an_index_hides_nothing_that_another_put_there_meanwhile() -> None:
    store, index = MemoryStore(), Kept()
    here, there = records(store, index), records(store, index)
    put(here, ["old"])

    def meanwhile() -> None:
        index.before = lambda: None
        there.follow()
        store.clear(NOTES)
        put(there, ["new"])

    index.before = meanwhile
    here.follow()
    assert index.texts == truth(here) == {"new": "bike new"}


def emptied(store: Any) -> LongTermMemory:
    """A memory of which a server that evicts keys has taken the log alone."""
    memory = LongTermMemory(store, LexicalIndex(":memory:"), user="ada")
    memory.add([Message(role="user", content=f"My {what} is red.") for what in ("bike", "lamp")])
    assert len(memory.search("red")) == 2
    store.write(MEMORIES, remove=store.scan(MEMORIES).items)
    return memory


def test_a_lost_log_is_told_again_also_where_another_corrects_a_memory_meanwhile() -> None:
    store = Overtaken(MemoryStore(), where=lambda _, **change: change.get("guard"))
    memory = emptied(store)
    other = LongTermMemory(store.store, LexicalIndex(":memory:"), user="ada")
    bike = memory_id(Message(role="user", content="My bike is red."))
    store.first.append(lambda: other.update(bike, "My bike is blue."))
    assert [found.text for found in memory.search("lamp")] == ["My lamp is red."]
    assert [found.text for found in memory.search("bike")] == ["My bike is blue."]


def test_a_lost_log_of_a_store_that_knows_no_dates_is_no_error() -> None:
    class Dateless:
        def __init__(self) -> None:
            self._store = MemoryStore()

        def __getattr__(self, name: str) -> Any:
            if name == "dates":
                raise AttributeError(name)
            return getattr(self._store, name)

    assert emptied(Dateless()).search("bike") == []


def test_two_embedders_that_share_an_index_do_not_replace_each_other_for_ever(tmp_path: Path) -> None:
    store, calls = MemoryStore(), itertools.count(1)

    def mine(texts: list[str]) -> list[list[float]]:
        next(calls)
        theirs.follow()
        return word_vectors(texts)

    place = tmp_path / "vectors.db"
    theirs = records(store, VectorIndex(SQLiteVectors(place), Embedder(word_vectors, name="theirs", remembered=0)))
    ours = records(store, VectorIndex(SQLiteVectors(place), Embedder(mine, name="mine", remembered=0)))
    put(ours, ["a"])
    with pytest.raises(SearchError, match="replaced repeatedly"):
        ours.follow()
    assert next(calls) <= 20


@_forks
@_threads_beside
def test_g1_a_forked_child_searches_though_its_parent_was_indexing(tmp_path: Path) -> None:
    index = HeldIndex(tmp_path / "index.db")
    here, index.gate = records(MemoryStore(), index), Gate()
    put(here, [f"k{n}" for n in range(600)])
    thread = threading.Thread(target=here.follow)
    thread.start()
    assert index.gate.reached.wait(60)
    assert in_a_fork(lambda: str(len(here.search("bike", 1_000, lambda _, data: data)))) == "600"
    index.gate.open.set()
    thread.join()


def test_e2_what_is_cleared_has_left_the_indexes_at_once() -> None:
    index, vectors = Kept(), Kept()
    here = records(MemoryStore(), index, vectors)
    put(here, ["secret"])
    for each in (index, vectors):
        here.follow(index=each)
    here.clear()
    assert (index.texts, vectors.texts) == ({}, {})


# --- every order of things


_KEYS = st.sampled_from("abcdefgh")
_DEEDS = st.one_of(
    st.tuples(st.just("put"), _KEYS),
    st.tuples(st.just("put"), _KEYS),
    st.tuples(st.just("delete"), _KEYS),
    st.sampled_from([("clear", ""), ("drop", "0"), ("drop", "1"), ("tidy", ""), ("tidy", "")]),
    st.tuples(st.just("follow"), st.sampled_from("01")),
)


class World:
    """A store, and two indexes of it on two machines; on each machine two processes follow the machine's index."""

    def __init__(self) -> None:
        ids = itertools.count()
        self.new_id = lambda: f"e{next(ids)}"
        self.store = MemoryStore()
        self.indexes = [Kept(), Kept()]
        self.machines = [[records(self.store, index, new_id=self.new_id) for _ in range(2)] for index in self.indexes]
        self.versions = itertools.count()
        self.order: list[str] = []

    def do(self, deed: tuple[str, str], process: int = 0) -> None:
        what, which = deed
        here = self.machines[int(which) if which.isdigit() else 0][process]
        if what == "put":
            here.put({which: f"{which} {next(self.versions)}".encode()})
            self.order += [which] if which not in self.order else []
        elif what == "delete":
            here.delete([which])
            self.order = [key for key in self.order if key != which]
        elif what == "clear":
            here.clear()
            self.order = []
        elif what == "drop":
            here.clear_indexes()
        elif what == "tidy":
            compact_log(self.store, NOTES, new_id=self.new_id, ttl=None)
        else:
            here.follow()

    def interrupted(self, deeds: list[tuple[str, str]]) -> None:
        """Follow on both machines, and have something else done by other processes before each change."""
        left = iter(deeds)

        def before() -> None:
            for index in self.indexes:
                index.before = lambda: None
            if deed := next(left, None):
                self.do(deed, process=1)
            for index in self.indexes:
                index.before = before

        for machine in self.machines:
            for index in self.indexes:
                index.before = before
            machine[0].follow()
        for index in self.indexes:
            index.before = lambda: None


@given(st.lists(st.tuples(_DEEDS, st.lists(_DEEDS, max_size=6)), max_size=12), st.integers(1, 3))
def test_e4_in_the_end_an_index_holds_what_the_store_holds(deeds: list[tuple[Any, list[Any]]], part: int) -> None:
    world = World()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(following, "PAGE_SIZE", 2)
        patch.setattr(following, "_MAX_STARTS", 1_000)
        patch.setattr(journal, "_SLACK_ENTRIES", 1)
        patch.setattr(journal, "_REMOVE_BATCH_SIZE", part)
        for deed, meanwhile in deeds:
            world.do(deed)
            world.interrupted(meanwhile)
        for (here, _), index in zip(world.machines, world.indexes, strict=True):
            here.follow()
            assert index.texts == truth(here)
            assert index.at is None or index.at[0] == max(
                (item.seq for item in world.store.scan(NOTES).items), default=0
            )


@given(st.lists(_DEEDS.filter(lambda deed: deed[0] in {"put", "tidy", "delete"}), max_size=60))
def test_records_stay_in_the_order_of_their_first_writing(deeds: list[tuple[str, str]]) -> None:
    world = World()
    ever = [key for what, key in deeds if what == "delete"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "_SLACK_ENTRIES", 0)
        for deed in deeds:
            world.do(deed)
    assert [key for key in truth(world.machines[0][0]) if key not in ever] == [
        key for key in world.order if key not in ever
    ]
    assert sorted(truth(world.machines[0][0])) == sorted(world.order)


_WORDS = ["bike", "shed", "red", "rain", "piano", "tea", "train", "river", "bread", "lamp"]


@pytest.mark.parametrize("seed", range(12))
def test_e4_an_index_built_anew_answers_as_one_that_followed_all_deletions(seed: int) -> None:
    chance, ids, store = random.Random(seed), itertools.count(), MemoryStore()

    def memory() -> LongTermMemory:
        index = LexicalIndex(":memory:")
        return LongTermMemory(store, index, user="ada", clock=lambda: 1_000.0, new_id=lambda: f"e{next(ids)}")

    followed, sessions = memory(), ["monday", "tuesday"]
    for n in range(28):  # few enough that all are candidates: which of equal ones are is another matter
        text = f"{' '.join(chance.choices(_WORDS, k=chance.randint(1, 6)))} n{n}{chance.choice(['', '?'])}"
        message = Message(role=chance.choice(["user", "assistant"]), content=text, id=f"m{n}", created_at=1_000.0 + n)
        followed.add([message], session=chance.choice(sessions))
        if chance.random() < 0.5:
            followed.search(chance.choice(_WORDS))
        if chance.random() < 0.2:
            followed.delete([chance.choice(followed.all()).id])
        if chance.random() < 0.3:
            run(followed.forget_flow(chance.choice(sessions), [f"m{chance.randint(0, n)}"]))
        if chance.random() < 0.2 and (stored := followed.all()):
            followed.update(chance.choice(stored).id, f"{chance.choice(_WORDS)} c{n}")

    anew = memory()
    for word, other in itertools.pairwise(_WORDS):
        here, there = (each.search(f"{word} {other}?", 9, explain=True) for each in (followed, anew))
        assert [one.memory.id for one in here] == [one.memory.id for one in there]
        assert [one.score for one in here] == pytest.approx([one.score for one in there])
        assert [one.signals for one in here] == [pytest.approx(one.signals) for one in there]


# --- the log stays short


def user(text: str) -> Message:
    return Message(role="user", content=text)


def test_a_log_stays_in_proportion_to_the_memories(any_store: Store) -> None:
    ids = itertools.count()
    memory = LongTermMemory(any_store, LexicalIndex(":memory:"), user="ada", new_id=lambda: f"e{next(ids)}")
    memory.add([user("The report is ready.")])
    (kept,) = memory.all()
    for n in range(400):
        memory.update(kept.id, f"version {n}")
    assert any_store.scan(("longterm", "", "ada"), limit=0).total < 200
    for n in range(150):
        memory.add([user(f"note {n}")])
        memory.delete([memory.search(f"note {n}", 1)[0].memory.id])
    assert any_store.scan(("longterm", "", "ada"), limit=0).total < 200
    assert [found.text for found in memory.search("version")] == ["version 399"]
    assert memory.count() == 1


@pytest.fixture
def tidied(monkeypatch: pytest.MonkeyPatch) -> Callable[[Store], None]:
    """Tidies a log, which nobody else does."""
    monkeypatch.setattr("langmem_adapters.records.keyed.compact_log", lambda *_, **__: None)
    return lambda store: compact_log(store, NOTES, new_id=new_id, ttl=None)


def test_of_what_is_gone_a_tidied_log_tells_nothing(tidied: Callable[[Store], None]) -> None:
    store = MemoryStore()
    here = records(store, Kept())
    put(here, [f"k{n}" for n in range(100)])
    for n in range(100):
        here.delete([f"k{n}"])
    tidied(store)
    assert store.scan(NOTES, limit=0).total == 50  # the newest quarter


@pytest.mark.parametrize("together", [1, 2])
def test_a_log_does_not_grow_with_what_came_and_went(together: int) -> None:
    store = MemoryStore()
    here = records(store, Kept())
    for n in range(0, 4000, together):
        put(here, [f"k{n + m}" for m in range(together)])
        if n >= 100:
            here.delete([f"k{n - 100}"])
            here.delete([f"k{n - 100 + m}" for m in range(1, together)])
    assert store.scan(NOTES, limit=0).total < 2 * (2 * 100 + 64)


class Many(set[str]):
    """Keys of so many records that nobody can go through them for each entry."""

    def __sub__(self, other: object) -> Any:
        raise AssertionError("went through all records for one entry")


def test_what_a_log_need_not_tell_is_found_without_going_through_all_records_for_each_entry() -> None:
    items = [
        Item(n, str(n), encode(keys)) for n, keys in enumerate((["a"], ["gone"], ["a", "b"], ["b"], ["a", "gone"]))
    ]
    assert [item.seq for item in journal.stale_entries(items, Many({"a", "b", "c"}))] == [1, 3, 4]


def test_a_log_without_anything_to_leave_out_is_not_read_again_and_again(
    tidied: Callable[[Store], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    put(records(store, Kept()), [f"k{n}" for n in range(100)])
    tidied(store)
    monkeypatch.setattr(journal, "_missing_keys", None)  # what reads the records
    put(records(store, Kept()), [f"k{n}" for n in range(100, 264)])
    tidied(store)
    assert store.scan(NOTES, limit=0).total == 264
    put(records(store, Kept()), ["k0"])
    with pytest.raises(TypeError):
        tidied(store)


def test_a_long_log_is_tidied_a_part_at_a_time(tidied: Callable[[Store], None]) -> None:
    class Sized(MemoryStore):
        most = 0

        def scan(self, namespace: Namespace, **bounds: Any) -> Page:
            page = super().scan(namespace, **bounds)
            self.most = max(self.most, len(page.items))
            return page

        def write(self, namespace: Namespace, **change: Any) -> None:
            self.most = max(self.most, len(change.get("remove", ())))
            super().write(namespace, **change)

    store, index = Sized(), Kept()
    here = records(store, index)
    put(here, [f"k{n}" for n in range(1_200)])
    for text in ("car", "boat", "hat"):
        put(here, [f"k{n}" for n in range(1_200)], text)
        here.follow()
    tidied(store)
    assert store.scan(NOTES, limit=0).total == 2_400  # the first of each, and the newest quarter
    assert store.most <= 501
    put(here, ["k1"], "shoe")
    here.follow()
    assert index.texts == truth(here)


def test_an_index_that_is_a_little_behind_a_tidied_log_goes_on_where_it_stands(tidied: Callable[[Store], None]) -> None:
    store, index = MemoryStore(), Kept()
    here = records(store, index)
    put(here, [f"k{n}" for n in range(100)])
    tidied(store)
    put(here, ["k7"] * 150, "car")
    here.follow()
    put(here, ["k8"] * 20, "car")
    index.given = 0
    tidied(store)
    assert store.scan(NOTES, limit=0).total < 180
    here.follow()
    assert index.given == 1
    assert index.texts == truth(here)


def test_an_index_that_is_far_behind_a_tidied_log_begins_anew_and_once(tidied: Callable[[Store], None]) -> None:
    store, index = MemoryStore(), Kept()
    here = records(store, index)
    put(here, ["gone", *(f"k{n}" for n in range(800))])
    here.follow()
    here.delete(["gone"])
    put(here, [f"k{n}" for n in range(800)], "car")
    put(here, [f"k{n}" for n in range(800)], "boat")
    tidied(store)
    pages: list[int] = []
    here.follow(pages.append)
    assert len(pages) > 1  # the first of these ends before the entry up to which the log was tidied
    assert index.texts == truth(here)
    index.given = 0
    put(here, ["k1"], "hat")
    here.follow()
    assert index.given == 1


def test_an_index_that_is_behind_two_tidyings_begins_anew_though_the_second_did_not_go_as_far(
    tidied: Callable[[Store], None],
) -> None:
    store, index = MemoryStore(), Kept()
    here = records(store, index)
    put(here, [f"old{n}" for n in range(50)])
    here.follow()
    put(here, ["old0", *["old1"] * 60], "car")
    put(here, [f"new{n}" for n in range(40)])
    tidied(store)  # removes that "old0" is a car, since the first entry names it
    put(here, [f"late{n}" for n in range(200)])
    here.delete(["old20"])
    tidied(store)  # removes nothing but the first entry of what was deleted
    here.follow()
    assert index.texts == truth(here)


def test_an_interrupted_beginning_of_a_tidied_log_is_gone_on_with(tidied: Callable[[Store], None]) -> None:
    store, index = MemoryStore(), Kept()
    here = records(store, index)
    put(here, [f"k{n}" for n in range(1_200)])
    for text in ("car", "boat"):
        put(here, [f"k{n}" for n in range(1_200)], text)
    tidied(store)

    def stop(_: int) -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        here.follow(stop)
    given_before = index.given
    assert 0 < given_before < 1_200
    here.follow()
    assert index.texts == truth(here)
    assert index.given <= 2 * 1_200  # the newest quarter of the log names some again


def test_a_log_cleared_while_it_is_tidied_loses_nothing_that_is_new(
    tidied: Callable[[Store], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    here = records(store, Kept())
    put(here, ["a"] * 100)
    look = journal._missing_keys

    def cleared_meanwhile(store: Store, namespace: Namespace, named: Sequence[str]) -> set[str]:
        gone = look(store, namespace, named)
        here.clear()
        put(here, [f"new{n}" for n in range(50)])
        return gone

    monkeypatch.setattr(journal, "_missing_keys", cleared_meanwhile)
    tidied(store)
    assert len(truth(here)) == 50
    assert COMPACTION_KEY not in store.get(NOTES)


@pytest.mark.parametrize("overtaken", [False, True])
def test_tidying_leaves_the_expiry_as_its_writer_wants_it(monkeypatch: pytest.MonkeyPatch, overtaken: bool) -> None:
    now = [1_000.0]
    store = MemoryStore(clock=lambda: now[0])
    here = records(store, Kept())
    monkeypatch.setattr("langmem_adapters.records.keyed.compact_log", lambda *_, **__: None)
    for n in range(100):
        here.put({"a": str(n).encode()}, ttl=10)

    def overtake(*_: Any) -> set[str]:
        raise Conflict("another was quicker")

    if overtaken:
        monkeypatch.setattr(journal, "_missing_keys", overtake)
    compact_log(store, NOTES, new_id=new_id, ttl=10)
    assert (store.scan(NOTES, limit=0).total == 100) is overtaken
    now[0] += 11
    assert truth(here) == {}
    assert store.get(NOTES) == {}


def test_a_write_that_was_made_does_not_fail_because_its_log_cannot_be_tidied(caplog: pytest.LogCaptureFixture) -> None:
    kept = MemoryStore()
    here = records(cast("Store", Unplugged(kept, 2, after=False)), Kept(), new_id=lambda: "e29")  # one that tidies
    here.put({"a": b"car"})
    assert kept.get(NOTES, ["a"]) == {"a": b"car"}
    assert "could not be tidied; a later write tries again" in caplog.text


def test_a_write_hands_its_expiry_to_the_tidying(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[float | None] = []
    monkeypatch.setattr("langmem_adapters.records.keyed.compact_log", lambda *_, ttl, **__: told.append(ttl))
    here = records(MemoryStore(), Kept())
    for n in range(200):
        here.put({f"k{n}": b""}, ttl=10)
    puts = len(told)
    assert 0 < puts < 30
    for n in range(200):
        here.delete([f"k{n}"], ttl=10)
    assert puts < len(told) < puts + 30
    assert set(told) == {10}
