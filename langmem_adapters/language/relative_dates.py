"""Dates that a text speaks of: in digits, or relative to its own, as "last Friday", "il y a un mois", "上周五"."""

# ruff: noqa: RUF001 - Cyrillic letters are meant
from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import date
from functools import lru_cache
from typing import NamedTuple

from langmem_adapters.language.dates import DAYS, ISO_DATE, Span, day_of, day_words, relative_span
from langmem_adapters.language.lists import word_set

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
    for unit, offset in (*_english_offsets(text), *_foreign_offsets(text)):
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


# ---- other languages


class _Language(NamedTuple):
    """A language with spaces between words. Its lists hold patterns, in which an underscore stands for a space."""

    days: str
    """Monday and the other days of the week."""
    units: str
    """Day, week, weekend, month and year."""
    numbers: str
    """One, two and so on, up to twelve."""
    last: str
    """Phrases for the unit before, as "last #" and "# passed", separated by commas."""
    next: str
    ago: str
    """The same for a number with a unit, as "before #" and "# ago"."""
    later: str
    day_offsets: dict[str, int]
    """Days with names of their own, and their distance in days; the longer names first."""


_LANGUAGES = (
    _Language(  # German
        "montag dienstag mittwoch donnerstag freitag (?:samstag|sonnabend) sonntag",
        "tag(?:en?)? wochen? wochenende monat(?:en?)? jahr(?:en?)?",
        "ein(?:e[mnr]?)? zwei drei vier fünf sechs sieben acht neun zehn elf zwölf",
        "letzte[mnrs]? #, vorige[mnrs]? #, vergangene[mnrs]? #", "nächste[mnrs]? #, kommende[mnrs]? #",
        "vor #", "", {"vorgestern": -2, "gestern": -1, "übermorgen": 2},
    ),
    _Language(  # French
        "lundi mardi mercredi jeudi vendredi samedi dimanche",
        "jours? semaines? week-?end mois an(?:née)?s?",
        "une? deux trois quatre cinq six sept huit neuf dix onze douze",
        "# derni(?:er|ère), # passée?", "# prochaine?",
        "il y a #", "dans #", {"avant-hier": -2, "après-demain": 2, "demain": 1},
    ),
    _Language(  # Spanish
        "lunes martes mi[ée]rcoles jueves viernes s[áa]bado domingo",
        "d[íi]as? semanas? fin_de_semana mes(?:es)? años?",
        "un[ao]? dos tres cuatro cinco seis siete ocho nueve diez once doce",
        "# pasad[ao], pasad[ao] #", "próxim[ao] #, proxim[ao] #, # próxim[ao], # que viene",
        "hace #", "dentro de #", {"pasado mañana": 2, "anteayer": -2, "ayer": -1},
    ),
    _Language(  # Portuguese
        "segunda(?:-feira)? terça(?:-feira)? quarta(?:-feira)? quinta(?:-feira)? sexta(?:-feira)? s[áa]bado domingo",
        "dias? semanas? (?:fim|final)_de_semana m[êe]s(?:es)? anos?",
        "uma? d(?:oi|ua)s três quatro cinco seis sete oito nove dez onze doze",
        "# passad[ao]", "próxim[ao] #, proxim[ao] #, # que vem",
        "há #, # atrás", "daqui a #", {"depois de amanhã": 2, "anteontem": -2, "ontem": -1, "amanhã": 1},
    ),
    _Language(  # Italian
        "luned[ìi] marted[ìi] mercoled[ìi] gioved[ìi] venerd[ìi] sabato domenica",
        "giorn[io] settiman[ae] (?:fine_settimana|weekend) mes[ei] ann[io]",
        "un[ao]? due tre quattro cinque sei sette otto nove dieci undici dodici",
        "# scors[ao], # passat[ao]", "prossim[ao] #, # prossim[ao]",
        "# fa", "fra #, tra #", {"altro ieri": -2, "ieri": -1, "dopodomani": 2, "domani": 1},
    ),
    _Language(  # Dutch
        "maandag dinsdag woensdag donderdag vrijdag zaterdag zondag",
        "dag(?:en)? we(?:ek|ken) weekend maand(?:en)? ja(?:ar|ren)",
        "een twee drie vier vijf zes zeven acht negen tien elf twaalf",
        "vorige? #, afgelopen #", "volgende? #, komende? #",
        "# geleden", "", {"eergisteren": -2, "gisteren": -1, "overmorgen": 2},
    ),
    _Language(  # Russian
        "понедельник вторник сред[ау] четверг пятниц[ау] суббот[ау] воскресенье",
        "(?:день|дня|дней) недел[яюеиь] выходны[ех] месяц(?:а|е|ев)? (?:год[ауе]?|лет)",
        "од(?:ин|ну) дв[ае] три четыре пять шесть семь восемь девять десять одиннадцать двенадцать",
        "прошл(?:ый|ую|ой|ом|ое|ые|ых) #", "следующ(?:ий|ую|ей|ем|ее|ие|их) #",
        "# назад", "через #", {"позавчера": -2, "послезавтра": 2, "вчера": -1, "завтра": 1},
    ),
)  # fmt: skip
_UNITS_WITHOUT_NUMBER = word_set("неделю месяц год")  # each means one of them
_FRENCH_WORDS = word_set("ai as avons avez ont était avait")
"""Words that tell the French "yesterday" from the "here" of German and Dutch."""
_START_CHARS = 5

