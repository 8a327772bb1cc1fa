"""The symbols of a request that are no words but carry meaning: "5 + 3", "10²", 6" and 6', 😀."""

from __future__ import annotations

import re
import unicodedata
from itertools import chain, groupby

from langmem_adapters.experience.verifier.piece_cache import cached_per_piece

__all__ = ["cased_units", "mark_superscripts", "symbols"]

_MAX_OPERAND_CHARS = 60  # in which the operands of a sign are looked for
_SYMBOLS = re.compile(
    r"(?=[-:!?&%/+*^=<>|~\\×÷≤≥≠·\s])(?:[-:!?&%/]{0,3}[+*^=<>|~\\×÷≤≥≠·]+(?:[/&]|-(?!\d))*|"  # noqa: RUF001 - these signs are meant
    r"(?<=[\d)])\s*[-/](?=\s*[\d(])|(?<=\s)-(?=\s*[\d(])|"
    r"!(?=[\w=(])|(?:(?<=\d)|(?<![^\W_][^\W_])(?<=[^\W\d_]))!|\?\.(?=\w)|(?<=\s)\?\?|"
    r"(?<![^\W_][^\W_])(?<=[^\W\d_])(?:\s+[-/](?=\s+[^\W\d_](?![^\W_]))|/(?=[a-z](?![^\W_]))))"  # x - y, x/y
)
_HAS_SYMBOL = re.compile(r"[-/!+*^=<>|~\\×÷≤≥≠·]|\?[.?]")  # noqa: RUF001 - these signs are meant
_EXACT_TEXT = re.compile(
    r"https?://\S*[^\s?!,.;:)]|\b[ivIV]+(?:-[ivIV]+)+\b|\b[YyMDdHhms]{2,4}(?:[-/.:][YyMDdHhms]{1,4})+\b|"
    r"%[A-Za-z](?!\w)|(?<!\S)--?[A-Za-z]{1,2}(?![\w-])|"
    r"(?<!\S)(?:@{1,2}|#|/)(?=[a-z_])|(?<!\w)_+[^\W_]|[^\W_]_+(?!\w)"
)
"""Text that must be exactly the same: addresses, ii-V-I, YYYY-MM-dd, %s, options, @x, _x, x_."""
_MORSE = re.compile(r"\s(?:[.-]+\s+){2,}[.-]+")
_HAS_EXACT_TEXT = re.compile(r"[-/%@#_:]|\.(?<=\s.)|\.(?=[YyMDdHhms])")
_NON_COMMUTATIVE = frozenset("-/<>^~")
_LEFT_OPERAND, _RIGHT_OPERAND = re.compile(r"(\w+)(\s*)$"), re.compile(r"(\s*)(\w+)")
_MAY_BE_SYMBOL = re.compile(r"""[-+*^=<>|~\\×÷≤≥≠·/!?&()\[\]{}@#%_;:"'`]""")  # noqa: RUF001 - these signs are meant
_MENTIONED_SIGN = re.compile(r"[@#;:?!.](?<=\s.)(?:(?=\s+[a-z\d])|(?<!\?)(?=\?))")
_QUOTED_SIGN = re.compile(r"""(?<=["'`])[@#&;:?!.,/_()\[\]{}-]{1,3}(?=["'`])""")
_QUOTATION = re.compile(r"""(?<!\d)"[^"]*"|(?<!\w)'[^']+'(?!\w)""")
_PRIME = re.compile(r"""(?<=\d)(?:''|["'])(?!s\b)|(?<![^\W_][^\W_])(?<=[^\W\d_])(?:''|["'])(?!\w)""")
_MAY_BE_PRIME = re.compile(r"""["'](?:(?<=\d.)|(?!\w))""")
_SUPERSCRIPT = re.compile(r"(?:(?<=[\d)\]])|(?<![^\W_][^\W_])(?<=[a-ln-zA-Z]))(?=[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ])")
_SUBSCRIPT = re.compile(r"(?<=\d)(?=[₀₁₂₃₄₅₆₇₈₉])")
_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]+")
_COMBINED_LETTER = re.compile(r"[A-Za-z\d][\u0300-\u036f\u20d0-\u20f0]+")
_PICTOGRAPH_CATEGORIES = frozenset(("So", "Sk", "Sm", "Sc", "Co", "Cn", "Cs"))
"""Symbols, and what is none to this Python: private characters, and those of a later Unicode, such as new emoji."""
_MARKS = "§¶†‡※⁂"  # that Unicode calls punctuation, though they end or part no sentence
_NAMED_SIGNS = "€£¥₹"  # signs that normalize_spelling replaces by names
_BIT_UNIT = re.compile(r"[kKMGT](?<![^\W\d_].)(?:i?(?P<byte>B)|(?<!k)i?b)(?:it|yte|ps)?(?![^\W\d_])")
_MILLI_OR_MEGA = re.compile(r"[mM](?<![^\W\d_].)(?:W|V|Hz|Pa|J|N|Ω)(?![^\W\d_])")


