"""Redact stored values: every text in them, except the names by which others refer to them. Pure rules."""

from __future__ import annotations

import operator
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Any, TypeAlias

from langmem_adapters.codec import decode, encode
from langmem_adapters.errors import SerializationError
from langmem_adapters.keys import to_bytes
from langmem_adapters.providers.tool_calls import call_ids
from langmem_adapters.validation import converted

Redactor: TypeAlias = Callable[[str], str]
"""Returns a text without what must not be kept. Pure and idempotent: a text that it returned stays the same."""

# The id fields of each kind of record; the key is a field by which the kind is recognised.
_ID_FIELDS = {"role": ["id"], "message": ["id"], "text": ["covers", "said"], "data": ["id"], "uuid": ["uuid"]}
_ID_FIELDS |= {name: ["session", "message_id"] for name in ("session", "message_id")}
_RECORD_FIELDS = {"message": ["message", "occurrences"]}  # the same, for those of a memory that hold records


def redactor_except_names(redactor: Redactor, names: AbstractSet[str]) -> Redactor:
    """A redactor that leaves names alone: they are stored unredacted beside the value, which must still match them."""

    def redact(text: str) -> str:
        return text if text in names else converted("redactor", str, redactor, text)

    return redact


def redact_encoded(data: bytes, redactor: Redactor) -> bytes:
    """Redact a value; returns the very same bytes if nothing changes."""
    try:
        value = decode(data)
    except SerializationError:
        return _redact_bytes(data, redactor)
    is_record = isinstance(value, dict) and "v" in value
    redacted = _redact_record(value, redactor) if is_record else _redact_value(value, redactor)
    return data if redacted is value else encode(redacted)


def _redact_record(record: Any, redactor: Redactor) -> Any:
    """Redact one of the library's own records; its ids stay, since others refer to it by them."""
    if isinstance(record, list):
        parts = [_redact_record(part, redactor) for part in record]
        return record if all(map(operator.is_, parts, record)) else parts
    if not isinstance(record, dict):
        return _redact_value(record, redactor)
    kind = next((kind for kind in _ID_FIELDS if kind in record), "")
    if kind == "role":
        redactor = redactor_except_names(redactor, _call_ids(record))
    ids = {name: record[name] for name in _ID_FIELDS.get(kind, ()) if isinstance(record.get(name), str)}
    records = {name: _redact_record(record[name], redactor) for name in _RECORD_FIELDS.get(kind, ()) if name in record}
    remaining = {name: part for name, part in record.items() if name not in ids and name not in records}
    redacted = _redact_value(remaining, redactor)
    changed = redacted is not remaining or any(part is not record[name] for name, part in records.items())
    return {**redacted, **records, **ids} if changed else record


def _call_ids(message: dict[str, Any]) -> set[str]:
    """The ids of a message's tool calls, which content and host repeat: redacted, one might equal another."""
    host = message.get("host")
    hosts = host.values() if isinstance(host, dict) else ()
    places = [fields for fields in (message, *hosts) if isinstance(fields, dict)]
    lists = [fields.get(name) for fields in places for name in ("tool_calls", "invalid_tool_calls")]
    calls = [call for calls in lists if isinstance(calls, list) for call in calls if isinstance(call, dict)]
    return set(call_ids([*calls, {"id": message.get("tool_call_id")}]))


def _redact_value(value: Any, redactor: Redactor) -> Any:
    """Redact every text in a value; returns the same object if nothing changes."""
    if isinstance(value, str):
        text = redactor(value)
        return value if text == value else text
    if isinstance(value, bytes):
        return _redact_bytes(value, redactor)
    if isinstance(value, dict):
        return _redact_mapping(value, redactor)
    if isinstance(value, list | tuple | set | frozenset):
        parts = list(value)
        redacted = [_redact_value(part, redactor) for part in parts]
        return value if all(map(operator.is_, redacted, parts)) else type(value)(redacted)
    return value


def _redact_mapping(value: dict[Any, Any], redactor: Redactor) -> dict[Any, Any]:
    redacted: dict[Any, Any] = {}
    changed = False
    for key, part in value.items():
        name, content = _redact_value(key, redactor), _redact_value(part, redactor)
        changed = changed or name is not key or content is not part
        while name is not key and (name in redacted or name in value):  # two keys that become equal are both kept
            name = f"{name}'"
        redacted[name] = content
    return redacted if changed else value


def _redact_bytes(data: bytes, redactor: Redactor) -> bytes:
    """Redact bytes; empty if they are not text and would change, since a change would break them."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = data.decode("latin-1")
        utf8 = data.decode("utf-8", "replace")
        return data if redactor(text) == text and redactor(utf8) == utf8 else b""
    redacted = redactor(text)
    return data if redacted == text else to_bytes(redacted)
