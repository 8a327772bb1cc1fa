"""MetaGPT's long-term memory: the Chroma collections in which ``RoleZeroLongTermMemory`` keeps messages.

Source: MetaGPT's ``metagpt/memory/role_zero_memory.py``. Each entry's metadata hold the message as ``obj_json``, by
itself or in ``_node_content``; the names of classes beside it are not looked at.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from langmem_adapters.errors import MissingDependency, SerializationError
from langmem_adapters.importing.transcript import Transcript, conversation
from langmem_adapters.json_files import Numbered
from langmem_adapters.metagpt import read_message
from langmem_adapters.model import Message

__all__ = ["read_collections"]

_PAGE = 500


def read_collections(path: Path) -> list[Transcript]:
    """Each collection (a role of MetaGPT) is a session, its messages in the order of their times.

    A copy of the folder is read, as Chroma changes what it opens. Collections without messages are left out.
    Raises SerializationError, naming the entry, where one cannot be read; OSError, where there is no folder.
    """
    try:
        import chromadb  # noqa: PLC0415 - an optional package
        from chromadb.config import Settings  # noqa: PLC0415 - same
        from chromadb.errors import ChromaError  # noqa: PLC0415 - same
    except ImportError as error:
        raise MissingDependency("chromadb", "chroma") from error
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        copy = Path(shutil.copytree(path, Path(folder) / "copy"))
        if not (copy / "chroma.sqlite3").is_file():
            raise SerializationError("there is no Chroma database in this folder")
        try:
            client: Any = chromadb.PersistentClient(str(copy), Settings(anonymized_telemetry=False))
            names = sorted(each.name for each in client.list_collections())
            entries = {name: _entries(client.get_collection(name, embedding_function=None)) for name in names}
            client.close()
        except (ChromaError, ValueError, RuntimeError) as error:
            raise SerializationError(f"Chroma cannot read it ({type(error).__name__})") from error
    found = [_session(name, each) for name, each in entries.items()]
    return [transcript for transcript in found if transcript.lines]


def _entries(collection: Any) -> list[tuple[str, Mapping[str, Any]]]:
    found: list[tuple[str, Mapping[str, Any]]] = []
    while True:
        page = collection.get(include=["metadatas"], limit=_PAGE, offset=len(found))
        found += zip(page["ids"], page["metadatas"], strict=True)
        if len(page["ids"]) < _PAGE:
            return found


def _session(name: str, entries: list[tuple[str, Mapping[str, Any]]]) -> Transcript:
    place = "entry {!r:.60} of the collection {!r:.60}"
    found = [Numbered(id_, _message(place.format(id_, name), id_, each)) for id_, each in entries]
    found.sort(key=lambda each: (each.value.created_at or 0.0, each.place))
    return conversation(found, name, lambda _, message: message)


def _message(place: str, id_: str, metadata: Mapping[str, Any]) -> Message:
    """What MetaGPT calls a ``LongTermMemoryItem``: a message, and when it was made."""
    try:
        item = json.loads(_obj_json(metadata))
        said = {**item["message"], "created_at": item.get("created_at")}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise SerializationError(f"{place} is not a message of MetaGPT") from error
    return read_message({**said, "id": said.get("id") or id_}, place)


def _obj_json(metadata: Mapping[str, Any]) -> str:
    if "obj_json" in metadata:
        return str(metadata["obj_json"])
    return str(json.loads(metadata["_node_content"])["metadata"]["obj_json"])