# --- languages without spaces between words, and Korean

_EAST_ASIAN_ADJACENT_PATTERNS = tuple(  # last or next, weekend, weekday, month
    re.compile(pattern)
    for pattern in (
        "(?<!马)([上下])(?:[个個]?(?:星期|周|週|礼拜|禮拜)(?:(末)|([一二三四五六日天])(?![个個次天年月起直共空]))?|[个個](月))",
        "(先|来|來)(?:週(?:(末)|の?([月火水木金土日])曜)?|(月))",
        "(지난|다음) ?(?:주(?:(말)| ?([월화수목금토일])요일)?|(달))",
    )
)
_LAST_WORDS = word_set("上 先 지난")
_WEEKDAYS = {
    name: n for names in ("一二三四五六日", "월화수목금토일", "月火水木金土日") for n, name in enumerate(names)
}
_WEEKDAYS["天"] = _WEEKDAYS["日"]
_EAST_ASIAN_COUNTED_PATTERN = re.compile(
    r"(?<![\d一二三四五六七八九十百])(\d\d?|[一二两兩三四五六七八九十한두세네]) ?"
    "(?:(天|日|일)|(周|週間?|[个個]?(?:星期|礼拜|禮拜)|주일?)|([个個かヶヵカケ]月|달|개월)|(年|년)) ?"
    "(?:[之以])?(前|后|後|전|후)"
)
_LATER_WORDS = word_set("后 後 후")
_EAST_ASIAN_NUMBERS = {name: n for names in ("一二三四五六七八九十", "한두세네") for n, name in enumerate(names, 1)}
_EAST_ASIAN_NUMBERS |= {"两": 2, "兩": 2}
_EAST_ASIAN_DAYS = {
    name: offset
    for offset, names in {
        -2: "一昨日 おととい 前天 그저께 그제",
        -1: "昨日 昨天 きのう 어제",
        1: "明日 明天 내일",
        2: "明後日 あさって 后天 後天 모레",
    }.items()
    for name in names.split()
}
_EAST_ASIAN_YEARS = {"去年": -1, "昨年": -1, "작년": -1, "明年": 1, "来年": 1, "내년": 1}


def _foreign_offsets(text: str) -> Iterator[tuple[str, int]]:
    """The units of time that a lower-case text names, and the distance of each from its date."""
    words = set(_WORD_PATTERN.findall(text))
    starts = {word[:_START_CHARS] for word in words}
    for reader in _readers():
        if not reader.starts.isdisjoint(starts):
            yield from reader.offsets(text)
    if "hier" in words and not _FRENCH_WORDS.isdisjoint(words):
        yield "day", -1
    if not text.isascii():
        yield from _east_asian_offsets(text)


