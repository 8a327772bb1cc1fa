"""Guards for function words, which say how many, who, and whether something can or must be.

The data of each guard is beside it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise

from langmem_adapters.experience.verifier.alignment import Alignment, differ, is_short, unmatched
from langmem_adapters.experience.verifier.reading import Reading
from langmem_adapters.experience.verifier.words import ARTICLES, I_WORDS, NEGATIONS, YOU_WORDS, stem_of
from langmem_adapters.language.lists import listed, named

__all__ = ["complements", "courtesies", "links", "modality", "persons", "scope", "voice"]


def courtesies(left: Reading, right: Reading, _: Alignment) -> str:
    """A courtesy must not be replaced by another: "how do you say hello", "how do you say thanks"."""
    one, other = left.courtesies - right.courtesies, right.courtesies - left.courtesies
    return differ("courtesies", one, other) if one and other else ""


def scope(left: Reading, right: Reading, alignment: Alignment) -> str:
    """A quantifier (all, any, some, most, both, other …) must not be replaced by another, nor "a" or "my" by "all".

    Nor may "only" have moved. In a long text, a replacement counts only if a neighbouring word is the same.
    """
    if found := _bounds(left) ^ _bounds(right):
        return differ("scope", found, ())
    lefts, rights = _quantifiers(left), _quantifiers(right)
    if lefts == rights:
        apart = alignment.only_left or alignment.only_right
        moved = "only" in lefts and not apart and _apart(left, right, "only", "only")
        return differ("scope", ["only"], ()) if moved else ""
    long = not is_short(left, right)
    for one in _new(lefts, rights):
        for other in _new(rights, lefts):
            if not (long and _apart(left, right, one, other)):
                return differ("scope", [one], [other])
    for these, those in ((left, right), (right, left)):
        whole = {noun for quantity, noun in _told_of(these, _COUNTING) if quantity == "all"}
        if found := whole & {noun for quantity, noun in _told_of(those, _COUNTING) if quantity == "a"}:
            return differ("scope", found, ())
    return ""


_QUANTITIES = named("""all every each everyone everybody everything, any anyone anybody anything,
    some someone somebody something several few, most, other, another, same, both, either, only, also too""")
_QUANTIFIERS = frozenset(_QUANTITIES)
_COUNTING = _QUANTITIES | named("a an this my our your")


def _quantifiers(reading: Reading) -> frozenset[str]:
    """The quantifiers of a text, without the "most" of "the most"."""
    found = _QUANTIFIERS & reading.vocabulary
    return found - {"most"} if ("the", "most") in pairwise(reading.words) else found


def _told_of(reading: Reading, kinds: Mapping[str, str]) -> set[tuple[str, str]]:
    """Words of these kinds, by kind, with the stem that follows: ("i", "dog") for "my dog"."""
    followed = zip(reading.words, reading.stems[1:], strict=False)
    return {(kinds[word], stem) for word, stem in followed if word in kinds}


def _new(here: frozenset[str], there: frozenset[str]) -> list[str]:
    """The quantifiers of a kind that the other text does not have."""
    known = {_QUANTITIES[word] for word in there}
    return sorted(word for word in here if _QUANTITIES[word] not in known)


def _apart(left: Reading, right: Reading, one: str, other: str) -> bool:
    """Whether two words have no neighbour in common."""
    return _neighbours(left, one).isdisjoint(_neighbours(right, other))


def _neighbours(reading: Reading, word: str) -> set[str]:
    place = reading.words.index(word)
    return {*reading.stems[max(0, place - 1) : place], *reading.stems[place + 1 : place + 2]}


def _bounds(reading: Reading) -> set[str]:
    """Bounds (more than, at least, at most, less than) of a number, a day or the like, in one wording."""
    if not (reading.numbers or reading.units) and _ONCE.isdisjoint(reading.vocabulary):
        return set()
    text = " ".join(reading.words)
    return {f"{name} {found}" for name, pattern in _BOUNDS for found in pattern.findall(text)}


_ONCE = frozenset(("once", "one"))
_COUNT = (
    r" (?:a |an |the |dollar |euro |pound )?"
    r"(\d[\d.]*|once|one|(?<=an )hour|(?<=a )(?:second|minute|day|week|month|year|decade|century))\b"
)
_BOUNDS = [
    (name, re.compile(rf"\b(?:{words}){_COUNT}"))
    for name, words in (
        ("above", "(?:more|greater|higher|longer|older|larger|over|bigger) than|over|above"),
        ("below", "(?:less|fewer|lower|shorter|younger|smaller) than|under|below"),
        ("least", "at least|minimum of"),
        ("most", "at most|up to|maximum of"),
    )
]


def links(left: Reading, right: Reading, _: Alignment) -> str:
    """The word "and" must not be replaced by "or", nor "or" by "and"."""
    ands, ors = (_linked(left, "and"), _linked(right, "and")), (_linked(left, "or"), _linked(right, "or"))
    replaced = (ands[0] & ors[1]) - ands[1] - ors[0] or (ors[0] & ands[1]) - ands[0] - ors[1]
    return differ("links", ["and"], ["or"]) if replaced else ""


_OWNERS = {"my": "i", "our": "i", "your": "you"}
_DETERMINERS = ARTICLES.union(_OWNERS)


def _linked(reading: Reading, link: str) -> set[frozenset[str]]:
    """The pairs of words that a link joins, in any order, without determiners such as "the" and "my"."""
    found, last = set(), len(reading.words) - 1
    for place in range(1, last):
        if reading.words[place] == link:
            after = next((n for n in range(place + 1, last) if reading.words[n] not in _DETERMINERS), last)
            found.add(frozenset((reading.stems[place - 1], reading.stems[after])))
    return found


def voice(left: Reading, right: Reading, alignment: Alignment) -> str:
    """Active and passive must not be exchanged: "who sued Apple", "who was sued by Apple".

    It refuses if all content words are the same in the same order and only one text has "by", not that of "by card".
    """
    lefts, rights = left.vocabulary, right.vocabulary
    if ("by" in lefts) == ("by" in rights) or alignment.only_left or alignment.only_right:
        return ""
    if any(b > d for (_, b, _), (_, d, _) in pairwise(alignment.pairs)) or _MEANS & (lefts ^ rights):
        return ""
    return differ("voice", ["by"], ())


_MEANS = frozenset(("with", "on", "in", "using"))


def modality(left: Reading, right: Reading, alignment: Alignment) -> str:
    """Modal verbs (can, must, should …), "did" and "does" must not be exchanged; but "can you" may be "do you".

    Nor may "does" be replaced by "should", "is it" by "is it always", or "I will" by "I can"; and "do not have to" is
    not "must not".
    """
    if left.vocabulary & right.vocabulary & NEGATIONS and _obligations(left) ^ _obligations(right) == {"must", "to"}:
        return differ("modality", ["must"], ["have to"])
    if left.frame == right.frame == "none":
        mine, another = _intended(left), _intended(right)
        return differ("modality", [mine], [another]) if mine and another and mine != another else ""
    only_modals = all(word.text in _MODALS for side in unmatched(left, right, alignment) for word in side)
    if only_modals and (found := _done(left, right) or _done(right, left)):
        return differ("modality", found, ())
    if not left.frame == right.frame == "whether":
        return ""
    if ("always" in left.vocabulary) != ("always" in right.vocabulary):
        return differ("modality", ["always"], ())
    one, other = _MODES.get(left.words[0]), _MODES.get(right.words[0])
    apart = one and other and one != other and "you" not in (*left.words[1:2], *right.words[1:2])
    return differ("modality", left.words[:1], right.words[:1]) if apart and only_modals else ""


_MODES = named("can could, may might, should, must, will would, do does, did")
_SAID = named("can could, may might, should, must, will, want would")
_HAVING = frozenset(("has", "have"))
_MODALS = listed("can could may might should must shall will would")


def _done(left: Reading, right: Reading) -> frozenset[str]:
    """Modal verbs of one text in the place of "does" or "did" of the other; after "how", "can" may replace "does"."""
    told, other = left.vocabulary - right.vocabulary, right.vocabulary - left.vocabulary
    if "did" in told:
        return _MODALS & other
    anyhow = ("can", "could") if left.frame in {"how", "how to"} else ()
    return (_MODALS & other).difference(anyhow, ("will", "would")) if "does" in told else frozenset()


def _obligations(reading: Reading) -> set[str]:
    """The words for an obligation: "must", and the "to" of "have to"."""
    bound = {after for before, after in pairwise(reading.words) if before in _HAVING and after == "to"}
    return bound | ({"must"} & reading.vocabulary)


def _intended(reading: Reading) -> str:
    """The modal verb, or "want", after an "I" with which a text begins; "" if there is none."""
    return _SAID.get(reading.words[1], "") if reading.words[:1] == ["i"] and len(reading.words) > 1 else ""


def persons(left: Reading, right: Reading, alignment: Alignment) -> str:
    """Persons must not be exchanged: mine and yours, what I do to you and you to me, what I do and what he does.

    But "how do I" is "how do you", if it means anybody.

    In German, a capital distinguishes "you" from "they", if other capitals show that the writer uses them.
    """
    if (found := _formal(left) ^ _formal(right)) and not left.english and _capitals(left) and _capitals(right):
        return differ("persons", found, ())
    alone = bool(alignment.only_left or alignment.only_right)
    if found := _in_another_case(left, right, alone=alone) or (set() if alone else _exchanged(left, right)):
        return differ("persons", found, ())
    one, other = _persons(left), _persons(right)
    if one == other:
        return ""
    gone, new = Counter(one) - Counter(other), Counter(other) - Counter(one)
    of_anyone = _is_of_anyone(left, one, other) and _is_of_anyone(right, other, one) and {*gone, *new} <= _EITHER
    exchanged = not (gone or new) or (gone and new and not of_anyone)
    if exchanged and not alone:
        return differ("persons", set(one), set(other) - set(one))
    if _acting(left.vocabulary) != _acting(right.vocabulary):
        return ""
    mine, yours = _told_of(left, _OWNERS), _told_of(right, _OWNERS)
    found = {noun for owner, noun in mine - yours if ("you" if owner == "i" else "i", noun) in yours - mine}
    return differ("persons", found, ())


_EITHER = frozenset(("i", "you"))
_CASES = (("i", "me"), ("we", "us"), ("he", "him"), ("she", "her"), ("they", "them"))
_SIE = listed("sie ihnen ihr ihre ihrem ihren ihrer ihres")
_PERSONS = (
    dict.fromkeys(I_WORDS, "i") | dict.fromkeys(YOU_WORDS, "you") | named("he him his, she her, they them their, its")
)


def _is_of_anyone(reading: Reading, persons: list[str], others: list[str]) -> bool:
    """Whether a question with an "I" or "you" that the other text lacks means anybody: "how do you boil rice"."""
    here = _EITHER.intersection(persons)
    asks = reading.frame != "none" and not (_DETERMINERS | _PERSONS.keys()).issuperset(reading.words[:1])
    return asks and len(here) == 1 and here.isdisjoint(others)


def _formal(reading: Reading) -> set[str]:
    return {word.text for word in reading.content if word.capital and word.text in _SIE}


def _capitals(reading: Reading) -> bool:
    return any(word.capital and word.text not in _SIE for word in reading.content)


def _persons(reading: Reading) -> list[str]:
    return [_PERSONS[word] for word in reading.words if word in _PERSONS]


def _in_another_case(left: Reading, right: Reading, *, alone: bool) -> set[str]:
    """Persons that are more often the subject in one text, and the object in the other: "she owes me", "I owe her".

    If other words differ too, the verb beside them must be the same.
    """
    found = set()
    for acts, suffers in _CASES:
        more, less = (left.words.count(word) - right.words.count(word) for word in (acts, suffers))
        does, has_done = (left, right) if more > 0 else (right, left)
        if more * less < 0 and not (alone and _beside(does, acts, 1).isdisjoint(_beside(has_done, suffers, -1))):
            found |= {acts, suffers}
    return found


def _beside(reading: Reading, word: str, step: int) -> set[str]:
    places = (place + step for place, other in enumerate(reading.words) if other == word)
    return {reading.stems[place] for place in places if 0 <= place < len(reading.stems)}


def _exchanged(left: Reading, right: Reading) -> set[str]:
    """Nouns that change their owners: "my dog bit her son", "her dog bit my son"; not those that stand together."""
    mine, yours = _told_of(left, _OWNERS), _told_of(right, _OWNERS)
    one, other = ({noun for _, noun in side} for side in (mine - yours, yours - mine))
    both = one | other
    beside = any(both.issuperset(pair) for reading in (left, right) for pair in pairwise(reading.stems))
    return both if one and other and not beside and both <= {*left.stems} & {*right.stems} else set()


def _acting(words: frozenset[str]) -> tuple[bool, bool]:
    """Whether a text has "I" or "me", and whether it has "you", possessives aside."""
    return bool(words & I_WORDS.difference(_OWNERS)), bool(words & YOU_WORDS.difference(_OWNERS))


def complements(left: Reading, right: Reading, _: Alignment) -> str:
    """Infinitive and gerund must not be exchanged: "stopped to take" and "stopped taking", "used to", "is used to"."""
    one, other = _complements(left), _complements(right)
    return differ("complements", one, other) if one and other and one != other else ""


_TWO_WAYS = frozenset(map(stem_of, ("stop", "remember", "forget", "regret", "used")))
_BEING = listed("is are am was were be been being get got gets getting")


def _complements(reading: Reading) -> set[str]:
    found = set()
    for word, stem, after, before in zip(
        reading.words, reading.stems, reading.words[1:], ["", *reading.words], strict=False
    ):
        if word == "used":
            if after == "to":
                found.add("is used to" if before in _BEING else "used to")
        elif stem in _TWO_WAYS and (after == "to" or after.endswith("ing")):
            found.add(f"{stem} to" if after == "to" else f"{stem} -ing")
    return found
