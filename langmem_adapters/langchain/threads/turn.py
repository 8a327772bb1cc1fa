"""Turns made of LangChain's pieces: chunks are joined, and LangChain's readers see the mark of an interruption too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.messages.ai import add_ai_message_chunks

from langmem_adapters.conversation.turn import INTERRUPTED, mark_interrupted
from langmem_adapters.langchain.threads.storable import UNSTORED, legible
from langmem_adapters.model import Message
from langmem_adapters.providers.item_ids import without_item_ids, without_item_ids_beside
from langmem_adapters.providers.tool_calls import are_complete
from langmem_adapters.text import without_calls
from langmem_adapters.warn_once import WarnOnce

__all__ = ["Piece", "gather", "mark"]

Piece: TypeAlias = str | BaseMessage
"""What a chain streams: texts, chunks of messages, messages."""

_COMPLETED, _RESPONSE = "completed", "resp_"  # OpenAI's status of a whole answer, and how its response ids begin
_REPORTED = ("additional_kwargs", "response_metadata", "usage_metadata")
_RUN_ID = "lc_"  # how LangChain's own ids begin; a stream may mix them with one of the provider's


def gather(pieces: Sequence[Piece], warn: WarnOnce) -> list[Message]:
    """Make whole messages of an answer's pieces: texts are joined, and so are the chunks of each message.

    What a model reports in each chunk, such as costs, may not add up; then it is left out, with a warning.
    """
    messages = []
    for run in _runs(pieces):
        first, *rest = run
        if isinstance(first, str):
            if said := "".join(map(str, run)):
                messages.append(legible(AIMessage(said)))
        elif isinstance(first, AIMessageChunk):
            messages.append(_whole([first, *(chunk for chunk in rest if isinstance(chunk, AIMessageChunk))], warn))
        else:
            messages.append(legible(first))
    return messages


def mark(message: Message) -> Message:
    """Mark the last message of an interrupted turn, also in ``response_metadata`` for readers in LangChain."""
    host = message.host.get("langchain", {})
    told, content = host.get("response_metadata", {}), message.content
    if message.role == "assistant" and told.get("status") != _COMPLETED:
        # OpenAI does not keep an answer that was not read to its end, and refuses to go on from it by its ids.
        told = {name: value for name, value in told.items() if not (name == "id" and str(value).startswith(_RESPONSE))}
        content = content if isinstance(content, str) else without_item_ids(content)
        if beside := host.get("additional_kwargs"):
            host = {**host, "additional_kwargs": without_item_ids_beside(beside)}
    shown = {**host, "response_metadata": {**told, INTERRUPTED: True}}
    host = {**message.host, "langchain": shown}
    return mark_interrupted(message).model_copy(update={"content": content, "host": host})


def _runs(pieces: Iterable[Piece]) -> Iterable[list[Piece]]:
    """Group pieces by the message that they belong to; chunks of messages that stream at once may alternate."""
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


def _whole(chunks: Sequence[AIMessageChunk], warn: WarnOnce) -> Message:
    """The message that chunks add up to, without calls whose arguments are incomplete."""
    lost: list[str] = []
    try:
        whole = add_ai_message_chunks(*chunks)
    except (TypeError, ValueError) as error:
        warn("an answer is stored without those parts of its chunks that cannot be merged", error)
        whole, lost = _bare(chunks)
    message = legible(whole)
    if lost:
        message = message.model_copy(update={"metadata": {**message.metadata, UNSTORED: lost}})
    broken = {call["id"] for call in whole.tool_call_chunks if not are_complete(call["args"])}
    return without_calls(message, broken) if broken else message


def _bare(chunks: Sequence[AIMessageChunk]) -> tuple[AIMessageChunk, list[str]]:
    """The chunks joined by content and calls, or else by text and calls; and the names of what is left out."""
    lost = [name for name in _REPORTED if any(getattr(chunk, name) for chunk in chunks)]
    bare = [
        AIMessageChunk(content=chunk.content, id=chunk.id, tool_call_chunks=chunk.tool_call_chunks) for chunk in chunks
    ]
    try:
        return add_ai_message_chunks(*bare), lost
    except (TypeError, ValueError):
        words = [chunk.model_copy(update={"content": str(chunk.text)}) for chunk in bare]
        return add_ai_message_chunks(*words), sorted([*lost, "content"])
