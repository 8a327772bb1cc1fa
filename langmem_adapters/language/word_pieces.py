"""What a sentence-transformers model returns beside a text's vector: the meaning of its word pieces."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from langmem_adapters.language.english import STOP_WORDS

_MAX_PIECES = 1024  # pieces of a text; later ones count only in the text's vector
_PART_SHARE = 0.9  # of what a model reads at a time is a part of a longer text, as some have more pieces than others


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
    """A function that asks a ``SentenceTransformer``, by one of its two ways to encode, for all it returns.

    A text of more pieces than the model reads at a time is read in parts: its vector is the mean of theirs, and its
    pieces are those of all.
    """
    if not tells_pieces(model):
        return lambda texts: list(encode(texts, show_progress_bar=False))
    tokenizer = model.tokenizer
    special = frozenset(tokenizer.all_special_ids)

    @functools.cache
    def has_meaning(id_: int) -> bool:
        return id_ not in special and _has_meaning(tokenizer.decode([id_]))

    def ask(texts: list[str]) -> list[Any]:
        return list(encode(texts, output_value=None, show_progress_bar=False))

    def parts(text: str, answer: Any) -> list[str]:
        max_length = getattr(model, "max_seq_length", None)
        if not max_length or len(_read_pieces(answer)) < max_length:
            return [text]
        read_text = tokenizer.decode([id_ for _, id_ in _text_pieces(answer) if id_ not in special])
        return split_text(text, math.ceil(len(text) / (_PART_SHARE * len(read_text)))) if read_text else [text]

    def pieces(answer: Any) -> Iterator[bytes]:
        positions = [position for position, id_ in _text_pieces(answer) if has_meaning(id_)]
        for signs in (answer["token_embeddings"][positions] > 0).tolist() if positions else ():
            yield _pack_signs(signs)

    def read(texts: list[str]) -> list[Any]:
        embeddings = []
        for text, answer in zip(texts, ask(texts), strict=True):
            part_texts = parts(text, answer)
            answers = [answer] if len(part_texts) == 1 else ask(part_texts)
            vectors = [each["sentence_embedding"] for each in answers]
            all_pieces = itertools.chain.from_iterable(map(pieces, answers))
            mean = sum(vectors[1:], vectors[0]) / len(vectors)
            embeddings.append(PieceEmbedding(mean, tuple(itertools.islice(all_pieces, _MAX_PIECES))))
        return embeddings

    return read


def _read_pieces(answer: Any) -> list[tuple[int, int]]:
    """The position and the id of each piece that a model read; none, if it flattened a batch into one row."""
    ids, mask, vectors = (answer.get(name) for name in ("input_ids", "attention_mask", "token_embeddings"))
    if ids is None or mask is None or vectors is None or ids.ndim != 1:
        return []
    return [
        (position, id_) for position, (id_, reads) in enumerate(zip(ids.tolist(), mask.tolist(), strict=True)) if reads
    ]


def _text_pieces(answer: Any) -> list[tuple[int, int]]:
    """Those of the text: not of a prompt before it, whose last piece, a space, may be merged with the text's first."""
    return _read_pieces(answer)[max(answer.get("prompt_length", 0) - 1, 0) :]


def split_text(text: str, count: int) -> list[str]:
    """Divide a text into so many parts, about equally long; between words, where there are spaces."""
    ends = [len(text) * number // count for number in range(1, count)]
    ends = [text.rfind(" ", end - len(text) // count // 2, end) + 1 or end for end in ends]
    return [text[start:end] for start, end in itertools.pairwise([0, *ends, len(text)])]


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
