"""What a model of the library sentence-transformers tells of a text beside its vector: what its word pieces mean."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from langmem_adapters.language.analysis import STOP_WORDS

__all__ = ["Told", "is_sentence_transformer", "reader", "tells_pieces"]

_MOST = 256  # pieces of a text; what is behind them counts by the vector of the text alone


class Told(NamedTuple):
    """What such a model answers for a text: its vector, and the signs of those of its word pieces that say something.

    A piece has one bit for each number of its vector, 1 where that is above 0, filled up with 0 to whole eight bytes.
    """

    vector: Any
    pieces: tuple[bytes, ...]


def is_sentence_transformer(model: Any) -> bool:
    """Whether a model is a ``SentenceTransformer``, by what it can do: the library is not imported for it."""
    return hasattr(model, "encode_query") and hasattr(model, "encode_document")


def tells_pieces(model: Any) -> bool:
    """Whether a model also tells of word pieces: one without a tokenizer of the usual kind does not."""
    return is_sentence_transformer(model) and hasattr(getattr(model, "tokenizer", None), "convert_ids_to_tokens")


def reader(model: Any, encode: Callable[..., Any]) -> Callable[[list[str]], list[Any]]:
    """How to ask a ``SentenceTransformer``, by one of its two ways to encode: for vectors, or for all it can tell."""
    if not tells_pieces(model):
        return lambda texts: list(encode(texts, show_progress_bar=False))
    tokenizer = model.tokenizer
    special = frozenset(tokenizer.all_special_ids)

    def pieces(answer: Any) -> Iterator[bytes]:
        ids, mask, vectors = (answer.get(name) for name in ("input_ids", "attention_mask", "token_embeddings"))
        if ids is None or mask is None or vectors is None or ids.ndim != 1:  # of a batch that was laid in a row
            return
        numbers = ids.tolist()
        there = zip(numbers, mask.tolist(), tokenizer.convert_ids_to_tokens(numbers), strict=True)
        says = [n for n, (id_, counts, word) in enumerate(there) if counts and id_ not in special and _says(word)]
        for vector in vectors[says[:_MOST]].tolist():
            yield _signs(vector)

    def read(texts: list[str]) -> list[Any]:
        answers = encode(texts, output_value=None, show_progress_bar=False)
        return [Told(answer["sentence_embedding"], tuple(pieces(answer))) for answer in answers]

    return read


def _says(piece: str) -> bool:
    """Whether a piece is more than punctuation or a word that says little; "##", "▁" and "Ġ" are the tokenizer's."""
    word = piece.strip("#▁Ġ").lower()
    return word not in _LITTLE and any(map(str.isalnum, word))


def _signs(vector: Sequence[float]) -> bytes:
    bits = "".join(["1" if number > 0 else "0" for number in vector])
    words = -(-len(bits) // 64)
    return int(bits.ljust(64 * words, "0"), 2).to_bytes(8 * words, "big")


_LITTLE = STOP_WORDS | {"s"}  # the last: what a tokenizer makes of "John's"
