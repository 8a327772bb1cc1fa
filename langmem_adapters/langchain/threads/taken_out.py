"""What a thread had of its session when a run began and others have removed since: a summary stands for it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from langmem_adapters.keys import fingerprint
from langmem_adapters.langchain.threads.exchanges import TextOf, is_dialogue
from langmem_adapters.langchain.threads.overlap import shared_positions
from langmem_adapters.langchain.threads.view import Thread
from langmem_adapters.model import Message

__all__ = ["FIRST", "KNEW", "STANDS_FOR", "known_of", "stood_for"]

KNEW: Final = "brain_knew"
"""Key in a thread's state: the ids of what it had of its session when a run began, except what it recorded itself."""

FIRST: Final = "brain_first"
"""Key in a thread's state, if its ids differ from its session's: the id of the first message that both have,
by the id of the first message that the session shows."""

STANDS_FOR: Final = "brain_stands_for"
"""Key in the metadata of messages: the ids that the summaries of a thread stand for, by the summaries' words. A client
without a saved thread gives back a summary, and not what it was made of."""


def known_of(
    history: Sequence[Message], thread: Thread, start: int, own: Collection[int], words: TextOf
) -> dict[str, Any]:
    """What a thread has of a history, or its summaries stand for, except for the positions of its ``own``.

    Args:
        history: The newest messages of the session.
        thread: The messages of a run that begins.
        start: How many of them the session has.
        own: The positions of what the thread is known to have recorded.
        words: Gives the text of a message by which it is compared.
    """
    if len(own) == len(history):
        return {KNEW: [], FIRST: {}}
    messages, known = thread.since(history, start)
    stands = _stands_for(history, _summaries(messages, words))
    both = shared_positions(history, messages[:known], words)
    ids = [m.id for n, m in enumerate(history) if n not in own and (n in both or m.id in stands)]
    return {KNEW: ids, FIRST: {} if own else _first(history, messages, both)}


def _first(history: Sequence[Message], messages: Sequence[Message], both: Mapping[int, int]) -> dict[str, str]:
    """The first question that both have, if the thread has it under another id: it is not searched for again then."""
    begins = next((message for message in messages if is_dialogue(message)), None)
    if not both or not _asks(history[0]) or begins is None or not _asks(begins):
        return {}
    if not {message.id for message in messages}.isdisjoint(message.id for message in history):
        return {}
    return {history[0].id: messages[min(both.values())].id}


def _asks(message: Message) -> bool:
    return message.role == "user" and is_dialogue(message)


def stood_for(
    history: Sequence[Message],
    thread: Thread,
    start: int,
    gone: Iterable[str],
    *,
    state: Mapping[str, Any],
    words: TextOf,
) -> Mapping[str, list[str]]:
    """The ids that each summary in a thread stands for at the end of a run; empty if the session has them already.

    These are what the run said that is ``gone`` from the thread, and those of :data:`KNEW` that it no longer has.
    """
    messages, known = thread.since(history, start, state.get(FIRST))
    summaries = _summaries(messages, words)
    if not summaries:
        return {}
    both, knew = shared_positions(history, messages[:known], words), state.get(KNEW) or ()
    ids = [*gone, *(m.id for n, m in enumerate(history) if m.id in knew and n not in both)]
    return {} if _stands_for(history, summaries).issuperset(ids) else dict.fromkeys(summaries, ids)


def _summaries(messages: Iterable[Message], words: TextOf) -> list[str]:
    """Fingerprints of the summaries in a thread: clients may not keep their ids."""
    return [fingerprint(words(message)) for message in messages if message.role == "user" and not is_dialogue(message)]


def _stands_for(history: Iterable[Message], summaries: Iterable[str]) -> set[str]:
    told = [message.metadata.get(STANDS_FOR) or {} for message in history]
    return {id_ for one in told for summary in summaries for id_ in one.get(summary) or ()}
