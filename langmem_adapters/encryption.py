"""AES-GCM for a sealed store, with keys that can be replaced. Needs the extra ``crypto``.

Stored form: the byte 2; the length of the key's name; the name; 8 bytes of HMAC-SHA-256 with the key, which tell a
wrong key of this name from damage (absent if the first byte is 1); a nonce of 12 bytes; the ciphertext; and a tag of
16 bytes over all of it and over the place where the value is kept. Source: NIST SP 800-38D: 2**32 values per key.
"""

from __future__ import annotations

import hmac
import re
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, NoReturn

from langmem_adapters.codec import is_sealed
from langmem_adapters.errors import (
    ConfigurationError,
    Conflict,
    Damaged,
    MissingDependency,
    NotSealed,
    SerializationError,
    StoreError,
)
from langmem_adapters.keys import Namespace
from langmem_adapters.protocols import Store
from langmem_adapters.sharing import SharedByCopies
from langmem_adapters.validation import check_store

__all__ = ["DATA_KEYS", "AESGCMCodec", "EnvelopeCodec", "key_name", "new_key"]

DATA_KEYS: Namespace = ("sealing", "keys")
"""Where an :class:`EnvelopeCodec` keeps its data keys, encrypted."""

_FORMAT_VERSION = 2  # 1 had no check of the key
_KEY_BYTES, _CHECK_BYTES, _NONCE_BYTES, _TAG_BYTES = 32, 8, 12, 16
_KEY_NAME_PATTERN = re.compile(r"[A-Za-z0-9._-]{1,64}")
_FIRST_KEY_NAME = "1"
_DAMAGE = "which is damaged: restore it from a backup"
_REFRESH_SECONDS = 60.0  # between two checks for the data keys


def new_key() -> bytes:
    """A random key of 32 bytes. Keep it apart from the data, and do not lose it: without it, nothing can be read.

    >>> len(new_key())
    32
    """
    return secrets.token_bytes(_KEY_BYTES)


class AESGCMCodec(SharedByCopies):
    """Encrypts each value with AES-256-GCM and its own nonce (a codec of :class:`SealedStore`).

    Args:
        keys: Keys of 32 bytes, by names of your choice (letters, digits, ``._-``), which are stored with each value.
        current: The name of the key that encrypts; the others only decrypt. Default: the last one.

    Raises:
        ConfigurationError: A key or a name is wrong.
        MissingDependency: ``cryptography`` is not installed.
        SerializationError: When reading, if the key is missing or is a different one.
        Damaged, NotSealed: When reading, if the bytes were changed, moved to another place, or not encrypted.

    >>> codec = AESGCMCodec({"2026": bytes(32)})
    >>> codec.decode(codec.encode(b"My bike is in the shed."))
    b'My bike is in the shed.'
    """

    def __init__(self, keys: Mapping[str, bytes], *, current: str | None = None) -> None:
        if not isinstance(keys, Mapping) or not keys:
            raise ConfigurationError("keys are given by their names: {'2026': new_key()}")
        for name, key in keys.items():
            if not isinstance(name, str) or not _KEY_NAME_PATTERN.fullmatch(name):
                raise ConfigurationError("the name of a key is made of 1 to 64 letters, digits and ._-")
            if not isinstance(key, bytes | bytearray) or len(key) != _KEY_BYTES:
                raise ConfigurationError(f"the key {name!r} is not {_KEY_BYTES} bytes: new_key() makes one")
        self.current: str = list(keys)[-1] if current is None else current
        if self.current not in list(keys):
            raise ConfigurationError(f"current is not the name of one of the keys ({', '.join(keys)})")
        self._ciphers = {name: _new_cipher(bytes(key)) for name, key in keys.items()}
        self._derived_keys = {name: hmac.digest(bytes(key), b"langmem words", "sha256") for name, key in keys.items()}
        self._checks = {
            name: hmac.digest(bytes(key), b"langmem check", "sha256")[:_CHECK_BYTES] for name, key in keys.items()
        }

    def encode(self, data: bytes) -> bytes:
        """Encrypt, without binding to a place."""
        return self.encode_at(data, b"")

    def decode(self, data: bytes) -> bytes:
        """Decrypt what :meth:`encode` gave."""
        return self.decode_at(data, b"")

    def encode_at(self, data: bytes, place: bytes) -> bytes:
        """Encrypt with the current key, bound to a place."""
        header = self._header(self.current)
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return header + nonce + bytes(self._ciphers[self.current].encrypt(nonce, bytes(data), header + place))

    def decode_at(self, data: bytes, place: bytes) -> bytes:
        """Decrypt what :meth:`encode_at` gave for this place, with the key that encrypted it.

        If nothing but the header was changed, the tag proves with one of the keys that the value is whole.
        """
        try:
            return self._decode_by_header(data, place)
        except SerializationError as error:
            headers = {name: self._header(name) for name in self._ciphers}
            for name, header in headers.items():
                with suppress(_invalid_tag_error(), ValueError):  # ValueError: too short for a nonce
                    return self._decrypt(name, data, header, place)
            if isinstance(error, NotSealed) and any(each.startswith(data[: len(each)]) for each in headers.values()):
                raise Damaged("a stored value cannot be decrypted: it was cut off") from error
            raise

    def _decode_by_header(self, data: bytes, place: bytes) -> bytes:
        name = key_name(data)
        if name not in self._ciphers:
            raise SerializationError(f"a stored value was encrypted with the key {name!r}, which was not given")
        name_end, header_end = 2 + len(name), _header_size(data)
        has_check = name_end < header_end
        if has_check and data[name_end:header_end] != self._checks[name]:
            raise SerializationError(
                f"a stored value cannot be decrypted: the key {name!r} is not the one that encrypted it"
            )
        try:
            return self._decrypt(name, data, data[:header_end], place)
        except _invalid_tag_error() as error:
            if has_check:
                raise Damaged(
                    "a stored value cannot be decrypted: it was changed, or copied from another place"
                ) from error
            raise SerializationError(
                f"a stored value cannot be decrypted: the key {name!r} is the wrong one, or the value was changed"
            ) from error

    def _decrypt(self, name: str, data: bytes, header: bytes, place: bytes) -> bytes:
        nonce_end = len(header) + _NONCE_BYTES
        return bytes(self._ciphers[name].decrypt(data[len(header) : nonce_end], data[nonce_end:], header + place))

    def _header(self, name: str) -> bytes:
        return bytes([_FORMAT_VERSION, len(name)]) + name.encode() + self._checks[name]

    @property
    def names(self) -> frozenset[str]:
        """The names of the keys."""
        return frozenset(self._ciphers)

    def index_key(self) -> bytes:
        """A key for the words of an index, derived from the current key; a new key rebuilds the index."""
        return self.derived(self.current)

    def derived(self, name: str) -> bytes:
        """A key for other uses, derived from the key of this name."""
        return self._derived_keys[name]

    def __reduce__(self) -> NoReturn:
        raise ConfigurationError("an AESGCMCodec holds keys, and cannot be pickled: make one in the other process")

    def __repr__(self) -> str:
        return f"AESGCMCodec({sorted(self._ciphers)}, current={self.current!r})"


