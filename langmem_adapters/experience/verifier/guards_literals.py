"""Guards for what must be exactly the same: numbers, units, symbols, quotations, identifiers and code."""

from __future__ import annotations

import re
from collections import Counter

from langmem_adapters.experience.verifier.alignment import Alignment, differ
from langmem_adapters.experience.verifier.reading import Reading
from langmem_adapters.language.dates import DAYS, MONTHS
from langmem_adapters.language.lists import listed

__all__ = ["code", "numbers", "quotations", "snippets", "symbols", "units"]

_FEW = 3  # snippets named in a reason
_PARTS = listed("morning noon afternoon evening midnight yesterday tomorrow weekday weekend")
_DATES = _PARTS.union(DAYS, MONTHS) - {"may"}
_TIMES = "|".join((*str.split("spring summer autumn winter"), *sorted(_PARTS), *DAYS, *MONTHS))
_TIME = rf"({_TIMES}|\d[\d:.]*)s?(?: ?[ap]m)?"
_SPAN = re.compile(rf"\b{_TIME}(?:-| (?:to|through|till|until) ){_TIME}|\bbetween {_TIME} and {_TIME}")


def numbers(left: Reading, right: Reading, _: Alignment) -> str:
    """Numbers, years, versions, dates and amounts must be the same.

    One may be repeated, but not instead of another: "3, 3 and 7" is not "3, 7 and 7".
    """
    lefts, rights = set(left.numbers), set(right.numbers)
    if lefts != rights:
        return differ("numbers", lefts - rights, rights - lefts)
    one, other = Counter(left.numbers), Counter(right.numbers)
    if one - other and other - one:
        return differ("numbers", one - other, other - one)
    return differ("numbers", *_numerals(left, right))


def _numerals(left: Reading, right: Reading) -> tuple[set[str], set[str]]:
    """Different Roman numerals after the same word: "World War I", "World War II"."""
    after = {word for word, _ in left.numerals} & {word for word, _ in right.numerals}
    one, other = ({n for n in reading.numerals if n[0] in after} for reading in (left, right))
    return {numeral for _, numeral in one - other}, {numeral for _, numeral in other - one}


def units(left: Reading, right: Reading, _: Alignment) -> str:
    """A unit, day, month or time of day must not be replaced by another, nor "to" between two of them by "and"."""
    one, other = left.units - right.units, right.units - left.units
    if (one and other) or (one | other) & _DATES:
        return differ("units", one, other)
    both, spans = left.vocabulary & right.vocabulary, _spans(left) ^ _spans(right)
    return differ("units", {end for span in spans if both.issuperset(span) for end in span}, ())


def _spans(reading: Reading) -> set[tuple[str, str]]:
    """The ends of spans of days, months, times or numbers: "Monday to Friday", "between May and June"."""
    if not (reading.units or reading.numbers):
        return set()
    return {(found[1] or found[3], found[2] or found[4]) for found in _SPAN.finditer(reading.text)}


def symbols(left: Reading, right: Reading, _: Alignment) -> str:
    """Symbols of arithmetic and of code must be the same: "5 + 3" is not "5 * 3"."""
    if left.symbols == right.symbols:
        return ""
    one, other = Counter(left.symbols), Counter(right.symbols)
    return differ("symbols", (one - other).elements(), (other - one).elements())


def quotations(left: Reading, right: Reading, _: Alignment) -> str:
    """A quotation of one must be quoted exactly, or said without quotation marks, in the other."""
    one, other = left.quoted - right.quoted, right.quoted - left.quoted
    if signs := {*map(_bare, one)} & {*map(_bare, other)}:
        return differ("quotations", signs, ())
    return differ("quotations", _missing(one, right), _missing(other, left))


def code(left: Reading, right: Reading, _: Alignment) -> str:
    """Identifiers, paths, options and names with inner capitals must occur in both, with the same capitals."""
    if missing := differ("code", _missing(left.code, right), _missing(right.code, left)):
        return missing
    one, other = ({word for word in words if " " not in word} for words in (left.code, right.code))
    one, other = one - other, other - one
    small = {word for word in one | other if "`" not in word}
    alike = {word.lower() for word in one} & {word.lower() for word in other} - small
    return differ("code", [word for word in (*one, *other) if word.lower() in alike], ())


def snippets(left: Reading, right: Reading, _: Alignment) -> str:
    """Code, data and formulas must be exactly the same, in the same order, with their lines and indentation."""
    one, other = left.snippets, right.snippets
    if one == other:
        return ""
    alone = (
        [f"{code.strip():.60}" for code in side if code not in also][:_FEW]
        for side, also in ((one, other), (other, one))
    )
    return differ("snippets", *alone) or "snippets differ: their order"


def _missing(wanted: frozenset[str], there: Reading) -> set[str]:
    """Those that do not occur in the other text, punctuation and blanks aside."""
    if not wanted:
        return set()
    joined = _bare(there.text)
    return {one for one in wanted if _bare(one) not in joined}


def _bare(text: str) -> str:
    """Letters and digits alone: "read-only" and "read only" are both "readonly"."""
    return "".join(re.findall(r"\w+", text.lower()))
