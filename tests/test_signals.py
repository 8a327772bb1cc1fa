"""Signals of a conversation: what each one finds, what it leaves alone, and that they add up to the score."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langmem_adapters.errors import ConfigurationError
from langmem_adapters.indexes.lexical import LexicalIndex
from langmem_adapters.language.dates import date_words
from langmem_adapters.language.features import (
    ASKS,
    FIRST_PERSON,
    NAMES,
    NUMBER,
    QUESTION,
    TIME,
    named_speakers,
    query_features,
    text_marks,
)
from langmem_adapters.longterm import LongTermMemory
from langmem_adapters.model import Message, Recalled
from langmem_adapters.signals import SIGNALS
from langmem_adapters.stores.memory import MemoryStore


def at(year: int, month: int, day: int) -> float:
    return datetime(year, month, day, 12, tzinfo=timezone.utc).timestamp()


def say(text: str, name: str | None = None, **fields: Any) -> Message:
    return Message(role="user", content=text, name=name, **fields)


def texts(found: list[Recalled]) -> list[str]:
    return [recalled.text for recalled in found]


@pytest.fixture
def index() -> Iterator[LexicalIndex]:
    index = LexicalIndex(":memory:")
    yield index
    index.close()


@pytest.fixture
def memory(index: LexicalIndex) -> LongTermMemory:
    return LongTermMemory(MemoryStore(), index, user="ada", clock=lambda: at(2024, 1, 1))


# --- cues


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Nice weather.", 0),
        ("How are you?", QUESTION | ASKS),
        ("Why? Because.", ASKS),
        ("Was it nice? [a photo of a dog]", QUESTION | ASKS),
        ("你去哪了？", QUESTION | ASKS),  # noqa: RUF001 - Chinese
        ("I\u2019m fine", FIRST_PERSON),
        ("It was yesterday", TIME),
        ("It costs two coins", NUMBER),
        ("Es kostet 20 Taler", NUMBER | NAMES),
        ("They met Anna", NAMES),
        ("Anna. Bea! Cleo", 0),
        ("", 0),
    ],
)
def test_marks_of_a_text(text: str, expected: int) -> None:
    assert text_marks(text) == expected


@pytest.mark.parametrize("many", ["?", "? ", "?[]"])
def test_marks_are_read_in_no_time_however_many_a_text_has(many: str) -> None:
    start = time.process_time()
    assert text_marks(many * 10_000 + " see?") == QUESTION | ASKS
    assert text_marks(many * 10_000 + " so") == ASKS
    assert time.process_time() - start < 1


@pytest.mark.parametrize(
    ("query", "at_", "fits"),
    [
        ("What happened in May 2023?", at(2023, 5, 31), 1.0),
        ("What happened in May 2023?", at(2022, 5, 31), 0.0),
        ("What happened in May?", at(2022, 5, 1), 1.0),
        ("And in 2022?", at(2022, 12, 31), 1.0),
        ("Was ist am 2023-05-09 passiert?", at(2023, 5, 10), 1.0),
        ("on 9th May", at(2023, 6, 10), 0.0),
        ("nothing of the kind", at(2023, 5, 10), 0.0),
        ("in May 2023", None, 0.0),
        ("in May 2023", float("nan"), 0.0),
        ("in May 2023", 1e300, 0.0),
        ("in 1960", at(1960, 2, 2), 1.0),
    ],
)
def test_a_date_in_a_query_meets_the_time_of_a_message(query: str, at_: float | None, fits: float) -> None:
    assert query_features(query).date.match_score(at_) == fits


def test_a_day_is_met_best_on_the_day_after() -> None:
    query = query_features("What did you do on May 9, 2023?").date
    fits = [query.match_score(at(2023, 5, day)) for day in (8, 10, 14, 28)]
    assert fits[1] == max(fits)
    assert fits[1] > fits[2] > fits[3] > 0


@pytest.mark.parametrize(
    ("query", "role"),
    [
        ("Which novels did you recommend?", "assistant"),
        ("What was it you told me about the rash?", "assistant"),
        ("Your gratin recipe again, please", "assistant"),
        ("Was hattest du mir vorgeschlagen?", "assistant"),
        ("Qu'est-ce que tu m'as conseillé ?", "assistant"),
        ("Where is my bike?", "user"),
        ("Wo ist mein Fahrrad?", "user"),
        ("Where did Anna go?", ""),
        ("Can you find the bike?", ""),
    ],
)
def test_in_which_role_it_was_said(query: str, role: str) -> None:
    assert query_features(query).speaker_role == role


def test_what_a_query_asks_for() -> None:
    assert (
        query_features("When was it?").when,
        query_features("In what year?").when,
        query_features("What is it?").when,
    ) == (True, True, False)
    assert [query_features(q).how_many for q in ("How many dogs?", "how old?", "How come?", "many dogs")] == [
        True,
        True,
        False,
        False,
    ]
    assert [query_features(q).who for q in ("Who?", "where", "Whose?")] == [True, True, False]
    assert date_words(at(2023, 5, 8)) == "monday day8 may 2023"


@pytest.mark.parametrize(
    ("query", "speakers", "who", "rest"),
    [
        ("Did Jo call John?", ["Jo"], {"Jo"}, "Did   call John?"),
        ("Où est Joséphine ?", ["José"], set(), "Où est Joséphine ?"),
        ("Где Янтарь?", ["Ян"], set(), "Где Янтарь?"),
        ("Что сказал Ян?", ["Ян"], {"Ян"}, "Что сказал  ?"),
        ("明天去哪里", ["明"], set(), "明天去哪里"),
    ],
)
def test_a_name_is_not_taken_out_of_a_longer_word(query: str, speakers: list[str], who: set[str], rest: str) -> None:
    found, without = named_speakers(query, speakers)
    assert found == who
    assert without.split() == rest.split()


@pytest.mark.parametrize(
    ("query", "who", "rest"),
    [
        ("What did Melanie's dog eat?", {"Melanie Smith"}, "What did   dog eat?"),
        ("What does Mel\u2019s dog eat?", {"Melanie Smith"}, "What does   dog eat?"),
        ("what does melanie eat", {"Melanie Smith"}, "what does   eat"),
        ("what does mel eat", set(), "what does mel eat"),
        ("Will it rain?", set(), "Will it rain?"),
        ("Did Will come?", {"Will"}, "Did   come?"),
        ("小明昨天去哪了", {"小明"}, " 昨天去哪了"),
        ("Wo war Jürgen?", {"Jürgen"}, "Wo war  ?"),
        ("", set(), ""),
    ],
)
def test_names_of_speakers_are_found_and_taken_out(query: str, who: set[str], rest: str) -> None:
    speakers = ["Melanie Smith", "Willow", "小明", "Jürgen"] + (["Will"] if "Did Will" in query else [])
    found, without = named_speakers(query, speakers)
    assert found - {"Willow"} == who
    assert without.split() == rest.split()


# --- signals, each in a conversation where it decides


def test_the_answer_follows_its_question(memory: LongTermMemory) -> None:
    memory.add([say("Nice day."), say("Where is your bicycle?"), say("In the old barn."), say("I see.")], session="s")
    found = memory.search("bicycle", 4, explain=True)
    barn = next(recalled for recalled in found if recalled.text == "In the old barn.")
    assert texts(found)[:2] in (
        ["In the old barn.", "Where is your bicycle?"],
        ["Where is your bicycle?", "In the old barn."],
    )
    assert barn.signals["answer"] > 0
    assert "answer" not in next(r for r in found if r.text == "I see.").signals


def test_who_is_named_is_preferred_but_others_are_found_too(memory: LongTermMemory) -> None:
    memory.add(
        [say("My guitar is old.", "Ben"), say("Good."), say("Hm."), say("My guitar is new.", "Anna")], session="s"
    )
    for name, first in (("Anna", "My guitar is new."), ("Ben", "My guitar is old.")):
        found = memory.search(f"What about {name}'s guitar?")
        assert texts(found)[0] == first
        assert {"My guitar is new.", "My guitar is old."} <= set(texts(found))


def test_a_date_and_a_time_word_decide(memory: LongTermMemory) -> None:
    for month in (3, 5, 8):
        memory.add([say(f"A trip to the sea, number {month}.", created_at=at(2023, month, 2))], session=str(month))
    assert texts(memory.search("the sea trip in May 2023"))[0].endswith("5.")
    memory.add([say("The wedding was nice."), say("Ah."), say("Oh."), say("The wedding was yesterday.")], session="w")
    assert texts(memory.search("When was the wedding?"))[0] == "The wedding was yesterday."


def test_a_signal_is_there_only_for_whom_it_is_meant(memory: LongTermMemory) -> None:
    said = [say("The dog barked yesterday.", "Anna"), say("I fed the dog.", "Anna"), say("I saw the dog.", "Ben")]
    memory.add(said, session="s")
    found = {r.text: set(r.signals) for r in memory.search("What about Anna's dog?", explain=True)}
    assert {text: {"speaker", "own"} & names for text, names in found.items()} == {
        "The dog barked yesterday.": {"speaker"},
        "I fed the dog.": {"speaker", "own"},
        "I saw the dog.": set(),
    }
    assert not any("when" in names for names in found.values())
    asked_when = {r.text: "when" in r.signals for r in memory.search("When did the dog bark?", explain=True)}
    assert asked_when == {text: text == "The dog barked yesterday." for text in found}


def test_a_session_that_has_half_of_the_query_counts_a_quarter(index: LexicalIndex) -> None:
    only = dict.fromkeys(SIGNALS, 0.0) | {"session": 1.0}
    memory = LongTermMemory(MemoryStore(), index, user="ada", weights=only)
    for number, text in enumerate(["a red bike", "a red shed", "the bike shed"]):
        memory.add([say(text), say(f"filler {number}")], session=str(number))
    found = {r.text: r.signals["session"] for r in memory.search("red bike", explain=True) if "filler" not in r.text}
    whole = found["a red bike"]
    assert found == {text: pytest.approx(whole * share) for text, share in zip(found, (1, 0.25, 0.25), strict=True)}


@pytest.mark.parametrize("signal", ["context", "around", "covered"])
def test_a_long_answer_counts_little_for_what_is_said_beside_it(index: LexicalIndex, signal: str) -> None:
    """An essay that an assistant wrote has many words by chance, and the next one may be about something else."""
    only = dict.fromkeys(SIGNALS, 0.0) | {signal: 1.0}
    memory = LongTermMemory(MemoryStore(), index, user="ada", weights=only)
    words = [f"word{n}" for n in range(400)]
    one, other = " ".join(words[:200]), " ".join(words[200:])
    memory.add([say(f"Harp, flute and lute. {one}"), say("Thanks."), say(f"Some harp. {other}")], session="1")
    memory.add([say(other), say("Thanks again."), say(f"A harp and a flute. {one}")], session="2")
    found = [text[:10] for text in texts(memory.search("harp flute lute", 10))]
    assert found[0] == "Harp, flut"
    if signal != "around":
        assert found.index("A harp and") < found.index("Some harp.")


def test_a_long_text_says_little_by_naming_a_time_or_a_number(index: LexicalIndex) -> None:
    only = dict.fromkeys(SIGNALS, 0.0) | {"words": 1.0, "time": 1.0, "number": 1.0, "length": 1.0}
    memory = LongTermMemory(MemoryStore(), index, user="ada", weights=only)
    essay = " ".join(map("x".__mul__, range(1, 12)))
    for essays in (0, 1, 25, 50):
        memory.add([say(" ".join(["Two harps yesterday.", *[essay] * essays]))], session=str(essays))
    found = sorted(memory.search("harps", explain=True), key=lambda r: len(r.text))
    times, numbers, lengths = ([r.signals[name] for r in found] for name in ("time", "number", "length"))
    assert times == numbers
    assert times[0] == times[1] > 3 * times[2] > 3 * times[3]
    assert lengths[0] < lengths[1] < lengths[2] == lengths[3]


def test_the_end_of_one_thread_is_not_beside_the_beginning_of_the_next(memory: LongTermMemory) -> None:
    memory.add([say(f"filler {n}") for n in range(255)] + [say("A bicycle here.")], session="one")
    memory.add([say("A bicycle there."), say("A bicycle everywhere.")], session="two")
    found = {r.text: "before" in r.signals for r in memory.search("bicycle", explain=True) if "bicycle" in r.text}
    assert found == {"A bicycle here.": False, "A bicycle there.": False, "A bicycle everywhere.": True}


def test_a_weight_that_pulls_down_leaves_no_score_below_0(index: LexicalIndex) -> None:
    memory = LongTermMemory(MemoryStore(), index, user="ada", weights={"question": -50.0})
    memory.add([say("A bike?"), say("A red bike.")])
    assert [(r.text, r.score == 0) for r in memory.search("bike")] == [("A red bike.", False), ("A bike?", True)]


def test_what_was_said_beside_it_is_found_in_a_session_and_nowhere_else(memory: LongTermMemory) -> None:
    said = [say("Where is the bicycle?"), say("In the barn."), say("Fine."), say("Then let us go.")]
    memory.add(said)
    assert texts(memory.search("bicycle")) == ["Where is the bicycle?"]
    memory.clear()
    memory.add(said[:1], session="monday")
    memory.add(said[1:], session="tuesday")
    assert texts(memory.search("bicycle")) == ["Where is the bicycle?"]
    memory.clear()
    memory.add(said, session="monday")
    assert set(texts(memory.search("bicycle"))) == {m.text for m in said[:3]}


def test_updates_and_deletions_reach_every_signal(memory: LongTermMemory) -> None:
    memory.add([say("Where is the bicycle?"), say("In the barn.", "Anna"), say("Fine.")], session="s")
    question, barn, _ = memory.all()
    memory.update(question.id, "Where is the tricycle?")
    assert memory.search("bicycle") == []
    assert set(texts(memory.search("tricycle"))) == {"Where is the tricycle?", "In the barn.", "Fine."}
    assert texts(memory.search("Anna")) == texts(memory.search("anna"))
    memory.delete([question.id])
    assert memory.search("tricycle") == []
    memory.delete([barn.id])
    assert memory.search("Anna") == []
    assert texts(memory.search("fine")) == ["Fine."]


def test_a_corrected_memory_stays_where_it_was_said(memory: LongTermMemory) -> None:
    memory.add([say("Question?"), say("Answer."), say("Thanks.")], session="s")
    memory.search("x")
    memory.update(memory.all()[0].id, "Where is the bicycle?")
    found = memory.search("bicycle", explain=True)
    assert next(r for r in found if r.text == "Answer.").signals["answer"] > 0


def test_a_long_thread_is_found_in_all_its_parts(memory: LongTermMemory) -> None:
    memory.add([say(f"bicycle {n}" if n % 50 == 0 else f"filler {n}") for n in range(600)], session="s")
    found = texts(memory.search("bicycle", 600))
    assert {f"bicycle {n}" for n in range(0, 600, 50)} <= set(found)
    assert "filler 1" in found
    assert "filler 20" not in found


# --- the score


WORDS = ["bike", "shed", "when", "Anna", "Where?", "I", "2023", "May", "自転車", "дом", "yesterday", "two", "", "?"]
TEXTS = st.lists(st.sampled_from(WORDS), max_size=5).map(" ".join)
SAID = st.lists(st.tuples(TEXTS, st.sampled_from([None, "Anna", "小明"]), st.sampled_from(["", "a", "b"])), max_size=14)


@settings(max_examples=150)
@given(SAID, TEXTS, st.integers(1, 20))
def test_scores_descend_within_0_and_1_and_are_the_sum_of_their_signals(
    said: list[tuple[str, str | None, str]], query: str, k: int
) -> None:
    index = LexicalIndex(":memory:")
    memory = LongTermMemory(MemoryStore(), index, user="ada", clock=lambda: at(2023, 5, 5))
    for text, name, session in said:
        memory.add([say(text, name)], session=session)
    found = memory.search(query, k, explain=True)
    scores = [recalled.score for recalled in found]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)
    assert len({recalled.memory.id for recalled in found}) == len(found) <= k
    for recalled in found:
        assert set(recalled.signals) <= set(SIGNALS)
        assert recalled.score == pytest.approx(min(1.0, max(0.0, sum(recalled.signals.values()))))
    assert [(r.memory.id, r.score) for r in memory.search(query, k)] == [(r.memory.id, r.score) for r in found]
    everything = memory.search(query, 100)
    assert [r.memory.id for r in everything[:k]] == [r.memory.id for r in found] or len(said) > 8
    index.close()


def test_without_explain_nothing_is_explained(memory: LongTermMemory) -> None:
    memory.add([say("My bike is red.")], session="s")
    assert memory.search("bike")[0].signals == {}
    assert sum(memory.search("bike", explain=True)[0].signals.values()) == pytest.approx(memory.search("bike")[0].score)


def test_a_score_says_how_much_of_the_query_was_found(memory: LongTermMemory) -> None:
    memory.add([say("My bike is red."), say("A red hat.")])
    whole, half = (memory.search(query)[0].score for query in ("red bike", "red aeroplane"))
    assert whole > 2 * half > 0


def test_weights_can_be_replaced(index: LexicalIndex) -> None:
    store = MemoryStore()
    said = [say("My guitar is old, old, old.", "Ben"), say("Good."), say("Hm."), say("Some guitar.", "Anna")]
    LongTermMemory(store, index, user="ada").add(said, session="s")
    only_words = dict.fromkeys(SIGNALS, 0.0) | {"words": 1.0}
    found = LongTermMemory(store, index, user="ada", weights=only_words).search("Anna old guitar", explain=True)
    assert texts(found)[0].startswith("My guitar")
    assert set(found[0].signals) == {"words"}
    with pytest.raises(ConfigurationError, match="there is no signal 'sound'; there are words, context"):
        LongTermMemory(store, index, user="ada", weights={"sound": 1.0})
    with pytest.raises(ConfigurationError, match="finite number, not nan"):
        LongTermMemory(store, index, user="ada", weights={"words": float("nan")})
    with pytest.raises(ConfigurationError, match="at least one signal"):
        LongTermMemory(store, index, user="ada", weights=dict.fromkeys(SIGNALS, 0.0))


@pytest.mark.parametrize("sessions", [("", ""), ("one", "other")])
def test_what_has_changed_since_is_found_as_it_was_said_last(sessions: tuple[str, str]) -> None:
    memory = LongTermMemory(MemoryStore(), LexicalIndex(":memory:"), user="ada")
    changed = {"bike": ("in the shed", "in the garage"), "home": ("Lyon", "Turin"), "car": ("green", "blue")}
    for month, session in enumerate(sessions):
        for day, (thing, said) in enumerate(changed.items(), 1):
            when = at(2023, 1 + month, day)
            memory.add(
                [say(f"My {thing} is {said[month]}.", created_at=when), say("Noted!", created_at=when)], session=session
            )
    for thing, (_, newer) in changed.items():
        assert texts(memory.search(f"What is my {thing}?", 1)) == [f"My {thing} is {newer}."]
    assert texts(memory.search("What was my home in January 2023?", 1)) == ["My home is Lyon."]


# --- other tongues, and speakers without names


GERMAN = """
    Haus Hund Garten Auto Reise Küche Schule Musik Wetter Arbeit Bruder Brot Wald See Zug Fahrrad Buch Brief
    """.split()  # noqa: SIM905
CHINESE = "房子 小狗 花园 汽车 旅行 厨房 学校 音乐 天气 工作 兄弟 面包 森林 湖泊 火车 单车 书本 信件".split()  # noqa: SIM905


@pytest.mark.parametrize(("words", "glue"), [(GERMAN, " "), (CHINESE, "")])
@pytest.mark.parametrize("session", ["", "s"])
def test_without_any_english_cue_nothing_is_lost_against_plain_bm25(
    words: list[str], glue: str, session: str, tmp_path: Path
) -> None:
    chance = random.Random(7)
    index = LexicalIndex(tmp_path / "index.db")
    memory = LongTermMemory(MemoryStore(), index, user="ada", clock=lambda: 0.0)
    turns = [glue.join([*chance.sample(words, 4), f"x{n}"]) for n in range(120)]
    memory.add(
        [
            Message(id=str(n), role=("user", "assistant")[n % 2], content=text, created_at=0.0)
            for n, text in enumerate(turns)
        ],
        session=session and f"{session}",
    )
    hits = {"signals": 0, "bm25": 0}
    namespace = ("longterm", "", "ada")
    for text in chance.sample(turns, 40):
        asked_ = glue.join(chance.sample(text.split(" ") if glue else [text[n : n + 2] for n in (0, 2, 4, 6)], 3))
        hits["signals"] += text in texts(memory.search(asked_, 5))
        ids = {m.id: m.message.text for m in memory.all()}
        hits["bm25"] += text in {ids[hit.id] for hit in index.search(namespace, asked_, 5)}
    assert hits["signals"] >= hits["bm25"] - 1  # these turns have nothing to do with those beside them
    assert hits["signals"] > 25
    index.close()
