"""Full-text search by words: BM25 over postings that are rows in SQLite.

Adding a document costs what the document is long, a new process has nothing to load, and a query reads the
postings of its words only. Ranking: S. Robertson and H. Zaragoza, "The Probabilistic Relevance Framework:
BM25 and Beyond" (2009), with Lucene's idf, which is never negative.
"""

from __future__ import annotations

import contextlib
import heapq
import json
import math
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, cast

from langmem_adapters.analysis import ANALYZER_ID, STOP_WORDS, Analyzer, analyze
from langmem_adapters.database import Database
from langmem_adapters.errors import ConfigurationError, SearchError, StoreError
from langmem_adapters.keys import Namespace, encode_namespace
from langmem_adapters.model import Hit
from langmem_adapters.protocols import Document

__all__ = ["LexicalIndex"]

_SCHEMA = (
    """CREATE TABLE langmem_lexical_namespaces (
        number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, analyzer TEXT NOT NULL,
        documents INTEGER NOT NULL DEFAULT 0, length INTEGER NOT NULL DEFAULT 0, seq INTEGER, entry BLOB)""",
    """CREATE TABLE langmem_lexical_documents (
        number INTEGER PRIMARY KEY, namespace INTEGER NOT NULL, id BLOB NOT NULL,
        length INTEGER NOT NULL, terms TEXT NOT NULL, UNIQUE (namespace, id))""",
    """CREATE TABLE langmem_lexical_postings (
        namespace INTEGER NOT NULL, term BLOB NOT NULL, document INTEGER NOT NULL,
        tf INTEGER NOT NULL, length INTEGER NOT NULL,
        PRIMARY KEY (namespace, term, document)) WITHOUT ROWID""",
)

_QUERY_CHARACTERS = 100_000  # of a longer query, so many at its beginning and at its end
_QUERY_TERMS = 64
_LOOKUP_COST = 2  # reading one posting by its document costs about as much as this many in a row
_ROUNDING = 1 + 1e-9  # sums in another order differ in the last digits, and must not cost a document its place


