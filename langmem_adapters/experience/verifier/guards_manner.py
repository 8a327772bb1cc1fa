"""Guards for fine differences: the manner of a text, singular or plural, good or better, with or without "on"."""

from __future__ import annotations

from itertools import pairwise

from langmem_adapters.experience.verifier.alignment import Alignment, has_context, refusal
from langmem_adapters.experience.verifier.forms import is_optional
from langmem_adapters.experience.verifier.guards_replacements import surrounding_stems
from langmem_adapters.experience.verifier.reading import Reading, Word
from langmem_adapters.experience.verifier.word_order import is_superlative
from langmem_adapters.experience.verifier.words import (
    ARTICLES,
    I_WORDS,
    PLURAL_ONLY_NOUNS,
    PREPOSITIONS,
    STOP_WORDS,
    UNITS,
)
from langmem_adapters.language.lists import group_names, word_set

_MANNERS = group_names("""brief briefly short shortly concise concisely,
    detailed detail details depth thorough thoroughly long lengthy comprehensive, step steps, simple simply plain,
    formal formally, informal informally casual, funny humorous, serious, technical, layman, beginner beginners,
    expert experts""")
_WRITING_VERBS = word_set("""compose create describe draft explain give list make outline present rewrite summarise
    summarize tell write""")
_REQUESTING_VERBS = _WRITING_VERBS | word_set(
    "extract find generate invent name output pick propose recommend return suggest"
)
_MAX_ACRONYM_CHARS = 3  # so short a name is often in lower case
_MAX_OPENING_WORDS = 4
_OMITTABLE_PREPOSITIONS = word_set("as at by for from in of on than to with")
_DETERMINERS = ARTICLES | word_set("her his my our that their these this those your")
_ENDS_OF_OBJECTS = STOP_WORDS - _DETERMINERS - I_WORDS
_POSSESSIVES = word_set("her his my our their your")
_PLURAL_ONLY_NOUNS = PLURAL_ONLY_NOUNS - {"means"}  # a verb too: "what X means"
_BE_FORMS = word_set("is are was were")
_OFTEN_WITHOUT_PREPOSITION = frozenset(("about", "all", "both", "some", *UNITS))
"""Words beside which a preposition may be left out: some (of the) tools, to come (on) Monday."""


def manner(left: Reading, right: Reading, _: Alignment) -> str:
    """A text to be written must be of the same manner: a short guide is no step-by-step guide."""
    if any(_WRITING_VERBS.isdisjoint(reading.words[:_MAX_OPENING_WORDS]) for reading in (left, right)):
        return ""
    one, other = ({_MANNERS[word] for word in reading.vocabulary if word in _MANNERS} for reading in (left, right))
    return refusal("manner", one - other, other - one)


def degree(left: Reading, right: Reading, _: Alignment) -> str:
    """The word "good" must not replace "a better", nor "few" (hardly any) "a few" (some); likewise "little".

    Nor may "as … as" replace "than".
    """
    thans, ases = (left.words.count(word) - right.words.count(word) for word in ("than", "as"))
    if thans * ases < 0 and abs(ases) > 1:
        return refusal("degree", ["as"], ["than"])
    for word in ("few", "little"):
        one, other = (("a", word) in pairwise(reading.words) for reading in (left, right))
        if one != other and word in left.vocabulary & right.vocabulary:
            return refusal("degree", [f"a {word}"], [word])
    left_has_better, right_has_better = (("a", "better") in pairwise(reading.words) for reading in (left, right))
    if left_has_better == right_has_better:
        return ""
    good_words = {"good", "great"} & (right.vocabulary if left_has_better else left.vocabulary)
    return refusal("degree", ["better"], good_words) if good_words else ""


def plurals(left: Reading, right: Reading, alignment: Alignment) -> str:
    """After a superlative, singular and plural differ: the highest mountain(s). So they do in names: "Alien", "Aliens".

    A word with an article is not a name: a python, Python. What is to be written or extracted, and, where
    the texts are the same beside it, what is said in more than a short question: a title, titles.
    """
    if has_context(left, right) and surrounding_stems(left, ()) == surrounding_stems(right, ()):
        return refusal("plurals", *_differing_in_number(left, right))
    left_objects, right_objects = _requested_objects(left), _requested_objects(right)
    for i, j, _ in alignment.pairs:
        one, other = left.content[i], right.content[j]
        if _is_noun_and_name(left, one, right, other) or _is_noun_and_name(right, other, left, one):
            return refusal("plurals", [one.text], ())
        is_plural = one.text + "s" == other.text or one.text == other.text + "s"
        is_requested = one.place in left_objects and other.place in right_objects
        if is_plural and (is_requested or _number_matters(left, one, right, other)):
            return refusal("plurals", [one.text], [other.text])
    return ""


