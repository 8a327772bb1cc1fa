"""Full-text search without readable words at rest: the index of an encrypted store."""

from __future__ import annotations

import hmac
from collections import Counter
from collections.abc import Collection
from functools import lru_cache
from pathlib import Path
from typing import Any

from langmem_adapters.errors import ConfigurationError
from langmem_adapters.indexes.lexical import LexicalIndex
from langmem_adapters.indexes.lexical_rows import Row
from langmem_adapters.keys import Namespace, to_bytes
from langmem_adapters.model import Hit
from langmem_adapters.protocols import Document

__all__ = ["KeyedLexicalIndex"]

_MIN_KEY_BYTES = 16
_DIGEST_BYTES = 12  # two of ten million words share one in one of 10**15 indexes
_MAX_CACHED_DIGESTS = 1 << 16


class KeyedLexicalIndex(LexicalIndex):
    """A :class:`LexicalIndex` that keeps only a keyed digest (HMAC-SHA-256) of each word, speaker and thread.

    It ranks as the other does, but cannot tell a speaker's name in a query from other words. Whoever has the file, but
    not the key, sees ids and namespaces, how long documents are and when they were said, whether they ask, speak of
    their speaker, or name a time, a number or somebody, and which of them share words, and how often; so common words
    can be guessed. The order of words is not kept. With another key, namespaces count as not begun.

    Args:
        path: The file, or ":memory:".
        key: 16 bytes or more; ``index_key()`` of an encrypting codec gives one.
        settings: What else a :class:`LexicalIndex` takes, such as ``analyzer`` and ``stop_words``.

    >>> index = KeyedLexicalIndex(":memory:", key=bytes(32))
    >>> index.apply(("notes",), upsert=[Document("n1", "My bike is in the shed.")])
    >>> [hit.id for hit in index.search(("notes",), "Where are the bikes?", k=3)]
    ['n1']
    """

    def __init__(self, path: str | Path, *, key: bytes, **settings: Any) -> None:
        if not isinstance(key, bytes | bytearray) or len(key) < _MIN_KEY_BYTES:
            raise ConfigurationError(f"the key of an index is {_MIN_KEY_BYTES} bytes or more")
        secret = bytes(key)

        @lru_cache(maxsize=_MAX_CACHED_DIGESTS)
        def digest(word: str) -> str:
            return hmac.digest(secret, to_bytes(word), "sha256")[:_DIGEST_BYTES].hex()

        super().__init__(path, **settings)
        analyzer, part_terms, spelling_corrections = self._analyzer, self._part_terms, self._spelling_corrections

        def keyed_corrections(query: str, unknown: Collection[str]) -> dict[str, frozenset[str]]:
            corrections = spelling_corrections(query, {word for word in analyzer(query) if digest(word) in unknown})
            return {digest(word): frozenset(map(digest, terms)) for word, terms in corrections.items()}

        self._digest = digest
        self._spelling_corrections = keyed_corrections
        self._analyzer = lambda text: [digest(word) for word in analyzer(text)]
        self._part_terms = lambda text: [digest(part) for part in part_terms(text)]
        self._analyzer_id += f" keyed {digest(chr(0))}"
        self._stop_words = frozenset(map(digest, self._stop_words))

    @classmethod
    def in_file_of(cls, index: LexicalIndex, *, key: bytes) -> KeyedLexicalIndex:
        """The keyed index in the same file as another index."""
        database = index._database  # noqa: SLF001 - one of this class
        return cls(database.location.file or database.path, key=key, disposable=database.disposable)

    def within(self, namespace: Namespace, query: str, thread: str) -> list[Hit]:
        return super().within(namespace, query, self._keyed_thread(thread))

    def _to_row(self, document: Document) -> Row:
        """:meth:`LexicalIndex._to_row`, with the speaker only among the words, which are in no particular order."""
        row = super()._to_row(document)
        thread, repeat_threads = self._keyed_thread(document.thread), tuple(map(self._keyed_thread, document.again))
        keyed_document = document._replace(speaker="", thread=thread, again=repeat_threads)
        return row._replace(document=keyed_document, counts=Counter(dict(sorted(row.counts.items()))))

    def _keyed_thread(self, name: str) -> str:
        return self._digest(f"thread {name}") if name else ""
