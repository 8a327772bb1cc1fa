"""Guards for what must be exactly the same: numbers, units, symbols, quotations, identifiers and code."""

from __future__ import annotations

import re
from collections import Counter

from langmem_adapters.experience.verifier.alignment import Alignment, refusal
from langmem_adapters.experience.verifier.reading import Reading
from langmem_adapters.experience.verifier.words import COUNT_WORDS
from langmem_adapters.language.dates import DAYS, MONTHS
from langmem_adapters.language.lists import word_set

_MAX_NAMED_SNIPPETS = 3  # in a reason
_DAY_PARTS = word_set("morning noon afternoon evening midnight yesterday tomorrow weekday weekend")
_DATE_UNITS = _DAY_PARTS.union(DAYS, MONTHS)
_TIME_WORDS = "|".join((*str.split("spring summer autumn winter"), *sorted(_DAY_PARTS), *DAYS, *MONTHS))
_TIME = rf"({_TIME_WORDS}|\d[\d:.]{{0,20}})s?(?: ?[ap]m)?"
_HALF_OF_DAY = re.compile(r"\d ?([ap])\.?m\b")
_POINTED_TIME = re.compile(rf"\b(?:this|that) (?:day|night|week|month|quarter|year|{_TIME_WORDS})\b")
_SPAN = re.compile(rf"\b{_TIME}(?:-| (?:to|through|till|until) ){_TIME}|\bbetween {_TIME} and {_TIME}")


def numbers(left: Reading, right: Reading, _: Alignment) -> str:
    """Numbers, years, versions, dates and amounts must be the same.

    One may be repeated, but not instead of another: "3, 3 and 7" is not "3, 7 and 7". Nor may one of two be exchanged:
    "one pill twice" is not "two pills once".
    """
    left_numbers, right_numbers = set(left.numbers), set(right.numbers)
    if left_numbers != right_numbers:
        return refusal("numbers", left_numbers - right_numbers, right_numbers - left_numbers)
    left_counts, right_counts = Counter(left.numbers), Counter(right.numbers)
    if left_counts - right_counts and right_counts - left_counts:
        return refusal("numbers", left_counts - right_counts, right_counts - left_counts)
    one, other = COUNT_WORDS & left.vocabulary, COUNT_WORDS & right.vocabulary
    if one and other and one.isdisjoint(other) and left_numbers:
        return refusal("numbers", one, other)
    return refusal("numbers", *_differing_numerals(left, right))


def _differing_numerals(left: Reading, right: Reading) -> tuple[set[str], set[str]]:
    """Different Roman numerals after the same word: "World War I", "World War II"."""
    common_words = {word for word, _ in left.numerals} & {word for word, _ in right.numerals}
    one, other = ({pair for pair in reading.numerals if pair[0] in common_words} for reading in (left, right))
    return {numeral for _, numeral in one - other}, {numeral for _, numeral in other - one}


def units(left: Reading, right: Reading, _: Alignment) -> str:
    """A unit, day, month or time of day must not be replaced by another, nor "to" between two of them by "and"."""
    left_only, right_only = left.units - right.units, right.units - left.units
    if (left_only and right_only) or (left_only | right_only) & _DATE_UNITS:
        return refusal("units", left_only, right_only)
    if halves := {*_HALF_OF_DAY.findall(left.text)} ^ {*_HALF_OF_DAY.findall(right.text)}:
        return refusal("units", [f"{half}m" for half in halves], ())
    one, other = ({*_POINTED_TIME.findall(reading.text)} for reading in (left, right))
    if one and other and one != other:
        return refusal("units", one - other, other - one)
    common_words, spans = left.vocabulary & right.vocabulary, _spans(left) ^ _spans(right)
    return refusal("units", {end for span in spans if common_words.issuperset(span) for end in span}, ())


def _spans(reading: Reading) -> set[tuple[str, str]]:
    """The ends of spans of days, months, times or numbers: "Monday to Friday", "between May and June"."""
    if not (reading.units or reading.numbers):
        return set()
    return {(match[1] or match[3], match[2] or match[4]) for match in _SPAN.finditer(reading.text)}


def symbols(left: Reading, right: Reading, _: Alignment) -> str:
    """Symbols of arithmetic and of code must be the same: "5 + 3" is not "5 * 3"."""
    left_counts, right_counts = Counter(left.symbols), Counter(right.symbols)
    return refusal("symbols", (left_counts - right_counts).elements(), (right_counts - left_counts).elements())


def quotations(left: Reading, right: Reading, _: Alignment) -> str:
    """A quotation of one must be quoted exactly, or said without quotation marks, in the other."""
    left_only, right_only = left.quoted - right.quoted, right.quoted - left.quoted
    if signs := {*map(_letters_and_digits, left_only)} & {*map(_letters_and_digits, right_only)}:
        return refusal("quotations", signs, ())
    return refusal("quotations", _missing_texts(left_only, right), _missing_texts(right_only, left))


def code(left: Reading, right: Reading, _: Alignment) -> str:
    """Identifiers, paths, options and names with inner capitals must occur in both, with the same capitals."""
    if missing := refusal("code", _missing_texts(left.code, right), _missing_texts(right.code, left)):
        return missing
    one, other = ({word for word in words if " " not in word} for words in (left.code, right.code))
    one, other = one - other, other - one
    without_backticks = {word for word in one | other if "`" not in word}
    recased = {word.lower() for word in one} & {word.lower() for word in other} - without_backticks
    return refusal("code", [word for word in (*one, *other) if word.lower() in recased], ())


def snippets(left: Reading, right: Reading, _: Alignment) -> str:
    """Code, data and formulas must be exactly the same, in the same order, with their lines and indentation."""
    if left.snippets == right.snippets:
        return ""
    one, other = left.snippets.texts, right.snippets.texts
    unmatched = (
        [f"{snippet.strip():.60}" for snippet in own if snippet not in others][:_MAX_NAMED_SNIPPETS]
        for own, others in ((one, other), (other, one))
    )
    return refusal("snippets", *unmatched) or "snippets differ: their order or place"


def _missing_texts(texts: frozenset[str], reading: Reading) -> set[str]:
    """Those that do not occur in the other text, punctuation and blanks aside."""
    if not texts:
        return set()
    joined = _letters_and_digits(reading.text)
    return {text for text in texts if _letters_and_digits(text) not in joined}


def _letters_and_digits(text: str) -> str:
    """Letters and digits alone: "read-only" and "read only" are both "readonly"."""
    return "".join(re.findall(r"\w+", text.lower()))
