"""Dates as words: that of a message, and those that it speaks of, as "last Friday" or "two weeks ago".

Words are English, so that a question that names a date finds them; a text in another language speaks of none. Days are
those of this process's time zone, as who is asked "yesterday?" in the evening means a day of theirs.
"""

from __future__ import annotations

import math
import re
from calendar import monthrange
from collections.abc import Iterator
from contextlib import suppress
from datetime import date, timedelta
from typing import NamedTuple

__all__ = [
    "DAYS",
    "ISO_DATE",
    "MONTHS",
    "QUOTED",
    "Span",
    "date_words",
    "day_of",
    "span",
    "spoken",
    "spoken_date_words",
]

MONTHS = tuple(
    """january february march april may june july august september october november december""".split()  # noqa: SIM905
)
DAYS = tuple("""monday tuesday wednesday thursday friday saturday sunday""".split())  # noqa: SIM905

ISO_DATE = r"\b((?:19|20)\d\d)-(\d\d)(?:-(\d\d))?\b"
"""A pattern of a day, or of a month, in figures."""

_ISO = re.compile(ISO_DATE)

_NUMBERS = "zero one two three four five six seven eight nine ten eleven twelve".split()  # noqa: SIM905
# What others said, on a day of their own: between quotation marks, or in lines that a mail quotes.
QUOTED = re.compile(
    '"[^"\\n]*"|\u201c[^\u201c\u201d\\n]*\u201d|\u00ab[^\u00ab\u00bb\\n]*\u00bb|^[ \\t]*>.*$', re.MULTILINE
)
_COUNTED = re.compile(rf"\b(a|{'|'.join(_NUMBERS[1:])}|\d\d?) (day|night|week|weekend|month|year)s? (ago|from now)\b")
# What stands before the end of a longer number: "twenty two", "half a year", "a year and two weeks".
_LONGER = re.compile(
    r"(?:-|\d[.,/]|\b(?:(?:hundred|(?:week|month|year)s?) and|hundred|half|of"
    r"|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety) )\Z"
)
_LONGEST = len("hundred and ")
_BESIDE = re.compile(  # but not "the next day" of a story, nor "last week of May"
    rf"\b(?<!\bthe )(last|this|next) (night|week|weekend|month|year|{'|'.join(DAYS)})\b(?! of\b)"
    r"|\b(day before yesterday|yesterday|tomorrow|day after tomorrow)\b"
)
_BY = {"day before yesterday": -2, "yesterday": -1, "tomorrow": 1, "day after tomorrow": 2}


def day_of(at: float | None) -> date | None:
    """The day of a Unix time here; None, where there is none, or none that a calendar has."""
    if at is None or not math.isfinite(at):
        return None
    try:
        return date.fromtimestamp(at)  # noqa: DTZ012 - a day of this time zone is meant
    except (OverflowError, OSError, ValueError):  # each platform has its own
        return None


def date_words(at: float | None) -> str:
    """The words of a Unix time's date; none, where there is none."""
    said = day_of(at)
    return " ".join(_day(said)) if said else ""


def spoken_date_words(text: str, at: float | None) -> str:
    """The words that a text's own date does not have, of the dates it names by how far they lie from that date.

    A day gives all its words; a week, whose days are not known, its months and years; a month and a year give
    themselves. What is quoted was said on another day, and gives nothing. Dates in figures, as ISO 8601 writes them,
    give their words whatever the date is.

    >>> spoken_date_words("I saw him two months ago, and yesterday.", at=1683547200.0)  # Monday, 8 May 2023
    'march sunday 7'
    """
    said = day_of(at)
    words: dict[str, None] = {}
    for span in (*_in_figures(text), *(spoken(text, said) if said else ())):
        words |= dict.fromkeys(span.words())
    own = _day(said) if said else []
    return " ".join(word for word in words if word not in own)


def _in_figures(text: str) -> Iterator[Span]:
    for year, month, day in _ISO.findall(text):
        with suppress(ValueError):  # there is no such day
            first = date(int(year), int(month), int(day or 1))
            yield Span("day" if day else "month", first, first)


class Span(NamedTuple):
    """Days that are spoken of as a day, a week, a weekend, a month or a year."""

    unit: str
    first: date
    last: date

    def words(self) -> list[str]:
        """What names it."""
        if self.unit == "year":
            return [str(self.first.year)]
        if self.unit == "day":
            return _day(self.first)
        return [word for day in (self.first, self.last) for word in _day(day)[2:]]

    def iso(self) -> str:
        """It as ISO 8601 writes it: 2023-05-07, 2023-05-01/2023-05-07, 2023-05 or 2023."""
        if self.unit in {"month", "year"}:
            return self.first.isoformat()[: len("2023-05" if self.unit == "month" else "2023")]
        return self.first.isoformat() if self.unit == "day" else f"{self.first.isoformat()}/{self.last.isoformat()}"


def spoken(text: str, said: date) -> Iterator[Span]:
    """The dates that a text names by how far they lie from the day on which it is said."""
    for unit, by in _spoken(" ".join(QUOTED.sub(" . ", text).lower().split())):
        with suppress(OverflowError, ValueError):  # before the year 1, or after 9999
            yield span(said, unit, by)


def _spoken(text: str) -> Iterator[tuple[str, int]]:
    """The units of time that a text names, and how many of them lie between its date and each."""
    for found in _COUNTED.finditer(text):
        number, unit, way = found.groups()
        if _LONGER.search(text, max(0, found.start() - _LONGEST), found.start()):
            continue
        count = int(number) if number.isdecimal() else 1 if number == "a" else _NUMBERS.index(number)
        yield unit, -count if way == "ago" else count
    for which, unit, day in _BESIDE.findall(text):
        yield ("day", _BY[day]) if day else (unit, ("last", "this", "next").index(which) - 1)


def span(said: date, unit: str, by: int) -> Span:
    """The day, week, month or year that lies so many from a date. Raises ValueError or OverflowError for none."""
    if unit == "year":
        year = said.year + by
        return Span("year", date(year, 1, 1), date(year, 12, 31))
    if unit == "month":
        year, month = divmod(12 * said.year + said.month - 1 + by, 12)
        return Span("month", date(year, month + 1, 1), date(year, month + 1, monthrange(year, month + 1)[1]))
    if unit in {"week", "weekend"}:
        monday = said + timedelta(days=7 * by - said.weekday())
        return Span(unit, monday + timedelta(days=5 if unit == "weekend" else 0), monday + timedelta(days=6))
    if unit in DAYS:
        ahead = (DAYS.index(unit) - said.weekday()) % 7  # 0 to 6; another week where that is not the one meant
        by = ahead - 7 if by < 0 else ahead or 7 * by
    day = said + timedelta(days=by)
    return Span("day", day, day)


def _day(day: date) -> list[str]:
    return [DAYS[day.weekday()], str(day.day), MONTHS[day.month - 1], str(day.year)]
