"""refine_with: the user's last question, made plain by what was said before, as a step of a chain."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda

from langmem_adapters.brain import BrainMemory
from langmem_adapters.errors import ConfigurationError
from langmem_adapters.langchain.convert import to_message

__all__ = ["refine_with"]


def refine_with(
    brain: BrainMemory | Callable[[str], BrainMemory], model: Any = None, *, key: str | None = None
) -> Runnable[Any, Any]:
    """A step that refines the question with :meth:`BrainMemory.refine`: ``refine_with(brain) | prompt | model``.

    What comes out is of the kind that came in: a text, a message, a list of messages (its last HumanMessage is
    refined) or a dictionary that holds one of these. A question that depends on nothing stays as it is.

    Args:
        brain: The session, or what makes it of the ``session_id`` in the config's ``configurable``.
        model: What is asked; default: the brain's own.
        key: Where the question is in a dictionary. None: under its only key, else under "input".

    >>> from langmem_adapters import BrainMemory, open_store
    >>> from langmem_adapters.langchain import refine_with
    >>> brain = BrainMemory(open_store("memory:"), "session-1", model=lambda prompt: "TRUE")
    >>> refine_with(brain).invoke("Where is it?")
    'Where is it?'
    """

    def refine(value: Any, config: RunnableConfig) -> Any:
        session, question = _session(brain, config), _question(value, key)
        return _replaced(value, key, session.refine(question, model)) if question else value

    async def arefine(value: Any, config: RunnableConfig) -> Any:
        session, question = _session(brain, config), _question(value, key)
        return _replaced(value, key, await session.arefine(question, model)) if question else value

    return RunnableLambda(refine, arefine, name="refine_with")


def _session(brain: BrainMemory | Callable[[str], BrainMemory], config: RunnableConfig) -> BrainMemory:
    if isinstance(brain, BrainMemory):
        return brain
    session = config.get("configurable", {}).get("session_id")
    if session is None:
        raise ConfigurationError('this chain needs a session: config={"configurable": {"session_id": …}}')
    return brain(session)


def _question(value: Any, key: str | None) -> str:
    """The text of the last question; empty, where there is none."""
    if isinstance(value, str):
        return value
    if isinstance(value, BaseMessage):
        return to_message(value).text
    if isinstance(value, Mapping):
        place = _place(value, key)
        if place not in value:
            raise ConfigurationError(f"the question is looked for under {place!r}, which is not there: give key=")
        return _question(value[place], key)
    if isinstance(value, list | tuple):
        return next((to_message(message).text for message in reversed(value) if isinstance(message, HumanMessage)), "")
    raise ConfigurationError(f"a question is a text, a message or a list of messages, not {type(value).__name__}")


def _replaced(value: Any, key: str | None, question: str) -> Any:
    """The same with another question; only what holds it is copied."""
    if isinstance(value, str):
        return question
    if isinstance(value, BaseMessage):
        return _reworded(value, question)
    if isinstance(value, Mapping):
        place = _place(value, key)
        return {**value, place: _replaced(value[place], key, question)}
    last = max(n for n, message in enumerate(value) if isinstance(message, HumanMessage))
    return [*value[:last], _reworded(value[last], question), *value[last + 1 :]]


def _place(value: Mapping[str, Any], key: str | None) -> str:
    return key or (next(iter(value)) if len(value) == 1 else "input")


def _reworded(message: BaseMessage, question: str) -> BaseMessage:
    if question == to_message(message).text:
        return message
    if isinstance(message.content, str):
        return message.model_copy(update={"content": question})
    others = [block for block in message.content if isinstance(block, dict) and "text" not in block]  # such as pictures
    return message.model_copy(update={"content": [{"type": "text", "text": question}, *others]})
