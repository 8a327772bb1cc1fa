"""Guards for words that are replaced, or that only one text has, where all else is the same or nearly so."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise
from operator import ne

from langmem_adapters.experience.verifier.alignment import (
    Alignment,
    common_start,
    edit_distance,
    has_context,
    is_short,
    refusal,
    unmatched_words,
)
from langmem_adapters.experience.verifier.forms import is_optional
from langmem_adapters.experience.verifier.reading import Reading, Word
from langmem_adapters.experience.verifier.words import (
    ARTICLES,
    MODALS,
    NEGATIONS,
    PREPOSITIONS,
    STOP_WORDS,
    is_past,
)
from langmem_adapters.language.lists import group_names, word_set

_MAX_MEDIUM_TEXT_WORDS = 60
_MAX_REPLACED_WORDS = 2
_MAX_EDITED_SHARE = 0.4  # of the words beside the same data
_MIN_COMMON_START = 4  # words before a phrase that is replaced
_MAX_PHRASE_WORDS = 6
_MIN_NEAR_EDITS = 3  # of words, by which texts of several sentences may differ and still be near
_MAX_DIFFERING_SHARE = 0.15  # of the words of a text; if more differ, it is reworded
_HOW_TO_MODALS = frozenset(("can", "could", "should", "will", "would"))
_SAME_MODALS = frozenset(("can", "could")), frozenset(("will", "would"))
_OTHERS = word_set("he it she they")
"""Whoever does not ask for instructions: "how could he know" is not "how would he know"."""
_NEGLIGIBLE_WORDS = ARTICLES | word_set("""although also am and any are be been being can could do does even got has
    have having he his i is it its just my of on or our please really she so some still that their then they think this
    though too somehow use using was we were what which why you your""")
"""Words that may be added or left out without a difference, or that other guards compare."""
_NEGLIGIBLE_IN_SHORT_TEXTS = word_set("already always but currently now quick will")
"""Words that users add to a message of few words, and that may count among the many of a template."""
_BEFORE_REPLACED = word_set("my your his her our their its how what which whose")
"""Words that may stand before one word that replaces another: "my boss", "someone"; "which port", "how many hosts"."""
_NUMBERS_OF_VERBS = group_names("is are, was were, does do, has have")
_CONDITION_WORDS = {"when": "if", "whether": "if", "during": "in"}
_ROLE_WORDS = PREPOSITIONS | word_set("may might who whom")
_OPEN_WORDS = frozenset(("how", "what"))  # after which other guards compare modals
_WHETHER = re.compile(r"\bwhether\b|\b(?:ask|check|know|see|sure|tell|wonder)(?:s|ed|ing)?(?: me| us)? if\b")


def words(left: Reading, right: Reading, alignment: Alignment) -> str:
    """With all else the same, words must not be replaced by others that are no known synonyms.

    In a long text, whose score one word hardly changes, no content word may be added or left out. In texts of medium
    length, a word is often replaced without a difference: there the score decides, and the guard :func:`details`.
    """
    left_only, right_only = unmatched_words(left, right, alignment)
    left_texts, right_texts = ({word.text for word in side} for side in (left_only, right_only))
    left_required, right_required = (
        {text for text in texts if not is_optional(text)} for texts in (left_texts, right_texts)
    )
    is_long = max(len(left.words), len(right.words)) > _MAX_MEDIUM_TEXT_WORDS
    replaces = left_required - NEGATIONS and right_required - NEGATIONS
    if is_long or (replaces and _are_alike_beside_data(left, right)):
        return refusal("words", left_required, right_required)
    is_refused = (
        _is_one_word_replaced(left, right, left_texts, right_texts)
        or ((left_required or right_required) and _differ_in_one_place(left, right, left_only, right_only))
        or _are_all_replaced(left, right, left_only, right_only)
    )
    return refusal("words", left_texts, right_texts) if is_refused else ""


def details(left: Reading, right: Reading, alignment: Alignment) -> str:
    """A text with a context must have the words of one nearly the same, but for synonyms and those that say little."""
    if not has_context(left, right):
        return ""
    min_edits = _MIN_NEAR_EDITS if min(left.sentences, right.sentences) > 1 else _MAX_REPLACED_WORDS
    max_edits = max(min_edits, int(_MAX_DIFFERING_SHARE * max(len(left.words), len(right.words))))
    is_near = edit_distance(left.stems, right.stems, max_edits) <= max_edits
    whens = left.words.count("when") - right.words.count("when")
    if whens and whens * (len(_WHETHER.findall(left.text)) - len(_WHETHER.findall(right.text))) < 0:
        return refusal("details", ["when"], ["whether"])
    one, other = (Counter([_CONDITION_WORDS.get(word, word) for word in reading.words]) for reading in (left, right))
    left_only, right_only = one - other, other - one
    if len(left_only) == len(right_only) == 1 and {"the"} < {*left_only, *right_only} <= ARTICLES:
        return refusal("details", left_only, right_only)
    if not is_near and left_only and right_only:
        return ""
    pairs = ((left.content[i], right.content[j]) for i, j, similarity in alignment.pairs if similarity < 1)
    variants = ((one.text, other.text) for one, other in pairs if not _differ_in_tense(one, other))
    asked = (after for reading in (left, right) for before, after in pairwise(reading.words) if before in _OPEN_WORDS)
    negligible = _NEGLIGIBLE_WORDS.union(*variants, MODALS.intersection(asked))
    if is_short(left, right):  # what they ask, the other guards compare as in a text of one question
        left_stated, right_stated = one - _asked_words(left), other - _asked_words(right)
        left_only, right_only = left_only & (left_stated - right_stated), right_only & (right_stated - left_stated)
        negligible |= _NEGLIGIBLE_IN_SHORT_TEXTS
    if not is_near:
        negligible |= STOP_WORDS | {word for word in left_only | right_only if is_optional(word)}
    return refusal("details", left_only.keys() - negligible, right_only.keys() - negligible)


def _asked_words(reading: Reading) -> Counter[str]:
    """The words of later questions, without those that tell who acts, who may, or for whom."""
    words = (piece.strip(",;?\"'") for question in reading.later_questions for piece in question.split())
    return Counter(word for word in words if word not in _ROLE_WORDS)


def _differ_in_tense(one: Word, other: Word) -> bool:
    """Whether two forms of a word differ in tense, as expired and expires, which the guard of tense may not see."""
    return one.stem == other.stem and is_past(one.text) != is_past(other.text)


def _are_alike_beside_data(left: Reading, right: Reading) -> bool:
    """Whether most words are the same beside lines of data, for which a model takes texts for near that are not."""
    max_edits = int(_MAX_EDITED_SHARE * max(len(left.words), len(right.words)))
    return left.has_data and right.has_data and edit_distance(left.stems, right.stems, max_edits) <= max_edits


def _is_one_word_replaced(left: Reading, right: Reading, left_only: set[str], right_only: set[str]) -> bool:
    """Whether one word is replaced, and none is added; but "how can I" is "how should I", and "will" is "would"."""
    if not len(left_only) == len(right_only) == 1 or len(left.stems) != len(right.stems):
        return False
    asks_how_to = left.frame == right.frame == "how to" and _OTHERS.isdisjoint(left.words)
    exchangeable = (_HOW_TO_MODALS,) if asks_how_to else _SAME_MODALS
    are_exchangeable = any(map((left_only | right_only).issubset, exchangeable))
    return sum(map(ne, left.stems, right.stems)) <= 1 and not are_exchangeable


def _are_all_replaced(left: Reading, right: Reading, left_only: Sequence[Word], right_only: Sequence[Word]) -> bool:
    """Whether one or two words that say much are replaced by as many, and nearly all else is the same."""
    max_edits = len(left_only) + 1
    if len(left_only) != len(right_only) or len(left_only) > _MAX_REPLACED_WORDS:
        return False
    if any(is_optional(word.text) for word in (*left_only, *right_only)):
        return False
    return is_short(left, right) or edit_distance(left.stems, right.stems, max_edits) <= max_edits


def _differ_in_one_place(left: Reading, right: Reading, left_only: Sequence[Word], right_only: Sequence[Word]) -> bool:
    """Whether all that differ stands together in each text: "a bar chart", "a table".

    These are content words, or, after a beginning in common, phrases: "takes ownership of it", "borrows it".
    """
    left_stems = surrounding_stems(left, left_only)
    if left_stems.count("") == 1 and left_stems == surrounding_stems(right, right_only):
        return True
    if not is_short(left, right) and min(left.sentences, right.sentences) == 1:
        return False
    start = common_start(left.stems, right.stems)
    end = common_start(left.stems[start:][::-1], right.stems[start:][::-1])
    return start >= _MIN_COMMON_START and all(
        _are_replaced(unmatched, range(start, min(len(reading.stems) - end, start + _MAX_PHRASE_WORDS)))
        for reading, unmatched in ((left, left_only), (right, right_only))
    )


def _are_replaced(unmatched: Sequence[Word], places: range) -> bool:
    """Whether all unmatched words are at these places, and one of them says much."""
    return all(word.place in places for word in unmatched) and not all(is_optional(word.text) for word in unmatched)


def surrounding_stems(reading: Reading, unmatched: Iterable[Word]) -> list[str]:
    """The stems without articles, with one empty string for each run of the given words; verbs in one number."""
    positions = {word.place for word in unmatched}
    positions |= {n for n, word in enumerate(reading.words) if word in _BEFORE_REPLACED and n + 1 in positions}
    numbered_words = enumerate(zip(reading.words, reading.stems, strict=True))
    stems = [
        "" if n in positions else _NUMBERS_OF_VERBS.get(word, stem)
        for n, (word, stem) in numbered_words
        if word not in ARTICLES
    ]
    return [stem for stem, _ in groupby(stems)]
