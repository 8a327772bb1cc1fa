"""Replay: what is measured is what the memories do, and the same each time."""

from __future__ import annotations

import gzip
import itertools
import json
import threading
from collections.abc import Callable, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.language_models import FakeListChatModel

from langmem_adapters.brain import BrainMemory
from langmem_adapters.embedding import Embedder
from langmem_adapters.errors import ConfigurationError
from langmem_adapters.evaluation import Question
from langmem_adapters.importing import Transcript
from langmem_adapters.indexes.lexical import LexicalIndex
from langmem_adapters.longterm import LongTermMemory
from langmem_adapters.model import Message, ToolCall
from langmem_adapters.recall.memories import memory_id
from langmem_adapters.replay import Comparison, Configuration, Outcome, areplay, replay
from langmem_adapters.sessions import Sessions
from langmem_adapters.stores.memory import MemoryStore
from langmem_adapters.tokens import approximate_tokens, message_tokens

TOPICS = ("bike", "piano", "garden", "soup", "train")


def user(text: str, id_: str = "") -> Message:
    return Message(role="user", content=text, id=id_)


def assistant(text: str, id_: str = "", **fields: Any) -> Message:
    return Message(role="assistant", content=text, id=id_, **fields)


def talk(turns: int = 30) -> list[Message]:
    said = [user("My old bike is in the shed behind the house.", "m0"), assistant("Noted.", "a0")]
    for n in range(1, turns):
        said += [user(f"On day {n} it rained again.", f"m{n}"), assistant("I see, that is a pity.", f"a{n}")]
    return said


def ask(text: str, *evidence: str, whose: str = "") -> Question:
    return Question(text, frozenset(evidence), whose)


def recording_counter(seen: list[str]) -> Callable[[str], int]:
    """Counts tokens, and keeps what it was shown."""

    def count(text: str) -> int:
        seen.append(text)
        return approximate_tokens(text)

    return count


def ticking() -> Callable[[], float]:
    """A timer that moves by a second each time that it is read."""
    return map(float, itertools.count()).__next__


def topics(texts: list[str]) -> list[list[float]]:
    return [[0.01, *(float(topic in text.lower()) for topic in TOPICS)] for text in texts]


def embedder() -> Embedder:
    return Embedder(topics, name="topics")


def summary(prompt: str) -> str:
    return f"They talked, {len(prompt)} characters."


BIKE = ask("Where is the bike?", "m0")


# --- what is measured


@pytest.mark.parametrize(
    "set_",
    [
        {"memory_k": 4},
        {"max_tokens": 90},
        {"summarize_at": 100, "max_summary_tokens": 9},
        {"max_tokens": 120, "summarize_at": 80},
    ],
)
@pytest.mark.parametrize("recall_k", [0, 2])
def test_a_call_is_shown_what_the_memory_shows(set_: dict[str, Any], recall_k: int) -> None:
    """The oracle is a memory that is driven by hand."""
    found = replay(talk(), {"x": Configuration(**set_, recall_k=recall_k)}, model=summary)["x"]
    store = MemoryStore()
    long_term = LongTermMemory(store, LexicalIndex(":memory:"), user="ada") if recall_k else None
    clock = itertools.count(946_684_801.0).__next__
    summarizes: dict[str, Any] = {"model": summary, "summarize_in": "inline"} if "summarize_at" in set_ else {}
    brain = BrainMemory(store, "s", user="ada", long_term=long_term, clock=clock, **set_, **summarizes)
    expected = []
    for message in talk():
        if message.role == "assistant":
            told = brain.get_summary()
            shown = sum(map(message_tokens, brain.remembering_window(recall_k=recall_k)))
            expected.append(shown + (approximate_tokens(told.text) if told else 0))
        brain.add_messages([message])
    assert [call.tokens for call in found.calls] == expected
    made = brain.stats()
    answers = sum(message_tokens(message) for message in talk() if message.role == "assistant")
    assert found.tokens == sum(expected) + answers + made["tokens_in"] + made["tokens_out"]
    assert found.summaries == made["calls"]
    assert found.tokens_per_call == sum(expected) / 30
    assert found.most_tokens == max(expected)
    assert (found.served, found.failed, found.recall) == (0, 0, None)


