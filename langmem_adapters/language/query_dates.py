"""Dates that a query names: "March 4th", "2026-03-04", "am 4. März", and, by the time it is asked, "yesterday".

ISO dates are read in any language, months and "yesterday" in a few. The words of what is found are English, as those of
a message's own date are, so that a query in any language finds it. Days are those of this process's time zone.
"""

from __future__ import annotations

import math
import re
import unicodedata
from contextlib import suppress
from datetime import date, timedelta
from functools import lru_cache
from typing import NamedTuple

from langmem_adapters.language.dates import ISO_DATE, MONTHS, day_of, relative_span
from langmem_adapters.language.lists import word_set
from langmem_adapters.language.questions import asked_part
from langmem_adapters.language.relative_dates import QUOTED_PATTERN, relative_spans

_MAX_QUERY_CHARS = 300  # of a query that may name a relative date: a longer one was pasted
_MAX_DATED_CHARS = _MAX_QUERY_CHARS + len(" 2026-03-02/2026-03-08")
_MAX_INTERVAL_DAYS = 31  # each has words of its own
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
_MONTH_NUMBERS = {
    word: n for n, words in enumerate(zip(MONTHS, _MONTH_WORDS, strict=True), 1) for word in " ".join(words).split()
}
_AMBIGUOUS_MONTH_WORDS = word_set("may march mar mars mai mei mayo jan jun sep dec")  # mean a month in few places
_WORDS_BEFORE_MONTH = word_set("in of since until till by during last next this early late im en au em nel")
_TODAY_PATTERN = re.compile(r"\b(?:today|tonight|this (?:morning|afternoon|evening))\b")
_PAST_WORDS = word_set("been did had happened said told was were")
_NUMERIC_DATE_PATTERN = re.compile(rf"{ISO_DATE}(?:/{ISO_DATE})?|\b(\d\d?)\.\s?(\d\d?)\.((?:19|20)\d\d)\b")
_EAST_ASIAN_DATE_PATTERN = re.compile(r"(?:((?:19|20)\d\d)\s?[年년]\s?)?(\d\d?)\s?[月월](?:\s?(\d\d?)\s?[日号일])?")
_WORD_PATTERN = re.compile(r"[\w']+")
_YEAR_PATTERN = re.compile(r"(?:19|20)\d\d")
_DAY_PATTERN = re.compile(r"([12]?\d|3[01])(?:st|nd|rd|th|er|º)?")
_FILLER_WORDS = frozenset(("of", "the", "de"))  # "the 4th of March", "4 de marzo"


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
            days = [first + timedelta(days=n) for n in range(self.days)]
            months = dict.fromkeys((MONTHS[day.month - 1], str(day.year)) for day in days)
            return " ".join([*(_day_terms(day.day) for day in days), *(word for month in months for word in month)])
        month = MONTHS[self.month - 1] if self.month else ""
        return " ".join(str(part) for part in (_day_terms(self.day), month, self.year) if part)

    def match_score(self, at: float | None) -> float:
        """How well a Unix time fits, from 0 to 1: a day is mostly spoken of on that day or soon after."""
        day = day_of(at) if self else None
        if day is None:
            return 0.0
        if self.days > 1:
            days_late = (day - date(self.year, self.month, self.day)).days
            return 0.0 if days_late < 0 else math.exp(-max(0, days_late - self.days) / 3)
        if self.year not in {0, day.year} or self.month not in {0, day.month}:
            return 0.0
        return 0.4 + 0.6 * math.exp(-abs(day.day - self.day - 1) / 3) if self.day else 1.0


@lru_cache(maxsize=64)  # a search asks several times
def named_date(query: str) -> NamedDate:
    """Read the date that a query names, the first one if there are several."""
    return _numeric_date(query) or _written_date(query)


def dated_part(query: str) -> str:
    """Where a query's dates are: in its question, or else in all of it, unless that is so long that it was pasted."""
    asked = asked_part(query)
    return asked if named_date(asked) or len(query) > _MAX_DATED_CHARS else query


