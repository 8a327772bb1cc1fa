"""Typing errors: what a word of a query would be with one letter more, less, another, or two swapped."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from string import ascii_lowercase

from langmem_adapters.language.analysis import STOP_WORDS, term_of, words_of

__all__ = ["respelt"]

_SHORTEST = 5  # letters: a shorter word is near to too many others
_LONGEST = 20  # letters: what is longer is hardly typed
_MOST = 3  # words of a query that are respelt: a query with more of them is long, and has other words


def respelt(query: str, unknown: Collection[str]) -> dict[str, frozenset[str]]:
    """For each unknown term of a query, the terms that may have been meant.

    The first letter is taken to be right. Words with letters other than a to z are left out: their parts find
    them.

    >>> "bicycl" in respelt("Where is my bicylce?", {"bicylc"})["bicylc"]
    True
    """
    typed = {term_of(word): word for word in words_of(query) if _SHORTEST <= len(word) <= _LONGEST}
    words = {term: word for term, word in typed.items() if term in unknown and word.isascii() and word.isalpha()}
    return {term: _respelt(word) for term, word in [*words.items()][:_MOST]}


@lru_cache(maxsize=32)  # a search asks several times
def _respelt(word: str) -> frozenset[str]:
    parts = [(word[:n], word[n:]) for n in range(1, len(word) + 1)]
    less = {before + after[1:] for before, after in parts if after}
    turned = {before + after[1] + after[0] + after[2:] for before, after in parts if len(after) > 1}
    other = {before + letter + after[1:] for before, after in parts if after for letter in ascii_lowercase}
    more = {before + letter + after for before, after in parts for letter in ascii_lowercase}
    return frozenset(map(term_of, less | turned | other | more)) - STOP_WORDS - {term_of(word)}