def mark_superscripts(text: str) -> str:
    """A text with a mark before superscripts and subscripts: 10^² for 10², so that it does not become 102."""
    return text if text.isascii() else _SUBSCRIPT.sub("_", _SUPERSCRIPT.sub("^", text))


def symbols(text: str, *, english: bool) -> tuple[str, ...]:
    """The symbols, sorted. Outside English, a sign that stands alone may be punctuation: "Bonjour ; merci"."""
    signs = _pictographs(text)
    if _MAY_BE_SYMBOL.search(text):
        if _HAS_SYMBOL.search(text):
            signs += [_sign_with_operands(text, match) for match in _SYMBOLS.finditer(text)]
        signs += [*chain.from_iterable(_exact_texts(text.split())), *map(str.strip, _MORSE.findall(text))]
        signs += _QUOTED_SIGN.findall(text)
        signs += _MENTIONED_SIGN.findall(text) if english else []
        if _MAY_BE_PRIME.search(text):
            signs += [mark.replace("''", '"') for mark in _PRIME.findall(_QUOTATION.sub(" ", text))]
    return tuple(sorted(signs))


@cached_per_piece
def _exact_texts(piece: str) -> list[str]:
    return _EXACT_TEXT.findall(piece) if _HAS_EXACT_TEXT.search(piece) else []


def cased_units(text: str) -> frozenset[str]:
    """Units that differ only in case: Mb and MB, mW and MW. "mb" may be either, so it is none."""
    bits = {"byte" if match["byte"] else "bit" for match in _BIT_UNIT.finditer(text)}
    return frozenset(bits.union(_MILLI_OR_MEGA.findall(text)))


def _pictographs(text: str) -> list[str]:
    """Pictures, signs and currencies beyond ASCII, runs as one (a flag has two); and letters with combining marks."""
    if text.isascii():
        return []
    runs = chain.from_iterable(groupby(run, _is_pictograph) for run in _BEYOND_ASCII.findall(text))
    return [*("".join(run) for is_pictograph, run in runs if is_pictograph), *_COMBINED_LETTER.findall(text)]


def _is_pictograph(character: str) -> bool:
    if character in _NAMED_SIGNS:
        return False
    return character in _MARKS or unicodedata.category(character) in _PICTOGRAPH_CATEGORIES


def _sign_with_operands(text: str, match: re.Match[str]) -> str:
    """A sign; if it is not commutative, with its operands: a - b is not b - a."""
    sign = match[0].strip()
    text_before = text[max(0, match.start() - _MAX_OPERAND_CHARS) : match.start()] + match[0][: -len(sign)]
    left, right = _LEFT_OPERAND.search(text_before), _RIGHT_OPERAND.match(text, match.end())
    if sign not in _NON_COMMUTATIVE or not left or not right or bool(left[2]) != bool(right[1]):
        return sign
    return f"{left[1]}{sign}{right[2]}".lower()
