"""Dates that a query names, in figures, in words of several languages, and seen from the time at which it is asked."""

from __future__ import annotations

import contextlib
import math
import time
import unicodedata
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_adapters.embedding import Embedder
from langmem_adapters.indexes import open_index, open_vectors
from langmem_adapters.indexes.lexical import LexicalIndex
from langmem_adapters.language.dates import date_words
from langmem_adapters.language.query_dates import NamedDate, named_date, with_dates
from langmem_adapters.language.relative_dates import mentioned_date_words
from langmem_adapters.longterm import LongTermMemory
from langmem_adapters.model import Message
from langmem_adapters.protocols import Document
from langmem_adapters.stores.memory import MemoryStore


def at(year: int, month: int, day: int) -> float:
    return datetime(year, month, day, 12, tzinfo=timezone.utc).timestamp()


NOW = at(2026, 3, 14)  # a Saturday
DONE = """apples film Tom fence book pool soup bike mum roses car poem bread sleep""".split()  # noqa: SIM905 - 1 to 14


@pytest.fixture
def diary() -> LongTermMemory:
    memory = LongTermMemory(MemoryStore(), open_index("memory:"), user="ada", clock=lambda: NOW)
    memory.add(
        [Message(role="user", content=f"So: {what}.", created_at=at(2026, 3, n)) for n, what in enumerate(DONE, 1)]
    )
    return memory


def found(memory: LongTermMemory, query: str, k: int = 1) -> list[str]:
    return [recalled.text[len("So: ") : -1] for recalled in memory.search(query, k)]


@pytest.mark.parametrize(
    "query",
    [
        "What did I do on March 4?",
        "What did I do on March 4th?",
        "What did I do on the 4th of March?",
        "What did I do on 4 March 2026?",
        "what did I do on mar 4",
        "What did I do on 2026-03-04?",
        "What did I do on 04.03.2026?",
        "What did I do on 4. 3. 2026?",
        "Was habe ich am 4. März gemacht?",
        "Qu'ai-je fait le 4 mars ?",
        "¿Qué hice el 4 de marzo?",
        "Che cosa ho fatto il 4 marzo?",
        "O que eu fiz em 4 de março?",
        "Wat deed ik op 4 maart?",
        "Что я делал 4 марта?",
        "2026年3月4日我做了什么",
        "3월 4일에 무엇을 했어?",
    ],
)
def test_a_day_is_found_however_it_is_written(diary: LongTermMemory, query: str) -> None:
    assert found(diary, query) == ["fence"]


def test_dates_and_names_are_read_with_accents_in_either_form() -> None:
    """A letter and its accent may be one character or two, in what was said, and in what is asked."""
    one, two = (partial(unicodedata.normalize, form) for form in ("NFC", "NFD"))
    for said, asked in ((one, two), (two, one), (two, two)):
        memory = LongTermMemory(MemoryStore(), open_index("memory:"), user="ada", clock=lambda: NOW)
        talk = {
            4: ("Jörg", "Ich war müde."),
            5: ("Jörg", "Arzt am 2026-03-16."),
            12: ("Zoë", "Ich fliege nächsten Sonntag."),
            13: ("Zoë", "Ich schlief."),
        }
        for day, (name, text) in talk.items():
            memory.add([Message(role="user", name=said(name), content=said(text), created_at=at(2026, 3, day))])
        for query, day in (("Was war am 4. März?", 4), ("Was ist übermorgen?", 5), ("Und 2026-03-15?", 12)):
            assert [each.text for each in memory.search(asked(query), 1)] == [said(talk[day][1])]
        best = memory.search(asked("Schlief Zoë?"), 1, explain=True)[0]
        assert (best.text, best.signals["speaker"] > 0) == (said("Ich schlief."), True)


@pytest.mark.parametrize("query", ["What did I do on the 4th?", "co robiłem 4 marca", "am 4.3. gemacht?"])
def test_a_day_may_be_meant_by_a_number_whose_month_is_not_known(diary: LongTermMemory, query: str) -> None:
    assert found(diary, query) == ["fence"]


def test_a_number_is_found_where_it_was_said_before_what_was_said_on_that_day() -> None:
    memory = LongTermMemory(MemoryStore(), open_index("memory:"), user="ada", clock=lambda: NOW)
    keys = [f"The key {n} hangs at door {n}." for n in range(1, 31)]
    memory.add([Message(role="user", content=key, created_at=at(2026, 3, 28)) for key in keys])
    assert [memory.search(f"key {n}", 1)[0].text for n in range(1, 31)] == keys


def test_a_number_costs_nothing_where_nothing_was_said_on_such_a_day() -> None:
    with contextlib.closing(LexicalIndex(":memory:")) as index:
        keys = [Document(f"key {n}", f"key {n}", "", "", at(2026, 3, 28)) for n in (20, 40)]
        index.apply((), upsert=keys)
        may_be_a_day, is_none = (index.search((), key.id, 1)[0] for key in keys)
    assert (may_be_a_day.id, is_none.id) == ("key 20", "key 40")
    assert may_be_a_day.score == is_none.score


