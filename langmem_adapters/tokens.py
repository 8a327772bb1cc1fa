"""Count the tokens of texts and messages. Pure; your own counter is any function from text to a number."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from numbers import Integral
from typing import Any, TypeAlias

from langmem_adapters.errors import ConfigurationError
from langmem_adapters.model import Content, Message
from langmem_adapters.validation import call_user_code

TokenCounter: TypeAlias = Callable[[str], int]

_TOKENS_PER_MESSAGE = 4  # tokens that providers add for a message's role and delimiters
_TOKENS_PER_MEDIUM = 85  # tokens for an image: what OpenAI counts for a small one
# Tuples, as a stored block may have anything as its type, even what has no hash.
_MEDIA_TYPES = ("image", "image_url", "input_image", "audio", "input_audio", "video", "file", "document", "media")
_CALL_TYPES = ("custom_tool_call", "function_call", "invalid_tool_call", "tool_call", "tool_use")
_NON_TEXT_FIELDS = frozenset({"encrypted_content", "extras", "id", "signature", "type"})  # of content blocks
_WIDE_CHAR_PATTERN = re.compile("[\u1100-\u11ff\u2e80-\u9fff\uac00-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff]")
_ENCODED_PATTERN = re.compile(r"data:|[!-~]{200}")  # such as an image that a tool made
_ELLIPSIS = "\n[…]\n"
_MAX_WORD_CHARS = 40  # a longer run is encoded data, and is cut anywhere

_MAX_CACHED_COUNTS = 65_536
_cached_counts: dict[tuple[TokenCounter, int, int], int] = {}  # keyed by hash and length, since texts may be large


def approximate_tokens(text: str) -> int:
    """Estimate tokens: one per four characters, and one per Chinese, Japanese or Korean character.

    >>> approximate_tokens("Where is my bike?"), approximate_tokens("低头思故乡")
    (5, 5)
    """
    wide = 0 if text.isascii() else len(_WIDE_CHAR_PATTERN.findall(text))
    return wide + (len(text) - wide + 3) // 4


def message_tokens(message: Message, counter: TokenCounter = approximate_tokens) -> int:
    """Count a message with its thoughts, its tool calls (parsable or not), and a flat price for each image or file.

    Counts are cached, so counting the same text again costs almost nothing.
    """
    calls = "".join([f"{call.name}{call.args}" for call in message.tool_calls]) if message.tool_calls else ""
    for host_fields in message.host.values():
        if isinstance(invalid_calls := host_fields.get("invalid_tool_calls"), list):
            calls += "".join(
                f"{call.get('name')}{call.get('args')}" for call in invalid_calls if isinstance(call, dict)
            )
    extra = calls + _non_text(message)
    media_count = 0 if isinstance(message.content, str) else sum(map(_is_medium, message.content))
    text_tokens = _count_cached(counter, message.text + extra if extra else message.text)
    return _TOKENS_PER_MESSAGE + _TOKENS_PER_MEDIUM * media_count + text_tokens


def _is_medium(block: str | dict[Any, Any]) -> bool:
    return isinstance(block, dict) and block.get("type") in _MEDIA_TYPES


def non_text_tokens(message: Message, counter: TokenCounter) -> int:
    """Count the parts beside the text, which cannot be cut: thoughts, and what a provider's own tools found."""
    extra = _non_text(message)
    return _count_cached(counter, extra) if extra else 0


def _non_text(message: Message) -> str:
    if isinstance(message.content, str):
        return ""
    blocks = [block for block in message.content if isinstance(block, dict) and not isinstance(block.get("text"), str)]
    return "".join(
        text for block in blocks if block.get("type") not in _MEDIA_TYPES + _CALL_TYPES for text in _nested_texts(block)
    )


def _nested_texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            if name not in _NON_TEXT_FIELDS:
                yield from _nested_texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _nested_texts(inner)
    elif isinstance(value, str) and not _ENCODED_PATTERN.match(value):
        yield value


def _count_cached(counter: TokenCounter, text: str) -> int:
    key = (counter, hash(text), len(text))
    try:
        count = _cached_counts.get(key)
    except TypeError:  # a counter that has no hash, such as an object of a dataclass
        return count_tokens(text, counter)
    if count is None:
        if len(_cached_counts) >= _MAX_CACHED_COUNTS:
            _cached_counts.clear()
        _cached_counts[key] = count = count_tokens(text, counter)
    return count


