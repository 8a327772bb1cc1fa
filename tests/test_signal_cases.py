"""Every signal, with its weight, in a conversation where it alone decides who is first; and how many are looked at."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, NamedTuple

import pytest

from langmem_adapters.embedding import Embedder
from langmem_adapters.indexes.lexical import LexicalIndex
from langmem_adapters.indexes.vector import VectorIndex
from langmem_adapters.indexes.vector_sqlite import SQLiteVectors
from langmem_adapters.longterm import LongTermMemory
from langmem_adapters.model import Message
from langmem_adapters.recall import question_search
from langmem_adapters.signals import SIGNALS
from langmem_adapters.stores.memory import MemoryStore


class Case(NamedTuple):
    """What is asked, what is to be found first, and what was said, session by session.

    A turn may begin with its day, ``[2023-05-09] ``, and then with who says it, ``Anna: ``. ``near`` is the cosine that
    a text has with the query; 0, if there is none.
    """

    query: str
    first: str
    sessions: Sequence[Sequence[str]]
    near: Mapping[str, float] = {}


TUNED = "I tuned the harp, and then we went home through the rain."
MOST_DAYS = "They play the harp and the flute on most days."
TUNES = "harp and flute"
CAKE = "Which cake does Anna like?"

CASES = {
    "words": Case(
        TUNES, "Where is the harp?", [["Is the flute here?", "Where is the harp?", "Good morning.", "My flute is new."]]
    ),
    "context": Case(
        TUNES, MOST_DAYS, [["A flute and a flute.", MOST_DAYS]], {MOST_DAYS: 0.5, "A flute and a flute.": 0.3}
    ),
    "around": Case(
        TUNES,
        "We went home.",
        [["Coffee, please.", "Is the flute here?", "We went home.", "Good morning.", "Some harp."]],
    ),
    "covered": Case(
        TUNES,
        "My flute is new.",
        [["My flute is new.", TUNED, "We went home."], ["Where is the harp?"], ["A flute and a flute."]],
    ),
    "before": Case(TUNES, "My flute is new.", [["Soup again.", "My flute is new.", "Where is the harp?"]]),
    "answer": Case(TUNES, "Is the flute here?", [["Where is the harp?", "Is the flute here?"]]),
    "replies": Case(TUNES, "My flute is new.", [["What else?", "My flute is new.", TUNED]]),
    "question": Case(TUNES, "The harp is old.", [["Where is the harp?", "Is the flute here?", "The harp is old."]]),
    "session": Case(
        TUNES,
        MOST_DAYS,
        [[MOST_DAYS, TUNED, "A flute and a flute."], ["Harp and flute."]],
        {MOST_DAYS: 0.3, "Harp and flute.": 0.3},
    ),
    "session_best": Case(
        TUNES,
        "Harp and flute.",
        [
            ["Soup again.", "The cat sleeps."],
            ["Is the flute here?", "The harp is old."],
            ["What else?", "Harp and flute.", "Good morning."],
        ],
    ),
    "opening": Case(TUNES, "My flute is new.", [["My flute is new.", "Coffee, please.", "Some harp."]]),
    "speaker": Case(CAKE, "Cake with plums.", [["Anna: Cake with plums."], ["Bob: Cake with pears."]]),
    "own": Case(
        CAKE, "I eat cake with plums.", [["Anna: I eat cake with plums."], ["Anna: They eat cake with pears."]]
    ),
    "teller": Case(
        "Which cake did you recommend?",
        "The plum cake.",
        [["assistant: The plum cake."], ["The pear cake."]],
    ),
    "date": Case(
        "Which concert was in May 2023?",
        "The concert was loud.",
        [["[2023-05-09] The concert was loud."], ["[2023-08-01] That concert in May 2023 was late."]],
    ),
    "when": Case(
        "When did the roof leak?",
        "The roof leaked recently.",
        [["The roof, the roof leaked."], ["The roof leaked recently."]],
    ),
    "when_number": Case(
        "When did the roof leak?",
        "The roof leaked at seven.",
        [["The roof leaked at seven.", "Fine.", "The cat sleeps."], ["The roof leaked."]],
    ),
    "count": Case(
        "How many goats do they keep?",
        "We keep three goats.",
        [["We keep goats, and goats.", "Coffee, please."], ["We keep three goats."]],
    ),
    "who": Case(
        "Who fixed the boiler?",
        "The boiler was fixed by Martha.",
        [["The boiler was fixed by Martha."], ["The boiler was fixed by someone."]],
    ),
    "time": Case(
        "boiler fixed",
        "They fixed the boiler tonight.",
        [["They fixed the boiler tonight."], ["They fixed the boiler properly."]],
    ),
    "number": Case(
        "boiler fixed",
        "They fixed both boiler pumps twice.",
        [["They fixed both boiler pumps twice."], ["They fixed both boiler pumps well."]],
    ),
    "length": Case(TUNES, TUNED, [["Is the flute here?", "Fine.", TUNED]]),
    "newer": Case(
        "Where is the harp?",
        "The harp is in the attic.",
        [["[2023-05-09] The harp is in the attic."], ["[2023-05-08] The harp is in the cellar."]],
    ),
    "meaning": Case(
        TUNES, "Where is the harp?", [["Is the flute here?", "Where is the harp?"]], {"Where is the harp?": 0.7}
    ),
    "meaning_before": Case(
        TUNES,
        "A flute and a flute.",
        [["The harp is old.", "A flute and a flute."]],
        {"The harp is old.": 0.3, "A flute and a flute.": 0.5},
    ),
    "meaning_after": Case(
        TUNES, "My flute is new.", [["My flute is new.", "Some harp."]], {"My flute is new.": 0.5, "Some harp.": 0.7}
    ),
    "meaning_answer": Case(
        TUNES,
        "The harp is old.",
        [["Is the flute here?", "The harp is old."]],
        {"The harp is old.": 0.5, "Is the flute here?": 0.7},
    ),
    "meaning_session": Case(
        TUNES,
        "Harp and flute.",
        [["Harp and flute.", "A flute and a flute."], [MOST_DAYS]],
        {MOST_DAYS: 0.3, "A flute and a flute.": 0.5},
    ),
}


class Near:
    """An embedding model that knows how near each text is to every query."""

    model = "near"

    def __init__(self, near: Mapping[str, float]) -> None:
        self._near = near

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        cosines = [self._near.get(text, 0.0) for text in texts]
        return [[cosine, math.sqrt(1 - cosine**2)] for cosine in cosines]

    def embed_query(self, _text: str) -> list[float]:
        return [1.0, 0.0]


@contextlib.contextmanager
def kept(
    sessions: Sequence[Sequence[str]], near: Mapping[str, float] | None, **settings: Any
) -> Iterator[LongTermMemory]:
    """A memory of what was said; with vectors, where it is known how near it is."""
    index = LexicalIndex(":memory:")
    vectors = None if near is None else VectorIndex(SQLiteVectors(":memory:"), Embedder(Near(near)))
    memory = LongTermMemory(MemoryStore(), index, vectors=vectors, user="ada", clock=lambda: 0.0, **settings)
    for number, turns in enumerate(sessions):
        memory.add([_message(turn) for turn in turns], session=f"session {number}")
    memory.flush()
    yield memory
    index.close()
    if vectors is not None:
        vectors.close()


def _message(turn: str) -> Message:
    said_on, turn = turn[1:].split("] ") if turn.startswith("[") else ("1970-01-01", turn)
    name, text = turn.split(": ") if ": " in turn else (None, turn)
    at = datetime.fromisoformat(said_on).replace(hour=12, tzinfo=timezone.utc).timestamp()
    if name == "assistant":
        return Message(role="assistant", content=text, created_at=at)
    return Message(role="user", content=text, name=name, created_at=at)


def found(case: Case, *, with_vectors: bool, **settings: Any) -> list[str]:
    with kept(case.sessions, case.near if with_vectors else None, **settings) as memory:
        return [recalled.text for recalled in memory.search(case.query)]


ELSEWHERE = {"pieces"}  # test_word_pieces.py: few models tell them
OF_VECTORS = {name for name in CASES if name.startswith("meaning")}
OF_WORDS = {"replies"}
WEIGHED = [
    (name, with_vectors)
    for name in CASES
    for with_vectors in (False, True)
    if name not in (OF_WORDS if with_vectors else OF_VECTORS)
]


def test_every_signal_has_a_case() -> None:
    assert CASES.keys() | ELSEWHERE == SIGNALS.keys()
    assert {name for name, signal in SIGNALS.items() if not signal.words} == OF_VECTORS | ELSEWHERE
    assert {name for name, signal in SIGNALS.items() if not signal.both} == OF_WORDS


@pytest.mark.parametrize(("name", "with_vectors"), WEIGHED)
def test_a_signal_decides(name: str, with_vectors: bool) -> None:
    case = CASES[name]
    assert found(case, with_vectors=with_vectors)[0] == case.first
    without = found(case, with_vectors=with_vectors, weights={name: 0.0})
    assert without
    assert without[0] != case.first


# --- how many are looked at


def test_what_many_outdo_by_their_words_is_weighed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    loud = [f"Bob: The guitar, the guitar, number {n}." for n in range(25)]
    strings = "My guitar needs new strings before we all go to the concert."
    case = Case("What about Anna's guitar?", strings, [[f"Anna: {strings}"], *([turn] for turn in loud)])
    with kept(case.sessions, None) as memory:
        assert [one.text for one in memory.search(case.query, 1)] == [strings]
        monkeypatch.setattr(question_search, "_POOL_SIZE", 4)
        assert [one.text for one in memory.search(case.query, 1)] != [strings]


def test_what_many_outdo_by_their_meaning_is_weighed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    naps = [f"Bob: A nap, {n}." for n in range(12)]
    near = {turn.removeprefix("Bob: "): 0.75 for turn in naps} | {"I went to bed.": 0.7}
    with kept([["Anna: I went to bed."], *([turn] for turn in naps)], near) as memory:
        assert [one.text for one in memory.search("Was Anna tired?", 1)] == ["I went to bed."]
        monkeypatch.setattr(question_search, "_POOL_SIZE", 4)
        assert [one.text for one in memory.search("Was Anna tired?", 1)] != ["I went to bed."]


# --- what a corpus lacks


GERMAN = [
    ["Hast du den Garten gegossen?", "Ja, der Garten ist nass.", "Gut, dann gehen wir schlafen."],
    ["Die Katze liegt im Garten.", "Sie liegt immer unter dem Baum.", "Der Baum ist alt."],
]
CHINESE = [
    ["你给花园浇水了吗？", "花园已经湿了。", "好的，我们睡觉吧。"],  # noqa: RUF001 - Chinese
    ["小猫在花园里。", "它总是在树下。", "那棵树很老。"],
]
PLAIN = [["Is the garden dry?", "The garden is wet.", "Good."], ["A cat sleeps there.", "It likes trees.", "Old ones."]]
ENGLISH = {"speaker", "own", "date", "when", "when_number", "count", "who", "time", "number"}


@pytest.mark.parametrize("with_vectors", [False, True])
@pytest.mark.parametrize(
    ("said", "query"),
    [(GERMAN, "Wann war der Garten mit dem Baum nass?"), (CHINESE, "花园的树"), (PLAIN, "garden trees")],
)
def test_signals_that_a_corpus_lacks_switch_themselves_off(
    said: Sequence[Sequence[str]], query: str, with_vectors: bool
) -> None:
    near = {turn: 0.5 for turns in said for turn in turns[1:]} if with_vectors else None
    with kept([], near) as memory:
        for number, turns in enumerate(said):
            roles = ("user", "assistant", "user")
            pairs = zip(roles, turns, strict=True)
            memory.add([Message(role=role, content=text) for role, text in pairs], session=str(number))
        memory.flush()
        everything = memory.search(query, explain=True)
        store, index, vectors = memory._records.store, memory._records.index, memory._records.vectors
        assert index is not None
        loud = LongTermMemory(
            store,
            index,
            vectors=vectors,  # type: ignore[arg-type]
            user="ada",
            weights=dict.fromkeys(ENGLISH, 50.0),
        )
        assert [one.text for one in loud.search(query)] == [one.text for one in everything]
    there = {name for one in everything for name in one.signals}
    assert not there & ENGLISH
    assert {"words", "context", "around", "covered", "before", "session", "session_best", "opening"} <= there
    assert any(name.startswith("meaning") for name in there) is with_vectors


def test_turns_of_no_session_have_no_signals_of_sessions() -> None:
    with kept([], {"The garden is wet.": 0.5}) as memory:
        memory.add([Message(role="user", content=text) for turns in PLAIN for text in turns])
        memory.flush()
        signals = {name for one in memory.search("garden trees", explain=True) for name in one.signals}
    assert signals == {"words", "context", "around", "covered", "question", "length", "meaning"}
