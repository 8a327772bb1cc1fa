"""Requests about the very words of a text: to translate, to correct or to spell it. There a letter is a difference."""

from __future__ import annotations

import re
from typing import NamedTuple

from langmem_adapters.experience.verifier.words import POLITE, STOP

__all__ = ["Wording", "wording_of"]

_ABOUT = re.compile(
    r"\b(?:translat\w+|proofread\w*|spell\w*|spelt|misspel\w+|grammar|grammatical\w*|typos?|capitali[sz]\w+|"
    r"(?:upper|lower)[ -]?case\w*|conjugat\w+|pronounc\w+|pronunciations?|(?:re|para)phras\w+|rewrit\w+|reword\w*|"
    r"plural|singular|past tense|past participle|syllables?|rhym\w+|letters? (?:is|are|in)|anagrams?|palindromes?|"
    r"hyphenat\w+|punctuat\w+|"
    r"(?:in|of|is) (?:the|this|that) (?:following )?sentence|how (?:do|does|would|can) (?:you|i|we|one) say)\b|"
    r"^\W*(?:please )?(?:correct|fix|edit)\b[^:\n]*[:\n]"
)
_GIVEN = re.compile(r"[:\n]")
_WORD = re.compile(r"[^\W_]+(?:['-][^\W_]+)*")


class Wording(NamedTuple):
    """What a request about words is about, in its own spelling and in small letters."""

    words: frozenset[str] = frozenset()
    """All words that say something, but those that tell what is to be done."""
    given: tuple[str, ...] = ()
    """All that stands after a colon or in further lines, sign by sign, but for its end: the text it is about."""


def wording_of(text: str) -> Wording:
    """The words of a request, should it be about words; of any other none."""
    text = text.lower()
    if not _ABOUT.search(text):
        return Wording()
    words = frozenset(_WORD.findall(_ABOUT.sub(" ", text)))
    _, *given = _GIVEN.split(text, maxsplit=1)
    return Wording(words - STOP - POLITE, tuple(given[0].strip(" .!?\n").split()) if given else ())
