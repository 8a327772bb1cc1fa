"""Guards for verbs: tense and aspect (is, was, will be, is being done, would have been), active and passive."""

from __future__ import annotations

import re
from itertools import chain

from langmem_adapters.experience.verifier.alignment import Alignment, refusal, unmatched_words
from langmem_adapters.experience.verifier.forms import is_optional
from langmem_adapters.experience.verifier.reading import Reading, Word
from langmem_adapters.experience.verifier.words import (
    ASK_PATTERN,
    BE_FORMS,
    FINITE_VERBS,
    MODALS,
    PASSIVE_AUXILIARIES,
    STOP_WORDS,
    is_past,
    stem_of,
)
from langmem_adapters.language.lists import group_names, word_set

_CONDITION = re.compile(rf"(^|\b(?!{ASK_PATTERN}\b)\w+\W+)if\b[^,.;:?!]*")
_CLAUSE_END = re.compile(r"[.?!,;:]+(?=\s)")
_HAVE_FORMS = frozenset(("has", "have", "had"))
_PRESENT_AND_PAST = ("has", "have"), ("had",)
_MAX_AUXILIARY_DISTANCE = 5  # words: "have all of them decided"
_TENSE_BY_AUXILIARY = group_names("is are am do does will, was were did")
_AUXILIARIES = BE_FORMS | FINITE_VERBS


def tense(left: Reading, right: Reading, alignment: Alignment) -> str:
    """With all else the same, present, past and future must not be exchanged, in none of the clauses.

    The tense of a condition in both does not count: "if I lost it" is "if I lose it". Nor may a time in the past stand
    for one in the future, whatever else differs: "ten years ago", "in ten years".
    """
    if _is_past_and_future(left, right) or _is_past_and_future(right, left):
        return refusal("tense", ["ago"], ())
    if any(word.text != "will" for side in unmatched_words(left, right, alignment) for word in side):
        return ""
    left_aspects, right_aspects = _aspects(left), _aspects(right)
    if differing := _comparable_aspects(left_aspects, right_aspects) ^ _comparable_aspects(right_aspects, left_aspects):
        return refusal("tense", differing, ())
    if _has_future_state(left) != _has_future_state(right):
        return refusal("tense", ["will be"], ["is"])
    pairs = [(left.content[i].text, right.content[j].text) for i, j, _ in alignment.pairs]
    verbs = [(verb, other) for verb, other in pairs if is_past(verb) != is_past(other)]
    have_conditions = "if" in left.vocabulary & right.vocabulary
    left_clauses, right_clauses = (_clauses(reading, with_conditions=not have_conditions) for reading in (left, right))
    if len(left_clauses) != len(right_clauses):
        left_clauses, right_clauses = ([[*chain.from_iterable(clauses)]] for clauses in (left_clauses, right_clauses))
    pairs_of_clauses = zip(left_clauses, right_clauses, strict=True)
    reasons = (_clause_tense(one, other, verbs) for one, other in pairs_of_clauses if one != other)
    return next(filter(None, reasons), "")


def _is_past_and_future(one: Reading, other: Reading) -> bool:
    if "ago" not in one.vocabulary - other.vocabulary:
        return False
    return "will" in other.vocabulary - one.vocabulary or other.words.count("in") > one.words.count("in")


def _clause_tense(left_words: list[str], right_words: list[str], verbs: list[tuple[str, str]]) -> str:
    """Why the tenses of corresponding clauses differ; ``verbs`` are the corresponding ones of other forms."""
    if exchanged := _exchanged_auxiliaries(left_words, right_words):
        return refusal("tense", exchanged, ())
    haves, hads = (sum(map(kind.count, left_words)) - sum(map(kind.count, right_words)) for kind in _PRESENT_AND_PAST)
    if haves * hads < 0:
        return refusal("tense", ["had"], ["have"])
    left_tenses, right_tenses = _tenses(left_words), _tenses(right_words)
    for verb, other_verb in verbs:
        left_tenses |= _tense_of_verb(left_words, verb)
        right_tenses |= _tense_of_verb(right_words, other_verb)
    if {*left_tenses, *right_tenses} != {"is", "was"} or left_tenses & right_tenses:
        return ""
    return refusal("tense", left_tenses, right_tenses)


