"""Names of things told in two ways: "the capital of Peru" and "Peru's capital", or "peru capital", as one searches."""

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
"""What is named after what stands behind an "of", and before: two things, as a rule."""
_PARTING = listed("bit bunch couple group kind lot number pair part piece slice sort state type")
_OPENING = STOP | listed("average best first last maximum minimum next top")  # behind which a name begins
_SMALL = STOP - _JOINING - LINKS
_ASKED = re.compile(r"(?:(?:(?:what|which|who) is|tell me|give me) (?:(?:the|some) )|what is (?:an? )?)")
_MOST, _FEWEST, _LONGEST = 4, 2, 9  # words of a part, and of a search
_SUPERLATIVE = 6  # letters, of the shortest but "best"


def compounded(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether one tells by a preposition what the other tells by a compound: "a pod in Kubernetes", "a Kubernetes pod".

    Both with their articles. The whole name of the thing must have moved, as an article or the like before it shows:
    an old photo of my dog is no old dog photo. Nor is a glass of wine a wine glass, nor the University of Miami Miami
    University, nor the bank on the river the river bank.
    """
    wanted = _bare(other)
    more = Counter(_bare(one))
    more.subtract(wanted)
    joined = [word for word, n in more.items() if n]
    if len(joined) != 1 or joined[0] not in _JOINING or more[joined[0]] != 1:
        return False
    return any(_bare(told) == wanted for n, word in enumerate(one) if word == joined[0] for told in _compounds(one, n))


def _compounds(words: Sequence[str], place: int) -> Iterator[list[str]]:
    """The words, with a compound in the place of what stands on both sides of a preposition."""
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
    """Whether a word is one: "highest". Without "best", which says less."""
    return word.endswith("est") and len(word) >= _SUPERLATIVE and word != "interest"


def same_search(left: Sequence[str], right: Sequence[str], searched: Reading, asked: Reading) -> bool:
    """Whether one asks what the other only names, as one types it into a search box: "peru capital".

    What is searched has no pronoun and opens with no word that asks, so that it cannot be taken for something to do.
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
