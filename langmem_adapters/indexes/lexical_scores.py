"""BM25 over the postings of a namespace, and the best documents without reading all of them.

Ranking: S. Robertson and H. Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009), with
Lucene's idf, which is never negative.
"""

from __future__ import annotations

import heapq
import json
import math
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from langmem_adapters.indexes.lexical_cache import RowCache
from langmem_adapters.indexes.lexical_postings import postings_of
from langmem_adapters.keys import to_bytes

__all__ = ["QUERY_TERMS", "Corpus", "Term", "best", "idf", "weigh"]

QUERY_TERMS = 64
_K1, _B = 1.2, 0.4  # how slowly repetitions lose weight, and how much length is penalised
_LOOKUP_COST = 2  # the cost of reading one posting by its document, in postings read one after the other
_ROUNDING = 1 + 1e-9  # the order of a sum changes its last digits, and must not cost a document its place


def idf(frequency: float, documents: float) -> float:
    """The inverse document frequency of a term that is in ``frequency`` of the ``documents``."""
    return math.log1p((documents - frequency + 0.5) / (frequency + 0.5))


class Corpus(NamedTuple):
    """A namespace's statistics."""

    namespace: int
    documents: int
    length: int
    stretches: int

    @property
    def norm(self) -> tuple[float, float]:
        """The c and d of ``tf / (tf + c + d * length)``, the factor of a term's weight in a document.

        BM25's factor ``k1 + 1`` is left out, because the ideal score has it too.
        """
        return _K1 * (1 - _B), _K1 * _B * self.documents / self.length


class Term(NamedTuple):
    """A term of a query: its document frequency, its weight, the most it can add to a score, its last change."""

    frequency: int
    term: bytes
    weight: float
    bound: float
    changed: int


def weigh(connection: sqlite3.Connection, corpus: Corpus, terms: Mapping[str, float]) -> list[Term]:
    """Look up the weights of a query's terms in a namespace, given how often the query has each; in their order."""
    keys = [to_bytes(term) for term in terms]
    known: dict[bytes, tuple[int, int, int, int]] = {}
    for start in range(0, len(keys), _MANY):
        part = keys[start : start + _MANY]
        part += part[-1:] * ((_FEW if len(part) <= _FEW else _MANY) - len(part))
        known.update((row[0], row[1:]) for row in connection.execute(_KNOWN[len(part)], (corpus.namespace, *part)))
    c, d = corpus.norm
    weighed = []
    for key, times in zip(keys, terms.values(), strict=True):
        frequency, tf, length, changed = known.get(key, (0, 0, 0, 0))
        weight = times * idf(frequency, corpus.documents)
        bound = weight * tf / (tf + c + d * length) if frequency else 0.0
        weighed.append(Term(frequency, key, weight, bound, changed))
    return weighed


_FEW, _MANY = 8, 64  # terms in one statement: only two sizes, so that SQLite need not compile others
_KNOWN = {
    size: "SELECT term, documents, tf, length, changed FROM langmem_lexical_terms"  # noqa: S608 - question marks
    f" WHERE namespace = ? AND term IN ({', '.join('?' * size)})"
    for size in (_FEW, _MANY)
}


def best(
    connection: sqlite3.Connection, kept: RowCache, corpus: Corpus, terms: Sequence[Term], k: int
) -> list[tuple[float, int]]:
    """Find the k best documents, as (score, number), from the rarest term to the most frequent (max-score).

    As soon as the terms that are left cannot lift a new document into the best k, they are looked up only in
    the documents that can still be among them.
    Source: H. Turtle and J. Flood, "Query evaluation: strategies and optimizations" (1995).
    """
    scores: dict[int, float] = {}
    found = sorted(term for term in terms if term.frequency)[:QUERY_TERMS]
    bounds = [term.bound * _ROUNDING for term in found]
    for n, term in enumerate(found):
        rest = sum(bounds[n:])
        hopeful = len(scores) >= k and rest < max(scores.values())
        floor = heapq.nlargest(k, scores.values())[-1] if hopeful else 0.0
        if rest >= floor:
            added = _all(connection, kept, corpus, term)
            for document in scores.keys() & added.keys():
                added[document] += scores[document]
            scores.update(added)
            continue
        scores = {document: score for document, score in scores.items() if score + rest >= floor}
        few = len(scores) * _LOOKUP_COST < term.frequency
        added = _some(connection, corpus, term, scores) if few else _all(connection, kept, corpus, term)
        for document in scores.keys() & added.keys():
            scores[document] += added[document]
    return heapq.nlargest(k, ((score, document) for document, score in scores.items()))


def _all(connection: sqlite3.Connection, kept: RowCache, corpus: Corpus, term: Term) -> dict[int, float]:
    """What a term adds to the score of each of its documents."""
    documents, tfs, lengths = postings_of(connection, kept, corpus.namespace, term.term, term.changed)
    weight, (c, d) = term.weight, corpus.norm
    adds = [weight * tf / (tf + c + d * length) for tf, length in zip(tfs, lengths, strict=True)]
    return dict(zip(documents, adds, strict=True))


def _some(connection: sqlite3.Connection, corpus: Corpus, term: Term, documents: Collection[int]) -> dict[int, float]:
    """What a term adds to the scores of those of these documents that have it."""
    values = (term.weight, *corpus.norm, corpus.namespace, term.term, json.dumps(list(documents)))
    return dict(connection.execute(_CONTRIBUTIONS, values))


_CONTRIBUTIONS = """
    SELECT document, ? * tf / (tf + ? + ? * length) FROM langmem_lexical_postings
    WHERE namespace = ? AND term = ? AND document IN (SELECT value FROM json_each(?))"""
