"""Which words are forms of one, and which only look like it."""

from __future__ import annotations

from functools import lru_cache
from itertools import permutations

from langmem_adapters.experience.verifier.words import FORMS, respelt, stem_of
from langmem_adapters.language.analysis import uninflected

__all__ = ["CONFUSED", "same_root"]

_listed = str.split  # lists of words read better as text

CONFUSED = frozenset(
    (stem_of(one), stem_of(other))
    for pair in _listed(
        """adverse averse | angel angle | canon cannon | casual causal | council counsel | coma comma | dairy diary |
        desert dessert | diner dinner | later latter | perfect prefect | principal principle | scared scarred |
        silver sliver | statue statute | super supper | trial trail | united untied""",
        "|",
    )
    for one, other in permutations(pair.split())
)
"""Pairs of stems that differ as slips of the pen do, and are two words."""


def same_root(one: str, other: str) -> bool:
    """Whether a word is another, or a form of it, and nothing that derives from it.

    >>> same_root("organ", "organs"), same_root("organ", "organization")
    (True, False)
    """
    if any(a.endswith("ed") and b.endswith("ion") for a, b in permutations((one, other))):
        return True  # to get compensated, to get compensation
    (root, cut), (another, also_cut) = _root_of(one), _root_of(other)
    return root == another or (cut and f"{root}e" == another) or (also_cut and f"{another}e" == root)


@lru_cache(maxsize=1 << 14)
def _root_of(word: str) -> tuple[str, bool]:
    """What a word has in common with its forms, and whether an "e" at its end may have gone."""
    word = respelt(FORMS.get(word, word)).replace("ance", "ence")  # as it is often misspelt
    root = uninflected(word)
    return root[:-1] if root.endswith("ll") else root, word.endswith(("ed", "ing"))
