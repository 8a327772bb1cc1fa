"""Dates as words: that of a message, and those that it speaks of, as "last Friday" or "two weeks ago".

Words are English, so that a question that names a date finds them; a text in another language speaks of none. Days are
those of UTC.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from datetime import date, datetime, timedelta, timezone

__all__ = ["DAYS", "MONTHS", "date_words", "day_of", "spoken_date_words"]

MONTHS = tuple(
    """january february march april may june july august september october november december""".split()  # noqa: SIM905
)
DAYS = tuple("""monday tuesday wednesday thursday friday saturday sunday""".split())  # noqa: SIM905

_NUMBERS = "zero one two three four five six seven eight nine ten eleven twelve".split()  # noqa: SIM905
# What others said, on a day of their own: between quotation marks, or in lines that a mail quotes.
_QUOTED = re.compile(
    '"[^"\\n]*"|\u201c[^\u201c\u201d\\n]*\u201d|\u00ab[^\u00ab\u00bb\\n]*\u00bb|^[ \\t]*>.*$', re.MULTILINE
)
_COUNTED = re.compile(rf"\b(a|{'|'.join(_NUMBERS[1:])}|\d\d?) (day|week|weekend|month|year)s? (ago|from now)\b")
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
    """The day of a Unix time; None, where there is none, or none that a calendar has."""
    if at is None or not math.isfinite(at):
        return None
    try:
        return (datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=at)).date()
    except OverflowError:
        return None


def date_words(at: float | None) -> str:
    """The words of a Unix time's date; none, where there is none."""
    said = day_of(at)
    return " ".join(_day(said)) if said else ""


def spoken_date_words(text: str, at: float | None) -> str:
    """The words that a text's own date does not have, of the dates it names by how far they lie from that date.

    A day gives all its words; a week, whose days are not known, its months and years; a month and a year give
    themselves. What is quoted was said on another day, and gives nothing.

    >>> spoken_date_words("I saw him two months ago, and yesterday.", at=1683547200.0)  # Monday, 8 May 2023
    'march sunday 7'
    """
    said = day_of(at)
    if said is None:
        return ""
    text = " ".join(_QUOTED.sub(" . ", text).lower().split())
    words: dict[str, None] = {}
    for unit, by in _spoken(text):
        words |= dict.fromkeys(_moved(said, unit, by))
    own = _day(said)
    return " ".join(word for word in words if word not in own)


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


def _moved(said: date, unit: str, by: int) -> list[str]:
    """The words of the day, week, month or year that lies so many from a date; none before the year 1 or after 9999."""
    try:
        return _words_of(said, unit, by)
    except (OverflowError, ValueError):
        return []


def _words_of(said: date, unit: str, by: int) -> list[str]:
    if unit == "year":
        return [str(said.replace(year=said.year + by, day=1).year)]
    if unit == "month":
        year, month = divmod(12 * said.year + said.month - 1 + by, 12)
        return [MONTHS[month], str(date(year, 1, 1).year)]
    if unit in {"week", "weekend"}:
        monday = said + timedelta(days=7 * by - said.weekday())
        first, last = (monday + timedelta(days=day) for day in ((0, 6) if unit == "week" else (5, 6)))
        return [word for day in (first, last) for word in _day(day)[2:]]
    if unit in DAYS:
        ahead = (DAYS.index(unit) - said.weekday()) % 7  # 0 to 6; another week where that is not the one meant
        by = ahead - 7 if by < 0 else ahead or 7 * by
    return _day(said + timedelta(days=by))


def _day(day: date) -> list[str]:
    return [DAYS[day.weekday()], str(day.day), MONTHS[day.month - 1], str(day.year)]
