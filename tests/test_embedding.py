"""Any embedder can be asked, sync and async, and what it gives is either right or an error that says why."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings
from langchain_openai import AzureOpenAIEmbeddings, OpenAIEmbeddings
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.embeddings import MockEmbedding
from pydantic import PrivateAttr, SecretStr

from langmem_adapters.embedding import Embedder
from langmem_adapters.errors import ConfigurationError, ModelError
from tests.vector_places import word_vectors


class Words(Embeddings):
    """A LangChain embedder as a user writes one; queries differ from texts, as with asymmetric models."""

    model = "words-1"

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.asked.append(texts)
        return word_vectors(texts)

    def embed_query(self, text: str) -> list[float]:
        self.asked.append(text)
        return word_vectors([text])[0][::-1]


class NativeWords(Words):
    """One that has an async way of its own."""

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        self.asked.append(threading.current_thread().name)
        return word_vectors(texts)

    async def aembed_query(self, text: str) -> list[float]:
        self.asked.append(threading.current_thread().name)
        return word_vectors([text])[0][::-1]


class OwnEmbedding(BaseEmbedding):
    """A LlamaIndex embedder as a user writes one: its async methods block the loop."""

    threads: list[str] = []  # noqa: RUF012 - pydantic copies it

    def _get_text_embedding(self, text: str) -> list[float]:
        self.threads.append(threading.current_thread().name)
        return word_vectors([text])[0]

    def _get_query_embedding(self, query: str) -> list[float]:
        self.threads.append(threading.current_thread().name)
        return word_vectors([query])[0][::-1]

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)


def array_of(texts: list[str]) -> Any:
    return np.array(word_vectors(texts), dtype="f4")


def list_of_arrays(texts: list[str]) -> Any:
    return [np.array(vector) for vector in word_vectors(texts)]


async def coroutine_function(texts: list[str]) -> list[list[float]]:
    await asyncio.sleep(0)
    return word_vectors(texts)


class Table(dict[str, list[float]]):
    """Vectors that were computed before; while it is empty, it counts as False."""

    def __call__(self, texts: list[str]) -> list[list[float]]:
        return [self.get(text) or word_vectors([text])[0] for text in texts]


class Callable_:  # noqa: N801 - a callable, not Callable
    async def __call__(self, texts: list[str]) -> Any:
        return word_vectors(texts)


def hands_on(texts: list[str]) -> Any:
    return coroutine_function(texts)


OPENAI: dict[str, Any] = {"api_key": SecretStr("k")}
AZURE = {**OPENAI, "azure_endpoint": "http://127.0.0.1:9", "api_version": "1"}
DEPLOYED = {**AZURE, "azure_deployment": "eu-small"}
TEXTS = ["red bike", "", "blue boat", "?!", "red bike"]


def is_right(vectors: list[Any]) -> bool:
    lengths = [len(vector) for vector in vectors]
    norms = [math.hypot(*vector) for vector in vectors if vector]
    return lengths == [64, 0, 64, 0, 64] and norms == pytest.approx([1, 1, 1]) and vectors[0] == vectors[4]


SYNC: list[tuple[Callable[[], Any], str]] = [
    (Words, ""),
    (lambda: OwnEmbedding(model_name="own"), ""),
    (lambda: word_vectors, "words"),
    (lambda: array_of, "words"),
    (lambda: list_of_arrays, "words"),
    (Table, "words"),
]
ASYNC: list[tuple[Callable[[], Any], str]] = [
    (lambda: coroutine_function, "words"),
    (Callable_, "words"),
    (lambda: hands_on, "words"),
    (NativeWords, ""),
]


@pytest.mark.parametrize(("make", "name"), SYNC)
def test_any_embedder_can_be_asked(make: Callable[[], Any], name: str) -> None:
    embedder = Embedder(make(), name=name)
    assert embedder.dimension is None
    assert is_right(embedder.texts(TEXTS))
    assert math.hypot(*embedder.query("red bike")) == pytest.approx(1)
    assert not embedder.query(" ")
    assert embedder.dimension == 64
    assert embedder.blocks


@pytest.mark.parametrize(("make", "name"), SYNC + ASYNC)
async def test_any_embedder_can_be_awaited(make: Callable[[], Any], name: str) -> None:
    embedder = Embedder(make(), name=name)
    assert is_right(await embedder.atexts(TEXTS))
    assert math.hypot(*await embedder.aquery("red bike")) == pytest.approx(1)
    assert embedder.dimension == 64


@pytest.mark.parametrize("model", [coroutine_function, Callable_(), hands_on])
def test_without_a_loop_a_coroutine_function_is_refused(model: Any) -> None:
    embedder = Embedder(model, name="words")
    for call in (lambda: embedder.texts(["a"]), lambda: embedder.query("a")):
        with pytest.raises(ConfigurationError, match="call the async twin"):
            call()
    assert embedder.blocks is (model is hands_on)


async def test_a5_an_embedder_never_blocks_the_loop() -> None:
    """LangChain's own async way is awaited; LlamaIndex's, which often blocks, is not used."""
    here = threading.current_thread().name
    native, own = NativeWords(), OwnEmbedding(model_name="own")
    for model in (native, own):
        embedder = Embedder(model)
        await embedder.atexts(["a"])
        await embedder.aquery("b")
    assert native.asked == [here] * 2
    assert len(own.threads) == 2
    assert here not in own.threads


def test_texts_and_queries_are_different_questions() -> None:
    model = Words()
    embedder = Embedder(model)
    assert embedder.texts(["bike"])[0] == embedder.query("bike")[::-1]
    assert model.asked == [["bike"], "bike"]


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (Words(), "Words:words-1"),
        (OwnEmbedding(model_name="own-7"), "OwnEmbedding:own-7"),
        (DeterministicFakeEmbedding(size=8), "DeterministicFakeEmbedding"),
        (MockEmbedding(embed_dim=8), "MockEmbedding:unknown"),
        (OpenAIEmbeddings(**OPENAI), "OpenAIEmbeddings:text-embedding-ada-002"),
        (AzureOpenAIEmbeddings(**DEPLOYED), "AzureOpenAIEmbeddings:eu-small"),
        (AzureOpenAIEmbeddings(**AZURE), "AzureOpenAIEmbeddings:text-embedding-ada-002"),
        (AzureOpenAIEmbeddings(model="large-3", **DEPLOYED), "AzureOpenAIEmbeddings:large-3"),
    ],
)
def test_an_embedder_is_known_by_its_class_and_model(model: Any, name: str) -> None:
    assert Embedder(model).name == name
    assert Embedder(model, name="mine").name == "mine"
    assert repr(Embedder(model)) == f"Embedder({name!r})"
    embedder = Embedder(model)
    assert Embedder.of(embedder) is embedder
    assert Embedder.of(model).name == name


def test_a_wrapped_embedder_is_known_by_what_it_wraps() -> None:
    class Backed(Words):
        underlying_embeddings = Words()

    class Hypothetical(Words):
        """As LangChain's, which asks a model for the document that would answer a query, and embeds that."""

        base_embeddings = Backed()

    assert Embedder(Backed()).name == "Words:words-1"
    assert Embedder(Hypothetical()).name == "Words:words-1"


