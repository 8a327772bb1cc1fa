"""Every place for vectors behaves alike, and beside an oracle that computes every cosine."""

from __future__ import annotations

import contextlib
import importlib
import sqlite3
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from llama_index.core import MockEmbedding, VectorStoreIndex
from llama_index.core.vector_stores import FilterOperator, SimpleVectorStore
from llama_index.core.vector_stores.types import BasePydanticVectorStore, VectorStoreQuery, VectorStoreQueryResult
from llama_index.vector_stores.chroma import ChromaVectorStore
from llama_index.vector_stores.qdrant import QdrantVectorStore
from qdrant_client import QdrantClient

from langmem_adapters import LongTermMemory, Message, open_store
from langmem_adapters.embedding import Embedder, Vector
from langmem_adapters.erasure import delete_user
from langmem_adapters.errors import ConfigurationError, Conflict, SearchError
from langmem_adapters.indexes import open_index, open_vectors, shared_vectors
from langmem_adapters.indexes.vector import EmbedderSpec, VectorIndex, Vectors
from langmem_adapters.indexes.vector_chroma import ChromaVectors
from langmem_adapters.indexes.vector_sqlite import SQLiteVectors
from langmem_adapters.keys import Namespace
from langmem_adapters.llamaindex import vector as node_vectors
from langmem_adapters.llamaindex.vector import NodeVectors
from langmem_adapters.protocols import START, Document
from langmem_adapters.stores.memory import MemoryStore
from langmem_adapters.stores.sqlite import SQLiteStore
from tests.chroma_server import ChromaServer
from tests.vector_places import VectorsConformance, cosine, word_vectors

NOTES = ("notes",)
# Qdrant says of its version without a server that it filters without an index.
local = pytest.mark.filterwarnings("ignore:Payload indexes have no effect:UserWarning")


def words(**options: Any) -> Embedder:
    return Embedder(word_vectors, **({"name": "words-64"} | options))


# ---- the kit, on every place


class TestInMemory(VectorsConformance):
    @pytest.fixture
    def vectors(self) -> Vectors:
        return SQLiteVectors(":memory:")


class TestInAFile(VectorsConformance):
    @pytest.fixture
    def vectors(self, tmp_path: Path) -> Iterator[Vectors]:
        with contextlib.closing(SQLiteVectors(tmp_path / "vectors.db")) as opened:
            yield opened


class TestInAFolderOfChroma(VectorsConformance):
    @pytest.fixture
    def vectors(self, tmp_path: Path) -> Iterator[Vectors]:
        with contextlib.closing(ChromaVectors(f"chroma:///{tmp_path}/chroma")) as opened:
            yield opened


class TestOnAServerOfChroma(VectorsConformance):
    @pytest.fixture
    def vectors(self, chroma_server: ChromaServer) -> Iterator[Vectors]:
        with contextlib.closing(ChromaVectors(chroma_server.url)) as opened:
            yield opened


class TestInASimpleVectorStore(VectorsConformance):
    @pytest.fixture
    def vectors(self, tmp_path: Path) -> Iterator[Vectors]:
        with contextlib.closing(NodeVectors(SimpleVectorStore(), tmp_path / "ledger.db")) as opened:
            yield opened


class OfOneDimension(VectorsConformance):
    """A store of LlamaIndex's whose collection has its dimension for good: that is said, and nothing is mixed."""

    refusal: str

    def test_another_dimension_begins_anew(self, index: VectorIndex, indexed: Callable[..., VectorIndex]) -> None:
        index.apply(NOTES, upsert=[Document("a", "bike")], position=(2, "a"))
        shorter = indexed(lambda texts: word_vectors(texts, 32))
        assert shorter.position(NOTES) is None
        with pytest.raises(SearchError, match=self.refusal):
            shorter.apply(NOTES, upsert=[Document("a", "bike")], position=(1, "a"))
        assert shorter.position(NOTES) is None


