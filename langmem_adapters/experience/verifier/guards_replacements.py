"""Guards for words that are replaced, or that only one text has, where all else is the same or nearly so."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from itertools import groupby
from operator import ne

from langmem_adapters.experience.verifier.alignment import Alignment, differ, edits, is_short, unmatched
from langmem_adapters.experience.verifier.forms import is_soft
from langmem_adapters.experience.verifier.reading import Reading, Word
from langmem_adapters.experience.verifier.words import ARTICLES, STOP, is_past
from langmem_adapters.language.lists import listed

__all__ = ["details", "words"]

_LONG = 60  # words
_FEW = 2
_SHARE = 0.15  # of the words of a text; if more differ, it is reworded
_MODALS = frozenset(("can", "could", "should", "will", "would"))
_PASSING = ARTICLES | listed("""although also am and any are be been being can could do does even got has have having he
    his i is it its just my of on or our please really she so some still that their then they think this though too
    somehow use using we which why you your""")
"""Words that may be added or left out without a difference, or that other guards compare."""
_SUPPOSING = {"when": "if", "whether": "if", "during": "in"}
_WHETHER = re.compile(r"\bwhether\b|\b(?:ask|check|know|see|sure|tell|wonder)(?:s|ed|ing)?(?: me| us)? if\b")


def words(left: Reading, right: Reading, alignment: Alignment) -> str:
    """With all else the same, words must not be replaced by others that are no known synonyms.

    In a long text, whose score one word hardly changes, no content word may be added or left out. In texts of medium
    length, a word is often replaced without a difference: there the score decides, and the guard :func:`details`.
    """
    one, other = unmatched(left, right, alignment)
    alone = [{word.text for word in side} for side in (one, other)]
    weighty = [{word.text for word in side if not is_soft(word.text)} for side in (one, other)]
    if max(len(left.words), len(right.words)) > _LONG:
        return differ("words", *weighty)
    if len(one) == len(other) == 1 and _all_else_same(left, right):
        free = _MODALS if left.frame == right.frame == "how to" else {"can", "could"}
        if not free.issuperset((*alone[0], *alone[1])):
            return differ("words", *alone)
    if any(weighty) and _in_one_place(left, right, one, other):
        return differ("words", *alone)
    if len(one) == len(other) <= _FEW and not any(is_soft(word.text) for word in (*one, *other)):
        replaced = is_short(left, right) or edits(left.stems, right.stems, _FEW + 1) <= len(one) + 1
        return differ("words", *alone) if replaced else ""
    return ""


def details(left: Reading, right: Reading, alignment: Alignment) -> str:
    """A long text that is nearly the same must have the same words, but for synonyms and those that say little."""
    if is_short(left, right):
        return ""
    most = max(_FEW, int(_SHARE * max(len(left.words), len(right.words))))
    near = edits(left.stems, right.stems, most) <= most
    whens = left.words.count("when") - right.words.count("when")
    if whens * (len(_WHETHER.findall(left.text)) - len(_WHETHER.findall(right.text))) < 0:
        return differ("details", ["when"], ["whether"])
    one, other = (Counter(_SUPPOSING.get(word, word) for word in reading.words) for reading in (left, right))
    if not near and one - other and other - one:
        return ""
    if one["which"] - other["which"] == other["what"] - one["what"]:
        one, other = (Counter({**words, "what": 0}) for words in (one, other))
    pairs = [(left.content[a], right.content[b]) for a, b, _ in alignment.pairs]
    forms = [pair for pair in pairs if pair[0].text != pair[1].text and not _in_another_tense(*pair)]
    matched = {word.text for pair in forms for word in pair}
    passing = matched | _PASSING if near else matched | _PASSING | STOP
    alone = [{word for word in more - less if near or not is_soft(word)} for more, less in ((one, other), (other, one))]
    return differ("details", alone[0] - passing, alone[1] - passing)


def _in_another_tense(one: Word, other: Word) -> bool:
    """Whether a pair differs in tense, as expired and expires; the guard of tense sees only texts with one tense."""
    return one.stem == other.stem and is_past(one.text) != is_past(other.text)


def _all_else_same(left: Reading, right: Reading) -> bool:
    """Whether at most one word differs, and none is added."""
    return len(left.stems) == len(right.stems) and sum(map(ne, left.stems, right.stems)) <= 1


def _in_one_place(left: Reading, right: Reading, one: Iterable[Word], other: Iterable[Word]) -> bool:
    """Whether all that differs are content words that stand together in each text: "a bar chart", "a table"."""
    around = _around(left, one)
    return around.count("") == 1 and around == _around(right, other)


def _around(reading: Reading, alone: Iterable[Word]) -> list[str]:
    """The stems without articles, with one empty string for each run of the given words."""
    places = {word.place for word in alone}
    told = enumerate(zip(reading.words, reading.stems, strict=True))
    marked = ["" if n in places else stem for n, (word, stem) in told if word not in ARTICLES]
    return [stem for stem, _ in groupby(marked)]