class OfLangChain(OwnEmbedding):
    """Has an embedder of LangChain behind it, as LlamaIndex's LangchainEmbedding has, and looks for its model so."""

    _langchain_embedding: Any = PrivateAttr()

    def __init__(self, embedder: Embeddings, name: str | None = None) -> None:
        found = getattr(embedder, "model_name", None) or getattr(embedder, "model", None) or type(embedder).__name__
        super().__init__(model_name=name or found)
        self._langchain_embedding = embedder


class Bedrock(Words):
    """Names its model as Amazon's do."""

    model = ""

    def __init__(self, model_id: str) -> None:
        super().__init__()
        self.model_id = model_id


class Watsonx(OwnEmbedding):
    """Keeps its model by a name of its own, as some of LlamaIndex's do, and has LlamaIndex's model_name as it is."""

    model_id: str = ""
    endpoint_name: str = ""


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (Watsonx(model_id="slate-125m"), "Watsonx:slate-125m"),
        (Watsonx(endpoint_name="slate"), "Watsonx:slate"),
        (Watsonx(model_name="mine", model_id="slate-125m"), "Watsonx:mine"),
        (Watsonx(), "Watsonx:unknown"),
    ],
)
def test_an_embedder_of_llamaindex_is_known_by_whatever_it_calls_its_model(model: Any, name: str) -> None:
    assert Embedder(model).name == name


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (OfLangChain(Words()), "OfLangChain:words-1"),
        (OfLangChain(Bedrock("titan-2")), "Bedrock:titan-2"),
        (OfLangChain(Bedrock("titan-2"), "mine"), "OfLangChain:mine"),
        (OfLangChain(AzureOpenAIEmbeddings(**DEPLOYED)), "AzureOpenAIEmbeddings:eu-small"),
    ],
)
def test_an_embedder_of_langchain_within_one_of_llamaindex_is_known_by_its_model(model: Any, name: str) -> None:
    assert Embedder(model).name == name


