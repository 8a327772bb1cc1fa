"""refine_with: a step of a chain that makes the user's last question clear, from what was said before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage, convert_to_messages
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda

from langmem_adapters.brain import BrainMemory
from langmem_adapters.errors import ConfigurationError
from langmem_adapters.langchain.convert import to_message
from langmem_adapters.langchain.threads.thread import checked_brain


def refine_with(
    brain: BrainMemory | Callable[[str], BrainMemory], model: Any = None, *, key: str | None = None
) -> Runnable[Any, Any]:
    """A step that refines the question with :meth:`BrainMemory.refine`: ``refine_with(brain) | prompt | model``.

    The output is of the same kind as the input: a text, a message, a list of messages (the user's last question in it
    is refined) or a dictionary that holds one of these. A question that depends on nothing before it stays as it is.

    Args:
        brain: The session, or a function that makes it from the ``session_id`` in the config's ``configurable``.
        model: The model to ask; default: the brain's own.
        key: The question's key in a dictionary. None: its only key, else "input".

    >>> from langmem_adapters import BrainMemory, open_store
    >>> from langmem_adapters.langchain import refine_with
    >>> brain = BrainMemory(open_store("memory:"), "session-1", model=lambda prompt: "TRUE")
    >>> refine_with(brain).invoke("Where is it?")
    'Where is it?'
    """
    if not callable(brain):
        checked_brain(brain)

    def refine(value: Any, config: RunnableConfig) -> Any:
        question, replace_question = _split_question(value, key)
        return replace_question(_session_brain(brain, config).refine(question, model)) if question else value

    async def arefine(value: Any, config: RunnableConfig) -> Any:
        question, replace_question = _split_question(value, key)
        return replace_question(await _session_brain(brain, config).arefine(question, model)) if question else value

    return RunnableLambda(refine, arefine, name="refine_with")


def _session_brain(brain: BrainMemory | Callable[[str], BrainMemory], config: RunnableConfig) -> BrainMemory:
    if isinstance(brain, BrainMemory):
        return brain
    session = config.get("configurable", {}).get("session_id")
    if session is None:
        raise ConfigurationError('this chain needs a session: config={"configurable": {"session_id": …}}')
    return checked_brain(brain(session))


def _split_question(value: Any, key: str | None) -> tuple[str, Callable[[str], Any]]:
    """The text of the last question (empty if there is none), and a function that puts another one in its place."""
    if isinstance(value, str):
        return value, str
    if isinstance(value, BaseMessage):
        return to_message(value).text, partial(_with_question, value)
    if isinstance(value, Mapping):
        question_key = key or (next(iter(value)) if len(value) == 1 else "input")
        if question_key not in value:
            raise ConfigurationError(f"the input has no {question_key!r}, where the question is expected: give key=")
        question, replace_question = _split_question(value[question_key], key)
        return question, lambda refined: {**value, question_key: replace_question(refined)}
    if not isinstance(value, list | tuple):
        raise ConfigurationError(f"a question is a text, a message or a list of messages, not {type(value).__name__}")
    messages = convert_to_messages(value)
    last = max((n for n, message in enumerate(messages) if isinstance(message, HumanMessage)), default=-1)
    if last < 0:
        return "", str
    message = messages[last]
    return to_message(message).text, lambda new: [*messages[:last], _with_question(message, new), *messages[last + 1 :]]


def _with_question(message: BaseMessage, question: str) -> BaseMessage:
    if question == to_message(message).text:
        return message
    if isinstance(message.content, str):
        return message.model_copy(update={"content": question})
    others = [block for block in message.content if isinstance(block, dict) and _is_attached(block)]
    return message.model_copy(update={"content": [{"type": "text", "text": question}, *others]})


def _is_attached(block: dict[str, Any]) -> bool:
    """Whether a block is no part of the question, but a picture or a document, which may be a text."""
    return "text" not in block or block.get("type") in ("file", "text-plain")
