"""What a sentence-transformers model returns beside a text's vector: the meaning of its word pieces."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from langmem_adapters.language.analysis import STOP_WORDS

__all__ = ["PieceEmbedding", "is_sentence_transformer", "make_encoder", "tells_pieces"]

_MAX_PIECES = 256  # pieces of a text; later ones count only in the text's vector


class PieceEmbedding(NamedTuple):
    """A model's answer for a text: its vector, and the signs of the vectors of its word pieces that say something.

    A piece has one bit for each number of its vector, 1 if that is above 0, padded with 0 to a multiple of eight bytes.
    """

    vector: Any
    pieces: tuple[bytes, ...]


def is_sentence_transformer(model: Any) -> bool:
    """Whether a model is a ``SentenceTransformer``, by its methods: the library is not imported for it.

    Encoders that do not return one vector per text, sparse ones and those of many vectors, cannot truncate it.
    """
    return all(hasattr(model, name) for name in ("encode_query", "encode_document", "truncate_dim"))


def tells_pieces(model: Any) -> bool:
    """Whether a model also returns word pieces: one without a tokenizer of the usual kind does not."""
    return is_sentence_transformer(model) and hasattr(getattr(model, "tokenizer", None), "all_special_ids")


def make_encoder(model: Any, encode: Callable[..., Any]) -> Callable[[list[str]], list[Any]]:
    """A function that asks a ``SentenceTransformer``, by one of its two ways to encode, for all it returns."""
    if not tells_pieces(model):
        return lambda texts: list(encode(texts, show_progress_bar=False))
    tokenizer = model.tokenizer
    special = frozenset(tokenizer.all_special_ids)

    @functools.cache
    def has_meaning(id_: int) -> bool:
        return id_ not in special and _has_meaning(tokenizer.decode([id_]))

    def pieces(answer: Any) -> Iterator[bytes]:
        ids, mask, vectors = (answer.get(name) for name in ("input_ids", "attention_mask", "token_embeddings"))
        if ids is None or mask is None or vectors is None or ids.ndim != 1:  # of a batch flattened into one row
            return
        pairs = enumerate(zip(ids.tolist(), mask.tolist(), strict=True))
        attended = [(position, id_) for position, (id_, attends) in pairs if attends]
        # A prompt before each text is not part of it; its last piece, a space, may be merged with the text's first.
        text_pieces = attended[max(answer.get("prompt_length", 0) - 1, 0) :]
        positions = [position for position, id_ in text_pieces if has_meaning(id_)][:_MAX_PIECES]
        for signs in (vectors[positions] > 0).tolist():
            yield _pack_signs(signs)

    def read(texts: list[str]) -> list[Any]:
        answers = encode(texts, output_value=None, show_progress_bar=False)
        return [PieceEmbedding(answer["sentence_embedding"], tuple(pieces(answer))) for answer in answers]

    return read


def _has_meaning(piece: str) -> bool:
    """Whether a piece is more than punctuation or a stop word; "##" marks the continuation of a word."""
    word = piece.strip("# ").lower()
    return word not in _STOP_PIECES and any(map(str.isalnum, word))


def _pack_signs(signs: Sequence[bool]) -> bytes:
    word_count = -(-len(signs) // 64)
    digits = bytes(signs).translate(_BIT_DIGITS).ljust(64 * word_count, b"0")
    return int(digits, 2).to_bytes(8 * word_count, "big")


_BIT_DIGITS = bytes.maketrans(b"\0\1", b"01")
_STOP_PIECES = STOP_WORDS | {"s"}  # the last: what a tokenizer makes of "John's"
