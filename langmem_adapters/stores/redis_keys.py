"""The names of the keys that the Redis store uses."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from langmem_adapters.errors import ConfigurationError
from langmem_adapters.keys import Namespace, decode_namespace, encode_namespace
from langmem_adapters.stores.redis_packing import HOLE, form, pack

__all__ = ["FOR_EVER", "GONE", "Keys", "NamespaceKeys"]

_ROOT = "."  # for the empty name, as an empty hash tag would be none; no encoded name equals it
_KINDS = ("log", "ids", "val")
FOR_EVER, GONE = -1, -2
"""PTTL's replies for a key that does not expire, and for one that does not exist."""
_REMEMBERED = 1024


class NamespaceKeys(NamedTuple):
    """The keys of a namespace: three of its own, and a row in its parent's directory (the root has no parent).

    The other fields are the commands for them that every write sends, packed once.
    """

    log: bytes
    ids: bytes
    values: bytes
    directory: bytes
    row: bytes
    sizes: tuple[bytes, ...]
    lasting: tuple[bytes, ...]
    add_id: bytes
    add_entry: bytes
    list_row: bytes
    directory_lasting: bytes
    directory_size: tuple[bytes, ...]

    def expiring(self, milliseconds: int | None) -> tuple[bytes, ...]:
        """Give all keys the same expiry, or none."""
        if milliseconds is None:
            return self.lasting
        return tuple(pack("PEXPIRE", key, milliseconds) for key in self[:3])

    def listing(self, now: float, milliseconds: int | None) -> tuple[bytes, ...]:
        """List it in its parent's directory; if it expires, the last two replies are the directory's TTL and size."""
        if not self.directory:
            return ()
        score = repr(now).encode()
        add = self.list_row % (len(score), score)
        return (add, self.directory_lasting) if milliseconds is None else (add, *self.directory_size)


class Keys:
    """Keys below a prefix. A namespace's name is their hash tag, so they share a slot of a cluster."""

    def __init__(self, prefix: str) -> None:
        if "{" in prefix or "}" in prefix:
            raise ConfigurationError(f"a prefix cannot hold braces, as they mark the hash tag: {prefix!r}")
        self.prefix = prefix
        self.place: Callable[[Namespace], NamespaceKeys] = lru_cache(_REMEMBERED)(self._place)

    def _place(self, namespace: Namespace) -> NamespaceKeys:
        log, ids, values = self.of(namespace)
        directory = self.directory(namespace[:-1]) if namespace else b""
        row = encode_namespace(namespace[-1:]).encode()
        return NamespaceKeys(
            *(log, ids, values, directory, row),
            sizes=(pack("XLEN", log), pack("SCARD", ids)),
            lasting=tuple(pack("PERSIST", key) for key in (log, ids, values)),
            add_id=form("SADD", ids, HOLE),
            add_entry=form("XADD", log, "*", "i", HOLE, "d", HOLE),
            list_row=form("ZADD", directory, HOLE, row),
            directory_lasting=pack("PERSIST", directory),
            directory_size=(pack("PTTL", directory), pack("ZCARD", directory)),
        )

    def of(self, namespace: Namespace) -> tuple[bytes, bytes, bytes]:
        """The names of a namespace's keys alone, for when many are checked at once."""
        start = self._start(namespace)
        log, ids, values = (start + kind.encode() for kind in _KINDS)
        return log, ids, values

    def directory(self, parent: Namespace) -> bytes:
        """The name of the key that lists a namespace's children."""
        return self._start(parent) + b"dir"

    def child(self, parent: Namespace, row: bytes) -> Namespace:
        """Read a row of a directory."""
        return (*parent, *decode_namespace(row.decode()))

    def pattern(self, prefix: Namespace) -> bytes:
        """A SCAN pattern for the keys of all namespaces that begin with these parts."""
        ours = re.sub(r"([*?\[\]\\])", r"\\\1", self.prefix)
        return f"{ours}{{{encode_namespace(prefix)}*}}:*".encode()

    def namespace(self, key: bytes) -> Namespace | None:
        """Parse the namespace from a key; None for keys of other kinds."""
        name, _, kind = key.decode(errors="replace")[len(self.prefix) + 1 :].rpartition("}:")
        ours = kind in _KINDS and (name == _ROOT or name.endswith("/"))
        return decode_namespace(name) if ours else None

    def _start(self, namespace: Namespace) -> bytes:
        return f"{self.prefix}{{{encode_namespace(namespace) or _ROOT}}}:".encode()
