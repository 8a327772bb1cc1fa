"""Vectors in Chroma: one process a folder, servers that come and go, and nothing but vectors given to it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import http.server
import json
import os
import random
import shutil
import socket
import sys
import threading
import time
import uuid
from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import chromadb
import httpx
import pytest
from chromadb.api.client import Client
from chromadb.api.models.Collection import Collection
from chromadb.api.shared_system_client import SharedSystemClient
from chromadb.config import Settings
from chromadb.errors import InternalError

from langmem_adapters.embedding import Embedder
from langmem_adapters.errors import ConfigurationError, Conflict, LangmemError, SearchError
from langmem_adapters.indexes import open_vectors, vector_chroma_driver
from langmem_adapters.indexes.vector import VectorIndex
from langmem_adapters.indexes.vector_chroma import ChromaVectors
from langmem_adapters.indexes.vector_chroma_driver import nearest
from langmem_adapters.protocols import START, Document
from langmem_adapters.records.keyed import Records
from langmem_adapters.stores.sqlite import SQLiteStore
from tests.chroma_server import ChromaServer
from tests.interpreters import child
from tests.vector_places import word_vectors

NOTES = ("notes",)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return f"chroma:///{tmp_path}/chroma"


def index_at(url: Any, embed: Any = word_vectors, name: str = "words-64") -> VectorIndex:
    return open_vectors(url, Embedder(embed, name=name))


def chroma_of(index: VectorIndex) -> ChromaVectors:
    assert isinstance(index._vectors, ChromaVectors)
    return index._vectors


def _client(folder: Path, **options: Any) -> Any:
    return chromadb.PersistentClient(folder, settings=Settings(**options))


def found(index: VectorIndex, query: str, k: int = 1_000) -> list[str]:
    return [hit.id for hit in index.search(NOTES, query, k)]


def _try(url: str, progress: Connection) -> None:
    try:
        index_at(url).apply(NOTES, upsert=[Document("child", "bike")])
    except LangmemError as error:
        progress.send((type(error).__name__, str(error)))
    else:
        progress.send(None)


def _tried(url: str) -> Any:
    """What a second process meets."""
    process, progress = child(_try, url)
    met = progress.recv()
    process.join()
    progress.close()
    return met


# ---- one process a folder


def test_i2_a_second_process_is_refused_with_the_remedy(folder: str, tmp_path: Path) -> None:
    with contextlib.closing(index_at(folder)) as index:
        index.apply(NOTES, upsert=[Document("a", "bike")])
        kind, sentence = _tried(folder)
        assert kind == "ConfigurationError"
        assert f"`chroma run --path {tmp_path}/chroma`" in sentence
        assert "chroma+http://localhost:8000" in sentence
        assert "\n" not in sentence
        assert found(index, "bike") == ["a"]
    assert _tried(folder) is None
    with contextlib.closing(index_at(folder)) as index:
        assert sorted(found(index, "bike")) == ["a", "child"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_i2_a_forked_child_is_a_second_process(folder: str) -> None:
    with contextlib.closing(index_at(folder)) as index:
        index.apply(NOTES, upsert=[Document("a", "bike")])
        process, progress = child(_search_inherited, index, fork=True)
        assert progress.recv() == "ConfigurationError"
        process.join()
        progress.close()
        assert _tried(folder)[0] == "ConfigurationError"  # the child did not end the parent's claim
        assert found(index, "bike") == ["a"]


def _search_inherited(index: VectorIndex, progress: Connection) -> None:
    try:
        index.search(NOTES, "bike", 1)
    except LangmemError as error:
        progress.send(type(error).__name__)
    index.close()
    os._exit(0)


@pytest.mark.parametrize("given", [False, True])
def test_a_child_forked_after_chroma_was_used_is_refused_as_it_would_hang(
    folder: str, tmp_path: Path, given: bool
) -> None:
    index = index_at(_client(tmp_path / "given") if given else folder)
    index.apply(NOTES, upsert=[Document("a", "bike"), Document("b", "bike")])
    assert len(found(index, "bike")) == 2
    index.close()
    process, progress = child(_search_inherited, index, fork=True)
    refused = progress.poll(20) and progress.recv()
    process.kill()
    process.join()
    progress.close()
    assert refused == "ConfigurationError"


def test_i2_within_a_process_a_folder_is_shared_until_the_last_one_closes(folder: str, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    one, other = index_at(folder), index_at(f"chroma:///{tmp_path}/link/chroma")
    one.apply(NOTES, upsert=[Document("a", "bike")])
    assert found(other, "bike") == ["a"]
    one.close()
    one.close()
    assert _tried(folder)[0] == "ConfigurationError"
    assert found(other, "bike") == ["a"]
    other.close()
    assert _tried(folder) is None


def _hold(url: str, progress: Connection) -> None:
    index_at(url).apply(NOTES, upsert=[Document("child", "bike")])
    progress.send("held")
    progress.recv()


def test_i2_a_killed_process_holds_nothing(folder: str) -> None:
    process, progress = child(_hold, folder)
    assert progress.recv() == "held"
    index = index_at(folder)
    with pytest.raises(ConfigurationError, match="another process"):
        index.position(NOTES)
    process.kill()
    process.join()
    progress.close()
    assert found(index, "bike") == ["child"]
    index.close()


def test_a_folder_that_cannot_be_used_is_a_search_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "chroma.sqlite3").write_bytes(b"not a database" * 1000)
    for name in ("file", "damaged"):
        index = index_at(f"chroma:///{tmp_path}/{name}")
        sentences = set()
        for _ in range(3):
            with pytest.raises(SearchError, match=f"{tmp_path}/{name} failed") as caught:
                index.position(NOTES)
            sentences.add(str(caught.value))
        (sentence,) = sentences
        assert "\n" not in sentence
        index.close()
    shutil.rmtree(tmp_path / "damaged")
    assert index.position(NOTES) is None
    index.close()


def test_a_folder_that_was_removed_in_use_is_begun_anew_after_one_failure(tmp_path: Path) -> None:
    with contextlib.closing(index_at(f"chroma:///{tmp_path}/removed")) as index:
        index.apply(NOTES, upsert=[Document("a", "bike")], position=(1, "a"))
        shutil.rmtree(tmp_path / "removed")
        with pytest.raises(SearchError, match="removed failed: its files were removed or replaced"):
            index.clear(NOTES)
        assert index.position(NOTES) is None
        index.apply(NOTES, upsert=[Document("b", "bike")])
        assert found(index, "bike") == ["b"]
    assert _tried(f"chroma:///{tmp_path}/removed") is None


def test_all_who_use_a_removed_folder_begin_it_anew_together_and_alone(tmp_path: Path) -> None:
    url = f"chroma:///{tmp_path}/removed"
    one, other = index_at(url), index_at(url)
    with contextlib.closing(one), contextlib.closing(other):
        one.apply(NOTES, upsert=[Document("a", "bike")])
        assert found(other, "bike") == ["a"]
        shutil.rmtree(tmp_path / "removed")
        with pytest.raises(SearchError, match="its files were removed or replaced"):
            one.clear(NOTES)
        one.apply(NOTES, upsert=[Document("b", "bike")])
        assert _tried(url)[0] == "ConfigurationError"
        with pytest.raises(SearchError, match="its files were removed or replaced"):
            other.clear(NOTES)
        other.apply(NOTES, upsert=[Document("c", "bike")])
        assert sorted(found(one, "bike")) == sorted(found(other, "bike")) == ["b", "c"]
    assert _tried(url) is None


def test_a_folder_that_a_file_or_another_link_replaced_is_a_search_error_and_not_kept(tmp_path: Path) -> None:
    link = tmp_path / "link"
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    link.symlink_to(tmp_path / "first")
    with contextlib.closing(index_at(f"chroma:///{link}")) as index:
        index.apply(NOTES, upsert=[Document("a", "bike")])
        link.unlink()
        shutil.rmtree(tmp_path / "first")
        (tmp_path / "first").write_text("x")
        link.symlink_to(tmp_path / "second")
        with pytest.raises(SearchError, match="its files were removed or replaced"):
            index.clear(NOTES)
        index.apply(NOTES, upsert=[Document("b", "bike")])
        assert found(index, "bike") == ["b"]
    assert _tried(f"chroma:///{link}") is None


def test_a_folder_is_its_name_whatever_that_holds(tmp_path: Path) -> None:
    with contextlib.closing(index_at(f"chroma:///{tmp_path}/a#1")) as index:
        assert index.position(NOTES) is None
    assert (tmp_path / "a#1" / "chroma.sqlite3").is_file()


def test_somebody_else_s_client_of_the_folder_is_a_search_error(folder: str, tmp_path: Path) -> None:
    with (
        contextlib.closing(_client(tmp_path / "chroma", allow_reset=True)),
        contextlib.closing(index_at(folder)) as index,
        pytest.raises(SearchError, match=r"already exists for .* with different settings"),
    ):
        index.position(NOTES)


# ---- what Chroma is given


def test_i3_h4_chroma_has_no_embedder_no_telemetry_and_no_texts(folder: str, tmp_path: Path) -> None:
    with contextlib.closing(index_at(folder)) as index:
        index.apply(("longterm", "planted-user"), upsert=[Document("id", "planted text")], position=(1, "e"))
        client = chroma_of(index)._get_client()
        assert client.get_settings().anonymized_telemetry is False
        (collection,) = client.list_collections()
        got = collection.get()
        assert (got["documents"], got["metadatas"]) == ([None], [None])
        assert collection.configuration_json["embedding_function"] in ({"type": "legacy"}, None)
        assert collection.configuration_json["hnsw"]["space"] == "cosine"
    written = b"".join(path.read_bytes() for path in (tmp_path / "chroma").rglob("*") if path.is_file())
    assert b"planted" not in written


def test_changes_are_given_in_parts_that_chroma_takes(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    upsert = Collection.upsert

    def watched(self: Collection, ids: Any, **given: Any) -> None:
        sizes.append(len(ids))
        upsert(self, ids=ids, **given)

    monkeypatch.setattr(Collection, "upsert", watched)
    with contextlib.closing(index_at(folder)) as index:
        client = chroma_of(index)._get_client()
        monkeypatch.setattr(client, "get_max_batch_size", lambda: 10)
        index.apply(NOTES, upsert=[Document(str(n), f"bike {n}") for n in range(25)])
        assert sizes == [10, 10, 5]
        assert len(index.score(NOTES, "bike", [str(n) for n in range(25)])) == 25
        index.apply(NOTES, delete=[str(n) for n in range(24)])
        assert found(index, "bike") == ["24"]
        sizes.clear()
        monkeypatch.setattr(client, "get_max_batch_size", lambda: 5_000)
        wide = index_at(folder, lambda texts: word_vectors(texts, 300_000), "wide")
        wide.apply(("wide",), upsert=[Document(str(n), f"bike {n}") for n in range(7)])
        wide.close()
        assert sizes == [3, 3, 1]


def test_a_client_may_be_given_and_stays_open(tmp_path: Path) -> None:
    with contextlib.closing(_client(tmp_path / "own")) as client:
        index = index_at(client)
        assert repr(index).startswith("VectorIndex(ChromaVectors('the given client')")
        index.apply(NOTES, upsert=[Document("a", "bike")])
        index.close()
        assert client.count_collections() == 1
        assert found(index, "bike") == ["a"]


def test_an_asynchronous_client_is_refused_where_it_is_given(chroma_server: ChromaServer) -> None:
    client = asyncio.run(chromadb.AsyncHttpClient(host="127.0.0.1", port=chroma_server.port))
    with pytest.raises(ConfigurationError, match=r"a synchronous client, .* and not in AsyncClient$"):
        index_at(client)


def test_a_collection_whose_mark_is_damaged_is_a_search_error(tmp_path: Path) -> None:
    with contextlib.closing(_client(tmp_path / "own")) as client:
        index = index_at(client)
        index.apply(NOTES, upsert=[Document("a", "bike")])
        (collection,) = client.list_collections()
        collection.modify(metadata={"langmem": "{"})
        for ask in (index.position, index.is_of_another_embedder):
            with pytest.raises(SearchError, match=r"^the given client failed: JSONDecodeError$"):
                ask(NOTES)


def test_a_search_goes_on_where_its_index_is_closed_in_the_middle(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    index = index_at(folder)
    index.apply(NOTES, upsert=[Document("a", "bike")])
    index.close()
    fetched, closed = threading.Event(), threading.Event()
    real = Client.get_collection

    def slow(client: Any, *args: Any, **options: Any) -> Any:
        collection = real(client, *args, **options)
        fetched.set()
        assert closed.wait(20)
        return collection

    monkeypatch.setattr(Client, "get_collection", slow)
    with ThreadPoolExecutor(1) as pool:
        search = pool.submit(found, index, "bike")
        assert fetched.wait(20)
        index.close()
        closed.set()
        assert search.result(20) == ["a"]
    assert _tried(folder) is None  # whoever was last has left the folder
    assert sorted(found(index, "bike")) == ["a", "child"]  # and nothing of the client that was closed is in use
    assert _tried(folder)[0] == "ConfigurationError"  # nor is the new one closed before anybody says so
    index.close()


def test_a_search_of_what_is_cleared_in_the_middle_finds_nothing(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with contextlib.closing(index_at(folder)) as index, contextlib.closing(index_at(folder)) as other:
        other.apply(NOTES, upsert=[Document("a", "bike")])
        real = Client.get_collection

        def overtaken(client: Any, *args: Any, **options: Any) -> Any:
            collection = real(client, *args, **options)
            monkeypatch.undo()
            other.clear(NOTES)
            return collection

        monkeypatch.setattr(Client, "get_collection", overtaken)
        assert found(index, "bike") == []
        other.apply(NOTES, upsert=[Document("b", "bike")])
        assert found(index, "bike") == ["b"]


@pytest.mark.parametrize("fails", [True, False], ids=["an error", "ids without vectors"])
def test_a_search_of_what_is_half_cleared_waits_for_the_rest(
    folder: str, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """Either is what Chroma was seen to answer then."""
    deleting, answered = threading.Event(), threading.Event()
    real_get, real_delete = Collection.get, Client.delete_collection

    def delete(client: Any, name: str) -> None:
        deleting.set()
        assert answered.wait(20)
        real_delete(client, name)

    def get(collection: Any, *args: Any, **options: Any) -> Any:
        rows = real_get(collection, *args, **options)
        answered.set()
        if fails:
            raise InternalError("Missing field: [Missing metadata segment]")
        return {**rows, "embeddings": []}

    with contextlib.closing(index_at(folder)) as index, ThreadPoolExecutor(1) as pool:
        index.apply(NOTES, upsert=[Document("a", "bike")])
        assert set(index.score(NOTES, "bike", ["a"])) == {"a"}
        monkeypatch.setattr(Client, "delete_collection", delete)
        monkeypatch.setattr(Collection, "get", get)
        clearing = pool.submit(index.clear, NOTES)
        assert deleting.wait(20)
        assert index.score(NOTES, "bike", ["a"]) == {}
        clearing.result(20)


def test_many_indexes_of_a_folder_are_opened_and_closed_at_the_same_time(folder: str) -> None:
    with contextlib.closing(index_at(folder)) as index:
        index.apply(NOTES, upsert=[Document("a", "bike")])

    def search(_: int) -> list[list[str]]:
        together.wait(20)
        results = []
        for _ in range(10):
            with contextlib.closing(index_at(folder)) as index:
                results.append(found(index, "bike"))
        return results

    together = threading.Barrier(8)
    with ThreadPoolExecutor(8) as pool:
        assert [*pool.map(search, range(8))] == [[["a"]] * 10] * 8
    assert _tried(folder) is None


def test_a_folder_that_is_opened_as_its_last_index_is_closed_stays_open(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, searches = SharedSystemClient._decrement_refcount, []

    def overtaken(identifier: str) -> int:
        left = real(identifier)
        if left == 0:
            searches.append(pool.submit(found, other, "bike"))
            wait(searches, 1)  # it may be made to wait for the end of this
        return left

    with ThreadPoolExecutor(1) as pool, contextlib.closing(index_at(folder)) as other:
        with contextlib.closing(index_at(folder)) as last:
            last.apply(NOTES, upsert=[Document("a", "bike")])
            monkeypatch.setattr(SharedSystemClient, "_decrement_refcount", overtaken)
        monkeypatch.undo()
        assert [search.result(20) for search in searches] == [["a"]]
        assert found(other, "bike") == ["a"]


def test_indexes_of_one_folder_take_turns_and_begin_nothing_anew(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped: list[str] = []
    real = Client.delete_collection

    def delete(client: Any, name: str) -> None:
        dropped.append(name)
        real(client, name)

    monkeypatch.setattr(Client, "delete_collection", delete)

    def write(n: int) -> None:
        records = _records(folder, tmp_path / "notes.db")
        for change in range(10):
            records.put({f"{n}-{change}": b"bike"})
            records.follow()

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(write, range(6)))
    assert len(found(index_at(folder), "bike")) == 60
    assert dropped == []


def test_a_search_by_hnsw_misses_next_to_nothing(folder: str) -> None:
    chance = random.Random(3)
    known = {f"d{n}": [chance.gauss(0, 1) for _ in range(48)] for n in range(3_000)}
    queries = {f"q{n}": [chance.gauss(0, 1) for _ in range(48)] for n in range(20)}
    embed = lambda texts: [{**known, **queries}[text] for text in texts]  # noqa: E731
    with (
        contextlib.closing(index_at(folder, embed, "random")) as index,
        contextlib.closing(index_at("memory:", embed, "random")) as exact,
    ):
        for each in (index, exact):
            each.apply(NOTES, upsert=[Document(id_, id_) for id_ in known])
        right = [len(set(found(index, q, 10)) & set(found(exact, q, 10))) for q in queries]
    assert sum(right) >= 0.95 * 200


# ---- crashes


def test_a_position_is_written_after_its_vectors(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with contextlib.closing(index_at(folder)) as index:
        index.apply(NOTES, upsert=[Document("a", "bike")], position=(1, "a"))
        for method in ("modify", "upsert", "delete"):
            with monkeypatch.context() as patch:
                patch.setattr(Collection, method, _crash)
                with pytest.raises(SearchError, match=r"failed: InterruptedError$"):
                    index.apply(NOTES, upsert=[Document("b", "boat")], delete=["a"], position=(3, "b"))
            assert index.position(NOTES) == (1, "a")
        index.apply(NOTES, upsert=[Document("b", "boat")], delete=["a"], position=(3, "b"))
        assert (index.position(NOTES), found(index, "bike")) == ((3, "b"), ["b"])


@pytest.mark.parametrize("meanwhile", ["cleared", "begun anew", "moved on"])
def test_a_change_that_another_process_overtakes_leaves_nothing_behind(
    meanwhile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = _client(tmp_path)
    slow, other = index_at(client), index_at(client)
    slow.apply(NOTES, upsert=[Document("a", "bike")], position=(1, "one"))
    upsert = Collection.upsert
    deeds = ["one"]

    def overtaken(self: Collection, **rows: Any) -> None:
        if deeds:
            deeds.pop()
            if meanwhile != "moved on":
                other.clear(NOTES)
            since = {"begun anew": START, "moved on": (1, "one")}.get(meanwhile)
            if since:
                other.apply(NOTES, upsert=[Document("b", "new bike")], position=(2, "two"), since=since)
        upsert(self, **rows)

    monkeypatch.setattr(Collection, "upsert", overtaken)
    with pytest.raises(Conflict):
        slow.apply(NOTES, upsert=[Document("b", "old bike")], position=(2, "two"), since=(1, "one"))
    if meanwhile == "begun anew":  # in a collection of its own, which this change never touched
        assert (slow.position(NOTES), found(slow, "bike")) == ((2, "two"), ["b"])
    else:
        assert (slow.position(NOTES), found(slow, "bike")) == (None, [])


def _crash(*_: Any, **__: Any) -> None:
    raise InterruptedError("some id")


def _records(url: str, store: Path) -> Records:
    return Records(
        SQLiteStore(store),
        NOTES,
        index=index_at(url),
        text_of=lambda _, data: data.decode(),
        new_id=lambda: uuid.uuid4().hex,
    )


def _follow(url: str, store: Path, progress: Connection) -> None:
    following = _records(url, store)
    progress.send("begun")
    following.follow(progress.send)
    progress.recv()


def test_a_killed_follower_loses_nothing(folder: str, tmp_path: Path) -> None:
    for round_ in range(2):
        ours = _records(folder, tmp_path / "store.db")
        assert isinstance(ours.index, VectorIndex)
        for n in range(700):
            ours.put({f"d{(n * 7) % 900}": f"bike {round_} {n}".encode()})
        ours.delete([f"d{n}" for n in range(round_ * 10, round_ * 10 + 10)])
        process, progress = child(_follow, folder, tmp_path / "store.db")
        progress.recv()
        if round_:
            progress.recv()
        process.kill()
        process.join()
        progress.close()
        hits = ours.search("bike", 10, lambda _, data: data)
        truth = dict(ours.all())
        exact = index_at("memory:")
        exact.apply(NOTES, upsert=[Document(key, data.decode()) for key, data in truth.items()])
        every = [f"d{n}" for n in range(900)]
        assert ours.index.score(NOTES, "bike", every) == pytest.approx(exact.score(NOTES, "bike", every), abs=1e-5)
        assert {hit.id: data for hit, data in hits}.items() <= truth.items()
        assert [hit.score for hit, _ in hits] == pytest.approx(
            [hit.score for hit in exact.search(NOTES, "bike", 10)], abs=1e-5
        )
        ours.index.close()
        ours.store.close()


# ---- servers


def _add(url: str, writer: int, progress: Connection) -> None:
    index = index_at(url)
    for n in range(25):
        index.apply(NOTES, upsert=[Document(f"{writer}-{n}", f"bike {n}")], position=(n, f"{writer}-{n}"))
    index.close()
    progress.send("done")


def test_i2_on_a_server_processes_see_each_other_at_once(chroma_server: ChromaServer) -> None:
    names = ["mine", *(f"{writer}-{n}" for writer in range(2) for n in range(25))]
    with contextlib.closing(index_at(chroma_server.url)) as index:
        index.apply(NOTES, upsert=[Document("mine", "bike")])
        children = [child(_add, chroma_server.url, writer) for writer in range(2)]
        seen: set[str] = set()
        for process, progress in children:
            while not progress.poll():
                # By name: a search in Chroma's graph may pass some over where many are equally near.
                now = set(index.score(NOTES, "bike", names))
                assert seen <= now
                seen = now
            assert progress.recv() == "done"
            process.join()
            progress.close()
        assert set(index.score(NOTES, "bike", names)) == set(names)
        assert set(found(index, "bike")) <= set(names)


def test_a_server_that_goes_and_comes_back(chroma_server: ChromaServer) -> None:
    with contextlib.closing(index_at(chroma_server.url)) as index:
        index.apply(NOTES, upsert=[Document("a", "bike")], position=(1, "a"))
        chroma_server.kill()
        for call in (
            lambda: index.search(NOTES, "bike", 1),
            lambda: index.score(NOTES, "bike", ["a"]),
            lambda: index.apply(NOTES, upsert=[Document("b", "boat")]),
            lambda: index.position(NOTES),
            lambda: index.clear(NOTES),
        ):
            with pytest.raises(SearchError, match=f"^127.0.0.1:{chroma_server.port} cannot be reached: ") as caught:
                call()
            assert "\n" not in str(caught.value)
            assert caught.value.__cause__ is not None
        chroma_server.start()
        assert index.position(NOTES) == (1, "a")
        index.apply(NOTES, upsert=[Document("b", "boat")], position=(2, "b"))
        assert found(index, "bike") == ["a", "b"]


def test_a_server_that_was_never_there(chroma_server: ChromaServer) -> None:
    chroma_server.kill()
    index = index_at(chroma_server.url)
    for _ in range(2):
        with pytest.raises(SearchError, match=f"^127.0.0.1:{chroma_server.port} cannot be reached: ") as caught:
            index.search(NOTES, "bike", 1)
        assert "\n" not in str(caught.value)
    chroma_server.start()
    assert index.search(NOTES, "bike", 1) == []
    index.close()


def test_a_server_that_hangs_keeps_a_search_waiting_for_a_moment(
    chroma_server: ChromaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with contextlib.closing(index_at(chroma_server.url)) as index:
        index.apply(NOTES, upsert=[Document("a", "bike")], position=(1, "a"))
        chroma = chroma_of(index)
        assert chroma._get_client()._server._session.timeout == httpx.Timeout(60)
        chroma_server.freeze()
        monkeypatch.setattr(vector_chroma_driver, "_READ_TIMEOUT", 0.2)
        for call in (
            lambda: index.search(NOTES, "bike", 1),
            lambda: index.score(NOTES, "bike", ["a"]),
            lambda: index.position(NOTES),
        ):
            with pytest.raises(SearchError, match=f"^127.0.0.1:{chroma_server.port} cannot be reached: ReadTimeout"):
                call()
        monkeypatch.undo()
        chroma_server.thaw()
        assert found(index, "bike") == ["a"]


def test_who_waits_for_a_server_that_hangs_from_the_beginning_waits_beside_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(vector_chroma_driver, "_READ_TIMEOUT", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as silent, ThreadPoolExecutor(8) as threads:
        index = index_at(f"chroma+http://127.0.0.1:{silent.getsockname()[1]}")
        began = time.monotonic()
        for search in [threads.submit(index.search, NOTES, "bike", 1) for _ in range(8)]:
            with pytest.raises(SearchError, match="cannot be reached: ReadTimeout"):
                search.result()
        assert time.monotonic() - began < 6  # and not eight times as long as one


@contextlib.contextmanager
def answering(get: Callable[[Any], None], finish: Callable[[], object] = bool) -> Iterator[VectorIndex]:
    """An index on a server that answers GET so; ``finish`` is called as a connection ends."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        do_GET = get  # noqa: N815 - as the server calls it

        def finish(self) -> None:
            super().finish()
            finish()

        def log_message(self, *_: object) -> None:
            """Keep it to itself."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server, ThreadPoolExecutor(1) as threads:
        threads.submit(server.serve_forever)
        try:
            yield index_at(f"chroma+http://127.0.0.1:{server.server_port}")
        finally:
            server.shutdown()


def test_a_server_is_shown_the_token_that_the_environment_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """By Chroma's own variables, as its client reads them."""
    shown: list[str | None] = []

    def get(request: Any) -> None:
        shown.append(request.headers.get("Authorization"))
        request.send_error(401)

    monkeypatch.setenv("CHROMA_CLIENT_AUTH_PROVIDER", "chromadb.auth.token_authn.TokenAuthClientProvider")
    monkeypatch.setenv("CHROMA_CLIENT_AUTH_CREDENTIALS", "planted-token")
    with answering(get) as index, pytest.raises(SearchError) as refused:
        index.search(NOTES, "bike", 1)
    assert shown[0] == "Bearer planted-token"
    assert "planted" not in str(refused.value)


