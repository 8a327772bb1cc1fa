"""Guards for what is not a word, or counts as none: numbers, units, and signs of reckoning and of code."""

from __future__ import annotations

from collections import Counter

from langmem_adapters.experience.verifier.alignment import Alignment, differ
from langmem_adapters.experience.verifier.reading import Reading
from langmem_adapters.language.dates import DAYS, MONTHS

__all__ = ["numbers", "symbols", "units"]

_listed = str.split  # lists of words read better as text
_PARTS = frozenset(_listed("morning noon afternoon evening midnight yesterday tomorrow weekday weekend"))
_DATES = _PARTS.union(DAYS, MONTHS) - {"may"}


def numbers(left: Reading, right: Reading, _: Alignment) -> str:
    """Numbers, years, versions, dates and amounts must be the same ones.

    One may be told again, but not in the place of another: "3, 3 and 7" is not "3, 7 and 7".
    """
    lefts, rights = set(left.numbers), set(right.numbers)
    if lefts != rights:
        return differ("numbers", lefts - rights, rights - lefts)
    one, other = Counter(left.numbers), Counter(right.numbers)
    if one - other and other - one:
        return differ("numbers", one - other, other - one)
    return differ("numbers", *_numerals(left, right))


def _numerals(left: Reading, right: Reading) -> tuple[set[str], set[str]]:
    """Roman numerals after the same word, where they are not the same ones: "World War I", "World War II"."""
    after = {word for word, _ in left.numerals} & {word for word, _ in right.numerals}
    one, other = ({n for n in reading.numerals if n[0] in after} for reading in (left, right))
    return {numeral for _, numeral in one - other}, {numeral for _, numeral in other - one}


def units(left: Reading, right: Reading, _: Alignment) -> str:
    """A unit, day, month or time of day must not stand in the place of another."""
    one, other = left.units - right.units, right.units - left.units
    return differ("units", one, other) if (one and other) or (one | other) & _DATES else ""


def symbols(left: Reading, right: Reading, _: Alignment) -> str:
    """Signs of reckoning and of code must be the same ones: "5 + 3" is not "5 * 3"."""
    if left.symbols == right.symbols:
        return ""
    one, other = Counter(left.symbols), Counter(right.symbols)
    return differ("symbols", (one - other).elements(), (other - one).elements())
