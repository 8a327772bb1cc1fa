"""Separate code, data and formulas, of which every character, line and blank counts, from the prose of a request.

They are compared exactly, whereas the prose may say the same in other words.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from langmem_adapters.experience.verifier.piece_cache import cached_per_piece
from langmem_adapters.experience.verifier.words import POLITE_WORDS, STOP_WORDS

__all__ = ["Parts", "separate_snippets"]

_PLACEHOLDER = "snippet"  # replaces a snippet in the prose
_MAY_BE_CODE = re.compile(r"[`{}\[\]\\|~^=<>$*(:/&@!]|,\S|[-+][^\w\s-]|--|\+\+|\w;|(?<!\S)\.(?!\S)|\.\.|[ACGTU]{6}|\n")
_FENCE = re.compile(r"\s*(?:```|~~~)")
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
_SPACED_SIGN = re.compile(r"(?:(?<!\s)\s+|)([+*/<>=-])\s*")  # each run of blanks is matched once, from its first
_LOGICAL_WORDS = frozenset(("and", "if", "not", "or", "return", "while"))
_CODE_INTRODUCTION = re.compile(
    r"\b(?:this|these|following|given|below|the)\b[^:]{0,80}\b(?:class|code|command|config|css|csv|diff|equation|error|expression|"
    r"formula|function|html|json|log|loop|method|pattern|program|quer(?:y|ies)|regex|script|snippet|sql|statement|table|"
    r"traceback|xml|yaml)s?(?:\s+\w+){0,2}:\s+(?!\")(?=[^`]*$)",
    re.IGNORECASE,
)
_FINAL_PLACEHOLDER = re.compile(rf"(?<=[.?!:]) {_PLACEHOLDER}$")  # removed, as for code on a line of its own
_LIST_ITEM = re.compile(r"(?:\d+[.)]|[-*•])\s")
_END_PUNCTUATION = ".,;:!?"
_MAX_CHARS = 8_000  # every line of a longer text is compared exactly
_MAX_WORD_CHARS = 80  # no word is longer
_MAX_FRAGMENT_WORDS = 2  # a line with no more is not a sentence, whatever its end
_MAX_UNPUNCTUATED_WORDS = 5  # a line without punctuation at its end must have more to be a sentence
_MIN_STOP_WORDS = 2  # of such a line


class Parts(NamedTuple):
    """A request in two parts."""

    prose: str
    snippets: tuple[str, ...]
    """Code, data and formulas, in order: lines with their indentation, and pieces of lines."""


class _Line(NamedTuple):
    text: str
    is_prose: bool


def separate_snippets(one: str, other: str) -> tuple[Parts, Parts]:
    """Split two requests: code that one has between backticks, in a fence or on its own line is code in both."""
    if max(len(one), len(other)) > _MAX_CHARS:
        return Parts(one, _all_lines(one)), Parts(other, _all_lines(other))
    if not (_MAY_BE_CODE.search(one) or _MAY_BE_CODE.search(other)):
        return Parts(one, ()), Parts(other, ())
    fenced = {*_fenced_lines(one), *_fenced_lines(other)}
    lines, other_lines = _classified_lines(one, fenced), _classified_lines(other, fenced)
    marked = {code.strip() for line in (*lines, *other_lines) for code in _marked_code(line)}
    return _to_parts(lines, marked), _to_parts(other_lines, marked)


def _all_lines(text: str) -> tuple[str, ...]:
    return tuple(line.rstrip() for line in text.splitlines() if line.strip())


def _fenced_lines(text: str) -> Iterator[str]:
    inside = False
    for line in text.splitlines() if "\n" in text else ():
        if _FENCE.match(line):
            inside = not inside
        elif inside:
            yield line.strip()


def _classified_lines(text: str, fenced: Collection[str]) -> list[_Line]:
    """The lines without common indentation, of prose and of data; only blank lines between lines of data are kept."""
    lines = [line.rstrip() for line in text.expandtabs().splitlines() if not _FENCE.match(line)]
    indentation = _indentation(lines)
    classified = [_Line(line, line.strip() not in fenced and _is_prose(line[indentation:])) for line in lines]
    filled = [n for n, line in enumerate(classified) if line.text]
    if filled and not any(classified[n].is_prose for n in filled):  # one line must be the instruction
        begins_with_code = any(_code_runs(classified[filled[0]].text.split()))
        n = filled[-1] if begins_with_code else filled[0]
        classified[n] = _Line(classified[n].text, is_prose=True)
    indentation = _indentation(line.text for line in classified if not line.is_prose)
    return [
        line if line.is_prose else _Line(line.text[indentation:], is_prose=False)
        for before, line, after in zip([None, *classified], classified, [*classified[1:], None], strict=False)
        if line.text or (_is_data(before) and _is_data(after))
    ]


def _is_data(line: _Line | None) -> bool:
    return line is not None and bool(line.text) and not line.is_prose


def _indentation(lines: Iterable[str]) -> int:
    return min((len(line) - len(line.lstrip()) for line in lines if line), default=0)


def _marked_code(line: _Line) -> Iterable[str]:
    """The code of a line that the other request may have within a line."""
    if line.is_prose:
        return (code for code in _BACKTICKED.findall(line.text) if not _PLAIN_NAME.fullmatch(code))
    return [line.text] if " " in line.text.strip() else []


def _to_parts(lines: Iterable[_Line], marked: Collection[str]) -> Parts:
    prose: list[str] = []
    snippets: list[str] = []
    for line in lines:
        if line.is_prose:
            text, line_snippets = _extract_marked(line.text, marked)
            prose.append(text)
            snippets += line_snippets
        else:
            snippets.append(line.text)
    return Parts("\n".join(prose), tuple(snippets))


def _extract_marked(line: str, marked_code: Collection[str]) -> tuple[str, list[str]]:
    """A line of prose with placeholders for its pieces of code, and these pieces."""
    present = sorted((code for code in marked_code if code in line), key=len, reverse=True)
    pattern = re.compile("|".join([*(rf"`?(?<!\w){re.escape(code)}(?!\w)`?" for code in present), _BACKTICKED.pattern]))
    words: list[str] = []
    snippets: list[str] = []
    start = 0
    for match in pattern.finditer(line):
        code = match[0].strip("`")
        if code in marked_code or not _PLAIN_NAME.fullmatch(code):
            words += _extract_unmarked(line[start : match.start()], snippets)
            words.append(_PLACEHOLDER)
            snippets.append(code.strip())
            start = match.end()
    words += _extract_unmarked(line[start:], snippets)
    return _FINAL_PLACEHOLDER.sub("", " ".join(words)), snippets


def _extract_unmarked(text: str, snippets: list[str]) -> list[str]:
    """The words of a text without backticks; code after a colon, or with signs of code, is moved to ``snippets``."""
    introduction = _CODE_INTRODUCTION.search(text) if ":" in text else None
    spans = [match.span() for match in _PIECE.finditer(text, 0, introduction.end() if introduction else len(text))]
    pieces = [text[start:end] for start, end in spans]
    words, done = [], 0
    for start, end in _code_runs(pieces):
        words += [*pieces[done:start], _PLACEHOLDER]
        code = text[spans[start][0] : spans[end - 1][1]]
        has_end = end == len(pieces) or any(map(str.isalnum, code))  # "*?" within a sentence is a sign
        snippets.append(_compact_formula(code.rstrip(_END_PUNCTUATION) if has_end else code))
        done = end
    words += pieces[done:]
    if introduction and (introduced_code := text[introduction.end() :].strip()):
        snippets.append(introduced_code.rstrip(".?!"))
        words.append(_PLACEHOLDER)
    return words


def _code_runs(pieces: Sequence[str]) -> Iterator[tuple[int, int]]:
    """The runs of pieces that are code, with the operands of operators and all between brackets."""
    is_code = [*_are_code(pieces)]
    has_sum = "=" in pieces  # then a dash and a slash are operators too
    is_operator = [
        matches or (has_sum and piece in _SUM_OPERATORS)
        for matches, piece in zip(_are_operators(pieces), pieces, strict=True)
    ]
    if not (any(is_code) or any(is_operator) or any(piece[0] == "(" for piece in pieces)):
        return
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
def _are_operators(piece: str) -> bool:
    return bool(_OPERATOR.fullmatch(piece))


@cached_per_piece
def _are_code(piece: str) -> bool:
    piece = piece.strip(_END_PUNCTUATION + "\"'").lstrip("(")
    piece = piece if "(" in piece else piece.rstrip(")")
    return len(piece) > _MAX_WORD_CHARS or (bool(_CODE_SIGN.search(piece)) and not _NOT_CODE.search(piece))


def _compact_formula(code: str) -> str:
    """A formula without blanks around its signs, unless they may matter: x = 5 and x=5, [1 -2] and [1 - 2]."""
    if _NOT_A_FORMULA.search(code) or len(_SPACED_SIGN.findall(code)) == 1:
        return code
    return _SPACED_SIGN.sub(r"\1", code)


def _is_prose(line: str) -> bool:
    """Whether a line is a sentence but no list item, or only a courtesy."""
    words = line.split()
    if len(words) <= _MAX_FRAGMENT_WORDS or line[0].isspace() or _LIST_ITEM.match(line):
        return bool(words) and POLITE_WORDS.issuperset(word.strip(_END_PUNCTUATION).lower() for word in words)
    end = unicodedata.normalize("NFKC", line[-1])
    code_pieces = sum(_are_code(words))
    if end in ".?!。":
        return 2 * code_pieces < len(words)
    if code_pieces or end == ":":
        return not code_pieces
    stop_words = sum(word.lower() in STOP_WORDS for word in words)
    return len(words) > _MAX_UNPUNCTUATED_WORDS and stop_words >= _MIN_STOP_WORDS
