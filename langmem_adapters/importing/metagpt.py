"""MetaGPT's long-term memory: the Chroma collections in which ``RoleZeroLongTermMemory`` keeps messages.

Source: MetaGPT's ``metagpt/memory/role_zero_memory.py``. The names of classes beside a message are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from langmem_adapters.errors import SerializationError
from langmem_adapters.experience.metagpt_pools import ChromaEntry, chroma_entries
from langmem_adapters.importing.transcript import Transcript, conversation
from langmem_adapters.json_files import Numbered
from langmem_adapters.metagpt import read_message
from langmem_adapters.model import Message

__all__ = ["read_collections"]


def read_collections(path: Path) -> list[Transcript]:
    """Each collection (a role of MetaGPT) that has messages becomes a session, its messages ordered by time.

    Raises SerializationError, naming the entry, if one cannot be read; OSError if there is no folder.
    """
    if path.is_file():
        raise SerializationError(
            "MetaGPT's Chroma is a folder, not a file; read the dump of a BrainMemory with BrainMemory.from_metagpt"
        )
    if "chroma.sqlite3" not in (each.name for each in path.iterdir()):
        raise SerializationError("there is no Chroma database in this folder")
    entries = sorted(chroma_entries(path / "chroma.sqlite3"), key=attrgetter("collection"))
    return [_session(name, each) for name, each in groupby(entries, key=attrgetter("collection"))]


def _session(name: str, entries: Iterable[ChromaEntry]) -> Transcript:
    found = [_message(f"entry {each.id!r:.60} of the collection {name!r:.60}", each) for each in entries]
    found.sort(key=lambda each: (each.value.created_at or 0.0, each.place))
    return conversation(found, name, lambda _, message: message)


def _message(place: str, entry: ChromaEntry) -> Numbered:
    """What MetaGPT calls a ``LongTermMemoryItem``: a message, and when it was made."""
    try:
        said = {**entry.held["message"], "created_at": entry.held.get("created_at")}
    except (TypeError, KeyError, AttributeError) as error:
        raise SerializationError(f"{place} is not a message of MetaGPT") from error
    message: Message = read_message({**said, "id": said.get("id") or entry.id}, place)
    return Numbered(place, message)
