"""The guard for function words that a request mentions rather than uses: "what does the mean", "when do I use whom"."""

from __future__ import annotations

import re

from langmem_adapters.experience.verifier.alignment import Alignment, common_start, refusal
from langmem_adapters.experience.verifier.reading import Reading
from langmem_adapters.experience.verifier.words import BE_FORMS, CONJUNCTIONS, FINITE_VERBS, PREPOSITIONS, STOP_WORDS
from langmem_adapters.language.lists import word_set

_DETERMINERS = word_set("a an the my our your this that these those its")
_PRONOUNS = word_set("it this that these those them")
_FUNCTION_WORDS = STOP_WORDS | FINITE_VERBS | {"each", "every", "like"}
_INTERCHANGEABLE = (
    _DETERMINERS,
    PREPOSITIONS | {"like"},
    _PRONOUNS,
    FINITE_VERBS - word_set("has have had") | word_set("be been being"),
    FINITE_VERBS - BE_FORMS,
    word_set("each every"),
    word_set("i you we"),
    word_set("what which who whom that it"),
    word_set("what how when if"),
)
"""Function words that often replace each other without a difference; other guards see where they do not."""
_GOVERNING = _DETERMINERS - _PRONOUNS, PREPOSITIONS
"""Words that need a noun after them; a pronoun does not."""
_NO_NOUNS = PREPOSITIONS | CONJUNCTIONS | FINITE_VERBS
_FRAME_WORDS = 3  # of "how do you", "what are the"
_QUESTION_WORDS = word_set("how what when where which who why")
_ABOUT_WORDS = re.compile(
    r"\b(?:words?|sentences?|spell|spelt|pronounced?|grammar|in english|translated?|(?:pro)?nouns?|(?:ad)?verbs?|"
    r"adjectives?|prepositions?|conjunctions?|part of speech|plural|singular|letters?|rhymes?|synonyms?|antonyms?|"
    r"vowel|comma|how (?:do|does|would|can) (?:you|i|we|one) say)\b"
)


def mentions(left: Reading, right: Reading, _: Alignment) -> str:
    """A function word must not be replaced by one of another kind, such as "and" by "but", nor where it is mentioned.

    It refuses only if all other words are the same.
    """
    start = common_start(left.words, right.words)
    end = common_start(left.words[start:][::-1], right.words[start:][::-1])
    one, other = (reading.words[start : len(reading.words) - end] for reading in (left, right))
    replaced = {*one, *other}
    if not (one and other and replaced <= _FUNCTION_WORDS):
        return ""
    before, after = left.words[:start], left.words[len(left.words) - end :]
    is_about_words = bool(_ABOUT_WORDS.search(left.text))
    if not after:
        may_replace = replaced <= _PRONOUNS and not is_about_words
    else:
        are_of_one_kind = any(map(replaced.issubset, _INTERCHANGEABLE)) or not len(one) == len(other) == 1
        may_replace = are_of_one_kind and not _are_mentioned(replaced, before, after[0], is_about_words=is_about_words)
    return "" if may_replace else refusal("mentions", one, other)


def _are_mentioned(replaced: set[str], before: list[str], next_word: str, *, is_about_words: bool) -> bool:
    """Whether words lack what must follow them, or whether a question about words treats them."""
    if any(map(replaced.issubset, _GOVERNING)):
        if next_word not in STOP_WORDS:
            return next_word == "instead"
        if next_word in _NO_NOUNS:
            return True
    if replaced <= FINITE_VERBS and not FINITE_VERBS.isdisjoint(before[-1:]):
        return True
    is_frame = not before or (len(before) < _FRAME_WORDS and before[0] in _QUESTION_WORDS)
    return is_about_words and not is_frame
