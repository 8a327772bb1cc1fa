"""The names of the keys that the Redis store uses."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from langmem_adapters.errors import ConfigurationError
from langmem_adapters.keys import Namespace, decode_namespace, encode_namespace
from langmem_adapters.stores.redis_packing import PLACEHOLDER, pack, template

_ROOT_NAME = "."  # for the empty name, as an empty hash tag would be none; no encoded name equals it
_KINDS = ("log", "ids", "val")
_DIRECTORY_KIND = "dir"
NO_EXPIRY, NO_KEY = -1, -2
"""PTTL's replies for a key that does not expire, and for one that does not exist."""
_MAX_CACHED_NAMESPACES = 1024


class NamespaceKeys(NamedTuple):
    """The keys of a namespace: three of its own, and a row in its parent's directory (the root has no parent).

    The other fields are the commands for them that every write sends, packed once.
    """

    log: bytes
    ids: bytes
    values: bytes
    directory: bytes
    row: bytes
    count_entries: bytes
    count_ids: bytes
    persist_commands: tuple[bytes, ...]
    add_id: bytes
    add_entry: bytes
    list_row: bytes
    persist_directory: bytes
    directory_state: tuple[bytes, ...]

    def expiry_commands(self, milliseconds: int | None) -> tuple[bytes, ...]:
        """Give all keys the same expiry, or none."""
        if milliseconds is None:
            return self.persist_commands
        return tuple(pack("PEXPIRE", key, milliseconds) for key in self[:3])

    def listing_commands(self, now: float, milliseconds: int | None) -> tuple[bytes, ...]:
        """List it in its parent's directory; if it expires, the last two replies are the directory's TTL and size."""
        if not self.directory:
            return ()
        score = repr(now).encode()
        add = self.list_row % (len(score), score)
        return (add, self.persist_directory) if milliseconds is None else (add, *self.directory_state)


class Keys:
    """Keys below a prefix. A namespace's name is their hash tag, so they share a slot of a cluster."""

    def __init__(self, prefix: str) -> None:
        if "{" in prefix or "}" in prefix:
            raise ConfigurationError(f"a prefix cannot hold braces, as they mark the hash tag: {prefix!r}")
        self.prefix = prefix
        self.for_namespace: Callable[[Namespace], NamespaceKeys] = lru_cache(_MAX_CACHED_NAMESPACES)(
            self._for_namespace
        )

    def _for_namespace(self, namespace: Namespace) -> NamespaceKeys:
        log, ids, values = self.data_keys(namespace)
        directory = self.directory(namespace[:-1]) if namespace else b""
        row = encode_namespace(namespace[-1:]).encode()
        return NamespaceKeys(
            *(log, ids, values, directory, row),
            count_entries=pack("XLEN", log),
            count_ids=pack("SCARD", ids),
            persist_commands=tuple(pack("PERSIST", key) for key in (log, ids, values)),
            add_id=template("SADD", ids, PLACEHOLDER),
            add_entry=template("XADD", log, "*", "i", PLACEHOLDER, "d", PLACEHOLDER),
            list_row=template("ZADD", directory, PLACEHOLDER, row),
            persist_directory=pack("PERSIST", directory),
            directory_state=(pack("PTTL", directory), pack("ZCARD", directory)),
        )

    def data_keys(self, namespace: Namespace) -> tuple[bytes, bytes, bytes]:
        """The names of a namespace's keys alone, for when many are checked at once."""
        start = self._key_prefix(namespace)
        log, ids, values = (start + kind.encode() for kind in _KINDS)
        return log, ids, values

    def directory(self, parent: Namespace) -> bytes:
        """The name of the key that lists a namespace's children."""
        return self._key_prefix(parent) + _DIRECTORY_KIND.encode()

    def child(self, parent: Namespace, row: bytes) -> Namespace:
        """Read a row of a directory; what is damaged names no child that exists."""
        return (*parent, *decode_namespace(row.decode(errors="backslashreplace")))

    def pattern(self, parts: Namespace, *, anywhere: bool = False) -> bytes:
        """A SCAN pattern for the keys of all namespaces that begin with these parts, or may have them anywhere."""
        escaped_prefix = re.sub(r"([*?\[\]\\])", r"\\\1", self.prefix)
        return f"{escaped_prefix}{{{'*' if anywhere else ''}{encode_namespace(parts)}*}}:*".encode()

    def namespace(self, key: bytes) -> Namespace | None:
        """Parse the namespace from a key; None for keys of other kinds."""
        return self._parse(key, _KINDS)

    def parent(self, key: bytes) -> Namespace | None:
        """Parse the parent from the key of its directory; None for keys of other kinds."""
        return self._parse(key, (_DIRECTORY_KIND,))

    def _parse(self, key: bytes, kinds: Sequence[str]) -> Namespace | None:
        name, _, kind = key.decode(errors="replace")[len(self.prefix) + 1 :].rpartition("}:")
        is_own_key = kind in kinds and (name == _ROOT_NAME or name.endswith("/"))
        return decode_namespace(name) if is_own_key else None

    def _key_prefix(self, namespace: Namespace) -> bytes:
        return f"{self.prefix}{{{encode_namespace(namespace) or _ROOT_NAME}}}:".encode()
