"""Agents whose model refuses, whose model a router chooses, and whose tools a model decides on: LG, C7, A1, H5."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable
from typing import Any

import pytest
from langchain.agents import create_agent, middleware
from langchain.agents.middleware import ModelFallbackMiddleware
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from langmem_adapters.langchain import (
    BrainMemoryMiddleware,
    CachedChatModel,
    ExperienceCache,
    ExperienceMiddleware,
    from_message,
)
from langmem_adapters.stores.memory import MemoryStore
from tests.agents import Scripted, aask, ask, invalid, of, texts

langchains: Any = middleware
newest = pytest.mark.skipif(
    not hasattr(langchains, "ModelRouterMiddleware"), reason="these middlewares came with langchain 1.5"
)
RESPONSES = {"model_provider": "openai", "status": "completed"}
ANTHROPIC = {
    "model_provider": "anthropic",
    "stop_reason": "refusal",
    "stop_details": {"type": "refusal", "category": "cyber", "explanation": "It is not safe."},
}
GEMINI = {"model_provider": "google_genai", "finish_reason": "SAFETY", "finish_message": "It is not safe."}
BLOCKED = {"model_provider": "google_genai", "prompt_feedback": {"block_reason": "PROHIBITED_CONTENT"}}
BLOCK = {"type": "refusal", "refusal": "I will not."}
REFUSALS: dict[str, Callable[[], AIMessage]] = {
    "OpenAI": lambda: AIMessage("", additional_kwargs={"refusal": "I will not."}, response_metadata={"logprobs": None}),
    "OpenAI Responses": lambda: AIMessage([BLOCK], response_metadata=RESPONSES),
    "OpenAI Responses, begun": lambda: AIMessage(["Sure: ", BLOCK], response_metadata=RESPONSES),
    "v1": lambda: AIMessage([{**BLOCK, "extras": {"phase": "x"}}], response_metadata={"output_version": "v1"}),
    "Anthropic": lambda: AIMessage([], response_metadata=ANTHROPIC),
    "Anthropic, begun": lambda: AIMessage("Sure: ", response_metadata=ANTHROPIC),
    "Gemini": lambda: AIMessage("", response_metadata=GEMINI),
    "Gemini, begun": lambda: AIMessage("Sure: ", response_metadata=GEMINI),
    "Gemini's filter": lambda: AIMessage("", response_metadata=BLOCKED),
}


class Named(Scripted):
    """A model that tells caches its name."""

    model_name: str = "first"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model_name": self.model_name}


def second() -> Named:
    return Named(model_name="second", answer=lambda messages: AIMessage(f"second: {messages[-1].text}"))


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS)
def test_a_refusal_is_kept_as_it_was_and_never_served_again(refusal: Callable[[], AIMessage]) -> None:
    memory, answers = BrainMemoryMiddleware(store=MemoryStore()), ExperienceMiddleware(store=MemoryStore())
    model = Named(answer=lambda messages: refusal() if messages[-1].text == "How?" else AIMessage("ok"))
    agent: Any = create_agent(model, middleware=[memory, answers], checkpointer=InMemorySaver())
    for session in ("s", "t"):
        ask(agent, "How?", session)
        ask(agent, "And now?", session)
    assert (len(model.seen), answers.stats()["refused"], answers.stats()["stored"]) == (3, 2, 1)
    assert [invalid(shown) for shown in model.seen] == [""] * 3
    thread = agent.get_state(of("ada", "s")["config"]).values["messages"]
    kept = [from_message(message) for message in memory.brain("s", user="ada").messages()]
    assert [message.model_dump() for message in kept] == [message.model_dump() for message in thread]
    assert model.seen[1][1] == thread[1]


@newest
@pytest.mark.parametrize(
    "order", [order for order in itertools.permutations("frme") if order.index("f") < order.index("r")]
)
@pytest.mark.parametrize("refusal", ["OpenAI Responses", "Anthropic, begun", "Gemini"])
async def test_what_a_fallback_answers_after_a_refusal(order: tuple[str, ...], refusal: str) -> None:
    memory, answers = BrainMemoryMiddleware(store=MemoryStore()), ExperienceMiddleware(store=MemoryStore())
    first, other = Named(answer=lambda _: REFUSALS[refusal]()), second()
    chosen: dict[str, Any] = {
        "f": ModelFallbackMiddleware(other),
        "r": langchains.ModelRefusalMiddleware(),
        "m": memory,
        "e": answers,
    }
    agent: Any = create_agent(first, middleware=[chosen[each] for each in order], checkpointer=InMemorySaver())
    ask(agent, "How?", "s")
    await aask(agent, "How?", "t")
    assert [len(first.seen), len(other.seen)] == [2, 1 if order.index("f") < order.index("e") else 2]
    for session in ("s", "t"):
        assert texts(memory.brain(session, user="ada").messages()) == ["How?", "second: How?"]


# --- models that decide


@tool
def act(what: str) -> str:
    """Do something."""
    return f"did {what}"


def says(name: str) -> Callable[[list[BaseMessage]], AIMessage]:
    def answer(messages: list[BaseMessage]) -> AIMessage:
        asked = messages[-1]
        if isinstance(asked, HumanMessage) and asked.text.startswith("act"):
            return AIMessage("", tool_calls=[{"name": "act", "args": {"what": asked.text}, "id": f"{len(messages)}"}])
        return AIMessage(f"{name}: {asked.text[:23]}")

    return answer


def decider(chat: Any) -> Any:
    """Whether a question is hard, and whether a call is risky, as a chat model says it."""
    decisions: Any = importlib.import_module("langchain_core.decisions")  # the oldest hosts have none

    class Decider(decisions.BaseDecisionModel):  # type: ignore[misc] # mypy may see older versions
        model: str = "decider"

        @property
        def _provider(self) -> str:
            return "tests"

        def _classify(self, state: Any, questions: dict[str, Any]) -> Any:
            told = state.text if isinstance(state, BaseMessage) else str(state["tool_call"]["args"])
            label = chat.invoke(told).text
            said: dict[str, Any] = {}
            for name, question in questions.items():
                chances = {"type": "choice", "choice": label, "probabilities": {label: 1.0}, "confidence": 1.0}
                is_risky = {"type": "noul", "noul": float("danger" in told)}
                is_choice = isinstance(question, decisions.Choice)
                said[name] = decisions.ChoiceAnswer(**chances) if is_choice else decisions.NoulAnswer(**is_risky)
            return decisions.ClassifierResponse(model=self.model, answers=said)

    return Decider()


@newest
@pytest.mark.parametrize("order", ["arme", "eamr", "erma", "maer", "mrea", "raem"])  # any three of them in every order
@pytest.mark.filterwarnings("ignore:.*in beta")
async def test_no_answer_of_one_model_is_served_for_another_that_a_router_chooses(order: str) -> None:
    store = MemoryStore()
    memory, answers = BrainMemoryMiddleware(store=store), ExperienceMiddleware(store=store)
    models = {name: Named(model_name=name, answer=says(name)) for name in ("easy", "hard")}
    mood = iter(["easy", "hard"])
    asked: list[str] = []

    def classify(messages: list[BaseMessage]) -> AIMessage:
        asked.append(messages[-1].text)
        return AIMessage(next(mood) if asked[-1] == "Who?" else "hard" if "hard" in asked[-1] else "easy")

    classifier = decider(CachedChatModel(Named(model_name="decider", answer=classify), ExperienceCache(store=store)))
    choices = {name: langchains.ModelChoice(model, name) for name, model in models.items()}
    chosen: dict[str, Any] = {
        "r": langchains.ModelRouterMiddleware(choices=choices, instructions="Which?", classifier=classifier),
        "a": langchains.AutoModeMiddleware(tools=[act], classifier=classifier),
        "m": memory,
        "e": answers,
    }
    agent: Any = create_agent(
        second(), [act], middleware=[chosen[each] for each in order], checkpointer=InMemorySaver()
    )
    for session in ("s", "t"):
        ask(agent, "Who?", session)
        for question in ("act hard and in danger", "act easy", "hard"):
            await aask(agent, question, session)
        said = texts(memory.brain(session, user="ada").messages())
        assert [said[n] for n in (1, 5, 8, 9, 11)] == [
            "easy: Who?",
            "hard: The tool call `act` was",
            "did act easy",
            "easy: did act easy",
            "hard: hard",
        ]
    assert asked.count("Who?") == 1  # its kept answer was served to the router
    ExperienceCache(store=store).clear()
    ask(agent, "Who?", "u")
    assert texts(memory.brain("u", user="ada").messages())[1] == "hard: Who?"
    cached = order.index("r") < order.index("e")
    assert answers.stats()["hits"] == (6 if cached else 0)
    assert [invalid(shown) for model in models.values() for shown in model.seen if invalid(shown)] == []
