"""One conversation from a session and its thread: what a model may be shown of both."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, dropwhile, filterfalse, takewhile

from langchain_core.messages import BaseMessage

from langmem_adapters.brain import BrainMemory
from langmem_adapters.conversation.session import Context
from langmem_adapters.conversation.stored_summary import last_covered_id
from langmem_adapters.flow import Flow
from langmem_adapters.langchain.convert import is_notification, role_of
from langmem_adapters.langchain.threads.exchanges import instruction_count, is_dialogue
from langmem_adapters.langchain.threads.overlap import merge, shared_positions
from langmem_adapters.langchain.threads.recording import (
    OLDER_KEY,
    failed_try_ids,
    first_unrecorded_position,
    recorded_positions,
    replaced_positions,
    without_deleted,
    without_deleted_before_question,
)
from langmem_adapters.langchain.threads.storable import to_message_leniently
from langmem_adapters.langchain.threads.summaries import FIRST_SHARED_KEY, SHARED_IDS_KEY
from langmem_adapters.langchain.threads.view import Thread
from langmem_adapters.model import Message


def conversation_of(
    brain: BrainMemory, context: Context, thread: Thread, start: int, full_thread: Thread, *, limit: int, task: str
) -> Flow[list[Message]]:
    """The session, as far as it is shown, and the thread in one; the thread alone, if the session is no longer there.

    The session has the thread up to ``start``; the full thread is the state's, which others may change for one call. At
    most ``limit`` messages are shown, if some are from before the session began. Nothing is shown of an earlier try of
    the task.
    """
    history, state, text_of = context.messages, thread.state, thread.text_of
    start = first_unrecorded_position(thread, start)
    relevant, count = thread.relevant_to(history, start, state.get(FIRST_SHARED_KEY))
    existing, new = relevant[:count], relevant[count:]
    undeleted = yield from without_deleted(brain, existing, history)
    shared_ids = state.get(SHARED_IDS_KEY) or ()
    # Once a question is deleted, others with the same words may be matched in its place.
    retained_positions = shared_positions(history, existing, text_of) if shared_ids and len(undeleted) < count else ()
    relevant = undeleted + (yield from without_deleted_before_question(brain, new, history))
    if not history and not last_covered_id(context.summary):
        return relevant
    failed_ids = failed_try_ids(new, history, thread, task)
    conversation = merge(
        history,
        relevant,
        len(undeleted),
        own_positions=recorded_positions(state, history) | replaced_positions(history, failed_ids),
        shared_ids=shared_ids,
        retained_positions=retained_positions,
        text_of=text_of,
    )
    older = thread.dialogue_until(state.get(OLDER_KEY) or "", limit - len(history))
    older = yield from _lacking_messages(brain, older, conversation)
    older = _added_in_front(thread, full_thread, conversation) + older
    lead_length = len(list(takewhile(lambda message: not is_dialogue(message), conversation)))
    return conversation[:lead_length] + older + conversation[lead_length:]


def _added_in_front(thread: Thread, full_thread: Thread, conversation: Sequence[Message]) -> list[Message]:
    """What others put in front of a thread for one call, such as examples, and the conversation lacks."""
    if thread is full_thread:
        return []
    ids, included = full_thread.ids(), set(map(id, conversation))
    front = list(takewhile(lambda message: message.id not in ids, thread))
    if len(front) == len(thread):  # others made all messages anew: nothing says which of them are in the thread
        return []
    return [message for message in front if is_dialogue(message) and id(message) not in included]


def _lacking_messages(brain: BrainMemory, older: list[Message], conversation: Sequence[Message]) -> Flow[list[Message]]:
    """The messages of a thread from before its session began that the conversation lacks, from a question on.

    A thread may be older than its session: it was copied, or had no memory, or the session was cleared or expired.
    """
    included = set(map(id, conversation))
    lacking = [message for message in older if id(message) not in included]
    from_question = dropwhile(lambda message: message.role != "user", lacking)
    return (yield from without_deleted(brain, list(from_question), conversation))


def latest_question(run_messages: Sequence[BaseMessage]) -> Message | None:
    """The newest question of a run; what an agent's harness has added since is none, unless nobody asked anything."""
    asked = [message for message in reversed(run_messages) if role_of(message) == "user"]
    newest = next(chain(filterfalse(is_notification, asked), asked), None)
    return None if newest is None else to_message_leniently(newest)


def latest_question_text(messages: Sequence[Message]) -> str:
    """The newest question that was said."""
    return next((message.text for message in reversed(messages) if message.role == "user" and is_dialogue(message)), "")


def with_question(conversation: list[Message], question: Message | None) -> list[Message]:
    """What a model is shown: the conversation, with the run's question if others took every question out of it.

    No provider can answer a conversation in which nobody asks anything, and some refuse it.
    """
    if question is None or any(message.role == "user" for message in conversation):
        return conversation
    lead_length = instruction_count(conversation)
    return [*conversation[:lead_length], question, *conversation[lead_length:]]
