"""The one place that every stored byte passes: it is redacted, and may be encrypted.

A :class:`SealedStore` wraps any store and is handed to the services in its place. It seals values and log entries:
messages, summaries, working memory, memories, experiences and cached answers. Indexes read from the store, so they
see redacted text only; for an encrypted store, :class:`~langmem_adapters.indexes.lexical_keyed.KeyedLexicalIndex`
keeps the words. Names are not sealed: namespaces (tenants, users, sessions, tags), keys and ids stay as they are.
Some ids are hashes of the content, so that a guess of the content can be checked against them.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

from langmem_adapters.codec import decode, encode
from langmem_adapters.errors import ConfigurationError, Conflict, Damaged, LangmemError, NotSealed, SerializationError
from langmem_adapters.keys import Namespace, encode_namespace, to_bytes
from langmem_adapters.protocols import Appended, Listed, Page, Store
from langmem_adapters.sharing import Shared
from langmem_adapters.validation import check_store, check_sync_function

__all__ = ["BindingCodec", "Codec", "Redactor", "SealedStore", "check_codec"]

T = TypeVar("T")

Redactor: TypeAlias = Callable[[str], str]
"""Returns a text without what must not be kept. Pure and idempotent: a text that it returned stays the same."""

_DAMAGED_VALUE = b"\0"  # no valid stored value: every reader finds it damaged
_log = logging.getLogger("langmem_adapters")
_MAX_ATTEMPTS = 64  # of a guarded write, while other writers are faster
# The id fields of each kind of record; the key is a field by which the kind is recognised.
_ID_FIELDS = {"role": ["id"], "message": ["id"], "text": ["covers", "said"], "data": ["id"], "uuid": ["uuid"]}
_ID_FIELDS |= {name: ["session", "message_id"] for name in ("session", "message_id")}
_RECORD_FIELDS = ("message", "occurrences")  # fields of a memory that hold records
# A session's values of hashes and ids only, for a higher floor.
_UNREDACTED_KEYS = frozenset({"begun", "departed", "deleted"})


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

    A :class:`~langmem_adapters.errors.Damaged` entry is passed on as damaged, with a warning, so that a page or session
    is served without it. A :class:`~langmem_adapters.errors.NotSealed` value raises: otherwise it would be replaced.

    Args:
        store: The store that it wraps.
        codec: Encodes and decodes the stored form; a :class:`BindingCodec` is told the place.
        redactor: Is called for every text in a value before it is written, at any depth, except for names of keys
            and entries that are written, and ids of the library's records. Bytes that are not text are dropped whole
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
        return data if self._redactor is None else _redact_encoded(data, _redactor_except_names(self._redactor, names))

    def get(self, namespace: Namespace, keys: Sequence[str] | None = None) -> dict[str, bytes]:
        """:meth:`Store.get`."""
        return self._open_values(namespace, self.store.get(namespace, keys))

    def scan(self, namespace: Namespace, **options: Any) -> Page:
        """:meth:`Store.scan`."""
        page = self.store.scan(namespace, **options)
        items = [item._replace(data=self._open(_entry_place(namespace, item.id), item.data)) for item in page.items]
        return Page(items, page.total, self._open_values(namespace, page.values))

    def append(
        self,
        namespace: Namespace,
        entries: Sequence[tuple[str, bytes]],
        *,
        put: Mapping[str, bytes] | None = None,
        keys: Sequence[str] = (),
        ttl: float | None = None,
    ) -> Appended:
        """:meth:`Store.append`."""
        if put:
            self.get(namespace, keys)  # an unsealed value is refused before anything replaces it
        names = {*(put or ()), *(id_ for id_, _ in entries)}
        sealed, values = self._seal_entries(namespace, entries, names), self._seal_values(namespace, put or {}, names)
        appended = self.store.append(namespace, sealed, put=values, keys=keys, ttl=ttl)
        return appended._replace(values=self._open_values(namespace, appended.values))

    def write(
        self,
        namespace: Namespace,
        *,
        put: Mapping[str, bytes] | None = None,
        delete: Sequence[str] = (),
        append: Sequence[tuple[str, bytes]] = (),
        guard: Mapping[str, bytes | None] | None = None,
        **options: Any,
    ) -> None:
        """:meth:`Store.write`."""
        names = {*(put or ()), *delete, *(id_ for id_, _ in append)}
        change: dict[str, Any] = {
            "put": self._seal_values(namespace, put or {}, names),
            "delete": delete,
            "append": self._seal_entries(namespace, append, names),
            **options,
        }
        if not guard or all(expected is None for expected in guard.values()):
            self.store.write(namespace, guard=guard, **change)
        else:
            self._write_guarded(namespace, guard, change)

    def _write_guarded(
        self, namespace: Namespace, guard: Mapping[str, bytes | None], change: Mapping[str, Any]
    ) -> None:
        """Write if the stored forms are still those whose decoded values were compared with the guard."""
        for attempt in range(_MAX_ATTEMPTS):
            stored = self.store.get(namespace, list(guard))
            values = self._open_values(namespace, stored)
            for key, expected in guard.items():
                if not self._matches(key, values.get(key), expected):
                    raise Conflict(f"the value {key!r} was changed by another writer")
            try:
                self.store.write(namespace, guard={key: stored.get(key) for key in guard}, **change)
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

    def clear(self, namespace: Namespace) -> None:
        """:meth:`Store.clear`."""
        self.store.clear(namespace)

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
        return [(id_, self._seal(_entry_place(namespace, id_), self.redacted(data, names))) for id_, data in entries]

    def _seal_values(
        self, namespace: Namespace, values: Mapping[str, bytes], names: AbstractSet[str]
    ) -> dict[str, bytes]:
        unredacted = _UNREDACTED_KEYS if namespace[:1] == ("brain",) else ()
        return {
            key: self._seal(_value_place(namespace, key), data if key in unredacted else self.redacted(data, names))
            for key, data in values.items()
        }

    def _open_values(self, namespace: Namespace, values: Mapping[str, bytes]) -> dict[str, bytes]:
        return {key: self._open(_value_place(namespace, key), data, is_value=True) for key, data in values.items()}

    def _seal(self, place: bytes, data: bytes) -> bytes:
        if self._binding is not None:
            return _converted("codec", bytes, self._binding.encode_at, data, place)
        return data if self._codec is None else _converted("codec", bytes, self._codec.encode, data)

    def _open(self, place: bytes, data: bytes, *, is_value: bool = False) -> bytes:
        try:
            if self._binding is not None:
                return _converted("codec", bytes, self._binding.decode_at, data, place)
            return data if self._codec is None else _converted("codec", bytes, self._codec.decode, data)
        except Damaged as damage:
            if is_value and isinstance(damage, NotSealed):
                raise
            _log.warning("an unreadable value is left out: %s", damage)
            return _DAMAGED_VALUE


def check_codec(codec: object) -> None:
    """Raise ConfigurationError for anything but a codec or None."""
    if isinstance(codec, type):
        raise ConfigurationError(f"a codec is an object, {codec.__name__}(…), and not its class")
    if codec is not None and not isinstance(codec, Codec | BindingCodec):
        raise ConfigurationError(f"a codec has the methods encode and decode, which {type(codec).__name__} lacks")


def _converted(what: str, kind: type[T], convert: Callable[..., T], *args: Any) -> T:
    """What a codec or redactor returns. Its own errors are raised as SerializationError, which callers expect."""
    try:
        converted = convert(*args)
    except LangmemError:
        raise
    except Exception as error:
        raise SerializationError(f"the {what} failed: {type(error).__name__}") from error
    if not isinstance(converted, kind):
        raise ConfigurationError(f"a {what} returns {kind.__name__}, not {type(converted).__name__}")
    return converted


# --- places


def _value_place(namespace: Namespace, key: str) -> bytes:
    return to_bytes(f"{encode_namespace(namespace)}v{key}")


def _entry_place(namespace: Namespace, id_: str) -> bytes:
    return to_bytes(f"{encode_namespace(namespace)}e{id_}")


# --- redaction


def _redactor_except_names(redactor: Redactor, names: AbstractSet[str]) -> Redactor:
    """A redactor that leaves names alone: they are stored unredacted beside the value, which must still match them."""

    def redact(text: str) -> str:
        return text if text in names else _converted("redactor", str, redactor, text)

    return redact


def _redact_encoded(data: bytes, redactor: Redactor) -> bytes:
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
    ids = {name: record[name] for name in _ID_FIELDS.get(kind, ()) if isinstance(record.get(name), str)}
    record_names = [name for name in _RECORD_FIELDS if name in record] if kind == "message" else []
    records = {name: _redact_record(record[name], redactor) for name in record_names}
    remaining = {name: part for name, part in record.items() if name not in ids and name not in records}
    redacted = _redact_value(remaining, redactor)
    changed = redacted is not remaining or any(part is not record[name] for name, part in records.items())
    return {**redacted, **records, **ids} if changed else record


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
