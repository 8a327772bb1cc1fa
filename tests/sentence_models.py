"""A model that answers as a SentenceTransformer does, and knows which words mean the same; and wrappers of it."""

from __future__ import annotations

import random
import re
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from langchain_core.embeddings import Embeddings
from llama_index.core.base.embeddings.base import BaseEmbedding
from pydantic import PrivateAttr

SIZE = 100  # numbers a vector: its signs do not fill whole words of 64
SPECIAL = {"[PAD]": 0, "[CLS]": 1, "[SEP]": 2}


class Tokenizer:
    """Cuts a text into words and what stands between them, but spaces; "ing" at a word's end is a piece of its own."""

    all_special_ids = sorted(SPECIAL.values())

    def __init__(self) -> None:
        self._pieces = list(SPECIAL)

    def ids_of(self, text: str) -> list[int]:
        pieces = re.findall(r"(?<=\w)ing\b|\w+?(?=ing\b)|\w+|[^\w ]", text.lower())
        pieces = [f"##{piece}" if piece == "ing" else piece for piece in pieces]
        self._pieces += [piece for piece in dict.fromkeys(pieces) if piece not in self._pieces]
        return [1, *map(self._pieces.index, pieces), 2]

    def convert_ids_to_tokens(self, ids: Sequence[int]) -> list[str]:
        return [self._pieces[id_] for id_ in ids]

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(self._pieces[id_] for id_ in ids)


class SentenceModel:
    """Words of one of the ``meanings`` have one vector; the vector of a text is the mean of those of its pieces."""

    truncate_dim: int | None = None

    def __init__(self, *meanings: set[str], max_seq_length: int | None = None) -> None:
        self.max_seq_length = max_seq_length  # pieces of a text that are read, special ones included; None: all
        self.tokenizer: Any = Tokenizer()
        self.asked: list[tuple[str, list[str]]] = []
        self._meanings = meanings

    def encode_document(self, texts: list[str], **how: Any) -> Any:
        self.asked.append(("document", texts))
        return self._encoded(texts, **how)

    def encode_query(self, texts: list[str], **how: Any) -> Any:
        self.asked.append(("query", texts))
        return self._encoded(texts, **how)

    def encode(self, texts: list[str], *, prompt_name: str = "", **how: Any) -> Any:
        self.asked.append((prompt_name, texts))
        return self._encoded(texts, **how)

    def piece(self, word: str) -> list[float]:
        """The vector of a piece."""
        said = next((min(meaning) for meaning in self._meanings if word in meaning), word)
        chance = random.Random(zlib.crc32(said.encode()))
        return [chance.gauss(0, 1) for _ in range(SIZE)]

    def _cut(self, ids: list[int]) -> list[int]:
        limit = self.max_seq_length
        return ids if limit is None or len(ids) <= limit else [*ids[: limit - 1], SPECIAL["[SEP]"]]

    def _encoded(self, texts: list[str], *, output_value: str | None = "sentence_embedding", **_: Any) -> Any:
        ids = [self._cut(self.tokenizer.ids_of(text)) for text in texts]
        rows = [[self.piece(piece) for piece in self.tokenizer.convert_ids_to_tokens(row)] for row in ids]
        means = [np.mean(row[1:-1] or row[:1], axis=0) for row in rows]
        if output_value == "sentence_embedding":
            return np.array(means)
        longest = max(map(len, ids))  # the others are filled up with what does not count
        return [
            {
                "input_ids": np.array(row + [0] * (longest - len(row))),
                "attention_mask": np.array([1] * len(row) + [0] * (longest - len(row))),
                "token_embeddings": np.array(vectors + [self.piece("[PAD]")] * (longest - len(row))),
                "sentence_embedding": mean,
            }
            for row, vectors, mean in zip(ids, rows, means, strict=True)
        ]


class HuggingFaceEmbeddings(Embeddings):
    """Asks as LangChain's does, whose name it has."""

    __module__ = "langchain_huggingface.embeddings.huggingface"

    def __init__(self, model: SentenceModel, *, multi_process: bool = False, **encode_kwargs: Any) -> None:
        self._client = model
        self.model_name, self.multi_process, self.encode_kwargs = "words", multi_process, encode_kwargs
        self.query_encode_kwargs = {"prompt_name": "query"}

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return self._embed(texts, self.encode_kwargs)

    def embed_query(self, text: str) -> list[float]:
        return self._embed([text], self.query_encode_kwargs)[0]

    def _embed(self, texts: list[str], options: dict[str, Any]) -> list[list[float]]:
        texts = [text.replace("\n", " ") for text in texts]
        vectors: list[list[float]] = self._client.encode(texts, show_progress_bar=False, **options).tolist()
        return vectors


class HuggingFaceEmbedding(BaseEmbedding):
    """Asks as LlamaIndex's does, whose name it has."""

    __module__ = "llama_index.embeddings.huggingface.base"
    _model: Any = PrivateAttr()
    _parallel_process: bool = PrivateAttr()

    def __init__(self, model: SentenceModel, *, parallel_process: bool = False, **fields: Any) -> None:
        super().__init__(model_name="words", **fields)
        self._model, self._parallel_process = model, parallel_process

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return self._embed(texts, "text")

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._embed([text], "text")[0]

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._embed([query], "query")[0]

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)

    def _embed(self, texts: list[str], prompt_name: str) -> list[list[float]]:
        options = {"batch_size": self.embed_batch_size, "prompt_name": prompt_name, "normalize_embeddings": True}
        vectors: list[list[float]] = self._model.encode(texts, show_progress_bar=False, **options).tolist()
        return vectors
