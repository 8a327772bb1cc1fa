"""The messages of a run's thread that its session does not hold yet, worked out from the run's state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import dropwhile
from typing import Any, Final, TypeVar

from langchain_core.messages import BaseMessage

from langmem_adapters.brain import BrainMemory
from langmem_adapters.conversation.log import brain_namespace, entry_id, readable
from langmem_adapters.conversation.session import Context
from langmem_adapters.conversation.stored_summary import words_of
from langmem_adapters.conversation.tombstones import DELETED, DEPARTED, have_been_deleted, have_departed
from langmem_adapters.flow import Flow, step
from langmem_adapters.keys import fingerprint
from langmem_adapters.langchain.threads.changed import SENT, sent_as, with_changes
from langmem_adapters.langchain.threads.exchanges import TextOf, is_dialogue
from langmem_adapters.langchain.threads.overlap import (
    existing_count,
    existing_count_by_id,
    is_same_message,
    renumbered_count,
)
from langmem_adapters.langchain.threads.storable import added, legible
from langmem_adapters.langchain.threads.taken_out import STANDS_FOR, known_of, stood_for
from langmem_adapters.langchain.threads.view import Thread, is_made
from langmem_adapters.model import Message
from langmem_adapters.recall.keeping import as_kept
from langmem_adapters.warn_once import WarnOnce

__all__ = [
    "OLDER",
    "RECORDED",
    "SAID",
    "THREAD",
    "begun",
    "first_said",
    "looked_at",
    "question_of",
    "record",
    "recorded",
    "replaced",
    "said_by_now",
    "undeleted",
    "words_in",
    "written_by",
]

M = TypeVar("M", Message, BaseMessage)
_LATEST: Final = 256  # messages of a thread that are examined; a session remembers as many that left it

RECORDED: Final = "brain_recorded"
"""Key in a thread's state: the id of its last message that the session has; empty if it has none."""

SAID: Final = "brain_said"
"""Key in a thread's state: what a run has shown the model and not recorded; the thread itself may lose it."""

BEGAN: Final = "brain_began"
"""Key in a thread's state: the id of the session's last message when the thread began; empty if there was none."""

OLDER: Final = "brain_older"
"""Key in a thread's state: the id of the thread's last message when its session began; empty if there was none."""

THREAD: Final = "brain_thread"
"""Key in a thread's state: the id of the first message that it began with. Also the key in the metadata of messages for
the thread that recorded them; its own id would not do, as a thread may begin anew, in another saver too."""

TASK: Final = "brain_task"
"""Key in the metadata of messages: the task of an outer graph, and the part of it, as which an agent said them."""

REPLACES: Final = "brain_replaces"
"""Key in the metadata of messages: the ids of what the agent had said in an earlier try of the task."""

_MARKS: Final = (THREAD, TASK, REPLACES)


def begun(
    brain: BrainMemory, thread: Thread, state: Mapping[str, Any], context: Context, words: TextOf
) -> Flow[dict[str, Any]]:
    """The new state of a thread when a run begins: what the session holds of the thread, and what was passed over."""
    messages = context.messages
    start = yield from first_new(brain, thread, state, context, words)
    last_known = thread[start - 1].id if start else ""
    found = {
        RECORDED: last_known,
        BEGAN: state.get(BEGAN, messages[-1].id if messages else ""),
        OLDER: state.get(OLDER, "") if messages or context.summary else last_known,
        SENT: sent_as(thread[start:], words),
    } | known_of(messages, thread, start, written_by(state, messages), words)
    if BEGAN in state:  # a saved thread, which knows what was recorded
        return found
    missed = yield from _passed_over(brain, thread, start, context, words)
    return found | ({SAID: missed} if missed else {})


