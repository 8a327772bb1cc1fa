"""The postings of a term, read whole."""

from __future__ import annotations

import json
import sqlite3
from array import array
from typing import NamedTuple

from langmem_adapters.indexes.lexical_cache import RowCache

__all__ = ["Postings", "parsed", "postings_of"]

_ENTRY = 600  # bytes that a term takes beside its postings, roughly


class Postings(NamedTuple):
    """A term's documents in the order of their numbers, its frequency in each, and the length of each."""

    documents: array[int]
    tf: array[int]
    length: array[int]


def postings_of(connection: sqlite3.Connection, kept: RowCache, namespace: int, term: bytes, changed: int) -> Postings:
    """The postings of an existing term; ``changed`` is the number in its row in this transaction."""
    found: Postings | None = kept.get((namespace, term), changed)
    if found is None:
        found = parsed(*connection.execute(_COLUMNS, (namespace, term)).fetchone())
        kept.keep((namespace, term), changed, found, sum(len(c) * c.itemsize for c in found) + _ENTRY)
    return found


def parsed(documents: str, tf: str, length: str) -> Postings:
    """Parse postings from columns as texts: passing a row to Python takes ten times as long as finding it."""
    columns = (json.loads(f"[{column}]") for column in (documents, tf, length))
    return Postings(*map(array, "qII", columns))


# One pass over the rows, in the order of the documents, so that the columns stay aligned.
_COLUMNS = """
    SELECT group_concat(document), group_concat(tf), group_concat(length) FROM langmem_lexical_postings
    WHERE namespace = ? AND term = ?"""