def test_a_server_that_hangs_while_a_client_is_made_keeps_a_search_waiting_for_a_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It says that it is there, and then nothing."""
    monkeypatch.setattr(vector_chroma_driver, "_READ_TIMEOUT", 0.3)
    ended, alive = threading.Event(), b'{"nanosecond heartbeat": 1}'

    def get(request: Any) -> None:
        if request.path.endswith("/heartbeat"):
            request.send_response(200)
            request.send_header("Content-Length", str(len(alive)))
            request.end_headers()
            request.wfile.write(alive)
        else:
            ended.wait(60)

    with answering(get) as index:
        began = time.monotonic()
        try:
            with pytest.raises(SearchError, match="cannot be reached: ReadTimeout"):
                index.search(NOTES, "bike", 1)
            assert time.monotonic() - began < 20
        finally:
            ended.set()


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="this system does not list a process's files")
def test_a10_who_forgets_to_close_an_index_leaves_no_connections_behind(chroma_server: ChromaServer) -> None:
    def search() -> int:
        found(index_at(chroma_server.url), "bike")
        gc.collect()
        return len([*Path("/proc/self/fd").iterdir()])

    before = search()
    assert [search() for _ in range(3)] == [before] * 3
    index = index_at(chroma_server.url)
    for _ in range(3):  # nor does who closes one, and goes on
        found(index, "bike")
        index.close()
        assert found(index, "bike") == []


def test_a_client_that_cannot_be_made_hangs_up() -> None:
    """The server refuses whatever it is asked, and keeps the connection for the next question."""
    left = threading.Event()

    def get(request: Any) -> None:
        request.send_response(500)
        request.send_header("Content-Length", "0")
        request.end_headers()

    with answering(get, left.set) as index:
        gc.disable()  # which would hang up, some time or other
        try:
            with pytest.raises(SearchError):
                index.search(NOTES, "bike", 1)
            assert left.wait(10)
        finally:
            gc.enable()


def test_a_namespace_that_another_process_began_anew(chroma_server: ChromaServer) -> None:
    with (
        contextlib.closing(index_at(chroma_server.url)) as index,
        contextlib.closing(index_at(chroma_server.url)) as other,
        contextlib.closing(index_at(chroma_server.url, name="newer")) as newer,
    ):
        index.apply(NOTES, upsert=[Document("a", "bike")], position=(1, "a"))
        assert found(index, "bike") == ["a"]
        other.clear(NOTES)
        assert (found(index, "bike"), index.score(NOTES, "bike", ["a"])) == ([], {})
        other.apply(NOTES, upsert=[Document("b", "bike")], position=(2, "b"))
        assert (found(index, "bike"), index.position(NOTES)) == (["b"], (2, "b"))
        newer.apply(NOTES, upsert=[Document("c", "bike")], position=(3, "c"))
        assert (found(index, "bike"), found(newer, "bike")) == ([], ["c"])
        index.apply(NOTES, upsert=[Document("d", "bike")], position=(4, "d"))
        assert (found(index, "bike"), found(newer, "bike")) == (["d"], [])


# ---- Chroma Cloud


class CloudQuotas(httpx.BaseTransport):
    """Answers as Chroma Cloud does where a request has, or asks for, more than 300 records."""

    def __init__(self, behind: httpx.BaseTransport) -> None:
        self._behind = behind

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        action = request.url.path.rpartition("/")[2]
        if action in {"upsert", "delete", "query", "get"} and request.method == "POST":
            said = json.loads(request.read())
            usage = max(len(said.get("ids") or ()), said.get("n_results") or 0, said.get("limit") or 0)
            if usage > 300:
                why = f"Quota exceeded: action {action!r}: current usage of {usage} exceeds limit of 300"
                return httpx.Response(422, json={"error": "ChromaError", "message": why}, request=request)
        return self._behind.handle_request(request)


def test_chroma_cloud_is_never_asked_for_more_than_its_quota(chroma_server: ChromaServer) -> None:
    client: Any = chromadb.HttpClient(host="127.0.0.1", port=chroma_server.port)
    client.get_settings().chroma_server_host = "api.trychroma.com"
    session = client._server._session
    session._transport = CloudQuotas(session._transport)
    index = index_at(client, lambda texts: word_vectors(texts, 1_000), "words-1000")
    texts = {str(n): f"bike {n} {n % 7}" for n in range(700)}
    index.apply(NOTES, upsert=[Document(id_, text) for id_, text in texts.items()], position=(700, "e"))
    exact = index.score(NOTES, "bike 5", [*texts])
    assert len(exact) == 700
    assert len(index.search(NOTES, "bike 5", 5)) == 5
    for k in (301, 1_000):  # which no one request gives, and so all are compared
        best = sorted(exact.values(), reverse=True)[:k]
        assert [hit.score for hit in index.search(NOTES, "bike 5", k)] == pytest.approx(best, abs=1e-5)
    index.apply(NOTES, delete=[str(n) for n in range(650)])
    assert set(found(index, "bike")) == {str(n) for n in range(650, 700)}


# ---- what is found where much is nearly the same


def _nearly_the_same(texts: list[str]) -> list[list[float]]:
    """One direction for all that is said again and again, with a little of its own, and another for a bike."""
    made = []
    for text in texts:
        own = random.Random(text)
        made.append([float("bike" in text), 1.0, *(own.random() / 50 for _ in range(30))])
    return made


@pytest.mark.own
@pytest.mark.parametrize("fillers", [300, 900, 1_500])
@pytest.mark.parametrize("k", [1, 7])
def test_among_many_that_are_nearly_the_same_the_one_that_is_not_is_found(folder: str, fillers: int, k: int) -> None:
    index = index_at(folder, _nearly_the_same, "nearly")
    for n in range(5):
        place = ("notes", str(n))
        said = [Document("bike", f"the bike of {n}")]
        said += [Document(f"f{m}", f"again {n} {m}") for m in range(fillers)]
        index.apply(place, upsert=said)
        hits = index.search(place, "a bike", k)
        assert len(hits) == k
        if fillers < 1_000:
            assert hits[0].id == "bike"
            exact = index.score(place, "a bike", [document.id for document in said])
            best = sorted(exact.values(), reverse=True)[:k]
            assert [hit.score for hit in hits] == pytest.approx(best, abs=1e-6)
    index.close()


class Torn:
    """A collection whose graph leads to some of its vectors only."""

    def __init__(self, reachable: int, there: int) -> None:
        self.reachable, self.there = reachable, there
        self.asked: list[str] = []

    def query(self, *, n_results: int, **_: Any) -> Any:
        self.asked.append(f"query {n_results}")
        ids = [str(n) for n in range(self.reachable)][:n_results]
        return {"ids": [ids], "distances": [[0.5] * len(ids)]}

    def count(self) -> int:
        self.asked.append("count")
        return self.there

    def get(self, *, limit: int, **_: Any) -> Any:
        self.asked.append("get")
        rows = [[1.0, 0.0] if n == self.there - 1 else [0.0, 1.0] for n in range(limit)]
        return {"ids": [str(n) for n in range(limit)], "embeddings": rows}


@pytest.mark.parametrize(
    ("collection", "k", "asked", "best"),
    [
        (Torn(10, 12), 1, ["query 1000", "count", "get"], ("11", 1.0)),
        (Torn(12, 12), 1, ["query 1000", "count"], ("0", 0.5)),
        (Torn(5_000, 5_001), 3, ["query 1000"], ("0", 0.5)),
        (Torn(1_200, 1_300), 1_250, ["query 1250", "count", "get"], ("1299", 1.0)),
        (Torn(900, 5_000), 2, ["query 1000", "count", "get"], ("4999", 1.0)),
        (Torn(900, 5_001), 2, ["query 1000", "count"], ("0", 0.5)),  # too many to read for one search
    ],
    ids=range(6),
)
def test_all_are_compared_only_where_the_graph_is_torn(
    collection: Torn, k: int, asked: list[str], best: tuple[str, float]
) -> None:
    found = nearest(collection, array("f", [1.0, 0.0]), k, 1_000_000)
    assert (collection.asked, found[0], len(found)) == (asked, best, min(k, 1_250))


def test_more_may_be_asked_for_than_chroma_counts_to(folder: str) -> None:
    with contextlib.closing(index_at(folder)) as index:
        index.apply(NOTES, upsert=[Document("a", "bike")])
        assert found(index, "bike", sys.maxsize) == ["a"]
