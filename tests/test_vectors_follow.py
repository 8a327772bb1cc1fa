"""Vectors follow whoever adds, and nothing goes wrong for ever: no failure, no refused text, no fork, and no end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import httpx
import openai
import pytest

from langmem_adapters.concurrency import background
from langmem_adapters.embedding import Embedder
from langmem_adapters.errors import Conflict, ModelError, SearchError
from langmem_adapters.flow import run
from langmem_adapters.indexes import open_index, open_vectors, shared_vectors
from langmem_adapters.indexes.vector import VectorIndex
from langmem_adapters.indexes.vector_refusals import RefusedDocuments
from langmem_adapters.keys import Namespace
from langmem_adapters.longterm import LongTermMemory
from langmem_adapters.model import Message, Recalled
from langmem_adapters.protocols import Position, SelectiveIndex
from langmem_adapters.recall import vectors as semantic
from langmem_adapters.stores.memory import MemoryStore

ADA: Namespace = ("longterm", "", "ada")
SAME = [{"sofa", "couch"}, {"dog", "puppy"}, {"car", "automobile"}]
FORKS = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")


class Model:
    """Knows which words mean the same. It is down, or refuses a text, when told to."""

    def __init__(self) -> None:
        self.sent: list[list[str]] = []
        self.down = False
        self.refuses: set[str] = set()

    def __call__(self, texts: list[str]) -> list[list[float]]:
        self.sent.append(texts)
        if self.down or self.refuses & set(texts):
            raise RuntimeError(f"no vectors for {texts}")
        known = [set(text.lower().strip("?.").split()) for text in texts]
        return [[float(bool(words & same)) for same in SAME] for words in known]

    @property
    def texts(self) -> list[str]:
        return [text for texts in self.sent for text in texts]


class Watched(VectorIndex):
    """Tells when it has changed, waits where it is told to, and fails as it is told to."""

    failure: BaseException | None = None

    def __init__(self, model: Any, name: str = "model-1", url: str = "memory:", **options: Any) -> None:
        made = open_vectors(url, Embedder(model, name=name, **options))
        super().__init__(made._vectors, made.embedder)
        self.changed = threading.Event()
        self.tried = 0

    def apply(self, namespace: Namespace, **change: Any) -> None:
        self.tried += bool(change.get("upsert"))
        if self.failure and change.get("upsert"):
            raise self.failure
        super().apply(namespace, **change)
        if change.get("upsert"):
            self.changed.set()


def say(text: str) -> Message:
    return Message(role="user", content=text)


def texts(found: Sequence[Recalled]) -> list[str]:
    return [recalled.text for recalled in found]


def memory_of(vectors: Any, store: MemoryStore | None = None, **more: Any) -> LongTermMemory:
    return LongTermMemory(store or MemoryStore(), open_index("memory:"), vectors=vectors, user="ada", **more)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes on in the background is over when the call that began it returns."""
    monkeypatch.setattr(semantic, "submit", lambda call: call())


# --- who only searches


def test_a_machine_that_only_searches_embeds_what_another_one_added() -> None:
    store = MemoryStore()
    LongTermMemory(store, open_index("memory:"), user="ada").add([say("The automobile is parked."), say("Hello.")])
    vectors = Watched(Model())
    memory = memory_of(vectors, store)
    assert memory.search("car") == []
    assert memory.stats()["behind"] == 1
    assert vectors.changed.wait(120)
    assert texts(memory.search("car")) == ["The automobile is parked."]