class TestInAChromaVectorStore(OfOneDimension):
    """LlamaIndex's own: it ranks by Euclidean distance here, takes an id twice for a mistake and scores in its way."""

    refusal = "ChromaVectorStore failed: InvalidArgumentError"

    @pytest.fixture
    def vectors(self, tmp_path: Path) -> Iterator[Vectors]:
        with contextlib.closing(ChromaVectors(f"chroma:///{tmp_path}/chroma")) as chroma:
            collection = chroma._get_client().create_collection("theirs", embedding_function=None)
            store = ChromaVectorStore(chroma_collection=collection)
            with contextlib.closing(NodeVectors(store, tmp_path / "ledger.db")) as opened:
                yield opened


@local
class TestInAQdrantVectorStore(OfOneDimension):
    """LlamaIndex's own: it makes its collection with the first node, and can neither delete nor search before."""

    refusal = "QdrantVectorStore failed: ValueError"

    @pytest.fixture
    def vectors(self, tmp_path: Path) -> Iterator[Vectors]:
        store = QdrantVectorStore("theirs", client=QdrantClient(":memory:"))
        with contextlib.closing(NodeVectors(store, tmp_path / "ledger.db")) as opened:
            yield opened


# ---- beside an oracle


TEXTS = st.lists(st.sampled_from(["bike", "shed", "red", "boat", "故乡", "\ud800", "?"]), max_size=5).map(" ".join)
IDS = st.sampled_from(["a", "b", "c", "d", "é", ""])
NAMES: st.SearchStrategy[Namespace] = st.sampled_from([(), ("n",), ("n", ""), ("n", "m"), ("\ud800",)])
CHANGES = st.lists(st.tuples(NAMES, st.dictionaries(IDS, TEXTS, max_size=4), st.sets(IDS, max_size=2)), max_size=8)


def walk(vectors: Vectors, changes: list[tuple[Namespace, dict[str, str], set[str]]], query: str, k: int) -> None:
    worlds: dict[Namespace, dict[str, str]] = {}
    index = VectorIndex(vectors, words())
    for n, (name, upsert, delete) in enumerate(changes):
        mark = repr(name)  # an id that names its namespace shows where a hit comes from
        world = worlds.setdefault(name, {})
        for id_ in delete:
            world.pop(mark + id_, None)
        world.update({mark + id_: text for id_, text in upsert.items()})
        documents = [Document(mark + id_, text) for id_, text in upsert.items()]
        index.apply(name, upsert=documents, delete=[mark + id_ for id_ in delete], position=(n, mark))
        asked = word_vectors([query])[0]
        known = {id_: word_vectors([text])[0] for id_, text in world.items()}
        expected = {id_: (1 + cosine(asked, v)) / 2 for id_, v in known.items() if any(v) and any(asked)}
        hits = index.search(name, query, k)
        assert len({hit.id for hit in hits}) == len(hits)
        assert [hit.score for hit in hits] == pytest.approx(sorted(expected.values(), reverse=True)[:k], abs=1e-5)
        assert [hit.score for hit in hits] == pytest.approx([expected[hit.id] for hit in hits], abs=1e-5)
        assert index.score(name, query, [*world, "nobody"]) == pytest.approx(expected, abs=1e-5)
        assert index.position(name) == (n, mark)
    for name in worlds:
        index.clear(name)


@given(CHANGES, TEXTS, st.integers(1, 4))
def test_every_namespace_is_a_world_of_its_own(
    changes: list[tuple[Namespace, dict[str, str], set[str]]], query: str, k: int
) -> None:
    with contextlib.closing(SQLiteVectors(":memory:")) as vectors:
        walk(vectors, changes, query, k)


@pytest.mark.parametrize("place", ["folder", "server", "nodes"])
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(changes=CHANGES, query=TEXTS, k=st.integers(1, 4))
def test_so_it_is_elsewhere(  # noqa: PLR0917 - Hypothesis gives them by name
    place: str,
    changes: list[tuple[Namespace, dict[str, str], set[str]]],
    query: str,
    k: int,
    tmp_path: Path,
    chroma_server: ChromaServer,
) -> None:
    if place == "nodes":
        vectors: Vectors = NodeVectors(SimpleVectorStore())
    else:
        vectors = ChromaVectors(f"chroma:///{tmp_path}/chroma" if place == "folder" else chroma_server.url)
    with contextlib.closing(vectors):
        walk(vectors, changes, query, k)


