"""Text to search terms: words of any script, English stems, and character pairs where words have no spaces.

The default :func:`analyze` serves documents and queries alike. It keeps stop words, so that "To be or not to
be" stays findable; a search leaves :data:`STOP_WORDS` out as long as the query has any other term.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache

from langmem_adapters.language.english import BASES, SPELLINGS

__all__ = ["ANALYZER_ID", "STOP_WORDS", "Analyzer", "analyze", "matching", "stem"]

Analyzer = Callable[[str], list[str]]
"""Turns a text into terms, in order and with repetitions. It must be pure: the same text, the same terms."""

ANALYZER_ID = "langmem-6"
"""The version of :func:`analyze`. It changes with every change of a document's terms, so that indexes are rebuilt."""

STOP_WORDS = frozenset(
    """
    a about above after again against ain all also am an and any are as at be because been before
    being below between both but by can cannot could did do does doing down during each few for from
    further had has have having he her here hers herself him himself his how i if in into is it its itself
    just me more most my myself no nor not now of off on once only or other our ours ourselves out over
    own same she should so some such than that the their theirs them themselves then there these they this
    those through to too under until up us very was we were what when where which while who whom whose why
    will with wo would you your yours yourself yourselves
    """.split()  # noqa: SIM905 - a list of words reads better as text
)
"""English words that say little about what a text is about. Each is its own term, never a stem."""

_LONGEST = 64  # characters of a word; what is longer is no word but data, and its beginning finds it


def analyze(text: str) -> list[str]:
    """Split a text into terms.

    The text is normalised (NFKC) and case-folded. Words are runs of letters, combining marks and digits. Latin and
    Greek letters lose their accents, unless an English stop word is left: "thé" is no "the"; Cyrillic vowels lose their
    stress, and Hebrew and Arabic words their points. ASCII words are then stemmed (:func:`stem`), and those of one
    English family give one stem; words of other alphabets are kept. Han, kana and hangul give every character and every
    pair of neighbours; Thai, Lao, Khmer and Burmese, whose characters mean little alone, give the pairs.
    """
    if text.isascii():
        text = text.lower()
    else:
        text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    terms: list[str] = []
    for word in _CLITIC.sub(" ", text).translate(_LETTERS).split():
        if word.isascii():
            terms.append(_word(word))
        else:
            for run in _RUN.finditer(word):
                terms += _terms_of(run)
    return terms


# What an apostrophe joins to an English word: "John's", "we'll", "don't". "can't" and "ain't" keep their n.
_CLITIC = re.compile(r"(?:(?<!ca|ai)n['\u2019]t|['\u2019](?:s|t|re|ve|ll|d|m))\b")

_ZERO_WIDTH_SPACE = 0x200B
_VARIATION_SELECTORS = range(0xFE00, 0xFE10)


class _Letters(dict[int, str]):
    """What becomes of a character: kept, dropped or a space. Learnt as characters come, up to U+FFFF."""

    def __missing__(self, code: int) -> str:
        category = unicodedata.category(chr(code))
        if category == "Me" or code in _VARIATION_SELECTORS:
            outcome = ""
        elif category[0] in "LMN":
            outcome = chr(code)
        elif category == "Cf" and code != _ZERO_WIDTH_SPACE:  # soft hyphens and joiners are inside words
            outcome = ""
        else:
            outcome = " "
        if code <= 0xFFFF:  # noqa: PLR2004 - the rest is rare, and would let a hostile text fill the memory
            self[code] = outcome
        return outcome


_LETTERS = _Letters()

