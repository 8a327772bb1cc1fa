"""Compounds and their paraphrases: "the capital of Peru", "Peru's capital", or "peru capital" in a search box."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from langmem_adapters.experience.verifier.reading import Reading
from langmem_adapters.experience.verifier.words import ARTICLES, LINKS, STOP, UNITS
from langmem_adapters.language.lists import listed

__all__ = ["NAMING", "compounded", "is_superlative", "same_search"]

_LYING = frozenset(("in", "on"))
_JOINING = _LYING | {"for", "of"}
_HOLDING = listed("""bag barrel basket bottle bowl box bucket can case cup glass jar jug mug pack packet plate pot spoon
    tin""")
NAMING = listed("bank church college house kingdom museum republic school state university")
"""Institutions, whose name before "of" and after it usually means two things: University of Miami, Miami University."""
_PARTING = listed("bit bunch couple group kind lot number pair part piece slice sort state type")
_OPENING = STOP | listed("average best first last maximum minimum next top")  # after which a compound begins
_SMALL = STOP - _JOINING - LINKS
_ASKED = re.compile(r"(?:(?:(?:what|which|who) is|tell me|give me) (?:(?:the|some) )|what is (?:an? )?)")
_MOST, _FEWEST, _LONGEST = 4, 2, 9  # words of a part of a compound; least and most words of a search
_SUPERLATIVE = 6  # letters of the shortest superlative but "best"


def compounded(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether one has a preposition where the other has a compound: "a pod in Kubernetes", "a Kubernetes pod".

    Both are given with articles. The whole noun phrase after an article or the like must have moved: "an old photo of
    my dog" is no "old dog photo". Nor is a glass of wine a wine glass, nor the University of Miami Miami University,
    nor the bank on the river the river bank.
    """
    wanted = _bare(other)
    more = Counter(_bare(one))
    more.subtract(wanted)
    joined = [word for word, n in more.items() if n]
    if len(joined) != 1 or joined[0] not in _JOINING or more[joined[0]] != 1:
        return False
    return any(_bare(told) == wanted for n, word in enumerate(one) if word == joined[0] for told in _compounds(one, n))


def _compounds(words: Sequence[str], place: int) -> Iterator[list[str]]:
    """The words, with the preposition and the phrases on both sides of it replaced by possible compounds."""
    start, after = place, place + 1
    while start and not (words[start - 1] in _OPENING or is_superlative(words[start - 1])):
        start -= 1
    named, preposition = words[start:place], words[place]
    apart = named[-1:] and (named[-1] in _HOLDING | NAMING or (len(named) == 1 and named[0] in _PARTING))
    if not 0 < len(named) <= _MOST or (preposition == "of" and apart):
        return
    while after < len(words) and words[after] in ARTICLES and preposition not in _LYING:
        after += 1
    for end in range(after + 1, min(after + _MOST, len(words)) + 1):
        last = words[end - 1]
        if last in STOP or last.isdigit() or (preposition == "in" and last in UNITS):
            return  # a price in dollars is no dollar price
        yield [*words[:start], *words[after:end], *named, *words[end:]]


def is_superlative(word: str) -> bool:
    """Whether a word is a superlative, such as "highest"; "best", which says less, does not count."""
    return word.endswith("est") and len(word) >= _SUPERLATIVE and word != "interest"


def same_search(left: Sequence[str], right: Sequence[str], searched: Reading, asked: Reading) -> bool:
    """Whether one asks for what the other only names, as in a search box: "peru capital".

    The search (``left``) has no pronoun and no question word, so that it cannot mean an action.
    """
    found = _ASKED.match(" ".join(right))
    words = _bare(left)
    if not found or searched.frame != "none" or not _FEWEST <= len(words) <= _LONGEST:
        return False
    topic = right[len(found[0].split()) :]
    plain = _bare(topic)
    if not _SMALL.isdisjoint((*words, *plain)) or words[-1].removesuffix("meaning").endswith(("ing", "ed")):
        return False
    return words in (plain, _unplaced(plain, asked)) or compounded(topic, left)


def _bare(words: Sequence[str]) -> list[str]:
    return [word for word in words if word not in ARTICLES]


def _unplaced(words: Sequence[str], asked: Reading) -> list[str]:
    """The words without the "in" before a name: "best pizza naples"."""
    names = {name for word in asked.content if word.capital for name in (word.text, word.text.removesuffix("s"))}
    return [word for word, after in zip(words, [*words[1:], ""], strict=True) if word != "in" or after not in names]
