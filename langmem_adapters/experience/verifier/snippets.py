"""Separate code, data and formulas, of which every character, line and blank counts, from the prose of a request.

They are compared exactly, whereas the prose may say the same in other words.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from langmem_adapters.experience.verifier.piece_cache import of_each
from langmem_adapters.experience.verifier.words import POLITE, STOP

__all__ = ["Parts", "parted"]

_PLACEHOLDER = "snippet"  # replaces a snippet in the prose
_MAY_BE_CODE = re.compile(r"[`{}\[\]\\|~^=<>$*(:/&@!]|,\S|[-+][^\w\s-]|--|\+\+|\w;|(?<!\S)\.(?!\S)|\.\.|[ACGTU]{6}|\n")
_FENCE = re.compile(r"\s*(?:```|~~~)")
_PIECE = re.compile(r"\S+")
_TICKED = re.compile(r"`([^`\n]+)`")
_PLAIN_NAME = re.compile(r"\s*[\w.]+(?:\(\))?\s*")  # compared by the guard "code"
_SIGNS = re.compile(
    r"[{}\[\]\\|~^=<>]|\$(?!\d)|\*|\w\((?!\)|e?s\))|::|->|&&|(?<![a-zA-Z])\+\+|^[&!]\w|^@(?=\w+[.(\[])|"
    r"^(?:\.{1,2}|~)?/(?=.)|\w/$|[A-Za-z\"']:[^\s/]|(?:[^\s,]*[A-Za-z][^\s,]*,){2,}\S|^[-+][^\w\s-]|\w;$|^[ACGTU]{6,}$|\w\.\.+\w"
)
_NO_CODE = re.compile(r"^\*{1,2}\w+\*{1,2}$|^<3$|^w/$|^https?://")  # an address is compared exactly anyway
_OPERATOR = re.compile(r"[=<>!+*/%&|^-]?=|[<>|^*%@]|<<|>>|\*\*|//|&&|\|\||->|=>|\.{1,2}|--")
_SIGNS_OF_SUMS = frozenset("+-/")
_NO_FORMULA = re.compile(r"[+*/<>=-]\s*[+*/<>=-]|[\"'\[]")
_SIGN = re.compile(r"(?:(?<!\s)\s+|)([+*/<>=-])\s*")  # each run of blanks is matched once, from its first
_LOGICAL = frozenset(("and", "if", "not", "or", "return", "while"))
_INTRODUCED = re.compile(
    r"\b(?:this|these|following|given|below|the)\b[^:]{0,80}\b(?:class|code|command|config|css|csv|diff|equation|error|expression|"
    r"formula|function|html|json|log|loop|method|pattern|program|quer(?:y|ies)|regex|script|snippet|sql|statement|table|"
    r"traceback|xml|yaml)s?(?:\s+\w+){0,2}:\s+(?!\")(?=[^`]*$)",
    re.IGNORECASE,
)
_AT_THE_END = re.compile(rf"(?<=[.?!:]) {_PLACEHOLDER}$")  # removed, as for code on a line of its own
_ITEM = re.compile(r"(?:\d+[.)]|[-*•])\s")
_END = ".,;:!?"
_LONGEST = 8_000  # characters; every line of a longer text is compared exactly
_LONG_PIECE = 80  # characters; no word is longer
_FEW = 2  # words; a line with no more is not a sentence, whatever its end
_SEVERAL = 5  # words; a line without punctuation at its end must have more to be a sentence


class Parts(NamedTuple):
    """A request in two parts."""

    prose: str
    snippets: tuple[str, ...]
    """Code, data and formulas, in order: lines with their indentation, and pieces of lines."""


class _Line(NamedTuple):
    text: str
    is_prose: bool


def parted(one: str, other: str) -> tuple[Parts, Parts]:
    """Split two requests: code that one has between backticks, in a fence or on its own line is code in both."""
    if max(len(one), len(other)) > _LONGEST:
        return Parts(one, _all_lines(one)), Parts(other, _all_lines(other))
    if not (_MAY_BE_CODE.search(one) or _MAY_BE_CODE.search(other)):
        return Parts(one, ()), Parts(other, ())
    fenced = {*_fenced(one), *_fenced(other)}
    lines, other_lines = _lines(one, fenced), _lines(other, fenced)
    known = {code.strip() for line in (*lines, *other_lines) for code in _marked(line)}
    return _parted(lines, known), _parted(other_lines, known)


def _all_lines(text: str) -> tuple[str, ...]:
    return tuple(line.rstrip() for line in text.splitlines() if line.strip())


def _fenced(text: str) -> Iterator[str]:
    inside = False
    for line in text.splitlines() if "\n" in text else ():
        if _FENCE.match(line):
            inside = not inside
        elif inside:
            yield line.strip()


def _lines(text: str, fenced: Collection[str]) -> list[_Line]:
    """The lines without common indentation, of prose and of data; only blank lines between lines of data are kept."""
    lines = [line.rstrip() for line in text.expandtabs().splitlines() if not _FENCE.match(line)]
    margin = _margin(lines)
    found = [_Line(line, line.strip() not in fenced and _is_prose(line[margin:])) for line in lines]
    told = [n for n, line in enumerate(found) if line.text]
    if told and not any(found[n].is_prose for n in told):  # one line must be the instruction
        n = told[-1 if len(told) > 1 and next(_runs(found[told[0]].text.split()), None) else 0]
        found[n] = _Line(found[n].text, is_prose=True)
    margin = _margin(line.text for line in found if not line.is_prose)
    return [
        line if line.is_prose else _Line(line.text[margin:], is_prose=False)
        for before, line, after in zip([None, *found], found, [*found[1:], None], strict=False)
        if line.text or (before and after and before.text and after.text and not (before.is_prose or after.is_prose))
    ]


def _margin(lines: Iterable[str]) -> int:
    return min((len(line) - len(line.lstrip()) for line in lines if line), default=0)


def _marked(line: _Line) -> Iterable[str]:
    """The code of a line that the other request may have within a line."""
    if line.is_prose:
        return (code for code in _TICKED.findall(line.text) if not _PLAIN_NAME.fullmatch(code))
    return [line.text] if " " in line.text.strip() else []


def _parted(lines: Iterable[_Line], known: Collection[str]) -> Parts:
    prose: list[str] = []
    snippets: list[str] = []
    for line in lines:
        if line.is_prose:
            said, code = _taken_out(line.text, known)
            prose.append(said)
            snippets += code
        else:
            snippets.append(line.text)
    return Parts("\n".join(prose), tuple(snippets))


def _taken_out(line: str, known: Collection[str]) -> tuple[str, list[str]]:
    """A line of prose with placeholders for its pieces of code, and these pieces."""
    there = sorted((code for code in known if code in line), key=len, reverse=True)
    marked = re.compile("|".join([*(rf"`?(?<!\w){re.escape(code)}(?!\w)`?" for code in there), _TICKED.pattern]))
    said: list[str] = []
    snippets: list[str] = []
    start = 0
    for found in marked.finditer(line):
        code = found[0].strip("`")
        if code in known or not _PLAIN_NAME.fullmatch(code):
            said += _unmarked(line[start : found.start()], snippets)
            said.append(_PLACEHOLDER)
            snippets.append(code.strip())
            start = found.end()
    said += _unmarked(line[start:], snippets)
    return _AT_THE_END.sub("", " ".join(said)), snippets


def _unmarked(text: str, snippets: list[str]) -> list[str]:
    """The words of a text without backticks; code after a colon, or with signs of code, is moved to ``snippets``."""
    introduced = _INTRODUCED.search(text) if ":" in text else None
    spans = [found.span() for found in _PIECE.finditer(text, 0, introduced.end() if introduced else len(text))]
    pieces = [text[start:end] for start, end in spans]
    said, n = [], 0
    for start, end in _runs(pieces):
        said += [*pieces[n:start], _PLACEHOLDER]
        snippets.append(_spaced(text[spans[start][0] : spans[end - 1][1]].rstrip(_END)))
        n = end
    said += pieces[n:]
    if introduced and (given := text[introduced.end() :].strip()):
        snippets.append(given.rstrip(".?!"))
        said.append(_PLACEHOLDER)
    return said


def _runs(pieces: Sequence[str]) -> Iterator[tuple[int, int]]:
    """The runs of pieces that are code, with the operands of operators and all between brackets."""
    code = [*_are_code(pieces)]
    sums = "=" in pieces  # then a dash and a slash are operators too
    joins = [
        join or (sums and piece in _SIGNS_OF_SUMS) for join, piece in zip(_are_operators(pieces), pieces, strict=True)
    ]
    if not (any(code) or any(joins) or any(piece[0] == "(" for piece in pieces)):
        return
    n = 0
    while n < len(pieces):
        in_brackets = pieces[n].startswith("(") and n > 0 and pieces[n - 1].lower() in _LOGICAL
        if not (code[n] or in_brackets or any(joins[n + 1 : n + 2])):
            n += 1
            continue
        start, depth = n, 0
        while n < len(pieces) and (n == start or depth > 0 or code[n] or joins[n] or joins[n - 1]):
            depth += sum(map(pieces[n].count, "([{")) - sum(map(pieces[n].count, ")]}"))
            n += 1
        yield start, n


@of_each
def _are_operators(piece: str) -> bool:
    return bool(_OPERATOR.fullmatch(piece))


@of_each
def _are_code(piece: str) -> bool:
    piece = piece.strip(_END + "\"'").lstrip("(")
    piece = piece if "(" in piece else piece.rstrip(")")
    return len(piece) > _LONG_PIECE or (bool(_SIGNS.search(piece)) and not _NO_CODE.search(piece))


def _spaced(code: str) -> str:
    """A formula without blanks around its signs, unless they may matter: x = 5 and x=5, [1 -2] and [1 - 2]."""
    return code if _NO_FORMULA.search(code) or len(_SIGN.findall(code)) == 1 else _SIGN.sub(r"\1", code)


def _is_prose(line: str) -> bool:
    """Whether a line is a sentence but no list item, or only a courtesy."""
    words = line.split()
    if len(words) <= _FEW or line[0].isspace() or _ITEM.match(line):
        return bool(words) and POLITE.issuperset(word.strip(_END).lower() for word in words)
    end = unicodedata.normalize("NFKC", line[-1])
    code = sum(_are_code(words))
    if end in ".?!。":
        return 2 * code < len(words)
    return not code and (end == ":" or (len(words) > _SEVERAL and sum(word.lower() in STOP for word in words) >= _FEW))