@pytest.mark.parametrize("model", [word_vectors, coroutine_function, lambda texts: word_vectors(texts)])  # noqa: PLW0108
def test_a_function_needs_a_name(model: Any) -> None:
    with pytest.raises(ConfigurationError, match="needs a name"):
        Embedder(model)


@pytest.mark.parametrize("model", [7, "text-embedding-3-small", None, [1.0]])
def test_what_cannot_embed_is_refused(model: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"not {type(model).__name__}"):
        Embedder(model, name="x")


@pytest.mark.parametrize("wrong", [{"batch": 0}, {"remembered": -1}, {"longest": 0}])
def test_impossible_sizes_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError, match="at least"):
        Embedder(Words(), **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [DeterministicFakeEmbedding, MockEmbedding])
def test_the_class_of_an_embedder_is_none(kind: type) -> None:
    """It would fail at each text, and searches would go on by words."""
    with pytest.raises(
        ConfigurationError, match=rf"^an embedder is an object, {kind.__name__}\(…\), and not its class$"
    ):
        Embedder.of(kind)


def test_one_text_is_no_list_of_texts() -> None:
    with pytest.raises(ConfigurationError, match="a list of texts"):
        Embedder(Words()).texts("bike")


# ---- what is sent


def test_texts_are_sent_in_batches_each_once_and_blank_ones_not_at_all() -> None:
    model = Words()
    embedder = Embedder(model, batch=3)
    vectors = embedder.texts(["a", "b", "a", " ", "c", "d", "b", "", "e"])
    assert model.asked == [["a", "b", "c"], ["d", "e"]]
    assert [bool(vector) for vector in vectors] == [True, True, True, False, True, True, True, False, True]
    assert embedder.stats == {"calls": 2, "texts": 5, "remembered": 2}
    assert embedder.texts([]) == []
    assert len(model.asked) == 2


def test_the_last_vectors_are_remembered() -> None:
    model = Words()
    embedder = Embedder(model, remembered=3)
    embedder.texts(["a", "b", "c"])
    embedder.texts(["a"])
    embedder.texts(["d"])  # pushes b out
    model.asked.clear()
    assert embedder.texts(["a", "d", "c"]) == Embedder(Words()).texts(["a", "d", "c"])
    assert model.asked == []
    embedder.texts(["b"])
    assert model.asked == [["b"]]
    embedder.query("a")
    embedder.query("a")
    assert model.asked == [["b"], "a"]
    assert embedder.stats["remembered"] == 5


def test_nothing_need_be_remembered() -> None:
    model = Words()
    embedder = Embedder(model, remembered=0)
    assert embedder.texts(["a", "a"]) == embedder.texts(["a", "a"])
    assert model.asked == [["a"], ["a"]]


def test_of_a_long_text_the_beginning_is_sent() -> None:
    model = Words()
    Embedder(model, longest=10).texts(["bike " * 5, " " * 10 + "bike"])
    assert model.asked == [["bike bike "]]
    Embedder(model).query("bike " * 100_000)
    assert len(model.asked[-1]) == 8_000