def count_tokens(text: str, counter: TokenCounter) -> int:
    """The tokens of a text. Raises LangmemError if the counter fails, or gives anything but a whole number."""
    count = call_user_code("the counter of tokens", lambda: counter(text))
    if not isinstance(count, Integral):  # with fractions, the search for a cut might never end
        raise ConfigurationError(f"a counter gives a whole number of tokens, not {count!r:.50}")
    return int(count)


def truncate(text: str, max_tokens: int, counter: TokenCounter = approximate_tokens) -> str:
    """Keep the longest beginning of a text that has at most ``max_tokens``, cut between words if it has any."""
    length = _fitting_length(text, max_tokens, counter)
    kept, rest = text[:length], text[length:]
    if not rest:
        return text
    words = kept.rsplit(maxsplit=1)
    if len(words) > 1 and len(words[1]) <= _MAX_WORD_CHARS and not (rest[0].isspace() or kept[-1].isspace()):
        kept = kept.removesuffix(words[1])
    return kept.rstrip()


def truncate_start(text: str, max_tokens: int, counter: TokenCounter = approximate_tokens) -> str:
    """Keep the longest end of a text that has at most ``max_tokens``, cut between words if it has any."""
    return truncate(text[::-1], max_tokens, lambda reversed_part: counter(reversed_part[::-1]))[::-1]


def _fitting_length(text: str, max_tokens: int, counter: TokenCounter) -> int:
    """How many of a text's first characters have at most so many tokens."""
    low, high = 0, max(2 * max_tokens, 2)
    while high < len(text) and count_tokens(text[:high], counter) <= max_tokens:  # a long one is not counted whole
        low, high = high, 2 * high
    if high >= len(text):
        high = len(text)
        if count_tokens(text, counter) <= max_tokens:
            return high
    return low + bisect_right(range(low + 1, high), max_tokens, key=lambda length: count_tokens(text[:length], counter))


def truncate_middle(text: str, max_tokens: int, counter: TokenCounter = approximate_tokens) -> str:
    """Remove the middle of a text that has more than ``max_tokens``; keep its beginning and its end."""
    half = (max_tokens - count_tokens(_ELLIPSIS, counter)) // 2
    beginning = truncate(text, max_tokens, counter)
    if len(beginning) == len(text) or half < 1:
        return beginning
    end = truncate_start(text, half, counter)  # empty if its last character alone has more, as many an emoji has
    return truncate(text, half, counter) + _ELLIPSIS + end if end else beginning


def truncate_content(content: Content, max_tokens: int, counter: TokenCounter = approximate_tokens) -> Content:
    """Leave out the middle of the longest texts of a message's content; other blocks stay.

    A question may stand behind a long text, in the same block or in the next one.
    """
    if isinstance(content, str):
        return truncate_middle(content, max_tokens, counter)
    values = [block if isinstance(block, str) else block.get("text") for block in content]
    texts = {n: text for n, text in enumerate(values) if isinstance(text, str)}
    shares = _shares({n: _count_cached(counter, text) for n, text in texts.items()}, max_tokens)
    kept = {n: truncate_middle(text, shares[n], counter) for n, text in texts.items()}
    if not any(kept.values()):  # no provider takes a message of no blocks
        kept = next(({n: cut} for n, text in texts.items() if (cut := truncate(text, max_tokens, counter))), {})
    blocks: list[str | dict[Any, Any]] = []
    for n, block in enumerate(content):
        if n not in texts:
            blocks.append(block)
        elif text := kept.get(n):
            blocks.append(text if isinstance(block, str) else {**block, "text": text})
    return blocks


def _shares(sizes: Mapping[int, int], total: int) -> dict[int, int]:
    """How much of a total each gets, so that the largest ones are made equally small."""
    shares: dict[int, int] = {}
    for n in sorted(sizes, key=lambda n: (sizes[n], -n)):
        shares[n] = min(sizes[n], total // (len(sizes) - len(shares)))
        total -= shares[n]
    return shares
