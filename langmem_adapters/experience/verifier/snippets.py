"""Separate code, data and formulas, of which every character, line and blank counts, from the prose of a request.

They are compared exactly, whereas the prose may say the same in other words.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from langmem_adapters.experience.verifier.piece_cache import cached_per_piece
from langmem_adapters.experience.verifier.symbols import normalize_signs
from langmem_adapters.experience.verifier.words import POLITE_WORDS, STOP_WORDS

_PLACEHOLDER = "snippet"  # replaces a snippet in the prose
_MAX_WORD_CHARS = 80  # no word is longer
_MAY_BE_CODE = re.compile(
    r"[`{}\[\]\\|~^=<>$*(:/&@!]|,\S|[-+][^\w\s-]|--|\+\+|\w;|(?<!\S)\.(?!\S)|\.\.|[ACGTU]{6}|\n|"
    rf"(?<!\S)[!-~]{{{_MAX_WORD_CHARS + 1}}}"
)
_FENCE = re.compile(r"\s*(?:```|~~~)([^`]*)")
_LANGUAGE = re.compile(r"[\w+#.-]*")  # any more beside the opening fence is code
_SHORT_LANGUAGES = {"cpp": "c++", "js": "javascript", "py": "python", "ts": "typescript", "yml": "yaml"}
_PIECE = re.compile(r"\S+")
_BACKTICKED = re.compile(r"`([^`\n]+)`")
_PLAIN_NAME = re.compile(r"\s*[\w.]+(?:\(\))?\s*")  # compared by the guard "code"
_CODE_SIGN = re.compile(
    r"[{}\[\]\\|~^=<>]|\$(?!\d)|\*|\w\((?!\)|e?s\))|::|->|&&|(?<![a-zA-Z])\+\+|^[&!]\w|^@(?=\w+[.(\[])|"
    r"^(?:\.{1,2}|~)?/(?=.)|\w/$|[A-Za-z\"']:[^\s/]|(?:[^\s,]*[A-Za-z][^\s,]*,){2,}\S|^[-+][^\w\s-]|\w;$|^[ACGTU]{6,}$|\w\.\.+\w"
)
_NOT_CODE = re.compile(r"^\*{1,2}\w+\*{1,2}$|^<3$|^w/$|^https?://")  # an address is compared exactly anyway
_OPERATOR = re.compile(r"[=<>!+*/%&|^-]?=|[<>|^*%@]|<<|>>|\*\*|//|&&|\|\||->|=>|\.{1,2}|--")
_SUM_OPERATORS = frozenset("+-/")
_NOT_A_FORMULA = re.compile(r"[+*/<>=-]\s*[+*/<>=-]|[\"'\[]")
_CURLY_QUOTES = re.compile("[“”‘’]")  # noqa: RUF001 - meant
_QUOTED = re.compile(r"^“([^“”]+)”$")
_SPACED_SIGN = re.compile(r"(?:(?<!\s)\s+|)([+*/<>=-])\s*")  # each run of blanks is matched once, from its first
_LOGICAL_WORDS = frozenset(("and", "if", "not", "or", "return", "while"))
_CODE_INTRODUCTION = re.compile(
    r"\b(?:this|these|following|given|below|the)\b[^:]{0,80}\b(class|code|command|config|css|csv|diff|equation|error|expression|"
    r"formula|function|html|json|log|loop|method|pattern|program|quer(?:y|ies)|regex|script|snippet|sql|statement|table|"
    r"traceback|xml|yaml)s?(?:\s+\w+){0,2}:\s+(?!\")(?=[^`]*$)",
    re.IGNORECASE,
)
_FINAL_PLACEHOLDER = re.compile(rf"(?<=[.?!:]) {_PLACEHOLDER}$")  # removed, as for code on a line of its own
_LIST_ITEM = re.compile(r"(?:\d+[.)]|[-*•])\s")
_END_PUNCTUATION = ".,;:!?"
_ENDS_THAT_MATTER = frozenset(("equation", "expression", "formula", "pattern", "regex"))
_MAX_CHARS = 8_000  # every line of a longer text is compared exactly
_MAX_CACHED_LINES = 128  # most of a request are in the stored one too, and it is compared with several
_MAX_FRAGMENT_WORDS = 2  # a line with no more is not a sentence, whatever its end
_MAX_UNPUNCTUATED_WORDS = 5  # a line without punctuation at its end must have more to be a sentence
_MIN_STOP_WORDS = 2  # of such a line


class Snippets(NamedTuple):
    """The code, data and formulas of a request."""

    texts: tuple[str, ...] = ()
    """In order: lines with their indentation, and pieces of lines."""
    places: tuple[int, ...] = ()
    """Of each whole line, how many lines of prose are before it; () if all are before the prose, or after it."""


class Parts(NamedTuple):
    """A request in two parts."""

    prose: str
    """With one sign for equivalent ones."""
    snippets: Snippets = Snippets()
    has_data: bool = False
    """Whether there is code or data on lines of its own."""


class _Line(NamedTuple):
    text: str
    is_prose: bool


def separate_snippets(one: str, other: str) -> tuple[Parts, Parts]:
    """Split two requests: code that one has between backticks, in a fence or on its own line is code in both."""
    if max(len(one), len(other)) > _MAX_CHARS:
        return Parts(one, _all_lines(one)), Parts(other, _all_lines(other))
    plain, other_plain = normalize_signs(one), normalize_signs(other)
    if not (_MAY_BE_CODE.search(plain) or _MAY_BE_CODE.search(other_plain)):
        return Parts(plain), Parts(other_plain)
    (lines, code, languages), (other_lines, other_code, other_languages) = _read_fences(one), _read_fences(other)
    fenced = code | other_code
    classified, other_classified = _classified_lines(lines, fenced), _classified_lines(other_lines, fenced)
    marked = {code.strip() for line in (*classified, *other_classified) for code in _marked_code(line)}
    parts, other_parts = _to_parts(classified, marked), _to_parts(other_classified, marked)
    if languages and other_languages and languages != other_languages:
        return _with_codes(parts, languages), _with_codes(other_parts, other_languages)
    return parts, other_parts


def _with_codes(parts: Parts, codes: tuple[str, ...]) -> Parts:
    return parts._replace(snippets=parts.snippets._replace(texts=codes + parts.snippets.texts))


def _all_lines(text: str) -> Snippets:
    return Snippets(tuple(line.rstrip() for line in text.splitlines() if line.strip()))


def _read_fences(text: str) -> tuple[list[str], set[str], tuple[str, ...]]:
    """All lines but the fences, the lines in fences, and the languages that these name."""
    lines: list[str] = []
    code: set[str] = set()
    languages: list[str] = []
    inside = False
    for line in map(str.rstrip, text.splitlines()):
        fence = _FENCE.fullmatch(line)
        note = fence[1].strip() if fence else ""
        if not fence or not _LANGUAGE.fullmatch(note):
            lines.append(note or line)
            code |= {lines[-1].strip()} if inside or fence else set()
        elif note:
            languages.append(_SHORT_LANGUAGES.get(note.lower(), note.lower()))
        inside ^= bool(fence)
    return lines, code, tuple(languages)


def _classified_lines(lines: list[str], fenced: Collection[str]) -> list[_Line]:
    """The lines without common indentation, of prose and of data; only blank lines between lines of data are kept."""
    indentation = _indentation(lines)
    are_prose = [line.strip() not in fenced and _is_prose(line[indentation:]) for line in lines]
    filled = [n for n, line in enumerate(lines) if line]
    if filled and not any(are_prose):  # one line must be the instruction
        begins_with_code = any(_code_runs(lines[filled[0]].split()))
        are_prose[filled[-1] if begins_with_code else filled[0]] = True
    data = {n for n in filled if not are_prose[n]}
    indentation = _indentation(lines[n] for n in data)
    return [
        _Line(line if is_prose else line[indentation:], is_prose)
        for n, (line, is_prose) in enumerate(zip(lines, are_prose, strict=True))
        if line or data.issuperset((n - 1, n + 1))
    ]


def _indentation(lines: Iterable[str]) -> int:
    """How many blanks begin each line; a tab is none of them, as it may matter."""
    return min((len(line) - len(line.lstrip(" ")) for line in lines if line), default=0)


def _marked_code(line: _Line) -> Iterable[str]:
    """The code of a line that the other request may have within a line."""
    if line.is_prose:
        return (code for code in _BACKTICKED.findall(line.text) if not _PLAIN_NAME.fullmatch(code))
    return [line.text] if " " in line.text.strip() else []


def _to_parts(lines: Iterable[_Line], marked: Collection[str]) -> Parts:
    prose: list[str] = []
    snippets: list[str] = []
    places: list[int] = []
    prose_lines = 0
    for line in lines:
        if line.is_prose:
            pieces = [*_split_prose(line.text, marked)]
            text = " ".join(_PLACEHOLDER if isinstance(piece, _Code) else piece for piece in pieces)
            prose.append(_FINAL_PLACEHOLDER.sub("", text))
            snippets += (piece for piece in pieces if isinstance(piece, _Code))
            prose_lines += not _is_courtesy(prose[-1])
        else:
            snippets.append(line.text)
            places.append(prose_lines)
    is_apart = {*places} in ({0}, {prose_lines})  # then the instruction and the code may change places
    code = Snippets(tuple(snippets), () if is_apart else tuple(places))
    return Parts(normalize_signs("\n".join(prose)), code, has_data=bool(places))


def _is_courtesy(line: str) -> bool:
    return POLITE_WORDS.issuperset(word.strip(_END_PUNCTUATION).lower() for word in line.split())


class _Code(str):
    """Code within a line of prose."""

    __slots__ = ()


def _split_prose(line: str, marked_code: Collection[str]) -> Iterator[str]:
    """The words of a line of prose, and its code."""
    present = sorted((code for code in marked_code if code in line), key=len, reverse=True)
    pattern = re.compile("|".join([*(rf"`?(?<!\w){re.escape(code)}(?!\w)`?" for code in present), _BACKTICKED.pattern]))
    start = 0
    for match in pattern.finditer(line):
        code = match[0].strip("`")
        if code in marked_code or not _PLAIN_NAME.fullmatch(code):
            yield from _split_unmarked(line[start : match.start()])
            yield _Code(code.strip())
            start = match.end()
    yield from _split_unmarked(line[start:])


@lru_cache(maxsize=_MAX_CACHED_LINES)
def _split_unmarked(text: str) -> Sequence[str]:
    """The words of a text without backticks, and its code, which follows a colon or has signs."""
    introduction = _CODE_INTRODUCTION.search(text) if ":" in text else None
    spans = [match.span() for match in _PIECE.finditer(text, 0, introduction.end() if introduction else len(text))]
    pieces = [text[start:end] for start, end in spans]
    split: list[str] = []
    done = 0
    for start, end in _code_runs(pieces if text.isascii() else [*map(normalize_signs, pieces)]):
        code = text[spans[start][0] : spans[end - 1][1]]
        split += [*pieces[done:start], _Code(_compact_formula(code.rstrip(_end_punctuation(code, pieces[end:]))))]
        done = end
    split += pieces[done:]
    if introduction and (introduced_code := text[introduction.end() :].strip()):
        is_pattern = introduction[1].lower() in _ENDS_THAT_MATTER
        split.append(_Code(introduced_code if is_pattern else introduced_code.rstrip(".?!")))
    return split


def _end_punctuation(code: str, next_pieces: Sequence[str]) -> str:
    """The signs at the end of a piece of code that belong to the sentence around it."""
    if not next_pieces:
        return _END_PUNCTUATION
    if not any(map(str.isalnum, code)):  # "*?" within a sentence is a sign
        return ""
    return ",;:" if next_pieces[0][0].islower() else _END_PUNCTUATION


def _code_runs(pieces: Sequence[str]) -> Iterator[tuple[int, int]]:
    """The runs of pieces that are code, with the operands of operators and all between brackets."""
    is_code = [*_are_code(pieces)]
    has_sum = "=" in pieces  # then a dash and a slash are operators too
    is_operator = [bool(_OPERATOR.fullmatch(piece)) or (has_sum and piece in _SUM_OPERATORS) for piece in pieces]
    i = 0
    while i < len(pieces):
        in_brackets = pieces[i].startswith("(") and i > 0 and pieces[i - 1].lower() in _LOGICAL_WORDS
        if not (is_code[i] or in_brackets or any(is_operator[i + 1 : i + 2])):
            i += 1
            continue
        start, depth = i, 0
        while i < len(pieces) and (i == start or depth > 0 or is_code[i] or is_operator[i] or is_operator[i - 1]):
            depth += sum(map(pieces[i].count, "([{")) - sum(map(pieces[i].count, ")]}"))
            i += 1
        yield start, i


@cached_per_piece
def _are_code(piece: str) -> bool:
    piece = piece.strip(_END_PUNCTUATION + "\"'").lstrip("(")
    piece = piece if "(" in piece else piece.rstrip(")")
    return len(piece) > _MAX_WORD_CHARS or (bool(_CODE_SIGN.search(piece)) and not _NOT_CODE.search(piece))


def _compact_formula(code: str) -> str:
    """A formula without blanks around its signs, unless they may matter: x = 5 and x=5, [1 -2] and [1 - 2]."""
    code = _QUOTED.sub(r'"\1"', code)  # what is quoted is code, not the marks
    if _CURLY_QUOTES.search(code):
        return code
    code = normalize_signs(code)
    if _NOT_A_FORMULA.search(code) or len(_SPACED_SIGN.findall(code)) == 1:
        return code
    return _SPACED_SIGN.sub(r"\1", code)


@lru_cache(maxsize=_MAX_CACHED_LINES)
def _is_prose(line: str) -> bool:
    """Whether a line is a sentence but no list item, or only a courtesy."""
    words = line.split()
    if len(words) <= _MAX_FRAGMENT_WORDS or line[0].isspace() or _LIST_ITEM.match(line):
        return bool(words) and _is_courtesy(line)
    end = unicodedata.normalize("NFKC", line[-1])
    code_pieces = sum(_are_code(words))
    if end in ".?!。":
        return 2 * code_pieces < len(words)
    if code_pieces or end == ":":
        return not code_pieces
    stop_words = sum(word.lower() in STOP_WORDS for word in words)
    return len(words) > _MAX_UNPUNCTUATED_WORDS and stop_words >= _MIN_STOP_WORDS
