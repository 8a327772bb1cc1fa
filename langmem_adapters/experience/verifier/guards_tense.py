"""The guard of tense and aspect: is, was, will be, is being done, would have been."""

from __future__ import annotations

import re
from itertools import chain

from langmem_adapters.experience.verifier.alignment import Alignment, refusal, unmatched_words
from langmem_adapters.experience.verifier.reading import Reading
from langmem_adapters.experience.verifier.words import ASK_PATTERN, BE_FORMS, FINITE_VERBS, MODALS, is_past
from langmem_adapters.language.lists import group_names

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
