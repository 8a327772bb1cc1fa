"""Read a request for the verifier: its words in one spelling, its numbers, quotations, code and names."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from itertools import chain, pairwise
from typing import NamedTuple

from langmem_adapters.experience.verifier.forms import ACRONYMS, NAMESAKES, is_soft
from langmem_adapters.experience.verifier.piece_cache import of_each
from langmem_adapters.experience.verifier.questions import FRAMES, MAKERS, OPENING, REQUEST, TELLING, WHETHER, WORDINGS
from langmem_adapters.experience.verifier.spelling import GROUPED, SCALES, SLIPS, one_spelling
from langmem_adapters.experience.verifier.symbols import cased_units, raised, symbols
from langmem_adapters.experience.verifier.wording import Wording, wording_of
from langmem_adapters.experience.verifier.words import (
    COURTESIES,
    ENGLISH,
    FOREIGN,
    NUMBERS,
    POLITE,
    SOFT,
    STOP,
    UNITS,
    stem_of,
)

__all__ = ["LONGEST", "Reading", "Word", "in_plain_signs", "read"]

LONGEST = 2_000  # characters; longer texts are not compared word by word
_LONGEST_QUESTION = 300  # characters of a question whose wording may be replaced
_WORD = re.compile(
    r"https?://[^\s?!,]+|(?<![\w.+-])[\w.+-]+@[\w-]+\.[\w.]+|(?<![\w-])[-+]?\d+(?:[.:/]\d+)*(?:%|°)?|\d+(?:[.:/]\d+)*|(?:[^\W\d_]\.){2,}|"
    r"[^\W_]+(?:[_.:'#+-]+[^\W_]+)*(?:\+\+|#)?|[&/,?.!;<>=*^+-]"
)
_CODE = re.compile(
    r"`[^`\s]+`|\b\w*[^\W_]_\w+\b|\b__\w+__|\b[a-z][a-z0-9]*[A-Z]\w*|\b[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]*)+\b|"
    r"\b(?!(?:[A-Za-z]\.)+[A-Za-z]\b)[A-Za-z_]\w*(?:::|->|\.)[A-Za-z_]\w+(?:(?:::|->|\.)\w+)*|(?<!\w)--?[a-z][\w-]+|(?<!\w)[/~][\w.-]+(?:/[\w.-]+)+|"
    r"\b[A-Za-z]+\d+\w*\b|\b\w+(?:\+\+|#)(?!\w)"
)
_CAPITAL = re.compile(r"(?<=\w) ([A-Z]+)(?![\w'.])(?! [A-Z])")
_LETTER = re.compile(r"(?<=\w )([AST])(?![\w'.])(?! [A-Z])")
_QUOTED = re.compile(r'"([^"]+)"|(?<!\w)\'([^\']+)\'(?!\w)|«([^»]+)»|「([^」]+)」|『([^』]+)』|《([^》]+)》|„([^"]+)"')
_MAY_BE_QUOTED = re.compile("[\"'«「『《„]")
_MARKS = "\"'`().,;:?!"
_ENDS = frozenset(".?!:")
_HYPHEN = re.compile(r"(?<=\w)-(?=\w)")
_QUOTES = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u02bc\u2032\u00b4", "'"),
        **dict.fromkeys("\u201c\u201d\u2033", '"'),
        **dict.fromkeys("\u2010\u2012\u2013\u2212", "-"),
        "\u2014": " - ",
    }
)
_FRAMED = re.compile("|".join(f"({pattern})" for _, pattern in FRAMES))
_OPENING, _WHETHER, _REQUEST = re.compile(OPENING), re.compile(WHETHER), re.compile(REQUEST)
_TELLING = re.compile(TELLING)
_CLOSING = re.compile(
    r"(?<=[?.!,])\s+(?:many thanks|thanks a lot|(?:thanks|thank you) (?:in advance|so much|very much))[.! ]*$"
)
_MAKER = re.compile(MAKERS[0])
_WORDINGS = [(re.compile(pattern), wording) for pattern, wording in WORDINGS]
_MARK = re.compile(r"(?<![\w.,:/-])\d+([^\W\d_]{1,2})(?![\w-])")
_NO_MARKS = frozenset(UNITS) | frozenset(SCALES) | frozenset(("st", "nd", "rd", "th", "l", "x"))
_NUMERAL = re.compile(r"\b([^\W\d_]+)[ -]([IVX]+|[MDCLXVI]{2,})\b(?!')")
_ROMAN = {"I": 1, "II": 2, "III": 3, "IV": 4, "VI": 6, "VII": 7, "VIII": 8, "IX": 9, "XI": 11, "XII": 12}
_RANKED = re.compile(
    r"\b((?i:act|book|chapter|class|grade|level|part|phase|section|stage|title|type|volume|war)) "
    rf"((?<=[Ww]orld [Ww]ar )I|{'|'.join([*_ROMAN][1:])})\b(?!')"
)
"""Things that are numbered in both ways: "World War II", "world war 2". A V or an X may be a letter, an I a pronoun."""
_NAMES_TOO = frozenset(("it", "us", "who"))  # stop words that are names in capitals
_NO_NAMES = STOP.union(SOFT, NUMBERS, POLITE) - _NAMES_TOO
_SPACELESS = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]")


class Word(NamedTuple):
    """A word in lower case, its stem, and whether it is capitalised like a name."""

    text: str
    stem: str
    capital: bool
    place: int
    """Its index among all the words of the request."""


class Reading(NamedTuple):
    """What :func:`read` found in a request."""

    text: str
    """The request in one spelling and lower case, except for the letter of "Terminal A"."""
    words: list[str]
    vocabulary: frozenset[str]
    """The set of the words."""
    stems: list[str]
    content: list[Word]
    """The words that are not stop words."""
    numbers: tuple[str, ...]
    numerals: frozenset[tuple[str, str]]
    """Roman numerals, each with the word before it; the "I" of "can I" is among them."""
    units: frozenset[str]
    symbols: tuple[str, ...]
    quoted: frozenset[str]
    """Quotations in lower case, without the full stop at the end."""
    namesakes: frozenset[tuple[str, bool]]
    """Words that mean something else with a capital, and whether they have one."""
    code: frozenset[str]
    snippets: tuple[str, ...]
    """Code, data and formulas that were taken out of the text."""
    frame: str
    """The kind of question, see :data:`FRAMES`; "none" for others."""
    english: bool
    sentences: int
    courtesies: frozenset[str]
    """Courtesies that follow other words; those that open a text do not count."""
    wording: Wording


@lru_cache(maxsize=64)  # a request is compared with several
def read(text: str) -> Reading:
    """Read a request."""
    plain = in_plain_signs(text[:LONGEST])
    numerals = frozenset((found[1].lower(), found[2]) for found in _NUMERAL.finditer(plain))
    ranked = _RANKED.sub(_in_figures, plain) if any(n != "I" or word == "war" for word, n in numerals) else plain
    lower = _one_wording(one_spelling(_in_small_letters(ranked)))
    said = [*chain.from_iterable(_words_in(lower.split()))]
    words = [word for word in said if word not in POLITE]
    capitals = _capitals(plain)
    stops = STOP - {word for word in _NAMES_TOO & capitals if re.search(rf"\b{word.upper()}\b", plain)}
    stems = [stem_of(word) for word in words]
    content = [
        Word(word, stem, word in capitals, place)
        for place, (word, stem) in enumerate(zip(words, stems, strict=True))
        if word not in stops
    ]
    month = {"may"} & capitals  # the only month that is also a common word
    english = _is_english(words)
    numbers = [word for word in words if word[0].isdigit() or (word[0] == "-" and word[1:2].isdigit())]
    if not english and not _SPACELESS.search(plain):
        numbers += GROUPED.findall(plain)  # in many languages, 1,250 is 1.25
    return Reading(
        text=lower,
        words=words,
        vocabulary=frozenset(words),
        stems=stems,
        content=content,
        numbers=tuple(sorted(numbers)),
        numerals=numerals,
        units=frozenset(UNITS[word] for word in words if word in UNITS) | month | cased_units(plain),
        symbols=symbols(plain, english=english),
        quoted=_quoted(plain),
        namesakes=_namesakes(plain, words),
        code=_code(plain) | _capital_stops(plain),
        snippets=(),
        frame=_frame(lower.strip()),
        english=english,
        sentences=len(re.findall(r"[.?!](?=\s+\w|\s*$)", plain)),
        courtesies=_courtesies(said) if len(said) > len(words) else frozenset(),
        wording=wording_of(plain),
    )


def in_plain_signs(text: str) -> str:
    """A text with one sign for equivalent ones: straight quotation marks, and x^2 for x²."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", raised(text)).translate(_QUOTES)
    return text.replace('""', '"')


