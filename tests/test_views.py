"""Views: what is said is there, and nothing of it acts; little is read, nothing is written, and nothing fails."""

from __future__ import annotations

import copy
import json
import logging
import pickle
import re
import sys
import unicodedata
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from time import process_time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from IPython.lib import pretty as ipython
from langchain_core.documents import Document
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from llama_index.core.llms import MockLLM
from pydantic import TypeAdapter

from langmem_adapters import (
    BrainMemory,
    Embedder,
    Experience,
    ExperiencePool,
    LongTermMemory,
    Message,
    Sessions,
    StoreUnavailable,
    WorkingMemory,
    cached,
    open_index,
    open_store,
    views,
)
from langmem_adapters.codec import decode, encode
from langmem_adapters.experience import AtLeast, Similar, Verdict, Verifier
from langmem_adapters.experience.functions.equality import first_changed_type
from langmem_adapters.experience.functions.values import identity
from langmem_adapters.langchain import (
    BrainChatMessageHistory,
    BrainMemoryMiddleware,
    CachedChatModel,
    ExperienceCache,
    ExperienceMiddleware,
    LongTermRetriever,
    SemanticMode,
)
from langmem_adapters.langgraph import ExperienceNodeCache
from langmem_adapters.language import analysis
from langmem_adapters.llamaindex import BrainRetriever, CachedLLM
from langmem_adapters.llamaindex import LongTermRetriever as NodeRetriever
from langmem_adapters.model import Memory, Metric, Occurrence, Recalled, Score, SessionInfo, ToolCall
from langmem_adapters.protocols import Store
from langmem_adapters.sealing import SealedStore
from langmem_adapters.signals import SIGNALS
from langmem_adapters.stores.memory import MemoryStore
from langmem_adapters.testing import FakeClock
from langmem_adapters.views import plain, style
from langmem_adapters.working import WorkingItem

MADE: list[Callable[[], object]] = [
    lambda: BrainMemoryMiddleware("memory:"),
    lambda: ExperienceMiddleware("memory:"),
    lambda: SemanticMode(Embedder(lambda texts: [[1.0] for _ in texts], name="toy"), judge=AtLeast(7)),
    lambda: BrainRetriever("s", url="memory:"),
    lambda: NodeRetriever(LongTermMemory(MemoryStore(), open_index("memory:"), user="ada")),
    lambda: AtLeast(7),
]
ROOT = Path(__file__).parent.parent
NOON = 1_763_712_000.0
TAGS = {"div", "span", "strong", "b", "mark", "style", "table", "thead", "tbody", "tr", "th", "td", "dl", "dt", "dd"}
HOSTILE = "\"'><script>alert(1)</script><img src=x onerror=alert(1)></style><b onclick=x>&amp; javascript:x"


class Read(HTMLParser):
    """A view as a browser reads it: its text, its elements, and whether they are closed in their order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text = ""
        self.style = ""
        self.elements: list[tuple[str, dict[str, str]]] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []
        assert self.style == style.STYLE

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open.append(tag)
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "style":
            self.style += data
        else:
            self.text += data

    def of_class(self, name: str) -> int:
        return sum(name in attributes.get("class", "").split() for _, attributes in self.elements)

    def inert(self) -> Read:
        assert {tag for tag, _ in self.elements} <= TAGS
        assert [tag for tag, _ in self.elements].count("style") == 1
        for _, attributes in self.elements:
            assert attributes.keys() <= {"class", "style", "title", "dir", "aria-hidden"}
            assert re.fullmatch(r"(width:\d{1,3}%)?", attributes.get("style", ""))
            assert re.fullmatch(r"[a-z -]*", attributes.get("class", ""))
        return self


def html(shown: Any) -> str:
    made = shown._repr_html_()
    assert type(made) is str
    made.encode()  # a notebook is a file in UTF-8
    return str(made)


def pretty(shown: object) -> str:
    return str(ipython.pretty(shown))  # type: ignore[no-untyped-call]


def read(shown: Any) -> Read:
    found = Read(html(shown)).inert()
    assert "cannot be shown now" not in found.text
    return found


def failed(shown: Any) -> str:
    return Read(html(shown)).inert().text


def recalled(text: str, score: float = 0.5, **fields: Any) -> Recalled:
    message = Message(role="user", content=text, name=fields.pop("name", None))
    said = Occurrence(session=fields.pop("session", "monday"), created_at=NOON)
    return Recalled(Memory(id="1", message=message, occurrences=[said]), score, fields.pop("signals", {}))


class Counting(MemoryStore):
    """A store that tells what is asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, Any]] = []

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name in {"get", "scan", "append", "write", "clear", "recent", "namespaces"}:

            def ask(*args: Any, **kwargs: Any) -> Any:
                self.asked.append((name, kwargs.get("limit")))
                return found(*args, **kwargs)

            return ask
        return found


class Down(MemoryStore):
    """A store that cannot be reached."""

    def __getattribute__(self, name: str) -> Any:
        if name in {"get", "scan", "append", "write", "clear", "recent", "namespaces"}:
            raise StoreUnavailable("Redis at redis://app:hunter2@cache:6379/0 does not answer: <b>start it</b>")
        return super().__getattribute__(name)


class Broken(MemoryStore):
    """A store of somebody else's, that fails in its own way."""

    def scan(self, *_: Any, **__: Any) -> Any:
        raise OSError("the content of a message")


# --- nothing acts


