"""What the thread of a run says that its session does not hold yet, told from the state of the run."""

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
from langmem_adapters.langchain.threads.overlap import Words, is_said, known, known_by_id, renumbered, same
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
_LATEST: Final = 256  # messages of a thread: of as many a session knows that they have left

RECORDED: Final = "brain_recorded"
"""Where a thread's state holds the id of its last message that the session has; empty: it has none."""

SAID: Final = "brain_said"
"""Where it holds what a run has shown to the model, until it is recorded: others may take it out of the thread."""

BEGAN: Final = "brain_began"
"""Where it holds the id of the session's last message when the thread began; empty: the session began with it."""

OLDER: Final = "brain_older"
"""Where it holds the id of the last message that the thread had when its session began; empty: it had none."""

THREAD: Final = "brain_thread"
"""Where it holds the id of the first message that the thread began with; and the key in the metadata of messages
that tells which thread recorded them. The thread's own id would be no mark: it may begin anew, in another saver too."""

TASK: Final = "brain_task"
"""The key in the metadata of messages that tells as which part of a task of another's graph an agent said them."""

REPLACES: Final = "brain_replaces"
"""And the key that tells what the agent had said as it was tried before, by the ids."""

_MARKS: Final = (THREAD, TASK, REPLACES)


def begun(
    brain: BrainMemory, thread: Thread, state: Mapping[str, Any], context: Context, words: Words
) -> Flow[dict[str, Any]]:
    """What a thread's state tells as a run begins: how much of the thread the session holds, and passed over."""
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
    brain: BrainMemory | None, thread: Thread, state: Mapping[str, Any], context: Context, words: Words
) -> Flow[int]:
    """How many of a thread's messages, from its beginning, the session holds; at the beginning of a run.

    Without a session, as in an outage, by what the state and the context tell.
    """
    place = _place(thread, state.get(RECORDED) or None)
    if place is not None:
        return place
    if BEGAN in state:  # a saved thread, which keeps ids
        return (yield from _known(brain, thread, state, context, words))
    place = known(context.messages, thread, context.summary, by="questions", words=words)
    last = thread[-1] if thread else None
    if place < len(thread) or last is None or last.role != "user":
        return place
    waits = context.messages and context.messages[-1].role == "user"
    return place if waits else place - 1  # it was answered, and is asked again


def recorded(
    brain: BrainMemory | None, thread: Thread, state: Mapping[str, Any], context: Context, words: Words
) -> Flow[int]:
    """:func:`first_new` in the midst of a run or at its end, when the thread has grown and others may have cut it."""
    place = _place(thread, state.get(RECORDED))
    if place is not None:
        return place
    if state.get(RECORDED):  # and it was taken out of the thread
        return (yield from _known(brain, thread, state, context, words))
    return (yield from first_new(brain, thread.first(_asked(thread)), state, context, words))


def _known(
    brain: BrainMemory | None, thread: Thread, state: Mapping[str, Any], context: Context, words: Words
) -> Flow[int]:
    """How many messages of a thread that keeps ids the session has, or had until somebody deleted them."""
    place = known_by_id(context.messages, thread, context.summary, words)
    if brain is None:
        return place
    older = thread[place : _new_question(thread, state)]
    if not place and state.get(RECORDED) and _ends_with(context.messages, older, words):
        return len(older)
    left = yield from undeleted(brain, older, context.messages)
    there = set(map(id, left))
    return max((place + n + 1 for n, message in enumerate(older) if id(message) not in there), default=place)


def _ends_with(history: Sequence[Message], thread: Sequence[Message], words: Words) -> bool:
    """Whether a history ends with all that a thread says: it was put in the place of itself, without its ids."""

    def content(message: Message, text: str) -> tuple[Any, ...]:
        return message.role, text, message.tool_call_id, [call.id for call in message.tool_calls]

    said = [content(message, words(message)) for message in thread if is_said(message)]
    return bool(said) and said == [content(message, words_of(message)) for message in history[-len(said) :]]


