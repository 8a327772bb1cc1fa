"""Questions that others changed during a run, such as a filter that takes a secret out of what was asked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from langmem_adapters.keys import fingerprint
from langmem_adapters.langchain.threads.exchanges import CHANGED_KEY, TextOf, is_dialogue
from langmem_adapters.langchain.threads.view import Thread
from langmem_adapters.model import Message

SENT_KEY: Final = "brain_sent"
"""Key in a thread's state: fingerprints of a run's questions, as its client sent them, by message id."""


def sent_fingerprints(new: Iterable[Message], text_of: TextOf) -> dict[str, str]:
    """The value of :data:`SENT_KEY` for the new messages of a thread when a run begins."""
    return {m.id: fingerprint(text_of(m)) for m in new if m.role == "user" and is_dialogue(m)}


def mark_changed_questions(new: Iterable[Message], run_messages: Sequence[Message], thread: Thread) -> list[Message]:
    """The messages for a session; each question that the run said in other words than it was asked is marked."""
    sent = thread.state.get(SENT_KEY) or {}
    changed = {m.id for m in run_messages if m.id in sent and sent[m.id] != fingerprint(thread.text_of(m))}
    return [
        m.model_copy(update={"metadata": {**m.metadata, CHANGED_KEY: True}}) if original.id in changed else m
        for m, original in zip(new, run_messages, strict=True)
    ]