def everything(said: str) -> list[Any]:
    """Each kind of thing that has a view, made of one text wherever there is a text."""
    store = open_store("memory:")
    brain = BrainMemory(store, said or "s", user=said, clock=lambda: NOON)
    call = ToolCall(id=said, name=said, args={said: said, "n": [said, {said: 1}]})
    spoken = [
        Message(role=said or "user", name=said, content=said, id="1"),
        Message(role="assistant", content=[{"type": said}, {"type": "text", "text": said}, said], tool_calls=[call]),
        Message(role="tool", content=said, tool_call_id=said, name=said, metadata={"interrupted": said}),
    ]
    brain.add_messages(spoken)
    brain.set_title(said)
    brain.set_summary(said)
    rated = Metric(model=said, score=Score(val=7, reason=said), time_cost=1.0, input_tokens=2, money_cost=0.1)
    experience = Experience(req=said, resp={said: said}, tag=said, metric=rated, timestamp=NOON, expires_at=NOON)
    pool = ExperiencePool(store, tag=said, user=said)
    items = WorkingMemory(store)
    items.store("c", said, {said: said}, metadata={said: said})
    found = [recalled(said, name=said, session=said, signals={said: 0.5, "words": -0.1})]
    return [
        brain,
        *spoken,
        experience,
        Similar(experience, 0.5),
        views.Listing([Similar(experience, 0.5)], views.experiences, query=said, matching=analysis.matching),
        found[0],
        views.Listing(found, views.memories, query=said, matching=analysis.matching, meaning_of=lambda _: said),
        Verdict(0.0, said, said),
        pool,
        views.Figures({said: 1, "hits": 2, "misses": 0}, title=said),
        items.retrieve("c"),
        items.retrieve("c")[0],
        Sessions(store, user=said),
        Sessions(store, user=said).list_sessions(),
        views.Listing([SessionInfo(session=said, title=said)], views.sessions),
    ]


def test_hostile_text_is_shown_and_inert() -> None:
    for shown in everything(HOSTILE):
        found = read(shown)
        assert "<script>alert(1)</script>" in found.text or "'><script>" in found.text or "…" in found.text, shown
    assert HOSTILE in read(Message(role="user", content=HOSTILE)).text


@settings(max_examples=40)
@given(st.text(max_size=60))
def test_no_text_makes_markup(said: str) -> None:
    for shown in everything(said):
        assert read(shown).elements[0] == ("div", {"class": "langmem-view"})


def test_nothing_from_elsewhere_and_nothing_outside_of_the_view() -> None:
    for word in ("url(", "@import", "http", "expression", "<"):
        assert word not in style.STYLE
    selectors = re.findall(r"(?:^|[{}])([^{}@]+)\{", style.STYLE)
    assert len(selectors) > 30
    for selector in selectors:
        assert all(".langmem-view" in part for part in selector.split(",")), selector


def test_what_deceives_is_made_visible() -> None:
    shown = read(Message(role="user", content="a\u202eb\u061c\x1b[2J\ud800c\x00"))
    assert "a\\u202eb\\u061c\\x1b[2J\\ud800c\\x00" in shown.text


def test_no_character_that_steers_a_terminal_or_reorders_text_is_left() -> None:
    marks = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    steering = [
        char
        for char in map(chr, range(sys.maxunicode + 1))
        if char in "\u061c\u200e\u200f\u2028\u2029" or unicodedata.bidirectional(char) in marks
        or (unicodedata.category(char) in {"Cc", "Cs"} and char not in "\n\t")
    ]  # fmt: skip
    assert [char for char in steering if char in plain.escape_control_chars(char)] == []


def test_times_beyond_the_calendar_are_shown_all_the_same() -> None:
    for time in (1e30, float("nan"), float("inf"), -1e18):
        read(Message(role="user", content="when?", created_at=time))
        assert "when?" in read(recalled("when?")._replace(score=time)).text


# --- secrets


SECRETS = [
    ("redis://app:hunter2@cache:6379/0", "hunter2"),
    ("redis://:hunter2@cache", "hunter2"),
    ("see redis://app:hun@ter:2@cache/0 there", "ter:2"),
    ("rediss://onlyatoken@cache:6379", "onlyatoken"),
    ("postgres://u:p/a#s@db/x", "p/a#s"),
    ("?password=hunter2&x=1", "hunter2"),
    ('{"api_key": "hunter2"}', "hunter2"),
    ("OPENAI_API_KEY=hunter2", "hunter2"),
    ("my password: hunter2!", "hunter2"),
    ("sk-proj-abcdefgh1234567890abcd", "abcdefgh1234567890"),
    ("sk-ant-api03-abcdefgh1234567890", "abcdefgh1234567890"),
    ("ghp_abcdefghijklmnop1234567890", "abcdefghijklmnop"),
    ("xoxb-123456789012-abcdefghijkl", "abcdefghijkl"),
    ("github_pat_11ABCDEFG0abcdefghij", "11ABCDEFG0"),
    *((f"{mark}abcdefghijklmnop12345", "abcdefghij") for mark in ("glpat-", "hf_", "npm_", "pypi-", "lsv2_", "pcsk_")),
    ("AKIAIOSFODNN7EXAMPLE", "IOSFODNN7"),
    ("ASIAIOSFODNN7EXAMPLE", "IOSFODNN7"),
    ("AIzaSyA1234567890abcdefghijklmnopqrstuv", "1234567890"),
    ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl", "eyJzdWIi"),
    ("Authorization: Bearer abcdef1234567890abcdef", "abcdef1234567890"),
    ("Authorization: Basic YWRhOmh1bnRlcjI6aHVudA==", "YWRhOmh1bnRl"),
    ("passphrase: hunter2", "hunter2"),
    ("-----BEGIN RSA PRIVATE KEY-----\nMIIEowIB\n-----END RSA PRIVATE KEY-----", "MIIEowIB"),
    ("-----BEGIN PRIVATE KEY-----\n" + "MIIEowIB\n" * 900, "MIIEowIB"),
]


@pytest.mark.parametrize(("said", "secret"), SECRETS)
def test_secrets_are_masked_wherever_they_are(said: str, secret: str) -> None:
    for shown in everything(said):
        assert secret not in html(shown), shown
    assert secret not in repr(recalled(said))
    assert secret not in repr(Similar(Experience(req=said, resp=said), 1.0))


@pytest.mark.parametrize(
    "said",
    [
        "http://localhost:8888/lab",
        "The password of the old days was a word.",
        "max_tokens=4000 and 3 tokens: few",
        "write to ada@example.com at 10:30",
        "an ask-me-anything-about-it about sk-learn-compatible-estimators",
        "Basic questions about bearer bonds",
    ],
)
def test_what_is_no_secret_stays(said: str) -> None:
    assert views.mask_secrets(said) == said


