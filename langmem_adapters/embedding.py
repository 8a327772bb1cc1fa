"""Ask a model for vectors: any LangChain or LlamaIndex embedding model, or a plain function, sync or async."""

from __future__ import annotations

import hashlib
import math
import sys
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from langmem_adapters.concurrency.locks import ForkSafeLock
from langmem_adapters.embedding_calls import Calls, calls_of, is_rate_limit, model_name_of
from langmem_adapters.errors import ConfigurationError, ModelError
from langmem_adapters.flow import Flow, arun, run
from langmem_adapters.keys import fingerprint
from langmem_adapters.language.word_pieces import PieceEmbedding, split_text
from langmem_adapters.lru import LRU
from langmem_adapters.run_callbacks import call_without_callbacks
from langmem_adapters.sharing import SharedByCopies
from langmem_adapters.text import replace_surrogates
from langmem_adapters.validation import check_count, check_text, checked_list

if TYPE_CHECKING:
    Vector: TypeAlias = array[float]
else:
    Vector = array  # Python 3.10 and 3.11 have no array[float], and tools that read annotations would fail
"""A unit vector of 32-bit floats (``array('f')``); empty if a text has no vector."""


class Embedding(NamedTuple):
    """The embedding of a text: its vector and, if the model returns them, those of its word pieces.

    ``pieces`` holds the signs of the vector of each piece, one bit for each dimension.
    """

    vector: Vector
    pieces: tuple[bytes, ...] = ()


_EmbeddingCache: TypeAlias = LRU[bytes, Embedding]  # by the hash of a text
_NO_EMBEDDING = Embedding(array("f"))
_MIN_PART_CHARS = 200  # of a refused text: one below twice that is not divided
_PROCESS_ATTRIBUTES = frozenset(("_document_calls", "_query_calls", "_lock", "_text_cache", "_query_cache", "stats"))
_ASYNC_REFUSAL = "this embedder is a coroutine function: call the async twin of this method, whose name begins with a"