def _has_future_state(reading: Reading) -> bool:
    """Whether it has "will be"; if a time is given, "is" means the same."""
    return {"will", "be"} <= reading.vocabulary and not (reading.numbers or reading.units)


def _tense_of_verb(words: list[str], verb: str) -> set[str]:
    """The tense of a verb by its form; none, if an auxiliary is among the words, or it follows "to"."""
    if verb not in words or not _AUXILIARIES.isdisjoint(words) or ["", *words][words.index(verb)] == "to":
        return set()
    return {"was" if is_past(verb) else "is"}


def _comparable_aspects(aspects: set[tuple[str, str]], others: set[tuple[str, str]]) -> set[str]:
    """Verbs with "would have", and verbs with an aspect (doing, being, done) if the other text has one for them."""
    other_stems = {stem for _, stem in others}
    return {f"{aspect} {stem}" for aspect, stem in aspects if aspect == "would have" or stem in other_stems}


def _aspects(reading: Reading) -> set[tuple[str, str]]:
    aspects = ((_aspect(reading.words, word.place), word.stem) for word in reading.content)
    return {(aspect, stem) for aspect, stem in aspects if aspect}


def _aspect(words: list[str], position: int) -> str:
    """The aspect of a verb (doing, being, done, would have) by the auxiliary before it; "" if there is none."""
    is_gerund = words[position].endswith("ing")
    if not is_gerund and not is_past(words[position]):
        return ""
    words_before = words[max(0, position - _MAX_AUXILIARY_DISTANCE) : position]
    auxiliary = next((word for word in reversed(words_before) if word in BE_FORMS or word in _HAVE_FORMS), "")
    if not auxiliary:
        return ""
    if auxiliary == "have" and not is_gerund and not MODALS.isdisjoint(words_before):
        return "would have"
    if "being" in words_before:
        return "being"
    return "doing" if is_gerund and auxiliary in BE_FORMS else "done"


def _clauses(reading: Reading, *, with_conditions: bool) -> list[list[str]]:
    """The words of each clause, as punctuation separates them; "tell me if" begins no condition: it means "whether"."""
    text = reading.text if with_conditions else _CONDITION.sub(r"\1", reading.text)
    return [words for clause in _CLAUSE_END.split(text) if (words := re.findall(r"\w+", clause))]


def _exchanged_auxiliaries(left_words: list[str], right_words: list[str]) -> set[str]:
    """Auxiliaries in each other's place that differ in tense, if both texts have equally many."""
    one, other = ([word for word in words if word in _TENSE_BY_AUXILIARY] for words in (left_words, right_words))
    pairs = zip(one, other, strict=True) if len(one) == len(other) else ()
    return {word for pair in pairs if len({_TENSE_BY_AUXILIARY[word] for word in pair}) > 1 for word in pair}


def _tenses(words: list[str]) -> set[str]:
    """The tenses by auxiliaries; "has decided" is past, "has been closed" present."""
    tenses = {_TENSE_BY_AUXILIARY[word] for word in words if word in _TENSE_BY_AUXILIARY}
    if tenses:
        return tenses
    for position, word in enumerate(words):
        words_after = words[position + 1 : position + _MAX_AUXILIARY_DISTANCE]
        if word in _HAVE_FORMS and "been" not in words_after and any(map(is_past, words_after)):
            return {"was"}
    return tenses


# ---- active and passive

_INSTRUMENT_WORDS = frozenset(("with", "on", "in", "using"))
_VERB_PARTS = PASSIVE_AUXILIARIES | FINITE_VERBS | word_set("not ever never always just already")
_SUBJECT_PRONOUNS = word_set("i you he she we they who")
_MAX_PASSIVE_DISTANCE = 4  # words: "was the old company sold"
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
    before = reading.words[max(0, verb.place - _MAX_PASSIVE_DISTANCE) : verb.place]
    return not PASSIVE_AUXILIARIES.isdisjoint(before)


def _subject(reading: Reading, verb: Word) -> str:
    """The word before a verb and its auxiliaries; "" if there is none."""
    before = (word for word in reversed(reading.words[: verb.place]) if word not in _VERB_PARTS)
    return next(before, "")


def _made_to_act(reading: Reading) -> set[str]:
    """The verbs for what others are made to do: "get him to call"."""
    return {*_CAUSATIVE.findall(reading.text)} - STOP_WORDS