class LexicalIndex:
    """An incremental BM25 index in an SQLite file, which may be the store's own file.

    A score is the document's BM25 divided by the most that any document could reach with this query, so it
    lies in [0, 1] and says how much of the query was found. A word given twice in a query counts twice. Of
    equal scores the document added last comes first.

    The result is exact, with two limits for queries that are long texts: of more than 200,000 characters the
    first and the last 100,000 are read, and of more than 64 different words that the namespace has, the 64
    rarest are searched for.

    Namespaces that were built with another ``analyzer_id`` count as not begun, and are replaced when their
    owner next applies a change.

    Args:
        path: The file, or ":memory:".
        analyzer: Turns documents and queries into terms.
        analyzer_id: Names the analyzer and its version; needed with an analyzer of your own.
        stop_words: Terms that a query is searched without if it has any other.
        k1: How slowly repetitions of a word lose weight; 0 counts a word once.
        b: How much long documents are held back, from 0 (not) to 1 (in proportion).

    >>> from langmem_adapters.protocols import Document
    >>> index = LexicalIndex(":memory:")
    >>> index.apply(("notes",), upsert=[Document("n1", "My bike is in the shed.")])
    >>> index.search(("notes",), "Where are the bikes?", k=3)[0].id
    'n1'
    """

    def __init__(
        self,
        path: str | Path,
        *,
        analyzer: Analyzer = analyze,
        analyzer_id: str = ANALYZER_ID,
        stop_words: Collection[str] = STOP_WORDS,
        k1: float = 1.2,
        b: float = 0.4,
    ) -> None:
        if not (0 <= k1 < math.inf and 0 <= b <= 1):
            raise ConfigurationError(f"k1 is at least 0 and b from 0 to 1, not k1={k1!r}, b={b!r}")
        if analyzer is not analyze and analyzer_id == ANALYZER_ID:
            raise ConfigurationError("an analyzer of your own needs an analyzer_id of its own")
        self._database = Database(path, schema=_SCHEMA, name="lexical")
        self._analyzer = analyzer
        self._analyzer_id = analyzer_id
        self._stop_words = frozenset(stop_words)
        self._k1 = k1
        self._b = b

    def apply(
        self,
        namespace: Namespace,
        *,
        upsert: Sequence[Document] = (),
        delete: Sequence[str] = (),
        position: tuple[int, str] | None = None,
    ) -> None:
        """Remove, then add or replace documents and remember the position, all or nothing."""
        name = encode_namespace(namespace)
        added = [(_bytes(document.id), Counter(self._analyzer(document.text))) for document in upsert]
        with _search_errors(), self._database.writing() as connection:
            number = self._begin(connection, name)
            for id_ in delete:
                _remove(connection, number, _bytes(id_))
            for id_bytes, counts in added:
                _remove(connection, number, id_bytes)
                _add(connection, number, id_bytes, counts)
            if position is not None:
                connection.execute(
                    "UPDATE langmem_lexical_namespaces SET seq = ?, entry = ? WHERE number = ?",
                    (position[0], _bytes(position[1]), number),
                )

    def position(self, namespace: Namespace) -> tuple[int, str] | None:
        """How far this namespace follows its store; None: not begun."""
        with _search_errors(), self._database.reading() as connection:
            row = connection.execute(
                "SELECT seq, entry FROM langmem_lexical_namespaces WHERE name = ? AND analyzer = ?",
                (encode_namespace(namespace), self._analyzer_id),
            ).fetchone()
        return None if row is None or row[0] is None else (row[0], _text(row[1]))

    def search(self, namespace: Namespace, query: str, k: int) -> list[Hit]:
        """Find the ``k`` best documents, best first; those that share no word with the query are left out."""
        name, terms = encode_namespace(namespace), self._query_terms(query)
        if k <= 0 or not terms:
            return []
        with _search_errors(), self._database.reading() as connection:
            row = connection.execute(
                "SELECT number, documents, length FROM langmem_lexical_namespaces WHERE name = ? AND analyzer = ?",
                (name, self._analyzer_id),
            ).fetchone()
            if row is None or row[2] == 0:
                return []
            number, documents, length = row
            corpus = _Corpus(number, documents, length, self._k1, self._b)
            weighed = [_weigh(connection, corpus, term, times) for term, times in terms.items()]
            best = _best(connection, corpus, weighed, k)
            ids = _ids(connection, [number for _, number in best])
        ideal = sum(term.weight for term in weighed)
        return [Hit(ids[number], min(score / ideal, 1.0)) for score, number in best]

    def clear(self, namespace: Namespace) -> None:
        """Forget a namespace, whichever analyzer built it."""
        name = encode_namespace(namespace)
        with _search_errors(), self._database.writing() as connection:
            row = connection.execute("SELECT number FROM langmem_lexical_namespaces WHERE name = ?", (name,)).fetchone()
            if row is not None:
                _drop(connection, row[0])

    def close(self) -> None:
        """Close the file. The index may be used again and then opens it anew."""
        self._database.close()

    def __repr__(self) -> str:
        return f"LexicalIndex({self._database.path!r})"

    def _query_terms(self, query: str) -> Counter[str]:
        if len(query) > 2 * _QUERY_CHARACTERS:
            query = f"{query[:_QUERY_CHARACTERS]} {query[-_QUERY_CHARACTERS:]}"
        terms = self._analyzer(query)
        return Counter([term for term in terms if term not in self._stop_words] or terms)

    def _begin(self, connection: sqlite3.Connection, name: str) -> int:
        """Find the namespace's number, or give it one; what another analyzer built goes."""
        row = connection.execute(
            "SELECT number, analyzer FROM langmem_lexical_namespaces WHERE name = ?", (name,)
        ).fetchone()
        if row is not None and row[1] == self._analyzer_id:
            return int(row[0])
        if row is not None:
            _drop(connection, row[0])
        cursor = connection.execute(
            "INSERT INTO langmem_lexical_namespaces (name, analyzer) VALUES (?, ?)", (name, self._analyzer_id)
        )
        return cast(int, cursor.lastrowid)


@contextlib.contextmanager
def _search_errors() -> Iterator[None]:
    try:
        yield
    except StoreError as error:
        raise SearchError(f"the lexical index failed: {error}") from error


# ---- rows


def _bytes(text: str) -> bytes:
    """Any string has these bytes, lone surrogates too; SQLite's own text has no place for them."""
    return text.encode("utf-8", "surrogatepass")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def _add(connection: sqlite3.Connection, namespace: int, id_: bytes, counts: Counter[str]) -> None:
    length = counts.total()
    document = connection.execute(
        "INSERT INTO langmem_lexical_documents (namespace, id, length, terms) VALUES (?, ?, ?, ?)",
        (namespace, id_, length, json.dumps(list(counts))),
    ).lastrowid
    connection.executemany(
        "INSERT INTO langmem_lexical_postings VALUES (?, ?, ?, ?, ?)",
        [(namespace, _bytes(term), document, tf, length) for term, tf in sorted(counts.items())],
    )
    _count(connection, namespace, 1, length)


def _remove(connection: sqlite3.Connection, namespace: int, id_: bytes) -> None:
    row = connection.execute(
        "SELECT number, length, terms FROM langmem_lexical_documents WHERE namespace = ? AND id = ?",
        (namespace, id_),
    ).fetchone()
    if row is None:
        return
    document, length, terms = row
    connection.executemany(
        "DELETE FROM langmem_lexical_postings WHERE namespace = ? AND term = ? AND document = ?",
        [(namespace, _bytes(term), document) for term in json.loads(terms)],
    )
    connection.execute("DELETE FROM langmem_lexical_documents WHERE number = ?", (document,))
    _count(connection, namespace, -1, -length)


