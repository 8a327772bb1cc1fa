"""Typing errors: what a word of a query would be with one letter more, less, another, or two swapped."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from string import ascii_lowercase

from langmem_adapters.language.analysis import term_of, words_of
from langmem_adapters.language.english import STOP_WORDS

_MIN_CHARS = 5  # a shorter word is near to too many others
_MAX_CHARS = 20  # what is longer is hardly typed
_MAX_WORDS = 3  # that are corrected: a query with more of them is long, and has other words


def spelling_corrections(query: str, unknown: Collection[str]) -> dict[str, frozenset[str]]:
    """For each unknown term of a query, the terms that may have been meant.

    The first letter is taken to be right. Words with letters other than a to z are left out: their parts find
    them.

    >>> "bicycl" in spelling_corrections("Where is my bicylce?", {"bicylc"})["bicylc"]
    True
    """
    typed = {term_of(word): word for word in words_of(query) if _MIN_CHARS <= len(word) <= _MAX_CHARS}
    words = {term: word for term, word in typed.items() if term in unknown and word.isascii() and word.isalpha()}
    return {term: _edited_terms(word) for term, word in [*words.items()][:_MAX_WORDS]}


@lru_cache(maxsize=32)  # a search asks several times
def _edited_terms(word: str) -> frozenset[str]:
    splits = [(word[:position], word[position:]) for position in range(1, len(word) + 1)]
    deletions = {before + after[1:] for before, after in splits if after}
    transpositions = {before + after[1] + after[0] + after[2:] for before, after in splits if len(after) > 1}
    substitutions = {before + letter + after[1:] for before, after in splits if after for letter in ascii_lowercase}
    insertions = {before + letter + after for before, after in splits for letter in ascii_lowercase}
    edits = deletions | transpositions | substitutions | insertions
    return frozenset(map(term_of, edits)) - STOP_WORDS - {term_of(word)}
