"""A request as the verifier reads it: its words in one spelling, its numbers, quotations, code and names."""

from __future__ import annotations

import re
import unicodedata
from decimal import Decimal
from functools import lru_cache
from typing import NamedTuple

from langmem_adapters.experience.verifier_words import (
    CONTRACTIONS,
    ENGLISH,
    FOREIGN,
    FRAMES,
    NUMBERS,
    POLITE,
    SOFT,
    STOP,
    UNITS,
    stem_of,
)

__all__ = ["LONGEST", "Reading", "Word", "read"]

LONGEST = 2_000  # characters; what is longer is not compared word by word
_WORD = re.compile(
    r"https?://[^\s?!,]+|(?<![\w.+-])[\w.+-]+@[\w-]+\.[\w.]+|(?<![\w-])[-+]?\d+(?:[.:/]\d+)*(?:%|°)?|\d+(?:[.:/]\d+)*|(?:[^\W\d_]\.){2,}|"
    r"[^\W_]+(?:[_.:'#+-]+[^\W_]+)*(?:\+\+|#)?|[&/,?.!;<>=*^+-]"
)
_CODE = re.compile(
    r"`[^`]+`|\b\w+(?:\.\w+)*\([^()\s]*\)|\b\w*[^\W_]_\w+\b|\b__\w+__|\b[a-z][a-z0-9]*[A-Z]\w*|\b[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]*)+\b|"
    r"\b(?!(?:[A-Za-z]\.)+[A-Za-z]\b)[A-Za-z_]\w*(?:::|->|\.)[A-Za-z_]\w+(?:(?:::|->|\.)\w+)*|(?<!\w)--?[a-z][\w-]+|(?<!\w)[/~][\w.-]+(?:/[\w.-]+)+|"
    r"\b[A-Za-z]+\d+\w*\b|\b\w+(?:\+\+|#)(?!\w)"
)
_QUOTED = re.compile(r'"([^"]+)"|(?<!\w)\'([^\']+)\'(?!\w)|«([^»]+)»|「([^」]+)」|『([^』]+)』|《([^》]+)》|„([^"]+)"')
_SYMBOLS = re.compile(r"[+*^=<>|~\\×÷≤≥≠]|(?<=[\d)])\s*[-/](?=\s*[\d(])|(?<=\s)-(?=\s*[\d(])|(?<=\w)!(?=\w|=)")  # noqa: RUF001 - these signs are meant
_QUOTES = str.maketrans(
    {
        "\u2018": "'",
        "\u2019": "'",
        "\u02bc": "'",
        "\u201c": '"',
        "\u201d": '"',
        "\u2032": "'",
        "\u2033": '"',
        "\u00b4": "'",
        "\u2013": "-",
        "\u2014": " - ",
    }
)
_CONTRACTIONS = [(re.compile(pattern), plain) for pattern, plain in CONTRACTIONS]
_FRAMES = [(name, re.compile(pattern)) for name, pattern in FRAMES]
_GROUPED = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{2,3})*,\d{3}(?![\d,])")  # 10,000 and 1,00,000, but not 1,50
_SCALES = {
    "k": 1_000, "hundred": 100, "thousand": 1_000, "lac": 100_000, "lakh": 100_000, "mn": 1_000_000,
    "million": 1_000_000, "crore": 10_000_000, "bn": 10**9, "billion": 10**9, "trillion": 10**12,
}  # fmt: skip
_SCALED = re.compile(rf"(?<![\w.])(\d+(?:\.\d+)?)\s*({'|'.join(_SCALES)})s?\b", re.ASCII)
_MARK = re.compile(r"(?<![\w.,:/-])\d+([^\W\d_]{1,2})(?![\w-])")
_NO_MARKS = frozenset(UNITS) | frozenset(_SCALES) | frozenset(("st", "nd", "rd", "th", "l", "x"))
_SPOKEN = str.maketrans(
    {"%": " percent ", "$": " dollar ", "€": " euro ", "£": " pound ", "¥": " yen ", "₹": " rupee ", "°": " degrees "}
)
_NO_NAMES = STOP.union(SOFT, NUMBERS, POLITE) - {"it", "us", "who"}
_SPACELESS = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]")


class Word(NamedTuple):
    """A word in lower case, its stem, and whether it is written as a name is."""

    text: str
    stem: str
    capital: bool
    place: int
    """Among all the words of the request."""


class Reading(NamedTuple):
    """What :func:`read` found in a request."""

    text: str
    """In one spelling and lower case."""
    words: list[str]
    stems: list[str]
    content: list[Word]
    """The words that are no stop words."""
    numbers: tuple[str, ...]
    units: frozenset[str]
    symbols: tuple[str, ...]
    quoted: frozenset[str]
    code: frozenset[str]
    frame: str
    """Which kind of question it is."""
    english: bool
    sentences: int


