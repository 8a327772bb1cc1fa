"""BM25 over the postings of a namespace, and the best documents without reading all of them.

Ranking: S. Robertson and H. Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009), with
Lucene's idf, which is never negative.
"""

from __future__ import annotations

import heapq
import math
import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from langmem_adapters.indexes.lexical_cache import Postings, RowCache, parse_postings
from langmem_adapters.indexes.lexical_rows import document_ids, key_statements, select_by_keys
from langmem_adapters.keys import to_bytes
from langmem_adapters.model import Hit

_MAX_QUERY_TERMS = 64
_K1, _B = 1.2, 0.4  # how slowly repetitions lose weight, and how much length is penalised
_LOOKUP_COST = 2  # the cost of reading one posting by its document, in postings read one after the other
_POSTINGS_BYTES = 600  # that a term takes in the cache beside its postings, roughly
_ROUNDING_FACTOR = 1 + 1e-9  # the order of a sum changes its last digits, and must not cost a document its place


def idf(frequency: float, documents: float) -> float:
    """The inverse document frequency of a term that is in ``frequency`` of the ``documents``."""
    return math.log1p((documents - frequency + 0.5) / (frequency + 0.5))


class Corpus(NamedTuple):
    """A namespace in one transaction: where its rows are read, and its statistics."""

    connection: sqlite3.Connection
    cache: RowCache
    namespace: int
    documents: int
    length: int
    stretches: int

    @property
    def length_norm(self) -> tuple[float, float]:
        """The c and d of ``tf / (tf + c + d * length)``, the factor of a term's weight in a document.

        BM25's factor ``k1 + 1`` is left out, because the ideal score has it too.
        """
        return _K1 * (1 - _B), _K1 * _B * self.documents / self.length


class Term(NamedTuple):
    """A term of a query: its document frequency, its weight, the most it can add to a score, its row's version."""

    frequency: int
    term: bytes
    weight: float
    bound: float
    version: int


def weigh_terms(corpus: Corpus, terms: Mapping[str, float]) -> list[Term]:
    """Look up the weights of a query's terms in a namespace, given how often the query has each; in their order."""
    keys = [to_bytes(term) for term in terms]
    rows = {term: row for term, *row in select_by_keys(corpus.connection, _SELECT_TERMS, corpus.namespace, keys)}
    c, d = corpus.length_norm
    weighted_terms = []
    for key, count in zip(keys, terms.values(), strict=True):
        frequency, tf, length, version = rows.get(key, (0, 0, 0, 0))
        weight = count * idf(frequency, corpus.documents)
        bound = weight * tf / (tf + c + d * length)
        weighted_terms.append(Term(frequency, key, weight, bound, version))
    return weighted_terms


_SELECT_TERMS = key_statements(
    "SELECT term, documents, tf, length, changed FROM langmem_lexical_terms WHERE namespace = ? AND term IN"
)


def rarest_terms(terms: Sequence[Term]) -> list[Term]:
    """The terms of a query that are in any document, the rarest first, without the most frequent of very many."""
    return sorted(term for term in terms if term.frequency)[:_MAX_QUERY_TERMS]


def top_documents(corpus: Corpus, terms: Sequence[Term], k: int) -> list[tuple[float, int]]:
    """Find the k best documents, as (score, number), from the rarest term to the most frequent (max-score).

    As soon as the terms that are left cannot lift a new document into the best k, they are looked up only in
    the documents that can still be among them.
    Source: H. Turtle and J. Flood, "Query evaluation: strategies and optimizations" (1995).
    """
    scores: dict[int, float] = {}
    present_terms = rarest_terms(terms)
    bounds = [term.bound * _ROUNDING_FACTOR for term in present_terms]
    for position, term in enumerate(present_terms):
        remaining_bound = sum(bounds[position:])
        can_prune = len(scores) >= k and remaining_bound < max(scores.values())
        threshold = heapq.nlargest(k, scores.values())[-1] if can_prune else 0.0
        if remaining_bound >= threshold:
            for document, contribution in _all_contributions(corpus, term):
                scores[document] = scores.get(document, 0.0) + contribution
            continue
        scores = {document: score for document, score in scores.items() if score + remaining_bound >= threshold}
        if len(scores) * _LOOKUP_COST < term.frequency:
            contributions = _contributions_to(corpus, term, scores)
        else:
            contributions = _all_contributions(corpus, term)
        for document, contribution in contributions:
            if document in scores:
                scores[document] += contribution
    return heapq.nlargest(k, zip(scores.values(), scores, strict=True))


def _all_contributions(corpus: Corpus, term: Term) -> Iterable[tuple[int, float]]:
    """Each document of a term, and what the term adds to its score."""
    documents, tfs, lengths = _read_postings(corpus, term)
    weight, (c, d) = term.weight, corpus.length_norm
    contributions = [weight * tf / (tf + c + d * length) for tf, length in zip(tfs, lengths, strict=True)]
    return zip(documents, contributions, strict=True)


def _read_postings(corpus: Corpus, term: Term) -> Postings:
    key = (corpus.namespace, term.term)
    postings: Postings | None = corpus.cache.get(key, term.version)
    if postings is None:
        postings = parse_postings(*corpus.connection.execute(_SELECT_POSTINGS, key).fetchone())
        size = sum(len(column) * column.itemsize for column in postings) + _POSTINGS_BYTES
        corpus.cache.put(key, term.version, postings, size)
    return postings


# One pass over the rows, in the order of the documents, so that the columns stay aligned.
_SELECT_POSTINGS = """
    SELECT group_concat(document), group_concat(tf), group_concat(length) FROM langmem_lexical_postings
    WHERE namespace = ? AND term = ?"""


def _contributions_to(corpus: Corpus, term: Term, documents: Collection[int]) -> Iterable[tuple[int, float]]:
    """:func:`_all_contributions` for those of these documents that have the term."""
    values = (term.weight, *corpus.length_norm, str([*documents]), corpus.namespace, term.term)
    return corpus.connection.execute(_SELECT_CONTRIBUTIONS, values).fetchall()


_SELECT_CONTRIBUTIONS = """
    SELECT document, ? * tf / (tf + ? + ? * length) FROM json_each(?) CROSS JOIN langmem_lexical_postings
    WHERE namespace = ? AND term = ? AND document = value"""


def to_hits(corpus: Corpus, terms: Sequence[Term], scored_numbers: Sequence[tuple[float, int]]) -> list[Hit]:
    """The documents of these numbers, with scores from 0 to 1: 1 is what a document of all terms alone would have."""
    ids = document_ids(corpus.connection, [number for _, number in scored_numbers])
    ideal = sum(term.weight for term in terms) or 1.0
    return [Hit(ids[number], min(score / ideal, 1.0)) for score, number in scored_numbers]