@pytest.mark.parametrize("beginning", ["sk-", "eyJ-"])
def test_a_text_of_many_beginnings_of_keys_is_soon_read(beginning: str) -> None:
    def seconds(count: int) -> float:
        start = process_time()
        assert views.mask_secrets(beginning * count) == beginning * count
        return process_time() - start

    assert seconds(20_000) < 8 * seconds(5_000) + 0.1  # 16 times, if each were looked through to the end


def test_white_space_takes_no_room_in_a_line_and_cuts_no_secret() -> None:
    assert views.one_line("\n" * 10_000 + "Hello") == "Hello"
    assert views.one_line("My" + " " * 10_000 + "bike") == "My bike"
    assert views.one_line(" " * 4_200 + f"redis://app:{'hunter2' * 6}@cache") == "redis://app:***@cache"
    key = "-----BEGIN PRIVATE KEY-----\n" + "MIIEpAIB\n" * 70
    assert views.one_line(key + "-----END PRIVATE KEY-----\nThat is it.") == "***…"


def test_a_secret_at_the_cut_is_known_by_what_follows() -> None:
    key = "sk-abcdefgh1234567890abcd"
    for before in range(1_170, 1_200):
        assert "sk-ab" not in html(Message(role="user", content="x" * before + " " + key))


def test_what_was_kept_before_there_was_a_redactor_is_redacted() -> None:
    kept = open_store("memory:")
    brain = BrainMemory(kept, "s")
    brain.add_talk("My pin is 4711.")
    brain.set_summary("The pin is 4711.")
    brain.set_title("Pin 4711")
    sealed = BrainMemory(SealedStore(kept, redactor=lambda text: text.replace("4711", "[pin]")), "s")
    assert "4711" not in html(sealed)
    assert html(sealed).count("[pin]") == 3
    assert "4711" in html(brain)


# --- little is read, nothing is written


def test_a_view_costs_one_look_however_much_there_is() -> None:
    store = Counting()
    clock = FakeClock(NOON)
    brain = BrainMemory(store, "s", user="ada", ttl=100, refresh="read", clock=clock)
    brain.add_messages([Message(role="user", content=f"message {n}") for n in range(5_000)])
    brain.set_summary("short")
    pool = ExperiencePool(store, tag="t", index=open_index("memory:"), clock=clock)
    for n in range(50):
        pool.create(Experience(req=f"capital {n}", resp=n))
    items = WorkingMemory(store, clock=clock)
    items.store("c", *range(100))
    memory = LongTermMemory(store, open_index("memory:"), user="ada")
    memory.add([Message(role="user", content="My bike is in the shed.")])
    cache = ExperienceCache(store=store)
    handed = [memory.search("bike"), pool.query("capital"), items.retrieve("c"), brain.messages(1)[0]]
    handed += [pool.stats(), Sessions(store, user="ada").list_sessions(), cache.stats(), cache, memory.stats()]
    clock.advance(50)  # a read would now start the session's time anew
    for shown in handed:
        store.asked.clear()
        read(shown)
        assert store.asked == []
    for shown, call in ((brain, "scan"), (BrainChatMessageHistory(brain=brain), "scan"), (pool, "scan")):
        store.asked.clear()
        read(shown)
        ((name, limit),) = store.asked
        assert name == call
        assert limit <= views.MAX_MESSAGES
    store.asked.clear()
    assert "s" in read(Sessions(store, user="ada")).text
    assert store.asked == [("recent", 20)]


def test_much_is_cut() -> None:
    brain = BrainMemory(open_store("memory:"), "s")
    brain.add_messages([Message(role="user", content="word " * 100_000, id=str(n)) for n in range(60)])
    brain.set_summary("long " * 100_000)
    made = html(brain)
    assert len(made) < 70_000
    assert "30 older messages are not shown here." in made
    assert "498,801 more characters" in made
    calls = [ToolCall(id=str(n), name="f", args={"x": "y" * 10_000}) for n in range(100)]
    assert len(html(Message(role="assistant", tool_calls=calls))) < 20_000
    for listing in (
        views.Listing([recalled("word " * 1_000)] * 1_000, views.memories, query="word", matching=analysis.matching),
        views.Listing([WorkingItem("1", "x" * 10_000, {}, NOON, NOON)] * 1_000, views.items),
        views.Listing([SessionInfo(session="s" * 10_000, title="t" * 10_000)] * 1_000, views.sessions),
        views.Listing([Similar(Experience(req="q" * 10_000, resp="r" * 10_000), 0.1)] * 1_000, views.experiences),
    ):
        assert len(html(listing)) < 70_000
        assert "more are not shown" in html(listing)
        assert "1,000" in html(listing)