def _passed_over(
    brain: BrainMemory, thread: Thread, start: int, context: Context, words: Words
) -> Flow[list[BaseMessage]]:
    """Questions, and what follows them, that no one recorded though what is behind them was, before ``start``.

    A graph may show an agent a task of its own alone. What that agent recorded tells nothing of what is before it in
    the thread of the whole, such as the question that the task is a part of; what this thread recorded does.
    """
    marks = {message.id: message.metadata.get(THREAD) for message in context.messages if message.id}
    missing: list[Message] = []
    found: list[Message] = []
    latest = thread[:start][-_LATEST:]
    for message in latest:
        if message.id not in marks:
            missing += [message] if is_said(message) else []
        elif marks[message.id] in {None, thread[0].id}:
            missing, found = [], []
        else:
            missing, found = [], found + missing
    found = yield from _unrecorded(brain, found, latest, words)
    asked = dropwhile(lambda message: message.role != "user", found)  # an answer alone may have been edited
    return [own for message in asked if (own := thread.original(message))]


def _unrecorded(
    brain: BrainMemory, messages: list[Message], latest: list[Message], words: Words
) -> Flow[list[Message]]:
    """What a session never had of the latest of a thread: neither before its window nor before it left.

    Clients that keep the ids of answers give questions new ones; what is before such a question is known by no id.
    """
    if not messages:
        return []
    where = brain_namespace(brain.scope)
    page = yield from step(brain.store.scan, where, limit=_LATEST, reverse=True, keys=[DEPARTED])
    there = {item.id for item in page.items}
    log = [message for _, message in readable(reversed(page.items))]
    kept = set(map(id, latest[renumbered(log, latest, words) :]))
    gone = have_departed(page.values, as_kept(brain.store, messages))
    left = [m for m, has_left in zip(messages, gone, strict=True) if not (has_left or entry_id(m.id) in there)]
    return [message for message in left if id(message) in kept]


def _new_question(thread: Thread, state: Mapping[str, Any]) -> int:
    """Where what is asked now is in the thread, which is new, whatever its id; its end, if that was taken out."""
    place = _asked(thread) - 1
    shown = {message.id for message in state.get(SAID) or []}
    return place if place >= 0 and (not shown or thread[place].id in shown) else len(thread)


def _asked(thread: Thread) -> int:
    """How many messages there are up to the newest question."""
    return max((n + 1 for n, message in enumerate(thread) if message.role == "user"), default=0)


def looked_at(brain: BrainMemory, thread: Thread, state: Mapping[str, Any], words: Words) -> Flow[tuple[Context, int]]:
    """What is shown of a session, and how many messages of a thread it holds."""
    context = yield from step(brain.context)
    return context, (yield from recorded(brain, thread, state, context, words))


def record(
    brain: BrainMemory, thread: Thread, state: Mapping[str, Any], *, task: str, words: Words, warn: WarnOnce
) -> Flow[int]:
    """Append to a session what its thread has said by now, as a task's part; gives how many messages that is."""
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
    """How many messages are recorded, as the thread's state tells it; None, where it does not tell."""
    return 0 if recorded_id == "" else thread.after(recorded_id) if recorded_id else None


def first_said(thread: Thread, start: int, state: Mapping[str, Any]) -> int:
    """Where the first is that a run has to record: what was passed over is before what the session holds."""
    said = state.get(SAID)
    place = thread.after(said[0].id) if said and said[0].id else None
    return start if place is None else min(start, place - 1)


def said_now(thread: Thread, start: int, state: Mapping[str, Any]) -> list[Message]:
    """What of a thread a run has to record, in the form that it has now."""
    over = {message.id for message in state.get(SAID) or []}
    found = [message for message in thread[first_said(thread, start, state) : start] if message.id in over]
    return [message for message in found + thread[start:] if is_said(message)]


def said_by_now(thread: Thread, start: int, state: Mapping[str, Any]) -> list[BaseMessage]:
    """What a run has said as its state has it; what others add to a call of the model alone nobody has said."""
    new = [own for message in said_now(thread, start, state) if (own := thread.original(message))]
    return with_said(state.get(SAID) or [], new)


