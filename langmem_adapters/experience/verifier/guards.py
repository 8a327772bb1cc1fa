"""Hard guards: differences that forbid serving one request's answer for another, however near the two may be.

A guard compares two readings and the alignment of their words. It returns why it refuses, or "" if it does not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from types import MappingProxyType

from langmem_adapters.experience.verifier.alignment import (
    FORMS_OF_ONE,
    MISSPELT,
    Alignment,
    differ,
    is_short,
    unmatched,
)
from langmem_adapters.experience.verifier.features import governed
from langmem_adapters.experience.verifier.forms import is_soft, same_root, synonymous
from langmem_adapters.experience.verifier.guards_function_words import (
    complements,
    courtesies,
    links,
    modality,
    persons,
    scope,
    voice,
)
from langmem_adapters.experience.verifier.guards_literals import code, numbers, quotations, snippets, symbols, units
from langmem_adapters.experience.verifier.guards_manner import degree, manner, plurals, prepositions
from langmem_adapters.experience.verifier.guards_replacements import details, words
from langmem_adapters.experience.verifier.guards_tense import tense
from langmem_adapters.experience.verifier.questions import QUESTION_PARTS, QUESTION_WORDS
from langmem_adapters.experience.verifier.reading import Reading, Word
from langmem_adapters.experience.verifier.swaps import opposed, swapped
from langmem_adapters.experience.verifier.word_order import rearranged
from langmem_adapters.experience.verifier.words import ARTICLES, ENGLISH, NEGATIONS, OPPOSITES, STOP
from langmem_adapters.language.lists import listed

__all__ = ["GUARDS", "Guard"]

Guard = Callable[[Reading, Reading, Alignment], str]


def language(left: Reading, right: Reading, _: Alignment) -> str:
    """Both must be in English, or neither."""
    return "" if left.english == right.english or left.text == right.text else "language differs"


def negation(left: Reading, right: Reading, _: Alignment) -> str:
    """One must not deny what the other says."""
    one, other = _denied(left), _denied(right)
    return f"negation differs: {', '.join(sorted({*one, *other}))}" if len(one) % 2 != len(other) % 2 else ""


_WHETHER_OR_NOT = re.compile(r"\bor not\b|\bwhy not\b|\bnot only\b|\bif not\b")


def _denied(reading: Reading) -> list[str]:
    """The negations, of which two cancel each other; "or not" and the like are none."""
    found = [word for word in reading.words if word in NEGATIONS]
    hidden = len(_WHETHER_OR_NOT.findall(reading.text)) if "not" in found else 0
    return found[hidden:]


def opposites(left: Reading, right: Reading, _: Alignment) -> str:
    """A word must not be replaced by its opposite: "increase" and "decrease", "export" and "import"."""
    lefts, rights = (dict(zip(reading.stems, reading.words, strict=True)) for reading in (left, right))
    others = {word: stem for stem, word in rights.items() if stem not in lefts}
    alone = {*others.values()}
    for one in sorted(lefts.keys() - rights.keys()):
        contraries = alone & OPPOSITES.get(one, set())
        affixed = (word for word in _affixed(lefts[one]) if word in others and not synonymous(word, lefts[one]))
        contraries.update(others[word] for word in affixed)
        if contraries:
            return differ("opposites", {lefts[one]}, {rights[min(contraries)]})
    return ""


_PREFIXES = ("un", "in", "im", "il", "ir", "dis", "non", "anti", "mis", "de", "re")


def _affixed(word: str) -> Iterator[str]:
    """Possible opposites of a word by prefix or suffix: "unhappy" for "happy", "useless" for "useful"."""
    for prefix in _PREFIXES:
        for other in (prefix + word, word.removeprefix(prefix)):
            if min(len(word), len(other)) >= 4:  # noqa: PLR2004
                yield other
    for end, other in (("ful", "less"), ("less", "ful")):
        if word.endswith(end):
            yield word.removesuffix(end) + other


def names(left: Reading, right: Reading, alignment: Alignment) -> str:
    """A name of one request must occur in the other, at least in part: "Trump" for "Donald Trump".

    A word that means something else without its capital must have the same case in both: to clean China, or china.
    """
    if renamed := {
        word for word, is_name in left.namesakes - right.namesakes if (word, not is_name) in right.namesakes
    }:
        return differ("names", renamed, ())
    one = {word.text for word in _names(left, alignment, 0) if word.stem not in right.stems}
    return differ("names", one, {word.text for word in _names(right, alignment, 1) if word.stem not in left.stems})


def _names(reading: Reading, alignment: Alignment, side: int) -> list[Word]:
    """Names of which the other request has no part."""
    content = reading.content
    if sum(word.capital for word in content) > 0.7 * len(content) and len(content) > 4:  # noqa: PLR2004
        return []  # A Heading: Capitals Say Nothing Here
    matched = {pair[side] for pair in alignment.pairs}
    only = alignment.only_right if side else alignment.only_left

    def in_a_known_name(n: int) -> bool:
        near = [k for k in (n - 1, n + 1) if 0 <= k < len(content) and abs(content[k].place - content[n].place) == 1]
        return any(k in matched and content[k].capital for k in near)

    return [content[n] for n in only if content[n].capital and not in_a_known_name(n)]


def order(left: Reading, right: Reading, alignment: Alignment) -> str:
    """Words must not have exchanged their roles: "from A to B" and "from B to A"."""
    if found := opposed(left, right, alignment):
        return differ("order", found[:1], found[1:])
    alone = len(alignment.only_left) + len(alignment.only_right)
    used = len({"use", "like"} & (left.vocabulary ^ right.vocabulary))  # "use X for Y" means "do Y with X"
    compared = "than" in left.words and "than" in right.words
    if alone - used > 0.4 * len(alignment.pairs) and not compared:  # reworded, so the order may differ
        return ""
    found = swapped(left, right, alignment)
    if found:
        return differ("order", found[:1], found[1:])
    return "" if alone else differ("order", rearranged(left, right), ())


def question(left: Reading, right: Reading, alignment: Alignment) -> str:
    """If one asks why, where or how many, the other must not ask something else.

    Nor may one ask what the other states, if only the question mark tells: "my card is blocked".
    """
    if _has_mark(left) != _has_mark(right) and _may_state(left) and _may_state(right):
        return "question differs: ?"
    one, other = left.frame, right.frame
    both = {one, other}
    if one != other and (
        both <= _KINDS or both <= _WHERE or both == {"how", "why"} or ("whether" in both and both & _OPEN)
    ):
        return f"question differs: {one}, {other}"
    ends = {reading.words[-1] for reading in (left, right) if reading.words} & _STRANDED
    if ends - (left.vocabulary & right.vocabulary) and not (alignment.only_left or alignment.only_right):
        return differ("question", ends, ())
    if both == {"what", "where"} and _OPENING.issuperset((*left.words[:1], *right.words[:1])):
        return f"question differs: {one}, {other}"
    return ""


_KINDS = frozenset({"how to", "why", "how many", "how long", "when", "where", "who"})
_OPEN = _KINDS | {"how"}
_WHERE = frozenset({"how", "when", "where", "who"})
_OPENING = frozenset(("what", "which", "where"))
_STRANDED = frozenset(("for", "from", "of", "with"))
_PRONOUNS = listed("i you he she it we they")
_SUBJECTS = _PRONOUNS | listed("my your his her our their its the this that these those there")
_FINITE = listed("am is are was were has have had do does did can could will would shall should may might must")


def _has_mark(reading: Reading) -> bool:
    """Whether there is a question mark, also an Arabic or a Greek one."""
    return any(mark in reading.text for mark in "?؟;")


def _may_state(reading: Reading) -> bool:
    """Whether its words may be a statement: in English by how it begins, elsewhere if it has no question word."""
    if reading.english and not ENGLISH.isdisjoint(reading.words):
        if reading.frame != "none" or not _SUBJECTS.issuperset(reading.words[:1]):
            return False
        finite = not _FINITE.isdisjoint(reading.words) or any(word.endswith("ed") for word in reading.words)
        return finite or reading.words[0] in _PRONOUNS
    asks = not QUESTION_WORDS.isdisjoint(reading.words[:2]) or any(part in reading.text for part in QUESTION_PARTS)
    return not asks


def restrictions(left: Reading, right: Reading, alignment: Alignment) -> str:
    """Neither may add a restriction: "in India", "for women", "without sugar"."""
    if alignment.only_left and alignment.only_right:  # one word may stand for another
        return ""
    one, other = unmatched(left, right, alignment)
    return differ("restrictions", _restricted(left, one), _restricted(right, other))


def _restricted(reading: Reading, only: Iterable[Word]) -> set[str]:
    """Content words, not soft ones, after a preposition; those after "to" are left out, as they tell the purpose."""
    return {
        word.text
        for word in only
        if governed(reading, word)
        and not is_soft(word.text)
        and "to" not in reading.words[max(0, word.place - 2) : word.place]
    }


def additions(left: Reading, right: Reading, alignment: Alignment) -> str:
    """Neither may say all that the other says with one more content word: "salmon" and "frozen salmon"."""
    if (alignment.only_left and alignment.only_right) or not is_short(left, right):
        return ""
    one, other = unmatched(left, right, alignment)
    return differ("additions", _telling(left, one), _telling(right, other))


_SINGLING = frozenset(("even", "other", "same"))
_BEHIND_ARTICLES = frozenset(("mean", "used"))
_COMPOUND = frozenset(("life", "world"))


def _telling(reading: Reading, only: Iterable[Word]) -> set[str]:
    """Content words, and soft ones that single something out: "other people", "the mean salary", "world cup"."""
    return {
        word.text
        for word in only
        if not is_soft(word.text)
        or word.text in _SINGLING
        or (word.text in _BEHIND_ARTICLES and reading.words[word.place - 1] in ARTICLES)
        or (word.text in _COMPOUND and not STOP.issuperset(reading.words[word.place + 1 : word.place + 2]))
    }


def wording(left: Reading, right: Reading, _: Alignment) -> str:
    """A text to be translated, corrected or spelt must be the same to the letter: "my dog" is not "my dogs"."""
    (one, given), (other, also_given) = left.wording, right.wording
    if given and also_given and given != also_given:
        return differ("wording", {*given} - {*also_given}, {*also_given} - {*given}) or "wording differs: its order"
    return differ("wording", one - other, other - one) if one - other and other - one else ""


def forms(left: Reading, right: Reading, alignment: Alignment) -> str:
    """A word must not be replaced by a derived one (charge, charger) or a similar one (contact, contract).

    If one request has a content word that the other lacks, the score decides instead. An extra letter counts as a typo
    only if it is doubled; "refugee" is no typo of "refuge".
    """
    one_alone, other_alone = unmatched(left, right, alignment)
    alone = one_alone + other_alone
    if not all(is_soft(word.text) for word in alone):
        return ""
    for a, b, sure in alignment.pairs:
        one, other = left.content[a].text, right.content[b].text
        if sure < 1 and not (alone and _of_degree(one, other)):
            longer = sure == MISSPELT and len(one) != len(other)
            derived = sure in FORMS_OF_ONE and not (same_root(one, other) or synonymous(one, other))
            if (longer or derived) and _single(one) != _single(other):
                return differ("forms", [one], [other])
    return ""


def _of_degree(one: str, other: str) -> bool:
    """Whether one is the superlative or the adverb of the other: fast, fastest; anonymous, anonymously."""
    shorter, longer = sorted((one, other), key=len)
    return longer in {f"{shorter}ly", f"{shorter}est", f"{shorter[:-1]}est"}


def _single(word: str) -> tuple[list[str], bool]:
    """The letters of a word, doubled ones once; and whether it ends in "-ee", as "licensee" does."""
    return [letter for letter, _ in groupby(word)], word.removesuffix("s").endswith("ee")


GUARDS: Mapping[str, Guard] = MappingProxyType(
    {
        guard.__name__: guard
        for guard in (
            snippets, language, numbers, units, negation, opposites, symbols, quotations, code, names, order, question,
            restrictions, words, additions, wording, forms, courtesies, scope, links, voice, tense, modality, persons,
            complements, manner, degree, plurals, prepositions, details,
        )
    }
)  # fmt: skip
"""The guards by name, in the order in which they are asked."""
