"""The symbols of a request that are no words but carry meaning: "5 + 3", "10²", 6" and 6', 😀."""

from __future__ import annotations

import re
import unicodedata
from itertools import chain, groupby

from langmem_adapters.experience.verifier.piece_cache import of_each

__all__ = ["cased_units", "raised", "symbols"]

_NEAR = 60  # characters in which the operands of a sign are looked for
_SYMBOLS = re.compile(
    r"(?=[-:!?&%/+*^=<>|~\\×÷≤≥≠·\s])(?:[-:!?&%/]{0,3}[+*^=<>|~\\×÷≤≥≠·]+(?:[/&]|-(?!\d))*|"  # noqa: RUF001 - these signs are meant
    r"(?<=[\d)])\s*[-/](?=\s*[\d(])|(?<=\s)-(?=\s*[\d(])|"
    r"!(?=[\w=(])|(?:(?<=\d)|(?<![^\W_][^\W_])(?<=[^\W\d_]))!|\?\.(?=\w)|(?<=\s)\?\?|"
    r"(?<![^\W_][^\W_])(?<=[^\W\d_])(?:\s+[-/](?=\s+[^\W\d_](?![^\W_]))|/(?=[a-z](?![^\W_]))))"  # x - y, x/y
)
_HAS_SYMBOL = re.compile(r"[-/!+*^=<>|~\\×÷≤≥≠·]|\?[.?]")  # noqa: RUF001 - these signs are meant
_EXACT = re.compile(
    r"https?://\S*[^\s?!,.;:)]|\b[ivIV]+(?:-[ivIV]+)+\b|\b[YyMDdHhms]{2,4}(?:[-/.:][YyMDdHhms]{1,4})+\b|"
    r"%[A-Za-z](?!\w)|(?<!\S)--?[A-Za-z]{1,2}(?![\w-])|"
    r"(?<!\S)(?:@{1,2}|#|/)(?=[a-z_])|(?<!\w)_+[^\W_]|[^\W_]_+(?!\w)"
)
"""Text that must be exactly the same: addresses, ii-V-I, YYYY-MM-dd, %s, options, @x, _x, x_."""
_MORSE = re.compile(r"\s(?:[.-]+\s+){2,}[.-]+")
_HAS_EXACT = re.compile(r"[-/%@#_:]|\.(?<=\s.)|\.(?=[YyMDdHhms])")
_DIRECTED = frozenset("-/<>^~")
_BEFORE, _AFTER = re.compile(r"(\w+)(\s*)$"), re.compile(r"(\s*)(\w+)")
_MAY_BE_SYMBOL = re.compile(r"""[-+*^=<>|~\\×÷≤≥≠·/!?&()\[\]{}@#%_;:"'`]""")  # noqa: RUF001 - these signs are meant
_MENTIONED = re.compile(r"[@#;:?!.](?<=\s.)(?:(?=\s+[a-z\d])|(?<!\?)(?=\?))")
_QUOTED_SIGN = re.compile(r"""(?<=["'`])[@#&;:?!.,/_()\[\]{}-]{1,3}(?=["'`])""")
_QUOTATION = re.compile(r"""(?<!\d)"[^"]*"|(?<!\w)'[^']+'(?!\w)""")
_PRIME = re.compile(r"""(?<=\d)(?:''|["'])(?!s\b)|(?<![^\W_][^\W_])(?<=[^\W\d_])(?:''|["'])(?!\w)""")
_MAY_BE_PRIME = re.compile(r"""["'](?:(?<=\d.)|(?!\w))""")
_RAISED = re.compile(r"(?:(?<=[\d)\]])|(?<![^\W_][^\W_])(?<=[a-ln-zA-Z]))(?=[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ])")
_LOWERED = re.compile(r"(?<=\d)(?=[₀₁₂₃₄₅₆₇₈₉])")
_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]+")
_MARKED = re.compile(r"[A-Za-z\d][\u0300-\u036f\u20d0-\u20f0]+")
_WORDS = "€£¥₹"  # signs that one_spelling replaces by names
_BITS = re.compile(r"[kKMGT](?<![^\W\d_].)(?:i?(?P<byte>B)|(?<!k)i?b)(?:it|yte|ps)?(?![^\W\d_])")
_MILLI_OR_MEGA = re.compile(r"[mM](?<![^\W\d_].)(?:W|V|Hz|Pa|J|N|Ω)(?![^\W\d_])")


def raised(text: str) -> str:
    """A text with a mark before superscripts and subscripts: 10^² for 10², so that it does not become 102."""
    return text if text.isascii() else _LOWERED.sub("_", _RAISED.sub("^", text))


def symbols(text: str, *, english: bool) -> tuple[str, ...]:
    """The symbols, sorted. Outside English, a sign that stands alone may be punctuation: "Bonjour ; merci"."""
    found = _pictures(text)
    if _MAY_BE_SYMBOL.search(text):
        found += [_sign(text, one) for one in _SYMBOLS.finditer(text)] if _HAS_SYMBOL.search(text) else []
        found += [*chain.from_iterable(_exact(text.split())), *map(str.strip, _MORSE.findall(text))]
        found += _QUOTED_SIGN.findall(text)
        found += _MENTIONED.findall(text) if english else []
        if _MAY_BE_PRIME.search(text):
            found += [mark.replace("''", '"') for mark in _PRIME.findall(_QUOTATION.sub(" ", text))]
    return tuple(sorted(found))


@of_each
def _exact(piece: str) -> list[str]:
    return _EXACT.findall(piece) if _HAS_EXACT.search(piece) else []


def cased_units(text: str) -> frozenset[str]:
    """Units that differ only in case: Mb and MB, mW and MW. "mb" may be either, so it is none."""
    bits = {"byte" if found["byte"] else "bit" for found in _BITS.finditer(text)}
    return frozenset(bits.union(_MILLI_OR_MEGA.findall(text)))


def _pictures(text: str) -> list[str]:
    """Pictures, signs and currencies beyond ASCII, runs as one (a flag has two); and letters with combining marks."""
    if text.isascii():
        return []
    foreign = chain.from_iterable(groupby(run, _is_picture) for run in _BEYOND_ASCII.findall(text))
    return [*("".join(run) for is_picture, run in foreign if is_picture), *_MARKED.findall(text)]


def _is_picture(one: str) -> bool:
    return unicodedata.category(one) in {"So", "Sk", "Sm", "Sc"} and one not in _WORDS


def _sign(text: str, found: re.Match[str]) -> str:
    """A sign; if it is not commutative, with its operands: a - b is not b - a."""
    sign = found[0].strip()
    before = text[max(0, found.start() - _NEAR) : found.start()] + found[0][: -len(sign)]
    one, other = _BEFORE.search(before), _AFTER.match(text, found.end())
    if sign not in _DIRECTED or not one or not other or bool(one[2]) != bool(other[1]):
        return sign
    return f"{one[1]}{sign}{other[2]}".lower()
