"""B5: titles, relatedness and rewriting, done right: strict, free of charge where there is nothing to ask about."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, cast

import pytest
from langchain_core.language_models import FakeListChatModel
from llama_index.core.llms import CompletionResponse, CustomLLM, LLMMetadata

from langmem_adapters.brain import BrainMemory
from langmem_adapters.conversation.log import brain_namespace
from langmem_adapters.conversation.session import TITLE
from langmem_adapters.errors import ConfigurationError
from langmem_adapters.protocols import Store
from langmem_adapters.stores.memory import MemoryStore
from langmem_adapters.tokens import approximate_tokens
from langmem_adapters.understanding import extract_info, parse_verdict, title_in
from tests.faults import Overtaken

if TYPE_CHECKING:
    from langchain_openai import ChatOpenAI

QUESTION = "And where is its key?"
PLAIN = "Where is the key of Ada's bike?"


class Assistant:
    """A model that follows a script by task, and keeps what it was asked."""

    def __init__(self, related: str = "TRUE", rewritten: str = PLAIN, title: str = "Ada's lost bike") -> None:
        self.answers = {
            "TRUE or FALSE": related,
            "Rewrite the sentence": rewritten,
            "Write a title": title,
            "running summary": "They spoke of Ada's bike.",
        }
        self.asked: list[tuple[str, str]] = []

    def __call__(self, prompt: str) -> str:
        task, answer = next((task, answer) for task, answer in self.answers.items() if task in prompt)
        self.asked.append((task, prompt))
        return answer

    @property
    def tasks(self) -> list[str]:
        return [task for task, _ in self.asked]


def memory(model: Any = None, **arguments: Any) -> BrainMemory:
    return BrainMemory(MemoryStore(), "s", model=model, **arguments)


def talked(model: Any = None, **arguments: Any) -> BrainMemory:
    brain = memory(model, **arguments)
    brain.add_talk("Ada's bike is gone.")
    brain.add_answer("It is in the shed.")
    return brain


def failing(_: str) -> str:
    raise TimeoutError


# --- TRUE or FALSE


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        ("TRUE", True),
        ("true.", True),
        ("**True**", True),
        ("Answer: TRUE", True),
        ("Yes", True),
        ("Yes, they are related.", True),
        ("True, the second text cannot stand alone.", True),
        ("FALSE", False),
        ("False.", False),
        ("NOT TRUE", False),
        ("UNTRUE", False),
        ("It isn't true", False),
        ("It isn\N{RIGHT SINGLE QUOTATION MARK}t true", False),
        ("They are not really related.", False),
        ("Unrelated", False),
        ("No, they are not related.", False),
        ("FALSE, the second text does not refer to the first.", False),
        ('{"related": true}', True),
        ('{"related": false}', False),
        ('```json\n{"reason": "It is not about the bike.", "is_related": true}\n```', True),
        ('{"related": true} or {"related": false}', None),
        ('{"related": "false"}', False),
        ('{"is_related": "Yes"}', True),
        ('{"related": null}', None),
        ('{"related": 0}', None),
        ("It's not false", None),
        ("not untrue", None),
        ("TRUE/FALSE", None),
        ("TRUE or FALSE", None),
        ("It is not the case that all of this is true", None),
        ("I don't know", None),
        ("I am not sure", None),
        ("maybe", None),
        ("truely", None),
        ("vrai", None),
        ("是的", None),
        ("verdadero", None),
        ("правда", None),
        ("1", None),
        ("{}", None),
        ("", None),
    ],
)
def test_b5_a_verdict_is_read_strictly(answer: str, verdict: bool | None) -> None:
    assert parse_verdict(answer) is verdict


@pytest.mark.parametrize("default", [True, False])
def test_b5_garbage_is_the_default_and_counted(default: bool) -> None:
    brain = memory(lambda _: "perhaps")
    assert brain.is_related("And it?", "A bike.", default=default) is default
    assert (brain.stats()["calls"], brain.stats()["unparsed"], brain.stats()["failures"]) == (1, 1, 0)


@pytest.mark.parametrize("default", [True, False])
def test_b5_a_failing_model_is_the_default_and_counted(default: bool, caplog: pytest.LogCaptureFixture) -> None:
    brain = memory(failing)
    with caplog.at_level(logging.WARNING, "langmem_adapters"):
        assert brain.is_related("my-secret", "A bike.", default=default) is default
    assert (brain.stats()["unparsed"], brain.stats()["failures"]) == (0, 1)
    assert "it is unknown whether a text is related: the model failed: TimeoutError" in caplog.text
    assert "my-secret" not in caplog.text


def test_b5_nothing_is_asked_about_nothing() -> None:
    def never(_: str) -> str:
        pytest.fail("nothing was there to ask about")

    brain = memory(never)
    assert (brain.is_related("a", "", default=True), brain.is_related(" ", "a"), brain.is_related("a", "\n")) == (
        False,
        False,
        False,
    )
    assert (brain.rewrite("Where?", ""), brain.rewrite(" ", "a bike"), brain.rewrite("Where?", " \n")) == (
        "Where?",
        " ",
        "Where?",
    )
    assert (brain.refine(QUESTION), brain.get_title()) == (QUESTION, "")
    assert brain.stats() == dict.fromkeys(brain.stats(), 0)


# --- a sentence made plain


def test_b5_a_sentence_is_rewritten_with_its_context() -> None:
    model = Assistant()
    assert memory(model).rewrite(QUESTION, "Ada's bike is in the shed.") == PLAIN
    assert "Ada's bike is in the shed." in model.asked[0][1]
    assert QUESTION in model.asked[0][1]


@pytest.mark.parametrize(
    ("sentence", "answer", "rewritten"),
    [
        ("Where is it?", '"Where is the bike?"', "Where is the bike?"),
        ("Où est-il ?", "«Où est le vélo ?»", "Où est le vélo ?"),
        ('"Where is it?"', '"Where is the bike?"', '"Where is the bike?"'),
        ("Where is it?", "'Where is Ada's bike?'", "Where is Ada's bike?"),
        ("Is it older?", '"Dune" is older than "Emma"', '"Dune" is older than "Emma"'),
        ("Which is older?", "'Dune' or 'Emma'", "'Dune' or 'Emma'"),
        ("Which is older?", "*Dune* or *Emma*", "*Dune* or *Emma*"),
    ],
)
def test_b5_a_rewritten_sentence_has_no_quotation_marks_of_the_model(
    sentence: str, answer: str, rewritten: str
) -> None:
    assert memory(lambda _: answer).rewrite(sentence, "A bike.") == rewritten


@pytest.mark.parametrize("answer", ["", "I'm sorry, I can't help with that.", "Error: rate limit"])
def test_b5_a_sentence_stays_where_the_model_gives_none(answer: str, caplog: pytest.LogCaptureFixture) -> None:
    brain = memory(lambda _: answer)
    with caplog.at_level(logging.WARNING, "langmem_adapters"):
        assert brain.rewrite(QUESTION, "A bike.") == QUESTION
    assert brain.stats()["failures"] == 1
    assert len(caplog.records) == 1


def test_an_apology_may_be_rewritten() -> None:
    assert memory(lambda _: "Sorry, where is Ada's bike?").rewrite("Sorry, where is it?", "Ada's bike") == (
        "Sorry, where is Ada's bike?"
    )


async def test_b5_a_failing_model_gives_the_original_sentence() -> None:
    async def afailing(_: str) -> str:
        await asyncio.sleep(0)
        raise TimeoutError

    brain = talked(failing)
    assert brain.rewrite(QUESTION, "A bike.") == brain.refine(QUESTION) == QUESTION
    assert await brain.arewrite(QUESTION, "A bike.", afailing) == await brain.arefine(QUESTION, afailing) == QUESTION


# --- refine


def test_b5_refine_asks_once_where_the_talk_is_new() -> None:
    model = Assistant(related="FALSE")
    brain = talked(model)
    assert brain.refine(QUESTION) == QUESTION
    assert model.tasks == ["TRUE or FALSE"]


def test_b5_refine_rewrites_what_depends_on_the_talk_before() -> None:
    model = Assistant()
    brain = talked(model)
    brain.set_summary("Ada is on a farm.")
    assert brain.refine(QUESTION) == PLAIN
    assert model.tasks == ["TRUE or FALSE", "Rewrite the sentence"]
    for _, prompt in model.asked:
        assert "Ada is on a farm.\nuser: Ada's bike is gone.\nassistant: It is in the shed." in prompt


def test_b5_what_was_just_said_is_not_its_own_context() -> None:
    model = Assistant()
    brain = memory(model)
    brain.add_talk(QUESTION)
    assert brain.refine(QUESTION) == QUESTION
    assert model.asked == []
    brain = talked(model)
    brain.add_talk(QUESTION)
    assert brain.refine(QUESTION) == PLAIN
    assert [prompt.count(QUESTION) for _, prompt in model.asked] == [1, 1]


def test_b5_what_the_assistant_just_said_is_the_context_of_who_repeats_it() -> None:
    model = Assistant()
    talked(model).refine("It is in the shed.")
    assert "assistant: It is in the shed." in model.asked[0][1]


def test_b5_a_long_talk_is_not_its_own_context_either() -> None:
    model = Assistant()
    brain = memory(model)
    talk = "And what of it? " * 2000
    brain.add_talk(talk)
    assert brain.refine(talk) == talk
    assert model.asked == []


def test_b5_refine_summarises_a_long_history_first() -> None:
    model = Assistant()
    brain = memory(model)
    for n in range(40):
        brain.add_talk(f"Ada's bike, story {n}: {'it was seen again ' * 12}")
        brain.add_answer("I see.")
    assert brain.refine(QUESTION) == PLAIN
    assert model.tasks == ["running summary", "TRUE or FALSE", "Rewrite the sentence"]
    assert "They spoke of Ada's bike.\nuser: Ada's bike, story" in model.asked[-1][1]
    assert brain.count() == 80
    assert brain.refine(QUESTION) == PLAIN
    assert model.tasks[3:] == ["TRUE or FALSE", "Rewrite the sentence"]


# --- titles


@pytest.mark.parametrize(
    ("answer", "title"),
    [
        ("Ada's lost bike", "Ada's lost bike"),
        ('"Ada\'s lost bike."', "Ada's lost bike"),
        ("# Ada's lost bike\nIt is about bikes.", "Ada's lost bike"),
        ("**Bike**", "Bike"),
        ('"Bike".', "Bike"),
        ("# First steps in C#", "First steps in C#"),
        ("one two three four five six seven", "one two three four five"),
        ("***", ""),
        ("...", ""),
        ("Sure! Here's a title:\n\n**Ada's lost bike**", "Ada's lost bike"),
        ("Title: Ada's lost bike", "Ada's lost bike"),
        ("**Title:** The lost bike", "The lost bike"),
        ("**Title: The lost bike**", "The lost bike"),
        ("## **Title:** **The lost bike**", "The lost bike"),
        ("Title:*The lost bike*", "The lost bike"),
        ('"Title: The lost bike"', "The lost bike"),
        ("* The lost bike", "The lost bike"),
        ("* **The lost bike**", "The lost bike"),
        ("**The *lost* bike**", "The *lost* bike"),
        ("”Adas cykel”", "Adas cykel"),
        ("```The lost bike```", "The lost bike"),
        ("🚲", "🚲"),
        ("```\nAda's lost bike\n```", "Ada's lost bike"),
        ("'Ada's lost bike'", "Ada's lost bike"),
        ('"Dune" review', '"Dune" review'),
        ("Title:", ""),
        ("I'm sorry, I can't do that.", ""),
    ],
)
def test_b5_a_title_is_a_few_words_and_kept(answer: str, title: str) -> None:
    model = Assistant(title=answer)
    brain = talked(model)
    assert brain.get_title() == title
    brain.get_title()
    assert len(model.asked) == (1 if title else 2)


def test_b5_a_title_of_a_model_that_is_stuck_is_read_at_once() -> None:
    start = time.process_time()
    assert "Bike" in title_in("'" * 50_000 + " Bike " + "'" * 50_000, 5)
    assert time.process_time() - start < 1  # twice as many took four times as long


def test_b5_a_title_is_made_of_the_newest_of_a_long_history() -> None:
    model = Assistant()
    brain = memory(model)
    for n in range(100):
        brain.add_talk(f"story {n} " + "word " * 100)
    assert brain.get_title() == "Ada's lost bike"
    ((_, prompt),) = model.asked
    assert "story 99" in prompt
    assert approximate_tokens(prompt) < 2100


def test_b5_what_a_model_is_shown_is_measured_by_the_memorys_own_counter() -> None:
    model = Assistant()
    brain = memory(model, counter=len)
    for n in range(3):
        brain.add_talk(f"story {n}: {'it was seen again ' * 50}")
    brain.get_title()
    assert [f"story {n}" in model.asked[-1][1] for n in range(3)] == [False, True, True]


def test_b5_a_title_that_is_there_costs_nothing() -> None:
    model = Assistant()
    brain = talked(model)
    brain.set_title("Bikes")
    assert brain.get_title() == "Bikes"
    assert model.asked == []
    assert talked().get_title() == ""


def test_b5_a_title_is_made_of_a_summary_where_there_is_nothing_else(any_store: Store) -> None:
    brain = BrainMemory(any_store, "s", model=Assistant())
    brain.set_summary("Ada's bike is gone.")
    assert brain.get_title() == "Ada's lost bike"


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("when", ["while the model is asked", "in the last moment"])
@pytest.mark.parametrize("happens", ["cleared", "begun anew", "entitled"])
def test_b5_a_title_is_for_the_session_of_which_it_was_made(
    any_store: Store, happens: str, when: str, *, begun: bool
) -> None:
    other = BrainMemory(any_store, "s")

    def meanwhile() -> None:
        if happens == "entitled":
            other.set_title("By hand")
            return
        other.clear()
        if happens == "begun anew":
            talk()

    def talk() -> None:
        other.add_talk("Ada's bike is gone.", id="1", created_at=5.0)
        other.add_talk("And her key.")
        if begun:
            other.delete(["1"])

    talk()

    def slow(prompt: str) -> str:
        meanwhile()
        return Assistant()(prompt)

    overtaken = cast("Store", Overtaken(any_store, meanwhile, as_is_put=TITLE))
    store, model = (overtaken, Assistant()) if when == "in the last moment" else (any_store, slow)
    assert BrainMemory(store, "s").get_title(model) == ("By hand" if happens == "entitled" else "")
    assert (TITLE in any_store.get(brain_namespace(other.scope))) == (happens == "entitled")
    assert happens != "cleared" or any_store.get(brain_namespace(other.scope)) == {}


def test_b5_a_session_stays_without_a_title_where_the_model_fails(caplog: pytest.LogCaptureFixture) -> None:
    brain = talked()
    with caplog.at_level(logging.WARNING, "langmem_adapters"):
        assert brain.get_title(failing) == ""
        assert brain.is_related("And it?", "A bike.", failing, default=True)
    assert (brain.stats()["unparsed"], brain.stats()["failures"]) == (0, 2)
    assert "a session stays without a title" in caplog.text
    assert brain.get_title(Assistant()) == "Ada's lost bike"


# --- tagged answers


@pytest.mark.parametrize(
    ("text", "info"),
    [
        ("[SKILL]: draw a cat", ("SKILL", "draw a cat")),
        ("[TALK]: Hello\nthere [SKILL]: x", ("TALK", "Hello\nthere [SKILL]: x")),
        ("  [TALK]:Hi", ("TALK", "Hi")),
        ("no tag", (None, "no tag")),
        ("say [TALK]: Hi", (None, "say [TALK]: Hi")),
        ("[talk]: Hi", (None, "[talk]: Hi")),
        ("[TALK]:", (None, "[TALK]:")),
        ("", (None, "")),
    ],
)
def test_b5_a_tagged_answer_is_split(text: str, info: tuple[str | None, str]) -> None:
    assert extract_info(text) == info


# --- any model


class OwnLLM(CustomLLM):
    """A LlamaIndex model as a user writes one."""

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata()

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:  # noqa: ARG002
        return CompletionResponse(text=Assistant()(prompt))

    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
        raise NotImplementedError


async def coroutine_function(prompt: str) -> str:
    await asyncio.sleep(0)
    return Assistant()(prompt)


MODELS: dict[str, Callable[[], Any]] = {
    "LangChain": lambda: FakeListChatModel(responses=["TRUE", PLAIN]),
    "LlamaIndex": OwnLLM,
    "function": Assistant,
}


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
async def test_b5_refine_takes_any_model_sync_and_async(make: Callable[[], Any], any_store: Store) -> None:
    brain = BrainMemory(any_store, "s")
    brain.add_talk("Ada's bike is gone.")
    assert brain.refine(QUESTION, make()) == PLAIN
    assert await brain.arefine(QUESTION, make()) == PLAIN
    assert await brain.arefine(QUESTION, coroutine_function) == PLAIN


def test_b5_sync_use_of_an_async_model_and_no_model_are_one_clear_error() -> None:
    brain = talked(coroutine_function)
    for call in (
        lambda: brain.refine(QUESTION),
        lambda: brain.rewrite("a", "b"),
        lambda: brain.is_related("a", "b"),
        brain.get_title,
        brain.summarize,
    ):
        with pytest.raises(ConfigurationError, match="call the async twin of this method"):
            call()
    with pytest.raises(ConfigurationError, match="this needs a model: give BrainMemory model=, or one to this call"):
        talked().refine(QUESTION)


# --- the real client


def test_b5_the_real_openai_client(
    openai_cassette: Callable[[str], AbstractContextManager[Any]], chat_openai: Callable[..., ChatOpenAI]
) -> None:
    brain = talked()
    brain.set_summary("They met.")
    with openai_cassette("brain") as tape:
        model = chat_openai()
        assert brain.summarize(model) == brain.history_text().splitlines()[0] == "A talk of 18 words."
        assert brain.refine(QUESTION, model) == QUESTION  # the script says neither TRUE nor FALSE
        assert brain.rewrite(QUESTION, "Ada's bike", model).startswith("You said: Context:\nAda's bike")
        assert len(tape.requests) == 3
    stats = brain.stats()
    assert (stats["calls"], stats["unparsed"], stats["failures"], stats["summaries"]) == (3, 1, 0, 1)
    assert stats["tokens_in"] > stats["tokens_out"] > 0
