"""Encode commands in RESP, the protocol of Redis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def pack_in_python(words: tuple[bytes | str | float, ...]) -> bytes:
    """Encode as hiredis does, without it."""
    encoded = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    strings = [b"$%d\r\n%b\r\n" % (len(word), word) for word in encoded]
    return b"*%d\r\n%b" % (len(words), b"".join(strings))


try:
    from hiredis import pack_command
except ImportError:  # redis-py works without it, too
    _pack: Callable[[Any], bytes] = pack_in_python
else:
    _pack = pack_command


_STRING_TYPES = (bytes, str)


def pack(*words: bytes | str | float) -> bytes:
    """Encode a command as the server reads it: an array of strings.

    Numbers are converted here: hiredis crashes the process if an interrupt comes while it converts them.
    """
    return _pack(tuple([word if isinstance(word, _STRING_TYPES) else str(word) for word in words]))


class Packer:
    """:func:`pack` for the commands that redis-py itself sends when it connects, such as SELECT."""

    @staticmethod
    def pack(command: str, *words: bytes | str | float) -> list[bytes]:
        """Encode a command, whose name may have several words."""
        return [pack(*command.split(), *words)]


PLACEHOLDER = None
"""A word of a :func:`template` that is filled in later."""


def template(*words: bytes | str | None) -> bytes:
    """Encode a command with holes, to be filled by ``%`` with the length of each word and the word, both as bytes."""
    strings = [b"*%d\r\n" % len(words)]
    for word in words:
        if word is PLACEHOLDER:
            strings.append(b"$%d\r\n%b\r\n")  # as it is: the length and the word are filled in later
        else:
            encoded = word.encode() if isinstance(word, str) else word
            strings.append(b"$%d\r\n%b\r\n" % (len(encoded), encoded.replace(b"%", b"%%")))
    return b"".join(strings)
