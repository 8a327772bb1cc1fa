"""The one conversation that a session and a thread of it make: what a model may be shown of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import dropwhile, takewhile
from typing import Any

from langmem_adapters.brain import BrainMemory
from langmem_adapters.conversation.log import brain_namespace, entry_id
from langmem_adapters.conversation.session import Context
from langmem_adapters.conversation.stored_summary import covers
from langmem_adapters.conversation.tombstones import DELETED, have_been_deleted
from langmem_adapters.flow import Flow, step
from langmem_adapters.langchain.threads.overlap import Words, is_said, joined
from langmem_adapters.langchain.threads.recording import OLDER, written_by
from langmem_adapters.langchain.threads.view import Thread
from langmem_adapters.model import Message

__all__ = ["conversation_of", "undeleted"]


def conversation_of(
    brain: BrainMemory,
    context: Context,
    thread: Thread,
    start: int,
    *,
    state: Mapping[str, Any],
    words: Words,
    most: int,
) -> Flow[list[Message]]:
    """The session and the thread in one; the thread alone, where the session is not there any more.

    Args:
        brain: The session.
        context: What is shown of it.
        thread: The messages of a run.
        start: How many of them, from the beginning, the session has heard.
        state: That of the run.
        words: What of a message is compared.
        most: How many messages are shown at the most, where some are from before the session began.
    """
    history = context.messages
    relevant, known = thread.since(history, start)
    heard = yield from undeleted(brain, relevant[:known], history)
    relevant = heard + relevant[known:]
    if not history and not covers(context.summary):
        return relevant
    conversation = joined(history, relevant, len(heard), own=written_by(state, history), words=words)
    older = yield from _older(brain, thread.until(state.get(OLDER) or "", most - len(history)), conversation)
    lead = len(list(takewhile(lambda message: not is_said(message), conversation)))
    return conversation[:lead] + older + conversation[lead:]


def _older(brain: BrainMemory, older: list[Message], conversation: Sequence[Message]) -> Flow[list[Message]]:
    """What the conversation does not have of what a thread says from before its session began, from a question on.

    A thread may be older: it was copied, or had no memory until then, or its session was cleared or expired.
    """
    there = set(map(id, conversation))
    left = dropwhile(lambda message: message.role != "user", (one for one in older if id(one) not in there))
    return (yield from undeleted(brain, list(left), conversation))


def undeleted(brain: BrainMemory, said: list[Message], history: Sequence[Message]) -> Flow[list[Message]]:
    """What a thread says, without what somebody has deleted from the session: the thread has that still."""
    there = {message.id for message in history}
    missing = [message.id for message in said if message.id and message.id not in there and is_said(message)]
    if not missing:
        return said
    values = yield from step(brain.store.get, brain_namespace(brain.scope), [DELETED])
    deleted = dict(zip(missing, have_been_deleted({}, values, list(map(entry_id, missing))), strict=True))
    return [message for message in said if not deleted.get(message.id)]
