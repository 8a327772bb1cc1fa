"""Whether common words of two readings have changed places, and whether that matters."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise

from langmem_adapters.experience.verifier.alignment import Alignment, unmatched
from langmem_adapters.experience.verifier.phrases import NAMING
from langmem_adapters.experience.verifier.reading import Reading, Word
from langmem_adapters.experience.verifier.words import LINKS, NEGATIONS, PREPOSITIONS, STOP, UNITS, stem_of
from langmem_adapters.language.lists import listed

__all__ = ["opposed", "swapped"]

_WAYS = {"from": "from", "to": "to", "into": "to", "onto": "to", "than": "than", "before": "before", "after": "after"}
_EITHER = {frozenset(("by", "using")), frozenset(("using", "with"))}
"""Prepositions that may replace each other, if all else is the same; "using" is one, as a form of "use"."""
_EITHER_WITH = {
    frozenset(ways.split()): frozenset(map(stem_of, words.split()))
    for ways, words in (
        ("at in", "airport bank college home hospital hotel office restaurant school shop station store university"),
        ("by on", "bike boat bus ferry plane ship train tram"),
        ("by with", "pay"),
        ("from of", "made"),
        ("from on", "clear delete erase remove uninstall wipe"),
        ("as like", "such"),
        ("like of", "life"),
        ("in with", "bash css docker excel git html java javascript jquery matlab numpy pandas php python r react sql"),
    )
}
"""Likewise, if the text has one of these words. Others may not: a gift "for" her is none "from" her."""
_GOVERNING = PREPOSITIONS | {"like"}
_RIDING = frozenset(("by", "on"))  # "by train", but not for "trained"
_DONE = ("ing", "ed")
_AT = frozenset(("at", "in", "on"))
_DOING = frozenset(("how to", "how", "why", "whether"))
_ADVERBS = NEGATIONS - frozenset(("except", "excluding", "without"))
_OF_IT = frozenset(("of", "for", "in"))
_ASKED_OF_IT = re.compile(
    r"^(?:what|which) (?:is|are|was|were) (?:the )?(?:(?:most \w+|\w+est) \w+|(?:\w+ ){0,2}"
    r"(?:advantage|age|balance|capital|code|condition|cost|currency|date|deadline|definition|fee|formula|future|"
    r"ingredient|law|length|limit|name|number|port|price|process|purpose|rate|ratio|recipe|requirement|risk|role|rule|"
    r"salary|size|status|symbol|symptom|syntax|value|word)s?) (?:of|for|in)\b"
)
"""Questions about an attribute: the rules "of", "for" or "in" curling; but love "of" children is not "for" them."""
_COMPOUNDING = listed("of in with on for is are that which the a an")
"""Words that may separate the parts of a compound: "a cron job", "a job with cron"."""
_PARTING = PREPOSITIONS | listed("i he she they we am are is was were")
"""Words that show that "and" joins two clauses rather than two things."""
_ONE_DOES = listed("is was has does")
_PRONOUNS = listed("me you him her it us them")
_AIMED = {"into", "onto", "than", "convert", "transform", "translate"}
_MANY = 24  # words: a longer text has too many orders to try
_TOLD = 10  # words; a text with so many and others besides is more often reworded than reversed in meaning
_FEW = 2


def swapped(left: Reading, right: Reading, alignment: Alignment) -> tuple[str, str] | None:
    """Two words that have changed places where that matters; None, if there are none.

    They have if exchanging them gives the other text's order, or if one has another preposition; "like" is treated as
    one here: a song like hers is not one by her. It does not matter

    - if only "and", "or" and the like stand between them, and no word that has stayed: "keep A and cancel B" is "cancel
      B and keep A", but not "cancel A and keep B";
    - if each has moved with its preposition, and past no word that has stayed: "In Oslo, who …", "Who … in Oslo", but
      "5 mg in the morning and 10 at night" is not "5 at night and 10 in the morning";
    - if a compound is taken apart: "the cron job", "the job of cron";
    - in a text of ten words or more that has unmatched words too, as it is reworded: unless both words are names or
      numbers, nothing else has moved, or something is converted into something, or compared with it.

    A text of more than 24 words must keep their order. It may mention everything twice, such as a dose for the morning
    and one for the evening, so two exchanged words change its meaning.
    """
    pairs = alignment.pairs
    order = [other for _, other, _ in pairs]
    alone = alignment.only_left or alignment.only_right
    likened = all(word.text == "like" for side in unmatched(left, right, alignment) for word in side)
    if likened and (turned := _turned(left, right, pairs)):
        return turned
    rising = _longest_rising(order)
    if rising == len(order):
        return None
    if len(order) > _MANY:
        return _moved(left, right, pairs)
    told = len(order) >= _TOLD and bool(alone)
    told = told and not _AIMED.intersection(left.words).intersection(right.words)
    for i in range(len(order)):
        for j in range(i + 1, len(order)):
            if order[i] > order[j]:
                first, second = left.content[pairs[i][0]], left.content[pairs[j][0]]
                exchanged = order.copy()
                exchanged[i], exchanged[j] = exchanged[j], exchanged[i]
                better = _longest_rising(exchanged)
                in_part = better >= rising + 2 and (not told or (_is_named(first) and _is_named(second)))
                beside = j == i + 1 or _go_along(order, i, j)
                beside = beside or (j == i + 2 and _stand_alike(left, pairs[i][0], pairs[j][0]))
                if (better == len(order) or in_part) and not _may_move(left, right, pairs[i], pairs[j], beside=beside):
                    return first.text, second.text
    return None if alone else _exchanged(left, right, pairs) or _turned_round(left, order)


def opposed(left: Reading, right: Reading, alignment: Alignment) -> tuple[str, str] | None:
    """A word with opposite prepositions in the two texts, such as "from" and "to"; None, if there is none."""
    for word, _, way, back in _governed_otherwise(left, right, alignment.pairs):
        ways = _WAYS.get(way), _WAYS.get(back)
        if ways[0] and ways[1] and ways[0] != ways[1]:
            return word.text, ways[1]
    return None


def _turned(left: Reading, right: Reading, pairs: Sequence[tuple[int, int, float]]) -> tuple[str, str] | None:
    """A word with another preposition in the other text, which is otherwise the same; None, if there is none."""
    for word, another, way, back in _governed_otherwise(left, right, pairs):
        if not _is_either(left, right, word, another, frozenset((way, back))):
            return word.text, _WAYS.get(back, back)
    before, behind = _towards(left), _towards(right)
    for governed in sorted(before.keys() & behind.keys()):
        if before[governed] != behind[governed] and {before[governed], behind[governed]} not in _EITHER:
            return governed, behind[governed]
    return None


def _governed_otherwise(
    left: Reading, right: Reading, pairs: Sequence[tuple[int, int, float]]
) -> Iterator[tuple[Word, Word, str, str]]:
    """Words with another preposition in the other text, with the word that corresponds there, and both prepositions."""
    for one, other, _ in pairs:
        word, another = left.content[one], right.content[other]
        way, back = _preposition(left, word), _preposition(right, another)
        if way and back and way != back:
            yield word, another, way, back


def _is_either(left: Reading, right: Reading, word: Word, another: Word, ways: frozenset[str]) -> bool:
    """Whether both prepositions (``ways``) of corresponding words mean the same."""
    told = zip((*left.words, *right.words), (*left.stems, *right.stems), strict=True)
    stems = (stem for said, stem in told if ways != _RIDING or said[-2:] != "ed")
    if ways in _EITHER or not _EITHER_WITH.get(ways, frozenset()).isdisjoint(stems):
        return True
    if "to" in ways and (word.text.endswith(_DONE) or another.text.endswith(_DONE)):  # to cook, of cooking, for cooked
        return True
    if ways <= _AT and _is_named(word):  # run it in or on Linux, but a film on Rome is not in Rome
        return "at" in ways or left.frame in _DOING
    return ways <= _OF_IT and "of" in ways and all(_ASKED_OF_IT.match(reading.text) for reading in (left, right))


def _moved(left: Reading, right: Reading, pairs: Sequence[tuple[int, int, float]]) -> tuple[str, str] | None:
    """The first two words out of place; None, if there are none, or only two that may move, as around "and"."""
    places = sorted(other for _, other, _ in pairs)
    moved = [pair for pair, place in zip(pairs, places, strict=True) if pair[1] != place]
    if len(moved) == _FEW:
        beside = pairs.index(moved[1]) == pairs.index(moved[0]) + 1
        if _may_move(left, right, *moved, beside=beside):
            return None
    return left.content[moved[0][0]].text, left.content[moved[1][0]].text


def _is_named(word: Word) -> bool:
    """Whether a word is a name, a number or a unit, which identifies a thing rather than describes it."""
    return word.capital or word.text in UNITS or not word.text.isalpha()


def _go_along(order: Sequence[int], *moved: int) -> bool:
    """Whether the moved words each kept a neighbour, as when whole clauses move."""
    return all(order[n] + 1 in order[n + 1 : n + 2] or order[n] - 1 in order[max(n - 1, 0) : n] for n in moved)


def _stand_alike(reading: Reading, *places: int) -> bool:
    """Whether words have the same word before or after them: "American English and British English"."""
    return any(
        len({reading.content[place + step].stem for place in places}) == 1
        for step in (-1, 1)
        if all(0 <= place + step < len(reading.content) for place in places)
    )


def _exchanged(left: Reading, right: Reading, pairs: Sequence[tuple[int, int, float]]) -> tuple[str, str] | None:
    """Two phrases that changed places around words that stayed: "my big dog bit a cat", "a cat bit my big dog"."""
    phrases = [pair for n, pair in enumerate(pairs) if n == 0 or pair[1] != pairs[n - 1][1] + 1]
    order = [other for _, other, _ in phrases]
    for i in range(len(order)):
        for j in range(i + 2, len(order)):
            exchanged = order.copy()
            exchanged[i], exchanged[j] = exchanged[j], exchanged[i]
            if exchanged != sorted(order) or _may_move(left, right, phrases[i], phrases[j], beside=False):
                continue
            one, other = phrases[i], phrases[j]
            governed = [_preposition(left, left.content[n]) for n in (one[0], other[0])]
            linked = LINKS.intersection(left.words[left.content[one[0]].place : left.content[other[0]].place])
            if linked and not any(governed):  # clauses, whose order does not matter
                continue
            if sorted(governed) == sorted(_preposition(right, right.content[n]) for n in (one[1], other[1])):
                return left.content[one[0]].text, left.content[other[0]].text
    return None


def _turned_round(left: Reading, order: Sequence[int]) -> tuple[str, str] | None:
    """Two of three or more words that moved singly: "Lock A, open B and clean C", "open A, clean B and lock C"."""
    moved = [n for n, other in enumerate(order) if other != n]
    apart = all(other > one + 1 for one, other in pairwise(moved))
    return (left.content[moved[0]].text, left.content[moved[1]].text) if apart and len(moved) > _FEW else None


def _may_move(
    left: Reading, right: Reading, one: tuple[int, int, float], other: tuple[int, int, float], *, beside: bool
) -> bool:
    a, b = left.content[one[0]], left.content[other[0]]
    c, d = right.content[one[1]], right.content[other[1]]
    if {a.text, b.text} & _ADVERBS:
        return True
    apart = left.words[a.place + 1 : b.place], right.words[d.place + 1 : c.place]
    if beside and all(LINKS.intersection(words) and _PARTING.isdisjoint(words) for words in apart):
        return not ("and" in apart[0] and {*left.words[b.place + 1 : b.place + 2]} & _ONE_DOES)
    if bool(apart[0]) != bool(apart[1]) and _COMPOUNDING.issuperset([*apart[0], *apart[1]]):
        return "of" not in {*apart[0], *apart[1]} or NAMING.isdisjoint((a.text, b.text))
    first, second = _preposition(left, a), _preposition(left, b)
    return beside and first != second and (first, second) == (_preposition(right, c), _preposition(right, d))


def _preposition(reading: Reading, word: Word) -> str:
    """The preposition that governs a word: the one before it, with only stop words between; "" if there is none."""
    for before in reversed(reading.words[max(0, word.place - 3) : word.place]):
        if before in _GOVERNING:
            return before
        if before not in STOP:
            break
    return ""


def _towards(reading: Reading) -> dict[str, str]:
    """The prepositions directly before pronouns, by pronoun: to bark "at" me."""
    return {word: way for way, word in pairwise(reading.words) if word in _PRONOUNS and way in PREPOSITIONS}


def _longest_rising(order: Sequence[int]) -> int:
    tails: list[int] = []
    for value in order:
        place = bisect_left(tails, value)
        tails[place : place + 1] = [value]
    return len(tails)
