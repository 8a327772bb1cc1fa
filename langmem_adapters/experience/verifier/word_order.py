"""Whether two readings have the same words in another order, and whether that order matters."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise

from langmem_adapters.experience.verifier.phrases import compounded, same_search
from langmem_adapters.experience.verifier.reading import Reading
from langmem_adapters.experience.verifier.words import (
    ARTICLES,
    LINKS,
    NEGATIONS,
    PLURAL_ALONE,
    PREPOSITIONS,
    STOP,
    UNITS,
    respelt,
    stem_of,
)
from langmem_adapters.language.lists import listed, named

__all__ = ["rearranged", "same_words"]

_HOW_TO = re.compile(r"\b(?:how (?:(?:do|can|could|should|would) i|to)|(?:what (?:is|are) the )?(?:best )?ways? to) ")
_DOES = frozenset(("do", "does"))
_FREE = ARTICLES | _DOES  # words that may be left out
_FOCUSING = frozenset(("almost", "also", "even", "just", "only"))
"""Words that qualify the very next word: "only members"."""
_GOVERNING = PREPOSITIONS | NEGATIONS | listed("because if in out since unless until when while")
"""Words that open a phrase, which may move as a whole: "before lunch", "if it rains"."""
_WHOLE = listed("all always both every everybody everyone everything")
_TIED = _GOVERNING | _FOCUSING | listed("he i it my our she that their these they this those we you your")
"""Words that must precede the same word in both texts, if the order of words differs."""
_LEADING = ARTICLES | listed("can could did do does should will would")
"""Likewise, but one text may leave them out."""


def same_words(left: Reading, right: Reading) -> bool:
    """Whether both say the same in the same words, articles and the wording of "how do I" aside.

    The order may differ if that changes nothing, as in "if it rains, is the bus late?" and "is the bus late if it
    rains?", but not in "the late trains stop" and "the trains stop late". One may have a compound, "a Kubernetes pod"
    for "a pod in Kubernetes", or only name what the other asks for: "peru capital".
    """
    if not (left.english and right.english) or left.symbols or right.symbols:
        return False
    whole = _alike(left), _alike(right)
    if _asks(left) != _asks(right):
        return same_search(*whole, left, right) or same_search(*whole[::-1], right, left)
    one, other = _plain(left), _plain(right)
    return one == other or compounded(*whole) or compounded(*whole[::-1]) or _reordered(left, right)


def _reordered(left: Reading, right: Reading) -> bool:
    """Whether both have the same words, in different orders that mean the same."""
    if sorted(_plain(left)) != sorted(_plain(right)) or len({word.stem for word in left.content}) < len(left.content):
        return False  # the guards do not tell two words of one stem apart
    if _DOES.isdisjoint(_told(left)) != _DOES.isdisjoint(_told(right)):
        return False  # "who trusts the king" is not "who does the king trust"
    if not (_moved_whole(left, right) or _moved_whole(right, left)):
        return False
    one, other = _ties(left, _LEADING), _ties(right, _LEADING)
    return not _untied(left, right, _TIED) and (one <= other or other <= one)


def rearranged(left: Reading, right: Reading) -> set[str]:
    """Function words that govern different words, if all words are the same: "not sure it is", "sure it is not".

    If function words differ, only negations: "not safe in pregnancy", "safe, but not in pregnancy". Also quantifiers
    on different sides of "not": "not all pass", "all do not pass".
    """
    one, other = _plain(left), _plain(right)
    if not left.english or left.words == right.words or one == other:
        return set()
    untied = _untied(left, right, NEGATIONS if LINKS & left.vocabulary or sorted(one) != sorted(other) else _GOVERNING)
    return untied | (_denied(left) ^ _denied(right) if "not" in left.vocabulary & right.vocabulary else set())


def _denied(reading: Reading) -> set[str]:
    return {*_WHOLE.intersection(reading.words[reading.words.index("not") :])}


def _asks(reading: Reading) -> bool:
    return reading.frame != "none" or reading.text.rstrip().endswith("?")


def _alike(reading: Reading) -> list[str]:
    """The words in the singular."""
    return [_singular(word) for word in _told(reading)]


def _told(reading: Reading) -> list[str]:
    """The words, with one wording for "how do I"."""
    return _HOW_TO.sub("how ", " ".join(reading.words)).split()


def _plain(reading: Reading) -> list[str]:
    """The words in the singular, without articles, "do" and "does"."""
    return [_singular(word) for word in _told(reading) if word not in _FREE]


@lru_cache(maxsize=1 << 14)
def _singular(word: str) -> str:
    if word in _ALIKE or len(word) < _SHORTEST or word.endswith(("ss", "us", "is")) or word in PLURAL_ALONE:
        return _ALIKE.get(word, word)
    return respelt(word.removesuffix("s"))


_ALIKE = UNITS | named("""is are, was were, what which, lawyer attorney, luggage baggage, start begin commence,
    bigger larger, buy purchase, change alter modify, doctor physician, elevator lift, exit quit, quickly rapidly,
    film movie, fix repair mend, hard difficult, disease illness, often frequently, parcel package, photo picture,
    disadvantage drawback, talk speak, terminate end, holiday vacation, choose select, happens occurs, highest tallest,
    symptom symptoms sign signs""")
"""Words that may replace each other if all else is the same and no guard has refused."""
_SHORTEST = 4  # letters of a plural


def _untied(left: Reading, right: Reading, small: frozenset[str]) -> set[str]:
    """Function words that precede different content words, if both texts have those; not a "not" after the verb."""
    if _NOT_FIRST.search(" ".join(left.words)) or _NOT_FIRST.search(" ".join(right.words)):
        small -= {"not"}
    apart = _ties(left, small) ^ _ties(right, small)
    if not apart:
        return set()
    here, there = ({"", *map(stem_of, _alike(reading))} for reading in (left, right))
    both = here & there
    return {word for word, after in apart if after in both}


def _moved_whole(left: Reading, right: Reading) -> bool:
    """Whether only phrases that a function word opens have moved between the texts: "before lunch".

    Or a superlative: "which ocean is the largest", "which is the largest ocean".
    """
    beside = set(pairwise(word for word, _ in _contents(left)))
    return all((one, other) in beside or opened for (one, _), (other, opened) in pairwise(_contents(right)))


def _contents(reading: Reading) -> list[tuple[str, bool]]:
    """The content words, but for those that may stand anywhere, and whether each begins a phrase that may move."""
    linked, opened = _linked(reading), False
    found: list[tuple[str, bool]] = []
    for word in _alike(reading):
        if word in _GOVERNING:
            opened = True
        elif word not in STOP and not _is_free(word):
            found.append((linked.get(word, word), opened or word.endswith("est")))
            opened = False
    return found


def _linked(reading: Reading) -> dict[str, str]:
    """Words joined by "and" or "or", each mapped to the first of its pair in the alphabet: their order is free."""
    plain = _plain(reading)
    linked: dict[str, str] = {}
    for one, link, other in zip(plain, plain[1:], plain[2:], strict=False):
        if link in LINKS:
            linked |= dict.fromkeys((one, other), min(one, other))
    return linked


def _is_free(word: str) -> bool:
    """Whether a word may stand in several places of a sentence, as adverbs do."""
    return word == "like" or (word.endswith("ly") and word not in _NO_ADVERBS)


_NO_ADVERBS = listed("daily early family friendly hourly monthly only reply supply weekly yearly")


def _ties(reading: Reading, small: frozenset[str]) -> set[tuple[str, str]]:
    """Function words with the next content word; words that "and" joins count as one."""
    linked = _linked(reading)
    words, found = _alike(reading), set()
    for n, word in enumerate(words):
        if word in small and word in _FOCUSING:
            found.add((word, "".join(words[n + 1 : n + 2])))
        elif word in small:
            adverbs = word in NEGATIONS
            after = next((w for w in words[n + 1 :] if w not in STOP and (adverbs or not _is_free(w))), "")
            found.add((word, stem_of(after if adverbs else linked.get(after, after))))
    return found


_NOT_FIRST = re.compile(
    r"^(?:how |what |when |where |which |who |why )?(?:is|are|am|do|does|did|can|could|has|have|had|may|might|must|"
    r"should|was|were|will|would) not\b"
)
"""A beginning in which "not" belongs to the verb before it: "why is not my printer working"."""
