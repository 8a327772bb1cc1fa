"""Turns made of LangChain's pieces: streamed chunks are added up, and the mark of an interruption is seen there too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.messages.ai import add_ai_message_chunks

from langmem_adapters.conversation.turn import INTERRUPTED, mark_interrupted
from langmem_adapters.langchain.convert import to_message
from langmem_adapters.model import Message
from langmem_adapters.providers.item_ids import without_item_ids
from langmem_adapters.providers.tool_calls import are_complete
from langmem_adapters.text import without_calls

__all__ = ["Piece", "gather", "mark"]

Piece: TypeAlias = str | BaseMessage
"""What a chain streams: texts, chunks of messages, messages."""

_COMPLETED, _RESPONSE = "completed", "resp_"  # what OpenAI says, and how its ids of whole answers begin
_RUN_ID = "lc_"  # what LangChain's own ids begin with; a stream may mix them with one of the provider's


def gather(pieces: Sequence[Piece]) -> list[Message]:
    """Make whole messages of an answer's pieces: texts are joined, the chunks of each message are added up."""
    messages = []
    for run in _runs(pieces):
        first, *rest = run
        if isinstance(first, str):
            if said := "".join(map(str, run)):
                messages.append(to_message(AIMessage(said)))
        elif isinstance(first, AIMessageChunk):
            chunks = [chunk for chunk in rest if isinstance(chunk, AIMessageChunk)]
            messages.append(_whole(add_ai_message_chunks(first, *chunks)))
        else:
            messages.append(to_message(first))
    return messages


def mark(message: Message) -> Message:
    """Mark the last message of an interrupted turn, in ``response_metadata`` for readers in LangChain."""
    host = message.host.get("langchain", {})
    told, content = host.get("response_metadata", {}), message.content
    if message.role == "assistant" and told.get("status") != _COMPLETED:
        # OpenAI keeps nothing of an answer that was not heard out, and refuses to go on from it by its ids.
        told = {name: value for name, value in told.items() if not (name == "id" and str(value).startswith(_RESPONSE))}
        content = content if isinstance(content, str) else without_item_ids(content)
    shown = {**host, "response_metadata": {**told, INTERRUPTED: True}}
    host = {**message.host, "langchain": shown}
    return mark_interrupted(message).model_copy(update={"content": content, "host": host})


def _runs(pieces: Iterable[Piece]) -> Iterable[list[Piece]]:
    """Cut pieces into those that make one message each; of messages that stream at once, chunks come in turn."""
    runs: list[list[Piece]] = []
    named: dict[str, list[Piece]] = {}
    known: str | None = None  # the id of the message whose chunks the last run is
    for piece in pieces:
        own = piece.id if isinstance(piece, AIMessageChunk) else None
        run = named.get(own) if own else None
        if run is None or (run is not runs[-1] and getattr(run[-1], "chunk_position", None) == "last"):
            if not runs or not _goes_on(runs[-1][-1], piece, known):
                runs.append([])
                known = None
            run = runs[-1]
        run.append(piece)
        if own:
            named[own] = run
        if run is runs[-1]:
            known = own or known
    return runs


def _goes_on(last: Piece, piece: Piece, known: str | None) -> bool:
    """Whether a piece belongs to the message of the piece before it."""
    if isinstance(last, str):
        return isinstance(piece, str)
    if not (isinstance(last, AIMessageChunk) and isinstance(piece, AIMessageChunk)):
        return False
    if not (known and piece.id):
        return True
    return last.chunk_position != "last" and piece.id.startswith(_RUN_ID) != known.startswith(_RUN_ID)


def _whole(chunk: AIMessageChunk) -> Message:
    """The message that chunks amount to, without calls whose arguments are not complete."""
    broken = {call["id"] for call in chunk.tool_call_chunks if not are_complete(call["args"])}
    return without_calls(to_message(chunk), broken) if broken else to_message(chunk)
