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
from langmem_adapters.language.inflection import is_inflected, word_parts

Analyzer = Callable[[str], list[str]]
"""Turns a text into terms, in any order, with repetitions. It must be pure: the same text, the same terms."""

ANALYZER_ID = "langmem-13"
"""The version of :func:`analyze`. It changes with every change of a document's terms, so that indexes are rebuilt."""

_MIN_IDENTIFIER_DIGITS = 7  # of a number that identifies something, such as a telephone
_MAX_WORD_CHARS = 64  # a longer run is data, and is found by its beginning


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
    folded = _fold(text)
    spellings = [term_of(word) for _, word in _alternative_spellings(text)]
    return _text_terms(folded, inflected=is_inflected(folded)) + spellings


_INNER_CAPITAL_PATTERN, _DIGIT_PATTERN = re.compile("[a-z][A-Z]"), re.compile("[0-9]")
_CAMEL_CASE_PATTERN = re.compile(r"\b[A-Za-z]*[a-z][A-Z][A-Za-z]*")
_CAMEL_CASE_WORD_PATTERN = re.compile(r"[A-Z]?[a-z]{2,}|[A-Z]{3,}(?![a-z])|[A-Z]{2,}(?=[A-Z][a-z])")
_GROUPED_NUMBER_PATTERN = re.compile(
    r"(?<![\w.,])[0-9]{1,3}(?:(?:[,'\u2019\u00a0\u202f][0-9]{3})+(?![\w,])|(?:\.[0-9]{3})+(?=,[0-9]))"
)
_IDENTIFIER_PATTERN = re.compile(
    r"(?<![\w-])(?:[A-Z]{1,4}[ -][0-9]{3,}|(?:[A-Z]{2})?[0-9]{2,}(?:[ -][0-9]{2,}){1,8})(?![\w-])"
)
_ORDINAL_PATTERN = re.compile(r"\b([0-9]+)(?:st|nd|rd|th)\b")


def _alternative_spellings(text: str) -> Iterator[tuple[tuple[int, int], str]]:
    """Other spellings of some words of a text, with their positions: load and settings, 1250, 4, LH1234, 5551234."""
    if _INNER_CAPITAL_PATTERN.search(text):
        for name in _CAMEL_CASE_PATTERN.finditer(text):
            if len(name[0]) <= _MAX_WORD_CHARS:
                for part in _CAMEL_CASE_WORD_PATTERN.findall(name[0]):
                    yield name.span(), part.lower()
    if _DIGIT_PATTERN.search(text):
        for match in _GROUPED_NUMBER_PATTERN.finditer(text):
            yield match.span(), re.sub("[^0-9]", "", match[0])
        for match in _IDENTIFIER_PATTERN.finditer(text):
            joined = re.sub("[ -]", "", match[0]).lower()
            if len(joined) >= _MIN_IDENTIFIER_DIGITS or joined[0].isalpha():
                yield match.span(), joined
        for match in _ORDINAL_PATTERN.finditer(text):
            yield match.span(), match[1]


def _fold(text: str) -> str:
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def _text_terms(text: str, *, inflected: bool) -> list[str]:
    terms: list[str] = []
    for word in _split_words(text):
        if not word.isascii():
            for run in _RUN_PATTERN.finditer(word):
                terms += _run_terms(run, inflected=inflected)
        elif inflected:
            terms += _word_and_parts(word[:_MAX_WORD_CHARS], inflected=True)
        else:
            terms.append(term_of(word[:_MAX_WORD_CHARS]))
    return terms


def _split_words(text: str) -> list[str]:
    return _CLITIC_PATTERN.sub(" ", text).translate(_CHARACTER_MAP).split()


def words_of(text: str) -> list[str]:
    """The words of a text, in lower case, before any further processing."""
    return _split_words(_fold(text))


def part_terms(text: str) -> frozenset[str]:
    """The terms of a text that are not its words, but parts of them; English has none."""
    text = _fold(text)
    inflected = is_inflected(text)
    if text.isascii() and not inflected:
        return frozenset()
    whole_terms: set[str] = set()
    parts: set[str] = set()
    for word in _split_words(text):
        for run in _RUN_PATTERN.finditer(word):
            if run.lastgroup is None:
                whole_term, *other_terms = _word_and_parts(run[0][:_MAX_WORD_CHARS], inflected=inflected)
                whole_terms.add(whole_term)
                parts.update(other_terms)
    return frozenset(parts - whole_terms)


# What an apostrophe joins to an English word: "John's", "we'll", "don't". "can't" and "ain't" keep their n.
_CLITIC_PATTERN = re.compile(r"(?:(?<!ca|ai)n['\u2019]t|['\u2019](?:s|t|re|ve|ll|d|m))\b")

