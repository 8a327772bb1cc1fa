"""Compounds and their paraphrases: "the capital of Peru", "Peru's capital", or "peru capital" in a search box."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain

from langmem_adapters.experience.verifier.reading import Reading
from langmem_adapters.experience.verifier.words import ARTICLES, CONJUNCTIONS, STOP_WORDS, UNITS
from langmem_adapters.language.lists import word_set

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
