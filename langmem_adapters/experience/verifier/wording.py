"""Requests about the words of a text, such as to translate, correct or spell it: there each letter counts."""

from __future__ import annotations

import re
from typing import NamedTuple

from langmem_adapters.experience.verifier.words import POLITE_WORDS, STOP_WORDS

_ABOUT_LETTERS = re.compile(
    r"\b(?:capital letters?|in capitals|an? capital(?! (?:of|city)\b)|capitali[sz]\w+|"
    r"(?:upper|lower|title|sentence)[ -]?case|written correctly|correctly written)\b"
)
_ABOUT_MANNERS = re.compile(
    r"\b(?:(?:im)?polite\w*|courte\w+|rude\w*|tone of (?:the|this|that)|greet\w*|word count|"
    r"(?:count|how many|number of) (?:the )?(?:words?|letters?|characters?|tokens?)|commas?|"
    r"(?:in)?formal(?:ity|ly)?|(?:british|american) (?:english|spelling)|contractions?|dialect|slang|abbreviations?)\b"
)
_ABOUT_WORDS = re.compile(
    r"\b(?:translat\w+|proofread\w*|spell\w*|spelt|misspel\w+|grammar|grammatical\w*|typos?|capitali[sz]\w+|"
    r"(?:upper|lower)[ -]?case\w*|conjugat\w+|pronounc\w+|pronunciations?|(?:re|para)phras\w+|rewrit\w+|reword\w*|"
    r"plural|singular|past tense|past participle|syllables?|rhym\w+|letters? (?:is|are|in)|anagrams?|palindromes?|"
    r"hyphenat\w+|punctuat\w+|"
    r"(?:in|of|is) (?:the|this|that) (?:following )?sentence|how (?:do|does|would|can) (?:you|i|we|one) say)\b|"
    r"^\W*(?:please )?(?:complete|continue|correct|edit|fill|finish|fix)\b[^:\n]*[:\n]"
)
_TEXT_START = re.compile(r"[:\n]|\?(?=\s+\S)")
_ASKS_ABOUT_TEXT = re.compile(
    r"\b(?:this|these|that|it|following|there$|(?:my|the) (?:e-?mail|letter|message|sentence|text|tone))\b|"
    r"^(?:any|\w+ or)\b",
    re.IGNORECASE,
)
"""A question that a given text may follow."""
_WORD = re.compile(r"[^\W_]+(?:['-][^\W_]+)*")


class Wording(NamedTuple):
    """The words that a request about words treats, in their own spelling and in lower case."""

    words: frozenset[str] = frozenset()
    """All words except stop words, courtesies and those of the instruction."""
    given: tuple[str, ...] = ()
    """The text that follows a colon, a line end or a question about it, exactly, without punctuation at its end."""


def wording_of(text: str) -> Wording:
    """The wording of a request about words; empty for any other request."""
    starts = _TEXT_START.finditer(text)
    lower, start = text.lower(), next((start for start in starts if start[0] != "?" or _is_about_text(start)), None)
    is_about_words, is_about_letters = _ABOUT_WORDS.search(lower), start and _ABOUT_LETTERS.search(lower)
    if not (is_about_words or is_about_letters or (start and _ABOUT_MANNERS.search(lower))):
        return Wording()
    words = frozenset(_WORD.findall(_ABOUT_WORDS.sub(" ", lower)) if is_about_words else ())
    given = text[start.end() :] if start else ""
    given = given if is_about_letters else given.lower()
    return Wording(words - STOP_WORDS - POLITE_WORDS, tuple(given.strip(" .!?\n").split()))


def _is_about_text(end: re.Match[str]) -> bool:
    question = end.string.rfind("?", 0, end.start()) + 1
    return bool(_ASKS_ABOUT_TEXT.search(end.string, question, end.start()))