def test_summaries_are_calls_and_their_tokens_count() -> None:
    prompts: list[str] = []

    def model(prompt: str) -> str:
        prompts.append(prompt)
        return summary(prompt)

    both = {"no": Configuration(), "yes": Configuration(summarize_at=100)}
    found = replay(talk(), both, model=model)
    without, with_ = found["no"], found["yes"]
    assert with_.summaries == len(prompts) > 2
    assert without.summaries == 0
    assert with_.failed == 0
    spent = sum(approximate_tokens(prompt) + approximate_tokens(summary(prompt)) for prompt in prompts)
    answers = sum(message_tokens(message) for message in talk() if message.role == "assistant")
    assert with_.tokens - sum(call.tokens for call in with_.calls) - answers == pytest.approx(spent, abs=len(prompts))
    assert with_.most_tokens < 150 < without.most_tokens
    told = approximate_tokens(summary(prompts[0]))
    assert with_.calls[-1].tokens > told  # the summary is shown, too


def test_a_question_asks_for_no_summary() -> None:
    prompts: list[str] = []

    def model(prompt: str) -> str:
        prompts.append(prompt)
        return "It rained."

    long = ask("Where is the bike? " * 100, "m0")
    configuration = {"x": Configuration(summarize_at=100)}
    found = replay(talk(9), configuration, questions=[long], model=model)
    assert len(prompts) == found["x"].summaries


def test_a_summary_that_fails_is_counted() -> None:
    def model(prompt: str) -> str:
        raise OSError(prompt)

    found = replay(talk(), {"s": Configuration(summarize_at=100)}, model=model)["s"]
    assert found.failed == found.summaries > 0


@pytest.mark.parametrize("by", ["m0", memory_id(talk()[0]), "My old  bike is in the shed behind the house."])
@pytest.mark.parametrize(
    ("configuration", "recall"),
    [
        (Configuration(), 1.0),
        (Configuration(memory_k=4), 0.0),
        (Configuration(memory_k=4, recall_k=2), 1.0),
        (Configuration(memory_k=4, recall_k=2, embedder=embedder()), 1.0),
        (Configuration(max_tokens=60), 0.0),
        (Configuration(summarize_at=100), 0.0),
        (Configuration(summarize_at=100, recall_k=2), 1.0),
    ],
)
def test_recall_is_the_share_of_the_evidence_that_is_shown(by: str, configuration: Any, recall: float) -> None:
    """In the window or recalled; a summary is not believed to hold it."""
    found = replay(talk(), {"x": configuration}, questions=[ask("Where is the bike?", by)], model=summary)
    assert found["x"].recall == recall
    half = replay(talk(), {"x": configuration}, questions=[ask("Where is the bike?", by, "none")], model=summary)
    assert half["x"].recall == recall / 2


def test_as_many_memories_are_found_as_are_shown() -> None:
    said = [user(f"Part {n} of the bike is red.", f"p{n}") for n in range(8)] + talk(6)[2:]
    question = ask("Which parts of the bike are red?", *(f"p{n}" for n in range(8)))
    settings_ = {f"{k}": Configuration(memory_k=4, recall_k=k) for k in (3, 8)}
    found = replay(said, settings_, questions=[question])
    assert (found["3"].recall, found["8"].recall) == (3 / 8, 1.0)


def test_a_question_is_no_evidence_of_itself() -> None:
    said = [user("Where is the bike?"), *talk()[2:]]
    question = ask("Where is the bike?", "Where is the bike?")
    found = replay(said, {"all": Configuration(), "few": Configuration(memory_k=4)}, questions=[question])
    assert (found["all"].recall, found["few"].recall) == (1.0, 0.0)


def test_meaning_finds_what_words_do_not() -> None:
    def near(texts: list[str]) -> list[list[float]]:
        return [[0.01, float("bike" in text or "cycle" in text), float("rain" in text)] for text in texts]

    words = Configuration(memory_k=4, recall_k=2)
    meaning = Configuration(memory_k=4, recall_k=2, embedder=Embedder(near, name="near"))
    found = replay(talk(), {"words": words, "meaning": meaning}, questions=[ask("cycle?", "m0")])
    assert (found["words"].recall, found["meaning"].recall) == (0.0, 1.0)


def test_what_is_found_does_not_depend_on_how_quick_the_vectors_are() -> None:
    def near(texts: list[str]) -> list[list[float]]:
        if threading.current_thread().name.startswith("langmem-background"):
            raise OSError("not yet")
        return [[0.01, float("bike" in text or "cycle" in text), float("rain" in text)] for text in texts]

    meaning = Configuration(memory_k=4, recall_k=2, embedder=Embedder(near, name="near"))
    assert replay(talk(), {"x": meaning}, questions=[ask("cycle?", "m0")])["x"].recall == 1.0


