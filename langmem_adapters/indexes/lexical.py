"""Full-text search by words: BM25 over postings that are rows in SQLite.

The cost of adding a document grows with its length only, a new process has nothing to load, and a query reads only
the postings of its words.
"""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path

from langmem_adapters.errors import ConfigurationError, Conflict, SearchError
from langmem_adapters.files.damage import search_errors
from langmem_adapters.files.database import Database
from langmem_adapters.files.locations import path_to_show
from langmem_adapters.indexes.lexical_cache import RowCache
from langmem_adapters.indexes.lexical_namespaces import (
    clear_namespace,
    ensure_namespace,
    remove_from_stale_builds,
    row_name,
    to_position,
)
from langmem_adapters.indexes.lexical_query import ASIDE_WEIGHT, composed, query_terms, truncate_query
from langmem_adapters.indexes.lexical_rows import NAMESPACES, SCHEMA, Row, add_rows, remove_document, speaker_names
from langmem_adapters.indexes.lexical_scores import Corpus, Term, to_hits, top_documents, weigh_terms
from langmem_adapters.indexes.lexical_turns import gather_evidence, rank_thread
from langmem_adapters.keys import Namespace, decode_namespace, encode_namespace, to_bytes, to_text
from langmem_adapters.language.analysis import ANALYZER_ID, Analyzer, analyze, part_terms
from langmem_adapters.language.dates import date_words
from langmem_adapters.language.english import STOP_WORDS
from langmem_adapters.language.features import ANSWER, named_speakers, text_marks
from langmem_adapters.language.relative_dates import mentioned_date_words
from langmem_adapters.language.spelling_corrections import spelling_corrections
from langmem_adapters.model import Hit
from langmem_adapters.protocols import START, Document, Evidence, Position
from langmem_adapters.sharing import Shared
from langmem_adapters.validation import check_integer, check_sync_function, checked_list

__all__ = ["LexicalIndex"]