@pytest.mark.parametrize("query", ["What did I do on 2026-03-04 and on 2026-03-07?", "04.03.2026 oder 07.03.2026?"])
def test_of_several_days_in_figures_each_is_found(diary: LongTermMemory, query: str) -> None:
    assert sorted(found(diary, query, 2)) == ["fence", "soup"]


@pytest.mark.parametrize(
    ("query", "day"),
    [
        ("What did I do today?", 14),
        ("What did I do this morning?", 14),
        ("What did I do yesterday?", 13),
        ("what happened last night", 13),
        ("What did I do the day before yesterday?", 12),
        ("What did I do three days ago?", 11),
        ("What crashed two nights ago?", 12),
        ("What did I do last Tuesday?", 10),
        ("Was habe ich gestern gemacht?", 13),
        ("Was habe ich vorgestern gemacht?", 12),
        ("Qu'est-ce que j'ai fait hier ?", 13),
        ("¿Qué hice ayer?", 13),
        ("Che cosa ho fatto ieri?", 13),
        ("O que eu fiz ontem?", 13),
        ("Wat deed ik gisteren?", 13),
        ("Что я делал вчера?", 13),
        ("昨天我做了什么", 13),
        ("昨日は何をした", 13),
        ("어제 무엇을 했어?", 13),
    ],
)
def test_a_day_is_found_by_how_far_it_lies_from_the_question(diary: LongTermMemory, query: str, day: int) -> None:
    assert found(diary, query) == [DONE[day - 1]]


@pytest.mark.parametrize(
    "query",
    [
        "What did I do last week?",
        "Was habe ich letzte Woche gemacht?",
        "Qu'ai-je fait la semaine dernière ?",
        "¿Qué hice la semana pasada?",
        "Che ho fatto la settimana scorsa?",
        "O que fiz na semana passada?",
        "Wat deed ik vorige week?",
        "Что я делал на прошлой неделе?",
    ],
)
def test_a_week_is_found_before_all_else(diary: LongTermMemory, query: str) -> None:
    assert set(found(diary, query, 7)) == set(DONE[1:8])  # Monday, the 2nd, to Sunday


def test_what_was_said_of_a_day_to_come_is_found_when_it_is_there() -> None:
    memory = LongTermMemory(MemoryStore(), open_index("memory:"), user="ada", clock=lambda: NOW)
    memory.add([Message(role="user", content="Next Sunday I see Tom.", created_at=at(2026, 3, 12))])
    memory.add([Message(role="user", content="The dentist is on 2026-03-17.", created_at=at(2026, 3, 12))])
    memory.add([Message(role="user", content="I am tired.", created_at=at(2026, 3, 12))])
    assert [one.text for one in memory.search("What is on tomorrow?", 1)] == ["Next Sunday I see Tom."]
    assert [one.text for one in memory.search("What is in three days from now?", 1)] == [
        "The dentist is on 2026-03-17."
    ]
    assert [one.text for one in memory.search("Anything on March 17?", 1)] == ["The dentist is on 2026-03-17."]


def test_a_meaning_is_asked_for_in_the_words_of_the_query() -> None:
    asked: list[str] = []

    def embed(texts: Sequence[str]) -> list[list[float]]:
        asked.extend(texts)
        return [[1.0, len(text) / 100] for text in texts]

    vectors = open_vectors("memory:", Embedder(embed, name="toy"))
    memory = LongTermMemory(MemoryStore(), open_index("memory:"), vectors=vectors, user="ada", clock=lambda: NOW)
    memory.add([Message(role="user", content="I am tired.", created_at=at(2026, 3, 13))])
    memory.flush()
    asked.clear()
    assert len(memory.search("What did I say yesterday?")) == 1
    assert asked == ["What did I say yesterday?"]