def _count(connection: sqlite3.Connection, namespace: int, documents: int, length: int) -> None:
    connection.execute(
        "UPDATE langmem_lexical_namespaces SET documents = documents + ?, length = length + ? WHERE number = ?",
        (documents, length, namespace),
    )


def _drop(connection: sqlite3.Connection, namespace: int) -> None:
    for table, key in (("postings", "namespace"), ("documents", "namespace"), ("namespaces", "number")):
        connection.execute(f"DELETE FROM langmem_lexical_{table} WHERE {key} = ?", (namespace,))  # noqa: S608 - ours


def _ids(connection: sqlite3.Connection, documents: Sequence[int]) -> dict[int, str]:
    rows = connection.execute(
        "SELECT number, id FROM langmem_lexical_documents WHERE number IN (SELECT value FROM json_each(?))",
        (json.dumps(documents),),
    )
    return {number: _text(id_) for number, id_ in rows}


# ---- scores


class _Corpus(NamedTuple):
    """A namespace's statistics and the two parameters of BM25."""

    namespace: int
    documents: int
    length: int
    k1: float
    b: float

    def idf(self, frequency: int) -> float:
        """Say how much a term tells that is in ``frequency`` documents."""
        return math.log1p((self.documents - frequency + 0.5) / (frequency + 0.5))

    @property
    def norm(self) -> tuple[float, float]:
        """The c and d of ``tf / (tf + c + d * length)``, which a document makes of a term's weight.

        BM25's factor ``k1 + 1`` is left out, because the ideal score has it too.
        """
        return self.k1 * (1 - self.b), self.k1 * self.b * self.documents / self.length


class _Term(NamedTuple):
    """A term of a query: in how many documents it is, its weight, and the most it can add to a score."""

    frequency: int
    term: bytes
    weight: float
    bound: float


def _weigh(connection: sqlite3.Connection, corpus: _Corpus, term: str, times: int) -> _Term:
    key = _bytes(term)
    frequency, tf, length = connection.execute(
        "SELECT COUNT(*), MAX(tf), MIN(length) FROM langmem_lexical_postings WHERE namespace = ? AND term = ?",
        (corpus.namespace, key),
    ).fetchone()
    weight = times * corpus.idf(frequency)
    c, d = corpus.norm
    return _Term(frequency, key, weight, weight * tf / (tf + c + d * length) if frequency else 0.0)


def _best(connection: sqlite3.Connection, corpus: _Corpus, terms: Sequence[_Term], k: int) -> list[tuple[float, int]]:
    """Find the k best documents, as (score, number), from the rarest term to the most frequent (max-score).

    As soon as the terms that are left cannot lift a new document into the best k, they are looked up only in
    the documents that can still be among them.
    Source: H. Turtle and J. Flood, "Query evaluation: strategies and optimizations" (1995).
    """
    scores: dict[int, float] = {}
    found = sorted(term for term in terms if term.frequency)[:_QUERY_TERMS]
    for n, term in enumerate(found):
        rest = math.fsum(left.bound for left in found[n:]) * _ROUNDING
        floor = heapq.nlargest(k, scores.values())[-1] if len(scores) >= k else 0.0
        if rest >= floor:
            for document, score in _scan(connection, corpus, term):
                scores[document] = scores.get(document, 0.0) + score
            continue
        scores = {document: score for document, score in scores.items() if score + rest >= floor}
        few = len(scores) * _LOOKUP_COST < term.frequency
        for document, score in _scan(connection, corpus, term, scores if few else None):
            if document in scores:
                scores[document] += score
    return heapq.nlargest(k, ((score, document) for document, score in scores.items()))


def _scan(
    connection: sqlite3.Connection, corpus: _Corpus, term: _Term, documents: Collection[int] | None = None
) -> Iterable[tuple[int, float]]:
    """Read what a term adds to the score of all its documents, or of those given."""
    values = (term.weight, *corpus.norm, corpus.namespace, term.term)
    if documents is None:
        return connection.execute(_CONTRIBUTIONS, values)
    return connection.execute(_CONTRIBUTIONS_OF, (*values, json.dumps(list(documents))))


_CONTRIBUTIONS = """
    SELECT document, ? * tf / (tf + ? + ? * length) FROM langmem_lexical_postings
    WHERE namespace = ? AND term = ?"""
_CONTRIBUTIONS_OF = _CONTRIBUTIONS + " AND document IN (SELECT value FROM json_each(?))"  # noqa: S608 - constants