def test_a_strict_search_does_not_wait_for_what_another_machine_added_either(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[Callable[[], None]] = []
    monkeypatch.setattr(semantic, "submit", turns.append)
    store, vectors = MemoryStore(), Watched(Model())
    LongTermMemory(store, open_index("memory:"), user="ada").add([say("The automobile is parked.")])
    memory = memory_of(vectors, store, strict=True)
    assert memory.search("car") == []
    assert (len(turns), vectors.tried) == (1, 0)


def test_vectors_that_the_one_who_added_has_brought_up_to_date_are_not_taken_to_be_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns: list[Callable[[], None]] = []
    monkeypatch.setattr(semantic, "submit", turns.append)
    store, vectors = MemoryStore(), Watched(Model())
    writer, reader = memory_of(vectors, store), memory_of(vectors, store)
    for n in range(1, 6):
        writer.add([say(f"The automobile {n} is parked.")])
        writer.flush()
        turns.clear()
        assert len(reader.search("parked", 9)) == n
        assert (reader.stats()["behind"], turns) == (0, [])


def test_what_was_flushed_is_not_looked_at_again_in_the_background_which_would_open_a_closed_index(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns: list[Callable[[], None]] = []
    monkeypatch.setattr(semantic, "submit", turns.append)
    vectors = Watched(Model())
    memory = memory_of(vectors)
    memory.add([say("The automobile is parked.")])
    memory.flush()
    with monkeypatch.context() as patch:
        patch.setattr(vectors, "position", None)
        turns.pop()()
    assert memory.stats()["behind"] == 0
    memory.add([say("The puppy sleeps.")])
    turns.pop()()
    assert texts(memory.search("dog")) == ["The puppy sleeps."]


@pytest.mark.usefixtures("at_once")
def test_a_memory_that_is_opened_with_another_embedder_is_embedded_anew_by_its_first_search(tmp_path: Path) -> None:
    url, store = f"sqlite:///{tmp_path}/vectors.db", MemoryStore()
    memory_of(Watched(Model(), "old", url), store).add([say("The automobile is parked.")])
    memory = memory_of(Watched(Model(), "new", url), store)
    assert memory.search("car") == []
    assert texts(memory.search("car")) == ["The automobile is parked."]
    assert memory.stats()["behind"] == 1


@pytest.mark.usefixtures("at_once")
def test_what_was_cleared_elsewhere_leaves_the_vectors_too() -> None:
    store, vectors = MemoryStore(), Watched(Model())
    memory = memory_of(vectors, store)
    memory.add([say("The automobile is parked.")])
    LongTermMemory(store, open_index("memory:"), user="ada").clear()
    memory.search("car")
    assert vectors.search(ADA, "car", 9) == []


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(
    "change",
    [
        lambda memory, id_: memory.update(id_, "A puppy sleeps."),
        lambda memory, id_: memory.delete([id_]),
        lambda memory, _: run(memory.forget_flow("monday", None)),
    ],
    ids=["corrected", "deleted", "taken back"],
)
def test_what_is_not_said_any_more_leaves_the_vectors_before_anybody_searches(change: Callable[..., Any]) -> None:
    vectors = Watched(Model())
    memory = memory_of(vectors)
    memory.add([say("The automobile is parked.")], session="monday")
    assert vectors.search(ADA, "car", 9)[0].score > 0.5
    change(memory, memory.all()[0].id)
    assert not [hit for hit in vectors.search(ADA, "car", 9) if hit.score > 0.5]


@pytest.mark.usefixtures("at_once")
def test_vectors_that_are_level_are_not_looked_at_again_until_something_is_added(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """... so that two embedders that share a place do not replace each other's work with every search."""
    model = Model()
    vectors = Watched(model)
    memory = memory_of(vectors)
    memory.add([say("The automobile is parked.")])
    memory.search("car")
    asked: list[Namespace] = []
    monkeypatch.setattr(vectors, "position", asked.append)
    for _ in range(3):
        assert texts(memory.search("car")) == ["The automobile is parked."]
    assert asked == []
    monkeypatch.undo()
    monkeypatch.setattr(semantic, "submit", lambda call: call())
    other = Watched(Model(), "other")
    other._vectors = vectors._vectors
    other.apply(ADA, position=(7, "x"))
    memory.search("car")
    assert model.texts.count("The automobile is parked.") == 1
    assert other.position(ADA) == (7, "x")
    assert memory.stats()["behind"] == 0


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("is_strict", [False, True])
def test_d5_a_process_whose_vectors_another_embedder_has_replaced_says_that_it_searches_by_words(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_strict: bool
) -> None:
    url, store = f"sqlite:///{tmp_path}/vectors.db", MemoryStore()
    memory = memory_of(Watched(Model(), "old", url), store, strict=is_strict)
    memory.add([say("The automobile is parked.")])
    assert texts(memory.search("car")) == ["The automobile is parked."]
    newer = memory_of(Watched(Model(), "new", url), store)
    newer.flush()
    if is_strict:
        with pytest.raises(SearchError, match="another embedder has replaced the vectors"):
            memory.search("car")
    else:
        assert memory.search("car") == memory.search("car") == []
        assert texts(memory.search("parked")) == ["The automobile is parked."]
        assert memory.stats()["degraded"] == 3
        assert "another embedder has replaced the vectors" in caplog.text
    assert texts(newer.search("car")) == ["The automobile is parked."]
    assert newer.stats()["degraded"] == newer.stats()["behind"] == 0


@pytest.mark.usefixtures("at_once")
def test_vectors_that_hold_no_text_are_not_taken_for_another_embedders() -> None:
    memory = memory_of(Watched(Model()), strict=True)
    assert [memory.search("car") for _ in range(3)] == [[], [], []]
    memory.add([say("The automobile is parked.")])
    memory.delete([memory.all()[0].id])
    assert [memory.search("car") for _ in range(3)] == [[], [], []]
    assert memory.stats()["degraded"] == 0


class Own:
    """An index of a user's own, which has what the protocol asks for and nothing else."""

    __hash__ = None  # type: ignore[assignment]  # as a dataclass

    def __init__(self, inner: VectorIndex) -> None:
        self.apply, self.position, self.clear = inner.apply, inner.position, inner.clear
        self.search, self.score, self.close = inner.search, inner.score, inner.close


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("index_of", [lambda vectors: vectors, Own])
@pytest.mark.parametrize("is_begun", [False, True])
def test_vectors_that_somebody_threw_away_are_made_anew_by_a_search_that_finds_none(
    index_of: Callable[[VectorIndex], Any], is_begun: bool
) -> None:
    vectors = Watched(Model())
    memory = memory_of(index_of(vectors), strict=True)
    memory.add([say("The automobile is parked.")])
    assert texts(memory.search("car")) == ["The automobile is parked."]
    vectors.clear(ADA)  # as who deletes a collection of Chroma, or removes its folder
    if is_begun:
        vectors.apply(ADA)  # as Chroma and LlamaIndex's stores are while they are begun, or after an interrupt
    assert memory.search("car") == []
    assert texts(memory.search("car")) == ["The automobile is parked."]
    assert memory.stats()["behind"] == 1


@pytest.mark.usefixtures("at_once")
def test_vectors_that_were_brought_up_by_a_search_are_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    LongTermMemory(store, open_index("memory:"), user="ada").add([say("The automobile is parked.")])
    vectors = Watched(Model())
    memory = memory_of(vectors, store)
    memory.search("car")
    asked: list[Namespace] = []
    monkeypatch.setattr(vectors, "position", asked.append)
    memory.search("car")
    assert asked == []


@pytest.mark.usefixtures("at_once")
def test_vectors_that_are_level_are_asked_once_where_they_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server is asked over the network each time."""
    vectors = Watched(Model())
    memory = memory_of(vectors)
    memory.add([say("The automobile is parked.")])
    asked: list[Namespace] = []
    position = vectors.position

    def watched(namespace: Namespace) -> Position | None:
        asked.append(namespace)
        return position(namespace)

    monkeypatch.setattr(vectors, "position", watched)
    memory.flush()
    assert asked == [ADA]


# --- failures in the background


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(
    "failure", [MemoryError("secret words"), SystemExit("secret"), ModelError("the model is away")]
)
def test_nothing_that_fails_in_the_background_stops_it_for_ever(
    failure: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    vectors = Watched(Model())
    memory = memory_of(vectors)
    vectors.failure = failure
    memory.add([say("My couch is red.")])
    assert memory.stats()["behind"] == 1
    assert "failed, and it searches by words alone" in caplog.text
    assert "secret" not in caplog.text
    vectors.failure = None
    memory.add([say("My dog is brown.")])
    assert texts(memory.search("sofa")) == ["My couch is red."]
    assert texts(memory.search("puppy")) == ["My dog is brown."]


@pytest.mark.usefixtures("at_once")
def test_what_fails_again_and_again_is_counted_each_time_and_logged_once_a_cause(
    caplog: pytest.LogCaptureFixture,
) -> None:
    vectors = Watched(Model())
    memory = memory_of(vectors)
    for vectors.failure in (ModelError("the model is away"), MemoryError(), ModelError("the model is away")):
        memory.add([say("My couch is red.")])
    assert memory.stats()["behind"] == 3
    said = [record.getMessage().rpartition(": ")[2] for record in caplog.records]
    assert said == ["the model is away", "MemoryError"]


@pytest.mark.usefixtures("at_once")
def test_a_search_tries_again_what_failed_but_not_every_search() -> None:
    now, store = [1000.0], MemoryStore()
    vectors = Watched(Model())
    memory = memory_of(vectors, store, clock=lambda: now[0])
    vectors.failure = MemoryError()
    memory.add([say("My couch is red.")])
    for _ in range(5):
        memory.search("sofa")
    assert (vectors.tried, memory.stats()["behind"]) == (1, 6)
    now[0] += 29
    memory.search("sofa")
    assert vectors.tried == 1
    now[0] += 1
    memory.search("sofa")
    assert vectors.tried == 2
    now[0] -= 500  # the clock was put back
    vectors.failure = None
    assert memory.search("sofa") == []
    assert texts(memory.search("sofa")) == ["My couch is red."]
    now[0] += 500
    LongTermMemory(store, open_index("memory:"), user="ada").add([say("My dog is brown.")])
    memory.search("puppy")  # what failed once is no reason to wait any more
    assert texts(memory.search("puppy")) == ["My dog is brown."]


@pytest.mark.usefixtures("at_once")
def test_a_strict_search_tries_itself_what_failed_in_the_background_and_raises() -> None:
    vectors = Watched(Model())
    memory = memory_of(vectors, strict=True)
    vectors.failure = MemoryError("no room")
    memory.add([say("My couch is red.")])
    with pytest.raises(SearchError, match="MemoryError"):
        memory.search("sofa")
    vectors.failure = None
    memory.search("sofa")
    assert texts(memory.search("sofa")) == ["My couch is red."]


@pytest.mark.usefixtures("at_once")
def test_each_search_that_goes_on_by_words_is_counted_once() -> None:
    model = Model()
    memory = memory_of(Watched(model, remembered=0))
    memory.add([say("My couch is red.")])
    model.down = True
    for n in range(1, 4):
        assert texts(memory.search("couch")) == ["My couch is red."]
        assert memory.stats()["degraded"] == n


@pytest.mark.usefixtures("at_once")
def test_what_a_rebuild_could_not_embed_is_embedded_by_a_search() -> None:
    now, model = [1000.0], Model()
    memory = memory_of(Watched(model, remembered=0), clock=lambda: now[0])
    memory.add([say("My couch is red.")])
    assert texts(memory.search("sofa")) == ["My couch is red."]
    model.down = True
    with pytest.raises(ModelError):
        memory.rebuild()
    model.down = False
    now[0] += 31
    assert memory.search("sofa") == []
    assert texts(memory.search("sofa")) == ["My couch is red."]


def test_a_message_is_kept_though_the_script_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def over(_: object) -> None:
        raise RuntimeError("the interpreter is shutting down")

    vectors = Watched(Model())
    memory = memory_of(vectors)
    with monkeypatch.context() as patch:
        patch.setattr(semantic, "submit", over)
        memory.add([say("My couch is red.")])
    assert (memory.count(), memory.stats()["behind"]) == (1, 1)
    memory.add([say("My dog is brown.")])
    assert vectors.changed.wait(120)


# --- texts that are refused


@pytest.mark.usefixtures("at_once")
def test_a_text_that_the_embedder_refuses_holds_up_no_other(caplog: pytest.LogCaptureFixture) -> None:
    model = Model()
    model.refuses = {"poison 7", "poison 300", "poison 301"}
    vectors = Watched(model, batch=32)
    memory = memory_of(vectors)
    said = [f"poison {n}" if n in {7, 300, 301} else f"sofa {n}" for n in range(600)]
    memory.add([say(text) for text in said])
    memory.flush()
    assert len(vectors.search(ADA, "sofa", 1000)) == 597
    assert vectors.position(ADA) == memory._records.index.position(ADA)
    assert (memory.stats()["refused"], memory.stats()["behind"]) == (3, 0)
    assert "refused are not found by meaning: 3" in caplog.text
    assert "poison" not in caplog.text
    assert len(model.sent) < 200
    for _ in range(3):
        memory.flush()
    before = len(model.sent)
    memory.add([say("couch")])
    assert len(model.sent) == before + 1  # the refused ones were given up
    assert memory.stats()["refused"] == 3


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("remembered", [0, 1024])
def test_an_embedder_that_is_down_refuses_nothing(remembered: int) -> None:
    model = Model()
    vectors = Watched(model, remembered=remembered)
    memory = memory_of(vectors)
    model.down = True
    memory.add([say(f"couch {n}") for n in range(100)])
    assert len(model.sent) == 2  # the texts, and something harmless
    with pytest.raises(ModelError):
        memory.flush()
    model.down = False
    memory.flush()
    assert len(vectors.search(ADA, "sofa", 1000)) == 100
    assert memory.stats()["refused"] == 0


@pytest.mark.usefixtures("at_once")
def test_an_embedder_that_refused_something_before_it_went_down_refuses_no_more() -> None:
    """... though what it answered before, to show that it is there, is remembered."""
    model = Model()
    model.refuses = {"poison"}
    vectors = Watched(model)
    memory = memory_of(vectors)
    memory.add([say("poison"), say("sofa 1")])
    model.down = True
    memory.add([say("sofa 2"), say("sofa 3")])
    assert (memory.stats()["refused"], memory.stats()["behind"]) == (1, 1)
    model.down = False
    memory.flush()
    assert len(vectors.search(ADA, "sofa", 9)) == 3


@pytest.mark.usefixtures("at_once")
def test_an_embedder_that_goes_down_in_between_refuses_nothing() -> None:
    model = Model()
    model.refuses = {"poison"}
    vectors = Watched(model, remembered=0)
    memory = memory_of(vectors)
    embed = model.__call__

    def dies(given: list[str]) -> list[list[float]]:
        model.down = len(model.sent) >= 2
        return embed(given)

    vectors.embedder._document_calls = vectors.embedder._document_calls._replace(call=dies)
    memory.add([say("poison"), *(say(f"couch {n}") for n in range(9))])
    assert memory.stats()["behind"] == 1
    assert vectors.refused(ADA) == []
    assert vectors.position(ADA) == (0, vectors.position(ADA)[1])  # type: ignore[index]


@pytest.mark.usefixtures("at_once")
def test_what_was_refused_for_a_moment_is_embedded_by_the_next_change() -> None:
    model = Model()
    vectors = Watched(model)
    assert isinstance(vectors, SelectiveIndex)
    memory = memory_of(vectors)
    model.refuses = {"My couch is red.", "My dog is brown.", "My car is old."}
    memory.add([say(text) for text in sorted(model.refuses)] + [say("Hello.")])
    assert (len(vectors.refused(ADA)), memory.stats()["refused"]) == (3, 3)
    model.refuses = set()
    brown, old = (next(m.id for m in memory.all() if word in m.message.text) for word in ("brown", "old"))
    memory.update(brown, "My cat is brown.")
    memory.delete([old])
    assert vectors.refused(ADA) == []
    assert texts(memory.search("sofa")) == ["My couch is red."]
    assert "My dog is brown." not in texts(memory.search("puppy"))
    assert len(vectors.search(ADA, "car", 9)) == 1
    assert memory.stats()["refused"] == 3


@pytest.mark.usefixtures("at_once")
def test_a_message_too_long_for_the_model_is_found_by_meaning_and_a_query_degrades_no_search() -> None:
    model, long = Model(), "My couch is red and old, as I said. " * 30

    def narrow(given: list[str]) -> list[list[float]]:
        if max(map(len, given)) > 500:
            raise ValueError("maximum context length exceeded")
        return model(given)

    vectors = Watched(narrow)
    memory = memory_of(vectors)
    memory.add([say("Hello."), say(long), say("My dog is brown.")])
    assert [hit.id for hit in vectors.search(ADA, "sofa", 1)] == [memory.all()[1].id]
    assert texts(memory.search("puppy " * 100)) == ["My dog is brown."]
    assert (memory.stats()["refused"], memory.stats()["degraded"]) == (0, 0)


def answer_429() -> Any:
    return httpx.Response(429, request=httpx.Request("POST", "http://127.0.0.1/v1/embeddings"))


def raise_wrapped() -> None:
    try:
        answer_429().raise_for_status()
    except httpx.HTTPStatusError as error:
        raise RuntimeError from error


def raise_openai() -> None:
    raise openai.RateLimitError("tokens per minute", response=answer_429(), body=None)


def raise_as_boto3() -> None:
    class ClientError(Exception):
        response: ClassVar = {"Error": {"Code": "ThrottlingException"}, "ResponseMetadata": {"HTTPStatusCode": 429}}

    raise ClientError


def raise_as_oci() -> None:
    class ServiceError(Exception):
        status, code = 429, "TooManyRequests"

    raise ServiceError


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(
    "raise_429",
    [raise_openai, lambda: answer_429().raise_for_status(), raise_wrapped, raise_as_boto3, raise_as_oci],
    ids=["openai", "httpx", "wrapped", "boto3", "oci"],
)
def test_what_exceeds_a_rate_limit_is_not_refused_but_embedded_later(raise_429: Callable[[], Any]) -> None:
    """... though the limit, which counts tokens, lets a short text pass."""
    model, is_busy = Model(), True

    def limited(given: list[str]) -> list[list[float]]:
        if is_busy and sum(map(len, given)) > 20:
            raise_429()
        return model(given)

    vectors = Watched(limited)
    memory = memory_of(vectors)
    for text in ["My dog is brown.", *(f"My couch is red, and older than {n} hills." for n in range(9))]:
        memory.add([say(text)])
    assert (vectors.refused(ADA), memory.stats()["refused"], memory.stats()["behind"]) == ([], 0, 9)
    assert len(vectors.search(ADA, "sofa", 99)) == 1
    is_busy = False
    memory.flush()
    assert len(vectors.search(ADA, "sofa", 99)) == 10


@pytest.mark.usefixtures("at_once")
def test_what_was_refused_is_offered_as_it_is_now_and_only_where_nobody_else_was_quicker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = Model()
    vectors = Watched(model)
    memory = memory_of(vectors)
    model.refuses = {"My couch is red."}
    memory.add([say("My couch is red."), say("Hello.")])
    offered: list[dict[str, Any]] = []

    def quicker(_: Namespace, **change: Any) -> None:
        offered.append(change)
        raise Conflict("changed by another follower")

    with monkeypatch.context() as patch:
        patch.setattr(vectors, "apply", quicker)
        memory.flush()
    assert [(each["upsert"][0].text, each["since"]) for each in offered] == [
        ("My couch is red.", vectors.position(ADA))
    ]
    assert memory.stats()["refused"] == 1  # the same one as before
    model.refuses = set()
    memory.flush()
    assert texts(memory.search("sofa")) == ["My couch is red."]


@pytest.mark.usefixtures("at_once")
def test_an_index_that_tells_of_no_refusals_is_followed_too() -> None:
    class Plain:
        def __init__(self, index: Watched) -> None:
            self._index = index

        def __getattr__(self, name: str) -> Any:
            if name == "refused":
                raise AttributeError(name)
            return getattr(self._index, name)

    plain: Any = Plain(Watched(Model()))
    memory = memory_of(plain)
    memory.add([say("My couch is red.")])
    memory.flush()
    assert texts(memory.search("sofa")) == ["My couch is red."]
    assert memory.stats()["behind"] == 0


@pytest.mark.usefixtures("at_once")
def test_what_was_refused_is_forgotten_with_the_namespace() -> None:
    model = Model()
    model.refuses = {"My couch is red."}
    vectors = Watched(model)
    memory = memory_of(vectors)
    memory.add([say("My couch is red."), say("Hello.")])
    assert vectors.refused(ADA)
    memory.clear()
    assert vectors.refused(ADA) == []


def test_twenty_thousand_refused_documents_are_noted_in_no_time() -> None:
    refused, start = RefusedDocuments(), time.process_time()
    for page in range(20):
        ids = [f"{page}-{n}" for n in range(1_000)]
        refused.record("ada", changed=set(ids), refused=ids)
    assert len(refused.ids("ada")) == 20_000
    assert time.process_time() - start < 1  # each page took as long as all before it together


# --- whose embedder


class OpenAIEmbeddings:
    """As that of LangChain: known by class and model, and with an account and a size of vectors of its own."""

    model = "text-embedding-3-small"

    def __init__(self, dimensions: int) -> None:
        self.dimensions = dimensions
        self.sent: list[str] = []

    def embed_documents(self, given: list[str]) -> list[list[float]]:
        self.sent += given
        return [[1.0] * self.dimensions for _ in given]

    def embed_query(self, given: str) -> list[float]:
        return self.embed_documents([given])[0]


@pytest.mark.usefixtures("at_once")
def test_nobody_s_texts_are_sent_with_the_embedder_of_another() -> None:
    store, models = MemoryStore(), {"a": OpenAIEmbeddings(4), "b": OpenAIEmbeddings(2)}
    for tenant, model in models.items():
        vectors = shared_vectors("memory:tenants", model)
        assert shared_vectors("memory:tenants", model) is vectors
        memory = LongTermMemory(store, open_index("memory:"), vectors=vectors, user="ada", tenant=tenant)
        memory.add([say(f"The secret of {tenant}.")])
        assert texts(memory.search("secret")) == [f"The secret of {tenant}."]
        assert vectors.embedder.dimension == model.dimensions
        assert memory.stats()["degraded"] == 0
    for tenant, model in models.items():
        assert {text for text in model.sent if "of" in text} == {f"The secret of {tenant}."}


def test_the_embedders_of_a_url_share_a_place_and_not_more_are_kept_than_are_in_use() -> None:
    models = [OpenAIEmbeddings(2) for _ in range(65)]
    found = [shared_vectors("memory:many", model) for model in models]
    assert len({id(each) for each in found}) == 65
    assert len({id(each._vectors) for each in found}) == 1
    assert shared_vectors("memory:others", models[0])._vectors is not found[0]._vectors
    assert shared_vectors("memory:many", models[-1]) is found[-1]
    assert shared_vectors("memory:many", models[0]) is not found[0]


# --- forks and ends


@FORKS
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_child_does_not_wait_for_what_its_parent_embeds() -> None:
    parent, reached, go_on = os.getpid(), threading.Event(), threading.Event()
    model = Model()

    def held(given: list[str]) -> list[list[float]]:
        if os.getpid() == parent:
            reached.set()
            assert go_on.wait(120)
        return model(given)

    vectors = Watched(held)
    memory = memory_of(vectors)
    memory.add([say("My couch is red.")])
    assert reached.wait(120)
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)  # it must not hang for ever
        status = 1
        try:
            memory.add([say("My dog is brown.")])
            status = 2 - vectors.changed.wait(50)
            memory.flush()
            status += texts(memory.search("puppy")) != ["My dog is brown."]
        finally:
            os._exit(status - 1)
    status = os.waitpid(pid, 0)[1]
    go_on.set()
    assert status == 0
    memory.flush()
    assert texts(memory.search("sofa")) == ["My couch is red."]


@FORKS
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_child_embeds_though_a_thread_of_its_parent_was_counting() -> None:
    embedder = Embedder(Model(), name="model-1")
    reached, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        with embedder._lock.held():
            reached.set()
            assert go_on.wait(120)

    thread = threading.Thread(target=hold)
    thread.start()
    assert reached.wait(120)
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        status = 1
        try:
            status = int(len(embedder.texts(["sofa"])) != 1)
        finally:
            os._exit(status)
    status = os.waitpid(pid, 0)[1]
    go_on.set()
    thread.join()
    assert status == 0


SCRIPT = """
import sys, threading
from langmem_adapters import LongTermMemory, Message, open_index, open_store
from langmem_adapters.concurrency import background
from langmem_adapters.embedding import Embedder
from langmem_adapters.indexes import open_vectors

background._EXIT_WAIT_SECONDS = float(sys.argv[2])

def embed(texts):
    threading.main_thread().join()
    if sys.argv[1] == "hangs":
        threading.Event().wait()
    print("embedded", *texts, flush=True)
    return [[1.0] for _ in texts]

vectors = open_vectors("memory:", Embedder(embed, name="e"))
LongTermMemory(open_store("memory:"), open_index("memory:"), vectors=vectors, user="ada").add(
    [Message(role="user", content="sofa")]
)
print("added", flush=True)
"""


@pytest.mark.parametrize(
    ("embedder", "seconds", "printed", "warned"),
    [("hangs", "0.1", "added\n", True), ("answers", "60", "added\nembedded sofa\n", False)],
)
def test_a_script_ends_though_the_embedder_hangs_and_what_is_under_way_is_finished(
    embedder: str, seconds: str, printed: str, warned: bool
) -> None:
    command = [sys.executable, "-c", SCRIPT, embedder, seconds]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
    assert done.stdout == printed
    assert ("abandoned as the script ended: 1" in done.stderr) is warned
    assert background._EXIT_WAIT_SECONDS == 10


def test_an_sqlite_that_is_too_old_for_chroma_is_named_in_a_sentence() -> None:
    code = """
import sqlite3
sqlite3.sqlite_version_info, sqlite3.sqlite_version = (3, 31, 1), "3.31.1"
from langmem_adapters.errors import ConfigurationError
from langmem_adapters.indexes import open_vectors
try:
    open_vectors("chroma:///folder", lambda texts: texts)
except ConfigurationError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    way_out = "give open_vectors the URL of the store, beside which vectors need no Chroma"
    assert done.stdout == f"chromadb cannot be used here: it needs SQLite 3.35, and this Python has 3.31.1; {way_out}\n"