def test_recalled_memories_that_have_no_room_are_not_found() -> None:
    said = [user("The bike is red, as all of you know very well.", "m0"), user("The bike is old.", "m1"), *talk()[2:]]
    question = ask("What about the red bike?", "m0", "m1")
    found = replay(
        said,
        {
            name: Configuration(memory_k=4, max_tokens=budget, recall_k=5)
            for name, budget in (("wide", 900), ("less", 120))
        },
        questions=[question],
    )
    assert found["wide"].recall == 1.0
    assert found["less"].recall == 0.5


def test_a_question_leaves_nothing_behind() -> None:
    questions = [ask("Where is the bike?", "m0"), ask("Did it rain on day 3?", "m3"), ask("And on day 8?", "m8")]
    configuration = {"x": Configuration(memory_k=6, recall_k=1)}
    orders = [
        replay(talk(9), configuration, questions=order)["x"].recall for order in itertools.permutations(questions)
    ]
    assert set(orders) == {1.0}
    first = replay(talk(9), configuration, questions=questions * 5)["x"]
    assert first.recall == 1.0
    window = {"x": Configuration(memory_k=4)}
    assert replay(talk(9), window, questions=[ask("What rained?", "m8", "a8")] * 6)["x"].recall == 1.0
    assert first.tokens == replay(talk(9), configuration)["x"].tokens


@given(
    st.lists(
        st.tuples(st.sampled_from(["user", "assistant", "tool", "system"]), st.text(max_size=60)),
        min_size=1,
        max_size=40,
    ),
    st.integers(1, 9),
    st.integers(20, 120),
)
@settings(max_examples=60)
def test_each_assistant_message_is_a_call_within_the_budget(
    said: list[tuple[str, str]], memory_k: int, budget: int
) -> None:
    messages = [Message(role=role, content=text, id=f"m{n}") for n, (role, text) in enumerate(said)]
    found = replay(messages, {"x": Configuration(memory_k=memory_k), "y": Configuration(recall_k=2, max_tokens=budget)})
    for outcome in found.values():
        assert len(outcome.calls) == sum(message.role == "assistant" for message in messages)
    longest = max(map(message_tokens, messages))
    assert found["y"].most_tokens <= max(budget, longest + 4)


# --- the same each time


def test_it_is_the_same_each_time_and_in_both_worlds() -> None:
    def once(**more: Any) -> dict[str, Any]:
        configurations = {
            "window": Configuration(memory_k=6),
            "all": Configuration(memory_k=6, recall_k=3, summarize_at=100, embedder=embedder()),
        }
        return {"configurations": configurations, "questions": [BIKE], "model": summary, "timer": ticking(), **more}

    first = replay(talk(), **once())
    assert first.rows() == replay(talk(), **once()).rows()
    assert dict(first) == dict(replay(talk(), **once()))
    assert first["window"].seconds > len(talk())
    assert {call.seconds for call in first["window"].calls} == {1.0}


async def test_the_async_twin_measures_the_same() -> None:
    configurations = {"all": Configuration(memory_k=6, recall_k=3, summarize_at=100, embedder=embedder())}
    given_: dict[str, Any] = {"questions": [BIKE], "model": summary}
    found = await areplay(talk(), configurations, timer=ticking(), **given_)
    assert dict(found) == dict(replay(talk(), configurations, timer=ticking(), **given_))


def test_nothing_of_the_users_own_is_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LANGMEM_STORE_URL", f"sqlite:///{tmp_path / 'mine.db'}")
    said = talk()
    before = [message.model_copy(deep=True) for message in said]
    replay(said, {"x": Configuration(memory_k=4, recall_k=2, embedder=embedder())}, questions=[BIKE])
    assert list(tmp_path.iterdir()) == []
    assert said == before


# --- what a model would be shown


def test_summary_and_memories_are_shown() -> None:
    seen: list[str] = []
    said = [*talk(8), user("Where is the old bike?"), assistant("In the shed.")]
    settings = {"x": Configuration(summarize_at=60, recall_k=1)}
    replay(said, settings, model=lambda _: "THE SUMMARY", counter=recording_counter(seen))
    last_texts = seen[seen.index("Where is the old bike?") :]
    assert "THE SUMMARY" in last_texts
    assert "".join(last_texts).count("My old bike is in the shed") == 1


# --- answers that are served


def support(*questions: str) -> list[Transcript]:
    """A session for each question, without anything before it."""
    return [
        Transcript(
            None, f"s{n}", [line(user(question, f"q{n}"), f"s{n}"), line(assistant("Like this.", f"a{n}"), f"s{n}")]
        )
        for n, question in enumerate(questions)
    ]


def line(message: Message, session: str) -> dict[str, Any]:
    return {"v": 1, "type": "message", "session": session, "message": json.loads(message.to_bytes())}


