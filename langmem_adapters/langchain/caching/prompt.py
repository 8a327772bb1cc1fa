"""The prompt that LangChain shows a cache: the messages in it, and what the user asked last."""

from __future__ import annotations

from typing import Any

from langmem_adapters.codec import parsed

__all__ = ["asked_in", "class_of", "is_human", "messages_in"]

_HUMAN = frozenset({"HumanMessage", "HumanMessageChunk"})


def messages_in(prompt: str) -> list[dict[str, Any]]:
    """Chat messages as LangChain dumps them; none if the prompt is anything else."""
    try:
        dumped = parsed(prompt) if prompt.startswith("[{") else []
    except (ValueError, RecursionError):
        return []
    whole = all(
        isinstance(m, dict) and m.get("lc") == 1 and isinstance(m.get("kwargs"), dict) and m.get("id") for m in dumped
    )
    return dumped if whole else []


def class_of(message: dict[str, Any]) -> str:
    """The name of a dumped message's class."""
    return str(message["id"][-1])


def is_human(message: dict[str, Any]) -> bool:
    """Whether the user said it."""
    return class_of(message) in _HUMAN


def asked_in(prompt: str) -> str:
    """The text of the user's last message; the whole prompt, if it is no chat.

    >>> asked_in("What is the capital of France?")
    'What is the capital of France?'
    """
    messages = messages_in(prompt)
    if not messages:
        return prompt
    said = next((message["kwargs"].get("content") for message in reversed(messages) if is_human(message)), "")
    blocks = said if isinstance(said, list) else [said]
    texts = [block.get("text") if isinstance(block, dict) else block for block in blocks]
    return "\n".join(text for text in texts if isinstance(text, str))
