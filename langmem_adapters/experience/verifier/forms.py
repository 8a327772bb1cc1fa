"""Tell forms of one word from words that only look like such forms."""

from __future__ import annotations

from functools import lru_cache
from itertools import permutations

from langmem_adapters.experience.verifier.words import FORMS, PLURAL_ALONE, SOFT, SYNONYMS, UNITS, respelt, stem_of
from langmem_adapters.language.analysis import uninflected
from langmem_adapters.language.lists import grouped, listed

__all__ = ["ACRONYMS", "CONFUSED", "NAMESAKES", "is_soft", "same_root", "synonymous"]

CONFUSED = frozenset(
    (stem_of(one), stem_of(other))
    for pair in grouped("""adverse averse | affect effect | angel angle | baron barron | biter bitter | brain brian |
        cameron cameroon | canon cannon | canvas canvass | career carer | cares caress | carlo carol | carter crater |
        casual causal | christian christina | claus clause | coma comma | compiled complied | complaint compliant |
        correct correlate | council counsel | dairy diary | desert dessert | diner dinner | discreet discrete |
        discus discuss | dragons dragoons | eight eighth | farmer framer | filer flier | finish finnish |
        forest forrest | galilee galileo | georgian georgina | goran groan | great greta | handel handle |
        insulation insult | later latter | liter litter | looser loser | macro marco | magna manga | marian marina |
        marian marine | martian martina | mater matter | median medina | pasty patsy | perfect prefect | porto proto |
        principal principle | retired retried | rooster roster | salon saloon | satin stain | scared scarred |
        scraped scrapped | signer singer | silver sliver | statue statute | striped stripped | super supper |
        timber timbre | trial trail | united untied""")
    for one, other in permutations(pair)
)
"""Pairs of stems that look like typos of each other, but are different words."""

ACRONYMS = listed("aids it sec us who")
"""Words that mean something else in capitals."""
NAMESAKES = ACRONYMS | listed("""amazon apple art august bath bill catholic chad chase china cologne cork dane danish
    faith frank gap grace guinea heather hope jack jersey job joy lent lily march mark mass may mercury mobile nice
    olive orange orthodox pole polish pat reading rob rose scone shell slough split sue swede target tours turkey victor
    violet warren""")
"""Words that mean something else with a capital; without names often written in lower case, such as Python."""


def same_root(one: str, other: str) -> bool:
    """Whether two words are the same, or forms of one word, and neither is derived from the other.

    >>> same_root("organ", "organs"), same_root("organ", "organization")
    (True, False)
    """
    if one.endswith(_ACTS) and other.endswith(_ACTS) and one[: one.rindex("at")] == other[: other.rindex("at")]:
        return True  # to get compensated, to get compensation; to avoid procrastinating
    root, another = _root_of(one), _root_of(other)
    if root == another:
        return True
    bare = root.removesuffix("e")
    ended = one.endswith(_CUT) or other.endswith(_CUT) or bare.endswith(_HISSING)
    return ended and bare == another.removesuffix("e")


_ACTS = ("ated", "ating", "ation")
_CUT = ("ed", "ing")  # endings before which an "e" is dropped
_HISSING = ("ch", "s", "sh", "x", "z")  # endings after which an "e" is added: "boxes"


@lru_cache(maxsize=1 << 14)
def _root_of(word: str) -> str:
    """The root that a word shares with its forms."""
    word = respelt(FORMS.get(word, word)).replace("anc", "enc")  # as "existance" is misspelt
    root = word if word.endswith(("us", "is")) else uninflected(word)
    if root.endswith(("ll", "oe", "ie")):
        return root[:-1]
    return f"{root[:-1]}i" if root.endswith("y") else root


def synonymous(one: str, other: str) -> bool:
    """Whether two words are forms of synonyms; a derived word is not a form.

    >>> synonymous("photos", "pictures"), synonymous("photographer", "picture")
    (True, False)
    """
    return not _groups_of(one).isdisjoint(_groups_of(other))


@lru_cache(maxsize=1 << 14)
def _groups_of(word: str) -> frozenset[int | str]:
    return next((_GROUPS[name] for name in _bare_forms(word) if name in _GROUPS), frozenset())


@lru_cache(maxsize=1 << 14)
def is_soft(word: str) -> bool:
    """Whether a word, in any form, is often added or left out without a difference; derived words are not soft."""
    return not _SOFT.isdisjoint(_bare_forms(word))


def _bare_forms(word: str) -> tuple[str, ...]:
    """The roots of which a word may be a form, likeliest first: for "using", "use" before "us"."""
    if word in PLURAL_ALONE:
        return (word,)
    root = _root_of(word)
    bare = root.removesuffix("e")
    if word.endswith(_CUT):
        return (word, f"{root}e", root) if word in {f"{root}{cut}" for cut in _CUT} else (word, root)
    return (root, bare) if bare.endswith(_HISSING) else (root,)


def _listed_as(word: str) -> str:
    """The key of a listed word: its root, but for words in "-ed" and "-ing", as "interesting" is no form here."""
    return word if word.endswith(_CUT) else _root_of(word)


_SOFT = frozenset(map(_listed_as, SOFT))
_GROUPS: dict[str, frozenset[int | str]] = {}
_NUMBERED: list[tuple[int | str, list[str]]] = [*enumerate(SYNONYMS), *((unit, [word]) for word, unit in UNITS.items())]
for _group, _words in _NUMBERED:
    for _word in map(_listed_as, _words):
        _GROUPS[_word] = _GROUPS.get(_word, frozenset()) | {_group}
