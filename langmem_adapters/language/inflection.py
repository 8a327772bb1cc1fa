"""Parts that most forms of a word share, for languages with more inflection than English.

They are added to the whole word, so that "велосипед" finds "велосипеда", and a word that matches exactly counts for
more. Languages are told only by their letters: words written from left to right change at their end, so a word gives
its beginnings; Hebrew and Arabic words change at both ends, and give every three neighbours.
"""

from __future__ import annotations

import re

from langmem_adapters.language.dates import DAYS
from langmem_adapters.language.lists import listed
from langmem_adapters.language.little_words import little_words

__all__ = ["inflects", "parts"]

_BEGINNINGS = (3, 5)  # letters: one for short words, and one that tells more
_NEIGHBOURS = 3  # letters, as many as a root has

_ENGLISH = listed("""the and you your that this these those with what which who whom how when where why are were they
    their there have been would could should from about because into than then it its him his not""").union(DAYS)
_LATIN = re.compile("[a-z\u00df-\u00f6\u00f8-\u024f\u1e00-\u1eff]")
_ACCENTED = re.compile("[\u00df-\u00f6\u00f8-\u024f]")
_VIETNAMESE = re.compile("[\u1ea0-\u1ef9]")
_SEMITIC = re.compile("[\u0590-\u077f\u08a0-\u08ff]")
_WORD = re.compile(r"[^\W\d_]+")


def inflects(text: str) -> bool:
    """Whether a case-folded text in Latin letters is clearly of a language whose words have many forms.

    English has few and Vietnamese none. A text is another's if it has letters beyond ASCII, or the little words of a
    language that is known by them, and none that only English has.

    >>> inflects("aino osti vihreän polkupyörän."), inflects("we met at the café."), inflects("see you soon!")
    (True, False, False)
    """
    accented = _ACCENTED.search(text) is not None
    if not _ENGLISH.isdisjoint(_WORD.findall(text)):
        return False
    return _VIETNAMESE.search(text) is None if accented else bool(little_words(text))


def parts(word: str, *, inflected: bool) -> list[str]:
    """The parts of a word without accents; of one in Latin letters only if its text ``inflects``.

    >>> parts("велосипеда", inflected=False)
    ['вел', 'велос']
    """
    if len(word) <= min(_BEGINNINGS) or any(map(str.isnumeric, word)) or (not inflected and _LATIN.search(word)):
        return []
    if _SEMITIC.match(word):
        return [word[n : n + _NEIGHBOURS] for n in range(len(word) - _NEIGHBOURS + 1)]
    return [word[:size] for size in _BEGINNINGS if size < len(word)]