def test_nothing_is_printed_or_logged(capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        for shown in everything("hello"):
            html(shown)
            repr(shown)
    assert capfd.readouterr() == ("", "")
    assert caplog.records == []


# --- nothing fails


@pytest.mark.parametrize(
    "make",
    [
        lambda store: BrainMemory(store, "s"),
        lambda store: BrainChatMessageHistory("s", store=store),
        ExperiencePool,
        Sessions,
    ],
)
def test_an_outage_is_one_sentence(make: Callable[[Store], Any]) -> None:
    assert "cannot be shown now: Redis at redis://app:***@cache:6379/0 does not answer" in failed(make(Down()))
    assert "hunter2" not in html(make(Down()))
    assert "\n" not in repr(make(Down()))


def test_a_strange_failure_is_named_and_its_words_are_not() -> None:
    assert "This BrainMemory cannot be shown now: OSError" in failed(BrainMemory(Broken(), "s"))
    assert "content" not in failed(BrainMemory(Broken(), "s"))


def test_data_that_cannot_be_shown_is_no_traceback() -> None:
    class Odd:
        def __str__(self) -> str:
            raise RuntimeError("no")

    assert "cannot be shown now: RuntimeError" in failed(WorkingItem("1", {"a": Odd()}, {}, NOON, NOON))


def test_a_damaged_session_is_shown_as_far_as_it_can_be_read(any_store: Store) -> None:
    brain = BrainMemory(any_store, "s")
    brain.add_talk("before")
    half_readable = b'{"v": 1, "role": "user", "content": "between", "created_at": "noon"}'
    any_store.append(("brain", "", "", "s"), [("1", b"\xff\xfe"), ("2", half_readable)])
    any_store.write(("brain", "", "", "s"), put={"summary": b"{"})
    brain.add_talk("behind")
    shown = read(brain)
    assert re.search("before.*between.*behind", shown.text)
    assert shown.text.count("damaged") == 1  # beside what could be read
    assert "4 messages" in shown.text


def test_a_damaged_title_does_not_take_the_conversation_along(any_store: Store) -> None:
    brain = BrainMemory(any_store, "s")
    brain.add_talk("Where is my bike?")
    any_store.write(("brain", "", "", "s"), put={"title": b"{"})
    assert "Where is my bike?" in read(brain).text


# --- a conversation


def test_a_conversation_reads_as_a_chat(any_store: Store) -> None:
    clock = FakeClock(NOON)
    brain = BrainMemory(any_store, "bikes", user="ada", clock=clock)
    assert read(brain).text.endswith("0 messagesNothing has been said yet.")  # and no summary
    brain.add_talk("Where is my bike?", name="Ada")
    brain.add_messages(
        [
            Message(role="assistant", tool_calls=[ToolCall(id="1", name="look", args={"place": "shed", "n": 2})]),
            Message(role="tool", content="a red bike", tool_call_id="1"),
            Message(
                role="assistant",
                content=[{"type": "text", "text": "In the shed."}, {"type": "image_url"}],
                metadata={"interrupted": True},
            ),
        ]
    )
    brain.set_title("Lost and found")
    brain.set_summary("Ada looks for things.")
    shown = read(brain)
    for said in ("Lost and found", "session bikes", "user ada", "4 messages", "Ada looks for things.", "Ada", "user"):
        assert said in shown.text
    assert shown.text.index("Where is my bike?") < shown.text.index("look(") < shown.text.index("In the shed.")
    assert "look(place='shed', n=2)a red bike" in shown.text
    assert "[image_url]" in shown.text
    assert shown.of_class("lm-turn") == 3  # the result stands with its call
    assert shown.of_class("lm-user") == 1
    assert shown.of_class("lm-rule") == 0
    assert shown.text.count("interrupted") == 1
    for remark in ("recalled", "damaged", "more calls", "left this history", "Nothing has been said"):
        assert remark not in shown.text
    assert shown.text.count(plain.format_time(NOON)[:10]) == 1  # the day once, the time with each
    assert shown.text.count(plain.format_time(NOON)[11:]) == 3


def test_a_call_has_the_result_that_follows_it_and_a_lone_result_stands_alone() -> None:
    def call(id_: str | None) -> Message:
        return Message(role="assistant", tool_calls=[ToolCall(id=id_, name="f")])

    def result(id_: str, text: str) -> Message:
        return Message(role="tool", tool_call_id=id_, content=text)

    made = views.conversation([result("1", "lone"), call("1"), result("1", "first"), call("1"), result("1", "second")])
    shown = Read(made).inert()
    assert re.search(r"lone.*f\(\)first.*f\(\)second", shown.text, re.DOTALL)
    assert shown.of_class("lm-tool") == 1
    assert shown.of_class("lm-result") == 2
    assert "no result here" in Read(views.conversation([call("1"), call(None), result("2", "other")])).text
    twice = Read(views.conversation([call("1"), result("1", "first"), result("1", "again")])).inert()
    assert re.search(r"f\(\)first.*again", twice.text, re.DOTALL)
    assert twice.of_class("lm-tool") == twice.of_class("lm-result") == 1
    assert "(empty)" in Read(views.conversation([call("1"), result("1", "")])).text
    picture = Message(role="tool", content=[{"type": "image", "url": "x"}], tool_call_id="1")
    assert "f()[image]" in Read(views.conversation([call("1"), picture])).text
    repeated = Message(role="assistant", tool_calls=[ToolCall(id="1", name=name) for name in "fg"])
    assert "f()the resultg()  no result here" in Read(views.conversation([repeated, result("1", "the result")])).text
    nameless = Message(role="assistant", tool_calls=[ToolCall(name="")] * 15)
    assert Read(views.conversation([nameless])).text.endswith("call()  no result here… 3 more calls")


@pytest.mark.parametrize(
    ("count", "memory_k", "rule", "dimmed", "turns"),
    [
        (10, 10, "", 0, 10),
        (10, 4, "6 older messages are outside of the window", 4, 8),
        (5, 4, "1 older message is outside of the window", 1, 5),
        (100, 60, "40 older messages are outside of the window", 0, 30),
        (100, 28, "72 older messages are outside of the window", 2, 30),
    ],
)
def test_what_left_the_window_is_counted(count: int, memory_k: int, rule: str, dimmed: int, turns: int) -> None:
    brain = BrainMemory(open_store("memory:"), "s", memory_k=memory_k)
    brain.add_messages([Message(role="user", content=f"message {n}.") for n in range(count)])
    shown = read(brain)
    assert shown.of_class("lm-rule") == bool(rule)
    assert rule in shown.text
    assert shown.of_class("lm-left") == dimmed
    assert shown.of_class("lm-turn") == turns
    assert f"message {count - 1}." in shown.text
    assert (f"{count - turns} older messages are not shown here." in shown.text) == (count > turns)
    if dimmed:
        assert shown.text.index(rule) < shown.text.index(f"message {count - memory_k}.")
        assert shown.text.index(rule) > shown.text.index(f"message {count - memory_k - 1}.")


EXCHANGE = [Message(role="user", content="Where is my bike?"), Message(role="assistant", content="In the shed.")]
CALLS = Message(role="assistant", tool_calls=[ToolCall(id=id_, name="look") for id_ in "12345"])
RESULTS = [Message(role="tool", content="shed", tool_call_id=id_) for id_ in "12345"]


@pytest.mark.parametrize(
    ("said", "memory_k", "max_tokens", "outside"),
    [
        (EXCHANGE * 3, 5, None, 2),  # a window begins with the user
        ([EXCHANGE[0], CALLS, *RESULTS], 3, None, 0),  # results stay with their call
        (EXCHANGE * 30, 200, 40, 56),
    ],
)
def test_the_window_is_the_one_that_a_model_is_shown(
    said: list[Message], memory_k: int, max_tokens: int | None, outside: int
) -> None:
    brain = BrainMemory(open_store("memory:"), "s", memory_k=memory_k, max_tokens=max_tokens)
    brain.add_messages(said)
    assert len(brain.window()) == len(said) - outside
    shown = read(brain).text
    assert f"{outside} older messages are outside" in shown if outside else "outside" not in shown


def test_what_a_summary_stands_for_is_outside_of_the_window() -> None:
    brain = BrainMemory(open_store("memory:"), "s", model=lambda _: "In short.")
    brain.add_messages([Message(role="user", content=f"message {n}. " + "word " * 600) for n in range(8)])
    brain.summarize()
    left = 8 - len(brain.window())
    assert left > 0
    shown = read(brain)
    assert "In short." in shown.text
    assert f"{left} older message" in shown.text


def test_a_question_that_a_summary_covers_is_shown_to_a_model_with_its_answers() -> None:
    brain = BrainMemory(open_store("memory:"), "s", model=lambda _: "In short.")
    brain.add_messages([EXCHANGE[0], *EXCHANGE[1:] * 5])
    brain.summarize(keep=3)
    assert [message.role for message in brain.window()] == ["user", "assistant", "assistant"]
    assert "3 older messages are outside" in read(brain).text


def test_what_left_the_history_is_counted() -> None:
    store = open_store("memory:")
    memory = LongTermMemory(store, open_index("memory:"), user="ada")
    brain = BrainMemory(store, "s", user="ada", memory_k=2, long_term=memory)
    brain.add_messages([Message(role="user", content=f"message {n}") for n in range(3)])
    assert "1 message left this history." in read(brain).text
    brain.add_messages([Message(role="user", content=f"message {n}") for n in range(3, 6)])
    assert "4 messages left this history." in read(brain).text
    brain.add_messages([Message(role="user", content=f"message {n}") for n in range(6, 300)])
    assert "256 or more messages left this history." in read(brain).text


# --- what was found


def test_of_many_signals_the_strongest_are_shown() -> None:
    signals = {f"signal {n}": (-1) ** n * n / 100 for n in range(1, 13)}
    shown = read(recalled("A talk.", signals=signals)).text
    assert [n for n in range(1, 13) if f"signal {n} " in shown] == [*range(5, 13)]
    assert "… 4 more" in shown


def test_a_search_shows_scores_words_signals_speaker_and_time() -> None:
    memory = LongTermMemory(open_store("memory:"), open_index("memory:"), user="ada")
    memory.add([Message(role="user", name="Ada", content="My bikes are in the shed.", created_at=NOON)], session="mon")
    memory.add([Message(role="user", name="Ada", content="My bikes are in the shed.", created_at=NOON)], session="tue")
    found = memory.search("Where is the bike?", explain=True)
    made = html(found)
    shown = read(found)
    assert "1 memory" in shown.text
    assert "for “Where is the bike?”" in shown.text
    assert "<mark>bikes</mark>" in made
    assert "<mark>in</mark>" not in made
    assert made.count("<mark>") == 1
    assert "My bikes are in the shed." in shown.text
    for said in (f"{found[0].score:.2f}", "Ada", plain.format_time(NOON), "session tue", "said 2 times"):
        assert said in shown.text
    assert f"width:{100 * found[0].score:.0f}%" in made
    strongest = max(found[0].signals, key=lambda name: abs(found[0].signals[name]))
    assert shown.text.index(f"{strongest.replace('_', ' ')} +{found[0].signals[strongest]:.2f}") > 0
    assert {"title": SIGNALS[strongest].description}.items() <= next(
        attributes for _, attributes in shown.elements if "title" in attributes
    ).items()
    assert "lm-signals" not in html(memory.search("Where is the bike?")).partition("</style>")[2]
    assert "No memory was found" in read(memory.search("zebra")).text
    assert "No memory was found" in read(memory.search("")).text
    assert "My bikes" in read(found[0]).text


def test_what_speaks_against_a_memory_looks_otherwise_and_the_strongest_is_first() -> None:
    many = {f"weak{n}": 0.001 for n in range(9)}
    shown = read(recalled("x", signals={"words": 0.1, "question": -0.4, **many}))
    assert shown.text.index("question -0.40") < shown.text.index("words +0.10") < shown.text.index("weak0")
    assert shown.of_class("lm-bad") == 1
    assert "… 3 more" in shown.text
    assert 'style="width:100%"' in html(recalled("x", signals={"words": 0.1}))
    assert read(recalled("x", signals={"words": 0.0})).of_class("lm-bad") == 0


def test_of_a_long_memory_the_part_that_matched_is_shown() -> None:
    said = "filler " * 400 + "the bike is here " + "filler " * 400
    made = html(views.Listing([recalled(said)], views.memories, query="bike", matching=analysis.matching))
    assert "<mark>bike</mark>" in made
    assert "2,644 characters … " in made
    assert "more characters" in made


def test_of_a_secret_before_the_part_that_matched_no_end_is_shown() -> None:
    begin, end = (f"-----{word} RSA PRIVATE KEY-----" for word in ("BEGIN", "END"))
    said = f"Ada sent this: {begin}\n{'MIIEpAIBAAKCAQEA' * 90}\n{end} It is for the server."
    made = html(views.Listing([recalled(said)], views.memories, query="server", matching=analysis.matching))
    assert "<mark>server</mark>" in made
    assert "KCAQEA" not in made


def test_of_a_secret_where_the_search_of_a_long_text_ends_no_end_is_shown() -> None:
    said = "filler " * 7_130 + "the server has sk-1" + "Zy9" * 60 + " and so on" * 1_000  # searched: 50,000 characters
    made = html(views.Listing([recalled(said)], views.memories, query="server", matching=analysis.matching))
    assert "<mark>server</mark> has ***" in made
    assert "Zy9Zy9" not in made
    shown = re.sub(r"<[^>]+>", "", made.partition("</style>")[2])
    assert "49,754 characters … " in shown
    assert "10,109 more characters" in shown


def test_a_memory_of_any_length_is_soon_shown() -> None:
    said = "bike " + "filler " * 1_000_000
    searched: list[int] = []

    def matching(query: str, text: str) -> list[tuple[int, int]]:
        searched.append(len(text))
        return analysis.matching(query, text)

    made = html(views.Listing([recalled(said)], views.memories, query="bike", matching=matching))
    assert "<mark>bike</mark>" in made
    assert "6,999,406 more characters" in re.sub(r"<[^>]+>", "", made)
    assert sum(searched) < 100_000


@pytest.mark.parametrize(
    ("query", "text", "words"),
    [
        ("Where is my bike?", "My bikes are in the shed", ["bikes"]),
        ("to be or not to be", "Be, or not: to be!", ["Be", "or", "not", "to", "be"]),
        ("Ada's houses", "ADA has a house", ["ADA", "house"]),
        ("自転車", "私の自転車は赤い", ["自", "転", "車"]),
        ("Größe", "die GRÖSSE zählt", ["GRÖSSE"]),
        ("settings", "see loadSettings there", ["loadSettings"]),
        ("1250 euros", "It cost 1,250 euros", ["1,250", "euros"]),
        ("250", "It cost 1,250 euros", ["250"]),
        ("flight LH1234", "Flight LH 1234 is late", ["Flight", "LH 1234"]),
        ("LH 1234", "Flight LH 1234 is late", ["LH 1234"]),
        ("5551234", "Call 555-1234 now", ["555-1234"]),
        ("", "anything", []),
        ("??", "anything??", []),
    ],
)
def test_words_that_match_are_those_of_the_search(query: str, text: str, words: list[str]) -> None:
    assert [text[start:end] for start, end in analysis.matching(query, text)] == words


def test_a_memory_that_does_not_say_where_it_was_said_is_shown() -> None:
    bare = Recalled(Memory(id="1", message=Message(role="user", content="My bike.")), 0.5, {})
    assert "My bike." in read(views.Listing([bare], views.memories)).text


def test_an_experience_shows_request_answer_and_what_it_cost() -> None:
    pool = ExperiencePool(open_store("memory:"), tag="capitals", index=open_index("memory:"), clock=lambda: NOON)
    metric = Metric(time_cost=1.25, model="small", input_tokens=900, output_tokens=120, money_cost=0.0125)
    metric.score = Score(val=9, reason="to the point")
    pool.create(Experience(req="What is the capital of France?", resp="Paris", metric=metric, exp_type="insight"))
    found = pool.query("capital of France")
    made, shown = html(found), read(found)
    assert ">What is the <mark>capital</mark> of <mark>France</mark>?</dd>" in made
    for said in ("answerParis", "1 experience", "tag capitals", "insight", "quality 9/10", "to the point"):
        assert said in shown.text
    for said in ("1,020 tokens", "1.25 s", "cost 0.0125", "small", plain.format_time(NOON), f"{found[0].score:.2f}"):
        assert said in shown.text
    for one in (found[0], found[0].experience, pool.query("What is the capital of France?", query_type="exact")):
        assert "Paris" in read(one).text
    assert "not shown" not in shown.text
    assert "No experience was found" in read(pool.query("zebra")).text
    assert "No experience was found" in read(pool.query("capital", k=0)).text
    assert "kept as a hash only" in read(Experience(resp="x")).text
    assert "kept as a hash only" not in read(Experience(req="", resp="x")).text


def test_what_is_unknown_takes_no_room() -> None:
    experience = Experience(req="x", resp="y", metric=Metric(score=Score(val=9, reason="")))
    assert read(experience).text == "Experience quality 9/10requestxanswery"
    made = views.memories([recalled("My bike.", session="")], query="bike")
    assert '<span class="lm-dim"></span>' not in made
    assert "My bike." in made


def test_an_answer_of_a_model_is_shown_as_what_it_said() -> None:
    cache = ExperienceCache(url="memory:", tag="views of answers")
    FakeListChatModel(responses=["In the shed."], cache=cache).invoke("Where?")
    (kept,) = cache.pool.all()
    assert "In the shed." in read(kept).text
    assert "role" not in read(kept).text
    assert plain.as_text([{"message": {"role": "assistant", "tool_calls": [{"name": "look"}]}}]) == "→ look"
    assert plain.as_text([{"role": "user", "content": "a"}, {"role": "user", "content": [{"text": "b"}]}]) == "a\nb"
    assert plain.as_text({"text": "plain"}) == "plain"
    nested: Any = "x"
    for _ in range(4):
        nested = {"role": "user", "content": [nested]}
    assert plain.as_text(nested).startswith('{"role"')
    assert plain.as_text(nested["content"]) == "x"
    assert plain.as_text({"text": "x", "city": "Rome"}) == '{"text": "x", "city": "Rome"}'
    assert plain.as_text({"content": "x", "city": "Rome"}) == '{"content": "x", "city": "Rome"}'
    assert plain.as_text({"role": "admin", "city": "Rome"}) == '{"role": "admin", "city": "Rome"}'
    assert plain.as_text([1, "a"]) == '[1, "a"]'
    assert plain.as_text({1, 2}) in {'"{1, 2}"', "[1, 2]"}
    assert plain.as_text({(1, 2): "x"}) == "(dict)"
    deep: Any = "end"
    for _ in range(2_000):
        deep = [deep]
    assert plain.as_text(deep)
    endless: list[Any] = []
    endless.append(endless)
    assert plain.as_text(endless) == "(list)"


def test_what_follows_a_long_secret_is_not_left_out_in_silence() -> None:
    text = f"-----BEGIN PRIVATE KEY-----{'x' * 9_000}-----END PRIVATE KEY----- and the rest"
    assert plain.shorten(text, 100) == ("***", len(text) - 3)


def test_a_verdict_says_why_it_refused() -> None:
    refused = read(Verifier()("Which phone is best under 15k?", "Which phone is best under 20k?", cosine=0.97))
    assert "refused 0.00  numbers differ: 15000, 20000 by numbers" in refused.text
    matched = read(Verifier()("How will I learn to speak Hindi?", "How do I learn to speak Hindi?", cosine=0.98))
    assert "matched 0.95  nothing refused" in matched.text
    assert "refused 0.20  by score" in read(Verdict(0.2, "score", "")).text


async def test_a_retriever_shows_what_it_found() -> None:
    memory = LongTermMemory(open_store("memory:"), open_index("memory:"), user="ada")
    memory.add([Message(role="user", name="Ada", content="My bikes are in the shed.", created_at=NOON)], session="mon")
    retriever = LongTermRetriever(memory=memory)
    found = retriever.invoke("Where is the bike?")
    assert type(found[0]) is Document
    assert found == [*found] == await retriever.ainvoke("Where is the bike?")
    assert html(pickle.loads(pickle.dumps(found))) == html(found)
    shown = read(found)
    for said in ("1 memory", "Ada", plain.format_time(NOON), "session mon", f"{found[0].metadata['score']:.2f}"):
        assert said in shown.text
    assert "<mark>bikes</mark>" in html(found)
    assert "No memory was found" in read(retriever.invoke("zebra")).text


# --- figures and tables


def test_statistics_show_the_hit_rate_and_what_was_saved() -> None:
    prices = {"small": (1.0, 2.0)}
    pool = ExperiencePool(open_store("memory:"), tag="capitals", prices=prices)
    assert "no requests yet" in read(pool).text
    metric = Metric(time_cost=1.5, model="small", input_tokens=1_000, output_tokens=500)
    pool.create(Experience(req="France", resp="Paris", metric=metric))
    for req in ("France", "France", "France", "Spain"):
        pool.lookup(req)
    for shown in (pool, pool.stats()):
        text = read(shown).text
        assert "hit rate 75 %: 3 of 4 requests" in text
        for said in ("4,500 tokens saved", "4.5 seconds saved", "0.006 money saved", "3 hits", "1 misses", "1 stored"):
            assert said in text
        assert "width:75%" in html(shown)
    assert "Experience pool capitals" in read(pool).text
    assert "1 kept" in read(pool).text
    assert read(pool.stats()).of_class("lm-zero") == 3
    counts = {"hits": 3, "misses": 1, "stored": 1, "unreadable": 0, "expired": 0, "evicted": 0}
    assert pool.stats() == {**counts, "saved_seconds": 4.5, "saved_tokens": 4_500, "saved_money": 0.006}


@pytest.mark.parametrize(
    ("hits", "misses", "rate"),
    [
        (1, 0, "100 %"),
        (9_999, 1, "above 99.9 %"),
        (997, 3, "99.7 %"),
        (1, 1, "50 %"),
        (3, 997, "0.3 %"),
        (1, 9_999, "below 0.1 %"),
        (0, 1, "0 %"),
    ],
)
def test_a_hit_rate_is_all_or_nothing_only_where_it_is(hits: int, misses: int, rate: str) -> None:
    shown = read(views.Figures({"hits": hits, "misses": misses})).text
    assert f"hit rate {rate}: {hits:,} of {hits + misses:,} requests" in shown


def test_what_was_saved_is_shown_to_the_cent_and_without_powers_of_ten() -> None:
    saved = {"saved_tokens": 12_345_678, "saved_seconds": 123_456.78, "saved_money": 12_345.67}
    shown = read(views.Figures({**saved, "hits": 0})).text
    assert "12,345,678 tokens saved" in shown
    assert "123,456.78 seconds saved" in shown
    assert "12,345.67 money saved" in shown
    assert "0.000012 money saved" in read(views.Figures({"saved_money": 0.000012})).text


def test_every_cache_has_a_view_of_its_counts() -> None:
    store = open_store("memory:")

    @cached(store=store)
    def double(n: int) -> int:
        return 2 * n

    assert double(1) == double(1)
    llm, model = CachedLLM(MockLLM(max_tokens=1), store=store), FakeListChatModel(responses=["a"])
    chat_model = CachedChatModel(model, ExperienceCache(store=store))
    for _ in range(2):
        llm.complete("x")
        chat_model.invoke("x")
    nodes: ExperienceNodeCache[int] = ExperienceNodeCache(store=store)
    nodes.set({(("n",), "kept"): (1, None)})
    assert len(nodes.get([(("n",), "kept"), (("n",), "other")])) == 1
    of_models = (llm, llm.stats(), chat_model, chat_model.stats())
    for counts in (double.cache, double.cache.stats(), *of_models, nodes.stats()):
        assert "hit rate 50 %: 1 of 2 requests" in read(counts).text
    for shown, title in ((double.cache, "double"), (llm, "Cached MockLLM"), (chat_model, "Cached FakeListChatModel")):
        assert title in read(shown).text
    assert "LLM cache" in read(ExperienceCache(store=store)).text
    assert "tokens saved" in read(views.Figures({"saved_tokens": 1_234})).text
    assert "1,234" in read(views.Figures({"saved_tokens": 1_234})).text
    assert "saved tokens" not in read(views.Figures({"saved_tokens": 1_234})).text
    memory = LongTermMemory(store, open_index("memory:"), user="ada")
    assert "searches" in read(memory.stats()).text


def test_working_memory_and_sessions_are_tables() -> None:
    store = open_store("memory:")
    items = WorkingMemory(store, clock=lambda: NOON)
    items.store("c", {"goal": "find the bike"}, metadata={"agent": "planner"})
    shown = read(items.retrieve("c"))
    for said in (
        "Working memory, 1 item",
        '{"goal": "find the bike"}',
        '{"agent": "planner"}',
        plain.format_time(NOON),
    ):
        assert said in shown.text
    items.store("d", 5)
    assert "metadata" not in read(items.retrieve("d")).text
    assert "Working memory, 0 items" in read(items.retrieve("nobody")).text
    brain = BrainMemory(store, "monday", user="ada", clock=lambda: NOON)
    brain.add_talk("Hello.")
    brain.set_title("Greetings")
    sessions = Sessions(store, user="ada")
    shown = read(sessions.list_sessions())
    for said in ("1 session", "monday", "Greetings", "1"):
        assert said in shown.text
    assert "0 sessions" in read(Sessions(store, user="bob").list_sessions()).text
    assert "monday" in read(sessions).text
    assert "monday" not in read(Sessions(store, user="bob")).text


# --- lists are lists, and dictionaries are dictionaries


def results() -> Iterator[tuple[Any, Any]]:
    """What has a view, and the plain thing that it equals."""
    memory = LongTermMemory(open_store("memory:"), open_index("memory:"), user="ada")
    memory.add([Message(role="user", content="My bike is in the shed.")])
    found = memory.search("bike", explain=True)
    yield found, list(found)
    pool = ExperiencePool(open_store("memory:"), index=open_index("memory:"))
    pool.create(Experience(req="bike", resp="shed"))
    similar = pool.query("bike")
    yield similar, list(similar)
    items = WorkingMemory(open_store("memory:"))
    items.store("c", "a")
    yield items.retrieve("c"), list(items.retrieve("c"))
    store = open_store("memory:")
    BrainMemory(store, "s").add_talk("x")
    sessions = Sessions(store).list_sessions()
    yield sessions, list(sessions)
    yield pool.stats(), dict(pool.stats())


def test_results_are_lists_and_dictionaries_in_all_else() -> None:
    for shown, same in results():
        assert isinstance(shown, type(same))
        assert shown == same
        assert same == shown
        assert repr(shown) == repr(same)
        assert len(shown) == len(same) > 0
        assert copy.copy(shown) == copy.deepcopy(shown) == same
        assert html(copy.deepcopy(shown)) == html(shown)
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            if protocol >= 2:
                again = pickle.loads(pickle.dumps(shown, protocol))
                assert again == same
                assert html(again) == html(shown)
        assert TypeAdapter(type(same)).validate_python(shown, strict=True) == same
        assert decode(encode(shown)) == decode(encode(same))
        assert (first_changed_type(shown, same), first_changed_type(same, shown), identity(shown)) == (
            "",
            "",
            identity(same),
        )
        kind = JsonPlusSerializer()
        assert kind.loads_typed(kind.dumps_typed({"x": [*shown]})) == kind.loads_typed(kind.dumps_typed({"x": [*same]}))
        if isinstance(same, list):
            assert shown[:1] == same[:1]
            assert type(shown * 2) is list
            assert sorted(shown, key=repr) == sorted(same, key=repr)


def test_results_are_json() -> None:
    assert json.dumps(views.Listing([1, "a"], views.items)) == '[1, "a"]'
    assert json.dumps(views.Figures({"hits": 1})) == '{"hits": 1}'
    assert TypeAdapter(list[int]).dump_json(views.Listing([1], views.items)) == b"[1]"
    kind = JsonPlusSerializer()
    assert kind.loads_typed(kind.dumps_typed(views.Listing([1], views.items))) == [1]
    assert kind.loads_typed(kind.dumps_typed(views.Figures({"hits": 1}))) == {"hits": 1}


# --- one line


def test_plain_representations_are_one_short_line() -> None:
    long = "Where is\nmy bike?\n" * 100
    for shown in (
        recalled(long, name=long),
        Similar(Experience(req=long, resp=long), 0.5),
        BrainMemory(open_store("memory:"), "s"),
        Sessions(open_store("memory:")),
        WorkingMemory(open_store("memory:")),
        ExperiencePool(open_store("memory:")),
        BrainChatMessageHistory("s", url="memory:"),
        ExperienceCache(url="memory:"),
        WorkingItem("1", long, {}, NOON, NOON),
    ):
        assert "\n" not in repr(shown)
        assert len(repr(shown)) < 220
    assert repr(recalled("In the shed.", 0.833)) == "Recalled(0.83, user: 'In the shed.')"
    assert repr(recalled("x", name="Ada")) == "Recalled(0.50, Ada: 'x')"
    assert repr(Similar(Experience(req="a", resp={"b": 1}), 1.0)) == """Similar(1.00, 'a' -> '{"b": 1}')"""
    assert repr(Sessions(open_store("memory:"), user="ada")) == "Sessions(MemoryStore(), user='ada')"


def test_what_ipython_stores_beside_a_view_is_masked_and_cut_too() -> None:
    said = "My key is sk-abcdefgh1234567890abcd. " + "word " * 10_000
    memory = LongTermMemory(MemoryStore(), open_index("memory:"), user="ada")
    memory.add([Message(role="user", content=said)], session="s")
    documents = LongTermRetriever(memory=memory).invoke("key")
    for shown in (Message(role="user", content=said), Experience(req=said), documents):
        assert "My key is ***. word" in pretty(shown)
        assert len(pretty(shown)) < 1_300
        assert said in repr(shown)
    assert pretty(views.Listing([1, "a"], views.items)) == "[1,\n 'a']"
    assert pretty(views.Listing(range(2_000), views.items)).endswith("999,\n …]")


def test_a_history_shows_what_langchain_wrote() -> None:
    history = BrainChatMessageHistory("s", url="memory:", user="views")
    history.add_messages(
        [
            HumanMessage("Where is it?"),
            AIMessage("", tool_calls=[{"id": "1", "name": "look", "args": {"where": "shed"}}]),
        ]
    )
    assert "look(where='shed')" in read(history).text
    assert html(history) == html(history.brain)


def test_a_history_shows_the_window_of_its_own() -> None:
    brain = BrainMemory(open_store("memory:"), "s")
    brain.add_messages([*EXCHANGE[1:], *EXCHANGE * 3])
    every, newest = BrainChatMessageHistory("s", brain=brain), BrainChatMessageHistory("s", brain=brain, memory_k=2)
    assert len(every.messages) == 7
    assert "outside" not in read(every).text
    assert len(newest.messages) == 2
    assert "5 older messages are outside" in read(newest).text


@pytest.mark.parametrize("make", MADE)
def test_what_has_no_view_says_in_a_line_what_it_is(make: Callable[[], object]) -> None:
    assert re.fullmatch(r"\w+\((\w+\(.*\)|Embedder, verifier=.*|7)\)", repr(make()))