class _DataKeys(NamedTuple):
    """What was known of the data keys at one moment: several threads may learn of new ones."""

    stored: Mapping[str, bytes]  # in their stored form
    newest: str  # the name of the newest of them
    codec: AESGCMCodec | None  # with those that are whole


class EnvelopeCodec(SharedByCopies):
    """Encrypts with data keys, which a store keeps, encrypted with your keys (a codec of :class:`SealedStore`).

    So you can replace a key of yours at once, however much is stored and whenever it expires: :meth:`rewrap` encrypts
    the data keys again, and the old key is no longer needed. Without the data keys nothing can be read: include them in
    every backup, and do not let a server evict them. They may be in another store than the data.

    A writer checks once a minute that they are there. A store that was emptied, or lost its last writes, gets them
    back: otherwise this process would go on to write values that no other process can read. So does one that has
    damaged them. If no process has a damaged data key, what it encrypted cannot be read until you restore it from a
    backup; what other data keys encrypted can. If it is the newest, nothing can be written until you :meth:`renew`.

    Args:
        store: Where the data keys are kept, under :data:`DATA_KEYS`; the first write makes the first one.
        keys: Your keys, the current one and the old ones.
        clock: Gives monotonic seconds.

    Raises:
        SerializationError: As :class:`AESGCMCodec`.

    >>> from langmem_adapters import open_store
    >>> store, old, new = open_store("memory:"), bytes(32), bytes(range(32))
    >>> stored = EnvelopeCodec(store, AESGCMCodec({"old": old})).encode(b"Noted.")
    >>> EnvelopeCodec(store, AESGCMCodec({"old": old, "new": new})).rewrap()
    1
    >>> EnvelopeCodec(store, AESGCMCodec({"new": new})).decode(stored)
    b'Noted.'
    """

    def __init__(self, store: Store, keys: AESGCMCodec, *, clock: Callable[[], float] = time.monotonic) -> None:
        check_store(store)
        if not hasattr(keys, "decode_at"):
            raise ConfigurationError(f"your keys are AESGCMCodec({{'2026': key}}), not {type(keys).__name__}")
        self._store, self._keys, self._clock = store, keys, clock
        self._known, self._checked_at = _DataKeys({}, "", None), 0.0

    def encode(self, data: bytes) -> bytes:
        """Encrypt, bound to no place."""
        return self.encode_at(data, b"")

    def decode(self, data: bytes) -> bytes:
        """Decrypt what :meth:`encode` gave."""
        return self.decode_at(data, b"")

    def encode_at(self, data: bytes, place: bytes) -> bytes:
        """Encrypt with the newest data key that this object knows, bound to a place."""
        return self._writing_codec().encode_at(data, place)

    def decode_at(self, data: bytes, place: bytes) -> bytes:
        """Decrypt what :meth:`encode_at` gave for this place."""
        known = self._known if self._known.codec else self._load()
        if known.codec is not None:
            try:
                return known.codec.decode_at(data, place)
            except SerializationError as error:
                if isinstance(error, Damaged) or key_name(data) in known.codec.names:
                    raise
            known = self._load()  # another process may have begun it since the last load
        name, codec = key_name(data), known.codec
        if codec is None or name not in codec.names:
            fate = _DAMAGE if name in known.stored else "which is gone"
            raise SerializationError(f"a stored value was encrypted with the data key {name!r}, {fate}")
        return codec.decode_at(data, place)

    def index_key(self) -> bytes:
        """A key for the words of an index; it stays the same as long as the first data key exists."""
        codec = self._writing_codec()
        return codec.derived(min(codec.names, key=_key_number))

    def rewrap(self) -> int:
        """Encrypt the data keys with your current key; returns how many had another. If interrupted, call it again."""
        return sum(self._rewrap_key(name) for name in self._store.get(DATA_KEYS))

    def renew(self) -> None:
        """Begin a new data key, which encrypts from now on: here at once, in other processes within a minute."""
        self._add_key(str(1 + _key_number(self._load().newest)))

    def _rewrap_key(self, name: str) -> bool:
        while data := self._store.get(DATA_KEYS, [name]).get(name):
            place = _data_key_place(name)
            rewrapped = self._keys.encode_at(self._keys.decode_at(data, place), place)  # no variable holds the key
            if data.startswith(rewrapped[: _header_size(rewrapped)]):
                return False
            try:
                self._store.write(DATA_KEYS, put={name: rewrapped}, guard={name: data})
            except Conflict:
                continue  # another process does the same
            return True
        return False  # the store was emptied meanwhile

    def _writing_codec(self) -> AESGCMCodec:
        known = self._known if self._known.codec else self._load()
        if self._clock() >= self._checked_at + _REFRESH_SECONDS:
            self._checked_at = self._clock()
            with suppress(StoreError, SerializationError):  # the known keys still serve, also after a rewrap
                known = self._load()
        while not known.stored:
            known = self._add_key(_FIRST_KEY_NAME)
        codec, newest = known.codec, known.newest
        if codec is None or codec.current != newest:  # an older key may have been replaced because others know it
            raise SerializationError(f"nothing can be encrypted with the data key {newest!r}, {_DAMAGE}, or renew()")
        return codec

    def _add_key(self, name: str) -> _DataKeys:
        with suppress(Conflict):  # another process has just begun it
            put = {name: self._keys.encode_at(new_key(), _data_key_place(name))}
            self._store.write(DATA_KEYS, put=put, guard={name: None})
        return self._load()

    def _load(self) -> _DataKeys:
        """Read the data keys, and restore what the store has lost or damaged, unless another process has begun anew."""
        stored = self._store.get(DATA_KEYS)
        lost = {
            name: data
            for name, data in self._known.stored.items()
            if data != stored.get(name) and not self._read_key(name, stored)
        }
        if lost:
            with suppress(Conflict):
                self._store.write(DATA_KEYS, put=lost, guard={name: stored.get(name) for name in lost})
            stored = self._store.get(DATA_KEYS)
        keys = {name: key for name in stored if (key := self._read_key(name, stored))}
        self._checked_at = self._clock()
        codec = AESGCMCodec(keys, current=max(keys, key=_key_number)) if keys else None
        self._known = known = _DataKeys(stored, max(stored, key=_key_number, default=""), codec)
        return known

    def _read_key(self, name: str, stored: Mapping[str, bytes]) -> bytes:
        """A data key; empty if missing or damaged. Raises SerializationError if that takes another key of yours."""
        try:
            return self._keys.decode_at(stored[name], _data_key_place(name)) if name in stored else b""
        except Damaged:
            return b""

    def __repr__(self) -> str:
        return f"EnvelopeCodec({self._store!r}, {self._keys!r})"


