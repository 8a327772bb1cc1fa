"""The messages of a run's thread that its session does not hold yet, worked out from the run's state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import dropwhile
from typing import Any, Final

from langchain_core.messages import BaseMessage

from langmem_adapters.brain import BrainMemory
from langmem_adapters.conversation.log import brain_namespace, entry_id, readable_entries
from langmem_adapters.conversation.session import Context
from langmem_adapters.conversation.stored_summary import unspaced_text
from langmem_adapters.conversation.tombstones import DELETED, DEPARTED, have_been_deleted, have_departed
from langmem_adapters.flow import Flow, step
from langmem_adapters.keys import fingerprint
from langmem_adapters.langchain.threads.exchanges import TextOf, id_key, is_dialogue
from langmem_adapters.langchain.threads.overlap import existing_count, existing_count_by_id, renumbered_count
from langmem_adapters.langchain.threads.run_messages import (
    RECORDED_KEY,
    SENT_KEY,
    THREAD_KEY,
    UNRECORDED_KEY,
    handed_over,
    mark_changed_questions,
    merge_run_messages,
    sent_fingerprints,
)
from langmem_adapters.langchain.threads.storable import append_messages, to_message_leniently
from langmem_adapters.langchain.threads.summaries import SUMMARIZED_KEY, shared_state, summarized_ids
from langmem_adapters.langchain.threads.view import Thread
from langmem_adapters.model import Message
from langmem_adapters.recall.keeping import as_stored
from langmem_adapters.warn_once import WarnOnce

_MAX_EXAMINED: Final = 256  # messages of a thread; a session remembers as many that left it

BEGAN_KEY: Final = "brain_began"
"""Key in a thread's state: the id of the session's last message when the thread began; empty if there was none."""

OLDER_KEY: Final = "brain_older"
"""Key in a thread's state: the id of the thread's last message when its session began; empty if there was none."""

TASK_KEY: Final = "brain_task"
"""Key in the metadata of messages: the task of an outer graph, and the part of it, as which an agent said them."""

REPLACES_KEY: Final = "brain_replaces"
"""Key in the metadata of messages: the ids of what the agent had said in an earlier try of the task."""


def initial_state_update(brain: BrainMemory, thread: Thread, context: Context) -> Flow[dict[str, Any]]:
    """The new state of a thread when a run begins: what the session holds of the thread, and what was passed over."""
    state, messages = thread.state, context.messages
    start = yield from count_recorded_at_start(brain, thread, context)
    last_recorded_id = thread[start - 1].id if start else ""
    new = thread[start:]
    handed = handed_over(new, follows_session=bool(start) or not (messages or context.summary))
    update = {
        RECORDED_KEY: last_recorded_id,
        BEGAN_KEY: state.get(BEGAN_KEY, messages[-1].id if messages else ""),
        OLDER_KEY: state.get(OLDER_KEY, "") if messages or context.summary else last_recorded_id,
        SENT_KEY: sent_fingerprints(new, thread.text_of),
    } | shared_state(messages, thread, start, recorded_positions(state, messages))
    if RECORDED_KEY in state:  # a saved thread, which knows what was recorded
        older_questions = [message for message in new if message.role == "user"][:-1]
        failed = [m for m in older_questions if m.id in (state.get(SENT_KEY) or {})]  # asked in runs that failed
        recorded = {id_key(message, unspaced_text(message)) for message in messages}  # if this goes back into a run
        earlier = [(m, to_message_leniently(m)) for m in state.get(UNRECORDED_KEY) or []]
        shown = [m for m, message in earlier if id_key(message, thread.text_of(message)) not in recorded]
        return update | {UNRECORDED_KEY: merge_run_messages(shown, thread.originals([*failed, *handed]))}
    skipped = yield from _skipped_messages(brain, thread, start, context)
    new_ids = {message.id for message in new}
    shown = [message for message in state.get(UNRECORDED_KEY) or [] if message.id in new_ids]  # in an outage
    return update | {UNRECORDED_KEY: skipped + merge_run_messages(shown, thread.originals(handed))}


def count_recorded_at_start(brain: BrainMemory | None, thread: Thread, context: Context) -> Flow[int]:
    """How many messages of a thread, from its beginning, the session holds when a run begins.

    Without a session, as in an outage, the state and the context decide.
    """
    recorded_id = thread.state.get(RECORDED_KEY)
    count = thread.count_through(recorded_id) if recorded_id else None
    if count is not None:
        return count
    if BEGAN_KEY in thread.state:  # a saved thread, which keeps ids
        return (yield from _count_by_ids(brain, thread, context))
    count = existing_count(context.messages, thread, context.summary, by="questions", text_of=thread.text_of)
    last = thread[-1] if thread else None
    if count < len(thread) or last is None or last.role != "user":
        return count
    is_unanswered = context.messages and context.messages[-1].role == "user"
    return count if is_unanswered else count - 1  # it was answered, and is asked again


def count_recorded(brain: BrainMemory | None, thread: Thread, context: Context) -> Flow[int]:
    """:func:`count_recorded_at_start` later in the run, when the thread has grown and others may have cut it."""
    recorded_id = thread.state.get(RECORDED_KEY)
    if recorded_id is None:
        until_question = thread.prefix(_count_through_question(thread))
        return (yield from count_recorded_at_start(brain, until_question, context))
    if not recorded_id:
        return 0
    count = thread.count_through(recorded_id)
    if count is None:  # that message was taken out of the thread
        count = yield from _count_by_ids(brain, thread, context)
    return count


def _count_by_ids(brain: BrainMemory | None, thread: Thread, context: Context) -> Flow[int]:
    """How many messages of a thread that keeps ids the session has, or had until they were deleted."""
    count = existing_count_by_id(context.messages, thread, context.summary, thread.text_of)
    if brain is None:
        return count
    older = thread[count : _new_question_position(thread)]
    may_be_copy = not count and thread.state.get(RECORDED_KEY) and _shown_ids(thread).isdisjoint(m.id for m in older)
    if may_be_copy and _ends_with(context.messages, older, thread.text_of):
        return len(older)
    remaining = set(map(id, (yield from without_deleted(brain, older, context.messages))))
    return max((count + n + 1 for n, message in enumerate(older) if id(message) not in remaining), default=count)


def _ends_with(history: Sequence[Message], thread: Sequence[Message], text_of: TextOf) -> bool:
    """Whether a history ends with all that a thread says: the thread was replaced by a copy without its ids."""

    def content(message: Message, text: str) -> tuple[Any, ...]:
        return message.role, text, message.tool_call_id, [call.id for call in message.tool_calls]

    contents = [content(message, text_of(message)) for message in thread if is_dialogue(message)]
    return bool(contents) and contents == [
        content(message, unspaced_text(message)) for message in history[-len(contents) :]
    ]


def _skipped_messages(brain: BrainMemory, thread: Thread, start: int, context: Context) -> Flow[list[BaseMessage]]:
    """Questions before ``start``, and what follows them, that nobody recorded although later messages were.

    A graph may show an agent nothing but its own task. What that agent recorded proves nothing about earlier messages
    in the thread of the whole graph, such as the question behind the task; what this thread recorded does.
    """
    mark_by_id = {message.id: message.metadata.get(THREAD_KEY) for message in context.messages if message.id}
    missing: list[Message] = []
    skipped: list[Message] = []
    latest = thread[:start][-_MAX_EXAMINED:]
    for message in latest:
        if message.id not in mark_by_id:
            if is_dialogue(message):
                missing.append(message)
            continue
        is_own = mark_by_id[message.id] in {None, thread[0].id}
        skipped = [] if is_own else skipped + missing
        missing = []
    skipped = yield from _never_recorded(brain, skipped, latest, thread.text_of)
    from_question = dropwhile(lambda message: message.role != "user", skipped)  # an answer alone may have been edited
    return thread.originals(from_question)


def _never_recorded(
    brain: BrainMemory, messages: list[Message], latest: list[Message], text_of: TextOf
) -> Flow[list[Message]]:
    """Of a thread's latest messages, those a session never had: they are not in its log, and have not left it.

    Clients that keep the ids of answers give questions new ones; ids say nothing about messages before such a question.
    """
    if not messages:
        return []
    namespace = brain_namespace(brain.scope)
    page = yield from step(brain.store.scan, namespace, limit=_MAX_EXAMINED, reverse=True, keys=[DEPARTED])
    logged_ids = {item.id for item in page.items}
    log = [message for _, message in readable_entries(reversed(page.items))]
    comparable = set(map(id, latest[renumbered_count(log, latest, text_of) :]))
    departed = have_departed(page.values, as_stored(brain.store, messages))
    return [
        message
        for message, has_departed in zip(messages, departed, strict=True)
        if not (has_departed or entry_id(message.id) in logged_ids) and id(message) in comparable
    ]


def _new_question_position(thread: Thread) -> int:
    """The position of the run's question, which is new whatever its id; the thread's end, if others took it out."""
    count = _count_through_question(thread)
    shown_ids = _shown_ids(thread)
    is_taken_out = not count or (shown_ids and thread[count - 1].id not in shown_ids)
    return len(thread) if is_taken_out else count - 1


def _shown_ids(thread: Thread) -> set[str | None]:
    """The ids of what this run has shown the model and not recorded."""
    return {message.id for message in thread.state.get(UNRECORDED_KEY) or []}


def _count_through_question(thread: Thread) -> int:
    """How many messages there are up to and including the newest question."""
    return max((n + 1 for n, message in enumerate(thread) if message.role == "user"), default=0)


def load_context(brain: BrainMemory, thread: Thread) -> Flow[tuple[Context, int]]:
    """What is shown of a session, and how many messages of a thread it holds."""
    context = yield from step(brain.context)
    return context, (yield from count_recorded(brain, thread, context))


def record(brain: BrainMemory, thread: Thread, *, task: str, warn: WarnOnce) -> Flow[tuple[int, dict[str, Any]]]:
    """Append what a thread has said by now to its session, marked with the task.

    Returns how many messages that are, and the new state of the thread.
    """
    context, start = yield from load_context(brain, thread)
    history = context.messages
    earlier = [to_message_leniently(message) for message in thread.state.get(UNRECORDED_KEY) or []]
    messages = merge_run_messages(earlier, unrecorded_messages(thread, start))
    messages = yield from without_deleted_before_question(brain, messages, history)
    marks = {TASK_KEY: task, REPLACES_KEY: failed_try_ids(messages, history, thread, task)}
    new = mark_changed_questions(to_session_messages(messages, history, thread, marks), messages, thread)
    removed_ids = (m.id for m, original in zip(new, messages, strict=True) if thread.count_through(original.id) is None)
    summarized = summarized_ids(history, thread, start, removed_ids)
    if summarized and new:
        new[-1] = new[-1].model_copy(update={"metadata": {**new[-1].metadata, SUMMARIZED_KEY: summarized}})
    yield from append_messages(brain, new, warn)
    update: dict[str, Any] = {RECORDED_KEY: thread[-1].id, UNRECORDED_KEY: [], SENT_KEY: {}} if thread else {}
    if start and not (history or context.summary):  # it expired, or was cleared, while the run was interrupted
        update[OLDER_KEY] = thread[start - 1].id
    return len(new), update


def first_unrecorded_position(thread: Thread, start: int) -> int:
    """The position of the first message to record: what was passed over comes before what the session holds."""
    shown = thread.state.get(UNRECORDED_KEY)
    count = thread.count_through(shown[0].id) if shown and shown[0].id else None
    return start if count is None else min(start, count - 1)


def unrecorded_messages(thread: Thread, start: int) -> list[Message]:
    """The messages of a thread that a run has to record, in the form that they have now."""
    shown_ids = _shown_ids(thread)
    first = first_unrecorded_position(thread, start)
    skipped = [message for message in thread[first:start] if message.id in shown_ids]
    return [message for message in skipped + thread[start:] if is_dialogue(message)]


def messages_so_far(thread: Thread, start: int) -> list[BaseMessage]:
    """What a run has said, as its state has it; what others add only to a model call was not said."""
    new = unrecorded_messages(thread, start)
    return merge_run_messages(thread.state.get(UNRECORDED_KEY) or [], thread.originals(new))


def without_deleted(brain: BrainMemory, messages: list[Message], history: Sequence[Message]) -> Flow[list[Message]]:
    """What a thread says, without messages that were deleted from the session: the thread still has those."""
    history_ids = {message.id for message in history}
    missing_ids = [m.id for m in messages if m.id and m.id not in history_ids and is_dialogue(m)]
    if not missing_ids:
        return messages
    values = yield from step(brain.store.get, brain_namespace(brain.scope), [DELETED])
    deleted = dict(zip(missing_ids, have_been_deleted({}, values, list(map(entry_id, missing_ids))), strict=True))
    return [message for message in messages if not deleted.get(message.id)]


def without_deleted_before_question(
    brain: BrainMemory, new: list[Message], history: Sequence[Message]
) -> Flow[list[Message]]:
    """New messages, without deleted ones that a client sends again; only a repeated question stays.

    Without a message before the newest question, this reads nothing.
    """
    question_position = max((n for n, message in enumerate(new) if message.role == "user"), default=0)
    undeleted = yield from without_deleted(brain, new[:question_position], history)
    return undeleted + new[question_position:]


def to_session_messages(
    new: Sequence[Message], history: Sequence[Message], thread: Thread, task_marks: Mapping[str, Any]
) -> list[Message]:
    """New messages as a session stores them: with their thread's marks, and none under the id of another message.

    Clients that number the messages of each request anew reuse ids that the session has. Such a message gets another
    id, the same one whenever its thread says it, so that it is not stored twice either. Nor is an answer that the
    session has from another agent, if it came as plain data: of that, LangChain makes one with other arguments. With
    other tool calls, it is another message, and so is a changed result of a tool.
    """
    history_by_id = {message.id: message for message in history}
    thread_mark, began = (str(thread.state.get(key) or "") for key in (THREAD_KEY, BEGAN_KEY))
    marks = {THREAD_KEY: thread_mark, **{name: value for name, value in task_marks.items() if value}}
    messages = []
    are_known = True  # it and all before it; a cache may say a known message again, after something new
    for message in new:
        old, id_ = history_by_id.get(message.id), message.id
        is_known = old is not None and id_key(old, unspaced_text(old)) == id_key(message, thread.text_of(message))
        if old is not None and not is_known:
            id_ = fingerprint(thread_mark, began, id_, message.role, thread.text_of(message))
        are_known = are_known and is_known
        host = message.host
        if old is not None and are_known and message.role == "assistant" and message.tool_calls == old.tool_calls:
            host = old.host
        messages.append(message.model_copy(update={"id": id_, "host": host, "metadata": {**message.metadata, **marks}}))
    return messages


def failed_try_ids(messages: Sequence[Message], history: Sequence[Message], thread: Thread, task: str) -> list[str]:
    """The ids of a task's earlier answers to the same messages that its thread does not have: those tries failed.

    A task that began with another question is no earlier try: its nodes may say a constant message, under one id.
    """
    thread_ids = {message.id for message in messages}
    answers = dropwhile(lambda message: message.id not in thread_ids, history)
    said = [message for message in answers if task and message.metadata.get(TASK_KEY) == task]
    question = next((unspaced_text(message) for message in said if message.role == "user"), None)
    if question is not None and question not in map(thread.text_of, messages):
        return []
    return [message.id for message in said if thread.count_through(message.id) is None]


def replaced_positions(history: Sequence[Message], failed_ids: Sequence[str]) -> set[int]:
    """The positions of what an agent said in tries of a task that were repeated later, or are repeated now."""
    ids = {*failed_ids, *(id_ for message in history for id_ in message.metadata.get(REPLACES_KEY) or ())}
    return {n for n, message in enumerate(history) if message.id in ids}


def recorded_positions(state: Mapping[str, Any], history: Sequence[Message]) -> set[int]:
    """The positions of what a thread has recorded since it began.

    What the thread no longer has of that was taken back: an answer was asked for again, a question edited, a
    message removed.
    """
    if BEGAN_KEY not in state:
        return set()
    mark, began = state.get(THREAD_KEY), state[BEGAN_KEY]
    first = next((n + 1 for n, message in enumerate(history) if message.id == began), 0)
    return {n for n, message in enumerate(history) if n >= first and mark and message.metadata.get(THREAD_KEY) == mark}


def make_text_of(store: object) -> TextOf:
    """A function for the words of a message as a store keeps them: it may have a redactor."""
    redact = getattr(store, "redacted", None)
    if redact is None:
        return unspaced_text

    def redacted_text(message: Message) -> str:
        return unspaced_text(Message.from_bytes(redact(Message(role=message.role, content=message.text).to_bytes())))

    return redacted_text
