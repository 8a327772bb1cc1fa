"""Questions that others changed during a run, such as a filter that takes a secret out of what was asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from langmem_adapters.keys import fingerprint
from langmem_adapters.langchain.threads.exchanges import CHANGED_KEY, TextOf, is_dialogue
from langmem_adapters.model import Message

__all__ = ["SENT", "sent_as", "with_changes"]

SENT: Final = "brain_sent"
"""Key in a thread's state: fingerprints of a run's questions, as its client sent them, by message id."""


def sent_as(new: Iterable[Message], words: TextOf) -> dict[str, str]:
    """The value of :data:`SENT` for the new messages of a thread when a run begins."""
    return {m.id: fingerprint(words(m)) for m in new if m.role == "user" and is_dialogue(m)}


def with_changes(
    new: Iterable[Message], said: Sequence[Message], state: Mapping[str, Any], words: TextOf
) -> list[Message]:
    """The messages for a session; each question that the run ``said`` in other words than it was asked is marked."""
    sent = state.get(SENT) or {}
    changed = {m.id for m in said if m.id in sent and sent[m.id] != fingerprint(words(m))}
    return [
        m.model_copy(update={"metadata": {**m.metadata, CHANGED_KEY: True}}) if own.id in changed else m
        for m, own in zip(new, said, strict=True)
    ]
