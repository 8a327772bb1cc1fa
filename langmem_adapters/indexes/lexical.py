"""Full-text search by words: BM25 over postings that are rows in SQLite.

The cost of adding a document grows with its length only, a new process has nothing to load, and a query reads only
the postings of its words. Ranking: S. Robertson and H. Zaragoza, "The Probabilistic Relevance Framework: BM25 and
Beyond" (2009), with Lucene's idf, which is never negative.
"""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from langmem_adapters.errors import ConfigurationError, Conflict, search_errors
from langmem_adapters.files.database import Database
from langmem_adapters.indexes.lexical_cache import RowCache
from langmem_adapters.indexes.lexical_namespaces import begin, clear, forget_beside, row_name
from langmem_adapters.indexes.lexical_rows import NAMESPACES, SCHEMA, Row, add, ids_of, remove, speakers_of
from langmem_adapters.indexes.lexical_scores import Corpus, Term, best, weigh
from langmem_adapters.indexes.lexical_turns import evidence, within
from langmem_adapters.keys import Namespace, decode_namespace, encode_namespace, to_bytes, to_text
from langmem_adapters.language.analysis import ANALYZER_ID, STOP_WORDS, Analyzer, analyze, only_parts
from langmem_adapters.language.dates import date_words
from langmem_adapters.language.features import ANSWER, marks, named
from langmem_adapters.language.little_words import little_words
from langmem_adapters.language.query_dates import apart, days_in
from langmem_adapters.language.respelling import respelt
from langmem_adapters.language.spoken_dates import spoken_date_words
from langmem_adapters.model import Hit
from langmem_adapters.protocols import START, Document, Evidence, Position
from langmem_adapters.sharing import Shared

__all__ = ["LexicalIndex"]

_QUERY_CHARACTERS = 100_000  # read at the beginning and at the end of a longer query


