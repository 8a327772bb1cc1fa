"""Which words are forms of one, and which only look like it."""

from __future__ import annotations

from functools import lru_cache
from itertools import permutations

from langmem_adapters.experience.verifier.words import FORMS, respelt, stem_of
from langmem_adapters.language.analysis import uninflected

__all__ = ["ACRONYMS", "CONFUSED", "NAMESAKES", "same_root"]

_listed = str.split  # lists of words read better as text

CONFUSED = frozenset(
    (stem_of(one), stem_of(other))
    for pair in _listed(
        """adverse averse | affect effect | angel angle | baron barron | brain brian | cameron cameroon | canon cannon
        | canvas canvass | cares caress | carlo carol | carter crater | casual causal | christian christina | claus
        clause | coma comma | compiled complied | complaint compliant | correct correlate | council counsel | dairy
        diary | desert dessert | diner dinner | discreet discrete | discus discuss | dragons dragoons | eight eighth
        | finish finnish | forest forrest | galilee galileo | georgian georgina | goran groan | great greta | handel
        handle | insulation insult | later latter | liter litter | macro marco | magna manga | marian marina |
        marian marine | martian martina | mater matter | median medina | perfect prefect | porto proto | principal
        principle | rooster roster | salon saloon | satin stain | scared scarred | scraped scrapped | silver sliver
        | statue statute | striped stripped | super supper | timber timbre | trial trail | united untied""",
        "|",
    )
    for one, other in permutations(pair.split())
)
"""Pairs of stems that differ as slips of the pen do, and are two words."""

ACRONYMS = frozenset(_listed("aids it us who"))
"""What is something else in capitals."""
NAMESAKES = ACRONYMS | frozenset(
    _listed(
        """amazon apple art august bath bill catholic chad chase china cologne cork dane danish faith
        frank gap grace guinea heather hope jack jersey job joy lent lily march mark mass may mercury mobile nice
        olive orange orthodox pole polish pat reading rob rose scone shell slough split sue swede target tours turkey
        victor violet warren"""
    )
)
"""What is something else where it begins with a capital; without names that are often written small, as Python is."""


def same_root(one: str, other: str) -> bool:
    """Whether a word is another, or a form of it, and nothing that derives from it.

    >>> same_root("organ", "organs"), same_root("organ", "organization")
    (True, False)
    """
    if any(a.endswith("ed") and b.endswith("ion") for a, b in permutations((one, other))):
        return True  # to get compensated, to get compensation
    root, another = _root_of(one), _root_of(other)
    if root == another:
        return True
    bare = root.removesuffix("e")
    ended = one.endswith(_CUT) or other.endswith(_CUT) or bare.endswith(_HISSING)
    return ended and bare == another.removesuffix("e")


_CUT = ("ed", "ing")  # before which an "e" goes
_HISSING = ("ch", "s", "sh", "x", "z")  # behind which one comes: "boxes"


@lru_cache(maxsize=1 << 14)
def _root_of(word: str) -> str:
    """What a word has in common with its forms."""
    word = respelt(FORMS.get(word, word)).replace("ance", "ence")  # as it is often misspelt
    root = word if word.endswith(("us", "is")) else uninflected(word)
    if root.endswith(("ll", "oe", "ie")):
        return root[:-1]
    return f"{root[:-1]}i" if root.endswith("y") else root
