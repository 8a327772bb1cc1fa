"""The guard of quantifiers and bounds: all, some, most, only; more than, at least, up to."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from itertools import pairwise, product

from langmem_adapters.experience.verifier.alignment import Alignment, edit_distance, is_reworded, is_short, refusal
from langmem_adapters.experience.verifier.reading import Reading
from langmem_adapters.language.lists import group_names, word_set


def scope(left: Reading, right: Reading, alignment: Alignment) -> str:
    """A quantifier (all, any, some, most, both, other …) must not be replaced by another, nor "a" or "my" by "all".

    Nor may one ask of some or all what the other asks in general: do some plants need light, do plants need light. Nor
    may "only" have moved, or be missing in a text that is nearly the same. In a long text, a replacement counts only if
    a neighbouring word is the same.
    """
    if differing := _bounds(left) ^ _bounds(right):
        return refusal("scope", differing, ())
    left_quantifiers, right_quantifiers = _quantifiers(left), _quantifiers(right)
    if left_quantifiers == right_quantifiers:
        common = set() if is_reworded(left, right, alignment) else _FOCUSING & left.vocabulary & right.vocabulary
        return refusal("scope", [word for word in common if _stand_elsewhere(left, right, word, word)], ())
    if "only" in left_quantifiers ^ right_quantifiers and edit_distance(left.stems, right.stems, _NEAR) <= _NEAR:
        return refusal("scope", ["only"], ())
    if {"all", "each"} <= left_quantifiers ^ right_quantifiers:
        return refusal("scope", ["all"], ["each"])
    left_new = _new_quantifiers(left_quantifiers, right_quantifiers)
    right_new = _new_quantifiers(right_quantifiers, left_quantifiers)
    for one, other in product(left_new, right_new):
        if is_short(left, right) or not _stand_elsewhere(left, right, one, other):
            return refusal("scope", [one], [other])
    determined, other_determined = next_stems(left, _DETERMINER_KINDS), next_stems(right, _DETERMINER_KINDS)
    differing = determined["all"] & other_determined["a"] or determined["a"] & other_determined["all"]
    if left.frame == right.frame == "whether":
        limiting = _TOTALS.union(_PARTS.intersection((*left.words[1:2], *right.words[1:2])))  # parts of the subject
        differing |= limiting.intersection((*left_new, *right_new))
    return refusal("scope", differing, ())


_NEAR = 8  # edits of words; in a text that differs more, "only" may be said otherwise
_QUANTIFIER_KINDS = group_names("""all every each everyone everybody everything, any anyone anybody anything,
    some someone somebody something several few, most, other, another, same, both, either, only, also too,
    one""")
_FOCUSING = frozenset(("half", "only"))
_TOTALS = frozenset(("all", "both", "each", "every", "most"))
_PARTS = frozenset(("any", "either", "few", "several", "some"))
_QUANTIFIERS = frozenset(_QUANTIFIER_KINDS)
_DETERMINER_KINDS = _QUANTIFIER_KINDS | group_names("a an this my our your")


def _quantifiers(reading: Reading) -> frozenset[str]:
    """The quantifiers of a text, without the "most" of "the most"; "one" is none but in "one of"."""
    pairs = {*pairwise(reading.words)}
    exempt = {"most"} if ("the", "most") in pairs else set()
    return _QUANTIFIERS & reading.vocabulary - (exempt if ("one", "of") in pairs else {*exempt, "one"})


def next_stems(reading: Reading, kinds: Mapping[str, str]) -> Mapping[str, set[str]]:
    """The stems that follow words of these kinds, by kind: "dog" after an "i" for "my dog"."""
    next_stems: dict[str, set[str]] = defaultdict(set)
    for word, stem in zip(reading.words, reading.stems[1:], strict=False):
        if word in kinds:
            next_stems[kinds[word]].add(stem)
    return next_stems


def _new_quantifiers(quantifiers: frozenset[str], others: frozenset[str]) -> list[str]:
    """The quantifiers of a kind that the other text does not have."""
    other_kinds = {_QUANTIFIER_KINDS[word] for word in others}
    return sorted(word for word in quantifiers if _QUANTIFIER_KINDS[word] not in other_kinds)


def _stand_elsewhere(left: Reading, right: Reading, one: str, other: str) -> bool:
    """Whether two words have no neighbour in common."""
    return _neighbours(left, one).isdisjoint(_neighbours(right, other))


def _neighbours(reading: Reading, word: str) -> set[tuple[int, str]]:
    """The stems before and after a word, each with its side."""
    position = reading.words.index(word)
    return {*enumerate(["", *reading.stems, ""][position : position + 3 : 2])}


def _bounds(reading: Reading) -> set[str]:
    """Bounds (more than, at least, at most, less than) of a number, a day or the like, in one wording."""
    if _WORDS_OF_BOUNDS.isdisjoint(reading.vocabulary):
        return set()
    text = " ".join(reading.words)
    return {f"{name} {match}" for name, pattern in _BOUND_PATTERNS for match in pattern.findall(text)}


_WORDS_OF_BOUNDS = word_set("above below least maximum minimum most over than under up")
_COUNT_PATTERN = (
    r" (?:a |an |the |dollar |euro |pound )?"
    r"(\d[\d.]*|once|one|(?<=an )hour|(?<=a )(?:second|minute|day|week|month|year|decade|century))\b"
)
_BOUND_PATTERNS = [
    (name, re.compile(rf"\b(?:{words}){_COUNT_PATTERN}"))
    for name, words in (
        ("above", "(?:more|greater|higher|longer|older|larger|over|bigger) than|over|above"),
        ("below", "(?:less|fewer|lower|shorter|younger|smaller) than|under|below"),
        ("least", "at least|minimum of"),
        ("most", "at most|up to|maximum of"),
    )
]
