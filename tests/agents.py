"""Agents for tests: a scripted model, a tool, and ways to ask and to look at what was shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from pydantic import PrivateAttr

from langmem_adapters import Message

Answer = Callable[[list[BaseMessage]], AIMessage]


def ok(messages: list[BaseMessage]) -> AIMessage:
    return AIMessage(f"ok: {messages[-1].text[:60]}")


class Scripted(BaseChatModel):
    """A model that remembers what it was shown and answers by a function."""

    answer: Answer = ok
    _seen: list[list[BaseMessage]] = PrivateAttr(default_factory=list)

    @property
    def seen(self) -> list[list[BaseMessage]]:
        return self._seen

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, *_: Any, **__: Any) -> Scripted:
        return self

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,  # noqa: ARG002 - LangChain passes it
        run_manager: CallbackManagerForLLMRun | None = None,  # noqa: ARG002 - LangChain passes it
        **_: Any,
    ) -> ChatResult:
        self._seen.append(list(messages))
        return ChatResult(generations=[ChatGeneration(message=self.answer(messages))])


@tool
def look(place: str) -> str:
    """Look somewhere."""
    return f"nothing in the {place}"


def invalid(messages: Sequence[BaseMessage]) -> str:
    """What a provider would refuse in a request; empty, if nothing."""
    rest = list(messages)
    while rest and isinstance(rest[0], SystemMessage):
        rest.pop(0)
    if not rest or not isinstance(rest[0], HumanMessage):
        return "the first message is not the user's"
    waiting: set[str | None] = set()
    for message in rest:
        if isinstance(message, ToolMessage):
            if message.tool_call_id not in waiting:
                return f"a result without a call: {message.tool_call_id}"
            waiting.remove(message.tool_call_id)
            continue
        if waiting:
            return f"calls without results: {waiting}"
        if isinstance(message, SystemMessage):
            return "a system message in the middle"
        if isinstance(message, AIMessage):
            waiting = {call["id"] for call in [*message.tool_calls, *message.invalid_tool_calls]}
    return f"calls without results: {waiting}" if waiting else ""


def texts(messages: Sequence[BaseMessage | Message]) -> list[str]:
    return [message.text for message in messages if not isinstance(message, SystemMessage)]


def system(messages: Sequence[BaseMessage]) -> str:
    return "\n".join(message.text for message in messages if isinstance(message, SystemMessage))


def of(user: str, session: str) -> dict[str, Any]:
    return {"config": {"configurable": {"thread_id": session}}, "context": {"user_id": user}}


def ask(agent: Any, question: str | BaseMessage, session: str = "s", user: str = "ada") -> dict[str, Any]:
    message = HumanMessage(question) if isinstance(question, str) else question
    found: dict[str, Any] = agent.invoke({"messages": [message]}, **of(user, session))
    return found


async def aask(agent: Any, question: str, session: str = "s", user: str = "ada") -> None:
    await agent.ainvoke({"messages": [HumanMessage(question)]}, **of(user, session))
