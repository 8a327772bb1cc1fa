"""Guards for fine differences: the manner of a text, singular or plural, good or better, with or without "on"."""

from __future__ import annotations

from itertools import pairwise

from langmem_adapters.experience.verifier.alignment import Alignment, differ
from langmem_adapters.experience.verifier.forms import is_soft
from langmem_adapters.experience.verifier.phrases import is_superlative
from langmem_adapters.experience.verifier.reading import Reading, Word
from langmem_adapters.experience.verifier.words import ARTICLES, PLURAL_ALONE, PREPOSITIONS, STOP, UNITS
from langmem_adapters.language.lists import listed, named

__all__ = ["degree", "manner", "plurals", "prepositions"]

_MANNERS = named("""brief briefly short shortly concise concisely,
    detailed detail details depth thorough thoroughly long lengthy comprehensive, step steps, simple simply plain,
    formal formally, informal informally casual, funny humorous, serious, technical, layman, beginner beginners,
    expert experts""")
_TELLING = listed("""compose create describe draft explain give list make outline present rewrite summarise summarize
    tell write""")
_ACRONYM = 3  # letters; so short a name is often in lower case
_NEAR = 4  # words from the beginning
_TAKING = listed("as at by for from in of on to with")
_OPENING = ARTICLES | listed("her his my our that their these this those your")
_OWNING = listed("her his my our their your")
_PLURAL_ALONE = PLURAL_ALONE - {"means"}  # a verb too: "what X means"
_BEING = listed("is are was were")
_UNTAKEN = frozenset(("about", "all", "both", "some", *UNITS))
"""Words beside which a preposition may be left out: some (of the) tools, to come (on) Monday."""


def manner(left: Reading, right: Reading, _: Alignment) -> str:
    """A text to be written must be of the same manner: a short guide is no step-by-step guide."""
    if _TELLING.isdisjoint(left.words[:_NEAR]) or _TELLING.isdisjoint(right.words[:_NEAR]):
        return ""
    one, other = ({_MANNERS[word] for word in reading.vocabulary if word in _MANNERS} for reading in (left, right))
    return differ("manner", one - other, other - one)


def degree(left: Reading, right: Reading, _: Alignment) -> str:
    """The word "good" must not replace "a better", nor "few" (hardly any) "a few" (some); likewise "little"."""
    for word in ("few", "little"):
        lefts, rights = _all_before(left, word), _all_before(right, word)
        if lefts and rights and ("a" in lefts) != ("a" in rights) and "the" not in lefts | rights:
            return differ("degree", [f"a {word}"], [word])
    one, other = (("a", "better") in pairwise(reading.words) for reading in (left, right))
    good = {"good", "great"} & (right.vocabulary if one else left.vocabulary)
    return differ("degree", ["better"], good) if one != other and good else ""


def plurals(left: Reading, right: Reading, alignment: Alignment) -> str:
    """After a superlative, singular and plural differ: the highest mountain(s). So they do in names: "Alien", "Aliens".

    A word with an article is not a name: a python, Python.
    """
    for a, b, _ in alignment.pairs:
        one, other = left.content[a], right.content[b]
        if _is_one_of(left, one, right, other) or _is_one_of(right, other, left, one):
            return differ("plurals", [one.text], ())
        if one.text + "s" == other.text or one.text == other.text + "s":
            superlative = all(is_superlative(_before(*side)) for side in ((left, one), (right, other)))
            owned = _OWNING.issuperset((_before(left, one), _before(right, other)))
            alone = (
                owned or not _PLURAL_ALONE.isdisjoint((one.text, other.text)) or (superlative and not is_soft(one.text))
            )
            if alone or (_is_title(left, one) and _is_title(right, other)):
                return differ("plurals", [one.text], [other.text])
    return ""


def prepositions(left: Reading, right: Reading, alignment: Alignment) -> str:
    """With all else the same, neither may have an additional preposition: to paint on a fence, to paint a fence."""
    if alignment.only_left or alignment.only_right or not (left.english and right.english):
        return ""
    shorter, longer = sorted(([w for w in reading.words if w not in _OPENING] for reading in (left, right)), key=len)
    if len(longer) != len(shorter) + 1:
        return ""
    place = next((n for n, word in enumerate(shorter) if word != longer[n]), len(shorter))
    beside = {*longer[max(0, place - 1) : place], *longer[place + 1 : place + 2]}
    if longer[place] not in _TAKING or longer[place + 1 :] != shorter[place:]:
        return ""
    between = len(beside) > 1 and all(word.isalpha() and word not in _UNTAKEN for word in beside - _BEING)
    between = between and (STOP - _BEING).isdisjoint(beside)
    return differ("prepositions", longer[place : place + 1], ()) if between else ""


def _all_before(reading: Reading, word: str) -> set[str]:
    return {before for before, after in pairwise(["", *reading.words]) if after == word}


def _before(reading: Reading, word: Word) -> str:
    return reading.words[word.place - 1] if word.place else ""


def _is_one_of(reading: Reading, word: Word, naming: Reading, name: Word) -> bool:
    """Whether a word has an indefinite article here, and is a name in the other text."""
    same = word.text == name.text and len(word.text) > _ACRONYM and not word.capital
    return same and _before(reading, word) in {"a", "an"} and _is_title(naming, name)


def _is_title(reading: Reading, word: Word) -> bool:
    """Whether a word is a name that stands alone: after no article, and before no other content word."""
    after = reading.words[word.place + 1 : word.place + 2]
    alone = _before(reading, word) not in ARTICLES and PREPOSITIONS.issuperset(after)
    return word.capital and word.text not in UNITS and alone