def split_dates(query: str) -> tuple[str, str]:
    """A query without the dates that it names in digits, and the words of these and of :func:`named_date`."""
    dates = [named_date(query), *map(_date_of_match, _NUMERIC_DATE_PATTERN.finditer(query))]
    words = dict.fromkeys(named.words() for named in dates if named)
    return _NUMERIC_DATE_PATTERN.sub(" ", query), " ".join(words)


def possible_day_words(query: str) -> str:
    """The words of the days that numbers in a query may be, as in "on the 4th" and "4 marca"."""
    days = (_DAY_PATTERN.fullmatch(word) for word in _WORD_PATTERN.findall(query.lower()))
    return " ".join(f"day{day[1]}" for day in days if day)


def with_dates(query: str, now: float) -> str:
    """Append to a query the date, in digits, that it names relative to the time at which it is asked.

    In a question, statements beside it do not count. Nor does today, unless the question is about the past: "What
    shall I cook today?" wants what is known of tastes, and not what was said this morning.

    >>> with_dates("What did I do yesterday?", now=1683547200.0)  # Monday, 8 May 2023
    'What did I do yesterday? 2023-05-07'
    """
    today = day_of(now)
    if today is None or len(query) > _MAX_QUERY_CHARS or named_date(query):
        return query
    text = QUOTED_PATTERN.sub(" ", unicodedata.normalize("NFC", query).lower().replace("\u2019", "'"))
    text = asked_part(text)
    span = next(relative_spans(text, today), None)
    if span is None and _TODAY_PATTERN.search(text):
        span = relative_span(today, "day", 0)
    if span is None:
        return query
    is_about_past = not _PAST_WORDS.isdisjoint(_WORD_PATTERN.findall(text))
    if span.first <= today <= span.last and not is_about_past:
        return query
    return f"{query} {span.iso()}"


def _numeric_date(query: str) -> NamedDate | None:
    if match := _NUMERIC_DATE_PATTERN.search(query):
        return _date_of_match(match)
    return None if query.isascii() else _east_asian_date(query)


def _date_of_match(match: re.Match[str]) -> NamedDate | None:
    year, month, day, *last_day, other_day, other_month, other_year = (int(part or 0) for part in match.groups())
    if other_year:
        return NamedDate(other_year, other_month, other_day) if other_month <= len(MONTHS) else None
    if month > len(MONTHS):
        return None
    with suppress(ValueError):  # there is no such day
        days = (date(*last_day) - date(year, month, day)).days + 1
        if 1 < days <= _MAX_INTERVAL_DAYS:
            return NamedDate(year, month, day, days)
    return NamedDate(year, month, day)


def _east_asian_date(query: str) -> NamedDate | None:
    match = _EAST_ASIAN_DATE_PATTERN.search(query)
    if not match or not 0 < int(match[2]) <= len(MONTHS):
        return None
    return NamedDate(int(match[1] or 0), int(match[2]), int(match[3] or 0))


def _written_date(query: str) -> NamedDate:
    words = _WORD_PATTERN.findall(query.lower().replace("\u2019", "'"))
    years = [int(word) for word in words if _YEAR_PATTERN.fullmatch(word)]
    year = years[0] if years else 0
    for position, word in enumerate(words):
        if word in _MONTH_NUMBERS:
            day = _adjacent_day(words, position)
            word_before = words[max(0, position - 1) : position]
            is_month = word not in _AMBIGUOUS_MONTH_WORDS or not _WORDS_BEFORE_MONTH.isdisjoint(word_before)
            if day or is_month or (years and words[position + 1 : position + 2] == [str(year)]):
                return NamedDate(year, _MONTH_NUMBERS[word], day or _first_day(words))
    return NamedDate(year)


def _adjacent_day(words: list[str], position: int) -> int:
    """The day that a word before or after a month names, filler words aside; 0 if neither does."""
    sides = (range(position - 1, -1, -1), range(position + 1, len(words)))  # a copy of them would take longest
    return _first_day([next((words[n] for n in side if words[n] not in _FILLER_WORDS), "") for side in sides])


def _day_terms(day: int) -> str:
    """A day as a text has it, and as the date of a message has it; "" for none."""
    return f"{day} day{day}" if day else ""


def _first_day(words: list[str]) -> int:
    return next((int(day[1]) for word in words if (day := _DAY_PATTERN.fullmatch(word))), 0)
