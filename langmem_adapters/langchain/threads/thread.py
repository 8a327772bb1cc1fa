"""LangGraph threads and histories: one made from the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from langchain_core.messages import BaseMessage, convert_to_messages

from langmem_adapters.brain import BrainMemory
from langmem_adapters.conversation.stored_summary import content_fingerprint
from langmem_adapters.errors import ConfigurationError
from langmem_adapters.flow import Flow, arun, run, step
from langmem_adapters.keys import fingerprint
from langmem_adapters.langchain.convert import from_message, from_summary
from langmem_adapters.langchain.threads.exchanges import is_dialogue
from langmem_adapters.langchain.threads.overlap import existing_count
from langmem_adapters.langchain.threads.recording import make_text_of, without_deleted
from langmem_adapters.langchain.threads.storable import append_messages, to_message_leniently
from langmem_adapters.longterm import LongTermMemory
from langmem_adapters.model import Message
from langmem_adapters.warn_once import WarnOnce

SUMMARY_KEY = "brain_summary"
"""Key in a thread's state: the summary."""


def history_to_thread(brain: BrainMemory, *, summary: Literal["key", "message"] = "key") -> dict[str, Any]:
    """The session as an update for the state of a thread.

    Use it as ``graph.update_state(config, history_to_thread(brain))``. Every message has an id, the same one each
    time, so that repeating it changes nothing.

    Args:
        brain: The session.
        summary: Where its summary goes, if it has one: "key" is the state's ``brain_summary``, which graphs with
            :class:`BrainMemoryMiddleware` have and others ignore; "message" is a system message in front, which
            :func:`thread_to_history` does not take for a message of the conversation.

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
    """Append the messages of a thread that a session does not have; returns how many were new.

    System messages and summaries are not messages of the session; the state's ``brain_summary`` becomes its
    summary, if it has none. Messages that have left the session for its summary or its long-term memory are not new,
    and messages that were deleted there do not come back.

    Args:
        thread: A state, such as ``graph.get_state(config).values``, or its messages, in any form LangChain reads.
        brain: The session.
    """
    return run(_to_history(thread, brain))


async def athread_to_history(thread: Mapping[str, Any] | Sequence[Any], brain: BrainMemory) -> int:
    """:func:`thread_to_history`, without blocking the event loop."""
    return await arun(_to_history(thread, brain))


def _to_thread(brain: BrainMemory, summary: str) -> Flow[dict[str, Any]]:
    checked_brain(brain)
    if summary not in {"key", "message"}:
        raise ConfigurationError(f'summary is "key" or "message", not {summary!r}')
    history = yield from step(brain.messages)
    stored_summary = yield from step(brain.get_summary)
    session = brain.scope.session
    messages = _with_unique_ids(history, session)
    if stored_summary is None:
        return {"messages": messages}
    if summary == "key":
        return {"messages": messages, SUMMARY_KEY: stored_summary.text}
    summary_message = from_summary(stored_summary).model_copy(update={"id": fingerprint(SUMMARY_KEY, session)})
    return {"messages": [summary_message, *messages]}


def _with_unique_ids(history: Sequence[Message], session: str) -> list[BaseMessage]:
    """Stored messages for a host, each with its stored id, or one made from its content; no two are the same."""
    message_by_id: dict[str, BaseMessage] = {}
    for stored in history:
        id_ = stored.id
        while not id_ or id_ in message_by_id:
            id_ = fingerprint(session, id_, stored.to_data())
        message_by_id[id_] = from_message(stored)
        message_by_id[id_].id = id_
    return list(message_by_id.values())


def _to_history(thread: Mapping[str, Any] | Sequence[Any], brain: BrainMemory) -> Flow[int]:
    if isinstance(thread, str) or not isinstance(thread, Mapping | Sequence):
        raise ConfigurationError(f"a thread is a state or a list of messages, not {type(thread).__name__}")
    checked_brain(brain)
    state = thread if isinstance(thread, Mapping) else {"messages": thread}
    messages = convert_to_messages(state.get("messages") or [])
    thread_messages = [message for message in map(to_message_leniently, messages) if is_dialogue(message)]
    history = yield from step(brain.messages)
    summary = yield from step(brain.get_summary)
    text_of = make_text_of(brain.store)
    start = existing_count(history, thread_messages, summary, text_of=text_of)
    new = yield from without_deleted(brain, thread_messages[start:], history)
    if new and brain.long_term is not None:
        departed = yield from _departed_ids(brain.long_term, brain.scope.session)
        new = [m for m in new if not m.id or departed.isdisjoint([(m.id, ""), (m.id, content_fingerprint(m, text_of))])]
    yield from append_messages(brain, new, WarnOnce())
    if summary is None and (text := state.get(SUMMARY_KEY)):
        yield from step(brain.set_summary, str(text))
    return len(new)


def checked_brain(brain: object) -> BrainMemory:
    """The session. Raises ConfigurationError for anything else, such as a chat history."""
    if not isinstance(brain, BrainMemory):
        kind = type(brain).__name__
        raise ConfigurationError(f"a session is given as a BrainMemory, which a chat history has as .brain, not {kind}")
    return brain


def _departed_ids(long_term: LongTermMemory, session: str) -> Flow[set[tuple[str, str]]]:
    """The ids of the session's messages in the long-term memory, each with its text, or "" if it was corrected.

    Clients that number the messages of each request anew say something else under the same id.
    """
    memories = yield from step(long_term.all)
    return {
        (occurrence.message_id, "" if memory.corrected else content_fingerprint(memory.message))
        for memory in memories
        for occurrence in memory.occurrences
        if occurrence.session == session
    }
