"""The features that the verifier weighs: how much two readings have in common, and how much not."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from itertools import pairwise

from langmem_adapters.experience.verifier.alignment import Alignment, edits, likeness, unmatched
from langmem_adapters.experience.verifier.forms import is_soft
from langmem_adapters.experience.verifier.questions import FRAMES
from langmem_adapters.experience.verifier.reading import Reading, Word
from langmem_adapters.experience.verifier.words import ARTICLES, I_WORDS, PREPOSITIONS, STOP, YOU_WORDS

__all__ = ["NAMES", "features", "governed", "weight"]


def features(left: Reading, right: Reading, alignment: Alignment, cosine: float) -> list[float]:
    """The features of a pair, in the order of :data:`NAMES`."""
    pairs = alignment.pairs
    one, other = unmatched(left, right, alignment)
    total = sum(map(weight, left.content)) + sum(map(weight, right.content)) or 1.0
    shared = sum(sure * (weight(left.content[a]) + weight(right.content[b])) for a, b, sure in pairs)
    heavy = [weight(word) for word in one], [weight(word) for word in other]
    order = [b for _, b, _ in pairs]
    size = len(order) * (len(order) - 1) / 2
    rising = _rising_pairs(order)
    difference = edits(left.stems[:60], right.stems[:60], 60)
    lefts, rights = left.vocabulary, right.vocabulary
    stops = lefts & STOP, rights & STOP
    grams = _grams(left.text), _grams(right.text)
    bigrams = set(pairwise(left.stems)), set(pairwise(right.stems))
    return [
        cosine,
        sum(heavy[0]), sum(heavy[1]), max(heavy[0], default=0.0), max(heavy[1], default=0.0),
        shared / total,
        len(pairs) / ((len(pairs) + len(one) + len(other)) or 1),
        min(len(left.content), len(right.content)),
        max(len(left.words), len(right.words)),
        abs(len(left.words) - len(right.words)),
        min(_FRAME[left.frame], _FRAME[right.frame]),
        max(_FRAME[left.frame], _FRAME[right.frame]),
        sum(word.capital for word in one) + sum(word.capital for word in other),
        sum(is_soft(word.text) for word in one) + sum(is_soft(word.text) for word in other),
        rising / size if size else 1.0,
        _share(*bigrams), _share(*stops), _share(set(left.stems), set(right.stems)), _share(*grams),
        difference,
        difference / (max(len(left.stems), len(right.stems)) or 1),
        _differs(lefts, rights, I_WORDS) + 2 * _differs(lefts, rights, YOU_WORDS),
        bool(lefts & YOU_WORDS) + bool(rights & YOU_WORDS),
        bool(lefts & I_WORDS) + bool(rights & I_WORDS),
        len((stops[0] ^ stops[1]) - ARTICLES),
        max(left.sentences, right.sentences),
        _restricting(left, one) + _restricting(right, other),
        _substituted(alignment, heavy),
        likeness(left.content[-1].text, right.content[-1].text) if left.content and right.content else 0.0,
    ]  # fmt: skip


NAMES = tuple(
    str.split(
        """cosine lost_left lost_right most_left most_right shared jaccard content longest difference frame_low
        frame_high names soft rising bigrams stops stems grams edits edit_share person you i stop_changes
        sentences restricting substituted last"""
    )
)

_FRAME = {name: n for n, (name, _) in enumerate((*FRAMES, ("none", "")))}


def weight(word: Word) -> float:
    """How much a word says; names, numbers and long words count as rare, so they weigh more."""
    if is_soft(word.text):
        return 0.6
    if word.capital or not word.text.isalpha() or not word.text.isascii():
        return 5.0
    return 2.5 + 0.25 * min(len(word.stem), 8)


def governed(reading: Reading, word: Word) -> bool:
    """Whether a word follows a preposition, or one and a stop word: "in India", "for the poor", "without sugar"."""
    before = reading.words[max(0, word.place - 2) : word.place]
    return bool(before) and (before[-1] in PREPOSITIONS or (before[-1] in STOP and before[0] in PREPOSITIONS))


def _restricting(reading: Reading, alone: Iterable[Word]) -> float:
    """The weight of unmatched words after a preposition."""
    return sum(weight(word) for word in alone if governed(reading, word))


def _substituted(alignment: Alignment, heavy: tuple[list[float], list[float]]) -> float:
    """The weight of words that replace others, which means that they are between the same neighbours."""
    gaps: tuple[dict[int, float], ...] = defaultdict(float), defaultdict(float)
    for side, alone in enumerate((alignment.only_left, alignment.only_right)):
        there = sorted(pair[side] for pair in alignment.pairs)
        for place, value in zip(alone, heavy[side], strict=True):
            gaps[side][bisect_left(there, place)] += value
    return sum(min(value, gaps[1][gap]) for gap, value in gaps[0].items())


def _rising_pairs(order: Sequence[int]) -> int:
    """The number of pairs in ascending order."""
    seen: list[int] = []
    total = 0
    for place in order:
        below = bisect_left(seen, place)
        total += below
        seen.insert(below, place)
    return total


@lru_cache(maxsize=16)  # a request is compared with several
def _grams(text: str) -> set[str]:
    return {text[n : n + 3] for n in range(len(text) - 2)}


def _share(
    one: AbstractSet[str] | AbstractSet[tuple[str, str]], other: AbstractSet[str] | AbstractSet[tuple[str, str]]
) -> float:
    return len(one & other) / len(one | other) if one or other else 1.0


def _differs(one: frozenset[str], other: frozenset[str], words: frozenset[str]) -> int:
    return bool(one & words) != bool(other & words)