class Embedder(SharedByCopies):
    """Asks one embedding model for vectors, caches the latest ones, and counts its calls.

    A blank text has no vector and is not sent. Neither has a text that the model answers with zeros, as a bag of
    words does for unknown words. All other vectors are scaled to length 1.

    Args:
        model: An object with ``embed_documents`` and ``embed_query`` (LangChain), or ``get_text_embedding_batch`` and
            ``get_query_embedding`` (LlamaIndex), a ``SentenceTransformer``, or a function from a list of texts to
            as many vectors, which may be async. A SentenceTransformer, even inside LangChain's HuggingFaceEmbeddings
            or LlamaIndex's HuggingFaceEmbedding, also returns vectors of word pieces, which improve the search of
            memories.
        name: Identifies the model: vectors are only compared with those of the same name and dimension. Default:
            the name of the class and of its model, or of its Azure deployment; an object that is set to another model
            later is not asked any more. Required for a function and for a SentenceTransformer. Choose a name of your
            own if anything else changes the vectors, such as an instruction or a revision.
        batch: How many texts are sent at a time.
        remembered: How many vectors of queries, and how many of texts, are cached in memory.
        longest: How many characters of a text are embedded; the rest of a longer text is cut off. A text within that
            which a provider refuses, as too long for its model, is embedded in parts if it is sent alone, as an index
            does then: its vector is the mean of theirs.

    ``stats`` counts calls, texts, remembered (texts that needed no call) and failures.

    >>> def letters(texts):
    ...     return [[text.count("a"), text.count("b")] for text in texts]
    >>> embedder = Embedder(letters, name="letters-1")
    >>> [list(vector) for vector in embedder.texts(["aaa", "b", "?"])]
    [[1.0, 0.0], [0.0, 1.0], []]
    >>> embedder.dimension, embedder.stats["calls"]
    (2, 1)
    """

    def __init__(
        self, model: Any, *, name: str = "", batch: int = 32, remembered: int = 1024, longest: int = 8_000
    ) -> None:
        check_text("name", name)
        check_count("batch", batch)
        check_count("remembered", remembered, minimum=0)
        check_count("longest", longest)
        self._model = model
        self._document_calls, self._query_calls = calls_of(model)
        self.tells_pieces: bool = self._document_calls.tells_pieces
        self.name: str = name or model_name_of(model)
        self._is_named_by_model = not name
        self.dimension: int | None = None
        self.stats: Counter[str] = Counter()
        self._batch = batch
        self._longest = longest
        self._lock = ForkSafeLock()
        self._text_cache: _EmbeddingCache = LRU(remembered)
        self._query_cache: _EmbeddingCache = LRU(remembered)

    @classmethod
    def of(cls, model: Any) -> Embedder:
        """Make an embedder of a model; an embedder is returned as it is."""
        return model if isinstance(model, cls) else cls(model)

    @property
    def blocks(self) -> bool:
        """Whether the model can be asked without an event loop."""
        return self._document_calls.call is not None

    def texts(self, texts: Sequence[str]) -> list[Vector]:
        """The vectors of texts, in their order.

        Raises ModelError if the model fails, or does not return one finite vector of its usual dimension for each
        text; and ConfigurationError if the model is async, so that only :meth:`atexts` can ask it.
        """
        return run(self.texts_flow(texts))

    async def atexts(self, texts: Sequence[str]) -> list[Vector]:
        """:meth:`texts`, without blocking the event loop."""
        return await arun(self.texts_flow(texts))

    def read(self, texts: Sequence[str]) -> list[Embedding]:
        """:meth:`texts`, with the vectors of their word pieces."""
        return run(self._embed_texts(texts))

    def read_query(self, text: str) -> Embedding:
        """:meth:`query`, with the vectors of its word pieces."""
        return run(self._embed_query(text))

    def query(self, text: str) -> Vector:
        """The vector of a query. Raises as :meth:`texts` does."""
        return run(self.query_flow(text))

    async def aquery(self, text: str) -> Vector:
        """:meth:`query`, without blocking the event loop."""
        return await arun(self.query_flow(text))

    def texts_flow(self, texts: Sequence[str]) -> Flow[list[Vector]]:
        """:meth:`texts`, as part of another flow."""
        return [embedding.vector for embedding in (yield from self._embed_texts(texts))]

    def query_flow(self, text: str) -> Flow[Vector]:
        """:meth:`query`, as part of another flow."""
        return (yield from self._embed_query(text)).vector

    def gains_ahead(self, count: int) -> bool:
        """Whether :meth:`ahead_flow` is of use for so many queries: their vectors are cached, and can be awaited."""
        return (self._query_calls.acall is not None or count > 1) and self._query_cache.max_entries >= count

    def ahead_flow(self, *texts: str) -> Flow[None]:
        """Cache the vectors of queries, asked for together, before the index, which blocks, asks for each.

        So a search on an event loop occupies no thread while the model works. If the coroutine is not implemented
        (LangChain's ``NotImplementedError``) or does not work on this loop (a ``RuntimeError``), the index asks
        itself. Other errors are raised as by :meth:`texts`.
        """
        try:
            yield from self._embed_cached(texts, self._query_cache, self._query_calls)
        except ModelError as error:
            if isinstance(error.__cause__, RuntimeError):
                return
            if len(texts) == 1 or max(map(len, texts)) < 2 * _MIN_PART_CHARS:
                raise
            for text in texts:  # one that is refused is embedded in parts
                yield from self.ahead_flow(text)

    def _embed_texts(self, texts: Sequence[str]) -> Flow[list[Embedding]]:
        return (yield from self._embed_cached(texts, self._text_cache, self._document_calls))

    def _embed_query(self, text: str) -> Flow[Embedding]:
        return (yield from self._embed_cached([text], self._query_cache, self._query_calls))[0]

    def _embed_cached(self, texts: Sequence[str], cache: _EmbeddingCache, calls: Calls) -> Flow[list[Embedding]]:
        checked = checked_list(texts, "an embedder takes a list of texts", str)
        sent = [_to_sendable(text, self._longest) for text in checked]
        keys = [hashlib.sha256(text.encode()).digest() for text in sent]
        with self._lock.held():
            embeddings = {key: embedding for key in set(keys) if (embedding := cache.get(key)) is not None}
        embeddings |= {key: _NO_EMBEDDING for key, text in zip(keys, sent, strict=True) if not text}
        missing = {key: text for key, text in zip(keys, sent, strict=True) if key not in embeddings}
        self._count(remembered=sum(bool(text) for text in sent) - len(missing))
        missing_keys = list(missing)
        for start in range(0, len(missing_keys), self._batch):
            batch = missing_keys[start : start + self._batch]
            new = dict(zip(batch, (yield from self._embed(calls, [missing[key] for key in batch])), strict=True))
            with self._lock.held():
                for key, embedding in new.items():
                    cache.put(key, embedding)
            embeddings |= new
        return [embeddings[key] for key in keys]

    def _embed(self, calls: Calls, texts: list[str], *, is_part: bool = False) -> Flow[list[Embedding]]:
        """Embed texts as the model reads them: a long one that it refuses, in halves, and those in halves again."""
        try:
            return self._to_embeddings((yield from self._call_model(calls, texts)), len(texts))
        except ModelError as error:
            if len(texts) > 1 or len(texts[0]) < 2 * _MIN_PART_CHARS or is_rate_limit(error.__cause__):
                raise
        if not is_part:
            yield from self._embed(calls, [harmless_text(texts)])  # raises if the model is down
        halves: list[Embedding] = []
        for half in split_text(texts[0], 2):
            if not half.isspace():
                halves += yield from self._embed(calls, [half], is_part=True)
        return [_mean_of(halves)]

    def _call_model(self, calls: Calls, texts: list[str]) -> Flow[Any]:
        try:
            if not self._is_named_by_model or model_name_of(self._model) == self.name:
                self._count(calls=1, texts=len(texts))
                # HyDE asks a model.
                answer = yield from call_without_callbacks(calls.call, calls.acall, _ASYNC_REFUSAL, texts)
                return list(answer) if isinstance(answer, Iterator) else answer  # a generator begins only now
        except ConfigurationError:
            raise
        except Exception as error:
            self._count(failures=1)
            raise ModelError(f"the embedder {self.name} failed: {type(error).__name__}") from error
        self._count(failures=1)
        raise ModelError(
            f"the embedder {self.name} was set to another model, whose vectors do not compare: make a new Embedder"
        )

    def _to_embeddings(self, answer: Any, count: int) -> list[Embedding]:
        try:
            rows = [row if isinstance(row, PieceEmbedding) else PieceEmbedding(row, ()) for row in _to_list(answer)]
            vectors = [_to_unit_vector(row.vector) for row in rows]
        except (TypeError, ValueError, OverflowError):
            flaw = "something that is no list of finite numbers for each text"
        else:
            flaw = self._find_flaw(vectors, count)
        if flaw:
            self._count(failures=1)
            raise ModelError(f"the embedder {self.name} gave {flaw}")
        return [
            Embedding(vector, row.pieces) if any(vector) else _NO_EMBEDDING
            for vector, row in zip(vectors, rows, strict=True)
        ]

    def _find_flaw(self, vectors: list[Vector], count: int) -> str:
        """What is wrong with these vectors, if anything; the first ones set the dimension."""
        if len(vectors) != count:
            return f"{len(vectors)} vectors for {count} texts"
        if not all(vectors):
            return "an empty vector"
        with self._lock.held():
            dimension = self.dimension or len(vectors[0])
            wrong_length = next((len(vector) for vector in vectors if len(vector) != dimension), None)
            if wrong_length:
                return f"a vector of {wrong_length} numbers instead of {dimension}"
            self.dimension = dimension
        return ""

    def _count(self, **increments: int) -> None:
        with self._lock.held():
            self.stats.update(increments)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out caches and counts, which each process has for itself."""
        state = {name: value for name, value in vars(self).items() if name not in _PROCESS_ATTRIBUTES}
        return state | {"remembered": self._text_cache.max_entries}

    def __setstate__(self, state: dict[str, Any]) -> None:
        remembered = state.pop("remembered")
        Embedder.__init__(self, state["_model"], name=state["name"], remembered=remembered)
        vars(self).update(state)

    def __repr__(self) -> str:
        return f"Embedder({self.name!r})"


# ---- texts and vectors


def cosine_of(first: Vector, second: Vector) -> float | None:
    """The cosine of two vectors; None, if one is empty."""
    return sum(a * b for a, b in zip(first, second, strict=True)) if first and second else None


def harmless_text(texts: Sequence[str]) -> str:
    """A text that no model refuses. It depends on these texts, so that no cache of the host answers it each time."""
    return f"text {fingerprint(list(texts))[:8]}"


def _mean_of(parts: Sequence[Embedding]) -> Embedding:
    """The embedding of a text, of those of its parts."""
    vectors = [part.vector for part in parts if part.vector]
    mean = _to_unit_vector([sum(values) for values in zip(*vectors, strict=True)])
    return Embedding(mean, tuple(chain.from_iterable(part.pieces for part in parts))) if any(mean) else _NO_EMBEDDING


def _to_sendable(text: str, max_chars: int) -> str:
    """The text as it is sent: shortened, without lone surrogates, which no client can send; empty if it is blank."""
    text = replace_surrogates(text[:max_chars])
    return "" if text.isspace() else text


def _to_list(values: Any) -> Iterable[Any]:
    """Values as a list of Python's own numbers, which are ten times as fast to read as those of NumPy and torch."""
    items = values.tolist() if hasattr(values, "tolist") else values
    if isinstance(items, str | bytes):
        raise TypeError
    return items if isinstance(items, list) else list(items)


def _to_unit_vector(row: Any) -> Vector:
    values = list(_to_list(row))
    length = math.hypot(*values)
    if not math.isfinite(length):
        raise ValueError
    if 0 < length < sys.float_info.min:  # subnormal, so not exact
        largest = max(map(abs, values))
        values = [value / largest for value in values]
        length = math.hypot(*values)
    return array("f", [value / length for value in values] if length else values)
