"""The features that the verifier weighs: how much two readings have in common, and how much not."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from itertools import pairwise

from langmem_adapters.experience.verifier.alignment import Alignment, edit_distance, unmatched_words, word_similarity
from langmem_adapters.experience.verifier.forms import is_optional
from langmem_adapters.experience.verifier.questions import QUESTION_FRAMES
from langmem_adapters.experience.verifier.reading import Reading, Word
from langmem_adapters.experience.verifier.words import ARTICLES, I_WORDS, PREPOSITIONS, STOP_WORDS, YOU_WORDS


def features(left: Reading, right: Reading, alignment: Alignment, cosine: float) -> list[float]:
    """The features of a pair, in the order of :data:`FEATURE_NAMES`."""
    pairs = alignment.pairs
    left_only, right_only = unmatched_words(left, right, alignment)
    weights, other_weights = [*map(word_weight, left.content)], [*map(word_weight, right.content)]
    total = sum(weights) + sum(other_weights) or 1.0
    shared = sum(similarity * (weights[i] + other_weights[j]) for i, j, similarity in pairs)
    left_weights, right_weights = [*map(word_weight, left_only)], [*map(word_weight, right_only)]
    order = [j for _, j, _ in pairs]
    pair_count = len(order) * (len(order) - 1) / 2
    ascending = _count_ascending_pairs(order)
    difference = edit_distance(left.stems[:60], right.stems[:60], 60)
    left_words, right_words = left.vocabulary, right.vocabulary
    left_stop_words, right_stop_words = left_words & STOP_WORDS, right_words & STOP_WORDS
    return [
        cosine,
        sum(left_weights), sum(right_weights), max(left_weights, default=0.0), max(right_weights, default=0.0),
        shared / total,
        len(pairs) / ((len(pairs) + len(left_only) + len(right_only)) or 1),
        min(len(left.content), len(right.content)),
        max(len(left.words), len(right.words)),
        abs(len(left.words) - len(right.words)),
        min(_FRAME_NUMBERS[left.frame], _FRAME_NUMBERS[right.frame]),
        max(_FRAME_NUMBERS[left.frame], _FRAME_NUMBERS[right.frame]),
        sum(word.capital for word in left_only) + sum(word.capital for word in right_only),
        sum(is_optional(word.text) for word in left_only) + sum(is_optional(word.text) for word in right_only),
        ascending / pair_count if pair_count else 1.0,
        _overlap(set(pairwise(left.stems)), set(pairwise(right.stems))),
        _overlap(left_stop_words, right_stop_words),
        _overlap(set(left.stems), set(right.stems)),
        _overlap(_trigrams(left.text), _trigrams(right.text)),
        difference,
        difference / (max(len(left.stems), len(right.stems)) or 1),
        _only_one_has(left_words, right_words, I_WORDS) + 2 * _only_one_has(left_words, right_words, YOU_WORDS),
        bool(left_words & YOU_WORDS) + bool(right_words & YOU_WORDS),
        bool(left_words & I_WORDS) + bool(right_words & I_WORDS),
        len((left_stop_words ^ right_stop_words) - ARTICLES),
        max(left.sentences, right.sentences),
        _restricting_weight(left, left_only) + _restricting_weight(right, right_only),
        _substituted_weight(alignment, left_weights, right_weights),
        word_similarity(left.content[-1].text, right.content[-1].text) if left.content and right.content else 0.0,
    ]  # fmt: skip


FEATURE_NAMES = tuple(
    str.split(
        """cosine lost_left lost_right most_left most_right shared jaccard content longest difference frame_low
        frame_high names optional rising bigrams stops stems grams edits edit_share person you i stop_changes
        sentences restricting substituted last"""
    )
)

_FRAME_NUMBERS = {name: n for n, (name, _) in enumerate((*QUESTION_FRAMES, ("none", "")))}


def word_weight(word: Word) -> float:
    """How much a word says; names, numbers and long words count as rare, so they weigh more."""
    if is_optional(word.text):
        return 0.6
    if word.capital or not word.text.isalpha() or not word.text.isascii():
        return 5.0
    return 2.5 + 0.25 * min(len(word.stem), 8)


def follows_preposition(reading: Reading, word: Word) -> bool:
    """Whether a word follows a preposition, or one and a stop word: "in India", "for the poor", "without sugar"."""
    before = reading.words[max(0, word.place - 2) : word.place]
    return bool(before) and (before[-1] in PREPOSITIONS or (before[-1] in STOP_WORDS and before[0] in PREPOSITIONS))


def _restricting_weight(reading: Reading, unmatched: Iterable[Word]) -> float:
    """The weight of unmatched words after a preposition."""
    return sum(word_weight(word) for word in unmatched if follows_preposition(reading, word))


def _substituted_weight(alignment: Alignment, left_weights: Iterable[float], right_weights: Iterable[float]) -> float:
    """The weight of words that replace others, which means that they are between the same neighbours."""
    left_gaps = _weight_by_gap(alignment.only_left, left_weights, [i for i, _, _ in alignment.pairs])
    right_gaps = _weight_by_gap(alignment.only_right, right_weights, [j for _, j, _ in alignment.pairs])
    return sum(min(weight, right_gaps[gap]) for gap, weight in left_gaps.items())


def _weight_by_gap(unmatched: Iterable[int], weights: Iterable[float], matched: Iterable[int]) -> dict[int, float]:
    """The weight of the unmatched words in each gap between matched ones, by the number of matched ones before it."""
    order = sorted(matched)
    gaps: dict[int, float] = defaultdict(float)
    for position, weight in zip(unmatched, weights, strict=True):
        gaps[bisect_left(order, position)] += weight
    return gaps


def _count_ascending_pairs(order: Sequence[int]) -> int:
    """The number of pairs in ascending order."""
    sorted_before: list[int] = []
    total = 0
    for position in order:
        smaller = bisect_left(sorted_before, position)
        total += smaller
        sorted_before.insert(smaller, position)
    return total


@lru_cache(maxsize=16)  # a request is compared with several
def _trigrams(text: str) -> set[str]:
    return {text[n : n + 3] for n in range(len(text) - 2)}


def _overlap(one: AbstractSet[object], other: AbstractSet[object]) -> float:
    return len(one & other) / len(one | other) if one or other else 1.0


def _only_one_has(one: frozenset[str], other: frozenset[str], words: frozenset[str]) -> int:
    return bool(one & words) != bool(other & words)
