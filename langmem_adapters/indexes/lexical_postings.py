"""The postings of a term, read whole."""

from __future__ import annotations

import json
import sqlite3
from array import array
from typing import NamedTuple

from langmem_adapters.indexes.lexical_cache import RowCache

__all__ = ["Postings", "parse_postings", "read_postings"]

_OVERHEAD_BYTES = 600  # that a term takes beside its postings, roughly


class Postings(NamedTuple):
    """A term's documents in the order of their numbers, its frequency in each, and the length of each."""

    documents: array[int]
    tf: array[int]
    length: array[int]


def read_postings(
    connection: sqlite3.Connection, cache: RowCache, namespace: int, term: bytes, version: int
) -> Postings:
    """The postings of an existing term; ``version`` is the number in its row in this transaction."""
    postings: Postings | None = cache.get((namespace, term), version)
    if postings is None:
        postings = parse_postings(*connection.execute(_SELECT_POSTINGS, (namespace, term)).fetchone())
        size = sum(len(column) * column.itemsize for column in postings) + _OVERHEAD_BYTES
        cache.put((namespace, term), version, postings, size)
    return postings


def parse_postings(documents: str, tf: str, length: str) -> Postings:
    """Parse postings from columns as texts: passing a row to Python takes ten times as long as finding it."""
    columns = (json.loads(f"[{column}]") for column in (documents, tf, length))
    return Postings(*map(array, "qII", columns))


# One pass over the rows, in the order of the documents, so that the columns stay aligned.
_SELECT_POSTINGS = """
    SELECT group_concat(document), group_concat(tf), group_concat(length) FROM langmem_lexical_postings
    WHERE namespace = ? AND term = ?"""