_ZERO_WIDTH_SPACE = 0x200B
_VARIATION_SELECTORS = range(0xFE00, 0xFE10)


class _CharacterMap(dict[int, str]):
    """Maps a character to itself, to nothing or to a space. Filled as characters come, up to U+FFFF."""

    def __missing__(self, code: int) -> str:
        category = unicodedata.category(chr(code))
        if category == "Me" or code in _VARIATION_SELECTORS:
            replacement = ""
        elif category == "Nd":
            replacement = str(unicodedata.decimal(chr(code)))
        elif category[0] in "LMN":
            replacement = chr(code)
        elif category == "Cf" and code != _ZERO_WIDTH_SPACE:  # soft hyphens and joiners are inside words
            replacement = ""
        else:
            replacement = " "
        if code <= 0xFFFF:  # noqa: PLR2004 - the rest is rare, and would let a hostile text fill the memory
            self[code] = replacement
        return replacement


_CHARACTER_MAP = _CharacterMap()

# Scripts that put no spaces between words, or that join so much to a word that whole words rarely match.
_CJK_CHARS = (  # Han, kana, bopomofo, hangul
    "\u1100-\u11ff\u2e80-\u2fdf\u3005\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303b\u3040-\u30ff\u3100-\u318f"
    "\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff"
    "\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
_THAI_CHARS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\ua9e0-\ua9ff\uaa60-\uaa7f"  # also Lao, Burmese and Khmer
_RUN_PATTERN = re.compile(f"(?P<single>[{_CJK_CHARS}]+)|(?P<paired>[{_THAI_CHARS}]+)|[^{_CJK_CHARS}{_THAI_CHARS}]+")


def _run_terms(run: re.Match[str], *, inflected: bool) -> Sequence[str]:
    text = run[0]
    if run.lastgroup is None:
        return _word_and_parts(text[:_MAX_WORD_CHARS], inflected=inflected)
    pairs = [text[start : start + 2] for start in range(len(text) - 1)]
    return [*text, *pairs] if run.lastgroup == "single" or not pairs else pairs


_WORD_PART = f"[^\\s'\u2019{_CJK_CHARS}]+"
_WORD_PATTERN = re.compile(f"[{_CJK_CHARS}]|{_WORD_PART}(?:['\u2019]{_WORD_PART})*")


def matching(query: str, text: str) -> list[tuple[int, int]]:
    """Where a text has the words of a query, as starts and ends; stop words count only where it has no others.

    >>> text = "My bikes are in the shed."
    >>> [text[start:end] for start, end in matching("Where is the bike?", text)]
    ['bikes']
    """
    terms = set(analyze(query))
    terms = terms - STOP_WORDS or terms
    inflected = is_inflected(_fold(text))
    spaced_text = "".join([" " if _CHARACTER_MAP[ord(c)] == " " and c not in "'\u2019" else c for c in text])
    candidates = [
        (word.span(), _text_terms(_fold(word[0]), inflected=inflected)) for word in _WORD_PATTERN.finditer(spaced_text)
    ]
    candidates += [(span, [term_of(word)]) for span, word in _alternative_spellings(text)]
    matches = [span for span, span_terms in candidates if not terms.isdisjoint(span_terms)]
    spans: list[tuple[int, int]] = []
    for start, end in sorted(matches, key=lambda span: (span[0], -span[1])):
        if not spans or start >= spans[-1][1]:  # otherwise it is a part of the one before
            spans.append((start, end))
    return spans


_ACCENT_PATTERN = re.compile(  # of Latin and Greek; the stress of Cyrillic vowels; the points of Hebrew and Arabic
    "(?<=[a-z\u03b1-\u03c9])[\u0300-\u036f]+"
    "|(?<=[\u0430\u0435\u0438\u043e\u0443\u044b\u044d\u044e\u044f\u0454\u0456])[\u0300\u0301]"
    "|[\u0591-\u05c7\u064b-\u0652]"
)
_PLAIN_LETTERS = str.maketrans(  # for letters of their own to Unicode
    {"æ": "ae", "đ": "d", "ð": "d", "\u0131": "i", "ł": "l", "ø": "o", "œ": "oe", "þ": "th", "\u0451": "\u0435"}
)


def _strip_accents(word: str) -> str:
    """The word as it is written on a keyboard without accents."""
    decomposed = unicodedata.normalize("NFD", word.translate(_PLAIN_LETTERS))
    unaccented = unicodedata.normalize("NFC", _ACCENT_PATTERN.sub("", decomposed))
    return word if unaccented in STOP_WORDS or not unaccented else unaccented


@lru_cache(maxsize=1 << 16)
def term_of(word: str) -> str:
    """The term that stands for a word in lower case."""
    if not word.isascii():
        word = _strip_accents(word)[:_MAX_WORD_CHARS]
    if word in STOP_WORDS or not (word.isascii() and word.isalpha()):
        return word
    stemmed = stem(BASES.get(word, word))
    stemmed = _SPELLING_STEMS.get(stemmed, stemmed)
    return word if stemmed in STOP_WORDS else stemmed


@lru_cache(maxsize=1 << 16)
def _word_and_parts(word: str, *, inflected: bool) -> tuple[str, ...]:
    """The word as a term, and its parts; a stop word has no parts."""
    whole_term = term_of(word)
    unaccented = word if word.isascii() else _strip_accents(word)[:_MAX_WORD_CHARS]
    extra_parts = () if whole_term in STOP_WORDS else word_parts(unaccented, inflected=inflected)
    return tuple(dict.fromkeys((whole_term, *extra_parts)))


def stem(word: str) -> str:
    """Reduce a lower-case English word to its stem, as M. F. Porter's algorithm of 1980 does.

    It follows his own reference program, which departs from the article in two suffixes ("-bli", "-logi") and
    leaves words of one or two letters alone. Source: https://tartarus.org/martin/PorterStemmer/
    """
    if len(word) <= 2:  # noqa: PLR2004 - see above
        return word
    word = strip_inflection(word)
    word = _replace_suffix(word, _STEP_2)
    word = _replace_suffix(word, _STEP_3)
    return _strip_final_letter(_strip_suffix(word))


def strip_inflection(word: str) -> str:
    """What a lower-case English word and its plural, past and gerund have in common: the first of Porter's steps."""
    word = _strip_past_or_gerund(_strip_plural(word))
    return word[:-1] + "i" if word.endswith("y") and "v" in _letter_kinds(word[:-1]) else word


def _letter_kinds(letters: str) -> str:
    """Write c for a consonant and v for a vowel; y is a vowel after a consonant."""
    shape = ""
    for letter in letters:
        shape += "v" if letter in "aeiou" or (letter == "y" and shape.endswith("c")) else "c"
    return shape


def _measure(letters: str) -> int:
    """Count the vowel-consonant sequences: Porter's m."""
    return _letter_kinds(letters).count("vc")


def _ends_in_short_syllable(letters: str) -> bool:
    """Whether the end is consonant, vowel, consonant, the last not w, x or y: Porter's *o."""
    return _letter_kinds(letters).endswith("cvc") and letters[-1] not in "wxy"


def _ends_in_double_consonant(letters: str) -> bool:
    return letters[-2:-1] == letters[-1:] and _letter_kinds(letters).endswith("c")


def _strip_plural(word: str) -> str:
    if word.endswith(("sses", "ies")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _strip_past_or_gerund(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    rest = word.removesuffix("ed") if word.endswith("ed") else word.removesuffix("ing")
    if rest == word or "v" not in _letter_kinds(rest):
        return word
    if rest.endswith(("at", "bl", "iz")):
        return rest + "e"
    if _ends_in_double_consonant(rest):
        return rest if rest[-1] in "lsz" else rest[:-1]
    return rest + "e" if _measure(rest) == 1 and _ends_in_short_syllable(rest) else rest


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


def _replace_suffix(word: str, suffixes: dict[str, str]) -> str:
    """Replace the longest suffix that fits, if what stands before it has a measure above 0."""
    for size in range(min(7, len(word)), 2, -1):
        suffix = word[-size:]
        if suffix in suffixes:
            rest = word[:-size]
            return rest + suffixes[suffix] if _measure(rest) > 0 else word
    return word


def _strip_suffix(word: str) -> str:
    """Remove the longest suffix that fits, if what stands before it has a measure above 1."""
    for size in range(min(5, len(word)), 1, -1):
        if word[-size:] in _STEP_4:
            rest = word[: -3 if word.endswith("ion") else -size]
            return rest if _measure(rest) > 1 else word
    return word


def _strip_final_letter(word: str) -> str:
    rest = word[:-1]
    if word.endswith("e") and (_measure(rest) > 1 or (_measure(rest) == 1 and not _ends_in_short_syllable(rest))):
        word = rest
    return word[:-1] if word.endswith("ll") and _measure(word) > 1 else word


_SPELLING_STEMS = {stem(other): stem(base) for other, base in SPELLINGS.items()}
