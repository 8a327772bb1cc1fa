"""Names and fingerprints: the one function that encodes a namespace, and the one that hashes a request."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote, unquote

from langmem_adapters.codec import UNORDERED, plain
from langmem_adapters.errors import ConfigurationError

__all__ = ["SUBAGENT", "Namespace", "decode_namespace", "encode_namespace", "fingerprint", "to_bytes", "to_text"]

Namespace = tuple[str, ...]
"""A path such as ``("brain", tenant, user, session)``; any characters, of any length, in any part."""

SUBAGENT: Final = "|tools"
"""How the name of a session ends in which an agent speaks that another's tool calls; it begins with the other's."""


def to_bytes(text: str) -> bytes:
    """Any string has these bytes, lone surrogates too; SQLite's own text has no place for them."""
    return text.encode("utf-8", "surrogatepass")


def to_text(data: bytes) -> str:
    """What :func:`to_bytes` was given."""
    return data.decode("utf-8", "surrogatepass")


def encode_namespace(namespace: Sequence[str]) -> str:
    """Encode a namespace so that no two collide, and a prefix of parts is a prefix of characters.

    Every part is percent-encoded and closed by a slash: ``("a", "", "b/c")`` is ``"a//b%2Fc/"``.
    """
    try:
        return _encoded(namespace if isinstance(namespace, str) else tuple(namespace))
    except TypeError as error:
        raise ConfigurationError(f"a namespace is a tuple of strings, not {namespace!r:.200}") from error


@functools.lru_cache(maxsize=256)  # a process speaks of few at a time, and of each often
def _encoded(namespace: str | Namespace) -> str:
    if isinstance(namespace, str) or not all(isinstance(part, str) for part in namespace):
        raise TypeError
    return "".join(quote(part, safe="", errors="surrogatepass") + "/" for part in namespace)


def decode_namespace(name: str) -> Namespace:
    """Read back what :func:`encode_namespace` wrote."""
    return tuple(unquote(part, errors="surrogatepass") for part in name.split("/")[:-1])


def fingerprint(*parts: Any) -> str:
    """Hash plain data to 32 hexadecimal digits (the first half of a SHA-256).

    The order of keys in a dictionary, or of a set, does not change it; every value, type and boundary between
    parts does.
    The text itself cannot be read back from it, so a key never carries a prompt or a secret.
    """
    data = plain(list(parts))
    canonical = _canonical(data)
    if "$" in canonical and "$type" in canonical:  # one character is found far sooner than a word
        canonical = _canonical(_sorted(data))
    return hashlib.sha256(canonical.encode()).hexdigest()[:32]


_canonical = json.JSONEncoder(sort_keys=True, ensure_ascii=True, separators=(",", ":")).encode


def _sorted(value: Any) -> Any:
    """Bring what the codec writes as a list, but is in no order, into one."""
    if isinstance(value, list):
        return [_sorted(item) for item in value]
    if not isinstance(value, dict):
        return value
    value = {key: _sorted(item) for key, item in value.items()}
    if value.get("$type") in UNORDERED:
        value["$value"].sort(key=_canonical)
    return value