@pytest.mark.parametrize(
    ("query", "dated"),
    [
        ("Where did I go last month?", "2026-02"),
        ("Where did I go last year?", "2025"),
        ("What will next week bring?", "2026-03-16/2026-03-22"),
        ("Was it nice last weekend?", "2026-03-07/2026-03-08"),
        ("Le mois dernier ?", "2026-02"),
        ("Где я был в прошлом месяце?", "2026-02"),
        ("Was haben wir letzten Freitag gekocht?", "2026-03-13"),
        ("Qu'est-il arrivé vendredi dernier ?", "2026-03-13"),
        ("¿Qué me dijo el médico el viernes pasado?", "2026-03-13"),
        ("O que fiz na sexta passada?", "2026-03-13"),
        ("Che cosa ho fatto venerdì scorso?", "2026-03-13"),
        ("Что сломалось в прошлую пятницу?", "2026-03-13"),
        ("上周五我做了什么?", "2026-03-06"),
        ("先週の金曜日は何をした?", "2026-03-06"),
        ("지난주 금요일에 뭐 했어?", "2026-03-06"),
        ("上周末我做了什么?", "2026-03-07/2026-03-08"),
        ("来週末は何をする?", "2026-03-21/2026-03-22"),
        ("Was war vor zwei Wochen?", "2026-02-23/2026-03-01"),
        ("Wo war ich im letzten Jahr?", "2025"),
        ("Was war der letzte Tag?", ""),
        ("What did I say yesterday of May 2025?", ""),
        ("What was I told hier?", ""),
        ("Was ist hier passiert?", ""),
        ("Is this the last one?", ""),
        ('She asked: "yesterday?"', ""),
        ("What did I paint?", ""),
        ("What shall I cook today?", ""),
        ("Where do I eat this week?", ""),
        ("Where did I eat this week?", "2026-03-09/2026-03-15"),
        ("I saw him yesterday. Where is my bike?", ""),
        ("It was a long day! What did I do yesterday?", "2026-03-13"),
        ("what I said yesterday", "2026-03-13"),
        (f"{'So it goes. ' * 30}What did I do yesterday?", ""),
    ],
)
def test_what_is_added_to_a_query(query: str, dated: str) -> None:
    assert with_dates(query, NOW) == f"{query} {dated}".strip()


@pytest.mark.parametrize("now", [math.nan, math.inf, -1e300, 1e300])
def test_a_clock_beyond_the_calendar_adds_nothing(now: float) -> None:
    assert with_dates("yesterday", now) == "yesterday"


@pytest.mark.parametrize(
    ("query", "date"),
    [
        ("How may I help you on the 4 of them?", NamedDate()),
        ("They march in 3 rows", NamedDate()),
        ("in May", NamedDate(0, 5)),
        ("may 2024", NamedDate(2024, 5)),
        ("2026-13-01", NamedDate(2026)),
        ("2026-02-31", NamedDate(2026, 2, 31)),
        ("31.02.2026", NamedDate(2026, 2, 31)),
        ("01.13.2026", NamedDate(2026)),
        ("2026-03-02/2026-03-08", NamedDate(2026, 3, 2, 7)),
        ("2026-03-08/2026-03-02", NamedDate(2026, 3, 8)),
        ("1900-03-08/2099-03-02", NamedDate(1900, 3, 8)),
        ("the 3 things of 9 May", NamedDate(0, 5, 9)),
        ("13月4日", NamedDate()),
        ("im August 1999", NamedDate(1999, 8)),
    ],
)
def test_what_date_a_query_names(query: str, date: NamedDate) -> None:
    assert named_date(query) == date


def test_a_week_is_met_within_it_and_soon_after() -> None:
    week = NamedDate(2026, 3, 2, 7)
    fits = [week.match_score(at(2026, 3, day)) for day in (1, 2, 8, 9, 12, 30)]
    assert fits[:3] == [0.0, 1.0, 1.0]
    assert 1.0 >= fits[3] > fits[4] > fits[5] > 0
    assert (
        NamedDate(2025, 12, 29, 7).words()
        == "29 day29 30 day30 31 day31 1 day1 2 day2 3 day3 4 day4 december 2025 january 2026"
    )


@given(st.text(st.sampled_from("yesterday last week 2026-03/.4年月日 ago hier March4th"), max_size=60), st.floats())
def test_no_query_is_too_strange(query: str, now: float) -> None:
    dated = with_dates(query, now)
    assert dated.startswith(query)
    named: Any = named_date(dated)
    assert isinstance(named.words(), str)
    assert 0 <= named.match_score(now) <= 1


@pytest.mark.parametrize("piece", ["2026-03-04/", "4. ", "3月", "march ", "last week ", "a" * 10, "the of de "])
def test_long_queries_are_read_in_no_time(piece: str) -> None:
    start = time.process_time()
    named_date(piece * 40_000)
    with_dates(piece * 40_000, NOW)
    assert time.process_time() - start < 1


@pytest.fixture
def in_los_angeles(set_time_zone: Callable[[str], None]) -> None:
    set_time_zone("PST8PDT,M3.2.0,M11.1.0")


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="a process of Windows cannot change its time zone")
@pytest.mark.usefixtures("in_los_angeles")
def test_days_are_those_of_who_speaks_of_them() -> None:
    """In the evening of Los Angeles, UTC has the next day."""
    sunday, monday = (datetime(2023, 5, day, 20).astimezone().timestamp() for day in (7, 8))
    assert datetime.fromtimestamp(sunday, tz=timezone.utc).day == 8
    assert with_dates("What did I plant yesterday?", monday) == "What did I plant yesterday? 2023-05-07"
    assert date_words(sunday) == "sunday day7 may 2023"
    assert mentioned_date_words("I did it yesterday.", monday) == "sunday day7"
    assert named_date("2023-05-06").match_score(sunday) == 1.0  # the day after, when most is told of it
