"""ChatGPT's export, ``conversations.json``: conversations as trees, of which the last shown branch is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from langmem_adapters.conversation.session import TITLE
from langmem_adapters.errors import SerializationError
from langmem_adapters.importing.transcript import Transcript, first_error, to_transcript
from langmem_adapters.json_files import LocatedValue
from langmem_adapters.model import Message


class _Author(BaseModel):
    role: str
    name: str | None = None


class _Content(BaseModel):
    content_type: str = "text"
    parts: list[Any] | None = None
    text: str | None = None

    def message_text(self) -> str:
        # Speech is a part with its text, beside a part that names the recording.
        parts = [part.get("text") if isinstance(part, dict) else part for part in self.parts or []]
        texts = [part for part in parts if isinstance(part, str)]
        if self.text:
            texts.append(self.text)
        return "\n".join(texts)

    def attachments(self) -> list[Any]:
        """Pictures and other files: the export names them, and does not hold them."""
        return [part for part in self.parts or [] if not isinstance(part, str)]


class _Message(BaseModel):
    id: str
    author: _Author
    create_time: float | None = None
    content: _Content | None = None


class _Node(BaseModel):
    message: _Message | None = None
    parent: str | None = None


class _Conversation(BaseModel):
    title: str | None = None
    id: str | None = None
    conversation_id: str | None = None
    current_node: str | None = None
    mapping: dict[str, _Node]

    def visible_messages(self) -> list[_Message]:
        """The messages from the root to the node that was shown last, without those that say nothing."""
        messages = [node.message for node in self._path_to_root()][::-1]
        return [
            message
            for message in messages
            if message and message.content and (message.content.message_text() or message.content.attachments())
        ]

    def _path_to_root(self) -> Iterator[_Node]:
        parents = {node.parent for node in self.mapping.values()}
        leaves = [name for name in self.mapping if name not in parents]
        name = self.current_node or (leaves[-1] if leaves else None)
        seen: set[str] = set()
        while name is not None:
            if name not in self.mapping or name in seen:
                raise SerializationError(f"its node {name!r:.60} is missing, or its own ancestor")
            seen.add(name)
            yield self.mapping[name]
            name = self.mapping[name].parent


def read_chatgpt(values: Sequence[LocatedValue]) -> list[Transcript]:
    """Each conversation is a session, by its id, with its title. Raises SerializationError, naming the place."""
    transcripts: dict[str, Transcript] = {}
    for location, value in values:
        try:
            conversation = _Conversation.model_validate(value)
            messages = conversation.visible_messages()
        except (ValidationError, SerializationError) as error:
            raise SerializationError(f"{location} is not a conversation of ChatGPT: {first_error(error)}") from None
        name = conversation.conversation_id or conversation.id
        if not name or name in transcripts:
            raise SerializationError(f"{location} has no id of its own")
        transcripts[name] = _to_transcript(location, name, conversation, messages)
    return list(transcripts.values())


def _to_transcript(location: str, name: str, conversation: _Conversation, messages: Sequence[_Message]) -> Transcript:
    numbered = [LocatedValue(location, message) for message in messages]
    transcript = to_transcript(numbered, name, lambda _, message: _to_message(message))
    if conversation.title:
        values = {"v": 1, "type": "session", "session": name, "values": {TITLE: conversation.title}}
        transcript.lines.insert(0, values)
    return transcript


def _to_message(message: _Message) -> Message:
    content = message.content or _Content()
    metadata: dict[str, Any] = {}
    if content.content_type != "text":
        metadata["content_type"] = content.content_type
    if attachments := content.attachments():
        metadata["parts"] = attachments
    return Message(
        id=message.id,
        role=message.author.role,
        name=message.author.name,
        content=content.message_text(),
        created_at=message.create_time,
        metadata=metadata,
    )
