"""Which namespaces of a file were written last, from an index that need not be written for each message.

What is in the index, ``listed_at``, follows the time of the last write, and stays behind it for up to
:data:`~langmem_adapters.stores.sqlite_namespaces.BEHIND` seconds.
"""

from __future__ import annotations

import math
import sqlite3
from typing import Any

from langmem_adapters.stores.sqlite_namespaces import BEHIND, UPDATED_AT

__all__ = ["recent"]

_WANTED = (
    f"FROM (SELECT name, listed_at, {UPDATED_AT} AS written_at FROM langmem_namespaces"  # noqa: S608 - a constant
    " WHERE parent = :parent AND name <> :parent AND listed_at <= :at AND (expires_at IS NULL OR expires_at > :now))"
    " WHERE (written_at, name) < (:at, :name)"
)
_NTH = f"SELECT listed_at {_WANTED} ORDER BY listed_at DESC LIMIT 1 OFFSET :n"
_RECENT = f"SELECT name, written_at {_WANTED} AND listed_at >= :since ORDER BY written_at DESC, name DESC LIMIT :n"


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
