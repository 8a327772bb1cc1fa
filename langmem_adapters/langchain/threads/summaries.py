"""What a thread had of its session when a run began and others have removed since: a summary stands for it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from langmem_adapters.keys import fingerprint
from langmem_adapters.langchain.threads.exchanges import TextOf, is_dialogue
from langmem_adapters.langchain.threads.overlap import shared_positions
from langmem_adapters.langchain.threads.view import Thread
from langmem_adapters.model import Message

SHARED_IDS_KEY: Final = "brain_knew"
"""Key in a thread's state: the ids of what it had of its session when a run began, except what it recorded itself."""

FIRST_SHARED_KEY: Final = "brain_first"
"""Key in a thread's state, if its ids differ from its session's: the id of the first message that both have,
by the id of the first message that the session shows."""

SUMMARIZED_KEY: Final = "brain_stands_for"
"""Key in the metadata of messages: the ids that the summaries of a thread stand for, by the summaries' words. A client
without a saved thread gives back a summary, and not what it was made of."""


def shared_state(
    history: Sequence[Message], thread: Thread, start: int, own_positions: Collection[int]
) -> dict[str, Any]:
    """What a thread has of a history, or its summaries stand for, when a run begins.

    The session has the thread up to ``start``. What the thread is known to have recorded, at ``own_positions`` of the
    history, is left out.
    """
    if len(own_positions) == len(history):
        return {SHARED_IDS_KEY: [], FIRST_SHARED_KEY: {}}
    messages, existing_count = thread.relevant_to(history, start)
    summarized = _stored_summarized_ids(history, _summary_fingerprints(messages, thread.text_of))
    positions = shared_positions(history, messages[:existing_count], thread.text_of)
    ids = [m.id for n, m in enumerate(history) if n not in own_positions and (n in positions or m.id in summarized)]
    return {SHARED_IDS_KEY: ids, FIRST_SHARED_KEY: {} if own_positions else _first_shared(history, messages, positions)}


def _first_shared(
    history: Sequence[Message], messages: Sequence[Message], positions: Mapping[int, int]
) -> dict[str, str]:
    """The first question that both have, if the thread has it under another id: it is not searched for again then."""
    first_message = next((message for message in messages if is_dialogue(message)), None)
    if not positions or not _is_question(history[0]) or first_message is None or not _is_question(first_message):
        return {}
    if not {message.id for message in messages}.isdisjoint(message.id for message in history):
        return {}
    return {history[0].id: messages[min(positions.values())].id}


def _is_question(message: Message) -> bool:
    return message.role == "user" and is_dialogue(message)


def summarized_ids(
    history: Sequence[Message], thread: Thread, start: int, removed_ids: Iterable[str]
) -> Mapping[str, list[str]]:
    """The ids that each summary in a thread stands for at the end of a run; empty if the session has them already.

    These are ``removed_ids``, which the run said and the thread lacks, and lacking ones of :data:`SHARED_IDS_KEY`.
    """
    messages, existing_count = thread.relevant_to(history, start, thread.state.get(FIRST_SHARED_KEY))
    summaries = _summary_fingerprints(messages, thread.text_of)
    if not summaries:
        return {}
    positions = shared_positions(history, messages[:existing_count], thread.text_of)
    shared_ids = thread.state.get(SHARED_IDS_KEY) or ()
    ids = [*removed_ids, *(m.id for n, m in enumerate(history) if m.id in shared_ids and n not in positions)]
    return {} if _stored_summarized_ids(history, summaries).issuperset(ids) else dict.fromkeys(summaries, ids)


def _summary_fingerprints(messages: Iterable[Message], text_of: TextOf) -> list[str]:
    """Fingerprints of the summaries in a thread: clients may not keep their ids."""
    return [fingerprint(text_of(m)) for m in messages if m.role == "user" and not is_dialogue(m)]


def _stored_summarized_ids(history: Iterable[Message], summaries: Iterable[str]) -> set[str]:
    stored = [message.metadata.get(SUMMARIZED_KEY) or {} for message in history]
    return {id_ for ids_by_summary in stored for summary in summaries for id_ in ids_by_summary.get(summary) or ()}
