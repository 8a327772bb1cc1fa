"""Dates as words: which dates a text speaks of, seen from its own, and when it speaks of none."""

from __future__ import annotations

import time
from datetime import date, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from langmem_adapters.indexes.lexical import LexicalIndex
from langmem_adapters.language.analysis import analyze
from langmem_adapters.language.dates import DAYS, MONTHS, date_words, day_of
from langmem_adapters.language.relative_dates import mentioned_date_words
from langmem_adapters.longterm import LongTermMemory
from langmem_adapters.model import Message
from langmem_adapters.protocols import Document
from langmem_adapters.stores.memory import MemoryStore


def at(year: int, month: int, day: int) -> float:
    return datetime(year, month, day, 12, tzinfo=timezone.utc).timestamp()


MONDAY, FRIDAY, SUNDAY = at(2023, 5, 8), at(2023, 5, 12), at(2023, 5, 14)


def spoken(text: str, said: float | None = FRIDAY) -> set[str]:
    return {word.removeprefix("day") for word in mentioned_date_words(text, said).split()}


# --- what is spoken of


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Yesterday I met Anna.", "thursday 11"),
        ("See you TOMORROW!", "saturday 13"),
        ("The day before yesterday it rained.", "wednesday 10"),
        ("And the day after tomorrow?", "sunday 14"),
        ("Last night was long.", "thursday 11"),
        ("this night is long", ""),
        ("three days ago", "tuesday 9"),
        ("3 days ago", "tuesday 9"),
        ("Twelve days\nago", "sunday 30 april"),
        ("10 days ago", "tuesday 2"),
        ("the night was long, the next night too; next night", "saturday 13"),
        ("a day ago", "thursday 11"),
        ("two days from now", "sunday 14"),
        ("last month", "april"),
        ("next month's trip", "june"),
        ("six months ago", "november 2022"),
        ("eight months from now", "january 2024"),
        ("seven months from now", "december"),
        ("last year", "2022"),
        ("an 18th century house, ten years ago", "2013"),
        ("next year", "2024"),
        ("last week", ""),
        ("two weeks ago", "april"),
        ("next week", ""),
        ("three weeks from now", "june"),
        ("two weekends ago", "april"),
        ("last weekend", ""),
        ("last Friday", "5"),
        ("this Friday", ""),
        ("next Friday", "19"),
        ("last Thursday", "thursday 11"),
        ("this Thursday", "thursday 18"),
        ("next Thursday", "thursday 18"),
        ("last month and last year", "april 2022"),
        ("a year ago, and last Monday", "2022 monday 8"),
        ("about two weeks ago, I think", "april"),
    ],
)
def test_a_text_of_a_friday_speaks_of_other_dates(text: str, words: str) -> None:
    assert spoken(text) == set(words.split())
    assert date_words(FRIDAY) == "friday day12 may 2023"


def test_a_week_gives_its_months_and_years_and_no_day() -> None:
    assert spoken("a week ago", at(2023, 5, 8)) == set()
    assert spoken("a week ago", at(2023, 5, 7)) == {"april"}
    assert spoken("next week", at(2022, 12, 25)) == {"january", "2023"}
    assert spoken("next week", at(2022, 12, 18)) == set()
    assert spoken("one week from now", at(2022, 12, 24)) == {"january", "2023"}


def test_a_weekend_is_its_saturday_and_sunday() -> None:
    assert spoken("last weekend", at(2023, 5, 7)) == {"april"}
    assert spoken("last week", at(2023, 7, 8)) == {"june"}
    assert spoken("last weekend", at(2023, 7, 8)) == set()
    assert spoken("this weekend", at(2023, 9, 29)) == {"october"}


def test_the_turn_of_a_year_and_a_leap_day() -> None:
    assert spoken("yesterday", at(2023, 1, 1)) == {"saturday", "31", "december", "2022"}
    assert spoken("last month", at(2023, 1, 31)) == {"december", "2022"}
    assert spoken("last month", at(2023, 3, 31)) == {"february"}
    assert spoken("last year", at(2024, 2, 29)) == {"2023"}
    assert spoken("yesterday", at(2024, 3, 1)) == {"thursday", "29", "february"}


