"""One conversation from a session and its thread: what a model may be shown of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import dropwhile, takewhile
from typing import Any

from langchain_core.messages import BaseMessage

from langmem_adapters.brain import BrainMemory
from langmem_adapters.conversation.session import Context
from langmem_adapters.conversation.stored_summary import covers
from langmem_adapters.flow import Flow
from langmem_adapters.langchain.convert import role_of
from langmem_adapters.langchain.threads.exchanges import TextOf, is_dialogue
from langmem_adapters.langchain.threads.overlap import merge, shared_positions
from langmem_adapters.langchain.threads.recording import OLDER, first_said, replaced, undeleted, written_by
from langmem_adapters.langchain.threads.storable import legible
from langmem_adapters.langchain.threads.taken_out import FIRST, KNEW
from langmem_adapters.langchain.threads.view import Thread
from langmem_adapters.model import Message

__all__ = ["asked_in", "conversation_of", "with_question"]


def conversation_of(
    brain: BrainMemory,
    context: Context,
    thread: Thread,
    start: int,
    *,
    state: Mapping[str, Any],
    words: TextOf,
    most: int,
) -> Flow[list[Message]]:
    """The session and the thread in one; the thread alone, if the session is no longer there.

    Args:
        brain: The session.
        context: The part of the session that is shown.
        thread: The messages of a run.
        start: How many of them, from the beginning, the session has.
        state: The state of the run.
        words: Gives the text of a message by which it is compared.
        most: How many messages are shown at most, if some are from before the session began.
    """
    history = context.messages
    start = first_said(thread, start, state)
    relevant, known = thread.since(history, start, state.get(FIRST))
    heard = yield from undeleted(brain, relevant[:known], history)
    knew = state.get(KNEW) or ()
    # Once a question is deleted, others with the same words may be matched in its place.
    left = shared_positions(history, relevant[:known], words) if knew and len(heard) < known else ()
    new = relevant[known:]  # may hold deleted messages that a client sends again; only a repeated question stays
    asked = max((n for n, message in enumerate(new) if message.role == "user"), default=0)
    relevant = heard + (yield from undeleted(brain, new[:asked], history)) + new[asked:]
    if not history and not covers(context.summary):
        return relevant
    own = written_by(state, history) | replaced(history)
    conversation = merge(
        history, relevant, len(heard), own_positions=own, shared_ids=knew, retained=left, text_of=words
    )
    older = yield from _older(brain, thread.until(state.get(OLDER) or "", most - len(history)), conversation)
    lead = len(list(takewhile(lambda message: not is_dialogue(message), conversation)))
    return conversation[:lead] + older + conversation[lead:]


def _older(brain: BrainMemory, older: list[Message], conversation: Sequence[Message]) -> Flow[list[Message]]:
    """The messages of a thread from before its session began that the conversation lacks, from a question on.

    A thread may be older than its session: it was copied, or had no memory, or the session was cleared or expired.
    """
    there = set(map(id, conversation))
    left = dropwhile(lambda message: message.role != "user", (one for one in older if id(one) not in there))
    return (yield from undeleted(brain, list(left), conversation))


def asked_in(said: Sequence[BaseMessage]) -> Message | None:
    """The newest question of a run."""
    return next((legible(message) for message in reversed(said) if role_of(message) == "user"), None)


def with_question(conversation: list[Message], asked: Message | None) -> list[Message]:
    """What a model is shown: the conversation, with the run's question if others took every question out of it.

    No provider can answer a conversation in which nobody asks anything, and some refuse it.
    """
    if asked is None or any(message.role == "user" for message in conversation):
        return conversation
    lead = len(list(takewhile(lambda message: message.role == "system", conversation)))
    return [*conversation[:lead], asked, *conversation[lead:]]
