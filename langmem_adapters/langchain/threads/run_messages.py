"""What a run was asked and has said, put together from what its state and its thread have of that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from langchain_core.messages import BaseMessage

from langmem_adapters.keys import fingerprint
from langmem_adapters.langchain.threads.exchanges import CHANGED_KEY, TextOf, is_dialogue
from langmem_adapters.langchain.threads.view import Thread, is_generated_id
from langmem_adapters.model import Message
from langmem_adapters.recall.memories import NOTIFICATION

M = TypeVar("M", Message, BaseMessage)

RECORDED_KEY: Final = "brain_recorded"
"""Key in a thread's state: the id of its last message that the session has; empty if it has none. A state without it
has never been compared with its session, as the store was away."""

THREAD_KEY: Final = "brain_thread"
"""Key in a thread's state: the id of the first message that it began with. Also the key in the metadata of messages for
the thread that recorded them; its own id would not do, as a thread may begin anew, in another saver too."""

UNRECORDED_KEY: Final = "brain_said"
"""Key in a thread's state: what a run has shown the model and not recorded; the thread itself may lose it."""

SENT_KEY: Final = "brain_sent"
"""Key in a thread's state: fingerprints of a run's questions, as its client sent them, by message id."""


def newest(earlier: list[BaseMessage], later: list[BaseMessage]) -> list[BaseMessage]:  # noqa: ARG001 - LangGraph's
    """The reducer of :data:`UNRECORDED_KEY`: the later of two values.

    If one of two parallel tools ends the run, and the other does not, LangChain runs the end and a model call in one
    step, and both write that key. Either will do: what was recorded is not stored twice, the thread has the rest.
    """
    return later


def with_lost_messages(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """A state that has never been compared with its session, with the messages that its thread lost meanwhile."""
    if RECORDED_KEY in state or not state.get(UNRECORDED_KEY):
        return state
    thread = Thread(state["messages"], str(state.get(THREAD_KEY) or ""))
    current = thread.originals(thread)
    return {**state, "messages": merge_run_messages(state[UNRECORDED_KEY], current), UNRECORDED_KEY: []}


def handed_over(new: Sequence[Message], *, follows_session: bool) -> list[Message]:
    """The newest question and what follows it, as far as the models of other agents have seen it.

    An agent that hands over ends without recording its run, and the next one may summarize it at once. If the new
    messages begin where the session ends, it lacks all of them: earlier runs failed, or their agents have no memory.
    """
    asked = (n for n, message in enumerate(new) if message.role == "user" and is_dialogue(message))
    question = max((n for n in asked if not new[n].metadata.get(NOTIFICATION)), default=0)
    seen_count = max((n + 1 for n, message in enumerate(new) if message.role == "assistant"), default=0)
    first = 0 if follows_session else question
    return [message for message in new[first : max(question, seen_count)] if is_dialogue(message)]


def merge_run_messages(earlier: Sequence[M], current: Sequence[M]) -> list[M]:
    """What a run has said before and what its thread says now: each message once, in the form that it has now.

    A message put into the thread since, such as LangChain's result of a call that it cannot read, keeps its place.
    """
    positions = {message.id: n for n, message in enumerate(current)}
    remaining: dict[Any, M] = {message.id: message for message in current}
    same_ids = [remaining.pop(message.id, None) for message in earlier]
    merged: list[M] = []
    for message, same_id in zip(earlier, same_ids, strict=True):
        current_form = same_id or _take_renamed(message, remaining) or message
        preceding = [id_ for id_ in remaining if positions[id_] < positions.get(current_form.id, 0)]
        merged += [remaining.pop(id_) for id_ in preceding]
        merged.append(current_form)
    return merged + list(remaining.values())


def _take_renamed(message: M, remaining: dict[Any, M]) -> M | None:
    """Take the message out of what its thread has, where the host gave it an id later; None if the thread lacks it."""
    if not is_generated_id(message.id):
        return None
    content = _role_or_type(message), message.content
    id_ = next((id_ for id_, m in remaining.items() if (_role_or_type(m), m.content) == content), None)
    return remaining.pop(id_, None)


def _role_or_type(message: Message | BaseMessage) -> str:
    return message.role if isinstance(message, Message) else message.type


def sent_fingerprints(new: Iterable[Message], text_of: TextOf) -> dict[str, str]:
    """The value of :data:`SENT_KEY` for the new messages of a thread when a run begins."""
    return {m.id: fingerprint(text_of(m)) for m in new if m.role == "user" and is_dialogue(m)}


def mark_changed_questions(new: Iterable[Message], run_messages: Sequence[Message], thread: Thread) -> list[Message]:
    """The messages for a session; each question that the run said in other words than it was asked is marked.

    Others may have changed it during the run, such as a filter that takes a secret out of what was asked.
    """
    sent = thread.state.get(SENT_KEY) or {}
    changed = {m.id for m in run_messages if m.id in sent and sent[m.id] != fingerprint(thread.text_of(m))}
    return [
        m.model_copy(update={"metadata": {**m.metadata, CHANGED_KEY: True}}) if original.id in changed else m
        for m, original in zip(new, run_messages, strict=True)
    ]