# --- what is not


@pytest.mark.parametrize(
    "text",
    [
        "",
        "It may rain, and may march on.",
        "Long ago, a few days ago, a couple of weeks ago.",
        "The next week we went on, the next month too, and the last year of school began.",
        "Last week of May; next month of marriage.",
        "half a year ago",
        "a quarter of a year ago",
        "twenty two years ago, twenty-two years ago",
        "a hundred and two years ago, a hundred two years ago",
        "a year and two months ago; two weeks and three days ago",
        "1.5 years ago, 1,5 years ago, 1/2 years ago, 150 years ago",
        "2-3 months ago",
        "everlast year, two months agog, next yearly, blast month, tomorrows",
        "today, tonight, this week, this month, this year",
        'He said: "I was there last month."',
        "He said: \u201cI was there last month.\u201d",
        "He said: \u00abI was there last month.\u00bb",
        "> I was there last month.\n\t> And yesterday.",
        'last "great" year',
        "Der letzte Tag der Woche war lang; ago, last, next.",
        "Was ist hier los? Vor Tagen, in zwei Wochen, morgen.",
        "马上周末了，5月前，2026年前，二十天前，上星期天空很蓝",  # noqa: RUF001 - Chinese
        "прошлый раз",
    ],
)
def test_a_text_speaks_of_no_date(text: str) -> None:
    assert spoken(text) == set()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Gestern war ich am See, letzten Monat am Meer, vor zwei Jahren nirgends.", "thursday 11 april 2021"),
        ("Hier j'ai vu Anna, mardi dernier Paul ; il y a trois mois, personne.", "thursday 11 tuesday 9 february"),
        ("Ayer, el lunes pasado, hace dos años; el próximo viernes.", "thursday 11 monday 8 2021 19"),
        ("Anteontem, sexta-feira passada, há um mês, duas semanas atrás.", "wednesday 10 5 april"),
        ("L'altro ieri, venerdì scorso, due mesi fa, l'anno scorso.", "wednesday 10 5 march 2022"),
        ("Eergisteren, vorige maandag, drie maanden geleden.", "wednesday 10 monday 8 february"),
        ("Позавчера, в прошлый вторник, три дня назад, месяц назад.", "wednesday 10 tuesday 9 april"),
        ("昨天，上周五，三天前，两个月前，去年", "thursday 11 5 tuesday 9 march 2022"),  # noqa: RUF001 - Chinese
        ("おととい、先週の金曜日、先月、3日前", "wednesday 10 5 april tuesday 9"),
        ("어제, 지난주 금요일, 지난달, 내년", "thursday 11 5 april 2024"),
    ],
)
def test_other_languages_speak_of_dates_too(text: str, words: str) -> None:
    assert spoken(text) == set(words.split())


def test_around_a_quotation_dates_are_seen() -> None:
    assert spoken('Last month: "It was yesterday." A year ago.\n> last week\nTomorrow!') == {
        *("april", "2022", "saturday", "13"),
    }
    assert spoken('a 5" screen, last month') == {"april"}


def test_without_a_time_or_beyond_the_calendar_there_is_nothing() -> None:
    assert [spoken("yesterday", said) for said in (None, float("nan"), float("inf"), 1e300)] == [set()] * 4
    first, last = at(1, 1, 1), at(9999, 12, 31)
    assert spoken("yesterday, last month, last year, last week, last Friday", first) == set()
    assert spoken("tomorrow, next month, next year, next week, next Friday", last) == set()
    assert spoken("yesterday or tomorrow", last) == {"thursday", "30"}
    assert (day_of(None), day_of(first), date_words(1e300)) == (None, date(1, 1, 1), "")


# --- rules that hold for any text


PIECES = st.sampled_from(
    """last next this two a 3 ago from now day days week weekend month year friday yesterday tomorrow the of and " > .
    \u201c \u201d may March 自転車""".split()  # noqa: SIM905
)
TEXTS = st.lists(PIECES | st.just("\n"), max_size=30).map(" ".join) | st.text(max_size=60)
TIMES = st.floats(-62135596800, 253402300799) | st.floats()


