"""Text to search terms: words of any script, English stems, and character pairs where words have no spaces.

The default :func:`analyze` serves documents and queries alike. It keeps stop words, so that "To be or not to
be" stays findable; a search leaves :data:`STOP_WORDS` out as long as the query has any other term.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

from langmem_adapters.language.english import BASES, SPELLINGS, STOP_WORDS
from langmem_adapters.language.inflection import inflects, parts

__all__ = [
    "ANALYZER_ID",
    "STOP_WORDS",
    "Analyzer",
    "analyze",
    "matching",
    "only_parts",
    "stem",
    "term_of",
    "uninflected",
    "words_of",
]

Analyzer = Callable[[str], list[str]]
"""Turns a text into terms, in any order, with repetitions. It must be pure: the same text, the same terms."""

ANALYZER_ID = "langmem-12"
"""The version of :func:`analyze`. It changes with every change of a document's terms, so that indexes are rebuilt."""

_TELLING = 7  # digits of a number that identifies something, such as a telephone
_LONGEST = 64  # characters of a word; a longer run is data, and is found by its beginning


def analyze(text: str) -> list[str]:
    """Split a text into terms.

    The text is normalised (NFKC) and case-folded. Words are runs of letters, combining marks and digits, of any script
    as 0 to 9. Latin and Greek letters lose their accents, unless an English stop word is left: "thé" is no "the";
    Cyrillic vowels lose their stress, and Hebrew and Arabic words their points. ASCII words are then stemmed
    (:func:`stem`), and those of one English family give one stem; words of other alphabets are kept. Words that are not
    English also give the parts that their other forms have (:mod:`langmem_adapters.language.inflection`). Han, kana and
    hangul give every character and every pair of neighbours; Thai, Lao, Khmer and Burmese, whose characters mean little
    alone, give the pairs. A name in inner capitals also gives its words, a number in groups the whole of it, and a
    place in a row its number: loadSettings, 1,250, 555-1234, LH 1234, 4th.
    """
    folded = _folded(text)
    return [*_terms(folded, inflected=inflects(folded)), *(term_of(word) for _, word in _written_otherwise(text))]


_INNER_CAPITAL, _FIGURE = re.compile("[a-z][A-Z]"), re.compile("[0-9]")
_HUMPED = re.compile(r"\b[A-Za-z]*[a-z][A-Z][A-Za-z]*")
_HUMP = re.compile(r"[A-Z]?[a-z]{2,}|[A-Z]{3,}(?![a-z])|[A-Z]{2,}(?=[A-Z][a-z])")
_GROUPED = re.compile(
    r"(?<![\w.,])[0-9]{1,3}(?:(?:[,'\u2019\u00a0\u202f][0-9]{3})+(?![\w,])|(?:\.[0-9]{3})+(?=,[0-9]))"
)
_NUMBERED = re.compile(r"(?<![\w-])(?:[A-Z]{1,4}[ -][0-9]{3,}|(?:[A-Z]{2})?[0-9]{2,}(?:[ -][0-9]{2,}){1,8})(?![\w-])")
_ORDINAL = re.compile(r"\b([0-9]+)(?:st|nd|rd|th)\b")


def _written_otherwise(text: str) -> Iterator[tuple[tuple[int, int], str]]:
    """Other spellings of some words of a text, with their positions: load and settings, 1250, 4, LH1234, 5551234."""
    if _INNER_CAPITAL.search(text):
        names = (name for name in _HUMPED.finditer(text) if len(name[0]) <= _LONGEST)
        yield from ((name.span(), hump.lower()) for name in names for hump in _HUMP.findall(name[0]))
    if _FIGURE.search(text):
        yield from ((found.span(), re.sub("[^0-9]", "", found[0])) for found in _GROUPED.finditer(text))
        joined = ((found.span(), re.sub("[ -]", "", found[0]).lower()) for found in _NUMBERED.finditer(text))
        yield from (one for one in joined if len(one[1]) >= _TELLING or one[1][0].isalpha())
        yield from ((found.span(), found[1]) for found in _ORDINAL.finditer(text))


def _folded(text: str) -> str:
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def _terms(text: str, *, inflected: bool) -> list[str]:
    terms: list[str] = []
    for word in _words(text):
        if not word.isascii():
            for run in _RUN.finditer(word):
                terms += _terms_of(run, inflected=inflected)
        elif inflected:
            terms += _forms(word[:_LONGEST], inflected=True)
        else:
            terms.append(term_of(word[:_LONGEST]))
    return terms


def _words(text: str) -> list[str]:
    return _CLITIC.sub(" ", text).translate(_LETTERS).split()


def words_of(text: str) -> list[str]:
    """The words of a text, in lower case, before any further processing."""
    return _words(_folded(text))


