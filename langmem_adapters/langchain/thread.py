"""LangGraph threads and histories: one made from the other, and what a thread says that a history does not hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from langchain_core.messages import BaseMessage, SystemMessage, convert_to_messages

from langmem_adapters.brain import BrainMemory
from langmem_adapters.errors import ConfigurationError
from langmem_adapters.flow import Flow, arun, run, step
from langmem_adapters.keys import fingerprint
from langmem_adapters.langchain.convert import from_message, to_message
from langmem_adapters.log import entry_id
from langmem_adapters.longterm import RECALLED, LongTermMemory
from langmem_adapters.model import Message

__all__ = [
    "SUMMARY_KEY",
    "ahistory_to_thread",
    "athread_to_history",
    "history_to_thread",
    "is_said",
    "joined",
    "known",
    "thread_to_history",
]

SUMMARY_KEY = "brain_summary"
"""Where a thread's state holds the summary."""


def history_to_thread(brain: BrainMemory, *, summary: Literal["key", "message"] = "key") -> dict[str, Any]:
    """The session as what a thread's state is updated with.

    ``graph.update_state(config, history_to_thread(brain))`` does it. Every message has an id, the same one each
    time, so that doing it again changes nothing.

    Args:
        brain: The session.
        summary: Where its summary goes, if it has one: "key" is the state's ``brain_summary``, which graphs with
            :class:`BrainMemoryMiddleware` have and others ignore; "message" is a system message in front, which
            :func:`thread_to_history` does not take for something that was said.

    >>> from langmem_adapters import BrainMemory, open_store
    >>> from langmem_adapters.langchain import history_to_thread
    >>> brain = BrainMemory(open_store("memory:"), "session-1")
    >>> brain.add_talk("Where is my bike?")
    >>> [message.content for message in history_to_thread(brain)["messages"]]
    ['Where is my bike?']
    """
    return run(_to_thread(brain, summary))


async def ahistory_to_thread(brain: BrainMemory, *, summary: Literal["key", "message"] = "key") -> dict[str, Any]:
    """:func:`history_to_thread`, without blocking the event loop."""
    return await arun(_to_thread(brain, summary))


def thread_to_history(thread: Mapping[str, Any] | Sequence[Any], brain: BrainMemory) -> int:
    """Append what a thread says to a session, as far as it is not there; returns how many messages were new.

    System messages and summaries are not messages of the session; the state's ``brain_summary`` becomes its
    summary, if it has none. Messages may also have left the session for its summary or its long-term memory.

    Args:
        thread: A state, such as ``graph.get_state(config).values``, or its messages, in any form LangChain reads.
        brain: The session.
    """
    return run(_to_history(thread, brain))


async def athread_to_history(thread: Mapping[str, Any] | Sequence[Any], brain: BrainMemory) -> int:
    """:func:`thread_to_history`, without blocking the event loop."""
    return await arun(_to_history(thread, brain))


def _to_thread(brain: BrainMemory, summary: str) -> Flow[dict[str, Any]]:
    if summary not in {"key", "message"}:
        raise ConfigurationError(f'summary is "key" or "message", not {summary!r}')
    history = yield from step(brain.messages)
    known_summary = yield from step(brain.get_summary)
    session = brain.scope.session
    messages = _identified([(message.id, from_message(message), message) for message in history], session)
    if known_summary is None:
        return {"messages": messages}
    if summary == "key":
        return {"messages": messages, SUMMARY_KEY: known_summary.text}
    front = SystemMessage(
        f"What was said before, in short:\n{known_summary.text}",
        id=fingerprint(SUMMARY_KEY, session),
        additional_kwargs={RECALLED: True},
    )
    return {"messages": [front, *messages]}


def _identified(found: list[tuple[str, BaseMessage, Message]], session: str) -> list[BaseMessage]:
    """Give each message its stored id, or one made from what it says; no two the same."""
    taken: set[str] = set()
    for id_, message, stored in found:
        while not id_ or id_ in taken:
            id_ = fingerprint(session, id_, stored.to_data())  # noqa: PLW2901 - until it is free
        taken.add(id_)
        message.id = id_
    return [message for _, message, _ in found]


