"""Whether two readings have the same words in another order, and whether that order matters.

Also compounds and their paraphrases: "the capital of Peru", "Peru's capital", or "peru capital" in a search box.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain, pairwise

from langmem_adapters.experience.verifier.reading import Reading
from langmem_adapters.experience.verifier.words import (
    ARTICLES,
    ASK_PATTERN,
    CONJUNCTIONS,
    NEGATIONS,
    NUMBER_WORDS,
    PLURAL_ONLY_NOUNS,
    PREPOSITIONS,
    STOP_WORDS,
    UNITS,
    american_spelling,
    stem_of,
)
from langmem_adapters.language.lists import group_names, word_set

_HOW_TO = re.compile(r"\b(?:how (?:(?:do|can|could|should|would) i|to)|(?:what (?:is|are) the )?(?:best )?ways? to) ")
_DOES = frozenset(("do", "does"))
_OMITTABLE = ARTICLES | _DOES  # words that may be left out
_PHRASE_OPENERS = PREPOSITIONS | NEGATIONS | word_set("because if out since unless until when while")
"""Words that open a phrase, which may move as a whole: "before lunch", "if it rains"."""
_UNIVERSAL_QUANTIFIERS = word_set("all always both every everybody everyone everything")
_BOUND_WORDS = _PHRASE_OPENERS | word_set("""almost also even he i it just my only our she that their these they this
    those we you your""")
"""Words that must precede the same word in both texts, if the order of words differs."""
_OMITTABLE_BOUND_WORDS = ARTICLES | word_set("can could should will would")
"""Likewise, but one text may leave them out."""
_NEEDING_OF = word_set("""bag barrel basket bottle bowl box bucket can cup glass jar jug mug pack packet plate pot
    spoon tin bank church college house kingdom museum republic school state university""")
"""Words after which "of" makes another thing: a glass of wine, a wine glass; University of Miami, Miami University."""
_SENTENCE_END = re.compile(r"(?<=[.?!:])\s")
_CONDITIONALS = word_set("because if unless until while")
_CONDITION = re.compile(rf"(^|\b(?!{ASK_PATTERN}\b)\w+\W+)(?:{'|'.join(sorted(_CONDITIONALS))})\b([^,.;:?!]*)")
_MIN_SENTENCES = 3  # of a text whose statements are looked at


def same_words(left: Reading, right: Reading) -> bool:
    """Whether both say the same in the same words, articles and the wording of "how do I" aside.

    The order may differ if that changes nothing, as in "if it rains, is the bus late?" and "is the bus late if it
    rains?", but not in "the late trains stop" and "the trains stop late". One may have a compound, "a Kubernetes pod"
    for "a pod in Kubernetes", or only name what the other asks for: "peru capital".
    """
    if not (left.english and right.english) or left.symbols or right.symbols:
        return False
    one, other = _singular_words(left), _singular_words(right)
    if _is_question(left) != _is_question(right):
        return same_search(one, other, left, right) or same_search(other, one, right, left)
    if essential_words(left) == essential_words(right):
        return True
    return is_compound_of(one, other) or is_compound_of(other, one) or _is_harmless_reordering(left, right)


def _is_harmless_reordering(left: Reading, right: Reading) -> bool:
    """Whether both have the same words, in different orders that mean the same."""
    if sorted(essential_words(left)) != sorted(essential_words(right)):
        return False
    if not (_only_phrases_moved(left, right) or _only_phrases_moved(right, left)):
        return False
    if _rebound_words(left, right, _BOUND_WORDS):
        return False
    one, other = _bindings(left, _OMITTABLE_BOUND_WORDS), _bindings(right, _OMITTABLE_BOUND_WORDS)
    return one <= other or other <= one


def rearranged_words(left: Reading, right: Reading) -> set[str]:
    """Function words that govern different words, if all words are the same: "not sure it is", "sure it is not".

    Also words that have moved, if one occurs twice: "Ann Lee, daughter of Ann May Lee", "Ann May Lee, daughter of …".
    If function words differ, only negations: "not safe in pregnancy", "safe, but not in pregnancy". Also quantifiers
    on different sides of "not": "not all pass", "all do not pass"; and containers: "a wine glass", "a glass of wine".
    And words that only one text has in its condition: "if it is sold abroad", "abroad, if it is sold".
    """
    is_repeated = len({word.stem for word in left.content}) < len(left.content) and not CONJUNCTIONS & left.vocabulary
    if is_repeated and left.stems != right.stems and sorted(left.words) == sorted(right.words):
        return {word for word, other in zip(left.words, right.words, strict=True) if word != other}
    left_words, right_words = essential_words(left), essential_words(right)
    if not left.english or left_words == right_words:
        return set()
    negations_only = CONJUNCTIONS & left.vocabulary or sorted(left_words) != sorted(right_words)
    rebound = _rebound_words(left, right, NEGATIONS if negations_only else _PHRASE_OPENERS)
    rebound |= (_words_with_of(left_words) ^ _words_with_of(right_words)).intersection(left_words, right_words)
    conditions, other_conditions = _conditional_words(left), _conditional_words(right)
    if conditions and other_conditions and conditions[0] == other_conditions[0]:
        rebound |= (conditions[1] ^ other_conditions[1]).intersection(left.stems, right.stems)
    if "not" in left.vocabulary & right.vocabulary:
        rebound |= _quantifiers_after_not(left) ^ _quantifiers_after_not(right)
    return rebound


def _words_with_of(words: Sequence[str]) -> set[str]:
    return {word for word, next_word in pairwise(words) if next_word == "of" and word in _NEEDING_OF}


def exchanged_statements(left: Reading, right: Reading) -> list[str]:
    """How the statements begin that both texts make, in another order; a question may be first or last."""
    if min(left.sentences, right.sentences) < _MIN_SENTENCES:
        return []
    one, other = (
        [sentence for sentence in map(str.strip, _SENTENCE_END.split(reading.text)) if sentence.endswith((".", "!"))]
        for reading in (left, right)
    )
    if one == other or sorted(one) != sorted(other):
        return []
    return [statement.split()[0] for statement, instead in zip(one, other, strict=True) if statement != instead]


def _conditional_words(reading: Reading) -> tuple[bool, set[str]] | None:
    """Whether a condition follows other words, and its content words; None, if there is no condition."""
    match = None if _CONDITIONALS.isdisjoint(reading.vocabulary) else _CONDITION.search(reading.text)
    if not match:
        return None
    return bool(match[1]), {stem_of(NUMBER_WORDS.get(word, word)) for word in match[2].split()} - STOP_WORDS


def _quantifiers_after_not(reading: Reading) -> set[str]:
    return {*_UNIVERSAL_QUANTIFIERS.intersection(reading.words[reading.words.index("not") :])}


def _is_question(reading: Reading) -> bool:
    return reading.frame != "none" or reading.text.rstrip().endswith("?")


def _singular_words(reading: Reading) -> tuple[str, ...]:
    """The words in the singular, with one wording for "how do I"."""
    return _singular_and_essential(" ".join(reading.words))[0]


def essential_words(reading: Reading) -> tuple[str, ...]:
    """The words in the singular, without articles, "do" and "does"."""
    return _singular_and_essential(" ".join(reading.words))[1]


@lru_cache(maxsize=64)  # several rules ask for them
def _singular_and_essential(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    words = _HOW_TO.sub("how ", text).split()
    return tuple(map(_singular, words)), tuple(_singular(word) for word in words if word not in _OMITTABLE)


@lru_cache(maxsize=1 << 14)
def _singular(word: str) -> str:
    if word in _INTERCHANGEABLE:
        return _INTERCHANGEABLE[word]
    if len(word) < _MIN_PLURAL_CHARS or word.endswith(("ss", "us", "is")) or word in PLURAL_ONLY_NOUNS:
        return word
    return american_spelling(word.removesuffix("s"))


_INTERCHANGEABLE = UNITS | group_names("""is are, was were, what which, lawyer attorney, luggage baggage, bigger larger,
    buy purchase, exit quit, quickly rapidly, disease illness, often frequently, parcel package, disadvantage drawback,
    talk speak, terminate end, holiday vacation, choose select, happens occurs, highest tallest, change alter modify,
    symptom symptoms sign signs, film movie""")
"""Words that may replace each other if all else is the same and no guard has refused."""
_MIN_PLURAL_CHARS = 4


def _rebound_words(left: Reading, right: Reading, function_words: frozenset[str]) -> set[str]:
    """Function words that precede different content words, if both texts have those; not a "not" after the verb."""
    if _OPENING_NOT.search(" ".join(left.words)) or _OPENING_NOT.search(" ".join(right.words)):
        function_words -= {"not"}
    changed = _bindings(left, function_words) ^ _bindings(right, function_words)
    if not changed:
        return set()
    left_stems, right_stems = ({"", *map(stem_of, _singular_words(reading))} for reading in (left, right))
    common = left_stems & right_stems
    return {word for word, next_word in changed if next_word in common}


def _only_phrases_moved(left: Reading, right: Reading) -> bool:
    """Whether only phrases that a function word opens have moved between the texts: "before lunch".

    Or a superlative: "which ocean is the largest", "which is the largest ocean".
    """
    left_neighbours = set(pairwise(word for word, _ in _content_words(left)))
    right_neighbours = pairwise(_content_words(right))
    return all((one, other) in left_neighbours or opens_phrase for (one, _), (other, opens_phrase) in right_neighbours)


def _content_words(reading: Reading) -> list[tuple[str, bool]]:
    """The content words, but for those that may stand anywhere, and whether each begins a phrase that may move."""
    first_linked, opens_phrase = _linked_words(reading), False
    content: list[tuple[str, bool]] = []
    for word in _singular_words(reading):
        if word in _PHRASE_OPENERS:
            opens_phrase = True
        elif word not in STOP_WORDS and not _is_movable(word):
            content.append((first_linked.get(word, word), opens_phrase or word.endswith("est")))
            opens_phrase = False
    return content


def _linked_words(reading: Reading) -> dict[str, str]:
    """Words joined by "and" or "or", each mapped to the first of its pair in the alphabet: their order is free."""
    words = essential_words(reading)
    first_linked: dict[str, str] = {}
    for one, link, other in zip(words, words[1:], words[2:], strict=False):
        if link in CONJUNCTIONS:
            first_linked |= dict.fromkeys((one, other), min(one, other))
    return first_linked


def _is_movable(word: str) -> bool:
    """Whether a word may stand in several places of a sentence, as adverbs do."""
    return word == "like" or (word.endswith("ly") and word not in _NO_ADVERBS)


_NO_ADVERBS = word_set("daily early family friendly hourly monthly only reply supply weekly yearly")


def _bindings(reading: Reading, function_words: frozenset[str]) -> set[tuple[str, str]]:
    """Function words with the next content word; words that "and" joins count as one."""
    first_linked = _linked_words(reading)
    words, bindings = _singular_words(reading), set()
    for n, word in enumerate(words):
        if word in function_words:
            bound = next((other for other in words[n + 1 :] if other not in STOP_WORDS), "")
            bindings.add((word, stem_of(bound if word in NEGATIONS else first_linked.get(bound, bound))))
    return bindings


_OPENING_NOT = re.compile(
    r"^(?:how |what |when |where |which |who |why )?(?:is|are|am|do|does|did|can|could|has|have|had|may|might|must|"
    r"should|was|were|will|would) not\b"
)
"""A beginning in which "not" belongs to the verb before it: "why is not my printer working"."""


# ---- compounds

_LOCATION_PREPOSITIONS = frozenset(("in", "on"))
_COMPOUND_PREPOSITIONS = _LOCATION_PREPOSITIONS | {"for", "of"}
_PARTITIVES = word_set("bit bunch couple group kind lot number pair part piece slice sort state type")
_BEFORE_COMPOUNDS = STOP_WORDS | word_set("average best first last maximum minimum next top")
_RANKS = word_set("best first last most second top")
_NOT_SEARCHED = STOP_WORDS - _COMPOUND_PREPOSITIONS - CONJUNCTIONS
_QUESTION_OPENING = re.compile(r"(?:(?:(?:what|which|who) is|give me) (?:(?:the|some) )|what is (?:an? )?)")
_MAX_PART_WORDS = 4  # of each part of a compound
_MIN_SEARCH_WORDS, _MAX_SEARCH_WORDS = 2, 9
_MIN_SUPERLATIVE_CHARS = 6  # letters of the shortest superlative but "best"


def is_compound_of(phrase: Sequence[str], compound: Sequence[str]) -> bool:
    """Whether a phrase has a preposition where another text has a compound: "a pod in Kubernetes", "a Kubernetes pod".

    Both are given with articles. The whole noun phrase after an article or the like must have moved: "an old photo of
    my dog" is no "old dog photo". Nor is a glass of wine a wine glass, nor the University of Miami Miami University,
    nor the bank on the river the river bank.
    """
    compound_words = _without_articles(compound)
    if len(_without_articles(phrase)) != len(compound_words) + 1:
        return False
    positions = (position for position, word in enumerate(phrase) if word in _COMPOUND_PREPOSITIONS)
    candidates = chain.from_iterable(_possible_compounds(phrase, position) for position in positions)
    return any(_without_articles(candidate) == compound_words for candidate in candidates)


def _possible_compounds(words: Sequence[str], position: int) -> Iterator[list[str]]:
    """The words, with the preposition and the phrases on both sides of it replaced by possible compounds."""
    start, after = position, position + 1
    while start and not (words[start - 1] in _BEFORE_COMPOUNDS or is_superlative(words[start - 1])):
        start -= 1
    noun_phrase, preposition = words[start:position], words[position]
    is_partitive = preposition == "of" and len(noun_phrase) == 1 and noun_phrase[0] in _PARTITIVES
    if is_partitive or not 0 < len(noun_phrase) <= _MAX_PART_WORDS:
        return
    ranked = start
    while ranked and (words[ranked - 1] in _RANKS or is_superlative(words[ranked - 1])):
        ranked -= 1
    is_ranked = ranked < start
    while after < len(words) and words[after] in ARTICLES and (is_ranked or preposition not in _LOCATION_PREPOSITIONS):
        after += 1
    has_article = preposition in _LOCATION_PREPOSITIONS and after > position + 1
    for end in range(after + 1, min(after + _MAX_PART_WORDS, len(words)) + 1):
        last = words[end - 1]
        if last in STOP_WORDS or last.isdigit() or (preposition == "in" and last in UNITS):
            return  # a price in dollars is no dollar price
        if not has_article:
            yield [*words[:start], *words[after:end], *noun_phrase, *words[end:]]
        if is_ranked:
            yield [*words[:ranked], *words[after:end], *words[ranked:position], *words[end:]]


def is_superlative(word: str) -> bool:
    """Whether a word is a superlative, such as "highest"; "best", which says less, does not count."""
    return word.endswith("est") and len(word) >= _MIN_SUPERLATIVE_CHARS and word != "interest"


def same_search(search_words: Sequence[str], question_words: Sequence[str], search: Reading, question: Reading) -> bool:
    """Whether a question asks for what a search only names, as in a search box: "peru capital".

    The search has no pronoun and no question word, so that it cannot mean an action.
    """
    opening = _QUESTION_OPENING.match(" ".join(question_words))
    words = _without_articles(search_words)
    if not opening or search.frame != "none" or not _MIN_SEARCH_WORDS <= len(words) <= _MAX_SEARCH_WORDS:
        return False
    topic = question_words[len(opening[0].split()) :]
    topic_words = _without_articles(topic)
    if not _NOT_SEARCHED.isdisjoint((*words, *topic_words)):
        return False
    if words[-1].removesuffix("meaning").endswith(("ing", "ed")):
        return False
    if words in (topic_words, _without_in_before_names(topic_words, question)):
        return True
    return is_compound_of(topic, search_words)


def _without_articles(words: Sequence[str]) -> list[str]:
    return [word for word in words if word not in ARTICLES]


def _without_in_before_names(words: Sequence[str], question: Reading) -> list[str]:
    """The words without the "in" before a name: "best pizza naples"."""
    names = {name for word in question.content if word.capital for name in (word.text, word.text.removesuffix("s"))}
    followed = zip(words, [*words[1:], ""], strict=True)
    return [word for word, next_word in followed if word != "in" or next_word not in names]
