"""Count the tokens of texts and messages. Pure; your own counter is any function from text to a number."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from langmem_adapters.model import Content, Message

__all__ = [
    "TokenCounter",
    "approximate_tokens",
    "elide",
    "message_tokens",
    "tokens_besides",
    "truncate",
    "truncate_content",
]

TokenCounter: TypeAlias = Callable[[str], int]

_PER_MESSAGE = 4  # tokens that providers add for a message's role and delimiters
_PER_MEDIUM = 85  # tokens for an image: what OpenAI counts for a small one
_MEDIA = frozenset({"image", "image_url", "input_image", "audio", "input_audio", "video", "file", "document", "media"})
_CALLS = frozenset({"custom_tool_call", "function_call", "invalid_tool_call", "tool_call", "tool_use"})
_NO_TEXT = frozenset({"encrypted_content", "extras", "id", "signature", "type"})  # block fields that are no text
_WIDE = re.compile("[\u1100-\u11ff\u2e80-\u9fff\uac00-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff]")
_ENCODED = re.compile(r"data:|[!-~]{200}")  # such as an image that a tool made
_GAP = "\n[…]\n"
_LONGEST_WORD = 40  # characters; a longer run is encoded data, and is cut anywhere

_REMEMBERED = 65_536
_counts: dict[tuple[TokenCounter, int, int], int] = {}  # keyed by hash and length, since texts may be large


def approximate_tokens(text: str) -> int:
    """Estimate tokens: one per four characters, and one per Chinese, Japanese or Korean character.

    >>> approximate_tokens("Where is my bike?"), approximate_tokens("低头思故乡")
    (5, 5)
    """
    wide = 0 if text.isascii() else len(_WIDE.findall(text))
    return wide + (len(text) - wide + 3) // 4


def message_tokens(message: Message, counter: TokenCounter = approximate_tokens) -> int:
    """Count a message with its thoughts, its tool calls (parsable or not), and a flat price for each image or file.

    Counts are cached, so counting the same text again costs almost nothing.
    """
    calls = "".join(f"{call.name}{call.args}" for call in message.tool_calls)
    for own in message.host.values():
        if isinstance(invalid := own.get("invalid_tool_calls"), list):
            calls += "".join(f"{call.get('name')}{call.get('args')}" for call in invalid if isinstance(call, dict))
    more = calls + _besides(message)
    media = 0 if isinstance(message.content, str) else sum(map(_is_medium, message.content))
    return _PER_MESSAGE + _PER_MEDIUM * media + _counted(counter, message.text + more if more else message.text)


def _is_medium(block: str | dict[Any, Any]) -> bool:
    return isinstance(block, dict) and block.get("type") in _MEDIA


def tokens_besides(message: Message, counter: TokenCounter) -> int:
    """Count the parts beside the text, which cannot be cut: thoughts, and what a provider's own tools found."""
    besides = _besides(message)
    return _counted(counter, besides) if besides else 0


def _besides(message: Message) -> str:
    if isinstance(message.content, str):
        return ""
    blocks = [block for block in message.content if isinstance(block, dict) and not isinstance(block.get("text"), str)]
    return "".join(text for block in blocks if block.get("type") not in _MEDIA | _CALLS for text in _leaves(block))


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            if name not in _NO_TEXT:
                yield from _leaves(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner)
    elif isinstance(value, str) and not _ENCODED.match(value):
        yield value


def _counted(counter: TokenCounter, text: str) -> int:
    key = (counter, hash(text), len(text))
    count = _counts.get(key)
    if count is None:
        if len(_counts) >= _REMEMBERED:
            _counts.clear()
        count = _counts[key] = counter(text)
    return count


def truncate(text: str, max_tokens: int, counter: TokenCounter = approximate_tokens) -> str:
    """Keep the longest beginning of a text that has at most ``max_tokens``, cut between words if it has any."""
    low, high = 0, max(2 * max_tokens, 2)
    while high < len(text) and counter(text[:high]) <= max_tokens:  # so that a long text is not counted whole
        low, high = high, 2 * high
    if high >= len(text):
        high = len(text)
        if counter(text) <= max_tokens:
            return text
    while high - low > 1:
        middle = (low + high) // 2
        if counter(text[:middle]) <= max_tokens:
            low = middle
        else:
            high = middle
    words = text[:low].rsplit(maxsplit=1)
    if len(words) > 1 and len(words[1]) <= _LONGEST_WORD and not (text[low].isspace() or text[low - 1].isspace()):
        low -= len(words[1])
    return text[:low].rstrip()


def elide(text: str, max_tokens: int, counter: TokenCounter = approximate_tokens) -> str:
    """Remove the middle of a text that has more than ``max_tokens``; keep its beginning and its end."""
    room = (max_tokens - counter(_GAP)) // 2
    beginning = truncate(text, max_tokens, counter)
    if len(beginning) == len(text) or room < 1:
        return beginning
    beginning = truncate(text, room, counter)
    return beginning + _GAP + truncate(text[: -8 * room - 1 : -1], room, counter)[::-1]


def truncate_content(content: Content, max_tokens: int, counter: TokenCounter = approximate_tokens) -> Content:
    """Apply :func:`truncate` to the texts of a message's content, the first ones first; other blocks stay."""
    if isinstance(content, str):
        return truncate(content, max_tokens, counter)
    blocks: list[str | dict[Any, Any]] = []
    left = max_tokens
    for block in content:
        text = block if isinstance(block, str) else block.get("text")
        if not isinstance(text, str):
            blocks.append(block)
            continue
        kept = truncate(text, left, counter) if left > 0 else ""
        left -= counter(kept)
        if kept:
            blocks.append(kept if isinstance(block, str) else {**block, "text": kept})
    return blocks
