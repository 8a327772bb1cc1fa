"""Which namespaces of a file were written last, from an index that need not be written for each message.

What is in the index, ``listed_at``, follows the time of the last write, ``updated_at``, and stays behind it for up to
:data:`BEHIND` seconds. So a message that comes soon after another leaves the index as it is: a page less to write.
"""

from __future__ import annotations

import math
import sqlite3
from typing import Any

__all__ = ["BEHIND", "recent"]

BEHIND = 60
"""Seconds."""

_WANTED = (
    "FROM langmem_namespaces WHERE parent = :parent AND listed_at <= :at AND (updated_at, name) < (:at, :name)"
    " AND (expires_at IS NULL OR expires_at > :now)"
)
_NTH = f"SELECT listed_at {_WANTED} ORDER BY listed_at DESC LIMIT 1 OFFSET :n"
_RECENT = f"SELECT name, updated_at {_WANTED} AND listed_at >= :since ORDER BY updated_at DESC, name DESC LIMIT :n"


def recent(
    connection: sqlite3.Connection, parent: str, *, limit: int | None, before: tuple[float, str] | None, now: float
) -> list[tuple[str, float]]:
    """Encoded names and times of the namespaces below a parent, the latest first; ``before`` is such a row."""
    at, name = before or (math.inf, "")
    wanted: dict[str, Any] = {"parent": parent, "at": at, "name": name, "now": now}
    since = -math.inf
    if limit:
        # None of the latest n is older than the n-th that is listed; it may only be listed as older than it is.
        nth = connection.execute(_NTH, {**wanted, "n": limit - 1}).fetchone()
        since = -math.inf if nth is None else nth[0] - BEHIND
    rows = connection.execute(_RECENT, {**wanted, "since": since, "n": -1 if limit is None else limit})
    return rows.fetchall()
