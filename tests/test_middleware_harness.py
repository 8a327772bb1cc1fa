"""BrainMemoryMiddleware beside an agent's harness that adds messages as the user's, marked by ``lc_source``."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, hook_config
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from langmem_adapters import Message
from langmem_adapters.langchain import BrainMemoryMiddleware, from_message, to_message
from langmem_adapters.langchain.threads.conversation import latest_question
from langmem_adapters.stores.memory import MemoryStore
from tests.agents import Scripted, ask, system, texts

SKILL = "<skill>When the user asks about the bike, in the shed or in the garden, answer politely.</skill>"
REVIEW = "Say more of the bike."
QUESTIONS = ["My bike is in the shed.", "Where is my bike?", "And the car?"]


def added(text: str) -> HumanMessage:
    return HumanMessage(text, additional_kwargs={"lc_source": "harness"})


class Harness(AgentMiddleware[Any, Any]):
    """Adds a skill to a question, and has the first answer reviewed."""

    def before_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:  # noqa: ARG002 - LangChain passes it
        is_asked = state["messages"][-1].text in QUESTIONS
        return {"messages": [added(SKILL)]} if is_asked else None

    @hook_config(can_jump_to=["model"])
    def after_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:  # noqa: ARG002 - LangChain passes it
        if state["messages"][-1].text.startswith("more"):
            return None
        return {"messages": [added(REVIEW)], "jump_to": "model"}


def answer(messages: list[BaseMessage]) -> AIMessage:
    asked = next(text for text in reversed(texts(messages)) if text in QUESTIONS)
    return AIMessage(f"more: {asked}" if messages[-1].text == REVIEW else f"ok: {asked}")


def harnessed(**options: Any) -> tuple[Any, Scripted, BrainMemoryMiddleware]:
    model, ours = Scripted(answer=answer), BrainMemoryMiddleware(store=MemoryStore(), **options)
    return create_agent(model, middleware=[ours, Harness()]), model, ours


def test_what_a_harness_adds_is_kept_and_shown_but_never_found() -> None:
    agent, model, ours = harnessed(memory_k=3)
    for question in QUESTIONS:
        ask(agent, question)
    brain = ours.brain("s", user="ada")
    assert brain.long_term is not None
    assert {SKILL, REVIEW} <= {memory.message.text for memory in brain.long_term.all()}
    found = {recalled.text for recalled in brain.recall("Where in the shed is the bike?", k=20)}
    assert QUESTIONS[0] in found
    assert found.isdisjoint({SKILL, REVIEW})
    assert REVIEW in texts(model.seen[-1])
    assert not [shown for shown in model.seen if "<skill>" in system(shown) or REVIEW in system(shown)]


def test_the_question_of_a_run_is_what_the_user_asked() -> None:
    agent, model, ours = harnessed(memory_k=1)
    ours.brain("old", user="ada").add_talk("The car is in the yard.")
    ours.brain("old", user="ada").add_talk("Something else.")
    ask(agent, "And the car?")
    assert all("in the yard" in system(shown) for shown in model.seen)
    assert [shown[-1].text for shown in model.seen] == [SKILL, REVIEW]


def test_a_run_that_only_a_harness_began_has_its_message_as_the_question() -> None:
    newest = latest_question([added("one"), added("two"), AIMessage("answer")])
    assert newest is not None
    assert newest.text == "two"


@pytest.mark.parametrize("ids", [False, True])
@pytest.mark.parametrize("hides", [False, True])
def test_a_client_without_marks_does_not_double_what_a_harness_added(*, ids: bool, hides: bool) -> None:
    agent, _, ours = harnessed(memory_k=100)
    said: list[BaseMessage] = []
    for question in QUESTIONS:
        said.append(HumanMessage(question))
        messages = ask_all(agent, said)
        new = messages[len(said) :]
        said += [type(m)(m.text, id=m.id if ids else None) for m in (new[-1:] if hides else new)]
    parts = ([question, SKILL, f"ok: {question}", REVIEW, f"more: {question}"] for question in QUESTIONS)
    assert texts(ours.brain("s", user="ada").messages()) == [text for part in parts for text in part]


def ask_all(agent: Any, messages: list[BaseMessage]) -> list[BaseMessage]:
    found: dict[str, Any] = agent.invoke(
        {"messages": [m.model_copy() for m in messages]}, context={"user_id": "ada", "session_id": "s"}
    )
    return found["messages"]  # type: ignore[no-any-return]  # of a state


def test_a_message_of_a_harness_comes_back_equal() -> None:
    message = HumanMessage(SKILL, id="m", additional_kwargs={"lc_source": "skill", "lc_data": {"name": "bikes"}})
    stored = to_message(message)
    assert (stored.role, stored.metadata) == ("user", {"notification": True})
    assert from_message(Message.from_bytes(stored.to_bytes())) == message