class LexicalIndex(Shared):
    """An incremental BM25 index in an SQLite file, which may be the store's own file.

    A score is the document's BM25 divided by the most that any document could reach with this query, so it
    lies in [0, 1] and says how much of the query was found. A word given twice in a query counts twice. Of
    equal scores the document added last to its thread comes first.

    The result is exact, with two limits for queries that are long texts: of more than 200,000 characters the
    first and the last 100,000 are read, and of more than 64 different words that the namespace has, the 64
    rarest are searched for. Parts of words that are in more than 1,000 documents are not searched for beside others.

    Namespaces that were built with another ``analyzer_id`` count as not begun, and are replaced when their
    owner next applies a change; what a newer version of the library has built is kept beside the new one.

    Args:
        path: The file, or ":memory:".
        analyzer: Turns documents and queries into terms.
        analyzer_id: Names the analyzer and its version; needed with an analyzer of your own.
        stop_words: Terms that a query is searched without if it has any other.
        megabytes: The size of the cache of what was read last, until something changes it: 16 bytes for each
            document that has a word, and 400 for each candidate of a conversation.
        timeout: For caches: seconds that a call waits for a locked file, after which calls fail at once until the
            file is free. Default: each call waits for 5.
        disposable: The file holds nothing but indexes: :meth:`clear` removes it if it is damaged.

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
        megabytes: float = 16,
        timeout: float | None = None,
        disposable: bool = False,
    ) -> None:
        if analyzer is not analyze and analyzer_id == ANALYZER_ID:
            raise ConfigurationError("a custom analyzer needs an analyzer_id of its own")
        self._database = Database(
            path,
            schema=SCHEMA,
            name="words",
            timeout=timeout or 5.0,
            fails_fast=timeout is not None,
            disposable=disposable,
        )
        self._kept = RowCache(megabytes)
        self._analyzer = analyzer
        self._analyzer_id = analyzer_id
        is_ours = analyzer is analyze  # another analyzer's terms have no known parts or respellings
        self._parts_of: Callable[[str], Collection[str]] = only_parts if is_ours else lambda _: ()
        self._respelt: Callable[[str, Collection[str]], dict[str, frozenset[str]]] = (
            respelt if is_ours else lambda *_: {}
        )
        self._stop_words = frozenset(stop_words)

    def apply(
        self,
        namespace: Namespace,
        *,
        upsert: Sequence[Document] = (),
        delete: Sequence[str] = (),
        position: Position | None = None,
        since: Position | None = None,
    ) -> None:
        """Remove, then add or replace documents and remember the position, all or nothing.

        With ``since``, only if the namespace is at that position; otherwise raises Conflict.
        """
        added = [self._row(document) for document in upsert]
        change = int.from_bytes(os.urandom(8), "big", signed=True)
        with search_errors("lexical"), self._database.writing() as connection, connection:
            rows = connection.execute(_POSITION, (self._name(namespace),)).fetchall()
            if since is not None and (_position(rows) or START) != since:
                raise Conflict("the lexical index was changed by another follower")
            number = begin(connection, namespace, self._analyzer_id)
            NAMESPACES.remove_some(connection, encode_namespace(namespace))
            if since is not None:
                ids = [*delete, *(document.id for document in upsert)]
                forget_beside(connection, namespace, ids, by=self._analyzer_id, since=since[0], change=change)
            for id_ in delete:
                remove(connection, number, to_bytes(id_), change)
            add(connection, number, added, change)
            if position is not None:
                connection.execute(
                    "UPDATE langmem_lexical_namespaces SET seq = ?, entry = ? WHERE number = ?",
                    (position[0], to_bytes(position[1]), number),
                )

    def position(self, namespace: Namespace) -> Position | None:
        """How far this namespace follows its store; None: not begun."""
        with search_errors("lexical"):
            return _position(self._database.look(_POSITION, (self._name(namespace),)))

    def search(self, namespace: Namespace, query: str, k: int) -> list[Hit]:
        """Find the ``k`` best documents, best first; those that share no word with the query are left out."""
        name, terms = self._name(namespace), self._query_terms(query)
        if k <= 0 or not terms:
            return []
        with search_errors("lexical"), self._database.reading() as connection, connection:
            corpus = self._corpus(connection, name)
            if corpus is None:
                return []
            weighed = self._weighed(connection, corpus, query, terms)
            return _hits(connection, weighed, best(connection, self._kept, corpus, weighed, k))

    def within(self, namespace: Namespace, query: str, thread: str) -> list[Hit]:
        """All documents that were said in a thread, there first or again: the best of :meth:`search` first.

        Those that share no word with the query come last, with a score of 0.
        """
        name, terms = self._name(namespace), self._query_terms(query)
        with search_errors("lexical"), self._database.reading() as connection, connection:
            corpus = self._corpus(connection, name)
            if corpus is None:
                return []
            weighed = self._meant(connection, corpus, query, terms)
            return _hits(connection, weighed, within(connection, self._kept, corpus, weighed, thread))

    def nameless(self, namespace: Namespace, query: str) -> str:
        """The query without the names of the namespace's speakers, unless nothing is left then."""
        name = self._name(namespace)
        with search_errors("lexical"), self._database.reading() as connection, connection:
            corpus = self._corpus(connection, name)
            return query if corpus is None else self._nameless(connection, corpus.namespace, query)[1]

    def _nameless(
        self, connection: sqlite3.Connection, namespace: int, query: str
    ) -> tuple[frozenset[str], str, dict[str, float]]:
        """The speakers that a query names, the query without them, unless nothing is left then, and its terms."""
        who, rest = named(_cut(query), speakers_of(connection, namespace))
        terms = self._query_terms(rest)
        return (who, rest, terms) if terms else (who, query, self._query_terms(query))

    def gather(self, namespace: Namespace, query: str, k: int, also: Sequence[str] = ()) -> Evidence | None:
        """The evidence of the ``k`` best documents, of those ``also`` named by their ids, and of their neighbours.

        None if there is none.
        """
        name = self._name(namespace)
        with search_errors("lexical"), self._database.reading() as connection, connection:
            corpus = self._corpus(connection, name)
            if corpus is None:
                return None
            who, rest, terms = self._nameless(connection, corpus.namespace, query)
            if also:  # with candidates by meaning, little words need not be searched for
                terms = {term: times for term, times in terms.items() if times >= 1} or terms
            weighed = self._weighed(connection, corpus, rest, terms)
            return evidence(connection, self._kept, corpus, weighed, k, also, query=rest, named=who)

    def namespaces(self, prefix: Namespace = ()) -> list[Namespace]:
        """The namespaces that begin with ``prefix`` and of which anything is kept, whichever analyzer built it."""
        start = encode_namespace(prefix)
        with search_errors("lexical"):
            rows = self._database.look(_NAMES, (start, f"{start}\x7f"))
        return list(dict.fromkeys(decode_namespace(name) for (name,) in rows))

    def clear(self, namespace: Namespace) -> None:
        """Forget a namespace, whichever analyzer built it."""
        with search_errors("lexical"), self._database.clearing():
            clear(self._database, namespace)

    def close(self) -> None:
        """Close the file. If the index is used again, it reopens the file."""
        self._kept.begin_anew()
        self._database.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._database.path!r})"

    def _name(self, namespace: Namespace) -> str:
        return row_name(namespace, self._analyzer_id)

    def _row(self, document: Document) -> Row:
        """Make a document's row; its words include its speaker's name, its date, and the dates that it speaks of."""
        said, at = document.text, document.at
        counts = Counter(self._analyzer(said))
        beside = (document.speaker, date_words(at), spoken_date_words(said, at))
        if any(beside):  # analyzed apart: an English date or a foreign name does not tell the text's language
            counts.update(self._analyzer("\n".join(part for part in beside if part)))
        return Row(document, counts, marks(said) | (ANSWER if document.role == "assistant" else 0))

    def _query_terms(self, query: str) -> dict[str, float]:
        """The terms of a query with their counts; stop words of its language count for little.

        A date that it names becomes the words that a document of that date has; a number alone may be a day.
        """
        query, dated = apart(_cut(query))
        terms = self._analyzer(query)
        counts: dict[str, float] = {**Counter([term for term in terms if term not in self._stop_words] or terms)}
        if words := little_words(query):
            counts |= {term: _LITTLE * counts[term] for term in self._analyzer(" ".join(words)) if term in counts}
        days = days_in(query)
        said, times = (f"{dated} {days}", 1.0) if dated else (days, _LITTLE)
        return dict.fromkeys(self._analyzer(said), times) | counts if said else counts

    def _weighed(
        self, connection: sqlite3.Connection, corpus: Corpus, query: str, terms: dict[str, float]
    ) -> list[Term]:
        """The terms of a query with their weights, without very frequent parts of words, unless nothing is left."""
        weighed = self._meant(connection, corpus, query, terms)
        if all(term.frequency <= _FREQUENT for term in weighed):
            return weighed
        parts = set(map(to_bytes, self._parts_of(_cut(query))))
        rare = [term for term in weighed if term.frequency <= _FREQUENT or term.term not in parts]
        return rare if any(term.frequency for term in rare) else weighed

    def _meant(self, connection: sqlite3.Connection, corpus: Corpus, query: str, terms: dict[str, float]) -> list[Term]:
        """The terms of a query with their weights; an unknown one is joined by those that may have been meant.

        An unknown term that counts for little, such as a day on which nothing was said, is left out.
        """
        weighed = [
            term for term in weigh(connection, corpus, terms) if term.frequency or terms[to_text(term.term)] >= 1
        ]
        unknown = {to_text(term.term) for term in weighed if not term.frequency}
        slips = self._respelt(_cut(query), unknown) if unknown else {}
        for term, others in slips.items():
            meant = weigh(connection, corpus, dict.fromkeys(others - terms.keys(), _SLIP * terms[term]))
            there = sorted(one for one in meant if one.frequency)  # sorted: the order of a sum changes its last digit
            weighed += there if len(there) <= _FEW else ()
        return weighed

    def _corpus(self, connection: sqlite3.Connection, name: str) -> Corpus | None:
        """A namespace's statistics; None if it has no words."""
        row = connection.execute(
            "SELECT number, documents, length, stretches FROM langmem_lexical_namespaces WHERE name = ?", (name,)
        ).fetchone()
        return Corpus(*row) if row is not None and row[2] else None


_LITTLE = 0.1  # the weight of a stop word
_SLIP = 0.8  # the weight of a respelling
_FEW = 3  # respellings of a word; if there are more, each is a mere guess
_FREQUENT = 1000  # documents; more take long to read, and parts of words in so many tell little beside whole words


_NAMES = "SELECT name FROM langmem_lexical_namespaces WHERE name >= ? AND name < ? ORDER BY name"
_POSITION = "SELECT seq, entry FROM langmem_lexical_namespaces WHERE name = ? AND seq IS NOT NULL"


def _hits(connection: sqlite3.Connection, terms: Sequence[Term], found: Sequence[tuple[float, int]]) -> list[Hit]:
    ids = ids_of(connection, [number for _, number in found])
    ideal = sum(term.weight for term in terms) or 1.0
    return [Hit(ids[number], min(score / ideal, 1.0)) for score, number in found]


def _position(rows: Sequence[tuple[int, bytes]]) -> Position | None:
    return (rows[0][0], to_text(rows[0][1])) if rows else None


def _cut(query: str) -> str:
    return query if len(query) <= 2 * _QUERY_CHARACTERS else f"{query[:_QUERY_CHARACTERS]} {query[-_QUERY_CHARACTERS:]}"