def with_said(said: Sequence[M], new: Sequence[M]) -> list[M]:
    """What a run has said before and what its thread says now: each message once, in the form that it has now.

    What was put into the thread since, as LangChain's result of a call that it cannot read, is where it is there.
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
    """A message that its thread has no more; or has under an id that the host gave it only by now."""
    if not is_made(message.id):
        return message
    said = _kind(message), message.content
    return now.pop(next((id_ for id_, one in now.items() if (_kind(one), one.content) == said), None), message)


def _kind(message: Message | BaseMessage) -> str:
    return message.role if isinstance(message, Message) else message.type


def undeleted(brain: BrainMemory, said: list[Message], history: Sequence[Message]) -> Flow[list[Message]]:
    """What a thread says, without what somebody has deleted from the session: the thread has that still."""
    there = {message.id for message in history}
    missing = [message.id for message in said if message.id and message.id not in there and is_said(message)]
    if not missing:
        return said
    values = yield from step(brain.store.get, brain_namespace(brain.scope), [DELETED])
    deleted = dict(zip(missing, have_been_deleted({}, values, list(map(entry_id, missing))), strict=True))
    return [message for message in said if not deleted.get(message.id)]


def question_of(messages: Sequence[Message]) -> str:
    """The newest question that was said."""
    return next((message.text for message in reversed(messages) if message.role == "user" and is_said(message)), "")


def to_record(
    new: Sequence[Message], history: Sequence[Message], state: Mapping[str, Any], more: Mapping[str, Any], words: Words
) -> list[Message]:
    """What is new to a session as it is stored: with its thread's marks, and none under the id of another message.

    Clients that number the messages of each request anew say something else under an id that the session has. The
    id that such a message gets is the same one whenever its thread says it, so that it is not stored twice either.
    """
    taken = {message.id: message for message in history}
    mark, began = (str(state.get(key) or "") for key in (THREAD, BEGAN))
    own = {THREAD: mark, **{name: value for name, value in more.items() if value}}
    messages = []
    for message in new:
        old, marks, id_ = taken.get(message.id), own, message.id
        if old is not None and same(old, message, words):
            marks = {name: old.metadata[name] for name in _MARKS if name in old.metadata}  # a repeated delivery
        elif old is not None:
            id_ = fingerprint(mark, began, id_, message.role, words(message))
        messages.append(message.model_copy(update={"id": id_, "metadata": {**message.metadata, **marks}}))
    return messages


def _tried(said: Sequence[Message], history: Sequence[Message], thread: Thread, task: str) -> list[str]:
    """What a task has answered before to what it answers now, by the ids, and its thread does not have: it failed."""
    now = {message.id for message in said}
    answers = dropwhile(lambda message: message.id not in now, history)
    return [m.id for m in answers if m.metadata.get(TASK) == task and thread.after(m.id) is None]


def replaced(history: Sequence[Message]) -> set[int]:
    """The places of what an agent had said before its task was tried again."""
    ids = {id_ for message in history for id_ in message.metadata.get(REPLACES) or ()}
    return {n for n, message in enumerate(history) if message.id in ids}


def written_by(state: Mapping[str, Any], history: Sequence[Message]) -> set[int]:
    """The places of what a thread has recorded since it began.

    What of that it does not have any more was taken back: an answer was asked for again, a question edited, a
    message removed.
    """
    mark, began = state.get(THREAD), state.get(BEGAN)
    first = next((n + 1 for n, message in enumerate(history) if message.id == began), 0)
    return {n for n, message in enumerate(history) if n >= first and mark and message.metadata.get(THREAD) == mark}


def words_in(store: object) -> Words:
    """What a store keeps of the words of a message, which may have a redactor."""
    redacted = getattr(store, "redacted", None)
    if redacted is None:
        return words_of

    def words(message: Message) -> str:
        return words_of(Message.from_bytes(redacted(Message(role=message.role, content=message.text).to_bytes())))

    return words
