"""Stored text in a form that may be shown: without secrets, without deceptive characters, and not too long."""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import Any

_MASK = "***"
_LOOKAHEAD_CHARS = 4_000  # read beyond what is shown, so that a secret at its end is recognized
_MAX_DEPTH = 7  # of nested data in which the text of an answer is searched

# Control characters except line end and tab, marks that reorder text, and halves of surrogate pairs.
_UNSAFE_CHARS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

_SENSITIVE_KEYS = "(?:api|access|secret)[_-]?key|secret|passwo?r?d|pwd|passphrase|token"
_NAMED_SECRET = (
    rf"(?i)\b((?:[a-z0-9]{{1,20}}[_-]){{0,3}}(?:{_SENSITIVE_KEYS}))(\\?[\"']?\s{{0,3}}[:=]\s{{0,3}}\\?[\"']?)"
    r"[^\s\"',;&<>\\]{3,}"
)
_SECRET_PATTERNS = (
    # a password in a URL, up to the last @ of the word, as the password may hold one; then a token that stands alone
    (r"(://[^\s:/?#@\"'<>]{0,200}):[^\s\"'<>]{1,1000}@", rf"\1:{_MASK}@"),
    (r"://[^\s:/?#@\"'<>]{1,200}@", f"://{_MASK}@"),
    (r"(?s)-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}-----|\Z)", _MASK),
    (r"\b(?:sk|pk|rk)[-_](?=[\w-]{0,200}\d)[\w-]{16,}", _MASK),
    (r"\b(?:gh[oprsu]_|github_pat_|glpat-|hf_|npm_|pypi-|xox[abeprs]-|lsv2_|pcsk_)[\w-]{16,}", _MASK),
    (r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bAIza[\w-]{30,}", _MASK),
    (r"\beyJ[\w-]{8,4000}\.[\w-]{8,}\.[\w-]*", _MASK),
    (r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{16,}", rf"\1 {_MASK}"),
    (_NAMED_SECRET, rf"\1\2{_MASK}"),
)


def mask_secrets(text: str) -> str:
    """A text with what looks like a password, a key or a token replaced.

    >>> mask_secrets("redis://app:hunter2@cache:6379/0")
    'redis://app:***@cache:6379/0'
    """
    for pattern, mask in _SECRET_PATTERNS:
        text = re.sub(pattern, mask, text)
    return text


def escape_control_chars(text: str) -> str:
    """A text whose control characters, and marks that reorder text, are shown as escape sequences of Python's."""
    return _UNSAFE_CHARS.sub(lambda match: match[0].encode("unicode_escape").decode(), text.replace("\r\n", "\n"))


def shorten(text: str, limit: int) -> tuple[str, int]:
    """The beginning of a text, masked and harmless, and how many of its characters are left out."""
    clean = escape_control_chars(mask_secrets(text[: limit + _LOOKAHEAD_CHARS]))
    if len(text) <= limit + _LOOKAHEAD_CHARS and len(clean) <= limit:
        return clean, 0
    visible = clean[:limit].rstrip()
    return visible, max(len(text) - len(visible), 1)


def one_line(value: object, limit: int = 60) -> str:
    r"""A value in one short line.

    >>> one_line("Where is\n my bike, and where is my helmet?", 20)
    'Where is my bike, a…'
    """
    words = as_text(value).split(maxsplit=limit)  # whole ones: the beginning of a secret is not known as such
    visible, omitted = shorten(" ".join(words[:limit]), limit)
    return f"{visible[: limit - 1]}…" if omitted or len(words) > limit else visible


def as_text(value: Any) -> str:
    """What a request or an answer says: a text as it is, what was said in messages, and other data as JSON."""
    if isinstance(value, str):
        return value
    if text := _message_text(value, _MAX_DEPTH):
        return text
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        return f"({type(value).__name__})"


def _message_text(value: Any, depth: int) -> str:
    """The texts of messages and generations, a line each; empty if the data is something else."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and depth:
        texts = [_message_text(item, depth - 1) for item in value]
        return "\n".join(texts) if all(texts) else ""
    if not (isinstance(value, dict) and depth):
        return ""
    if isinstance(value.get("message"), dict):
        return _message_text(value["message"], depth - 1)
    if "role" in value:
        content_text = _message_text(value.get("content"), depth - 1)
        calls = value.get("tool_calls") or ()
        call_lines = [f"→ {call.get('name')}" for call in calls if isinstance(call, dict)]
        return "\n".join(filter(None, [content_text, *call_lines]))
    text = value.get("text")
    return text if isinstance(text, str) and value.keys() <= {"text", "type", "info"} else ""


def amount(value: float) -> str:
    """Money or time, without an exponent.

    >>> amount(12345.678), amount(2.0), amount(0.00025)
    ('12,345.68', '2', '0.00025')
    """
    return f"{value:,.{2 if abs(value) >= 1 else 6}f}".rstrip("0").rstrip(".")


def percent(share: float) -> str:
    """A share in per cent: 0 and 100 only for nothing and for all.

    >>> percent(0.5), percent(0.9996), percent(1.0)
    ('50 %', 'above 99.9 %', '100 %')
    """
    if 0 < share < 0.001:  # noqa: PLR2004 - a tenth of a per cent
        return "below 0.1 %"
    if 0.999 < share < 1:  # noqa: PLR2004
        return "above 99.9 %"
    decimals = 0 if share in {0, 1} or 0.01 <= share <= 0.99 else 1  # noqa: PLR2004
    return f"{100 * share:.{decimals}f} %"


def format_time(seconds: float | None) -> str:
    """A Unix time as local date and minute; empty if there is none."""
    if seconds is None:
        return ""
    try:
        return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):
        return f"{seconds:g}"  # beyond the calendar
