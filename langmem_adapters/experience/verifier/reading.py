"""Read a request for the verifier: its words in one spelling, its numbers, quotations, code and names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import chain, dropwhile, pairwise
from typing import NamedTuple

from langmem_adapters.experience.verifier.forms import ACRONYMS, NAMESAKES, is_optional
from langmem_adapters.experience.verifier.piece_cache import cached_per_piece
from langmem_adapters.experience.verifier.questions import (
    MAKER_PATTERN,
    MAKER_VERBS,
    OPENING_PATTERN,
    QUESTION_FRAMES,
    REQUEST_PATTERN,
    TELL_ME_PATTERN,
    WHETHER_PATTERN,
    WORDING_REPLACEMENTS,
)
from langmem_adapters.experience.verifier.snippets import Snippets
from langmem_adapters.experience.verifier.spelling import GROUPED_DIGITS, MISSPELLINGS, MULTIPLIERS, normalize_spelling
from langmem_adapters.experience.verifier.symbols import cased_units, normalize_signs, symbols
from langmem_adapters.experience.verifier.wording import Wording, wording_of
from langmem_adapters.experience.verifier.words import (
    COURTESIES,
    ENGLISH_MARKERS,
    FOREIGN_MARKERS,
    NUMBER_WORDS,
    OPTIONAL_WORDS,
    POLITE_WORDS,
    STOP_WORDS,
    UNITS,
    stem_of,
)

MAX_COMPARED_CHARS = 2_000  # longer texts are not compared word by word
_MAX_QUESTION_CHARS = 300  # of a question whose wording may be replaced
_WORD = re.compile(
    r"https?://[^\s?!,]+|(?<![\w.+-])[\w.+-]+@[\w-]+\.[\w.]+|(?<![\w-])[-+]?\d+(?:[.:/]\d+)*(?:%|°)?|\d+(?:[.:/]\d+)*|(?:[^\W\d_]\.){2,}|"
    r"[^\W_]+(?:[_.:'#+-]+[^\W_]+)*(?:\+\+|#)?|[&/,?.!;<>=*^+-]"
)
_CODE = re.compile(
    r"`[^`\s]+`|\b\w*[^\W_]_\w+\b|\b__\w+__|\b[a-z][a-z0-9]*[A-Z]\w*|\b[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]*)+\b|"
    r"\b(?!(?:[A-Za-z]\.)+[A-Za-z]\b)[A-Za-z_]\w*(?:::|->|\.)[A-Za-z_]\w+(?:(?:::|->|\.)\w+)*|(?<!\w)--?[a-z][\w-]+|(?<!\w)[/~][\w.-]+(?:/[\w.-]+)+|"
    r"\b[A-Za-z]+\d+\w*\b|\b\w+(?:\+\+|#)(?!\w)"
)
_CAPITAL_WORD = re.compile(r"(?<=\w) ([A-Z]+)(?![\w'.])(?! [A-Z])")
_CAPITAL_LETTER = re.compile(r"(?<=\w )([AST])(?![\w'.])(?! [A-Z])")
_QUOTATION = re.compile(
    r'"([^"]+)"|(?<!\w)\'([^\']+)\'(?!\w)|«([^»]+)»|「([^」]+)」|『([^』]+)』|《([^》]+)》|„([^"]+)"'
)
_QUOTATION_MARK = re.compile("[\"'«「『《„]")
_PUNCTUATION = "\"'`().,;:?!"
_SENTENCE_ENDS = frozenset(".?!:")
_HYPHEN = re.compile(r"(?<=\w)-(?=\w)")
_FRAME = re.compile("|".join(f"({pattern})" for _, pattern in QUESTION_FRAMES))
_FRAME_START = re.compile("how|reason|wh")  # with which a frame begins that does not open the text
_LATER_QUESTION = re.compile(
    r"(?<=[.?!:])\s+(?:(?:can|could|will|would) you (?:please |kindly )?(?=explain|help|say|show|tell))?"
    r"([^\s.?!:][^.?!:]*\?)"
)
_OPENING, _WHETHER, _REQUEST = re.compile(OPENING_PATTERN), re.compile(WHETHER_PATTERN), re.compile(REQUEST_PATTERN)
_ASKS_WHETHER = re.compile(f"tell me if|{WHETHER_PATTERN}")
_TELL_ME = re.compile(TELL_ME_PATTERN)
_CLOSING = re.compile(
    r"(?<=[?.!,])\s+(?:many thanks|thanks a lot|(?:thanks|thank you) (?:in advance|so much|very much))[.! ]*$"
)
_MAKER = re.compile(MAKER_PATTERN)
_REPLACED_WORDING = re.compile("|".join(pattern for pattern, _ in WORDING_REPLACEMENTS))
_WORDING_REPLACEMENTS = [(re.compile(pattern), wording) for pattern, wording in WORDING_REPLACEMENTS]
_NUMBER_WITH_LETTERS = re.compile(r"(?<![\w.,:/-])\d+([^\W\d_]{1,2})(?![\w-])")
_NUMBER_SUFFIXES = frozenset(UNITS) | frozenset(MULTIPLIERS) | frozenset(("st", "nd", "rd", "th", "l", "x"))
_NUMERAL = re.compile(r"[ -](?<=[^\W\d_].)([IVX]+|[MDCLXVI]{2,})\b(?!')")
_FINAL_LETTERS = re.compile(r"\b[^\W\d_]+$")
_ROMAN = {"I": 1, "II": 2, "III": 3, "IV": 4, "VI": 6, "VII": 7, "VIII": 8, "IX": 9, "XI": 11, "XII": 12}
_NUMBERED_TITLE = re.compile(
    r"\b((?i:act|book|chapter|class|grade|level|part|phase|section|stage|title|type|volume|war)) "
    rf"((?<=[Ww]orld [Ww]ar )I|{'|'.join([*_ROMAN][1:])})\b(?!')"
)
"""Things that are numbered in both ways: "World War II", "world war 2". A V or an X may be a letter, an I a pronoun."""
_MAY_AS_MONTH = re.compile(
    r"(?<=\w[ ,-])May\b|\b(?:in|last|next|of|since|this|until|\d+(?:st|nd|rd|th)?) may\b|\bmay \d"
)
_STOP_WORD_NAMES = frozenset(("it", "us", "who"))  # stop words that are names in capitals
_NEVER_NAMES = STOP_WORDS.union(OPTIONAL_WORDS, NUMBER_WORDS, POLITE_WORDS) - _STOP_WORD_NAMES
_UNSPACED_SCRIPT = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]")


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
    frame: str
    """The kind of question, see :data:`QUESTION_FRAMES`; "none" for others."""
    later_questions: tuple[str, ...]
    """The questions that follow another sentence."""
    english: bool
    sentences: int
    courtesies: frozenset[str]
    """Courtesies that follow other words; those that open a text do not count."""
    wording: Wording
    snippets: Snippets = Snippets()
    """Code, data and formulas that were taken out of the text."""
    has_data: bool = False
    """Whether some of them were on lines of their own."""


@lru_cache(maxsize=64)  # a request is compared with several
def read(text: str) -> Reading:
    """Read a request."""
    plain = normalize_signs(text[:MAX_COMPARED_CHARS]).replace('""', '"')
    cased = "" if plain.upper() == plain else plain  # where all are capitals, they say nothing
    numerals = _numerals(plain)
    may_be_title = any(numeral != "I" or word == "war" for word, numeral in numerals)
    with_figures = _NUMBERED_TITLE.sub(_roman_to_figures, plain) if may_be_title else plain
    spelled = normalize_spelling(_lowercase(with_figures) if cased else with_figures.lower()).lstrip()
    opened = _CLOSING.sub("", _OPENING.sub("", spelled, count=1), count=1)
    normalized = _normalize_wording(opened)
    all_words = [*chain.from_iterable(_words_in(normalized.split()))]
    words = [word for word in all_words if word not in POLITE_WORDS]
    capitalized = _capitalized_words(cased)
    names = {word for word in _STOP_WORD_NAMES & capitalized if re.search(rf"\b{word.upper()}\b", plain)}
    stop_words = STOP_WORDS - names
    stems = [stem_of(word) for word in words]
    content = [
        Word(word, stem, word in capitalized, position)
        for position, (word, stem) in enumerate(zip(words, stems, strict=True))
        if word not in stop_words
    ]
    month = {"may"} if _MAY_AS_MONTH.search(plain) else set()  # the only month that is also a common word
    english = _is_english(words, names=capitalized)
    numbers = [word for word in words if word.removeprefix("-")[:1].isdigit()]
    if not english and not _UNSPACED_SCRIPT.search(plain):
        numbers += GROUPED_DIGITS.findall(plain)  # in many languages, 1,250 is 1.25
    return Reading(
        text=normalized,
        words=words,
        vocabulary=frozenset(words),
        stems=stems,
        content=content,
        numbers=tuple(sorted(numbers)),
        numerals=numerals,
        units=frozenset(UNITS[word] for word in words if word in UNITS) | month | cased_units(plain),
        symbols=symbols(plain, english=english),
        quoted=_quotations(cased or plain.lower()),
        namesakes=_namesakes(cased, words),
        code=_capital_stop_words(cased).union(*_identifiers_in(plain.split())),
        frame="whether" if _ASKS_WHETHER.match(opened) else question_frame(normalized.strip()),
        later_questions=tuple(_LATER_QUESTION.findall(normalized)),
        english=english,
        sentences=len(re.findall(r"[.?!](?=\s+\w|\s*$)", plain)),
        courtesies=_courtesies(all_words) if len(all_words) > len(words) else frozenset(),
        wording=wording_of(plain),
    )


def _numerals(text: str) -> frozenset[tuple[str, str]]:
    """Roman numerals, each with the word before it."""
    pieces = ((text[: match.start()].rsplit(maxsplit=1)[-1], match[1]) for match in _NUMERAL.finditer(text))
    return frozenset((word[0].lower(), numeral) for piece, numeral in pieces if (word := _FINAL_LETTERS.search(piece)))


def _roman_to_figures(match: re.Match[str]) -> str:
    return f"{match[1]} {_ROMAN[match[2]]}"


def _lowercase(text: str) -> str:
    """The text in lower case, except for a letter that is a name and would be a stop word: the A of "Terminal A"."""
    return "".join(part if n % 2 else part.lower() for n, part in enumerate(_CAPITAL_LETTER.split(text)))


def _normalize_wording(text: str) -> str:
    """A text that is without opening and closing phrases, in one wording for all that mean the same."""
    if match := _WHETHER.match(text):
        return text[match.end() :].rstrip("?.! ") + "?"
    text = _TELL_ME.sub("what is ", text)
    if match := _REQUEST.match(text):
        text = f"{match[1]} {text[match.end() :].rstrip('?. ').removesuffix(' for me')}"
    if match := _MAKER.match(text):
        return f"who {MAKER_VERBS[match[1]]} {text[match.end() :]}"
    is_replaced = len(text) <= _MAX_QUESTION_CHARS and _REPLACED_WORDING.match(text)
    for pattern, wording in _WORDING_REPLACEMENTS if is_replaced else ():
        if match := pattern.match(text):
            return match.expand(wording) + text[match.end() :]
    return text


@cached_per_piece
def _words_in(piece: str) -> tuple[str, ...]:
    """The words of a piece; no word has a space in it, so these make up the words of the text."""
    return tuple(word for match in _WORD.finditer(piece) for word in _split_word(match[0]))


def _split_word(word: str) -> list[str]:  # noqa: PLR0911 - a ladder
    """Split a match into its words, in one spelling."""
    word = MISSPELLINGS.get(word, word)
    if word in NUMBER_WORDS:
        return [NUMBER_WORDS[word]]
    if not any(map(str.isalnum, word)):
        return []
    if word[0].isdigit() or word[0] in "+-" or word.startswith("http") or "@" in word:
        return [word]
    if _UNSPACED_SCRIPT.search(word):
        return list(word)
    if all(len(part) <= 1 for part in word.split(".")) or word.startswith("non-"):
        return [word.replace(".", "").replace("-", "")]  # U.S.A., non-parametric
    if "-" in word and not any(character.isdigit() for character in word):
        return [NUMBER_WORDS.get(part, part) for part in re.split(r"[-']", word) if part]
    return [word]


def _courtesies(words: list[str]) -> frozenset[str]:
    return frozenset(COURTESIES[word] for word in dropwhile(POLITE_WORDS.__contains__, words) if word in COURTESIES)


def _capitalized_words(text: str) -> frozenset[str]:
    """Words with a capital within a sentence, or within the word."""
    capitalized: set[str] = set()
    word_before = "."
    for word in chain.from_iterable(_cased_words_in(text.split())):
        if word[0].isupper() and (word_before not in _SENTENCE_ENDS or any(map(str.isupper, word[1:]))):
            capitalized.update(re.split(r"[-']", word.lower()))
        word_before = word
    return frozenset(capitalized - _NEVER_NAMES)


@cached_per_piece
def _cased_words_in(piece: str) -> list[str]:
    return _WORD.findall(piece)


def _quotations(text: str) -> frozenset[str]:
    if not _QUOTATION_MARK.search(text):
        return frozenset()
    quotations = (next(filter(None, match.groups())) for match in _QUOTATION.finditer(text))
    return frozenset(" ".join(_HYPHEN.sub(" ", _lower_unless_label(q)).split()).rstrip(" .,!") for q in quotations)


def _lower_unless_label(quotation: str) -> str:
    """A quotation in lower case, except for a word in capitals that is to be written so: answer "YES"."""
    return quotation if len(quotation) > 1 and quotation.isupper() else quotation.lower()


def _namesakes(text: str, words: Iterable[str]) -> frozenset[tuple[str, bool]]:
    """Namesakes within a sentence; none, if the text does not begin with a capital: its names may be in lower case."""
    candidates = NAMESAKES.intersection(words)
    if not candidates or not text.lstrip()[:1].isupper():
        return frozenset()
    namesakes = set()
    for line in text.splitlines():
        for before, piece in pairwise(line.split()):
            word = piece.strip(_PUNCTUATION).removesuffix("'s")
            lower = word.lower()
            if lower in candidates and before[-1] not in _SENTENCE_ENDS:
                is_name = word.isupper() if lower in ACRONYMS else word[0].isupper()
                namesakes.add((lower, is_name))
    return frozenset(namesakes)


def _capital_stop_words(text: str) -> frozenset[str]:
    """Stop words and optional ones in capitals: "Terminal A", the OR of "an OR gate", UNION ALL; not "I".

    A single letter is given with the word before it.
    """
    words = set()
    for match in _CAPITAL_WORD.finditer(text):
        word, lower = match[1], match[1].lower()
        if word != "I" and (lower in STOP_WORDS or is_optional(lower)):
            words.add(word if len(word) > 1 else f"{text[: match.start()].rsplit(maxsplit=1)[-1]} {word}")
    return frozenset(words)


@cached_per_piece
def _identifiers_in(piece: str) -> frozenset[str]:
    """Identifiers, and numbers with letters that are no unit or scale: "iPhone 5s", "OnePlus 3T"; none has a blank."""
    numbers = {match[0] for match in _NUMBER_WITH_LETTERS.finditer(piece) if match[1].lower() not in _NUMBER_SUFFIXES}
    return frozenset(match[0].removesuffix("()") for match in _CODE.finditer(piece)) | numbers


def question_frame(text: str) -> str:
    """The kind of question whose pattern matches first; "none", if there is none."""
    starts = chain((0,), (match.start() for match in _FRAME_START.finditer(text)))
    match = next(filter(None, (_FRAME.match(text, start) for start in starts)), None)
    return QUESTION_FRAMES[match.lastindex - 1][0] if match and match.lastindex else "none"


def _is_english(words: list[str], *, names: frozenset[str]) -> bool:
    """Whether more words mark it as English than as another language; names, such as "Las Vegas", mark none."""
    if not words or sum(map(str.isascii, words)) < 0.8 * len(words):
        return False
    foreign_count = sum((word in FOREIGN_MARKERS or not word.isascii()) and word not in names for word in words)
    return not foreign_count or sum(map(ENGLISH_MARKERS.__contains__, words)) > foreign_count
