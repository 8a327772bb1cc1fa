"""BM25 over the postings of a namespace, and the best documents without reading all of them.

Ranking: S. Robertson and H. Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009), with
Lucene's idf, which is never negative.
"""

from __future__ import annotations

import heapq
import json
import math
import sqlite3
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from langmem_adapters.indexes.lexical_rows import to_bytes

__all__ = ["QUERY_TERMS", "Corpus", "Term", "best", "idf", "weigh"]

QUERY_TERMS = 64
_LOOKUP_COST = 2  # reading one posting by its document costs about as much as this many in a row
_ROUNDING = 1 + 1e-9  # sums in another order differ in the last digits, and must not cost a document its place


def idf(frequency: float, documents: float) -> float:
    """How much a term tells that is in ``frequency`` of so many documents."""
    return math.log1p((documents - frequency + 0.5) / (frequency + 0.5))


class Corpus(NamedTuple):
    """A namespace's statistics and the two parameters of BM25."""

    namespace: int
    documents: int
    length: int
    stretches: int
    k1: float
    b: float

    @property
    def norm(self) -> tuple[float, float]:
        """The c and d of ``tf / (tf + c + d * length)``, which a document makes of a term's weight.

        BM25's factor ``k1 + 1`` is left out, because the ideal score has it too.
        """
        return self.k1 * (1 - self.b), self.k1 * self.b * self.documents / self.length


class Term(NamedTuple):
    """A term of a query: in how many documents it is, its weight, and the most it can add to a score."""

    frequency: int
    term: bytes
    weight: float
    bound: float


def weigh(connection: sqlite3.Connection, corpus: Corpus, term: str, times: int) -> Term:
    """Look up what a query's term weighs in a namespace."""
    key = to_bytes(term)
    row = connection.execute(
        "SELECT documents, tf, length FROM langmem_lexical_terms WHERE namespace = ? AND term = ?",
        (corpus.namespace, key),
    ).fetchone()
    frequency, tf, length = row or (0, 0, 0)
    weight = times * idf(frequency, corpus.documents)
    c, d = corpus.norm
    return Term(frequency, key, weight, weight * tf / (tf + c + d * length) if frequency else 0.0)


def best(connection: sqlite3.Connection, corpus: Corpus, terms: Sequence[Term], k: int) -> list[tuple[float, int]]:
    """Find the k best documents, as (score, number), from the rarest term to the most frequent (max-score).

    As soon as the terms that are left cannot lift a new document into the best k, they are looked up only in
    the documents that can still be among them.
    Source: H. Turtle and J. Flood, "Query evaluation: strategies and optimizations" (1995).
    """
    scores: dict[int, float] = {}
    found = sorted(term for term in terms if term.frequency)[:QUERY_TERMS]
    for n, term in enumerate(found):
        rest = math.fsum(left.bound for left in found[n:]) * _ROUNDING
        most = math.fsum(done.bound for done in found[:n]) * _ROUNDING  # that any score can be by now
        floor = heapq.nlargest(k, scores.values())[-1] if len(scores) >= k and rest < most else 0.0
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
    connection: sqlite3.Connection, corpus: Corpus, term: Term, documents: Collection[int] | None = None
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