# Scripts that put no spaces between words, or that join so much to a word that whole words rarely match.
_SINGLE = (  # Han, kana, bopomofo, hangul
    "\u1100-\u11ff\u2e80-\u2fdf\u3005\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303b\u3040-\u30ff\u3100-\u318f"
    "\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff"
    "\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
_PAIRED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\ua9e0-\ua9ff\uaa60-\uaa7f"  # Thai, Lao, Burmese, Khmer
_RUN = re.compile(f"(?P<single>[{_SINGLE}]+)|(?P<paired>[{_PAIRED}]+)|[^{_SINGLE}{_PAIRED}]+")


def _terms_of(run: re.Match[str]) -> list[str]:
    text = run[0]
    if run.lastgroup is None:
        return [_word(text)]
    pairs = [text[n : n + 2] for n in range(len(text) - 1)]
    return [*text, *pairs] if run.lastgroup == "single" or not pairs else pairs


_PART = f"[^\\s'\u2019{_SINGLE}]+"
_SHOWN = re.compile(f"[{_SINGLE}]|{_PART}(?:['\u2019]{_PART})*")


def matching(query: str, text: str) -> list[tuple[int, int]]:
    """Where a text has the words of a query, as starts and ends; stop words count only where it has no others.

    >>> text = "My bikes are in the shed."
    >>> [text[start:end] for start, end in matching("Where is the bike?", text)]
    ['bikes']
    """
    terms = set(analyze(query))
    terms = terms - STOP_WORDS or terms
    words = "".join([" " if _LETTERS[ord(letter)] == " " and letter not in "'\u2019" else letter for letter in text])
    return [found.span() for found in _SHOWN.finditer(words) if not terms.isdisjoint(analyze(found[0]))]


_ACCENTS = re.compile(  # of Latin and Greek; the stress of Cyrillic vowels; the points of Hebrew and Arabic
    "(?<=[a-z\u03b1-\u03c9])[\u0300-\u036f]+"
    "|(?<=[\u0430\u0435\u0438\u043e\u0443\u044b\u044d\u044e\u044f\u0454\u0456])[\u0300\u0301]"
    "|[\u0591-\u05c7\u064b-\u0652]"
)
_STROKES = {"æ": "ae", "đ": "d", "ð": "d", "\u0131": "i", "ł": "l", "ø": "o", "œ": "oe", "þ": "th", "\u0451": "\u0435"}
_PLAIN = str.maketrans(_STROKES)  # letters of their own to Unicode


def _unaccented(word: str) -> str:
    """The word as it is written where a keyboard has no accents."""
    apart = unicodedata.normalize("NFD", word.translate(_PLAIN))
    plain = unicodedata.normalize("NFC", _ACCENTS.sub("", apart))
    return word if plain in STOP_WORDS or not plain else plain


@lru_cache(maxsize=1 << 16)
def _word(word: str) -> str:
    word = word[:_LONGEST]
    if not word.isascii():
        word = _unaccented(word)[:_LONGEST]
    if word in STOP_WORDS or not (word.isascii() and word.isalpha()):
        return word
    stemmed = stem(BASES.get(word, word))
    stemmed = _SPELT.get(stemmed, stemmed)
    return word if stemmed in STOP_WORDS else stemmed


def stem(word: str) -> str:
    """Reduce a lower-case English word to its stem, as M. F. Porter's algorithm of 1980 does.

    It follows his own reference program, which departs from the article in two suffixes ("-bli", "-logi") and
    leaves words of one or two letters alone. Source: https://tartarus.org/martin/PorterStemmer/
    """
    if len(word) <= 2:  # noqa: PLR2004 - see above
        return word
    word = _plural(word)
    word = _past_or_gerund(word)
    if word.endswith("y") and "v" in _shape(word[:-1]):
        word = word[:-1] + "i"
    word = _exchange(word, _STEP_2)
    word = _exchange(word, _STEP_3)
    return _final_letter(_cut(word))


def _shape(letters: str) -> str:
    """Write c for a consonant and v for a vowel; y is a vowel after a consonant."""
    shape = ""
    for letter in letters:
        shape += "v" if letter in "aeiou" or (letter == "y" and shape.endswith("c")) else "c"
    return shape


def _measure(letters: str) -> int:
    """Count the vowel-consonant sequences: Porter's m."""
    return _shape(letters).count("vc")


def _ends_short(letters: str) -> bool:
    """Whether the end is consonant, vowel, consonant, the last not w, x or y: Porter's *o."""
    return _shape(letters).endswith("cvc") and letters[-1] not in "wxy"


def _ends_double(letters: str) -> bool:
    return letters[-2:-1] == letters[-1:] and _shape(letters).endswith("c")


def _plural(word: str) -> str:
    if word.endswith(("sses", "ies")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _past_or_gerund(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    rest = word.removesuffix("ed") if word.endswith("ed") else word.removesuffix("ing")
    if rest == word or "v" not in _shape(rest):
        return word
    if rest.endswith(("at", "bl", "iz")):
        return rest + "e"
    if _ends_double(rest):
        return rest if rest[-1] in "lsz" else rest[:-1]
    return rest + "e" if _measure(rest) == 1 and _ends_short(rest) else rest


_STEP_2 = {
    "ational": "ate", "tional": "tion", "enci": "ence", "anci": "ance", "izer": "ize", "bli": "ble",
    "alli": "al", "entli": "ent", "eli": "e", "ousli": "ous", "ization": "ize", "ation": "ate", "ator": "ate",
    "alism": "al", "iveness": "ive", "fulness": "ful", "ousness": "ous", "aliti": "al", "iviti": "ive",
    "biliti": "ble", "logi": "log",
}  # fmt: skip
_STEP_3 = {
    "icate": "ic", "ative": "", "alize": "al", "iciti": "ic", "ical": "ic", "ful": "", "ness": "",
}  # fmt: skip
_STEP_4 = (
    "al ance ence er ic able ible ant ement ment ent sion tion ou ism ate iti ous ive ize".split()  # noqa: SIM905
)


def _exchange(word: str, suffixes: dict[str, str]) -> str:
    """Replace the longest suffix that fits, if what stands before it has a measure above 0."""
    for size in range(min(7, len(word)), 2, -1):
        suffix = word[-size:]
        if suffix in suffixes:
            rest = word[:-size]
            return rest + suffixes[suffix] if _measure(rest) > 0 else word
    return word


def _cut(word: str) -> str:
    """Remove the longest suffix that fits, if what stands before it has a measure above 1."""
    for size in range(min(5, len(word)), 1, -1):
        if word[-size:] in _STEP_4:
            rest = word[: -3 if word.endswith("ion") else -size]
            return rest if _measure(rest) > 1 else word
    return word


def _final_letter(word: str) -> str:
    rest = word[:-1]
    if word.endswith("e") and (_measure(rest) > 1 or (_measure(rest) == 1 and not _ends_short(rest))):
        word = rest
    return word[:-1] if word.endswith("ll") and _measure(word) > 1 else word


_SPELT = {stem(other): stem(base) for other, base in SPELLINGS.items()}
