"""Dates that a text speaks of: in digits, or relative to its own, as "last Friday", "two weeks ago"."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import date

from langmem_adapters.language.dates import DAYS, ISO_DATE, Span, day_of, day_words, relative_span
from langmem_adapters.language.foreign_dates import foreign_offsets

_ISO_DATE_PATTERN = re.compile(ISO_DATE)
_NUMBER_WORDS = "one two three four five six seven eight nine ten eleven twelve".split()
_NUMBERS = {"a": 1, **{word: n for n, word in enumerate(_NUMBER_WORDS, 1)}}
QUOTED_PATTERN = re.compile(
    '"[^"\\n]*"|\u201c[^\u201c\u201d\\n]*\u201d|\u00ab[^\u00ab\u00bb\\n]*\u00bb|^[ \\t]*>.*$', re.MULTILINE
)
"""What others said, on a day of their own: between quotation marks, or in the quoted lines of a mail."""

_COUNTED_UNIT_PATTERN = re.compile(
    rf"\b({'|'.join(_NUMBERS)}|\d\d?) (day|night|week|weekend|month|year)s? (ago|from now)\b"
)
# What stands before the end of a longer number: "twenty two", "half a year", "a year and two weeks".
_LONGER_NUMBER_PATTERN = re.compile(
    r"(?:-|\d[.,/]|\b(?:(?:hundred|(?:week|month|year)s?) and|hundred|half|of"
    r"|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety) )\Z"
)
_MAX_PREFIX_CHARS = len("hundred and ")
_ADJACENT_UNIT_PATTERN = re.compile(  # but not "the next day" of a story, nor "last week of May"
    rf"\b(?<!\bthe )(last|this|next) (night|week|weekend|month|year|{'|'.join(DAYS)})\b(?! of\b)"
    r"|\b(day before yesterday|yesterday|tomorrow|day after tomorrow)\b"
)
_DAY_OFFSETS = {"day before yesterday": -2, "yesterday": -1, "tomorrow": 1, "day after tomorrow": 2}


def mentioned_date_words(text: str, at: float | None) -> str:
    """The words of the dates that a text names relative to its own date, without the words of that date.

    A day gives all its words; a week, of which no day is known, its months and years; a month and a year give
    themselves. Quotations were said on another day, and give nothing. Dates in digits, in the form of ISO 8601, give
    their words whatever the text's own date is.

    >>> mentioned_date_words("I saw him two months ago, and yesterday.", at=1683547200.0)  # Monday, 8 May 2023
    'march sunday day7'
    """
    day = day_of(at)
    spans = [*_iso_spans(text)]
    own_words: list[str] = []
    if day is not None:
        spans += relative_spans(text, day)
        own_words = day_words(day)
    words = dict.fromkeys(word for span in spans for word in span.words())
    return " ".join(word for word in words if word not in own_words)


def _iso_spans(text: str) -> Iterator[Span]:
    for year, month, day in _ISO_DATE_PATTERN.findall(text):
        with suppress(ValueError):  # there is no such day
            first = date(int(year), int(month), int(day or 1))
            yield Span("day" if day else "month", first, first)


def relative_spans(text: str, day: date) -> Iterator[Span]:
    """The dates that a text names relative to that day."""
    text = " ".join(QUOTED_PATTERN.sub(" . ", text).lower().split())
    for unit, offset in (*_english_offsets(text), *foreign_offsets(text)):
        with suppress(OverflowError, ValueError):  # before the year 1, or after 9999
            yield relative_span(day, unit, offset)


def _english_offsets(text: str) -> Iterator[tuple[str, int]]:
    """The units of time that a text names, and the distance of each from its date."""
    for match in _COUNTED_UNIT_PATTERN.finditer(text):
        number, unit, direction = match.groups()
        if _LONGER_NUMBER_PATTERN.search(text, max(0, match.start() - _MAX_PREFIX_CHARS), match.start()):
            continue
        count = _NUMBERS[number] if number in _NUMBERS else int(number)
        yield unit, -count if direction == "ago" else count
    for relation, unit, day in _ADJACENT_UNIT_PATTERN.findall(text):
        if day:
            yield "day", _DAY_OFFSETS[day]
        else:
            yield unit, ("last", "this", "next").index(relation) - 1
