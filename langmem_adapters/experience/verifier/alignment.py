"""Align the words of two readings: which correspond to each other, and which only one of them has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from langmem_adapters.experience.verifier.forms import CONFUSED, synonymous
from langmem_adapters.experience.verifier.reading import Reading, Word
from langmem_adapters.experience.verifier.words import OPPOSITES, stem_of
from langmem_adapters.language.lists import listed

__all__ = ["FORMS_OF_ONE", "MISSPELT", "Alignment", "align", "differ", "edits", "is_short", "likeness", "unmatched"]

MISSPELT = 0.9
"""The likeness of a word and its misspelling."""
_SAME_STEM, _COMPOUND, _SAME_BEGINNING, _LONGER = 0.95, 0.94, 0.85, 0.6
_SHORT = 14  # words; in longer texts, some are often replaced or added without a difference
_MANY = 24  # unmatched words of each text, above which forms and synonyms are not looked for: such texts differ anyway
FORMS_OF_ONE = frozenset((_SAME_STEM, _SAME_BEGINNING, _LONGER))
"""The likenesses of words that may be forms of one word."""


class Alignment(NamedTuple):
    """The pairs of corresponding content words, by place, with their likeness; and the places of unmatched words."""

    pairs: list[tuple[int, int, float]]
    only_left: list[int]
    only_right: list[int]


def unmatched(left: Reading, right: Reading, alignment: Alignment) -> tuple[list[Word], list[Word]]:
    """The content words of each reading that correspond to none of the other's."""
    return [left.content[n] for n in alignment.only_left], [right.content[n] for n in alignment.only_right]


def align(left: Sequence[Word], right: Sequence[Word]) -> Alignment:
    """Pair equal words first; then, if few are left, forms, synonyms and misspellings of each other."""
    places: dict[str, list[int]] = {}
    for place, word in enumerate(right):
        places.setdefault(word.stem, []).append(place)
    pairs: list[tuple[int, int, float]] = []
    rest, used = [], set()
    for place, word in enumerate(left):
        found = places.get(word.stem)
        if found:
            other = found.pop(0)
            used.add(other)
            pairs.append((place, other, 1.0 if word.text == right[other].text else _SAME_STEM))
        else:
            rest.append(place)
    free = [place for place in range(len(right)) if place not in used]
    if len(rest) * len(free) <= _MANY**2:
        rest = _align_alike(left, right, rest, free, pairs)
    _align_compounds(left, right, rest, free, pairs)
    _align_compounds(right, left, free, rest, pairs, turned=True)
    return Alignment(sorted(pairs), rest, free)


def _align_alike(
    left: Sequence[Word], right: Sequence[Word], rest: list[int], free: list[int], pairs: list[tuple[int, int, float]]
) -> list[int]:
    alone = []
    for place in rest:
        best, other = max(((_stands_for(left[place], right[n]), -n) for n in free), default=(0.0, 0))
        if best >= _LONGER:
            free.remove(-other)
            pairs.append((place, -other, best))
        else:
            alone.append(place)
    return alone


def _align_compounds(
    one: Sequence[Word], other: Sequence[Word], ones: list[int], others: list[int],
    pairs: list[tuple[int, int, float]], *, turned: bool = False,
) -> None:  # fmt: skip
    """Pair "facebook" with "face book", and the other way round."""
    free = set(others)
    joined: dict[str, list[int]] = {}
    for n in others:
        if n + 1 in free:
            joined.setdefault(other[n].text + other[n + 1].text, []).append(n)
    for place in list(ones):
        for n in joined.get(one[place].text, ()):
            if n in free and n + 1 in free:
                free -= {n, n + 1}
                ones.remove(place)
                pairs.append((n, place, _COMPOUND) if turned else (place, n, _COMPOUND))
                break
    others[:] = [n for n in others if n in free]


