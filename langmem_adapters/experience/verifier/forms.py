"""Tell forms of one word from words that only look like such forms."""

from __future__ import annotations

from functools import lru_cache
from itertools import permutations

from langmem_adapters.experience.verifier.words import (
    IRREGULAR_FORMS,
    OPTIONAL_WORDS,
    PLURAL_ONLY_NOUNS,
    SYNONYMS,
    UNITS,
    american_spelling,
    stem_of,
)
from langmem_adapters.language.analysis import strip_inflection
from langmem_adapters.language.lists import word_groups, word_set

CONFUSED = frozenset(
    (stem_of(one), stem_of(other))
    for pair in word_groups("""adverse averse | affect effect | baron barron | biter bitter | brain brian | cameron
        cameroon | canon cannon | canvas canvass | career carer | cares caress | carlo carol | carter crater | casual
        causal | christian christina | claus clause | compiled complied | complaint compliant | correct correlate |
        dairy diary | desert dessert | diner dinner | discreet discrete | discus discuss | dragons dragoons | eight
        eighth | farmer framer | filer flier | finish finnish | forest forrest | georgian georgina | goran groan | great
        greta | handel handle | insulation insult | later latter | liter litter | looser loser | macro marco | magna
        manga | marian marina | martian martina | mater matter | median medina | pasty patsy | perfect prefect | porto
        proto | principal principle | retired retried | rooster roster | salon saloon | satin stain | scraped scrapped |
        signer singer | silver sliver | statue statute | striped stripped | super supper | timber timbre |
        trial trail""")
    for one, other in permutations(pair)
)
"""Pairs of stems that look like typos of each other, but are different words."""

ACRONYMS = word_set("aids co cs hf it os pa sec si us who")
"""Words that mean something else in capitals."""
NAMESAKES = ACRONYMS | word_set("""amazon apple art august bath bill catholic chad chase china cologne cork dane danish
    faith frank gap grace guinea heather hope jack jersey job joy lent lily march mark mass may mercury mobile nice
    olive orange orthodox pole polish pat reading rob rose scone shell slough split sue swede target tours turkey victor
    violet warren""")
"""Words that mean something else with a capital; without names often written in lower case, such as Python."""


def same_root(one: str, other: str) -> bool:
    """Whether two words are the same, or forms of one word, and neither is derived from the other.

    >>> same_root("organ", "organs"), same_root("organ", "organization")
    (True, False)
    """
    if one.endswith(_ATE) and other.endswith(_ATE) and one[: one.rindex("at")] == other[: other.rindex("at")]:
        return True  # to get compensated, to get compensation; to avoid procrastinating
    root, other_root = _root(one), _root(other)
    if root == other_root:
        return True
    without_e = root.removesuffix("e")
    may_drop_e = one.endswith(_ED_ING) or other.endswith(_ED_ING) or without_e.endswith(_SIBILANTS)
    return may_drop_e and without_e == other_root.removesuffix("e")


_ATE = ("ated", "ating", "ation")
_ED_ING = ("ed", "ing")  # endings before which an "e" is dropped
_SIBILANTS = ("ch", "s", "sh", "x", "z")  # endings after which an "e" is added: "boxes"


@lru_cache(maxsize=1 << 14)
def _root(word: str) -> str:
    """The root that a word shares with its forms."""
    word = american_spelling(IRREGULAR_FORMS.get(word, word)).replace("anc", "enc")  # as "existance" is misspelt
    root = word if word.endswith(("us", "is")) else strip_inflection(word)
    if root.endswith(("ll", "oe", "ie")):
        return root[:-1]
    return f"{root[:-1]}i" if root.endswith("y") else root


def are_synonyms(one: str, other: str) -> bool:
    """Whether two words are forms of synonyms; a derived word is not a form.

    >>> are_synonyms("photos", "pictures"), are_synonyms("photographer", "picture")
    (True, False)
    """
    return not _synonym_groups(one).isdisjoint(_synonym_groups(other))


@lru_cache(maxsize=1 << 14)
def _synonym_groups(word: str) -> frozenset[int | str]:
    return next((_SYNONYM_GROUPS[root] for root in _possible_roots(word) if root in _SYNONYM_GROUPS), frozenset())


@lru_cache(maxsize=1 << 14)
def is_optional(word: str) -> bool:
    """Whether a word, in any form, is often added or left out without a difference; derived words are not."""
    return not _OPTIONAL_KEYS.isdisjoint(_possible_roots(word))


def _possible_roots(word: str) -> tuple[str, ...]:
    """The roots of which a word may be a form, likeliest first: for "using", "use" before "us"."""
    if word in PLURAL_ONLY_NOUNS:
        return (word,)
    root = _root(word)
    without_e = root.removesuffix("e")
    if word.endswith(_ED_ING):
        return (word, f"{root}e", root) if word in {f"{root}{ending}" for ending in _ED_ING} else (word, root)
    return (root, without_e) if without_e.endswith(_SIBILANTS) else (root,)


def _lookup_key(word: str) -> str:
    """The key of a listed word: its root, but for words in "-ed" and "-ing", as "interesting" is no form here."""
    return word if word.endswith(_ED_ING) else _root(word)


_OPTIONAL_KEYS = frozenset(map(_lookup_key, OPTIONAL_WORDS))
_SYNONYM_GROUPS: dict[str, frozenset[int | str]] = {}
_GROUPS: list[tuple[int | str, list[str]]] = [*enumerate(SYNONYMS), *((unit, [word]) for word, unit in UNITS.items())]
for _group, _words in _GROUPS:
    for _word in map(_lookup_key, _words):
        _SYNONYM_GROUPS[_word] = _SYNONYM_GROUPS.get(_word, frozenset()) | {_group}