def first_new(
    brain: BrainMemory | None, thread: Thread, state: Mapping[str, Any], context: Context, words: TextOf
) -> Flow[int]:
    """How many messages of a thread, from its beginning, the session holds when a run begins.

    Without a session, as in an outage, the state and the context decide.
    """
    place = _place(thread, state.get(RECORDED) or None)
    if place is not None:
        return place
    if BEGAN in state:  # a saved thread, which keeps ids
        return (yield from _known(brain, thread, state, context, words))
    place = existing_count(context.messages, thread, context.summary, by="questions", text_of=words)
    last = thread[-1] if thread else None
    if place < len(thread) or last is None or last.role != "user":
        return place
    waits = context.messages and context.messages[-1].role == "user"
    return place if waits else place - 1  # it was answered, and is asked again


def recorded(
    brain: BrainMemory | None, thread: Thread, state: Mapping[str, Any], context: Context, words: TextOf
) -> Flow[int]:
    """:func:`first_new` during a run or at its end, when the thread has grown and others may have cut it."""
    place = _place(thread, state.get(RECORDED))
    if place is not None:
        return place
    if state.get(RECORDED):  # that message was taken out of the thread
        return (yield from _known(brain, thread, state, context, words))
    return (yield from first_new(brain, thread.first(_asked(thread)), state, context, words))


def _known(
    brain: BrainMemory | None, thread: Thread, state: Mapping[str, Any], context: Context, words: TextOf
) -> Flow[int]:
    """How many messages of a thread that keeps ids the session has, or had until they were deleted."""
    place = existing_count_by_id(context.messages, thread, context.summary, words)
    if brain is None:
        return place
    older = thread[place : _new_question(thread, state)]
    if not place and state.get(RECORDED) and _ends_with(context.messages, older, words):
        return len(older)
    left = yield from undeleted(brain, older, context.messages)
    there = set(map(id, left))
    return max((place + n + 1 for n, message in enumerate(older) if id(message) not in there), default=place)


def _ends_with(history: Sequence[Message], thread: Sequence[Message], words: TextOf) -> bool:
    """Whether a history ends with all that a thread says: the thread was replaced by a copy without its ids."""

    def content(message: Message, text: str) -> tuple[Any, ...]:
        return message.role, text, message.tool_call_id, [call.id for call in message.tool_calls]

    said = [content(message, words(message)) for message in thread if is_dialogue(message)]
    return bool(said) and said == [content(message, words_of(message)) for message in history[-len(said) :]]


def _passed_over(
    brain: BrainMemory, thread: Thread, start: int, context: Context, words: TextOf
) -> Flow[list[BaseMessage]]:
    """Questions before ``start``, and what follows them, that nobody recorded although later messages were.

    A graph may show an agent nothing but its own task. What that agent recorded proves nothing about earlier messages
    in the thread of the whole graph, such as the question behind the task; what this thread recorded does.
    """
    marks = {message.id: message.metadata.get(THREAD) for message in context.messages if message.id}
    missing: list[Message] = []
    found: list[Message] = []
    latest = thread[:start][-_LATEST:]
    for message in latest:
        if message.id not in marks:
            missing += [message] if is_dialogue(message) else []
        elif marks[message.id] in {None, thread[0].id}:
            missing, found = [], []
        else:
            missing, found = [], found + missing
    found = yield from _unrecorded(brain, found, latest, words)
    asked = dropwhile(lambda message: message.role != "user", found)  # an answer alone may have been edited
    return [own for message in asked if (own := thread.original(message))]


def _unrecorded(
    brain: BrainMemory, messages: list[Message], latest: list[Message], words: TextOf
) -> Flow[list[Message]]:
    """Of a thread's latest messages, those a session never had: they are not in its log, and have not left it.

    Clients that keep the ids of answers give questions new ones; ids say nothing about messages before such a question.
    """
    if not messages:
        return []
    where = brain_namespace(brain.scope)
    page = yield from step(brain.store.scan, where, limit=_LATEST, reverse=True, keys=[DEPARTED])
    there = {item.id for item in page.items}
    log = [message for _, message in readable(reversed(page.items))]
    kept = set(map(id, latest[renumbered_count(log, latest, words) :]))
    gone = have_departed(page.values, as_kept(brain.store, messages))
    left = [m for m, has_left in zip(messages, gone, strict=True) if not (has_left or entry_id(m.id) in there)]
    return [message for message in left if id(message) in kept]


