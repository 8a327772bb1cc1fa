"""Namespaces and fingerprints: the one function that encodes a namespace, and the one that hashes a request."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote, unquote_to_bytes

from langmem_adapters.codec import UNORDERED, to_plain
from langmem_adapters.errors import ConfigurationError

__all__ = ["SUBAGENT_SUFFIX", "Namespace", "decode_namespace", "encode_namespace", "fingerprint", "to_bytes", "to_text"]

Namespace = tuple[str, ...]
"""A path such as ``("brain", tenant, user, session)``; each part may be any text of any length."""

SUBAGENT_SUFFIX: Final = "|tools"
"""The suffix that, added to the session id of an agent, names the session of the subagents that its tools call."""


def to_bytes(text: str) -> bytes:
    """Encode any string, also one with lone surrogates, which SQLite's text type cannot hold."""
    return text.encode("utf-8", "surrogatepass")


def to_text(data: bytes) -> str:
    """Decode what :func:`to_bytes` encoded; a backslash stands before what is damaged, so that others can be read."""
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return data.decode("utf-8", "backslashreplace")


def encode_namespace(namespace: Sequence[str]) -> str:
    """Encode a namespace so that no two collide, and so that a prefix of its parts is a prefix of the text.

    Every part is percent-encoded and closed by a slash: ``("a", "", "b/c")`` is ``"a//b%2Fc/"``.
    """
    try:
        return _encode_parts(namespace if isinstance(namespace, str) else tuple(namespace))
    except TypeError as error:
        raise ConfigurationError(f"a namespace is a tuple of strings, not {namespace!r:.200}") from error


@functools.lru_cache(maxsize=256)  # a process uses few at a time, and each often
def _encode_parts(namespace: str | Namespace) -> str:
    if isinstance(namespace, str) or not all(isinstance(part, str) for part in namespace):
        raise TypeError
    return "".join(quote(part, safe="", errors="surrogatepass") + "/" for part in namespace)


def decode_namespace(name: str) -> Namespace:
    """Read back what :func:`encode_namespace` wrote."""
    return tuple(to_text(unquote_to_bytes(part)) if "%" in part else part for part in name.split("/")[:-1])


def fingerprint(*parts: Any) -> str:
    """Hash plain data to 32 hexadecimal digits (the first half of a SHA-256).

    It depends on every value, type and boundary between parts, but not on the order of a dictionary or a set.
    The data cannot be read back from it, so a key never carries a prompt or a secret.
    """
    data = to_plain(list(parts))
    canonical = _to_canonical_json(data)
    if "$" in canonical and "$type" in canonical:  # one character is found far sooner than a word
        canonical = _to_canonical_json(_sort_unordered(data))
    return hashlib.sha256(canonical.encode()).hexdigest()[:32]


_to_canonical_json = json.JSONEncoder(sort_keys=True, ensure_ascii=True, separators=(",", ":")).encode


def _sort_unordered(value: Any) -> Any:
    """Sort the lists that the codec writes for unordered values."""
    if isinstance(value, list):
        return [_sort_unordered(item) for item in value]
    if not isinstance(value, dict):
        return value
    value = {key: _sort_unordered(item) for key, item in value.items()}
    if value.get("$type") in UNORDERED:
        value["$value"].sort(key=_to_canonical_json)
    return value