def _in_figures(found: re.Match[str]) -> str:
    return f"{found[1]} {_ROMAN[found[2]]}"


def _in_small_letters(text: str) -> str:
    """The text in lower case, except for a letter that is a name and would be a stop word: the A of "Terminal A"."""
    if text.upper() == text:
        return text.lower()
    return "".join(part if n % 2 else part.lower() for n, part in enumerate(_LETTER.split(text)))


def _one_wording(text: str) -> str:
    """A text without opening and closing phrases, in one wording for all that mean the same."""
    text = _CLOSING.sub("", _OPENING.sub("", text.lstrip(), count=1), count=1)
    if found := _WHETHER.match(text):
        return text[found.end() :].rstrip("?.! ") + "?"
    text = _TELLING.sub("what is ", text)
    if found := _REQUEST.match(text):
        text = f"{found[1]} {text[found.end() :].rstrip('?. ').removesuffix(' for me')}"
    if found := _MAKER.match(text):
        return f"who {MAKERS[1][found[1]]} {text[found.end() :]}"
    for pattern, wording in _WORDINGS if len(text) <= _LONGEST_QUESTION else ():
        if found := pattern.match(text):
            return found.expand(wording) + text[found.end() :]
    return text


@of_each
def _words_in(piece: str) -> tuple[str, ...]:
    """The words of a piece; no word has a space in it, so these make up the words of the text."""
    return tuple(word for match in _WORD.finditer(piece) for word in _split(match[0]))


