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
from langmem_adapters.importing.transcript import Transcript, to_transcript
from langmem_adapters.json_files import LocatedValue
from langmem_adapters.metagpt import read_message
from langmem_adapters.model import Message


def read_collections(path: Path) -> list[Transcript]:
    """Each collection (a role of MetaGPT) that has messages becomes a session, its messages ordered by time.

    Raises SerializationError, naming the entry, if one cannot be read; OSError if there is no folder.
    """
    if path.is_file():
        raise SerializationError(
            "MetaGPT's Chroma is a folder, not a file; read the dump of a BrainMemory with BrainMemory.from_metagpt"
        )
    if not any(file.name == "chroma.sqlite3" and file.is_file() for file in path.iterdir()):
        raise SerializationError("there is no Chroma database in this folder")
    entries = sorted(chroma_entries(path / "chroma.sqlite3"), key=attrgetter("collection"))
    return [_to_transcript(name, group) for name, group in groupby(entries, key=attrgetter("collection"))]


def _to_transcript(name: str, entries: Iterable[ChromaEntry]) -> Transcript:
    messages = [_to_message(f"entry {entry.id!r:.60} of the collection {name!r:.60}", entry) for entry in entries]
    messages.sort(key=lambda located: located.value.created_at or 0.0)  # those of one time stay in the order of storing
    return to_transcript(messages, name, lambda _, message: message)


def _to_message(location: str, entry: ChromaEntry) -> LocatedValue:
    """What MetaGPT calls a ``LongTermMemoryItem``: a message, and when it was made."""
    try:
        fields = {**entry.record["message"], "created_at": entry.record.get("created_at")}
    except (TypeError, KeyError) as error:
        raise SerializationError(f"{location} is not a message of MetaGPT") from error
    message: Message = read_message({**fields, "id": fields.get("id") or entry.id}, location)
    return LocatedValue(location, message)
