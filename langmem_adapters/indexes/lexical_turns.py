"""The lexical index's evidence of a query's candidates: their words, their neighbours, and their places.

A place is a document's number, closed up where others of its stretch were removed: so those that are left stand beside
each other as in an index built anew, whatever this one held before.
"""

from __future__ import annotations

import json
from array import array
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from typing import TypeAlias

from langmem_adapters.indexes.lexical_cache import Postings, parse_postings
from langmem_adapters.indexes.lexical_rows import STRETCH_SIZE, key_statements, select_by_keys
from langmem_adapters.indexes.lexical_scores import Corpus, Term, idf, rarest_terms, top_documents
from langmem_adapters.keys import to_bytes, to_text
from langmem_adapters.protocols import Evidence, Stretch, Turn

_TURN_BYTES = 400  # in memory, roughly
_NUMBERS = "numbers"  # in the cache's keys, as the key of a stretch's turns is the stretch
_NUMBERS_BYTES = 300  # that a stretch's numbers take beside themselves, roughly
_NEIGHBOUR_DISTANCE = 2  # places before and after a document that count as beside it

_Remaining: TypeAlias = Mapping[int, Sequence[int]]
"""By stretch, where documents were removed: the numbers of those that are left, in order."""


def gather_evidence(
    corpus: Corpus, terms: Sequence[Term], k: int, extra_ids: Sequence[str], *, query: str, named: frozenset[str]
) -> Evidence | None:
    """Gather the evidence of the ``k`` best documents, of those with ``extra_ids``, and of their neighbours."""
    numbers = [number for _, number in top_documents(corpus, terms, k)] if k > 0 else []
    extra = select_by_keys(corpus.connection, _SELECT_NUMBERS, corpus.namespace, list(map(to_bytes, extra_ids)))
    numbers = list(dict.fromkeys([*numbers, *(number for (number,) in extra)]))
    if not numbers:
        return None
    versions, stretches, sparse = _read_stretches(corpus, {number // STRETCH_SIZE for number in numbers})
    remaining = _read_remaining(corpus, sparse, versions)
    present_terms = rarest_terms(terms)
    postings = _postings_by_stretch(corpus, present_terms, stretches)
    candidates = _with_neighbours(numbers, stretches, remaining, _NEIGHBOUR_DISTANCE)
    neighbours = _with_neighbours(numbers, stretches, remaining, 2 * _NEIGHBOUR_DISTANCE)
    turns = _read_turns(corpus, sorted(neighbours), versions)
    candidates &= turns.keys()
    if remaining:
        postings = [_closed_up_postings(by_stretch, remaining) for by_stretch in postings]
        candidates = {_place(number, remaining) for number in candidates}
        turns = {_place(number, remaining): turn for number, turn in turns.items()}
    total_weight = sum(term.weight for term in terms)
    return Evidence(
        query=query,
        named=named,
        idf=[term.weight for term in present_terms],
        stretch_idf=[_stretch_idf(corpus, term) for term in present_terms],
        found=sum(term.weight for term in present_terms) / total_weight if total_weight else 0.0,
        candidates=sorted(candidates),
        turns=turns,
        postings=postings,
        stretches=stretches,
        average=corpus.length / corpus.documents,
        average_stretch=corpus.length / corpus.stretches,
    )


def rank_thread(corpus: Corpus, terms: Sequence[Term], thread: str) -> list[tuple[float, int]]:
    """All documents said in a thread, as (score, number), best first; without any of the terms the score is 0."""
    name = to_bytes(thread)
    values = (corpus.namespace, name, corpus.namespace, name)
    numbers = {number for (number,) in corpus.connection.execute(_SELECT_THREAD_NUMBERS, values).fetchall()}
    present_terms = rarest_terms(terms)
    stretches = {number // STRETCH_SIZE for number in numbers}
    scores = dict.fromkeys(numbers, 0.0)
    c, d = corpus.length_norm
    postings_by_term = _postings_by_stretch(corpus, present_terms, stretches)
    for term, by_stretch in zip(present_terms, postings_by_term, strict=True):
        for postings in by_stretch.values():
            for number, tf, length in zip(*postings, strict=True):
                if number in scores:
                    scores[number] += term.weight * tf / (tf + c + d * length)
    return sorted(((score, number) for number, score in scores.items()), reverse=True)


_SELECT_THREAD_NUMBERS = f"""
    SELECT d.number FROM langmem_lexical_stretches AS s CROSS JOIN langmem_lexical_documents AS d
    WHERE s.namespace = ? AND s.thread = ?
    AND d.number >= s.number * {STRETCH_SIZE} AND d.number < (s.number + 1) * {STRETCH_SIZE}
    UNION ALL
    SELECT document FROM langmem_lexical_again WHERE namespace = ? AND thread = ?"""  # noqa: S608 - ours


_SELECT_NUMBERS = key_statements("SELECT number FROM langmem_lexical_documents WHERE namespace = ? AND id IN")


def _with_neighbours(
    numbers: Collection[int], stretches: Mapping[int, Stretch], remaining: _Remaining, distance: int
) -> set[int]:
    return set().union(*[_neighbours(number, stretches, remaining, distance) for number in numbers])


def _neighbours(number: int, stretches: Mapping[int, Stretch], remaining: _Remaining, distance: int) -> Sequence[int]:
    """The numbers beside a document, and its own; a thread without a name has no order, and so no neighbours."""
    stretch = number // STRETCH_SIZE
    if not stretches[stretch].ordered:
        return (number,)
    if stretch in remaining:
        position = bisect_left(remaining[stretch], number)
        return remaining[stretch][max(0, position - distance) : position + distance + 1]
    start = stretch * STRETCH_SIZE
    return range(max(start, number - distance), min(start + STRETCH_SIZE, number + distance + 1))


def _place(number: int, remaining: _Remaining) -> int:
    """The place of a document: its number without those that were removed before it."""
    stretch = number // STRETCH_SIZE
    return stretch * STRETCH_SIZE + bisect_left(remaining[stretch], number) if stretch in remaining else number


def _closed_up_postings(postings_by_stretch: Mapping[int, Postings], remaining: _Remaining) -> dict[int, Postings]:
    """The postings of a term by places."""
    closed_up = {**postings_by_stretch}
    for stretch in closed_up.keys() & remaining.keys():
        start, numbers, postings = stretch * STRETCH_SIZE, remaining[stretch], closed_up[stretch]
        places = array("q", [start + bisect_left(numbers, number) for number in postings.documents])
        closed_up[stretch] = postings._replace(documents=places)
    return closed_up


def _read_stretches(corpus: Corpus, numbers: Collection[int]) -> tuple[dict[int, int], dict[int, Stretch], set[int]]:
    """The versions of stretches, their descriptions, and those with an order from which documents were removed."""
    rows = corpus.connection.execute(
        "SELECT number, changed, documents, length, thread != x'', used FROM langmem_lexical_stretches"
        " WHERE number IN (SELECT value FROM json_each(?))",
        (json.dumps(list(numbers)),),
    ).fetchall()
    versions = {number: version for number, version, *_ in rows}
    stretches = {n: Stretch(documents, length, bool(ordered)) for n, _, documents, length, ordered, _ in rows}
    sparse = {number for number, _, documents, _, ordered, used in rows if ordered and documents < used}
    return versions, stretches, sparse


def _read_remaining(corpus: Corpus, stretches: Collection[int], versions: Mapping[int, int]) -> dict[int, array[int]]:
    """The numbers of all documents of these stretches."""
    remaining = {stretch: corpus.cache.get((_NUMBERS, stretch), versions[stretch]) for stretch in stretches}
    if missing := [stretch for stretch in stretches if remaining[stretch] is None]:
        for stretch, column in corpus.connection.execute(_SELECT_REMAINING, (json.dumps(missing),)).fetchall():
            remaining[stretch] = numbers = array("q", json.loads(f"[{column}]"))
            corpus.cache.put((_NUMBERS, stretch), versions[stretch], numbers, _NUMBERS_BYTES + 8 * len(numbers))
    return remaining


_SELECT_REMAINING = f"""
    SELECT value, (SELECT group_concat(number) FROM langmem_lexical_documents
        WHERE number >= value * {STRETCH_SIZE} AND number < (value + 1) * {STRETCH_SIZE})
    FROM json_each(?)"""  # noqa: S608 - ours


def _postings_by_stretch(
    corpus: Corpus, terms: Sequence[Term], stretches: Collection[int]
) -> list[dict[int, Postings]]:
    """For each term, by stretch: the documents that have it, its frequency in each, and the length of each."""
    stretch_numbers = json.dumps(list(stretches))
    postings_by_term: list[dict[int, Postings]] = []
    for term in terms:
        postings: Postings | None = corpus.cache.get((corpus.namespace, term.term), term.version)
        if postings is None:
            values = (stretch_numbers, corpus.namespace, term.term)
            rows = corpus.connection.execute(_SELECT_POSTINGS, values).fetchall()
            postings_by_term.append({stretch: parse_postings(*columns) for stretch, *columns in rows})
        else:
            postings_by_term.append(_split_by_stretch(postings, stretches))
    return postings_by_term


def _split_by_stretch(postings: Postings, stretches: Collection[int]) -> dict[int, Postings]:
    """The part of the postings in some stretches, in the form of the statement's result."""
    documents, tfs, lengths = postings
    postings_by_stretch: dict[int, Postings] = {}
    for stretch in stretches:
        start = bisect_left(documents, stretch * STRETCH_SIZE)
        end = bisect_left(documents, (stretch + 1) * STRETCH_SIZE, start)
        if start < end:
            postings_by_stretch[stretch] = Postings(documents[start:end], tfs[start:end], lengths[start:end])
    return postings_by_stretch


_SELECT_POSTINGS = f"""
    SELECT stretch.value, group_concat(p.document), group_concat(p.tf), group_concat(p.length)
    FROM json_each(?) AS stretch CROSS JOIN langmem_lexical_postings AS p
    WHERE p.namespace = ? AND p.term = ?
    AND p.document >= stretch.value * {STRETCH_SIZE} AND p.document < (stretch.value + 1) * {STRETCH_SIZE}
    GROUP BY stretch.value"""  # noqa: S608 - ours


def _read_turns(corpus: Corpus, numbers: Sequence[int], versions: Mapping[int, int]) -> dict[int, Turn]:
    """The documents that have these numbers, which are in order; not all numbers have one."""
    stretches = {number // STRETCH_SIZE for number in numbers}
    turns_by_stretch: dict[int, dict[int, Turn | None]] = {  # None: no document has that number
        stretch: corpus.cache.get(stretch, versions[stretch]) or {} for stretch in stretches
    }
    missing = [number for number in numbers if number not in turns_by_stretch[number // STRETCH_SIZE]]
    if missing:
        rows = corpus.connection.execute(_SELECT_TURNS, (json.dumps(missing),)).fetchall()
        loaded = {n: Turn(to_text(id_), length, to_text(who), at, marks) for n, id_, length, who, at, marks in rows}
        for stretch, group in groupby(missing, Evidence.stretch_of):
            turns = turns_by_stretch[stretch] | {number: loaded.get(number) for number in group}
            turns_by_stretch[stretch] = turns
            corpus.cache.put(stretch, versions[stretch], turns, _TURN_BYTES * len(turns))
    numbered_turns = ((number, turns_by_stretch[number // STRETCH_SIZE][number]) for number in numbers)
    return {number: turn for number, turn in numbered_turns if turn is not None}


_SELECT_TURNS = """
    SELECT number, id, length, speaker, at, marks FROM langmem_lexical_documents
    WHERE number IN (SELECT value FROM json_each(?))"""


def _stretch_idf(corpus: Corpus, term: Term) -> float:
    """The inverse frequency of a term in stretches, as if its documents were spread over them at random."""
    share = 1 - (1 - term.frequency / corpus.documents) ** (corpus.documents / corpus.stretches)
    return idf(corpus.stretches * share, corpus.stretches)