def only_parts(text: str) -> frozenset[str]:
    """The terms of a text that are not its words, but parts of them; English has none."""
    text = _folded(text)
    inflected = inflects(text)
    if text.isascii() and not inflected:
        return frozenset()
    runs = (run[0] for word in _words(text) for run in _RUN.finditer(word) if run.lastgroup is None)
    forms = [_forms(run[:_LONGEST], inflected=inflected) for run in runs]
    return frozenset(part for _, *beside in forms for part in beside).difference(whole for whole, *_ in forms)


# What an apostrophe joins to an English word: "John's", "we'll", "don't". "can't" and "ain't" keep their n.
_CLITIC = re.compile(r"(?:(?<!ca|ai)n['\u2019]t|['\u2019](?:s|t|re|ve|ll|d|m))\b")

_ZERO_WIDTH_SPACE = 0x200B
_VARIATION_SELECTORS = range(0xFE00, 0xFE10)


class _Letters(dict[int, str]):
    """Maps a character to itself, to nothing or to a space. Filled as characters come, up to U+FFFF."""

    def __missing__(self, code: int) -> str:
        category = unicodedata.category(chr(code))
        if category == "Me" or code in _VARIATION_SELECTORS:
            outcome = ""
        elif category == "Nd":
            outcome = str(unicodedata.decimal(chr(code)))
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


def _terms_of(run: re.Match[str], *, inflected: bool) -> Sequence[str]:
    text = run[0]
    if run.lastgroup is None:
        return _forms(text[:_LONGEST], inflected=inflected)
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
    inflected = inflects(_folded(text))
    words = "".join([" " if _LETTERS[ord(letter)] == " " and letter not in "'\u2019" else letter for letter in text])
    said = [(one.span(), _terms(_folded(one[0]), inflected=inflected)) for one in _SHOWN.finditer(words)]
    said += [(span, [term_of(word)]) for span, word in _written_otherwise(text)]
    shown: list[tuple[int, int]] = []
    for start, end in sorted((start, -end) for (start, end), of in said if not terms.isdisjoint(of)):
        if not shown or start >= shown[-1][1]:  # otherwise it is a part of the one before
            shown.append((start, -end))
    return shown


_ACCENTS = re.compile(  # of Latin and Greek; the stress of Cyrillic vowels; the points of Hebrew and Arabic
    "(?<=[a-z\u03b1-\u03c9])[\u0300-\u036f]+"
    "|(?<=[\u0430\u0435\u0438\u043e\u0443\u044b\u044d\u044e\u044f\u0454\u0456])[\u0300\u0301]"
    "|[\u0591-\u05c7\u064b-\u0652]"
)
_STROKES = {"æ": "ae", "đ": "d", "ð": "d", "\u0131": "i", "ł": "l", "ø": "o", "œ": "oe", "þ": "th", "\u0451": "\u0435"}
_PLAIN = str.maketrans(_STROKES)  # letters of their own to Unicode


def _unaccented(word: str) -> str:
    """The word as it is written on a keyboard without accents."""
    apart = unicodedata.normalize("NFD", word.translate(_PLAIN))
    plain = unicodedata.normalize("NFC", _ACCENTS.sub("", apart))
    return word if plain in STOP_WORDS or not plain else plain


@lru_cache(maxsize=1 << 16)
def term_of(word: str) -> str:
    """The term that stands for a word in lower case."""
    if not word.isascii():
        word = _unaccented(word)[:_LONGEST]
    if word in STOP_WORDS or not (word.isascii() and word.isalpha()):
        return word
    stemmed = stem(BASES.get(word, word))
    stemmed = _SPELT.get(stemmed, stemmed)
    return word if stemmed in STOP_WORDS else stemmed


@lru_cache(maxsize=1 << 16)
def _forms(word: str, *, inflected: bool) -> tuple[str, ...]:
    """The word as a term, and its parts; a stop word has no parts."""
    whole = term_of(word)
    plain = word if word.isascii() else _unaccented(word)[:_LONGEST]
    beside = () if whole in STOP_WORDS else parts(plain, inflected=inflected)
    return tuple(dict.fromkeys((whole, *beside)))


def stem(word: str) -> str:
    """Reduce a lower-case English word to its stem, as M. F. Porter's algorithm of 1980 does.

    It follows his own reference program, which departs from the article in two suffixes ("-bli", "-logi") and
    leaves words of one or two letters alone. Source: https://tartarus.org/martin/PorterStemmer/
    """
    if len(word) <= 2:  # noqa: PLR2004 - see above
        return word
    word = uninflected(word)
    word = _exchange(word, _STEP_2)
    word = _exchange(word, _STEP_3)
    return _final_letter(_cut(word))


def uninflected(word: str) -> str:
    """What a lower-case English word and its plural, past and gerund have in common: the first of Porter's steps."""
    word = _past_or_gerund(_plural(word))
    return word[:-1] + "i" if word.endswith("y") and "v" in _shape(word[:-1]) else word


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
_STEP_4 = "al ance ence er ic able ible ant ement ment ent sion tion ou ism ate iti ous ive ize".split()


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