def _stands_for(one: Word, other: Word) -> float:
    """The likeness of two words; misspelt stems count only if the words themselves differ so: not hotels and hostel."""
    sure = likeness(one.text, other.text)
    return 0.0 if sure == MISSPELT and not _misspelt(one.text, other.text) else sure


@lru_cache(maxsize=1 << 14)
def likeness(word: str, another: str) -> float:  # noqa: PLR0911 - a ladder
    """How surely a word corresponds to another: 1 for the same word or stem, 0 for not at all."""
    one, other = stem_of(word), stem_of(another)
    if one == other:
        return 1.0
    if other in OPPOSITES.get(one, ()) or (one, other) in CONFUSED:
        return 0.0
    if synonymous(word, another):
        return 0.8
    shorter, longer = sorted((one, other), key=len)
    size = len(shorter)
    if size < 4 or not (one.isalpha() and other.isalpha()):  # noqa: PLR2004
        return 0.0
    same = next((n for n in range(size) if one[n] != other[n]), size)
    forms = one[same:] in _ENDINGS and other[same:] in _ENDINGS
    if forms and same >= max(4, 0.7 * len(longer)):
        return _SAME_BEGINNING
    if size >= 5 and _misspelt(one, other):  # noqa: PLR2004
        return MISSPELT
    return _LONGER if forms and longer.startswith(shorter) else 0.0


_ENDINGS = listed("""a able age al an ance ant ar ary ate ation c ct d ed ee ence ency ent er es est ful i ial ian ibl
    ible ic ical ier if in ing ion ious ish ism ist it ity iv ive iz ize l less like ly ment n ness or ori ory ous s
    sion ss t tic tion ur ure v ve y z""") | {""}
"""Endings of stems that begin alike and are forms of one word; "Niger" and "Nigeria" are not."""


def _misspelt(one: str, other: str) -> bool:
    """Whether one word or stem is a typo of the other: it has an extra letter, or two letters exchanged.

    A replaced letter does not count: it makes another word as often as a misspelling, as in "Rhine", "Rhone".
    """
    if one[0] != other[0] or edits(one, other, 1) > 1:
        return False
    return len(one) != len(other) or sorted(one) == sorted(other)


def edits(one: Sequence[str], other: Sequence[str], most: int) -> int:
    """The number of letters or words to add, drop, replace or exchange with the next; ``most + 1``, if it is greater.

    Hyyrö's bit-parallel algorithm (2003): two integers hold the places at which a column of the distance table rises
    and falls, so the cost is that of the longer sequence.
    """
    if abs(len(one) - len(other)) > most:
        return most + 1
    if not one or not other:
        return min(max(len(one), len(other)), most + 1)
    places: dict[str, int] = {}
    for n, item in enumerate(one):
        places[item] = places.get(item, 0) | 1 << n
    full, last = (1 << len(one)) - 1, 1 << (len(one) - 1)
    rises, falls, diagonal, before, distance = full, 0, 0, 0, len(one)
    for item in other:
        here = places.get(item, 0)
        exchanged = ((~diagonal & here) << 1) & before
        diagonal = ((((here & rises) + rises) ^ rises) | here | falls | exchanged) & full
        up, down = falls | (~(diagonal | rises) & full), diagonal & rises
        distance += bool(up & last) - bool(down & last)
        up, down = (up << 1 | 1) & full, (down << 1) & full
        rises, falls, before = down | (~(diagonal | up) & full), up & diagonal, here
    return min(distance, most + 1)


def differ(what: str, one: Iterable[str], other: Iterable[str]) -> str:
    """A guard's reason: what differs, and in which words; "" if there are no words."""
    found = [*sorted(one), *sorted(other)]
    return f"{what} differ: {', '.join(found)}" if found else ""


def is_short(left: Reading, right: Reading) -> bool:
    """Whether both texts are so short that each replaced word matters."""
    return max(len(left.words), len(right.words)) <= _SHORT