def _to_history(thread: Mapping[str, Any] | Sequence[Any], brain: BrainMemory) -> Flow[int]:
    if isinstance(thread, str) or not isinstance(thread, Mapping | Sequence):
        raise ConfigurationError(f"a thread is a state or a list of messages, not {type(thread).__name__}")
    state = thread if isinstance(thread, Mapping) else {"messages": thread}
    messages = convert_to_messages(state.get("messages") or [])
    said = [message for message in map(to_message, messages) if is_said(message)]
    history = yield from step(brain.messages)
    summary = yield from step(brain.get_summary)
    new = said[known(history, said, summary.covers if summary else "") :]
    if new and brain.long_term is not None:
        left = yield from _left(brain.long_term, brain.scope.session)
        new = [message for message in new if not message.id or message.id not in left]
    yield from step(brain.add_messages, new)
    if summary is None and (text := state.get(SUMMARY_KEY)):
        yield from step(brain.set_summary, str(text))
    return len(new)


def _left(long_term: LongTermMemory, session: str) -> Flow[set[str]]:
    """The ids of the session's messages that are in the long-term memory."""
    memories = yield from step(long_term.all)
    return {o.message_id for memory in memories for o in memory.occurrences if o.session == session}


def is_said(message: Message) -> bool:
    """Whether a message of a thread was said in the conversation: no instruction, no summary, nothing recalled."""
    marks = message.host.get("langchain", {}).get("additional_kwargs") or {}
    return (
        message.role not in {"system", "developer"}
        and not (marks.get(RECALLED) or message.metadata.get(RECALLED))
        and marks.get("lc_source") != "summarization"  # LangChain's SummarizationMiddleware, which says it as a user
    )


def known(history: Sequence[Message], thread: Sequence[Message], covers: str = "") -> int:
    """How many messages of a thread, from its beginning, a history holds already or its summary stands for.

    By id, where they share any. By content otherwise, as clients that send a whole conversation with each call
    give new ids to old messages: then the thread's beginning is the history's end, or the history's end, with
    a question in it, lies within the thread.

    Args:
        history: The newest messages of the history.
        thread: The messages of the thread.
        covers: The store's id of the last message that the history's summary stands for.
    """
    ids = {entry_id(message.id) for message in history if message.id} | ({covers} if covers else set())
    shared = [n for n, message in enumerate(thread) if message.id and entry_id(message.id) in ids]
    if shared:
        return shared[-1] + 1
    for end in range(len(thread), 0, -1):
        same = thread[end - _overlap(history, thread[:end]) : end]
        if same and (len(same) == end or any(message.role == "user" for message in same)):
            return end
    return 0


def _overlap(history: Sequence[Message], thread: Sequence[Message]) -> int:
    """How many of the last messages of both say the same."""
    count = 0
    for old, message in zip(reversed(history), reversed(thread), strict=False):
        if _content(old) != _content(message):
            break
        count += 1
    return count


def _content(message: Message) -> Any:
    calls = [(call.name, call.args) for call in message.tool_calls]
    return message.role, message.name, message.content, calls


def joined(history: Sequence[Message], thread: Sequence[Message], start: int) -> list[Message]:
    """One conversation of a history and a thread whose first ``start`` messages are known to the history.

    What both have is there once, in the thread's form. What the thread has from before the history is left out:
    a summary stands for it, or it is behind the window.
    """
    places = _places(history, thread[:start])
    begin = next(iter(places.values()), start)
    conversation = [message for message in thread[:begin] if not is_said(message)]
    for n, old in enumerate(history):
        if n in places:
            conversation += thread[begin : places[n] + 1]
            begin = places[n] + 1
        else:
            conversation.append(old)
    return conversation + list(thread[begin:])


def _places(history: Sequence[Message], thread: Sequence[Message]) -> dict[int, int]:
    """For places in the history, where in the thread the same message is; rising."""
    ids = {message.id: n for n, message in enumerate(thread) if message.id}
    places: dict[int, int] = {}
    last = -1
    for n, message in enumerate(history):
        if (place := ids.get(message.id, -1)) > last:
            places[n] = last = place
    if places:
        return places
    same = _overlap(history, thread)
    return {len(history) - n: len(thread) - n for n in range(same, 0, -1)}