ASKED = ("How will I learn to play the piano?", "How do I learn to play the piano?", "Is there soup?")


def test_a_threshold_decides_about_what_is_served() -> None:
    strict, loose = (Configuration(embedder=embedder(), serve_above=at) for at in (1.0, 0.3))
    found = replay(support(*ASKED, ASKED[0]), {"none": Configuration(), "strict": strict, "loose": loose})
    assert [(len(one.calls), one.served) for one in found.values()] == [(4, 0), (3, 1), (2, 2)]
    assert found["loose"].tokens < found["strict"].tokens < found["none"].tokens


def test_another_history_or_a_tool_call_is_never_served() -> None:
    said = [user(ASKED[0]), assistant("Like this."), user(ASKED[0]), assistant("As I said.")]
    configuration = {"x": Configuration(embedder=embedder(), serve_above=0.3)}
    assert replay(said, configuration)["x"].served == 0
    calls = [ToolCall(id="1", name="look")]
    transcripts = [
        Transcript(None, f"s{n}", [line(user(ASKED[0]), f"s{n}"), line(assistant("", tool_calls=calls), f"s{n}")])
        for n in range(2)
    ]
    assert replay(transcripts, configuration)["x"].served == 0
    assert replay(support(" ", " "), configuration)["x"].served == 0


# --- conversations


def test_sessions_have_windows_of_their_own_and_users_their_long_term_memory() -> None:
    transcripts = [
        Transcript("ada", "s1", [line(m, "s1") for m in talk(10)]),
        Transcript("bob", "s1", [line(m, "s1") for m in talk(10)]),
        Transcript("ada", "s2", [line(user("Hello again."), "s2"), line(assistant("Hello!"), "s2")]),
    ]
    both = {"window": Configuration(memory_k=4), "recall": Configuration(memory_k=4, recall_k=2)}
    found = replay(transcripts, both, questions=[ask("Where is the bike?", "m0", whose="ada")])
    assert found["window"].recall == 0.0
    assert found["recall"].recall == 1.0
    assert len(found["window"].calls) == 21
    assert found["window"].calls[-1].tokens == message_tokens(user("Hello again."))
    assert found["window"].calls[10].tokens == found["window"].calls[0].tokens  # of a session of the same name
    lonely = replay(transcripts[1:], both, questions=[ask("Where is the bike?", "m0", whose="ada")])
    assert lonely["recall"].recall == 0.0  # what another user has said


@pytest.mark.parametrize("as_text", [False, True])
def test_a_file_is_read_as_import_reads_it(tmp_path: Path, *, as_text: bool) -> None:
    store = MemoryStore()
    BrainMemory(store, "monday", user="ada").add_messages(talk(5))
    path = tmp_path / "export.jsonl"
    path.write_bytes(b"".join(Sessions(store, user="ada").export()))
    found = replay(str(path) if as_text else path, {"x": Configuration()}, questions=[BIKE])["x"]
    assert len(found.calls) == 5
    assert found.recall == 1.0


def test_a_locomo_file_is_replayed_with_its_users(tmp_path: Path) -> None:
    turns = [
        {"id": f"D1:{n}", "s": 1, "sp": "Ann" if n % 2 else "Bob", "t": f"Turn {n}", "d": "2024-01-01T10:00:00"}
        for n in range(1, 7)
    ]
    path = tmp_path / "locomo.json.gz"
    path.write_bytes(gzip.compress(json.dumps([{"id": "c1", "speakers": ["Ann", "Bob"], "turns": turns}]).encode()))
    found = replay(path, {"x": Configuration()}, questions=[ask("Turn 3?", "D1:3", whose="c1")])["x"]
    assert len(found.calls) == 3
    assert found.recall == 1.0


def test_messages_without_a_time_follow_each_other_and_those_with_one_keep_it() -> None:
    said = [user("The bike is red.", "m0"), *talk(6)[1:]]
    dated = [m.model_copy(update={"created_at": 1_700_000_000.0 + n}) for n, m in enumerate(said)]
    seen: list[str] = []
    more = [
        user("The garden is green.", "g"),
        assistant("Nice.", "n"),
        *(user(f"It rained {n}.", f"r{n}") for n in range(4)),
    ]
    last = [user("Which colour have the bike and the garden?"), assistant("Red.")]
    settings = {"x": Configuration(memory_k=3, recall_k=2)}
    replay([*dated, *more, *last], settings, counter=recording_counter(seen))
    shown = "\n".join(seen[-8:])
    assert "2023-11-14 user: The bike is red." in shown
    assert "2023-11-14 user: The garden is green." in shown  # said a few seconds after what has a time