# ---- the index itself


def test_an_index_refuses_an_embedder_that_needs_a_loop() -> None:
    async def embed(texts: list[str]) -> list[list[float]]:
        return word_vectors(texts)

    with pytest.raises(ConfigurationError, match="not a coroutine function"):
        open_vectors("memory:", Embedder(embed, name="x"))


def test_a_position_that_is_asked_first_costs_one_call_and_only_where_something_is(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/index.db"
    with contextlib.closing(open_vectors(url, words())) as index:
        index.apply(NOTES, upsert=[Document("a", "bike")], position=(1, "a"))
    embedder = words()
    with contextlib.closing(open_vectors(url, embedder)) as index:
        assert index.position(("never",)) is None
        assert embedder.stats["calls"] == 0
        assert [index.position(NOTES), index.position(NOTES)] == [(1, "a")] * 2
        assert embedder.stats["calls"] == 1


def test_h2_a_change_embeds_what_is_new_and_a_repeated_query_nothing() -> None:
    embedder = words(batch=10)
    index = open_vectors("memory:", embedder)
    index.apply(NOTES, upsert=[Document(str(n), f"text {n}") for n in range(25)])
    assert (embedder.stats["calls"], embedder.stats["texts"]) == (3, 25)
    index.apply(NOTES, upsert=[Document("again", "text 7")], delete=["1"], position=(1, "m"))
    for _ in range(3):
        index.search(NOTES, "text", 3)
    index.search(NOTES, "text", 0)
    index.score(NOTES, "text", [])
    assert (embedder.stats["calls"], embedder.stats["texts"]) == (4, 26)


async def test_a_query_embedded_on_the_loop_is_remembered_by_the_index() -> None:
    embedder = words()
    index = open_vectors("memory:", embedder)
    index.apply(NOTES, upsert=[Document("a", "bike")])
    await index.embedder.aquery("a bike")
    calls = embedder.stats["calls"]
    assert [hit.id for hit in index.search(NOTES, "a bike", 1)] == ["a"]
    assert embedder.stats["calls"] == calls


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("memory:", "SQLiteVectors(':memory:')"),
        ("sqlite:///some.db", "SQLiteVectors('some.db')"),
        ("redis://:secret@host/0", "SQLiteVectors('langmem-"),
        ("chroma:////tmp/x%20y", "ChromaVectors('/tmp/x y')"),
        ("chroma+http://somewhere", "ChromaVectors('somewhere:8000')"),
        ("chroma+https://[::1]", "ChromaVectors('[::1]:443')"),
    ],
)
def test_a_url_says_where_and_nothing_is_opened(
    url: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    index = open_vectors(url, words())
    assert repr(index).startswith(f"VectorIndex({shown}")
    assert "secret" not in repr(index)
    index.close()
    assert list(tmp_path.iterdir()) == []


def test_words_and_vectors_of_a_url_share_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for url in ("redis://host/0", f"sqlite:///{tmp_path}/store.db"):
        for index in (open_index(url), open_vectors(url, words())):
            index.apply(NOTES, upsert=[Document("a", "bike")], position=(1, "a"))
            index.close()
    with contextlib.closing(SQLiteStore(tmp_path / "store.db")) as store:
        store.append(NOTES, [("a", b"bike")])
    assert len(list(tmp_path.glob("*.db"))) == 2


@pytest.mark.parametrize(
    ("url", "plain"),
    [
        ("redis://ada:one@host/0", "redis://host/0"),
        ("redis://:one@two@host/0?db=1", "redis://host/0?db=1"),
        ("redis://host/0?username=ada&password=one&db=1", "redis://host/0?&&db=1"),
        ("unix://ada:one@/run/redis.sock", "unix:///run/redis.sock"),
        ("redis+sentinel://:one@a,b/service?sentinel_password=two", "redis+sentinel://a,b/service?"),
    ],
)
def test_another_password_leads_to_the_same_file(url: str, plain: str) -> None:
    assert repr(open_index(url)) == repr(open_index(plain)) != repr(open_index("redis://another/0"))


@pytest.mark.parametrize(
    "urls",
    [
        (
            "redis://host",
            "redis://host:6379/0",
            "rediss://HOST/",
            "redis://host/3?db=0",
            "redis://ho%73t?socket_timeout=3",
        ),
        ("redis://host/1", "redis://:secret@host:6379/01/", "redis://host?protocol=3&db=1"),
        ("redis://", "redis://localhost", "redis://localhost:6379/0"),
        ("redis://[::1]", "redis://[::1]:6379/0", "redis://ada@[::1]?db=0"),
        ("redis://host:6380", "rediss://host:6380/0?ssl_ca_certs=ca.pem"),
        ("unix:///run/redis.sock", "unix:///run/redis%2Esock?db=0", "unix://:secret@/run/redis.sock"),
        ("unix:///run/redis.sock?db=1", "unix:///run/redis.sock?socket_timeout=3&db=1"),
        ("redis+cluster://a,b:7000", "redis+cluster://B:7000,a:6379/0?ssl=true"),
        (
            "redis+sentinel://a,b:26380/service",
            "redis+sentinel://:secret@b:26380,a:26379/service/0?sentinel_password=x",
        ),
        ("redis+sentinel://a,b:26380/service/1", "redis+sentinel://a,b:26380/service?db=1"),
        ("redis+sentinel://a,b:26380/other",),
        ("redis://host:port/0", "redis://:secret@host:port/0"),
        ("redis+sentinel://a,b:26380",),
        ("redis://host/zero",),
    ],
)
def test_however_a_server_s_database_is_spelled_its_index_lies_in_one_file(urls: tuple[str, ...]) -> None:
    (file,) = {repr(open_index(url)) for url in urls}
    assert all((file == repr(open_index(url))) is (url in urls) for url in _SERVERS)


_SERVERS = (
    *("redis://host", "redis://host/1", "redis://", "redis://[::1]", "redis://host:6380", "unix:///run/redis.sock"),
    *("unix:///run/redis.sock?db=1", "redis+cluster://a,b:7000", "redis+sentinel://a,b:26380/service"),
    *("redis+sentinel://a,b:26380/service/1", "redis+sentinel://a,b:26380/other", "redis://host:port/0"),
    *("redis+sentinel://a,b:26380", "redis://host/zero"),
)


@pytest.mark.parametrize(
    "url",
    [
        "chroma:",
        "chroma:///",
        "chroma://host/folder",
        "chroma:///folder?x=1",
        "chroma+http://",
        "chroma+http://me:secret@host",
        "chroma+http://me:secret\u2100@host",
        "chroma+http://me:secret[@host",
        "chroma://me:secret\u2100@folder",
        "chroma+http://host:port",
        "chroma+http://host/path",
        "chroma+ftp://host",
        "chroma+http://host?token=secret",
        7,
    ],
)
def test_a_wrong_url_is_refused_in_a_sentence(url: Any) -> None:
    with pytest.raises(ConfigurationError, match="Chroma") as caught:
        open_vectors(url, words())
    assert "secret" not in "".join(traceback.format_exception(caught.value))


def test_the_default_place_is_that_of_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANGMEM_STORE_URL", "sqlite:///mine.db")
    assert "mine.db" in repr(open_vectors(None, words()))
    assert "mine.db" in repr(open_index())


def test_one_index_a_process_for_a_url_and_an_embedder() -> None:
    embedder = words()
    one = shared_vectors("memory:", embedder)
    assert shared_vectors("memory:", embedder) is one
    assert shared_vectors("memory:", words()) is not one
    assert shared_vectors("memory:elsewhere", embedder) is not one
    assert open_vectors("memory:", embedder) is not one


_FIRST_USE = """
import asyncio, sys, threading
from langmem_adapters import Message, Settings
from langmem_adapters.embedding import Embedder

importing = []
sys.addaudithook(lambda event, given: importing.append(threading.current_thread()) if given[:1] == ("chromadb",) else 0)

async def main():
    ones = Embedder(lambda texts: [[1.0] for _ in texts], name="ones")
    memory = Settings(url="memory:", vectors_url="chroma:///folder", embedder=ones).long_term(user="ada")
    await memory.aadd([Message(role="user", content="My bike is in the shed.")])
    print(len(await memory.asearch("bike")), threading.main_thread() in importing, bool(importing))

asyncio.run(main())
"""


def test_a5_a_loop_goes_on_while_chroma_is_imported(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", _FIRST_USE], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "1 False True\n"


# ---- LlamaIndex's stores


class Recording(SimpleVectorStore):
    """Keeps what it is asked, and fails when told to."""

    asked: list[VectorStoreQuery] = []  # noqa: RUF012 - pydantic copies it
    fails: bool = False

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        self.asked.append(query)
        return super().query(query, **kwargs)

    def add(self, nodes: Any, **kwargs: Any) -> list[str]:
        if self.fails:
            raise RuntimeError("some content")
        return super().add(nodes, **kwargs)


def test_a_namespace_is_filtered_inside_of_the_store_s_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_vectors, "_MAX_EXACT_VECTORS", 0)  # so that nothing but the store proposes
    store = Recording()
    index = VectorIndex(NodeVectors(store), words())
    for name in (NOTES, ("other",)):
        index.apply(name, upsert=[Document("a", "bike"), Document("b", "boat")])
        assert [hit.id for hit in index.search(name, "bike", 3)] == ["a", "b"]
    kept = [query.filters.filters[0] for query in store.asked if query.filters]
    assert len(store.data.embedding_dict) == 4
    assert [(each.operator, query.similarity_top_k) for each, query in zip(kept, store.asked, strict=True)] == [  # type: ignore[union-attr]
        (FilterOperator.EQ, 3)
    ] * 2
    assert len({str(each) for each in kept}) == 2


def test_what_the_store_s_search_passes_over_is_found() -> None:
    """As Chroma's does with one of many equal vectors, now and then."""

    class PassingOver(SimpleVectorStore):
        def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
            found = super().query(query, **kwargs)
            return VectorStoreQueryResult(ids=(found.ids or [])[1:])

    index = VectorIndex(NodeVectors(PassingOver()), words())
    index.apply(NOTES, upsert=[Document(str(n), "red bike") for n in range(20)])
    index.apply(NOTES, upsert=[Document("boat", "green boat")])
    index.apply(("other",), upsert=[Document("boat", "green boat")])
    assert index.search(NOTES, "green boat", 30)[0].id == "boat"
    assert sorted(hit.id for hit in index.search(NOTES, "red bike", 30)) == sorted([*map(str, range(20)), "boat"])


@pytest.mark.parametrize("useless", [lambda ids: ids[:1] * len(ids), lambda ids: ["deleted", "deleted too", *ids]])
def test_what_a_store_s_search_gives_twice_or_has_not_yet_deleted_takes_no_place(
    useless: Callable[[list[str]], list[str]],
) -> None:
    """As Elasticsearch goes on finding for a second what was deleted."""

    class Late(SimpleVectorStore):
        def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
            found = super().query(query, **kwargs).ids or []
            return VectorStoreQueryResult(ids=useless(found)[: len(found)])

    index = VectorIndex(NodeVectors(Late()), words())
    index.apply(
        NOTES, upsert=[Document("boat", "green boat"), Document("bike", "red bike"), Document("car", "red car")]
    )
    assert [hit.id for hit in index.search(NOTES, "red bike", 2)] == ["bike", "car"]


def test_a_store_that_gives_no_result_is_a_search_error() -> None:
    class Silent(SimpleVectorStore):
        def query(self, query: VectorStoreQuery, **kwargs: Any) -> Any:  # noqa: ARG002 - as LlamaIndex calls it
            return None

    index = VectorIndex(NodeVectors(Silent()), words())
    index.apply(NOTES, upsert=[Document("a", "bike")])
    with pytest.raises(SearchError, match=r"^Silent failed: AttributeError$"):
        index.search(NOTES, "bike", 1)


def test_a_store_keeps_vectors_and_no_texts(tmp_path: Path) -> None:
    store = SimpleVectorStore()
    index = VectorIndex(NodeVectors(store, tmp_path / "ledger.db"), words())
    index.apply(("longterm", "planted-tenant"), upsert=[Document("planted-id", "planted-text")])
    assert "planted" not in str(store.to_dict())
    index.close()
    assert b"planted-text" not in (tmp_path / "ledger.db").read_bytes()


def test_a_failing_store_is_a_search_error_and_the_change_can_be_made_again() -> None:
    store = Recording()
    index = VectorIndex(NodeVectors(store), words())
    index.apply(NOTES, upsert=[Document("a", "bike")], position=(1, "a"))
    store.fails = True
    with pytest.raises(SearchError, match=r"^Recording failed: RuntimeError$"):
        index.apply(NOTES, upsert=[Document("a", "boat"), Document("b", "car")], position=(3, "b"))
    assert index.position(NOTES) == (1, "a")
    store.fails = False
    index.apply(NOTES, upsert=[Document("a", "boat"), Document("b", "car")], position=(3, "b"))
    assert index.position(NOTES) == (3, "b")
    assert [hit.id for hit in index.search(NOTES, "boat", 5)] == ["a", "b"]
    assert len(store.data.embedding_dict) == 2


def test_a_clearing_that_came_half_way_is_made_again_before_anything_is_left_out() -> None:
    """As where the store goes away meanwhile, or the process is killed."""

    class Brittle(SimpleVectorStore):
        deletes: int = 1

        def delete_nodes(self, *args: Any, **options: Any) -> None:
            self.deletes -= 1
            if self.deletes < 0:
                raise RuntimeError
            super().delete_nodes(*args, **options)

    store = Brittle()
    index = VectorIndex(NodeVectors(store, batch=3), words())
    memory = LongTermMemory(MemoryStore(), open_index("memory:"), vectors=index, user="ada")
    said = [f"bike number{n}" for n in range(10)]
    memory.add([Message(role="user", content=text) for text in said])
    memory.flush()
    with pytest.raises(SearchError, match="Brittle failed"):
        memory.rebuild()
    assert len(store.data.embedding_dict) < 10
    store.deletes = 100
    memory.flush()
    found = [index.search(("longterm", "", "ada"), text, 1)[0] for text in said]
    assert [memory.get(hit.id).message.text for hit in found] == said  # type: ignore[union-attr]


@local
@pytest.mark.parametrize("then", ["made again", "cleared"])
def test_a_store_that_failed_with_its_first_nodes_goes_on(then: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger has them by then, and the store has no collection yet to delete them from."""
    store = QdrantVectorStore("theirs", client=QdrantClient(":memory:"))
    index = VectorIndex(NodeVectors(store), words())
    with monkeypatch.context() as patch:
        patch.setattr(QdrantVectorStore, "add", lambda *_, **__: 1 / 0)
        with pytest.raises(SearchError, match="QdrantVectorStore failed: ZeroDivisionError"):
            index.apply(NOTES, upsert=[Document("a", "bike"), Document("b", "boat")], position=(2, "b"))
    if then == "cleared":
        index.clear(NOTES)
        assert index.search(NOTES, "boat", 5) == []
    index.apply(NOTES, upsert=[Document("b", "boat"), Document("a", "car")], position=(2, "b"))
    assert [hit.id for hit in index.search(NOTES, "boat", 1)] == ["b"]
    assert store.client.count("theirs").count == 2


class Bounded(SimpleVectorStore):
    """Takes no more than three nodes at a time."""

    def add(self, nodes: Any, **kwargs: Any) -> list[str]:
        assert len(nodes) <= 3
        return super().add(nodes, **kwargs)

    def delete_nodes(self, node_ids: Any = None, *args: Any, **kwargs: Any) -> None:
        assert len(node_ids) <= 3
        super().delete_nodes(node_ids, *args, **kwargs)


def test_what_was_deleted_or_made_by_another_embedder_is_gone_from_the_store_too() -> None:
    store = Bounded()
    vectors = NodeVectors(store, batch=3)
    index = VectorIndex(vectors, words())
    index.apply(NOTES, upsert=[Document(str(n), f"bike {n}") for n in range(10)])
    index.apply(NOTES, delete=[str(n) for n in range(5)])
    assert len(store.data.embedding_dict) == 5
    VectorIndex(vectors, words(name="newer")).apply(NOTES, upsert=[Document("a", "bike")])
    assert len(store.data.embedding_dict) == 1
    index.clear(NOTES)
    assert len(store.data.embedding_dict) == 0


@pytest.mark.parametrize("meanwhile", ["cleared", "begun anew", "moved on"])
def test_a_change_that_another_process_overtakes_leaves_nothing_behind(meanwhile: str, tmp_path: Path) -> None:
    class Overtaken(SimpleVectorStore):
        def add(self, nodes: Any, **options: Any) -> list[str]:
            if deeds:
                deeds.pop()()
            return super().add(nodes, **options)

    deeds: list[Callable[[], None]] = []
    store = Overtaken()
    slow, other = (VectorIndex(NodeVectors(store, tmp_path / "ledger.db"), words()) for _ in range(2))
    slow.apply(NOTES, upsert=[Document("a", "old bike")], position=(1, "one"))

    def overtake() -> None:
        if meanwhile != "moved on":
            other.clear(NOTES)
        since = {"begun anew": START, "moved on": (1, "one")}.get(meanwhile)
        if since:
            other.apply(NOTES, upsert=[Document("b", "new bike")], position=(2, "two"), since=since)

    deeds.append(overtake)
    with pytest.raises(Conflict):
        slow.apply(NOTES, upsert=[Document("b", "old bike")], position=(2, "two"), since=(1, "one"))
    for index in (slow, other):
        assert (index.position(NOTES), index.search(NOTES, "bike", 9)) == (None, [])
    assert len(store.data.embedding_dict) == 0
    with contextlib.closing(sqlite3.connect(tmp_path / "ledger.db")) as ledger:
        assert ledger.execute("SELECT count(*) FROM langmem_nodes").fetchone() == (0,)


def simple_store() -> tuple[BasePydanticVectorStore, Callable[[], int]]:
    """LlamaIndex's own, and how many nodes it has."""
    store = SimpleVectorStore()
    return store, lambda: len(store.data.embedding_dict)


def qdrant_store() -> tuple[BasePydanticVectorStore, Callable[[], int]]:
    """Qdrant's without a server, and how many nodes it has."""
    client = QdrantClient(":memory:")
    return QdrantVectorStore("theirs", client=client), lambda: client.count("theirs").count


@local
@pytest.mark.parametrize("opened", [simple_store, qdrant_store])
def test_places_of_one_vector_store_take_turns(
    opened: Callable[[], tuple[BasePydanticVectorStore, Callable[[], int]]], tmp_path: Path
) -> None:
    """In a process's memory no thread may change what another reads, and who is too late begins a namespace anew."""
    (store, count), together = opened(), threading.Barrier(4)

    def write(n: int) -> None:
        index = VectorIndex(NodeVectors(store, tmp_path / "ledger.db"), words())
        together.wait(20)
        for change in range(20):
            documents = [Document(f"{n}-{change}-{k}", "red bike") for k in range(5)]
            while True:
                since = index.position(NOTES) or START
                with contextlib.suppress(Conflict):
                    index.apply(NOTES, upsert=documents, position=(since[0] + 1, "entry"), since=since)
                    break
            index.search(NOTES, "bike", 5)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    index = VectorIndex(NodeVectors(store, tmp_path / "ledger.db"), words())
    assert index.position(NOTES) == (80, "entry")
    assert len(index.search(NOTES, "red bike", 1_000)) == count() == 400


def test_h5_a_search_finds_nothing_of_a_namespace_that_is_begun_as_its_own_is_cleared(tmp_path: Path) -> None:
    class Overtaken(SimpleVectorStore):
        def query(self, query: VectorStoreQuery, **options: Any) -> VectorStoreQueryResult:
            nearest = super().query(query, **options)
            if deeds:
                deeds.pop()()
            return nearest

    deeds: list[Callable[[], None]] = []
    store = Overtaken()
    slow, other = (VectorIndex(NodeVectors(store, tmp_path / "ledger.db"), words()) for _ in range(2))
    slow.apply(("ada",), upsert=[Document("ada's", "red bike")])

    def overtake() -> None:
        other.clear(("ada",))
        other.apply(("bob",), upsert=[Document("bob's", "red bike")])

    deeds.append(overtake)
    assert slow.search(("ada",), "red bike", 9) == []
    assert [hit.id for hit in slow.search(("bob",), "red bike", 9)] == ["bob's"]


@local
def test_a_memory_in_a_vector_store_of_llamaindex(tmp_path: Path) -> None:
    """As the docs have it: opened by its place, searched by meaning, pruned and erased with its user."""
    store = open_store(url := f"sqlite:///{tmp_path}/langmem.db")
    theirs = QdrantVectorStore("theirs", client=QdrantClient(":memory:"))
    vectors = open_vectors(NodeVectors(theirs, tmp_path / "ledger.db"), words())
    for user in ("ada", "bob"):
        memory = LongTermMemory(store, open_index(url), vectors=vectors, user=user)
        memory.add([Message(role="user", content=f"the red bike of {user}"), Message(role="user", content="a boat")])
        memory.flush()
        assert memory.search("bike", 1, explain=True)[0].signals["meaning"] > 0
    assert theirs.client.count("theirs").count == 4
    store.clear(("longterm", "", "ada"))  # as it expires
    assert vectors.namespaces(("longterm", "")) == [("longterm", "", "ada"), ("longterm", "", "bob")]
    delete_user(store, [open_index(url), vectors], user="ada")
    assert vectors.namespaces() == [("longterm", "", "bob")]
    assert theirs.client.count("theirs").count == 2
    with pytest.raises(ConfigurationError, match=r"NodeVectors.*not in QdrantVectorStore"):
        open_vectors(theirs, words())


def test_what_is_no_vector_store_is_refused_before_anything_is_searched() -> None:
    index = VectorStoreIndex([], embed_model=MockEmbedding(embed_dim=2))
    with pytest.raises(ConfigurationError, match="vector_store of an index is one, not VectorStoreIndex"):
        NodeVectors(index)  # type: ignore[arg-type]
    NodeVectors(index.vector_store)


def test_a_store_that_cannot_delete_by_id_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgetless(SimpleVectorStore):
        pass

    monkeypatch.setattr(Forgetless, "delete_nodes", BasePydanticVectorStore.delete_nodes)
    with pytest.raises(ConfigurationError, match="Forgetless cannot delete"):
        NodeVectors(Forgetless())
    with pytest.raises(ConfigurationError, match="batch"):
        NodeVectors(SimpleVectorStore(), batch=0)


def test_follows_a_store() -> None:
    """As the owner of an index uses it: the index catches up, whichever embedder begins."""
    records = importlib.import_module("langmem_adapters.records.keyed")
    store, vectors = MemoryStore(), SQLiteVectors(":memory:")
    number = iter(range(10_000))
    for name in ("words-64", "words-64b", "words-64"):
        kept = records.Records(
            store,
            NOTES,
            index=VectorIndex(vectors, words(name=name)),
            text_of=lambda _, data: data.decode(),
            new_id=lambda: f"e{next(number)}",
        )
        kept.put({f"{name}-{n}": f"bike {n}".encode() for n in range(3)})
        kept.put({"first": b"red boat"})
        found = kept.search("red boat", 1, lambda _, data: data)
        assert [(hit.id, data) for hit, data in found] == [("first", b"red boat")]
        assert len(kept.search("bike", 50, lambda _, data: data)) == len(list(kept.all()))


def test_a_cosine_that_is_rounded_beyond_1_gives_no_score_beyond_it() -> None:
    class Rounded:
        def cosines(self, _name: str, _maker: EmbedderSpec, _vector: Vector, ids: Sequence[str]) -> dict[str, float]:
            return dict(zip(ids, (1.000001, -1.000001, 0.5), strict=True))

    index = VectorIndex(cast("Any", Rounded()), Embedder(word_vectors, name="words"))
    assert index.score(("notes",), "bike", ["a", "b", "c"]) == {"a": 1.0, "b": 0.0, "c": 0.75}
