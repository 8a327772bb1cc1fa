"""The one place that every stored byte passes: it is redacted, and may be encrypted.

A :class:`SealedStore` wraps any store and is handed to the services in its place. It seals values and log entries:
messages, summaries, working memory, memories, experiences and cached answers. Indexes read from the store, so they
see redacted text only; for an encrypted store, :class:`~langmem_adapters.indexes.lexical_keyed.KeyedLexicalIndex`
keeps the words. Names are not sealed: namespaces (tenants, users, sessions, tags), keys and ids stay as they are.
Some ids are hashes of the content, so that a guess of the content can be checked against them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Protocol, runtime_checkable

from langmem_adapters.errors import ConfigurationError, Conflict, Damaged, NotSealed
from langmem_adapters.flow import Flow, blocking, step
from langmem_adapters.keys import Namespace, encode_namespace, to_bytes
from langmem_adapters.protocols import Appended, Listed, Page, Store
from langmem_adapters.redaction import Redactor, redact_encoded, redactor_except_names
from langmem_adapters.run_callbacks import outside_run
from langmem_adapters.sharing import Shared
from langmem_adapters.validation import check_store, check_sync_function, converted
from langmem_adapters.warn_once import warn_of_damage

__all__ = ["BindingCodec", "Codec", "Redactor", "SealedStore", "check_codec"]

_DAMAGED_VALUE = b"\0"  # no valid stored value: every reader finds it damaged
_VALUE, _ENTRY = "v", "e"  # the kinds of what is sealed
_MAX_ATTEMPTS = 64  # of a guarded write, while other writers are faster
# Values of hashes and ids only, and a session's deadline, for higher floors. Redacted, one id might equal another, and
# a guarded write would not notice who came first.
_UNREDACTED = {("brain", key) for key in ("begun", "departed", "deleted", "imported")}
_UNREDACTED |= {("working", "revision"), ("langgraph", "census"), ("langgraph", "")}
_DEADLINE = ("brain", "expires")  # not sealed: a time is no secret, and a process without the codec may renew it


@runtime_checkable
class Codec(Protocol):
    """Converts bytes to another form, such as compressed or encrypted, and back.

    The form may differ each time. Decoding raises SerializationError rather than return wrong bytes. If a missing key
    cannot be the reason, it raises :class:`~langmem_adapters.errors.Damaged`, and other values are still served.
    """

    def encode(self, data: bytes, /) -> bytes:
        """The bytes as they are stored."""

    def decode(self, data: bytes, /) -> bytes:
        """What :meth:`encode` was given."""


@runtime_checkable
class BindingCodec(Protocol):
    """A codec that binds what it writes to the place where it is kept: it cannot be read at another place."""

    def encode_at(self, data: bytes, place: bytes, /) -> bytes:
        """The bytes as they are stored in this place."""

    def decode_at(self, data: bytes, place: bytes, /) -> bytes:
        """What :meth:`encode_at` was given for the same place."""


class SealedStore(Shared):
    """Implements :class:`~langmem_adapters.protocols.Store` in front of another store.

    Guards are compared by the decoded values, not by their stored form; so a guarded write takes one more round trip,
    which reads the guarded values. So does an append that puts values.

    A session's deadline is stored as it is, like all times. A :class:`~langmem_adapters.errors.Damaged` entry is passed
    on as damaged, with a warning, so that a page or session is served without it. A
    :class:`~langmem_adapters.errors.NotSealed` value raises: otherwise it would be replaced.

    Args:
        store: The store that it wraps.
        codec: Encodes and decodes the stored form; a :class:`BindingCodec` is told the place.
        redactor: Is called for every text in a value before it is written, at any depth, except for names of keys
            and entries of the same write, and ids of the library's records. Bytes that are not text are dropped whole
            if it would change them.

    >>> from langmem_adapters import BrainMemory, open_store
    >>> kept = open_store("memory:")
    >>> brain = BrainMemory(SealedStore(kept, redactor=lambda text: text.replace("4711", "[pin]")), "monday")
    >>> brain.add_talk("My pin is 4711.")
    >>> [message.text for message in brain.messages()]
    ['My pin is [pin].']
    """

    def __init__(
        self, store: Store, *, codec: Codec | BindingCodec | None = None, redactor: Redactor | None = None
    ) -> None:
        check_store(store)
        check_codec(codec)
        check_sync_function("redactor", redactor)
        self.store = store
        self._binding = codec if isinstance(codec, BindingCodec) else None
        self._codec = codec if isinstance(codec, Codec) else None
        self._redactor = redactor

    def redacted(self, data: bytes, names: AbstractSet[str] = frozenset()) -> bytes:
        """The value as a read will return it, if it is written together with these ``names`` of keys and entries."""
        if self._redactor is None:
            return data
        with outside_run():  # it may ask a model
            return redact_encoded(data, redactor_except_names(self._redactor, names))

    @blocking
    def get(self, namespace: Namespace, keys: Sequence[str] | None = None) -> Flow[dict[str, bytes]]:
        """:meth:`Store.get`."""
        return self._open_values(namespace, (yield from step(self.store.get, namespace, keys)))

    @blocking
    def scan(self, /, namespace: Namespace, **options: Any) -> Flow[Page]:
        """:meth:`Store.scan`."""
        page = yield from step(self.store.scan, namespace, **options)
        items = [item._replace(data=self._open(namespace, item.data, _ENTRY, item.id)) for item in page.items]
        return Page(items, page.total, self._open_values(namespace, page.values))

    @blocking
    def append(
        self,
        namespace: Namespace,
        entries: Sequence[tuple[str, bytes]],
        *,
        put: Mapping[str, bytes] | None = None,
        keys: Sequence[str] = (),
        ttl: float | None = None,
    ) -> Flow[Appended]:
        """:meth:`Store.append`."""
        if put:
            yield from step(self.get, namespace, keys)  # an unsealed value is refused before anything replaces it
        names = {*(put or ()), *(id_ for id_, _ in entries)}
        sealed, values = self._seal_entries(namespace, entries, names), self._seal_values(namespace, put or {}, names)
        appended = yield from step(self.store.append, namespace, sealed, put=values, keys=keys, ttl=ttl)
        return appended._replace(values=self._open_values(namespace, appended.values))

    @blocking
    def write(
        self,
        /,
        namespace: Namespace,
        *,
        put: Mapping[str, bytes] | None = None,
        delete: Sequence[str] = (),
        append: Sequence[tuple[str, bytes]] = (),
        guard: Mapping[str, bytes | None] | None = None,
        **options: Any,
    ) -> Flow[None]:
        """:meth:`Store.write`."""
        names = {*(put or ()), *delete, *(guard or ()), *(id_ for id_, _ in append)}
        change: dict[str, Any] = {
            "put": self._seal_values(namespace, put or {}, names),
            "delete": delete,
            "append": self._seal_entries(namespace, append, names),
            **options,
        }
        if not guard or all(expected is None for expected in guard.values()):
            yield from step(self.store.write, namespace, guard=guard, **change)
        else:
            yield from self._write_guarded(namespace, guard, change)

    def _write_guarded(
        self, namespace: Namespace, guard: Mapping[str, bytes | None], change: Mapping[str, Any]
    ) -> Flow[None]:
        """Write if the stored forms are still those whose decoded values were compared with the guard."""
        for attempt in range(_MAX_ATTEMPTS):
            stored = yield from step(self.store.get, namespace, list(guard))
            values = self._open_values(namespace, stored)
            for key, expected in guard.items():
                if not self._matches(key, values.get(key), expected):
                    raise Conflict(f"the value {key!r} was changed by another writer")
            try:
                stored_guard = {key: stored.get(key) for key in guard}
                yield from step(self.store.write, namespace, guard=stored_guard, **change)
            except Conflict:
                if attempt == _MAX_ATTEMPTS - 1:  # each time another writer was first, and wrote the same value
                    raise
            else:
                return

    def _matches(self, key: str, value: bytes | None, expected: bytes | None) -> bool:
        """Whether a value is as expected; a caller may expect what it wrote, before it was redacted."""
        if value is None or expected is None:
            return value is expected
        return value in {expected, self.redacted(expected, {key})}

    @blocking
    def clear(self, namespace: Namespace) -> Flow[None]:
        """:meth:`Store.clear`."""
        yield from step(self.store.clear, namespace)

    def recent(self, parent: Namespace, **options: Any) -> list[Listed]:
        """:meth:`Store.recent`."""
        return self.store.recent(parent, **options)

    def namespaces(self, prefix: Namespace = ()) -> Iterator[Namespace]:
        """:meth:`Store.namespaces`."""
        return self.store.namespaces(prefix)

    def close(self) -> None:
        """:meth:`Store.close`."""
        self.store.close()

    def __repr__(self) -> str:
        return f"SealedStore({self.store!r})"

    def _seal_entries(
        self, namespace: Namespace, entries: Sequence[tuple[str, bytes]], names: AbstractSet[str]
    ) -> list[tuple[str, bytes]]:
        return [(id_, self._seal(_place(namespace, _ENTRY, id_), self.redacted(data, names))) for id_, data in entries]

    def _seal_values(
        self, namespace: Namespace, values: Mapping[str, bytes], names: AbstractSet[str]
    ) -> dict[str, bytes]:
        sealed = {}
        for key, data in values.items():
            kind = (*namespace[:1], key)
            kept = data if kind in _UNREDACTED else self.redacted(data, names)
            sealed[key] = data if kind == _DEADLINE else self._seal(_place(namespace, _VALUE, key), kept)
        return sealed

    def _open_values(self, namespace: Namespace, values: Mapping[str, bytes]) -> dict[str, bytes]:
        return {
            key: data if (*namespace[:1], key) == _DEADLINE else self._open(namespace, data, _VALUE, key)
            for key, data in values.items()
        }

    def _seal(self, place: bytes, data: bytes) -> bytes:
        if self._binding is not None:
            return converted("codec", bytes, self._binding.encode_at, data, place)
        return data if self._codec is None else converted("codec", bytes, self._codec.encode, data)

    def _open(self, namespace: Namespace, data: bytes, kind: str, name: str) -> bytes:
        place = _place(namespace, kind, name)
        try:
            if self._binding is not None:
                return converted("codec", bytes, self._binding.decode_at, data, place)
            return data if self._codec is None else converted("codec", bytes, self._codec.decode, data)
        except Damaged as damage:
            if kind == _VALUE and isinstance(damage, NotSealed):
                raise NotSealed(f"the value {name!r} of {'/'.join(namespace)} cannot be read: {damage}") from damage
            warn_of_damage(data, f"an unreadable value is left out: {damage}")
            return _DAMAGED_VALUE


def check_codec(codec: object) -> None:
    """Raise ConfigurationError for anything but a codec or None."""
    if isinstance(codec, type):
        raise ConfigurationError(f"a codec is an object, {codec.__name__}(…), and not its class")
    if codec is not None and not isinstance(codec, Codec | BindingCodec):
        raise ConfigurationError(f"a codec has the methods encode and decode, which {type(codec).__name__} lacks")


def _place(namespace: Namespace, kind: str, name: str) -> bytes:
    """A name, its kind and its namespace, so that no two places are equal.

    A name with a slash could pass for parts of a namespace. So a space, which no encoded namespace has, is before it.
    """
    space = " " if "/" in name else ""
    return to_bytes(f"{encode_namespace(namespace)}{space}{kind}{name}")