def _new_question(thread: Thread, state: Mapping[str, Any]) -> int:
    """The position of the run's question, which is new whatever its id; the thread's end, if others took it out."""
    place = _asked(thread) - 1
    shown = {message.id for message in state.get(SAID) or []}
    return place if place >= 0 and (not shown or thread[place].id in shown) else len(thread)


def _asked(thread: Thread) -> int:
    """How many messages there are up to and including the newest question."""
    return max((n + 1 for n, message in enumerate(thread) if message.role == "user"), default=0)


def looked_at(brain: BrainMemory, thread: Thread, state: Mapping[str, Any], words: TextOf) -> Flow[tuple[Context, int]]:
    """What is shown of a session, and how many messages of a thread it holds."""
    context = yield from step(brain.context)
    return context, (yield from recorded(brain, thread, state, context, words))


def record(
    brain: BrainMemory, thread: Thread, state: Mapping[str, Any], *, task: str, words: TextOf, warn: WarnOnce
) -> Flow[int]:
    """Append what a thread has said by now to its session, marked with the task; returns how many messages."""
    context, start = yield from looked_at(brain, thread, state, words)
    said = with_said([legible(message) for message in state.get(SAID) or []], said_now(thread, start, state))
    marks = {TASK: task, REPLACES: _tried(said, context.messages, thread, task)} if task else {}
    new = with_changes(to_record(said, context.messages, state, marks, words), said, state, words)
    gone = (message.id for message, own in zip(new, said, strict=True) if thread.after(own.id) is None)
    if stands_for := stood_for(context.messages, thread, start, gone, state=state, words=words):
        new[-1:] = [m.model_copy(update={"metadata": {**m.metadata, STANDS_FOR: stands_for}}) for m in new[-1:]]
    yield from added(brain, new, warn)
    return len(new)


def _place(thread: Thread, recorded_id: str | None) -> int | None:
    """How many messages are recorded, by the thread's state; None if the state does not say."""
    return 0 if recorded_id == "" else thread.after(recorded_id) if recorded_id else None


def first_said(thread: Thread, start: int, state: Mapping[str, Any]) -> int:
    """The position of the first message to record: what was passed over comes before what the session holds."""
    said = state.get(SAID)
    place = thread.after(said[0].id) if said and said[0].id else None
    return start if place is None else min(start, place - 1)


def said_now(thread: Thread, start: int, state: Mapping[str, Any]) -> list[Message]:
    """The messages of a thread that a run has to record, in the form that they have now."""
    over = {message.id for message in state.get(SAID) or []}
    found = [message for message in thread[first_said(thread, start, state) : start] if message.id in over]
    return [message for message in found + thread[start:] if is_dialogue(message)]


def said_by_now(thread: Thread, start: int, state: Mapping[str, Any]) -> list[BaseMessage]:
    """What a run has said, as its state has it; what others add only to a model call was not said."""
    new = [own for message in said_now(thread, start, state) if (own := thread.original(message))]
    return with_said(state.get(SAID) or [], new)


def with_said(said: Sequence[M], new: Sequence[M]) -> list[M]:
    """What a run has said before and what its thread says now: each message once, in the form that it has now.

    A message put into the thread since, such as LangChain's result of a call that it cannot read, keeps its place.
    """
    places = {message.id: n for n, message in enumerate(new)}
    now: dict[Any, M] = {message.id: message for message in new}
    known = [now.pop(message.id, None) for message in said]
    merged: list[M] = []
    for message, found in zip(said, known, strict=True):
        one = found or _numbered(message, now)
        before = [id_ for id_ in now if places[id_] < places.get(one.id, 0)]
        merged += [now.pop(id_) for id_ in before]
        merged.append(one)
    return merged + list(now.values())


