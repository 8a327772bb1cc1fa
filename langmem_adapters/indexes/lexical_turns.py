"""The lexical index's evidence of a query's candidates: their words, their neighbours, and their places."""

from __future__ import annotations

import json
import sqlite3
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence

from langmem_adapters.indexes.lexical_cache import RowCache
from langmem_adapters.indexes.lexical_postings import Postings, parsed
from langmem_adapters.indexes.lexical_rows import STRETCH
from langmem_adapters.indexes.lexical_scores import QUERY_TERMS, Corpus, Term, best, idf
from langmem_adapters.keys import to_bytes, to_text
from langmem_adapters.protocols import Evidence, Stretch, Turn

__all__ = ["evidence", "within"]

_TURN = 400  # bytes in memory, roughly
_BESIDE = 2  # places before and after a document that count as beside it


def evidence(  # noqa: PLR0917 - what is asked, and where
    connection: sqlite3.Connection,
    kept: RowCache,
    corpus: Corpus,
    terms: Sequence[Term],
    k: int,
    also: Sequence[str],
    *,
    query: str,
    named: frozenset[str],
) -> Evidence | None:
    """Gather the evidence of the ``k`` best documents, of those ``also`` named, and of their neighbours."""
    pool = [number for _, number in best(connection, kept, corpus, terms, k)] if k > 0 else []
    pool = list(dict.fromkeys([*pool, *_numbers(connection, corpus.namespace, also)]))
    if not pool:
        return None
    changed, stretches = _stretches(connection, {number // STRETCH for number in pool})
    used = sorted(term for term in terms if term.frequency)[:QUERY_TERMS]
    postings = _postings(connection, kept, corpus.namespace, used, stretches)
    beside = set().union(*[_near(number, stretches[number // STRETCH], _BESIDE) for number in pool])
    around = set().union(*[_near(number, stretches[number // STRETCH], 2 * _BESIDE) for number in pool])
    turns = _turns(connection, kept, sorted(around), changed)
    everything = sum(term.weight for term in terms)
    return Evidence(
        query=query,
        named=named,
        idf=[term.weight for term in used],
        stretch_idf=[_stretch_idf(corpus, term) for term in used],
        found=sum(term.weight for term in used) / everything if everything else 0.0,
        candidates=sorted(beside & turns.keys()),
        turns=turns,
        postings=postings,
        stretches=stretches,
        average=corpus.length / corpus.documents,
        average_stretch=corpus.length / max(1, corpus.stretches),
    )


def within(
    connection: sqlite3.Connection, kept: RowCache, corpus: Corpus, terms: Sequence[Term], thread: str
) -> list[tuple[float, int]]:
    """All documents said in a thread, as (score, number), best first; without any of the terms the score is 0."""
    name = to_bytes(thread)
    numbers = {row[0] for row in connection.execute(_SAID_IN, (corpus.namespace, name, corpus.namespace, name))}
    used = sorted(term for term in terms if term.frequency)[:QUERY_TERMS]
    stretches = {number // STRETCH for number in numbers}
    scores = dict.fromkeys(numbers, 0.0)
    c, d = corpus.norm
    for term, by_stretch in zip(used, _postings(connection, kept, corpus.namespace, used, stretches), strict=True):
        for postings in by_stretch.values():
            for number, tf, length in zip(*postings, strict=True):
                if number in scores:
                    scores[number] += term.weight * tf / (tf + c + d * length)
    return sorted(((score, number) for number, score in scores.items()), reverse=True)


_SAID_IN = f"""
    SELECT d.number FROM langmem_lexical_stretches AS s CROSS JOIN langmem_lexical_documents AS d
    WHERE s.namespace = ? AND s.thread = ?
    AND d.number >= s.number * {STRETCH} AND d.number < (s.number + 1) * {STRETCH}
    UNION ALL
    SELECT document FROM langmem_lexical_again WHERE namespace = ? AND thread = ?"""  # noqa: S608 - ours


def _numbers(connection: sqlite3.Connection, namespace: int, ids: Sequence[str]) -> list[int]:
    """The numbers of documents by id, a fixed number of ids per statement."""
    keys = [to_bytes(id_) for id_ in ids]
    parts = (keys[start : start + _IDS] for start in range(0, len(keys), _IDS))
    rows = (connection.execute(_NUMBERS, (namespace, *part, *part[-1:] * (_IDS - len(part)))) for part in parts)
    return [number for found in rows for (number,) in found]


_IDS = 16
_NUMBERS = f"""
    SELECT number FROM langmem_lexical_documents
    WHERE namespace = ? AND id IN ({", ".join("?" * _IDS)})"""  # noqa: S608 - question marks


def _near(number: int, stretch: Stretch, far: int) -> range:
    """The places beside a document, and its own; a thread without a name has no order, and so no neighbours."""
    if not stretch.ordered:
        return range(number, number + 1)
    first = number - number % STRETCH
    return range(max(first, number - far), min(first + STRETCH, number + far + 1))


def _stretches(connection: sqlite3.Connection, numbers: Collection[int]) -> tuple[dict[int, int], dict[int, Stretch]]:
    """The last changes of stretches, and their descriptions."""
    rows = connection.execute(
        "SELECT number, changed, documents, length, thread != x'' FROM langmem_lexical_stretches"
        " WHERE number IN (SELECT value FROM json_each(?))",
        (json.dumps(list(numbers)),),
    ).fetchall()
    stretches = {row[0]: Stretch(row[2], row[3], bool(row[4])) for row in rows}
    return {row[0]: row[1] for row in rows}, stretches


def _postings(
    connection: sqlite3.Connection, kept: RowCache, namespace: int, terms: Sequence[Term], stretches: Collection[int]
) -> list[dict[int, Postings]]:
    """For each term, by stretch: the documents that have it, its frequency in each, and the length of each."""
    where = json.dumps(list(stretches))
    found: list[dict[int, Postings]] = []
    for term in terms:
        whole: Postings | None = kept.get((namespace, term.term), term.changed)
        if whole is None:
            rows = connection.execute(_POSTINGS, (where, namespace, term.term))
            found.append({stretch: parsed(*columns) for stretch, *columns in rows})
        else:
            found.append(_of(whole, stretches))
    return found


def _of(postings: Postings, stretches: Collection[int]) -> dict[int, Postings]:
    """The part of the postings in some stretches, in the form of the statement's result."""
    documents, tf, length = postings
    found: dict[int, Postings] = {}
    for stretch in stretches:
        first = bisect_left(documents, stretch * STRETCH)
        end = bisect_left(documents, (stretch + 1) * STRETCH, first)
        if first < end:
            found[stretch] = Postings(documents[first:end], tf[first:end], length[first:end])
    return found


_POSTINGS = f"""
    SELECT stretch.value, group_concat(p.document), group_concat(p.tf), group_concat(p.length)
    FROM json_each(?) AS stretch CROSS JOIN langmem_lexical_postings AS p
    WHERE p.namespace = ? AND p.term = ?
    AND p.document >= stretch.value * {STRETCH} AND p.document < (stretch.value + 1) * {STRETCH}
    GROUP BY stretch.value"""  # noqa: S608 - ours


def _turns(
    connection: sqlite3.Connection, kept: RowCache, places: Sequence[int], changed: Mapping[int, int]
) -> dict[int, Turn]:
    """The documents of these places; not all places have one."""
    wanted = {place // STRETCH for place in places}
    known: dict[int, dict[int, Turn | None]] = {each: kept.get(each, changed[each]) or {} for each in wanted}
    missing = [place for place in places if place not in known[place // STRETCH]]
    if missing:
        read = _read(connection, missing)
        there: dict[int, dict[int, Turn | None]] = {}
        for place in missing:
            there.setdefault(place // STRETCH, {})[place] = read.get(place)
        for stretch, turns in there.items():
            known[stretch] = known[stretch] | turns
            kept.keep(stretch, changed[stretch], known[stretch], _TURN * len(known[stretch]))
    found = ((place, known[place // STRETCH][place]) for place in places)
    return {place: turn for place, turn in found if turn is not None}


def _read(connection: sqlite3.Connection, places: Sequence[int]) -> dict[int, Turn]:
    rows = connection.execute(
        "SELECT number, id, length, speaker, at, marks FROM langmem_lexical_documents"
        " WHERE number IN (SELECT value FROM json_each(?))",
        (json.dumps(places),),
    )
    return {row[0]: Turn(to_text(row[1]), row[2], to_text(row[3]), row[4], row[5]) for row in rows}


def _stretch_idf(corpus: Corpus, term: Term) -> float:
    """The inverse frequency of a term in stretches, as if its documents were spread over them at random."""
    stretches = max(1, corpus.stretches)
    share = 1 - (1 - term.frequency / corpus.documents) ** (corpus.documents / stretches)
    return idf(stretches * share, stretches)