def _requested_objects(reading: Reading) -> set[int]:
    """The places of the nouns in what a request, which is no question, wants to have written, found or extracted."""
    places: set[int] = set()
    head = None  # the last word of the object so far, which is its noun; the verb, if none has come
    for place, word in enumerate([*reading.words, ""] if reading.frame == "none" else ()):
        if head is None:
            head = place if word in _REQUESTING_VERBS else None
        elif not word or word in _ENDS_OF_OBJECTS:
            places.add(head)
            head = None
        else:
            head = place
    return places


def _differing_in_number(left: Reading, right: Reading) -> tuple[list[str], list[str]]:
    """The words that one text has in the plural and the other not; not 5 euro, 5 euros, nor some example, examples."""
    one, other = ([word for word in reading.words if word not in ARTICLES] for reading in (left, right))
    pairs = [
        (word, other_word)
        for before, word, other_word in zip(["", *one], one, other, strict=False)
        if word.endswith("s") != other_word.endswith("s")
        and before != "some"
        and UNITS.keys().isdisjoint((word, other_word))
    ]
    return [word for word, _ in pairs], [word for _, word in pairs]


def _number_matters(left: Reading, one: Word, right: Reading, other: Word) -> bool:
    """Whether a word in the singular means something else than in the plural: "my dog", "Alien", "custom"."""
    before = _word_before(left, one), _word_before(right, other)
    if _POSSESSIVES.issuperset(before) or not _PLURAL_ONLY_NOUNS.isdisjoint((one.text, other.text)):
        return True
    if all(map(is_superlative, before)) and not is_optional(one.text):
        return True
    return _is_lone_name(left, one) and _is_lone_name(right, other)


def prepositions(left: Reading, right: Reading, _: Alignment) -> str:
    """With all else the same, neither may have an additional preposition: to paint on a fence, to paint a fence.

    Nor an additional "than": cheaper on Mondays, cheaper than on Mondays.
    """
    texts = ([word for word in reading.words if word not in _DETERMINERS] for reading in (left, right))
    shorter, longer = sorted(texts, key=len)
    if len(longer) != len(shorter) + 1:
        return ""
    position = next((n for n, word in enumerate(shorter) if word != longer[n]), len(shorter))
    if longer[position] not in _OMITTABLE_PREPOSITIONS or longer[position + 1 :] != shorter[position:]:
        return ""
    if longer[position] == "than":
        return refusal("prepositions", ["than"], ())
    neighbours = {*longer[max(0, position - 1) : position], *longer[position + 1 : position + 2]}
    if len(neighbours) <= 1 or not (STOP_WORDS - _BE_FORMS).isdisjoint(neighbours):
        return ""
    matters = all(word.isalpha() and word not in _OFTEN_WITHOUT_PREPOSITION for word in neighbours - _BE_FORMS)
    return refusal("prepositions", longer[position : position + 1], ()) if matters else ""


def _word_before(reading: Reading, word: Word) -> str:
    return reading.words[word.place - 1] if word.place else ""


def _is_noun_and_name(reading: Reading, word: Word, other_reading: Reading, name: Word) -> bool:
    """Whether a word has an indefinite article here, and is a name in the other text."""
    is_same_word = word.text == name.text and len(word.text) > _MAX_ACRONYM_CHARS and not word.capital
    return is_same_word and _word_before(reading, word) in {"a", "an"} and _is_lone_name(other_reading, name)


def _is_lone_name(reading: Reading, word: Word) -> bool:
    """Whether a word is a name that stands alone: after no article, and before no other content word."""
    next_word = reading.words[word.place + 1 : word.place + 2]
    is_alone = _word_before(reading, word) not in ARTICLES and PREPOSITIONS.issuperset(next_word)
    return word.capital and word.text not in UNITS and is_alone