# --- what is refused


@pytest.mark.parametrize(
    ("settings_", "said"),
    [
        ({"recall_k": -1}, "recall_k is a whole number of at least 0"),
        ({"weights": {"words": 1.0}}, "give recall_k"),
        ({"serve_above": 0.9}, "give an embedder"),
        ({"embedder": topics}, "give recall_k or serve_above"),
    ],
)
def test_settings_that_do_not_go_together(settings_: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        Configuration(**settings_)


@pytest.mark.parametrize(
    ("conversation", "more", "said"),
    [
        ([], {}, "no message"),
        ([Transcript("ada", "s", [])], {}, "no message"),
        (["hello"], {}, "not of str"),
        (None, {}, "not one NoneType"),
        (user("a"), {}, "not one Message"),
        ([user("a"), Transcript("ada", "s", [])], {}, "not both"),
        (talk(2), {"configurations": {}}, "at least one configuration"),
        (talk(2), {"configurations": {"x": Configuration(summarize_at=9)}}, "needs a model="),
        (talk(2), {"configurations": {"x": Configuration(memory_k=0)}}, "memory_k"),
        (talk(2), {"configurations": {"x": Configuration(recall_k=1, weights={"no_such": 1.0})}}, "no_such"),
        (talk(2), {"questions": [ask("?", "m0", whose="eve")]}, "names one of the users"),
        (
            [*support("a"), Transcript("ada", "s", [line(user("a"), "s")])],
            {"questions": [BIKE]},
            "names one of the users",
        ),
    ],
)
def test_what_cannot_be_replayed(conversation: Any, more: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        replay(conversation, **{"configurations": {"x": Configuration()}, **more})


# --- progress and the table


def test_progress_counts_messages_and_questions_of_all_configurations() -> None:
    told: list[tuple[int, int | None]] = []
    both = {"a": Configuration(), "b": Configuration(memory_k=4)}
    replay(talk(5), both, questions=[BIKE, BIKE], progress=lambda *it: told.append(it))
    assert told[-1] == (24, 24)
    assert len(told) == 24


def outcome(**fields: Any) -> Outcome:
    return Outcome(
        **{"calls": [], "served": 0, "summaries": 0, "failed": 0, "tokens": 0, "recall": None, "seconds": 0.0, **fields}
    )


def test_the_table_shows_what_there_is() -> None:
    found = replay(
        talk(), {"all": Configuration(), "last 4": Configuration(memory_k=4)}, questions=[BIKE], timer=ticking()
    )
    head, *lines = repr(found).split("\n")
    assert head.split("  ") != lines
    for name in ("model calls", "tokens a call", "at most", "tokens in all", "recall", "seconds"):
        assert name in head
    for name in ("served", "summar"):
        assert name not in head
    assert lines[0].startswith("all ")
    assert "100.0 %" in lines[0]
    assert " 0.0 %" not in lines[0]
    assert len({len(one) for one in repr(found).split("\n")}) == 1
    assert list(found) == ["all", "last 4"]
    assert len(found) == 2
    assert "recall" not in repr(replay(talk(3), {"all": Configuration()}))
    assert " 0.0 %" in repr(Comparison({"x": outcome(recall=0.0)}))


def test_a_column_is_there_as_soon_as_one_has_something_to_say() -> None:
    table = repr(Comparison({"a": outcome(), "b": outcome(served=3, failed=1, summaries=2, recall=0.25)}))
    for name in ("served", "for summaries", "failed summaries", "25.0 %"):
        assert name in table
    assert "None" not in table


class Texts(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: Sequence[Any]) -> None:  # noqa: ARG002 - the protocol
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_j2_the_table_in_a_notebook_is_escaped() -> None:
    name = "<script>alert(1)</script>"
    html = Comparison({name: outcome(tokens=12_345), "b": outcome()})._repr_html_()
    read = Texts()
    read.feed(html)
    assert "script" not in read.tags
    assert name in read.texts
    assert "12,345" in read.texts
    assert read.tags.count("tr") == 3


def test_rows_are_plain_data() -> None:
    rows = replay(talk(3), {"a": Configuration()}, timer=ticking()).rows()
    assert json.loads(json.dumps(rows)) == rows
    assert rows[0]["configuration"] == "a"
    assert rows[0]["calls"] == 3


def test_a_configuration_shows_no_embedder() -> None:
    assert "object at" not in repr(Configuration(recall_k=1, embedder=FakeListChatModel(responses=["sk-secret"])))
    assert "secret" not in repr(Configuration(recall_k=1, embedder=FakeListChatModel(responses=["sk-secret"])))
