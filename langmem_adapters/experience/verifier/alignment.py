"""Align the words of two readings: which correspond to each other, and which only one of them has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from langmem_adapters.experience.verifier.forms import CONFUSED, are_synonyms
from langmem_adapters.experience.verifier.reading import Reading, Word
from langmem_adapters.experience.verifier.words import MODALS, OPPOSITES, stem_of
from langmem_adapters.language.lists import word_set

TYPO_SIMILARITY = 0.9
"""The similarity of a word and its misspelling."""
_SAME_STEM, _COMPOUND, _SAME_PREFIX, _EXTENSION = 0.95, 0.94, 0.85, 0.6
_MAX_SHORT_TEXT_WORDS = 14  # in longer texts, some are often replaced or added without a difference
_MAX_UNMATCHED_WORDS = 24  # of each text; above that, forms and synonyms are not looked for: such texts differ anyway
FORM_SIMILARITIES = frozenset((_SAME_STEM, _SAME_PREFIX, _EXTENSION))
"""The similarities of words that may be forms of one word."""
_FILLERS = MODALS | word_set("actually exactly really")


class Alignment(NamedTuple):
    """The pairs of corresponding content words, by index, with their similarity; and the indices of unmatched words."""

    pairs: list[tuple[int, int, float]]
    only_left: list[int]
    only_right: list[int]


def unmatched_words(left: Reading, right: Reading, alignment: Alignment) -> tuple[list[Word], list[Word]]:
    """The content words of each reading that correspond to none of the other's."""
    return [left.content[n] for n in alignment.only_left], [right.content[n] for n in alignment.only_right]


def is_reworded(left: Reading, right: Reading, alignment: Alignment) -> bool:
    """Whether a content word of either has no counterpart; "can" and "really" do not count: how (can, do) I really."""
    return any(word.text not in _FILLERS for side in unmatched_words(left, right, alignment) for word in side)


def align(left: Sequence[Word], right: Sequence[Word]) -> Alignment:
    """Pair equal words first; then, if few are left, forms, synonyms and misspellings of each other."""
    positions: dict[str, list[int]] = {}
    for position, word in enumerate(right):
        positions.setdefault(word.stem, []).append(position)
    pairs: list[tuple[int, int, float]] = []
    only_left, matched = [], set()
    for position, word in enumerate(left):
        same_stem = positions.get(word.stem)
        if same_stem:
            match = same_stem.pop(0)
            matched.add(match)
            pairs.append((position, match, 1.0 if word.text == right[match].text else _SAME_STEM))
        else:
            only_left.append(position)
    only_right = [position for position in range(len(right)) if position not in matched]
    if len(only_left) * len(only_right) <= _MAX_UNMATCHED_WORDS**2:
        pairs += _pop_similar(left, right, only_left, only_right)
    pairs += [(joined, part, _COMPOUND) for joined, part in _pop_compounds(left, right, only_left, only_right)]
    pairs += [(part, joined, _COMPOUND) for joined, part in _pop_compounds(right, left, only_right, only_left)]
    return Alignment(sorted(pairs), only_left, only_right)


def _pop_similar(
    left: Sequence[Word], right: Sequence[Word], unmatched_left: list[int], unmatched_right: list[int]
) -> list[tuple[int, int, float]]:
    """The places of similar words, with their similarity, taken out of the unmatched ones."""
    similar = []
    for place in [*unmatched_left]:
        similarities = {n: _pair_similarity(left[place], right[n]) for n in unmatched_right}
        match = max(similarities, key=similarities.__getitem__, default=None)  # the first of the most similar
        if match is not None and similarities[match] >= _EXTENSION:
            unmatched_left.remove(place)
            unmatched_right.remove(match)
            similar.append((place, match, similarities[match]))
    return similar


def _pop_compounds(
    joined_side: Sequence[Word], split_side: Sequence[Word], unmatched_joined: list[int], unmatched_split: list[int]
) -> list[tuple[int, int]]:
    """The places of words such as "facebook", and of "face" before "book", all taken out of the unmatched ones."""
    places: dict[str, list[int]] = {}
    for place in unmatched_joined:
        places.setdefault(joined_side[place].text, []).append(place)
    compounds = []
    for part, next_part in pairwise([*unmatched_split]) if places else ():
        same_text = places.get(split_side[part].text + split_side[next_part].text)
        if same_text and part + 1 == next_part and part in unmatched_split:
            joined = same_text.pop(0)
            unmatched_joined.remove(joined)
            unmatched_split[:] = [place for place in unmatched_split if place not in (part, next_part)]
            compounds.append((joined, part))
    return compounds


def _pair_similarity(one: Word, other: Word) -> float:
    """The similarity of two words; misspelt stems count only if the words themselves are so: not hotels and hostel."""
    similarity = word_similarity(one.text, other.text)
    return 0.0 if similarity == TYPO_SIMILARITY and not _is_typo(one.text, other.text) else similarity


