"""Read experiences from the files of MetaGPT's pools: only data is read, and no class that they name is imported."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import sqlite3
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from pydantic import ValidationError

from langmem_adapters.codec import is_number
from langmem_adapters.errors import SerializationError
from langmem_adapters.model import Experience

_CHROMA, _DOCSTORE = "chroma.sqlite3", "docstore.json"
_DUMMY = ("req", "resp", "")  # request, response and tag of the fake experience that MetaGPT's BM25 pool begins with
_MS_PER_SECOND = 1000
_COSTS = ("time_cost", "money_cost")  # are added up
_SIDECAR_SUFFIXES = ("-journal", "-wal")  # files that SQLite keeps beside a database, and reads with it
_ROWS_QUERY = """SELECT e.id, CAST(c.name AS TEXT), CAST(e.embedding_id AS TEXT), m.string_value FROM embeddings AS e
    JOIN segments AS s ON s.id = e.segment_id JOIN collections AS c ON c.id = s.collection
    LEFT JOIN embedding_metadata AS m ON m.id = e.id AND m.key IN ('obj_json', '_node_content')
    WHERE ? IN ('', c.name) ORDER BY e.id, m.key DESC"""
# Chroma 1 queues changes and applies them later. Earlier versions did both in one transaction; max_seq_id was a blob.
_PENDING_QUERY = """SELECT 1 FROM embeddings_queue AS q JOIN collections AS c ON q.topic LIKE '%/' || c.id
    JOIN segments AS s ON s.collection = c.id AND s.scope = 'METADATA' LEFT JOIN max_seq_id AS m ON m.segment_id = s.id
    WHERE ? IN ('', c.name) AND q.seq_id > ifnull(m.seq_id, 0) LIMIT 1"""
_TABLES = ("embeddings", "segments", "collections", "embedding_metadata", "embeddings_queue", "max_seq_id")
_Row: TypeAlias = "tuple[str, str, str | None]"
_log = logging.getLogger("langmem_adapters")


def read_metagpt_pool(path: str | os.PathLike[str], *, collection: str = "") -> list[Experience]:
    """Read what MetaGPT's ``exp_pool`` has persisted, oldest first, without the fake first entry.

    Requests and responses are MetaGPT's texts. Other fields that are not valid here, such as a score of 0, are left
    out. The number of unreadable records is logged.

    Args:
        path: The pool's folder, its ``docstore.json`` (BM25), or its ``chroma.sqlite3``, which must not be in use. If a
            folder has both, as after a change of MetaGPT's retrieval type, both are read.
        collection: The collection of a Chroma database; default: all of them.

    Raises SerializationError, which quotes no content, if this is not such a pool.

    ::

        for experience in read_metagpt_pool(".exp_data"):
            pool.at(experience.tag).create(experience)
    """
    path = Path(path).expanduser()
    files = [path / name for name in (_CHROMA, _DOCSTORE)] if path.is_dir() else [path]
    files = [file for file in files if file.is_file()]
    if not files:
        raise SerializationError(f"{path} has neither a {_DOCSTORE} nor a {_CHROMA}")
    experiences = [_to_experience(record) for file in files for record in _records(file, collection)]
    if None in experiences:
        _log.warning("%d records of %s are not experiences and are left out", experiences.count(None), path)
    readable = [each for each in experiences if each and (each.req, each.resp, each.tag) != _DUMMY]
    return sorted(readable, key=lambda each: each.timestamp or 0.0)


def _records(path: Path, collection: str) -> list[Any]:
    if path.name == _CHROMA:
        return [entry.record for entry in chroma_entries(path, collection)]
    nodes = None
    with contextlib.suppress(ValueError, RecursionError):  # these errors hold the whole text
        document = json.loads(path.read_bytes())
        nodes = document.get("docstore/data") if isinstance(document, dict) else None
    if not isinstance(nodes, dict):
        raise SerializationError(f"{path} is not a docstore of LlamaIndex")
    return [_stored_object(node.get("__data__") if isinstance(node, dict) else None) for node in nodes.values()]


class ChromaEntry(NamedTuple):
    """An entry of a Chroma collection, and the object that MetaGPT keeps in it (``record``); None, if there is none."""

    collection: str
    id: str
    record: Any


def chroma_entries(path: Path, collection: str = "") -> list[ChromaEntry]:
    """The entries of a ``chroma.sqlite3``, oldest first, of one collection or of all. Needs only SQLite.

    If a killed process left an unfinished transaction, a copy is read, in which SQLite rolls it back. Raises
    SerializationError if this is not such a file, or if Chroma has queued changes that it has not applied yet.
    """
    try:
        rows = _load_rows(path.resolve(), collection)
    except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter of an error that quotes a damaged name
        problem = "cannot be read, as it is in use" if _is_locked(error) else "is not a database of Chroma"
        raise SerializationError(f"{path} {problem}: {error}") from error
    if rows is None:
        raise SerializationError(f"{path} has changes that Chroma has not applied yet: open it once with Chroma")
    return [ChromaEntry(name, id_, _stored_object(text)) for name, id_, text in rows]


def _load_rows(path: Path, collection: str) -> list[_Row] | None:
    sidecars = [path.with_name(path.name + suffix) for suffix in _SIDECAR_SUFFIXES]
    if any(file.exists() and not file.is_file() for file in (path, *sidecars)):  # SQLite would wait for a pipe
        raise SerializationError(f"{path}, or what lies beside it, is not a file")
    try:
        return _read_rows(path, "ro", collection)
    except sqlite3.OperationalError as error:
        if _is_locked(error):  # another process is writing, and a copy would have half of its change
            raise
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        for file in (path, *filter(Path.is_file, sidecars)):
            shutil.copyfile(file, Path(folder, file.name))  # the copy is writable, even if the original is not
        return _read_rows(Path(folder, path.name), "rw", collection)


def _is_locked(error: Exception) -> bool:
    return isinstance(error, sqlite3.OperationalError) and "locked" in str(error)


def _read_rows(path: Path, mode: str, collection: str) -> list[_Row] | None:
    """Collection, id and text of each entry, in one consistent state; None, if changes are pending."""
    row_by_number: dict[int, _Row] = {}
    with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode={mode}", uri=True)) as connection:
        connection.text_factory = partial(str, encoding="utf-8", errors="replace")  # an error would quote the text
        _refuse_computed(connection)
        connection.execute("BEGIN")
        if connection.execute(_PENDING_QUERY, (collection,)).fetchone():
            return None
        for number, name, id_, text in connection.execute(_ROWS_QUERY, (collection,)):
            row_by_number.setdefault(number, (name, id_, text))  # obj_json before _node_content
    return [*row_by_number.values()]


def _refuse_computed(connection: sqlite3.Connection) -> None:
    """Let nothing be read by a view, or from tables with computed columns: either may compute without end."""
    connection.set_authorizer(lambda *access: sqlite3.SQLITE_DENY if access[-1] else sqlite3.SQLITE_OK)
    for table in _TABLES:
        if any(is_hidden for *_, is_hidden in connection.execute(f"PRAGMA table_xinfo({table})")):
            raise sqlite3.DatabaseError(f"{table} has computed columns")


def _stored_object(node: Any) -> Any:
    """The object that a node of MetaGPT holds, as JSON in its metadata."""
    node = _parse_json(node)
    metadata = node.get("metadata") if isinstance(node, dict) else None
    if not isinstance(metadata, dict):
        return node
    return _parse_json(metadata.get("obj_json") or metadata.get("obj"))


def _parse_json(value: Any) -> Any:
    if isinstance(value, str):
        with contextlib.suppress(ValueError, RecursionError):
            return json.loads(value)
        return None
    return value


def _to_experience(record: Any) -> Experience | None:
    if not isinstance(record, dict) or "req" not in record or "resp" not in record:
        return None
    fields = {name: record[name] for name in Experience.model_fields if record.get(name) is not None}
    fields.pop("expires_at", None)
    if not is_number(fields.get("timestamp")):  # no order has a place for NaN
        fields.pop("timestamp", None)
    metric = fields.get("metric")
    if isinstance(metric, dict):
        fields["metric"] = {name: value for name, value in metric.items() if name not in _COSTS or is_number(value)}
        if "time_cost" in fields["metric"]:
            fields["metric"]["time_cost"] /= _MS_PER_SECOND
    try:
        experience = _validate_leniently(fields)
        experience.to_bytes()
    except (ValidationError, SerializationError):
        return None
    return experience


def _validate_leniently(fields: dict[str, Any]) -> Experience:
    """The experience, without those optional fields that are not valid here."""
    try:
        return Experience.model_validate(fields)
    except ValidationError as error:
        for problem in error.errors(include_input=False, include_url=False):
            name, *part = problem["loc"]
            if name == "metric" and part:
                fields["metric"].pop(str(part[0]), None)
            else:
                fields.pop(str(name), None)
        return Experience.model_validate(fields)