_WORD_PATTERN = re.compile(r"[^\W\d_]+")


class _Reader:
    """Reads texts of one language."""

    def __init__(self, language: _Language) -> None:
        names = (*DAYS, "day", "week", "weekend", "month", "year")
        weekdays = language.days.split()
        units = [words.replace("_", " ") for words in language.units.split()]
        self._units = [(re.compile(words), name) for words, name in zip((*weekdays, *units), names, strict=True)]
        self._numbers = [re.compile(words) for words in language.numbers.split()]
        unit = f"({'|'.join([*weekdays, *units[1:]])})"  # no last day
        counted_unit = rf"(?:(\d\d?|{'|'.join(language.numbers.split())}) )?({'|'.join(units)})"
        groups = (
            (-1, language.last, unit),
            (1, language.next, unit),
            (-1, language.ago, counted_unit),
            (1, language.later, counted_unit),
        )
        phrases = [*language.day_offsets]
        self._phrase_patterns: list[tuple[int, bool, re.Pattern[str]]] = []  # direction, whether counted, pattern
        for direction, templates, unit_pattern in groups:
            if templates:
                phrases += templates.split(", ")
                pattern = "|".join(rf"\b{template.replace('#', unit_pattern)}\b" for template in templates.split(", "))
                self._phrase_patterns.append((direction, unit_pattern is counted_unit, re.compile(pattern)))
        self._day_pattern = re.compile(rf"\b(?:{'|'.join(language.day_offsets)})\b")
        self._day_offsets = language.day_offsets
        self.starts = {max(_WORD_PATTERN.findall(phrase), key=len)[:_START_CHARS] for phrase in phrases}
        """Beginnings of words; a text without any of them names no such date."""

    def offsets(self, text: str) -> Iterator[tuple[str, int]]:
        """What :func:`_foreign_offsets` gives for this language."""
        for direction, is_counted, pattern in self._phrase_patterns:
            for match in pattern.finditer(text):
                *number, unit = filter(None, match.groups())
                if number or not is_counted or unit in _UNITS_WITHOUT_NUMBER:
                    name = next(name for words, name in self._units if words.fullmatch(unit))
                    yield name, direction * self._to_number(*number)
        for match in self._day_pattern.finditer(text):
            yield "day", self._day_offsets[match[0]]

    def _to_number(self, number: str = "1") -> int:
        if number.isdecimal():
            return int(number)
        return next(n for n, words in enumerate(self._numbers, 1) if words.fullmatch(number))


@lru_cache(maxsize=1)
def _readers() -> tuple[_Reader, ...]:
    return tuple(map(_Reader, _LANGUAGES))


def _east_asian_offsets(text: str) -> Iterator[tuple[str, int]]:
    for pattern in _EAST_ASIAN_ADJACENT_PATTERNS:
        for relation, weekend, weekday, month in pattern.findall(text):
            if weekday:
                unit = f"week {DAYS[_WEEKDAYS[weekday]]}"
            elif weekend:
                unit = "weekend"
            else:
                unit = "month" if month else "week"
            yield unit, -1 if relation in _LAST_WORDS else 1
    for number, *units, direction in _EAST_ASIAN_COUNTED_PATTERN.findall(text):
        unit = next(name for name, matched in zip(("day", "week", "month", "year"), units, strict=True) if matched)
        count = _EAST_ASIAN_NUMBERS[number] if number in _EAST_ASIAN_NUMBERS else int(number)
        yield unit, count if direction in _LATER_WORDS else -count
    for unit, offsets in (("day", _EAST_ASIAN_DAYS), ("year", _EAST_ASIAN_YEARS)):
        if name := next((name for name in offsets if name in text), None):
            yield unit, offsets[name]