def key_name(data: bytes) -> str:
    """The name of the key that encrypted these bytes."""
    if is_sealed(data) and data[0] > _FORMAT_VERSION:
        raise SerializationError(
            "a stored value was encrypted by a newer version of langmem_adapters; upgrade to read it"
        )
    name = bytes(data[2 : 2 + data[1]]).decode("latin-1") if is_sealed(data) and len(data) > 1 else ""
    if not _KEY_NAME_PATTERN.fullmatch(name) or len(data) < _header_size(data) + _NONCE_BYTES + _TAG_BYTES:
        remedy = "export what was stored without the codec, and import it with the codec into an empty store"
        raise NotSealed(f"a stored value is not encrypted, or not by this kind of codec: {remedy}")
    return name


def _header_size(data: bytes) -> int:
    return 2 + data[1] + (_CHECK_BYTES if data[0] == _FORMAT_VERSION else 0)


def _data_key_place(name: str) -> bytes:
    return b"langmem data key " + name.encode()


def _key_number(name: str) -> int:
    return int(name) if re.fullmatch("[0-9]{1,9}", name) else 0  # a damaged name


def _new_cipher(key: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - few need it
    except ImportError as error:
        raise MissingDependency("cryptography", "crypto") from error
    return AESGCM(key)


def _invalid_tag_error() -> type[Exception]:
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - as above

    return InvalidTag
