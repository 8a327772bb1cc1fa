"""Dates that a query names: "March 4th", "2026-03-04", "am 4. März", and, by the time it is asked, "yesterday".

ISO dates are read in any language, months and "yesterday" in a few. The words of what is found are English, as those of
a message's own date are, so that a query in any language finds it. Days are those of this process's time zone.
"""

from __future__ import annotations

import math
import re
from contextlib import suppress
from datetime import date, timedelta
from functools import lru_cache
from typing import NamedTuple

from langmem_adapters.language.dates import ISO_DATE, MONTHS, day_of, span
from langmem_adapters.language.lists import listed
from langmem_adapters.language.spoken_dates import QUOTED, spoken

__all__ = ["NamedDate", "apart", "days_in", "named_date", "with_dates"]

_LONGEST = 300  # characters of a query that may name a relative date: a longer one was pasted
_MOST_DAYS = 31  # of an interval: each has words of its own
_MONTH_WORDS = (  # in German, French, Spanish, Italian, Portuguese, Dutch and Russian, and as they are cut short
    "jan januar jänner janvier enero gennaio janeiro januari января январе январь",
    "feb februar février febrero febbraio fevereiro februari февраля феврале февраль",
    "mar märz maerz mars marzo março maart марта марте март",
    "apr avril abril aprile апреля апреле апрель",
    "mai mayo maggio maio mei мая мае май",
    "jun juni juin junio giugno junho июня июне июнь",
    "jul juli juillet julio luglio julho июля июле июль",
    "aug août agosto augustus августа августе август",
    "sep sept septembre septiembre settembre setembro сентября сентябре сентябрь",
    "oct okt oktober octobre octubre ottobre outubro октября октябре октябрь",
    "nov novembre noviembre novembro ноября ноябре ноябрь",
    "dec dez dezember décembre diciembre dicembre dezembro декабря декабре декабрь",
)
_MONTH_OF = {
    word: n for n, words in enumerate(zip(MONTHS, _MONTH_WORDS, strict=True), 1) for word in " ".join(words).split()
}
_OTHERWISE = listed("may march mar mars mai mei mayo jan jun sep dec")  # mean a month in few places
_BEFORE_A_MONTH = listed("in of since until till by during last next this early late im en au em nel")
_TODAY = re.compile(r"\b(?:today|tonight|this (?:morning|afternoon|evening))\b")
_PAST = listed("been did had happened said told was were")
_IN_FIGURES = re.compile(rf"{ISO_DATE}(?:/{ISO_DATE})?|\b(\d\d?)\.\s?(\d\d?)\.((?:19|20)\d\d)\b")
_EAST_ASIAN = re.compile(r"(?:((?:19|20)\d\d)\s?[年년]\s?)?(\d\d?)\s?[月월](?:\s?(\d\d?)\s?[日号일])?")
_QUESTION = re.compile(r"[^.!?\u061f\uff1f\u3002]*[?\u061f\uff1f]")
_WORD = re.compile(r"[\w']+")
_YEAR = re.compile(r"(?:19|20)\d\d")
_DAY = re.compile(r"([12]?\d|3[01])(?:st|nd|rd|th|er|º)?")
_BETWEEN = frozenset(("of", "the", "de"))  # "the 4th of March", "4 de marzo"


class NamedDate(NamedTuple):
    """A date that a query names; parts that it does not name are 0."""

    year: int = 0
    month: int = 0
    day: int = 0
    days: int = 1
    """The number of days, from that one on."""

    def __bool__(self) -> bool:
        """Whether any date is named."""
        return any(self[:3])

    def words(self) -> str:
        """The words that a message of that date has."""
        if self.days > 1:
            first = date(self.year, self.month, self.day)
            there = [first + timedelta(days=n) for n in range(self.days)]
            months = dict.fromkeys((MONTHS[day.month - 1], str(day.year)) for day in there)
            return " ".join([*(_both(day.day) for day in there), *(word for month in months for word in month)])
        month = MONTHS[self.month - 1] if self.month else ""
        return " ".join(str(part) for part in (_both(self.day), month, self.year) if part)

    def meets(self, at: float | None) -> float:
        """How well a Unix time fits, from 0 to 1: a day is mostly spoken of on that day or soon after."""
        said = day_of(at) if self else None
        if said is None:
            return 0.0
        if self.days > 1:
            late = (said - date(self.year, self.month, self.day)).days
            return 0.0 if late < 0 else math.exp(-max(0, late - self.days) / 3)
        if self.year not in {0, said.year} or self.month not in {0, said.month}:
            return 0.0
        return 0.4 + 0.6 * math.exp(-abs(said.day - self.day - 1) / 3) if self.day else 1.0