@lru_cache(maxsize=64)  # a request is compared with several
def read(text: str) -> Reading:
    """Read a request. Pure."""
    plain = unicodedata.normalize("NFKC", text[:LONGEST]).translate(_QUOTES).replace('""', '"')
    lower = _one_spelling(plain.lower())
    words = [word for match in _WORD.finditer(lower) for word in _split(match[0])]
    words = [word for word in words if word not in POLITE]
    capitals = _capitals(plain)
    stops = STOP - {
        word for word in ("it", "us", "who") if re.search(rf"\b{word.upper()}\b", plain) and word in capitals
    }
    content = [
        Word(word, stem_of(word), word in capitals, place) for place, word in enumerate(words) if word not in stops
    ]
    month = {"may"} & capitals  # the one month that is a word besides
    return Reading(
        text=lower,
        words=words,
        stems=[stem_of(word) for word in words],
        content=content,
        numbers=tuple(sorted(word for word in words if word[0].isdigit() or (word[0] == "-" and word[1:2].isdigit()))),
        units=frozenset(UNITS[word] for word in words if word in UNITS) | month,
        symbols=_symbols(plain),
        quoted=frozenset(_bare(next(filter(None, found.groups()))) for found in _QUOTED.finditer(plain)),
        code=frozenset(found[0].strip("`").removesuffix("()") for found in _CODE.finditer(plain)) | _marks(plain),
        frame=_frame(lower.strip()),
        english=_is_english(words),
        sentences=len(re.findall(r"[.?!](?=\s+\w|\s*$)", plain)),
    )


def _one_spelling(text: str) -> str:
    for pattern, plain in _CONTRACTIONS:
        text = pattern.sub(plain, text)
    text = _GROUPED.sub(lambda found: found[0].replace(",", ""), text)
    text = re.sub(r"(?<=\d)(?:st|nd|rd|th)\b", "", text)
    return _SCALED.sub(_unscaled, text.translate(_SPOKEN))


def _unscaled(found: re.Match[str]) -> str:
    value = Decimal(found[1]) * _SCALES[found[2].rstrip("s")]
    return str(int(value)) if value == int(value) else str(value)


def _split(word: str) -> list[str]:  # noqa: PLR0911 - a ladder
    """The words that a match stands for."""
    if word in NUMBERS:
        return [NUMBERS[word]]
    if word[0].isdigit() or word[0] in "+-" or word.startswith("http") or "@" in word:
        return [word] if any(character.isalnum() for character in word) else []
    if not any(character.isalnum() for character in word):
        return []
    if _SPACELESS.search(word):
        return list(word)
    if ("." in word and all(len(part) <= 1 for part in word.split("."))) or word.startswith("non-"):
        return [word.replace(".", "").replace("-", "")]  # U.S.A., non-parametric
    if "-" in word and not any(character.isdigit() for character in word):
        return [NUMBERS.get(part, part) for part in re.split(r"[-']", word) if part]
    return [word.strip("'-.:")]


def _capitals(text: str) -> frozenset[str]:
    """Words in capitals, or with one where no sentence begins; nothing where all is in capitals."""
    if text.upper() == text:
        return frozenset()
    found: set[str] = set()
    before = "."
    for match in _WORD.finditer(text):
        word = match[0]
        inside = any(character.isupper() for character in word[1:])
        if word[0].isupper() and (inside or before not in {".", "?", "!", ":"}):
            found.update(part.lower() for part in re.split(r"[-']", word))
        before = word
    return frozenset(found - _NO_NAMES)


def _symbols(text: str) -> tuple[str, ...]:
    pictures = [] if text.isascii() else [one for one in text if unicodedata.category(one) in {"So", "Sk"}]
    return tuple(sorted([*(found.strip() for found in _SYMBOLS.findall(text)), *pictures]))


def _marks(text: str) -> frozenset[str]:
    """A number's letters that are neither a unit nor a scale: the 5s and the 3T of "iPhone 5s" and "OnePlus 3T"."""
    return frozenset(found[0] for found in _MARK.finditer(text) if found[1].lower() not in _NO_MARKS)


def _bare(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))


def _frame(text: str) -> str:
    if _FRAMES[0][1].search(text):
        return "how to"
    if _FRAMES[-1][1].search(text):
        return "whether"
    found = [(match.start(), n) for n, (_, pattern) in enumerate(_FRAMES[:-1]) if (match := pattern.search(text))]
    return _FRAMES[min(found)[1]][0] if found else "none"


def _is_english(words: list[str]) -> bool:
    if not words or sum(word.isascii() for word in words) < 0.8 * len(words):
        return False
    return sum(word in ENGLISH for word in words) >= sum(word in FOREIGN for word in words)