def _numbered(message: M, now: dict[Any, M]) -> M:
    """The message as its thread has it now, under an id that the host gave it later; itself, if the thread lacks it."""
    if not is_made(message.id):
        return message
    said = _kind(message), message.content
    return now.pop(next((id_ for id_, one in now.items() if (_kind(one), one.content) == said), None), message)


def _kind(message: Message | BaseMessage) -> str:
    return message.role if isinstance(message, Message) else message.type


def undeleted(brain: BrainMemory, said: list[Message], history: Sequence[Message]) -> Flow[list[Message]]:
    """What a thread says, without messages that were deleted from the session: the thread still has those."""
    there = {message.id for message in history}
    missing = [message.id for message in said if message.id and message.id not in there and is_dialogue(message)]
    if not missing:
        return said
    values = yield from step(brain.store.get, brain_namespace(brain.scope), [DELETED])
    deleted = dict(zip(missing, have_been_deleted({}, values, list(map(entry_id, missing))), strict=True))
    return [message for message in said if not deleted.get(message.id)]


def question_of(messages: Sequence[Message]) -> str:
    """The newest question that was said."""
    return next((message.text for message in reversed(messages) if message.role == "user" and is_dialogue(message)), "")


def to_record(
    new: Sequence[Message], history: Sequence[Message], state: Mapping[str, Any], more: Mapping[str, Any], words: TextOf
) -> list[Message]:
    """New messages as a session stores them: with their thread's marks, and none under the id of another message.

    Clients that number the messages of each request anew reuse ids that the session has. Such a message gets another
    id, the same one whenever its thread says it, so that it is not stored twice either.
    """
    taken = {message.id: message for message in history}
    mark, began = (str(state.get(key) or "") for key in (THREAD, BEGAN))
    own = {THREAD: mark, **{name: value for name, value in more.items() if value}}
    messages = []
    for message in new:
        old, marks, id_ = taken.get(message.id), own, message.id
        if old is not None and is_same_message(old, message, words):
            marks = {name: old.metadata[name] for name in _MARKS if name in old.metadata}  # a repeated delivery
        elif old is not None:
            id_ = fingerprint(mark, began, id_, message.role, words(message))
        messages.append(message.model_copy(update={"id": id_, "metadata": {**message.metadata, **marks}}))
    return messages


def _tried(said: Sequence[Message], history: Sequence[Message], thread: Thread, task: str) -> list[str]:
    """The ids of a task's earlier answers to the same messages that its thread does not have: those tries failed."""
    now = {message.id for message in said}
    answers = dropwhile(lambda message: message.id not in now, history)
    return [m.id for m in answers if m.metadata.get(TASK) == task and thread.after(m.id) is None]


def replaced(history: Sequence[Message]) -> set[int]:
    """The positions of what an agent said in tries of a task that were repeated later."""
    ids = {id_ for message in history for id_ in message.metadata.get(REPLACES) or ()}
    return {n for n, message in enumerate(history) if message.id in ids}


def written_by(state: Mapping[str, Any], history: Sequence[Message]) -> set[int]:
    """The positions of what a thread has recorded since it began.

    What the thread no longer has of that was taken back: an answer was asked for again, a question edited, a
    message removed.
    """
    mark, began = state.get(THREAD), state.get(BEGAN)
    first = next((n + 1 for n, message in enumerate(history) if message.id == began), 0)
    return {n for n, message in enumerate(history) if n >= first and mark and message.metadata.get(THREAD) == mark}


def words_in(store: object) -> TextOf:
    """A function for the words of a message as a store keeps them: it may have a redactor."""
    redacted = getattr(store, "redacted", None)
    if redacted is None:
        return words_of

    def words(message: Message) -> str:
        return words_of(Message.from_bytes(redacted(Message(role=message.role, content=message.text).to_bytes())))

    return words
