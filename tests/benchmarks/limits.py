"""The bare limits: what the same bytes cost in SQLite and Redis without any library above the driver.

SQLite runs with the settings of our store: WAL, synchronous NORMAL or FULL, pages of 8 kB, the statements prepared
once. Redis is asked by redis-py with hiredis, one command for one round trip.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Sequence
from typing import Any

import redis

__all__ = ["RedisList", "RedisStrings", "SQLiteLog", "SQLiteValues"]


class SQLiteLog:
    """A table of messages, each there once however often it is delivered."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._connection.execute("CREATE TABLE log (seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, data BLOB)")
        self._ids = itertools.count()

    def fill(self, data: Sequence[bytes]) -> None:
        self._connection.execute("BEGIN")
        for item in data:
            self.append(item)
        self._connection.execute("COMMIT")

    def append(self, data: bytes) -> None:
        id_ = f"message-{next(self._ids):08}"
        self._connection.execute("INSERT OR IGNORE INTO log (id, data) VALUES (?, ?)", (id_, data))

    def newest(self, k: int) -> list[Any]:
        return self._connection.execute("SELECT data FROM log ORDER BY seq DESC LIMIT ?", (k,)).fetchall()

    def everything(self) -> list[Any]:
        return self._connection.execute("SELECT data FROM log ORDER BY seq").fetchall()


class RedisList:
    """A list of messages."""

    def __init__(self, url: str, key: str) -> None:
        self._client: Any = redis.Redis.from_url(url)
        self._key = key

    def fill(self, data: Sequence[bytes]) -> None:
        for start in range(0, len(data), 1000):
            self._client.rpush(self._key, *data[start : start + 1000])

    def append(self, *data: bytes) -> None:
        self._client.rpush(self._key, *data)

    def newest(self, k: int) -> list[Any]:
        return list(self._client.lrange(self._key, -k, -1))

    def everything(self) -> list[Any]:
        return list(self._client.lrange(self._key, 0, -1))


class SQLiteValues:
    """A table of answers by a hash of 16 bytes."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._connection.execute("CREATE TABLE answers (key BLOB PRIMARY KEY, data BLOB NOT NULL)")

    def put(self, key: bytes, data: bytes) -> None:
        self._connection.execute("INSERT OR REPLACE INTO answers VALUES (?, ?)", (key, data))

    def get(self, key: bytes) -> bytes:
        data: bytes = self._connection.execute("SELECT data FROM answers WHERE key = ?", (key,)).fetchone()[0]
        return data


class RedisStrings:
    """Answers as strings by a hash."""

    def __init__(self, url: str, prefix: str) -> None:
        self._client: Any = redis.Redis.from_url(url)
        self._prefix = prefix.encode()

    def put(self, key: bytes, data: bytes) -> None:
        self._client.set(self._prefix + key, data)

    def get(self, key: bytes) -> bytes:
        data: bytes = self._client.get(self._prefix + key)
        return data