@lru_cache(maxsize=64)  # a search asks several times
def named_date(query: str) -> NamedDate:
    """Read the date that a query names, the first one if there are several."""
    return _in_figures(query) or _in_words(query)


def apart(query: str) -> tuple[str, str]:
    """A query without the dates that it names in digits, and the words of these and of :func:`named_date`."""
    dates = (named_date(query), *filter(None, map(_of_figures, _IN_FIGURES.finditer(query))))
    return _IN_FIGURES.sub(" ", query), " ".join(dict.fromkeys(each.words() for each in dates if each))


def days_in(query: str) -> str:
    """The words of the days that numbers in a query may be, as in "on the 4th" and "4 marca"."""
    days = (_DAY.fullmatch(word) for word in _WORD.findall(query.lower()))
    return " ".join(f"day{day[1]}" for day in days if day)


def with_dates(query: str, now: float) -> str:
    """Append to a query the date, in digits, that it names relative to the time at which it is asked.

    In a question, statements beside it do not count. Nor does today, unless the question is about the past: "What
    shall I cook today?" wants what is known of tastes, and not what was said this morning.

    >>> with_dates("What did I do yesterday?", now=1683547200.0)  # Monday, 8 May 2023
    'What did I do yesterday? 2023-05-07'
    """
    today = day_of(now)
    if today is None or len(query) > _LONGEST or named_date(query):
        return query
    said = QUOTED.sub(" ", query.lower().replace("\u2019", "'"))
    said = " ".join(_QUESTION.findall(said)) or said
    found = next(spoken(said, today), None) or (span(today, "day", 0) if _TODAY.search(said) else None)
    if found is None or (found.first <= today <= found.last and _PAST.isdisjoint(_WORD.findall(said))):
        return query
    return f"{query} {found.iso()}"


def _in_figures(query: str) -> NamedDate | None:
    if found := _IN_FIGURES.search(query):
        return _of_figures(found)
    return None if query.isascii() else _in_east_asia(query)


def _of_figures(found: re.Match[str]) -> NamedDate | None:
    year, month, day, *last, other_day, other_month, other_year = (int(part or 0) for part in found.groups())
    if other_year:
        return NamedDate(other_year, other_month, other_day) if other_month <= len(MONTHS) else None
    if month > len(MONTHS):
        return None
    with suppress(ValueError):  # there is no such day
        days = (date(*last) - date(year, month, day)).days + 1
        if 1 < days <= _MOST_DAYS:
            return NamedDate(year, month, day, days)
    return NamedDate(year, month, day)


def _in_east_asia(query: str) -> NamedDate | None:
    found = _EAST_ASIAN.search(query)
    if not found or not 0 < int(found[2]) <= len(MONTHS):
        return None
    return NamedDate(int(found[1] or 0), int(found[2]), int(found[3] or 0))


def _in_words(query: str) -> NamedDate:
    words = _WORD.findall(query.lower().replace("\u2019", "'"))
    years = [int(word) for word in words if _YEAR.fullmatch(word)]
    year = years[0] if years else 0
    for n, word in enumerate(words):
        if word in _MONTH_OF:
            day = _day_beside(words, n)
            sure = word not in _OTHERWISE or not _BEFORE_A_MONTH.isdisjoint(words[max(0, n - 1) : n])
            if day or sure or (years and words[n + 1 : n + 2] == [str(year)]):
                return NamedDate(year, _MONTH_OF[word], day or _any_day(words))
    return NamedDate(year)


def _day_beside(words: list[str], n: int) -> int:
    places = range(n - 1, -1, -1), range(n + 1, len(words))
    return _any_day([next((words[m] for m in side if words[m] not in _BETWEEN), "") for side in places])


def _both(day: int) -> str:
    """A day as a text has it, and as the date of a message has it; "" for none."""
    return f"{day} day{day}" if day else ""


def _any_day(words: list[str]) -> int:
    return next((int(day[1]) for word in words if (day := _DAY.fullmatch(word))), 0)