def _split(word: str) -> list[str]:  # noqa: PLR0911 - a ladder
    """Split a match into its words, in one spelling."""
    word = SLIPS.get(word, word)
    if word in NUMBERS:
        return [NUMBERS[word]]
    if word[0].isdigit() or word[0] in "+-" or word.startswith("http") or "@" in word:
        return [word] if any(character.isalnum() for character in word) else []
    if not any(character.isalnum() for character in word):
        return []
    if _SPACELESS.search(word):
        return list(word)
    if all(len(part) <= 1 for part in word.split(".")) or word.startswith("non-"):
        return [word.replace(".", "").replace("-", "")]  # U.S.A., non-parametric
    if "-" in word and not any(character.isdigit() for character in word):
        return [NUMBERS.get(part, part) for part in re.split(r"[-']", word) if part]
    return [word]


def _courtesies(said: list[str]) -> frozenset[str]:
    first = next((n for n, word in enumerate(said) if word not in POLITE), len(said))
    return frozenset(COURTESIES[word] for word in said[first:] if word in POLITE)


def _capitals(text: str) -> frozenset[str]:
    """Words in capitals, or with a capital within a sentence; none, if the whole text is in capitals."""
    if text.upper() == text:
        return frozenset()
    found: set[str] = set()
    begins = True
    for first, others, ends in _capitals_in(text.split()):
        found |= others if begins else first | others
        begins = begins if ends is None else ends
    return frozenset(found - _NO_NAMES)


@of_each
def _capitals_in(piece: str) -> tuple[frozenset[str], frozenset[str], bool | None]:
    """Capitalised words of a piece: its first, unless a sentence begins there; the others; whether one ends there."""
    found: tuple[set[str], set[str]] = (set(), set())
    before = None
    for word in _WORD.findall(piece):
        if word[0].isupper():
            inside = any(character.isupper() for character in word[1:])
            if inside or before not in _ENDS:
                found[inside or before is not None].update(part.lower() for part in re.split(r"[-']", word))
        before = word
    return frozenset(found[0]), frozenset(found[1]), None if before is None else before in _ENDS


def _quoted(text: str) -> frozenset[str]:
    if not _MAY_BE_QUOTED.search(text):
        return frozenset()
    quoted = (next(filter(None, found.groups())).lower() for found in _QUOTED.finditer(text))
    return frozenset(" ".join(_HYPHEN.sub(" ", one).split()).rstrip(" .,!") for one in quoted)


def _namesakes(text: str, words: Iterable[str]) -> frozenset[tuple[str, bool]]:
    """Namesakes within a sentence; none, if the text does not begin with a capital: its names may be in lower case."""
    known = NAMESAKES.intersection(words)
    if not known or text.upper() == text or not text.lstrip()[:1].isupper():
        return frozenset()
    found = set()
    for line in text.splitlines():
        for before, piece in pairwise(line.split()):
            word = piece.strip(_MARKS).removesuffix("'s")
            if word.lower() in known and before[-1] not in ".?!:":
                found.add((word.lower(), word.isupper() if word.lower() in ACRONYMS else word[0].isupper()))
    return frozenset(found)


def _code(text: str) -> frozenset[str]:
    """Identifiers and marks, which have no spaces."""
    return frozenset().union(*_code_in(text.split()))


def _capital_stops(text: str) -> frozenset[str]:
    """Stop and soft words in capitals: the A of "Terminal A", the OR of "an OR gate", UNION ALL; not "I"."""
    found = [match for match in _CAPITAL.finditer(text) if match[1] != "I" and _says_little(match[1].lower())]
    if not found or text.upper() == text:
        return frozenset()
    return frozenset(
        match[1] if len(match[1]) > 1 else f"{text[: match.start()].rsplit(maxsplit=1)[-1]} {match[1]}"
        for match in found
    )


def _says_little(word: str) -> bool:
    return word in STOP or is_soft(word)


@of_each
def _code_in(piece: str) -> frozenset[str]:
    """Identifiers, and numbers with letters that are no unit or scale: "iPhone 5s", "OnePlus 3T"."""
    marks = {found[0] for found in _MARK.finditer(piece) if found[1].lower() not in _NO_MARKS}
    return frozenset(found[0].removesuffix("()") for found in _CODE.finditer(piece)) | marks


def _frame(text: str) -> str:
    """The kind of question whose pattern matches first; "none", if there is none."""
    found = _FRAMED.search(text)
    return FRAMES[found.lastindex - 1][0] if found and found.lastindex else "none"


def _is_english(words: list[str]) -> bool:
    if not words or sum(map(str.isascii, words)) < 0.8 * len(words):
        return False
    return sum(map(ENGLISH.__contains__, words)) >= sum(map(FOREIGN.__contains__, words))
