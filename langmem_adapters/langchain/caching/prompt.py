"""The prompt that LangChain shows a cache: the messages in it, and what the user asked last."""

from __future__ import annotations

from typing import Any

from langmem_adapters.codec import parse_json


def dumped_messages(prompt: str) -> list[dict[str, Any]]:
    """Chat messages as LangChain dumps them; none if the prompt is anything else."""
    try:
        dumped = parse_json(prompt) if prompt.startswith("[{") else []
    except (ValueError, RecursionError):
        return []
    return dumped if all(map(_is_dumped_message, dumped)) else []


def _is_dumped_message(value: Any) -> bool:
    if not isinstance(value, dict) or value.get("lc") != 1:
        return False
    return isinstance(value.get("kwargs"), dict) and bool(value.get("id"))


def class_name(message: dict[str, Any]) -> str:
    """The name of a dumped message's class; of a chunk, that of the whole message."""
    return str(message["id"][-1]).removesuffix("Chunk")


def is_human(message: dict[str, Any]) -> bool:
    """Whether the user said it."""
    return class_name(message) == "HumanMessage"


def last_question(prompt: str) -> str:
    """The text of the user's last message; the whole prompt, if it is no chat.

    >>> last_question("What is the capital of France?")
    'What is the capital of France?'
    """
    messages = dumped_messages(prompt)
    if not messages:
        return prompt
    content = next((message["kwargs"].get("content") for message in reversed(messages) if is_human(message)), "")
    blocks = content if isinstance(content, list) else [content]
    texts = [block.get("text") if isinstance(block, dict) else block for block in blocks]
    return "\n".join(text for text in texts if isinstance(text, str))
