"""The guard for who acts and who is acted on: active and passive, and what one makes others do."""

from __future__ import annotations

import re
from itertools import chain

from langmem_adapters.experience.verifier.alignment import Alignment, refusal, unmatched_words
from langmem_adapters.experience.verifier.forms import is_optional
from langmem_adapters.experience.verifier.reading import Reading, Word
from langmem_adapters.experience.verifier.words import (
    FINITE_VERBS,
    PASSIVE_AUXILIARIES,
    STOP_WORDS,
    is_past,
    stem_of,
)
from langmem_adapters.language.lists import word_set

_INSTRUMENT_WORDS = frozenset(("with", "on", "in", "using"))
_AUXILIARIES = PASSIVE_AUXILIARIES | FINITE_VERBS | word_set("not ever never always just already")
_SUBJECT_PRONOUNS = word_set("i you he she we they who")
_MAX_AUXILIARY_DISTANCE = 4  # words: "was the old company sold"
_SAME_IN_BOTH_VOICES = frozenset(
    map(
        stem_of,
        str.split("""begin change close divorce dress end enroll finish form marry
    open prepare register render start stop worry"""),
    )
)
"""Verbs that say much the same in both voices: "was the shop opened", "did the shop open"; "get started", "start"."""
_CAUSATIVE = re.compile(r"\b(?:get|make|let|have|help|want) (?:(?:him|them) (?:to )?|her to )([a-z]+)")


def voice(left: Reading, right: Reading, alignment: Alignment) -> str:
    """Active and passive must not be exchanged: "who sued Apple", "who was sued by Apple"; "am I paid", "do I pay".

    It refuses if all content words are the same in the same order, and only one text has "by", not that of "by card",
    or the subject of a verb acts in one text and is acted on in the other, or makes others act only in one.
    """
    unmatched = [*chain.from_iterable(unmatched_words(left, right, alignment))]
    order = [j for _, j, _ in alignment.pairs]
    if order != sorted(order) or not all(is_optional(word.text) for word in unmatched):
        return ""
    for i, j, _ in alignment.pairs:
        if _is_exchanged(left, left.content[i], right, right.content[j]):
            return refusal("voice", [left.content[i].text], [right.content[j].text])
    if made_to_act := _made_to_act(left) ^ _made_to_act(right):
        return refusal("voice", made_to_act & left.vocabulary & right.vocabulary, ())
    if unmatched or ("by" in left.vocabulary) == ("by" in right.vocabulary):
        return ""
    return "" if _INSTRUMENT_WORDS & (left.vocabulary ^ right.vocabulary) else refusal("voice", ["by"], ())


def _is_exchanged(left: Reading, verb: Word, right: Reading, other_verb: Word) -> bool:
    """Whether one verb is passive and the other is active, with the same subject."""
    if verb.stem != other_verb.stem or verb.stem in _SAME_IN_BOTH_VOICES:
        return False
    has_auxiliary, other_has = _has_passive_auxiliary(left, verb), _has_passive_auxiliary(right, other_verb)
    if has_auxiliary == other_has or not is_past((verb if has_auxiliary else other_verb).text):
        return False
    subject = _subject(left, verb)
    if not subject or subject != _subject(right, other_verb):
        return False
    return verb.text != other_verb.text or subject in _SUBJECT_PRONOUNS  # "people killed": who were killed


def _has_passive_auxiliary(reading: Reading, verb: Word) -> bool:
    before = reading.words[max(0, verb.place - _MAX_AUXILIARY_DISTANCE) : verb.place]
    return not PASSIVE_AUXILIARIES.isdisjoint(before)


def _subject(reading: Reading, verb: Word) -> str:
    """The word before a verb and its auxiliaries; "" if there is none."""
    before = (word for word in reversed(reading.words[: verb.place]) if word not in _AUXILIARIES)
    return next(before, "")


def _made_to_act(reading: Reading) -> set[str]:
    """The verbs for what others are made to do: "get him to call"."""
    return {*_CAUSATIVE.findall(reading.text)} - STOP_WORDS
