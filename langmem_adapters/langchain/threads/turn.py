"""Turns made of LangChain's pieces: chunks are joined, and LangChain's readers see the mark of an interruption too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.messages.ai import add_ai_message_chunks

from langmem_adapters.conversation.storable import UNSTORED_KEY
from langmem_adapters.conversation.turn import INTERRUPTED, mark_interrupted
from langmem_adapters.langchain.threads.storable import to_message_leniently
from langmem_adapters.model import Message
from langmem_adapters.providers.item_ids import kwargs_without_item_ids, without_item_ids
from langmem_adapters.providers.tool_calls import are_complete
from langmem_adapters.text import without_calls
from langmem_adapters.warn_once import WarnOnce

Piece: TypeAlias = str | BaseMessage
"""What a chain streams: texts, chunks of messages, messages."""

_COMPLETED_STATUS = "completed"  # OpenAI's, of a whole answer
_RESPONSE_ID_PREFIX = "resp_"  # OpenAI's
_REPORTED_FIELDS = ("additional_kwargs", "response_metadata", "usage_metadata")
_RUN_ID_PREFIX = "lc_"  # LangChain's own; a stream may mix them with one of the provider's


def gather(pieces: Sequence[Piece], warn: WarnOnce) -> list[Message]:
    """Make whole messages of an answer's pieces: texts are joined, and so are the chunks of each message.

    What a model reports in each chunk, such as costs, may not add up; then it is left out, with a warning.
    """
    messages = []
    for group in _group_by_message(pieces):
        first, *rest = group
        if isinstance(first, str):
            if text := "".join(map(str, group)):
                messages.append(to_message_leniently(AIMessage(text)))
        elif isinstance(first, AIMessageChunk):
            chunks = [first, *(chunk for chunk in rest if isinstance(chunk, AIMessageChunk))]
            messages.append(_merge_chunks(chunks, warn))
        else:
            messages.append(to_message_leniently(first))
    return messages


def mark_interrupted_message(message: Message) -> Message:
    """Mark the last message of an interrupted turn, also in ``response_metadata`` for readers in LangChain."""
    fields, content = dict(message.host.get("langchain", {})), message.content
    reported = dict(fields.get("response_metadata", {}))
    if message.role == "assistant" and reported.get("status") != _COMPLETED_STATUS:
        # OpenAI does not keep an answer that was not read to its end, and refuses to go on from it by its ids.
        if str(reported.get("id")).startswith(_RESPONSE_ID_PREFIX):
            del reported["id"]
        content = content if isinstance(content, str) else without_item_ids(content)
        if kwargs := fields.get("additional_kwargs"):
            fields["additional_kwargs"] = kwargs_without_item_ids(kwargs)
    fields["response_metadata"] = {**reported, INTERRUPTED: True}
    host = {**message.host, "langchain": fields}
    return mark_interrupted(message).model_copy(update={"content": content, "host": host})


def _group_by_message(pieces: Iterable[Piece]) -> Iterable[list[Piece]]:
    """Group pieces by the message that they belong to; chunks of messages that stream at once may alternate."""
    groups: list[list[Piece]] = []
    group_by_id: dict[str, list[Piece]] = {}
    last_id: str | None = None  # the id of the message whose chunks the last group is
    for piece in pieces:
        piece_id = piece.id if isinstance(piece, AIMessageChunk) else None
        group = group_by_id.get(piece_id) if piece_id else None
        if group is not None and group is not groups[-1] and getattr(group[-1], "chunk_position", None) == "last":
            group = None  # that message is complete, and another one has its id
        if group is None:
            if not groups or not _continues(groups[-1][-1], piece, last_id):
                groups.append([])
                last_id = None
            group = groups[-1]
        group.append(piece)
        if piece_id:
            group_by_id[piece_id] = group
        if group is groups[-1]:
            last_id = piece_id or last_id
    return groups


def _continues(last: Piece, piece: Piece, last_id: str | None) -> bool:
    """Whether a piece belongs to the message of the piece before it."""
    if isinstance(last, str):
        return isinstance(piece, str)
    if not (isinstance(last, AIMessageChunk) and isinstance(piece, AIMessageChunk)):
        return False
    if not (last_id and piece.id):
        return True
    return last.chunk_position != "last" and piece.id.startswith(_RUN_ID_PREFIX) != last_id.startswith(_RUN_ID_PREFIX)


def _merge_chunks(chunks: Sequence[AIMessageChunk], warn: WarnOnce) -> Message:
    """The message that chunks add up to, without calls whose arguments are incomplete."""
    unmerged: list[str] = []
    try:
        merged = add_ai_message_chunks(*chunks)
    except (TypeError, ValueError) as error:
        warn("an answer is stored without those parts of its chunks that cannot be merged", error)
        merged, unmerged = _merge_bare_chunks(chunks)
    message = to_message_leniently(merged)
    if unmerged:
        message = message.model_copy(update={"metadata": {**message.metadata, UNSTORED_KEY: unmerged}})
    incomplete_ids = {call["id"] for call in merged.tool_call_chunks if not are_complete(call["args"])}
    return without_calls(message, incomplete_ids) if incomplete_ids else message


def _merge_bare_chunks(chunks: Sequence[AIMessageChunk]) -> tuple[AIMessageChunk, list[str]]:
    """The chunks joined by content and calls, or else by text and calls; and the names of what is left out."""
    unmerged = [name for name in _REPORTED_FIELDS if any(getattr(chunk, name) for chunk in chunks)]
    bare = [
        AIMessageChunk(content=chunk.content, id=chunk.id, tool_call_chunks=chunk.tool_call_chunks) for chunk in chunks
    ]
    try:
        return add_ai_message_chunks(*bare), unmerged
    except (TypeError, ValueError):
        texts = [chunk.model_copy(update={"content": str(chunk.text)}) for chunk in bare]
        return add_ai_message_chunks(*texts), sorted([*unmerged, "content"])
