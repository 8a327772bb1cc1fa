"""Days, and the words that name them: "monday day8 may 2023".

Words are English, so that a question that names a date finds them in any language. Days are in this process's time
zone: a user who asks "yesterday?" in the evening means a local day.
"""

from __future__ import annotations

import math
from calendar import monthrange
from datetime import date, timedelta
from typing import NamedTuple

MONTHS = tuple("""january february march april may june july august september october november december""".split())
DAYS = tuple("""monday tuesday wednesday thursday friday saturday sunday""".split())

ISO_DATE = r"\b((?:19|20)\d\d)-(\d\d)(?:-(\d\d))?\b"
"""A pattern of a day, or of a month, in figures."""


def day_of(at: float | None) -> date | None:
    """The local day of a Unix time; None without one, or if no calendar has it."""
    if at is None or not math.isfinite(at):
        return None
    try:
        return date.fromtimestamp(at)  # noqa: DTZ012 - a day of this time zone is meant
    except (OverflowError, OSError, ValueError):  # each platform has its own
        return None


def date_words(at: float | None) -> str:
    """The words of a Unix time's date; empty without one."""
    day = day_of(at)
    return " ".join(day_words(day)) if day else ""


class Span(NamedTuple):
    """Days that are spoken of as a day, a week, a weekend, a month or a year."""

    unit: str
    first: date
    last: date

    def words(self) -> list[str]:
        """The words that name it."""
        if self.unit == "year":
            return [str(self.first.year)]
        if self.unit == "day":
            return day_words(self.first)
        return [word for day in (self.first, self.last) for word in day_words(day)[2:]]

    def iso(self) -> str:
        """Its form in ISO 8601: 2023-05-07, 2023-05-01/2023-05-07, 2023-05 or 2023."""
        first = self.first.isoformat()
        if self.unit == "year":
            return first[: len("2023")]
        if self.unit == "month":
            return first[: len("2023-05")]
        return first if self.unit == "day" else f"{first}/{self.last.isoformat()}"


def relative_span(origin: date, unit: str, offset: int) -> Span:
    """The day, week, month or year that lies ``offset`` units from a date.

    A "friday" is the nearest one before or after; a "week friday" is that of a week. Raises ValueError or OverflowError
    if the calendar has none.
    """
    if unit == "year":
        year = origin.year + offset
        return Span("year", date(year, 1, 1), date(year, 12, 31))
    if unit == "month":
        year, month = divmod(12 * origin.year + origin.month - 1 + offset, 12)
        return Span("month", date(year, month + 1, 1), date(year, month + 1, monthrange(year, month + 1)[1]))
    monday = origin + timedelta(days=7 * offset - origin.weekday())
    if unit in {"week", "weekend"}:
        return Span(unit, monday + timedelta(days=5 if unit == "weekend" else 0), monday + timedelta(days=6))
    if unit.startswith("week "):
        day = monday + timedelta(days=DAYS.index(unit.removeprefix("week ")))
    elif unit in DAYS:
        days_ahead = (DAYS.index(unit) - origin.weekday()) % 7  # 0 to 6
        if offset < 0:
            days_ahead -= 7
        elif not days_ahead:
            days_ahead = 7 * offset  # the origin is that weekday itself
        day = origin + timedelta(days=days_ahead)
    else:
        day = origin + timedelta(days=offset)
    return Span("day", day, day)


def day_words(day: date) -> list[str]:
    """The words that name a day. Its number is marked, as "key 28" is not what was said on the 28th."""
    return [DAYS[day.weekday()], f"day{day.day}", MONTHS[day.month - 1], str(day.year)]
