"""Parts that most forms of a word share, for languages with more inflection than English.

They are added to the whole word, so that "велосипед" finds "велосипеда", and a word that matches exactly counts for
more. Languages are told only by their letters: words written from left to right change at their end, so a word gives
its beginnings; Hebrew and Arabic words change at both ends, and give every three neighbours.
"""

from __future__ import annotations

import re

from langmem_adapters.language.dates import DAYS
from langmem_adapters.language.foreign_stop_words import foreign_stop_words
from langmem_adapters.language.lists import word_set

_PREFIX_SIZES = (3, 5)  # letters: one for short words, and one that tells more
_NGRAM_SIZE = 3  # letters, as many as a root has

_ENGLISH_WORDS = word_set("""the and you your that this these those with what which who whom how when where why are were
    they their there have been would could should from about because into than then it its him his not""").union(DAYS)
_LATIN_PATTERN = re.compile("[a-z\u00df-\u00f6\u00f8-\u024f\u1e00-\u1eff]")
_ACCENTED_PATTERN = re.compile("[\u00df-\u00f6\u00f8-\u024f]")
_VIETNAMESE_PATTERN = re.compile("[\u1ea0-\u1ef9]")
_SEMITIC_PATTERN = re.compile("[\u0590-\u077f\u08a0-\u08ff]")
_WORD_PATTERN = re.compile(r"[^\W\d_]+")


def is_inflected(text: str) -> bool:
    """Whether a case-folded text in Latin letters is clearly of a language whose words have many forms.

    English has few and Vietnamese none. A text is another's if it has letters beyond ASCII, or the stop words of a
    language that is known by them, and none that only English has.

    >>> [is_inflected(text) for text in ("aino osti vihreän polkupyörän.", "we met at the café.", "see you soon!")]
    [True, False, False]
    """
    is_accented = _ACCENTED_PATTERN.search(text) is not None
    if not _ENGLISH_WORDS.isdisjoint(_WORD_PATTERN.findall(text)):
        return False
    return _VIETNAMESE_PATTERN.search(text) is None if is_accented else bool(foreign_stop_words(text))


def word_parts(word: str, *, inflected: bool) -> list[str]:
    """The parts of a word without accents; of one in Latin letters only if its text ``is_inflected``.

    >>> word_parts("велосипеда", inflected=False)
    ['вел', 'велос']
    """
    if len(word) <= min(_PREFIX_SIZES) or any(map(str.isnumeric, word)):
        return []
    if not inflected and _LATIN_PATTERN.search(word):
        return []
    if _SEMITIC_PATTERN.match(word):
        return [word[start : start + _NGRAM_SIZE] for start in range(len(word) - _NGRAM_SIZE + 1)]
    return [word[:size] for size in _PREFIX_SIZES if size < len(word)]
