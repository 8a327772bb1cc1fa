"""An older and a newer version of the library on one store, as while a service is replaced process by process."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models import FakeListChatModel

from langmem_adapters import (
    BrainMemory,
    Experience,
    ExperiencePool,
    LongTermMemory,
    Message,
    SerializationError,
    Sessions,
    WorkingMemory,
    cached,
    encryption,
)
from langmem_adapters.encryption import AESGCMCodec
from langmem_adapters.experience import refresh
from langmem_adapters.indexes.lexical import LexicalIndex
from langmem_adapters.indexes.lexical_keyed import KeyedLexicalIndex
from langmem_adapters.keys import Namespace
from langmem_adapters.langchain import CachedChatModel, ExperienceCache
from langmem_adapters.langgraph import LongTermStore
from langmem_adapters.language.analysis import analyze
from langmem_adapters.model import Metric, Score
from langmem_adapters.operations import Checkup
from langmem_adapters.protocols import START, Document, Store
from langmem_adapters.sealing import SealedStore
from langmem_adapters.stores.memory import MemoryStore

NS = ("longterm", "", "ada")
OLDER, NEWER = "langmem-1", "langmem-1000"


class Version:
    """The index in a file, as a version of the library has it, and all that it has analyzed."""

    def __init__(self, path: Path, analyzer_id: str) -> None:
        self.read: list[str] = []
        self.index = LexicalIndex(path, analyzer=self.analyze, analyzer_id=analyzer_id)

    def analyze(self, text: str) -> list[str]:
        self.read.append(text)
        return list(analyze(text))

    def found(self, query: str, namespace: Namespace = NS) -> set[str]:
        return {hit.id for hit in self.index.search(namespace, query, 10)}


@pytest.fixture
def versions(tmp_path: Path) -> Iterator[tuple[Version, Version]]:
    older, newer = (Version(tmp_path / "index.db", name) for name in (OLDER, NEWER))
    with contextlib.closing(older.index), contextlib.closing(newer.index):
        yield older, newer


def said(*texts: str) -> list[Message]:
    return [Message(role="user", content=text) for text in texts]


def test_neither_builds_its_index_anew_because_of_the_other(versions: tuple[Version, Version]) -> None:
    store = MemoryStore()
    memories = [LongTermMemory(store, version.index, user="ada") for version in versions]
    memories[0].add(said("My bike is red.", "Rome is far."))
    for _ in range(2):  # the older one builds its own once more, where the newer one has taken its place
        assert [memory.search("bike", k=1)[0].text for memory in memories] == ["My bike is red."] * 2
    for version in versions:
        version.read.clear()
    for n, memory in enumerate(memories):
        memory.add(said(f"My boat has the number {n}."))
        assert [one.search(f"boat number {n}", k=1)[0].text for one in memories] == [f"My boat has the number {n}."] * 2
    for version in versions:
        assert [text for text in version.read if "bike" in text] == []
        assert sum("boat has" in text for text in version.read) == 2


def test_a_newer_version_replaces_what_an_older_one_has_built(versions: tuple[Version, Version]) -> None:
    older, newer = versions
    older.index.apply(NS, upsert=[Document("1", "bike")], position=(1, "1"), since=START)
    assert (newer.index.position(NS), newer.found("bike")) == (None, set())
    newer.index.apply(NS, position=(0, "begun"), since=START)
    assert (older.index.position(NS), older.found("bike")) == (None, set())


@pytest.mark.parametrize("way", ["deleted", "corrected"])
def test_what_changes_leaves_the_index_of_a_version_that_runs_no_more(
    versions: tuple[Version, Version], way: str
) -> None:
    older, newer = versions
    store = MemoryStore()
    memory, before = (LongTermMemory(store, version.index, user="ada") for version in (newer, older))
    memory.add(said("The secret is plover.", "Rome is far."))
    assert [len(one.search("secret")) for one in (memory, before)] == [1, 1]
    (known,) = older.found("plover")
    assert memory.delete([known]) if way == "deleted" else memory.update(known, "There is none.")
    assert [one.text for one in memory.search("plover secret")] == []
    assert older.found("plover") == set()
    assert len(older.found("Rome")) == 1
    told = [one.text for one in before.search("Is there none? Is Rome far?")]
    assert sorted(told) == ["Rome is far.", *(["There is none."] if way == "corrected" else [])]


def test_what_one_has_read_already_stays_where_the_other_reads_it_later(versions: tuple[Version, Version]) -> None:
    older, newer = versions
    store = MemoryStore()
    memory, before = (LongTermMemory(store, version.index, user="ada") for version in (newer, older))
    memory.add(said("My bike is red."))
    assert [len(one.search("bike")) for one in (memory, before)] == [1, 1]
    memory.add(said("My boat is blue."))
    assert len(before.search("boat")) == 1
    assert len(memory.search("boat")) == 1
    assert [len(older.found(word)) for word in ("bike", "boat")] == [1, 1]


def test_both_are_forgotten_together_and_listed_as_one(versions: tuple[Version, Version]) -> None:
    below = (*NS, "!")
    older, newer = versions
    for version in (newer, older):
        for namespace in (NS, below):
            version.index.apply(namespace, upsert=[Document("1", "bike")], position=(1, "1"), since=START)
    assert newer.index.namespaces() == older.index.namespaces(NS) == [NS, below]
    older.index.clear(NS)
    assert [version.index.position(NS) for version in versions] == [None, None]
    assert [version.found("bike") for version in versions] == [set(), set()]
    assert [version.found("bike", below) for version in versions] == [{"1"}, {"1"}]
    assert newer.index.namespaces() == [below]


def test_no_plain_words_stay_beside_an_index_with_a_key(tmp_path: Path) -> None:
    plain = Version(tmp_path / "index.db", NEWER).index
    one, other = (KeyedLexicalIndex(tmp_path / "index.db", key=bytes([n]) * 32) for n in range(2))
    for index, rest in ((plain, one), (one, other), (other, plain)):
        index.apply(NS, upsert=[Document("1", "bike")], position=(1, "1"), since=START)
        rest.apply(NS, position=(0, "begun"), since=START)
        assert index.position(NS) is None
        rest.clear(NS)
    for index in (plain, one, other):
        index.close()


def test_what_is_kept_without_a_position_stays_beside(versions: tuple[Version, Version]) -> None:
    older, newer = versions
    newer.index.apply(NS, position=(0, "begun"), since=START)
    older.index.apply(NS, upsert=[Document("1", "bike")])
    newer.index.apply(NS, upsert=[Document("1", "boat")], position=(1, "1"), since=(0, "begun"))
    assert (older.found("bike"), newer.found("boat")) == ({"1"}, {"1"})


def test_what_is_written_again_keeps_its_place(versions: tuple[Version, Version]) -> None:
    index = versions[1].index
    twins = [Document(id_, "bike", thread="t") for id_ in ("1", "2")]
    index.apply(NS, upsert=twins, position=(2, "2"), since=START)
    index.apply(NS, upsert=twins[:1], position=(3, "3"), since=(2, "2"))
    assert [hit.id for hit in index.search(NS, "bike", 2)] == ["2", "1"]


@pytest.mark.parametrize("which", [0, 1])
def test_the_index_of_a_version_that_knew_of_no_others_is_made_anew(
    versions: tuple[Version, Version], which: int
) -> None:
    newer = versions[1]
    versions[which].index.apply(NS, upsert=[Document("1", "bike")], position=(1, "1"), since=START)
    with contextlib.closing(sqlite3.connect(newer.index._database.path, isolation_level=None)) as connection:
        connection.execute("UPDATE langmem_lexical_namespaces SET name = 'longterm//ada/'")
        newer.index.apply(NS, position=(0, "begun"), since=START)
        assert connection.execute("SELECT COUNT(*) FROM langmem_lexical_namespaces").fetchone() == (1,)
        assert connection.execute("SELECT COUNT(*) FROM langmem_lexical_postings").fetchone() == (0,)


# --- what a newer version has stored in a form that this one does not know


def let_be_newer(store: Store) -> dict[Namespace, Any]:
    """Have everything that is stored say that it has another form, and give what is in the store then."""
    for namespace in list(store.namespaces()):
        items = store.scan(namespace).items
        store.write(namespace, put={k: _newer(v) for k, v in store.get(namespace).items()}, remove=items)
        store.append(namespace, [(item.id, _newer(item.data)) for item in items])
    return stored(store)


def _newer(data: bytes) -> bytes:
    return data.replace(b'{"v":1,', b'{"v":2,', 1) if data.startswith(b'{"v":1,') else data


def stored(store: Store) -> dict[Namespace, Any]:
    return {
        namespace: (sorted((item.id, item.data) for item in store.scan(namespace).items), store.get(namespace))
        for namespace in store.namespaces()
    }


def brain(store: Store) -> BrainMemory:
    return BrainMemory(store, "monday", user="ada", memory_k=2, long_term=long_term(store))


def long_term(store: Store) -> LongTermMemory:
    return LongTermMemory(store, LexicalIndex(":memory:"), user="ada")


def items_of(store: Store) -> LongTermStore:
    return LongTermStore(store=store)


PLACE = ("users", "ada")
SAID = said("My bike is red.", "Rome is far.")


def fill(store: Store) -> None:
    brain(store).add_messages(SAID)
    brain(store).set_summary("They talked.")
    brain(store).add_knowledge(["Ada has a bike."])
    long_term(store).add(SAID)
    WorkingMemory(store, user="ada").store("c", {"steps": 3})
    items_of(store).put(PLACE, "k", {"text": "My bike is red."}, ttl=60)


@pytest.mark.parametrize(
    "ask",
    [
        lambda store: brain(store).messages(),
        lambda store: brain(store).context(),
        lambda store: brain(store).get_summary(),
        lambda store: brain(store).set_summary("Nothing."),
        lambda store: brain(store).get_knowledge(),
        lambda store: brain(store).recall("bike"),
        lambda store: list(Sessions(store, user="ada").export()),
        lambda store: long_term(store).all(),
        lambda store: long_term(store).search("bike"),
        lambda store: long_term(store).add(SAID, session="tuesday"),
        lambda store: WorkingMemory(store, user="ada").retrieve("c"),
        lambda store: WorkingMemory(store, user="ada").update("c", lambda data: data or {"steps": 0}),
        lambda store: items_of(store).get(PLACE, "k"),
        lambda store: items_of(store).search(PLACE),
        lambda store: items_of(store).put(PLACE, "k", {"text": "None."}),
        lambda store: LongTermStore(store=store, clock=lambda: time.time() + 7200).sweep_ttl(),
    ],
)
def test_what_a_newer_version_stored_is_refused_and_nothing_takes_its_place(ask: Callable[[Store], Any]) -> None:
    store = MemoryStore()
    fill(store)
    before = let_be_newer(store)
    with pytest.raises(SerializationError, match="was written by a newer version of langmem_adapters; upgrade to read"):
        ask(store)
    assert stored(store) == before


def test_no_message_of_a_newer_version_leaves_its_session() -> None:
    store = MemoryStore()
    fill(store)
    before = let_be_newer(store)
    with pytest.raises(SerializationError, match="newer version"):
        brain(store).add_messages(said("My boat is blue.", "It is in the harbour."))
    after = stored(store)
    assert [item.data[:6] for item in store.scan(("brain", "", "ada", "monday")).items] == [b'{"v":2'] * 2 + [
        b'{"v":1'
    ] * 2
    assert after[NS] == before[NS]


def pool(store: Store, index: LexicalIndex) -> ExperiencePool:
    return ExperiencePool(store, tag="t", index=index, max_entries=3)


def capitals(pool: ExperiencePool) -> list[Any]:
    return [pool.create(Experience(req=f"the capital of {land}", resp=land)) for land in ("Peru", "Chile")]


@pytest.mark.parametrize("way", ["newer", "encrypted"])
@pytest.mark.parametrize(
    "ask",
    [
        lambda pool: pool.query("the capital of Peru", query_type="semantic"),
        lambda pool: pool.all(),
        lambda pool: pool.count(),
        lambda pool: list(pool.export()),
        lambda pool: pool.invalidate(lambda _: False),
        lambda pool: pool.delete(uuid="x"),
    ],
)
def test_no_experience_goes_that_only_others_can_read(way: str, ask: Callable[[ExperiencePool], Any]) -> None:
    store, index = MemoryStore(), LexicalIndex(":memory:")
    sealed = SealedStore(store, codec=AESGCMCodec({"k": bytes(32)}))
    theirs = pool(store if way == "newer" else sealed, index)
    capitals(theirs)
    assert theirs.query("the capital of Peru", query_type="semantic")
    before = let_be_newer(store)
    with pytest.raises(SerializationError, match="by a newer version" if way == "newer" else "there is no codec"):
        ask(pool(store, index))
    assert stored(store) == before


@pytest.mark.parametrize("way", ["newer", "encrypted"])
def test_what_only_others_can_read_is_a_miss_of_a_cache_and_stays(way: str, caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    sealed = SealedStore(store, codec=AESGCMCodec({"k": bytes(32)}))
    theirs = ExperiencePool(store if way == "newer" else sealed, tag="t")
    capitals(theirs)
    before = let_be_newer(store)
    own = ExperiencePool(store, tag="t")
    assert own.lookup("the capital of Peru") is None
    assert [own.stats()[name] for name in ("hits", "misses", "unreadable")] == [0, 1, 1]
    assert ("by a newer version" if way == "newer" else "there is no codec") in caplog.text
    assert stored(store) == before


@pytest.mark.parametrize("way", ["newer", "encrypted"])
@pytest.mark.parametrize("face", ["cached", "ExperienceCache", "CachedChatModel"])
@pytest.mark.parametrize("switch", [contextlib.nullcontext, refresh])
def test_the_answer_that_only_others_can_read_is_not_replaced(way: str, face: str, switch: Any) -> None:
    store, codec = MemoryStore(), AESGCMCodec({"k": bytes(32)})

    def ask(store: Store) -> None:
        cache, model = ExperienceCache(store=store, tag="t"), FakeListChatModel(responses=["In the shed."])
        if face == "cached":
            cached(store=store, tag="t")(lambda: 3)()
        elif face == "CachedChatModel":
            CachedChatModel(model, cache).invoke("Where is my bike?")
        else:
            model.model_copy(update={"cache": cache}).invoke("Where is my bike?")

    ask(SealedStore(store, codec=codec) if way == "encrypted" else store)
    before = let_be_newer(store) if way == "newer" else stored(store)
    with switch():
        ask(store)
    assert stored(store) == before


def test_no_experience_of_a_newer_version_has_to_go_before_others() -> None:
    store, index = MemoryStore(), LexicalIndex(":memory:")
    capitals(pool(store, index))
    let_be_newer(store)
    own = pool(store, index)
    own.create(Experience(req="the capital of Ghana", resp="Ghana", metric=Metric(score=Score(val=1))))
    own.create(Experience(req="the capital of Spain", resp="Spain", metric=Metric(score=Score(val=9))))
    assert own.lookup("the capital of Ghana") is None
    assert sum(data.startswith(b'{"v":2') for data in store.get(("experience", "", "", "t")).values()) == 2


def test_the_checkup_says_of_a_newer_version_what_to_do() -> None:
    store = MemoryStore()
    fill(store)
    let_be_newer(store)
    (found,) = [finding for finding in Checkup(store).examine() if finding.subject == "entries"]
    assert (found.level, found.message) == ("problem", "8 of 10 entries were written by a newer version")
    assert found.remedy.startswith("upgrade langmem_adapters")


def test_what_a_newer_version_encrypted_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    codec, store = AESGCMCodec({"k": bytes(32)}), MemoryStore()
    sealed = SealedStore(store, codec=codec)
    with monkeypatch.context() as newer:
        newer.setattr(encryption, "_FORMAT_VERSION", 3)
        BrainMemory(sealed, "monday", user="ada").add_talk("My bike is red.")
    with pytest.raises(SerializationError, match="encrypted by a newer version"):
        BrainMemory(sealed, "monday", user="ada").messages()
    with pytest.raises(SerializationError, match="is encrypted, and there is no codec"):
        BrainMemory(store, "monday", user="ada").messages()