@lru_cache(maxsize=1 << 14)
def word_similarity(word: str, other_word: str) -> float:
    """How surely a word corresponds to another: 1 for the same word or stem, 0 for not at all."""
    stem, other_stem = stem_of(word), stem_of(other_word)
    if stem == other_stem:
        return 1.0
    if other_stem in OPPOSITES.get(stem, ()) or (stem, other_stem) in CONFUSED:
        return 0.0
    if are_synonyms(word, other_word):
        return 0.8
    return _stem_similarity(*sorted((stem, other_stem), key=len))


def _stem_similarity(shorter: str, longer: str) -> float:
    """How surely two stems are of forms of one word, or of a word and its misspelling."""
    if len(shorter) < 4 or not (shorter.isalpha() and longer.isalpha()):  # noqa: PLR2004
        return 0.0
    common = common_start(shorter, longer)
    differ_in_ending = shorter[common:] in _ENDINGS and longer[common:] in _ENDINGS
    if differ_in_ending and common >= max(4, 0.7 * len(longer)):
        return _SAME_PREFIX
    if len(shorter) >= 5 and _is_typo(shorter, longer):  # noqa: PLR2004
        return TYPO_SIMILARITY
    return _EXTENSION if differ_in_ending and longer.startswith(shorter) else 0.0


_ENDINGS = word_set("""a able age al an ance ant ar ary ate ation c ct d ed ee ence ency ent er es est ful i ial ian ibl
    ible ic ical ier if in ing ion ious ish ism ist it ity iv ive iz ize l less like ly ment n ness or ori ory ous s
    sion ss t tic tion ur ure v ve y z""") | {""}
"""Endings of stems that begin alike and are forms of one word; "Niger" and "Nigeria" are not."""


def _is_typo(one: str, other: str) -> bool:
    """Whether one word or stem is a typo of the other: it has an extra letter, or two letters exchanged.

    A replaced letter does not count: it makes another word as often as a misspelling, as in "Rhine", "Rhone".
    """
    if one[0] != other[0] or edit_distance(one, other, 1) > 1:
        return False
    return len(one) != len(other) or sorted(one) == sorted(other)


def edit_distance(one: Sequence[str], other: Sequence[str], limit: int) -> int:
    """The number of letters or words to add, drop, replace or exchange with the next; ``limit + 1``, if it is greater.

    Hyyrö's bit-parallel algorithm (2003): two integers hold the places at which a column of the distance table rises
    and falls, so the cost is that of the longer sequence, without what both begin and end with.
    """
    start = common_start(one, other)
    end = common_start(one[start:][::-1], other[start:][::-1])
    one, other = one[start : len(one) - end], other[start : len(other) - end]
    if abs(len(one) - len(other)) > limit:
        return limit + 1
    if not one or not other:
        return max(len(one), len(other))
    masks: dict[str, int] = {}
    for n, item in enumerate(one):
        masks[item] = masks.get(item, 0) | 1 << n
    all_bits, last_bit = (1 << len(one)) - 1, 1 << (len(one) - 1)
    rises, falls, diagonal, previous_mask, distance = all_bits, 0, 0, 0, len(one)
    for item in other:
        mask = masks.get(item, 0)
        exchanged = ((~diagonal & mask) << 1) & previous_mask
        diagonal = ((((mask & rises) + rises) ^ rises) | mask | falls | exchanged) & all_bits
        up, down = falls | (~(diagonal | rises) & all_bits), diagonal & rises
        distance += bool(up & last_bit) - bool(down & last_bit)
        up, down = (up << 1 | 1) & all_bits, (down << 1) & all_bits
        rises, falls, previous_mask = down | (~(diagonal | up) & all_bits), up & diagonal, mask
    return min(distance, limit + 1)


def common_start(one: Sequence[str], other: Sequence[str]) -> int:
    """The number of equal words or letters with which both begin."""
    differing = (n for n, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1])
    return next(differing, min(len(one), len(other)))


def refusal(guard: str, one: Iterable[str], other: Iterable[str]) -> str:
    """The reason of the guard of this name: which words differ; "" if there are no words."""
    words = [*sorted(one), *sorted(other)]
    return f"{guard} differ: {', '.join(words)}" if words else ""


def is_short(left: Reading, right: Reading) -> bool:
    """Whether both texts are so short that each replaced word matters."""
    return max(len(left.words), len(right.words)) <= _MAX_SHORT_TEXT_WORDS


def has_context(left: Reading, right: Reading) -> bool:
    """Whether both say more than a short question: several sentences, or many words."""
    return min(left.sentences, right.sentences) > 1 or not is_short(left, right)
