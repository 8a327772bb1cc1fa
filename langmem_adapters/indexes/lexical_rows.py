"""The rows of the lexical index: documents in the order of their threads, postings, and who speaks.

A document's number is its place. 256 numbers form a stretch, which is a thread or a part of a long one; so the
neighbours of a document have the numbers before and after, also in the postings. A removed one leaves its number
unused, which a query passes over.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

from langmem_adapters.files.unlinking import Unlinking, removal_sql
from langmem_adapters.keys import to_bytes, to_text
from langmem_adapters.protocols import Document

STRETCH_SIZE = 256  # documents
_MAX_BATCH_POSTINGS = 100_000  # written together; each takes about 100 bytes meanwhile
_MAX_SPEAKERS = 1000  # the most names of a namespace that are looked for in a query

_TABLES = ("postings", "terms", "documents", "stretches", "speakers", "again", "namespaces")
SCHEMA = (
    *(f"DROP TABLE IF EXISTS langmem_lexical_{table}" for table in _TABLES),  # of the schema before, named "lexical"
    """CREATE TABLE langmem_lexical_namespaces (
        number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, analyzer TEXT NOT NULL,
        documents INTEGER NOT NULL DEFAULT 0, length INTEGER NOT NULL DEFAULT 0,
        stretches INTEGER NOT NULL DEFAULT 0, seq INTEGER, entry BLOB)""",
    """CREATE TABLE langmem_lexical_stretches (
        number INTEGER PRIMARY KEY, namespace INTEGER NOT NULL, thread BLOB NOT NULL,
        used INTEGER NOT NULL DEFAULT 0, documents INTEGER NOT NULL DEFAULT 0, length INTEGER NOT NULL DEFAULT 0,
        changed INTEGER NOT NULL DEFAULT 0)""",
    "CREATE INDEX langmem_lexical_threads ON langmem_lexical_stretches (namespace, thread, number)",
    """CREATE TABLE langmem_lexical_documents (
        number INTEGER PRIMARY KEY, namespace INTEGER NOT NULL, id BLOB NOT NULL, length INTEGER NOT NULL,
        speaker BLOB NOT NULL, at REAL, marks INTEGER NOT NULL, terms TEXT NOT NULL, UNIQUE (namespace, id))""",
    """CREATE TABLE langmem_lexical_postings (
        namespace INTEGER NOT NULL, term BLOB NOT NULL, document INTEGER NOT NULL,
        tf INTEGER NOT NULL, length INTEGER NOT NULL,
        PRIMARY KEY (namespace, term, document)) WITHOUT ROWID""",
    """CREATE TABLE langmem_lexical_speakers (
        namespace INTEGER NOT NULL, name BLOB NOT NULL, documents INTEGER NOT NULL,
        PRIMARY KEY (namespace, name)) WITHOUT ROWID""",
    """CREATE TABLE langmem_lexical_terms (
        namespace INTEGER NOT NULL, term BLOB NOT NULL, documents INTEGER NOT NULL,
        tf INTEGER NOT NULL, length INTEGER NOT NULL, changed INTEGER NOT NULL,
        PRIMARY KEY (namespace, term)) WITHOUT ROWID""",
    """CREATE TABLE langmem_lexical_again (
        document INTEGER NOT NULL, namespace INTEGER NOT NULL, thread BLOB NOT NULL,
        PRIMARY KEY (document, thread)) WITHOUT ROWID""",
    "CREATE INDEX langmem_lexical_again_threads ON langmem_lexical_again (namespace, thread, document)",
)

NAMESPACES = Unlinking(
    "langmem_lexical_namespaces",
    [
        removal_sql(f"langmem_lexical_{table}", key)
        for table, key in (
            ("postings", "term"),
            ("terms", "term"),
            ("documents", "id"),
            ("again", "thread"),
            ("stretches", "thread"),  # after all that has numbers of documents: those of a removed one are given again
            ("speakers", "name"),
        )
    ],
)
"""The tables of a namespace, for its removal."""


class Row(NamedTuple):
    """A document with its terms and its marks."""

    document: Document
    counts: Counter[str]
    marks: int


def add_rows(connection: sqlite3.Connection, namespace: int, rows: Iterable[Row], version: int) -> None:
    """Add documents, each at the end of its thread, or in its old place if that is in the same named thread.

    ``version`` is unique to this change.
    """
    batch: dict[bytes, tuple[int, Row]] = {}
    posting_count = 0
    for row in rows:
        id_, thread = to_bytes(row.document.id), to_bytes(row.document.thread)
        if id_ in batch or posting_count > _MAX_BATCH_POSTINGS:
            _write_rows(connection, namespace, batch, version)
            batch, posting_count = {}, 0
        number = remove_document(connection, namespace, id_, version, kept_thread=thread)
        batch[id_] = (_reserve_number(connection, namespace, thread) if number is None else number, row)
        posting_count += len(row.counts)
    if batch:
        _write_rows(connection, namespace, batch, version)


def _write_rows(
    connection: sqlite3.Connection, namespace: int, batch: Mapping[bytes, tuple[int, Row]], version: int
) -> None:
    """Write new documents together: each term once, and postings in the order of their table."""
    term_keys = {term: to_bytes(term) for term in set().union(*(row.counts for _, row in batch.values()))}
    documents, postings, repeats = [], [], []
    stretches: dict[int, tuple[int, int]] = {}
    speakers: Counter[bytes] = Counter()
    for id_, (number, row) in batch.items():
        document, length, speaker = row.document, row.counts.total(), to_bytes(row.document.speaker)
        documents.append((number, namespace, id_, length, speaker, document.at, row.marks, json.dumps([*row.counts])))
        postings += [(namespace, term_keys[term], number, tf, length) for term, tf in row.counts.items()]
        repeats += [(number, namespace, to_bytes(thread)) for thread in document.again]
        document_count, total_length = stretches.get(number // STRETCH_SIZE, (0, 0))
        stretches[number // STRETCH_SIZE] = (document_count + 1, total_length + length)
        speakers[speaker] += 1
    postings.sort()
    terms: dict[bytes, tuple[int, int, int]] = {}
    for _, term, _, tf, length in postings:
        frequency, max_tf, min_length = terms.get(term, (0, tf, length))
        terms[term] = (frequency + 1, max(max_tf, tf), min(min_length, length))
    connection.executemany("INSERT INTO langmem_lexical_documents VALUES (?, ?, ?, ?, ?, ?, ?, ?)", documents)
    connection.executemany("INSERT INTO langmem_lexical_postings VALUES (?, ?, ?, ?, ?)", postings)
    connection.executemany(_UPSERT_TERM, [(namespace, term, *bounds, version) for term, bounds in terms.items()])
    connection.executemany("INSERT OR IGNORE INTO langmem_lexical_again VALUES (?, ?, ?)", repeats)
    _update_counts(connection, namespace, version, stretches, speakers)


# The greatest tf and the least length are bounds: they stay when the document that had them is removed.
_UPSERT_TERM = """
    INSERT INTO langmem_lexical_terms VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (namespace, term) DO UPDATE
    SET documents = documents + excluded.documents, tf = max(tf, excluded.tf), length = min(length, excluded.length),
    changed = excluded.changed"""


def remove_document(
    connection: sqlite3.Connection, namespace: int, id_: bytes, version: int, *, kept_thread: bytes | None = None
) -> int | None:
    """Remove a document. If it stood in ``kept_thread``, its number is returned, and stays reserved for it."""
    row = connection.execute(
        "SELECT number, length, speaker, CAST(terms AS BLOB) FROM langmem_lexical_documents"  # an error quotes texts
        " WHERE namespace = ? AND id = ?",
        (namespace, id_),
    ).fetchone()
    if row is None:
        return None
    number, length, speaker, terms = row
    keys = [(namespace, to_bytes(term)) for term in json.loads(to_text(terms))]
    connection.executemany(
        "DELETE FROM langmem_lexical_postings WHERE namespace = ? AND term = ? AND document = ?",
        [(*key, number) for key in keys],
    )
    connection.executemany(_DECREMENT_TERM, [(version, *key) for key in keys])
    connection.executemany(_DELETE_UNUSED_TERM, keys)
    connection.execute("DELETE FROM langmem_lexical_documents WHERE number = ?", (number,))
    connection.execute("DELETE FROM langmem_lexical_again WHERE document = ?", (number,))
    (thread,) = connection.execute(
        "SELECT thread FROM langmem_lexical_stretches WHERE number = ?", (number // STRETCH_SIZE,)
    ).fetchone()
    _update_counts(connection, namespace, version, {number // STRETCH_SIZE: (-1, -length)}, {speaker: -1})
    return cast(int, number) if thread and thread == kept_thread else None


_DECREMENT_TERM = (
    "UPDATE langmem_lexical_terms SET documents = documents - 1, changed = ? WHERE namespace = ? AND term = ?"
)
_DELETE_UNUSED_TERM = "DELETE FROM langmem_lexical_terms WHERE namespace = ? AND term = ? AND documents = 0"


def _reserve_number(connection: sqlite3.Connection, namespace: int, thread: bytes) -> int:
    """The number after the last one of a thread; a full stretch is followed by a new one."""
    row = connection.execute(
        "SELECT number, used FROM langmem_lexical_stretches WHERE namespace = ? AND thread = ?"
        " ORDER BY number DESC LIMIT 1",
        (namespace, thread),
    ).fetchone()
    stretch, used = row or (0, STRETCH_SIZE)
    if used == STRETCH_SIZE:
        insert = "INSERT INTO langmem_lexical_stretches (namespace, thread) VALUES (?, ?)"
        stretch, used = connection.execute(insert, (namespace, thread)).lastrowid, 0
    connection.execute("UPDATE langmem_lexical_stretches SET used = used + 1 WHERE number = ?", (stretch,))
    return cast(int, stretch * STRETCH_SIZE + used)


def _update_counts(
    connection: sqlite3.Connection,
    namespace: int,
    version: int,
    stretches: Mapping[int, tuple[int, int]],
    speakers: Mapping[bytes, int],
) -> None:
    """Update counts: each stretch's documents and their total length, and each speaker's documents."""
    stretch_delta = 0
    for stretch, (documents, length) in stretches.items():
        ((old_documents,),) = connection.execute(
            "SELECT documents FROM langmem_lexical_stretches WHERE number = ?", (stretch,)
        )
        was_filled, is_filled = old_documents > 0, old_documents + documents > 0
        stretch_delta += is_filled - was_filled
        connection.execute(
            "UPDATE langmem_lexical_stretches SET documents = documents + ?, length = length + ?, changed = ?"
            " WHERE number = ?",
            (documents, length, version, stretch),
        )
    total_documents = sum(documents for documents, _ in stretches.values())
    total_length = sum(length for _, length in stretches.values())
    connection.execute(
        "UPDATE langmem_lexical_namespaces"
        " SET documents = documents + ?, length = length + ?, stretches = stretches + ? WHERE number = ?",
        (total_documents, total_length, stretch_delta, namespace),
    )
    connection.executemany(
        "INSERT INTO langmem_lexical_speakers VALUES (?, ?, ?)"
        " ON CONFLICT (namespace, name) DO UPDATE SET documents = documents + excluded.documents",
        [(namespace, speaker, count) for speaker, count in speakers.items() if speaker],
    )
    if total_documents < 0:
        connection.execute("DELETE FROM langmem_lexical_speakers WHERE namespace = ? AND documents = 0", (namespace,))


_KEY_COUNTS = (8, 16, 64)  # keys in one statement: few numbers, so that SQLite need not compile others


def key_statements(select: str) -> dict[int, str]:
    """The statements of :func:`select_by_keys`, by their numbers of keys; ``select`` ends before the keys."""
    return {count: f"{select} ({', '.join('?' * count)})" for count in _KEY_COUNTS}


def select_by_keys(
    connection: sqlite3.Connection, statements: Mapping[int, str], namespace: int, keys: Sequence[bytes]
) -> Iterator[tuple[Any, ...]]:
    """The rows of a namespace that have these keys, which JSON could not hold."""
    most = _KEY_COUNTS[-1]
    for start in range(0, len(keys), most):
        batch = keys[start : start + most]
        count = next(count for count in _KEY_COUNTS if len(batch) <= count)
        repeats = [batch[-1]] * (count - len(batch))
        yield from connection.execute(statements[count], (namespace, *batch, *repeats)).fetchall()


def document_ids(connection: sqlite3.Connection, documents: Sequence[int]) -> dict[int, str]:
    """The ids of documents by their numbers."""
    rows = connection.execute(
        "SELECT number, id FROM langmem_lexical_documents WHERE number IN (SELECT value FROM json_each(?))",
        (json.dumps(documents),),
    ).fetchall()
    return {number: to_text(id_) for number, id_ in rows}


def speaker_names(connection: sqlite3.Connection, namespace: int) -> list[str]:
    """The speakers in a namespace, those with the most documents first."""
    rows = connection.execute(
        "SELECT name FROM langmem_lexical_speakers WHERE namespace = ? ORDER BY documents DESC, name LIMIT ?",
        (namespace, _MAX_SPEAKERS),
    ).fetchall()
    return [to_text(name) for (name,) in rows]