@given(TEXTS, TIMES)
@example("yesterday", -62135596800.0)
def test_only_words_of_dates_come_out_each_once_and_none_of_its_own(text: str, said: float) -> None:
    words = mentioned_date_words(text, said).split()
    assert len(words) == len(set(words))
    assert not set(words) & set(date_words(said).split())
    assert all(word in MONTHS + DAYS or 0 < int(word.removeprefix("day")) <= 9999 for word in words)


@given(st.dates(date(1900, 1, 1), date(2100, 1, 1)), st.sampled_from(DAYS))
def test_last_and_next_of_a_weekday_are_the_nearest_that_are_not_today(day: date, weekday: str) -> None:
    noon = at(day.year, day.month, day.day)
    near = [day + timedelta(days=by) for by in range(-7, 8) if by]
    before, after = (one for one in near if DAYS[one.weekday()] == weekday)
    for which, meant in (("last", before), ("next", after)):
        words = set(date_words(at(meant.year, meant.month, meant.day)).split())
        said = mentioned_date_words(f"{which} {weekday.title()}", noon)
        assert set(said.split()) == words - set(date_words(noon).split())


@pytest.mark.parametrize(
    "piece",
    ['"', "\u201c", "\u00ab", "> ", " ", "\n", "last ", "the ", "a year and ", "9", "-", "il y a 2 ", "vor ", "前"],
)
def test_hostile_texts_take_no_longer_than_others(piece: str) -> None:
    text = piece * (200_000 // len(piece))
    start = time.process_time()
    assert spoken(text) == set()
    assert time.process_time() - start < 2


# --- in a memory


def test_a_question_that_names_the_date_finds_what_was_said_of_it(tmp_path: Path) -> None:
    index = LexicalIndex(tmp_path / "index.db")
    memory = LongTermMemory(MemoryStore(), index, user="ada")
    said = {at(2023, 5, 8): "We went to the sea last month.", at(2023, 5, 9): "We went to the lake, too."}
    memory.add([Message(role="user", content=text, created_at=when) for when, text in said.items()])
    assert [found.text for found in memory.search("What happened in April?")] == ["We went to the sea last month."]
    assert [found.text for found in memory.search("What happened in June?")] == []
    index.close()


def test_a_text_that_speaks_of_no_date_has_the_words_that_it_had() -> None:
    index = LexicalIndex(":memory:")
    texts = ["Ich war am See.", "我去了海边", "The sea was cold.", "It may rain."]
    for n, text in enumerate(texts):
        index.apply(("n",), upsert=[Document(str(n), text, "Anna", "", MONDAY)])
        evidence = index.gather(("n",), text, 1, [str(n)])
        assert evidence is not None
        turn = next(turn for turn in evidence.turns.values() if turn.id == str(n))
        assert turn.length == len(analyze(text) + analyze("Anna monday day8 may 2023"))
    index.close()


def test_an_index_of_the_version_before_is_built_anew_once_and_then_knows_the_dates(tmp_path: Path) -> None:
    store = MemoryStore()

    def before(text: str) -> list[str]:
        return analyze(text.partition("\n")[0])

    said = [Message(role="user", content=f"The trip to the sea, {n} months ago.", created_at=MONDAY) for n in (1, 2)]
    old = LexicalIndex(tmp_path / "index.db", analyzer=before, analyzer_id="langmem-2")
    memory = LongTermMemory(store, old, user="ada")
    memory.add(said)
    assert len(memory.search("trip to the sea")) == 2
    assert memory.search("in April") == []
    old.close()
    new = LexicalIndex(tmp_path / "index.db")
    assert new.position(("longterm", "", "ada")) is None
    memory = LongTermMemory(store, new, user="ada")
    assert [found.text for found in memory.search("in April")] == [said[0].content]
    assert [found.text for found in memory.search("in March")] == [said[1].content]
    assert len(memory.search("trip to the sea")) == 2
    position = new.position(("longterm", "", "ada"))
    new.close()
    assert position is not None
    assert position == new.position(("longterm", "", "ada"))
    assert len(LongTermMemory(store, new, user="ada").search("in April")) == 1
    new.close()
