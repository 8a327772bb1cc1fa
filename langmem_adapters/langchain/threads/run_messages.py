"""What a run has said, put together from what its state and its thread have of that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from langchain_core.messages import BaseMessage

from langmem_adapters.langchain.threads.view import is_generated_id
from langmem_adapters.model import Message

__all__ = ["merge_run_messages"]

M = TypeVar("M", Message, BaseMessage)


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