class Narrow(NativeWords):
    """Refuses a text of more than 500 characters, and what was not spoken of."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        if max(map(len, texts)) > 500 or any("unspeakable" in text for text in texts):
            self.asked.append(texts)
            raise ValueError("maximum context length exceeded")
        return super().embed_documents(texts)

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        return self.embed_documents(texts)

    async def aembed_query(self, text: str) -> list[float]:
        return self.embed_query(text)


LONG_TEXT = "my bike is red, " * 40 + " " * 600 + "the boat is blue, " * 40


def test_a_long_text_that_the_model_refuses_is_embedded_in_parts() -> None:
    model = Narrow()
    embedder = Embedder(model)
    (vector,) = embedder.texts([LONG_TEXT])
    parts = [text for (text,) in model.asked if len(text) <= 500]
    assert "".join(parts[1:]).split() == LONG_TEXT.split()
    assert parts[0].startswith("text ")
    assert not any(map(str.isspace, parts))
    (whole,) = Embedder(Words()).texts([LONG_TEXT])
    assert sum(a * b for a, b in zip(vector, whole, strict=True)) > 0.98
    assert math.hypot(*vector) == pytest.approx(1)
    model.asked.clear()
    assert embedder.texts([LONG_TEXT]) == [vector]
    assert model.asked == []


async def test_so_is_a_long_query_also_if_it_is_awaited() -> None:
    (vector,) = Embedder(Narrow()).texts([LONG_TEXT])
    assert Embedder(Narrow()).query(LONG_TEXT) == vector
    assert await Embedder(Narrow()).aquery(LONG_TEXT) == vector
    assert await Embedder(Narrow()).atexts([LONG_TEXT]) == [vector]


def test_a_text_whose_parts_are_refused_too_is_refused_and_so_is_a_short_one_at_once() -> None:
    model = Narrow()
    with pytest.raises(ModelError):
        Embedder(model).texts(["an unspeakable text"])
    assert len(model.asked) == 1
    model.asked.clear()
    with pytest.raises(ModelError):
        Embedder(model).texts([LONG_TEXT + "unspeakable"])
    assert min(len(text) for (text,) in model.asked if "unspeakable" in text) < 400


def test_of_a_model_that_is_down_no_parts_are_asked_for() -> None:
    asked: list[list[str]] = []

    def down(texts: list[str]) -> Any:
        asked.append(texts)
        raise ConnectionError

    with pytest.raises(ModelError, match="ConnectionError"):
        Embedder(down, name="down").texts([LONG_TEXT])
    assert [len(text) for (text,) in asked] == [len(LONG_TEXT), 13]


class TooManyRequestsError(Exception):
    status_code = 429


def test_of_a_text_beyond_a_rate_limit_no_parts_are_asked_for() -> None:
    """They count against the limit, too, and the client repeats each for seconds, while a search waits."""
    asked: list[list[str]] = []

    def limited(texts: list[str]) -> Any:
        asked.append(texts)
        if max(map(len, texts)) > 20:
            raise TooManyRequestsError
        return word_vectors(texts)

    embedder = Embedder(limited, name="limited")
    with pytest.raises(ModelError, match="TooManyRequestsError"):
        embedder.query(LONG_TEXT)
    with pytest.raises(ModelError, match="TooManyRequestsError"):
        embedder.texts([LONG_TEXT])
    assert asked == [[LONG_TEXT]] * 2


class UnreadableError(Exception):
    @property
    def response(self) -> None:
        raise RuntimeError("no response was set")


def test_an_error_whose_attributes_raise_is_a_failure_like_others() -> None:
    def down(_: list[str]) -> Any:
        raise UnreadableError

    with pytest.raises(ModelError, match="UnreadableError"):
        Embedder(down, name="down").query(LONG_TEXT)


def test_no_lone_surrogate_is_sent() -> None:
    model = Words()
    Embedder(model).texts(["\ud800 bike", "🙂", "\ud83d" + "\ude42"])
    assert model.asked == [["\ufffd bike", "🙂"]]


# ---- what comes back


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ([[1.0, 2.0]], "gave 1 vectors for 2 texts"),
        ([[1.0], [1.0], [1.0]], "gave 3 vectors for 2 texts"),
        ([], "gave 0 vectors for 2 texts"),
        ([[], []], "gave an empty vector"),
        ([[1.0, 2.0], [1.0]], "gave a vector of 1 numbers instead of 2"),
        ([[1.0, math.nan], [1.0, 1.0]], "no list of finite numbers"),
        ([[1.0, 1.0], [1.0, -math.inf]], "no list of finite numbers"),
        ([[1.0, "secret"], [1.0, 1.0]], "no list of finite numbers"),
        ([1.0, 2.0], "no list of finite numbers"),
        (["secret", "secret"], "no list of finite numbers"),
        ("secret", "no list of finite numbers"),
        ([b"secret", b"secret"], "no list of finite numbers"),  # whose bytes are numbers, and no vector
        (None, "no list of finite numbers"),
        ([[10**400], [1]], "no list of finite numbers"),
        (np.array([1.0, 2.0]), "no list of finite numbers"),
        (np.zeros((2, 2, 2)), "no list of finite numbers"),
    ],
)
def test_what_is_no_vector_for_each_text_is_a_model_error(answer: Any, why: str) -> None:
    embedder = Embedder(lambda _: answer, name="odd-1")
    with pytest.raises(ModelError, match=f"the embedder odd-1 .*{why}") as caught:
        embedder.texts(["secret one", "secret two"])
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert embedder.stats["failures"] == 1
    assert embedder.dimension is None


def test_a_dimension_that_changes_is_a_model_error_and_the_first_one_stays() -> None:
    embedder = Embedder(lambda texts: [[1.0] * len(text) for text in texts], name="odd-1")
    embedder.texts(["abc", "def"])
    for call in (lambda: embedder.texts(["abcd"]), lambda: embedder.query("ab")):
        with pytest.raises(ModelError, match="instead of 3"):
            call()
    assert embedder.dimension == 3
    assert embedder.texts(["ghi"])


def test_a_model_whose_name_cannot_be_asked_any_more_is_a_model_error() -> None:
    class Remote(NativeWords):
        is_down = False

        @property
        def model(self) -> str:  # type: ignore[override]  # a name that is asked for, as a remote model's may be
            if self.is_down:
                raise OSError("planted key")
            return "first"

    model = Remote()
    embedder = Embedder(model)
    embedder.texts(["bike"])
    model.is_down = True
    with pytest.raises(ModelError, match=r"Remote:first failed: OSError$") as caught:
        embedder.query("shed")
    assert isinstance(caught.value.__cause__, OSError)
    assert (embedder.stats["calls"], embedder.stats["failures"]) == (1, 1)
    model.is_down = False
    assert embedder.query("shed")


@pytest.mark.parametrize(("make", "attribute"), [(NativeWords, "model"), (OwnEmbedding, "model_name")])
def test_vectors_of_a_model_that_was_set_to_another_are_not_compared(make: Callable[[], Any], attribute: str) -> None:
    model = make()
    setattr(model, attribute, "first")
    embedder = Embedder(model)
    embedder.texts(["bike"])
    setattr(model, attribute, "second")
    assert embedder.texts(["bike"])  # of the first one, as it was cached
    for call in (lambda: embedder.texts(["shed"]), lambda: embedder.query("bike")):
        with pytest.raises(ModelError, match=r"^the embedder \w+:first was set to another model"):
            call()
    assert Embedder(model).name.endswith(":second")
    setattr(model, attribute, "first")
    assert embedder.texts(["shed"])
    named = Embedder(model, name="whatever it is set to")
    setattr(model, attribute, "second")
    assert named.texts(["shed"])


@pytest.mark.parametrize("is_generator", [False, True])
def test_a_failing_embedder_is_named_and_no_content_is(is_generator: bool) -> None:
    def failing(texts: list[str]) -> Any:
        raise RuntimeError(f"could not embed {texts}")

    def failing_late(texts: list[str]) -> Iterator[list[float]]:
        yield [1.0]
        raise RuntimeError(f"could not embed {texts}")

    embedder = Embedder(failing_late if is_generator else failing, name="failing-1")
    with pytest.raises(ModelError, match=r"^the embedder failing-1 failed: RuntimeError$") as caught:
        embedder.texts(["secret"])
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert (embedder.stats["calls"], embedder.stats["failures"]) == (1, 1)


def test_what_was_embedded_before_a_failure_is_not_sent_again() -> None:
    asked: list[list[str]] = []

    def brittle(texts: list[str]) -> Any:
        asked.append(texts)
        if len(asked) == 2:
            raise TimeoutError
        return word_vectors(texts)

    embedder = Embedder(brittle, name="brittle", batch=2)
    with pytest.raises(ModelError):
        embedder.texts(["a", "b", "c"])
    embedder.texts(["a", "b", "c"])
    assert asked == [["a", "b"], ["c"], ["c"]]


def test_integers_and_truths_are_numbers() -> None:
    embedder = Embedder(lambda texts: [(3, 4) for _ in texts], name="ints")
    assert list(embedder.query("a")) == pytest.approx([0.6, 0.8])


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, width=64), min_size=1, max_size=40))
@example([5e-324, 5e-324])
def test_every_vector_has_length_one_or_is_none(values: list[float]) -> None:
    embedder = Embedder(lambda texts: [values for _ in texts], name="any")
    try:
        vector = embedder.query("a")
    except ModelError:
        assert math.hypot(*values) == math.inf
        return
    assert not vector if not any(values) else math.hypot(*vector) == pytest.approx(1, abs=1e-5)


def test_threads_may_share_an_embedder() -> None:
    embedder = Embedder(Words(), remembered=5)

    def work(_: int) -> None:
        for n in range(200):
            assert embedder.texts([f"w{n % 9}"]) == Embedder(Words()).texts([f"w{n % 9}"])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert embedder.stats["texts"] + embedder.stats["remembered"] == 800