_CORRECTION_WEIGHT = 0.8
_MAX_CORRECTIONS = 3  # of a word; if there are more, each is a mere guess
_MAX_PART_FREQUENCY = 1000  # documents; more take long to read, and parts in so many tell little beside whole words
_SELECT_NAMES = "SELECT name FROM langmem_lexical_namespaces WHERE name >= ? AND name < ? ORDER BY name"
_SELECT_CORPUS = (
    "SELECT number, documents, length, stretches FROM langmem_lexical_namespaces WHERE name = ? AND length != 0"
)
_SELECT_POSITION = "SELECT seq, entry FROM langmem_lexical_namespaces WHERE name = ? AND seq IS NOT NULL"


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
        analyzer: Turns texts into terms: documents and queries, and also speakers' names and the words of dates.
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
        check_sync_function("analyzer", analyzer)
        self._database = Database(
            path,
            schema=SCHEMA,
            name="words",
            timeout=5.0 if timeout is None else timeout,
            fails_fast=timeout is not None,
            disposable=disposable,
        )
        self._errors = partial(search_errors, "lexical", self._database.location)
        self._cache = RowCache(megabytes)
        is_default = analyzer is analyze  # another analyzer's terms have no known parts or misspellings
        self._analyzer = analyzer if is_default else _checked(analyzer)
        self._analyzer_id = analyzer_id
        self._part_terms: Callable[[str], Collection[str]] = part_terms if is_default else lambda _: ()
        self._spelling_corrections: Callable[[str, Collection[str]], dict[str, frozenset[str]]] = (
            spelling_corrections if is_default else lambda *_: {}
        )
        self._stop_words = frozenset(checked_list(stop_words, "stop_words are a collection of words", str))

    def apply(
        self,
        namespace: Namespace,
        *,
        upsert: Sequence[Document] = (),
        delete: Sequence[str] = (),
        position: Position | None = None,
        since: Position | None = None,
    ) -> None:
        checked_list([*delete, *(document.id for document in upsert)], "the ids of documents are texts", str)
        added_rows = [self._to_row(document) for document in upsert]
        version = int.from_bytes(os.urandom(8), "big", signed=True)
        with self._errors(), self._database.writing() as connection, connection:
            position_rows = connection.execute(_SELECT_POSITION, (self._row_name(namespace),)).fetchall()
            if since is not None and (to_position(position_rows) or START) != since:
                raise Conflict("the lexical index was changed by another follower")
            number = ensure_namespace(connection, namespace, self._analyzer_id)
            NAMESPACES.remove_some(connection, encode_namespace(namespace))
            if since is not None:
                ids = [*delete, *(document.id for document in upsert)]
                remove_from_stale_builds(
                    connection, namespace, ids, analyzer=self._analyzer_id, seq=since[0], version=version
                )
            for id_ in delete:
                remove_document(connection, number, to_bytes(id_), version)
            add_rows(connection, number, added_rows, version)
            if position is not None:
                connection.execute(
                    "UPDATE langmem_lexical_namespaces SET seq = ?, entry = ? WHERE number = ?",
                    (position[0], to_bytes(position[1]), number),
                )

    def position(self, namespace: Namespace) -> Position | None:
        with self._errors():
            return to_position(self._database.fetch_all(_SELECT_POSITION, (self._row_name(namespace),)))

    def search(self, namespace: Namespace, query: str, k: int) -> list[Hit]:
        check_integer("k", k)
        name, terms = self._row_name(namespace), query_terms(query, self._analyzer, self._stop_words)
        if k <= 0 or not terms:
            return []
        with self._errors(), self._database.reading() as connection, connection:
            corpus = self._read_corpus(connection, name)
            if corpus is None:
                return []
            weighted_terms = self._weigh_query(corpus, query, terms)
            return to_hits(corpus, weighted_terms, top_documents(corpus, weighted_terms, k))

    def within(self, namespace: Namespace, query: str, thread: str) -> list[Hit]:
        terms = self._message_terms(query)
        with self._errors(), self._database.reading() as connection, connection:
            corpus = self._read_corpus(connection, self._row_name(namespace))
            if corpus is None:
                return []
            weighted_terms = self._weigh_with_corrections(corpus, query, terms)
            return to_hits(corpus, weighted_terms, rank_thread(corpus, weighted_terms, thread))

    def nameless(self, namespace: Namespace, query: str) -> str:
        with self._errors(), self._database.reading() as connection, connection:
            corpus = self._read_corpus(connection, self._row_name(namespace))
            return query if corpus is None else self._split_speakers(corpus, query)[1]

    def gather(self, namespace: Namespace, query: str, k: int, also: Sequence[str] = ()) -> Evidence | None:
        with self._errors(), self._database.reading() as connection, connection:
            corpus = self._read_corpus(connection, self._row_name(namespace))
            if corpus is None:
                return None
            speakers, nameless_query, terms = self._split_speakers(corpus, query)
            if also:  # with candidates by meaning, stop words need not be searched for
                terms = {term: weight for term, weight in terms.items() if weight >= ASIDE_WEIGHT} or terms
            weighted_terms = self._weigh_query(corpus, nameless_query, terms)
            return gather_evidence(corpus, weighted_terms, k, also, query=nameless_query, named=speakers)

    def namespaces(self, prefix: Namespace = ()) -> list[Namespace]:
        """The namespaces that begin with ``prefix`` and of which anything is kept, whichever analyzer built it."""
        start = encode_namespace(prefix)
        with self._errors():
            rows = self._database.fetch_all(_SELECT_NAMES, (start, f"{start}\x7f"))
            return list(dict.fromkeys(decode_namespace(name) for (name,) in rows))

    def clear(self, namespace: Namespace) -> None:
        """Forget a namespace, whichever analyzer built it."""
        with self._errors(), self._database.clearing():
            clear_namespace(self._database, namespace)

    def close(self) -> None:
        """Close the file. If the index is used again, it reopens the file."""
        self._cache.reset_state()
        self._database.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({path_to_show(self._database.path)!r})"

    def _row_name(self, namespace: Namespace) -> str:
        return row_name(namespace, self._analyzer_id)

    def _to_row(self, document: Document) -> Row:
        """Make a document's row; its words include its speaker's name, its date, and the dates that it speaks of."""
        text, timestamp = composed(document.text), document.at
        document = document._replace(text=text, speaker=composed(document.speaker))
        term_counts = Counter(self._analyzer(text))
        extra_texts = (document.speaker, date_words(timestamp), mentioned_date_words(text, timestamp))
        if any(extra_texts):  # analyzed apart: an English date or a foreign name does not tell the text's language
            term_counts.update(self._analyzer("\n".join(extra for extra in extra_texts if extra)))
        return Row(document, term_counts, text_marks(text) | (ANSWER if document.role == "assistant" else 0))

    def _split_speakers(self, corpus: Corpus, query: str) -> tuple[frozenset[str], str, dict[str, float]]:
        """The speakers that a query names, the query without them, unless nothing is left then, and its terms."""
        names = speaker_names(corpus.connection, corpus.namespace)
        speakers, nameless_query = named_speakers(truncate_query(query), names)
        if terms := self._message_terms(nameless_query):
            return speakers, nameless_query, terms
        return speakers, query, self._message_terms(query)

    def _message_terms(self, query: str) -> dict[str, float]:
        return query_terms(query, self._analyzer, self._stop_words, of_message=True)

    def _weigh_query(self, corpus: Corpus, query: str, terms: dict[str, float]) -> list[Term]:
        """The terms of a query with their weights, without very frequent parts of words, unless nothing is left."""
        weighted_terms = self._weigh_with_corrections(corpus, query, terms)
        if all(term.frequency <= _MAX_PART_FREQUENCY for term in weighted_terms):
            return weighted_terms
        part_keys = set(map(to_bytes, self._part_terms(truncate_query(query))))
        remaining = [
            term for term in weighted_terms if term.frequency <= _MAX_PART_FREQUENCY or term.term not in part_keys
        ]
        return remaining if any(term.frequency for term in remaining) else weighted_terms

    def _weigh_with_corrections(self, corpus: Corpus, query: str, terms: dict[str, float]) -> list[Term]:
        """The terms of a query with their weights; an unknown one is joined by those that may have been meant.

        An unknown term that counts for little, such as a day on which nothing was said, is left out; one beside a
        question too, unless no term is known.
        """
        weighted_terms = weigh_terms(corpus, terms)
        least_unknown = 1 if any(term.frequency for term in weighted_terms) else ASIDE_WEIGHT
        weighted_terms = [
            term for term in weighted_terms if term.frequency or terms[to_text(term.term)] >= least_unknown
        ]
        unknown = {to_text(term.term) for term in weighted_terms if not term.frequency}
        corrections = self._spelling_corrections(truncate_query(query), unknown) if unknown else {}
        for term, corrected_terms in corrections.items():
            weights = dict.fromkeys(corrected_terms - terms.keys(), _CORRECTION_WEIGHT * terms[term])
            # Sorted, because the order of a sum changes its last digit.
            existing = sorted(correction for correction in weigh_terms(corpus, weights) if correction.frequency)
            if len(existing) <= _MAX_CORRECTIONS:
                weighted_terms += existing
        return weighted_terms

    def _read_corpus(self, connection: sqlite3.Connection, name: str) -> Corpus | None:
        """A namespace's statistics; None if it has no words."""
        row = connection.execute(_SELECT_CORPUS, (name,)).fetchone()
        return Corpus(connection, self._cache, *row) if row is not None else None


def _checked(analyzer: Analyzer) -> Analyzer:
    """An analyzer of the user's, whose own errors are raised as SearchError."""

    def analyze_text(text: str) -> list[str]:
        try:
            terms = analyzer(text)
        except Exception as error:
            raise SearchError(f"the analyzer failed: {type(error).__name__}") from error
        return checked_list(terms, "an analyzer gives a list of texts", str)

    return analyze_text
