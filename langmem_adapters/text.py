"""Which messages a model may be shown, and conversations as text. Pure rules; nothing here touches a store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from langmem_adapters.model import Message

__all__ = ["as_text", "leaving", "repair", "replaced", "window", "without_calls"]

_CALL_IDS = ("id", "tool_call_id", "call_id")


def window(messages: Sequence[Message], k: int) -> list[Message]:
    """The newest messages, at most ``k``, in a form that every provider accepts.

    Besides what :func:`repair` sees to, the first message that is not a system message is a user's. When the
    newest ``k`` hold no user message (a long run of tools), the latest one before them stands in front.
    """
    if k <= 0:
        return []
    tail = list(messages[-k:])
    if not any(message.role == "user" for message in tail):
        asked = [message for message in messages[:-k] if message.role == "user"][-1:]
        tail = asked + (tail[-(k - 1) :] if k > 1 else []) if asked else tail
    return repair(_from_user(tail))


def _from_user(messages: list[Message]) -> list[Message]:
    """Without what stands before the first user message, system messages excepted; all, if there is none."""
    for n, message in enumerate(messages):
        if message.role == "user":
            return [m for m in messages[:n] if m.role in {"system", "developer"}] + messages[n:]
    return messages


def repair(messages: Sequence[Message]) -> list[Message]:
    """Put every tool result right behind the call it answers; drop results without a call, and calls without one.

    Calls of the very last message stay: their results are still to come.
    """
    answers, asker = _matched(messages)
    repaired: list[Message] = []
    for n, message in enumerate(messages):
        if message.role == "tool":
            continue
        if message.tool_calls and n < len(messages) - 1:
            unanswered = {call.id for call in message.tool_calls if (n, call.id) not in answers}
            if unanswered:
                message = without_calls(message, unanswered)  # noqa: PLW2901 - what goes on from here
            if not (message.tool_calls or message.text):
                continue
        repaired.append(message)
        repaired += [messages[at] for at in asker.get(n, ())]
    return repaired


def _matched(messages: Sequence[Message]) -> tuple[set[tuple[int, str | None]], dict[int, list[int]]]:
    """Which calls were answered, as (place of the asking message, call id); and each asker's places of answers."""
    open_calls: dict[str | None, int] = {}
    answers: set[tuple[int, str | None]] = set()
    asker: dict[int, list[int]] = {}
    for n, message in enumerate(messages):
        open_calls.update((call.id, n) for call in message.tool_calls)
        if message.role == "tool" and message.tool_call_id in open_calls:
            asked = open_calls.pop(message.tool_call_id)
            answers.add((asked, message.tool_call_id))
            asker.setdefault(asked, []).append(n)
    return answers, asker


def without_calls(message: Message, ids: set[str | None]) -> Message:
    """Copy a message without these tool calls, also where its content or its host's own fields repeat them."""
    return message.model_copy(
        update={
            "tool_calls": [call for call in message.tool_calls if call.id not in ids],
            "content": _pruned(message.content, ids),
            "host": _pruned(message.host, ids),
        }
    )


def _pruned(value: Any, ids: set[str | None]) -> Any:
    if isinstance(value, dict):
        return {key: _pruned(item, ids) for key, item in value.items()}
    if isinstance(value, list):
        return [
            _pruned(item, ids)
            for item in value
            if not (isinstance(item, dict) and any(item.get(key) in ids for key in _CALL_IDS if key in item))
        ]
    return value


def leaving(messages: Sequence[Message], least: int) -> list[int]:
    """The places of the oldest messages, at least ``least``, that can go so that what stays can stand alone.

    What stays begins with a user message: with the next one, or else with the latest one before, which stays
    while the run of tools behind it is shortened. Results stay with their calls; fewer go where one message's
    calls and results are more than may stay.
    """
    asked: int | None = None
    starts: list[int] = []
    for n, message in enumerate(messages):
        if message.role == "user" and n >= least:
            return list(range(n))
        if message.role == "user":
            asked = n
        if message.role != "tool":
            starts.append(n)
    enough = least if asked is None else least + 1
    cut = next((n for n in starts if n >= enough), starts[-1] if starts else least)
    return [n for n in range(cut) if n != asked]


def as_text(messages: Iterable[Message]) -> str:
    """A conversation as ``role: text`` lines."""
    return "\n".join(f"{message.name or message.role}: {message.text}" for message in messages)


def replaced(value: Any, names: dict[str, str]) -> Any:
    """Copy nested data with these strings replaced wherever one stands as a whole value."""
    if isinstance(value, dict):
        return {key: replaced(item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [replaced(item, names) for item in value]
    return names.get(value, value) if isinstance(value, str) else value
