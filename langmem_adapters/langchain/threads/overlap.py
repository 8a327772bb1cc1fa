"""The messages that a history and a thread share, and one conversation made of both. Pure rules; no store is read."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from langmem_adapters.conversation.log import entry_id
from langmem_adapters.conversation.stored_summary import content_fingerprint, unspaced_text
from langmem_adapters.langchain.threads.exchanges import (
    Exchange,
    ExchangePairs,
    MatchBy,
    TextOf,
    has_other_answer,
    id_key,
    instruction_count,
    is_dialogue,
    pair_exchanges,
    position_pairs,
    split_both,
)
from langmem_adapters.model import Message, Summary


def existing_count(
    history: Sequence[Message],
    thread: Sequence[Message],
    summary: Summary | None = None,
    *,
    by: MatchBy = "answers",
    text_of: TextOf = unspaced_text,
) -> int:
    """How many messages of a thread, from its beginning, a history already holds or its summary covers.

    A question that nothing follows is new, unless it is the last message of the history, too: a user who says "yes"
    again has said it twice.

    Args:
        history: The newest messages of the history.
        thread: The messages of the thread.
        summary: The history's summary.
        by: How exchanges are recognized.
        text_of: Gives the text of the thread's messages, if a store keeps other words than it is given.
    """
    covered = _summarized_count(thread, summary, text_of)
    old_exchanges, exchanges = split_both(history, thread, text_of)
    pairs = pair_exchanges(old_exchanges, exchanges, by)
    if not pairs:
        return covered
    old_exchange, new_exchange = pairs[-1]
    both = position_pairs(old_exchange, new_exchange)
    positions = [position for _, position in both]
    unpaired = [old_exchange.keys[n].text for n in old_exchange.keys.keys() - {n for n, _ in both}]
    answer_texts = old_exchange.answer_texts.intersection(unpaired)  # an agent says the same again: "Done."
    ids = {keys.id for old in old_exchanges for keys in old.keys.values() if keys.id}  # agents with tasks of their own
    positions += [
        m
        for m, keys in new_exchange.keys.items()
        if keys.id in ids or (keys.text in answer_texts and not keys.call_ids)  # a call that did not pair is another
    ]
    if has_other_answer(old_exchange, new_exchange) and new_exchange is not exchanges[-1]:
        positions += new_exchange.keys
    return max(covered, max(positions) + 1)


def existing_count_by_id(
    history: Sequence[Message],
    thread: Sequence[Message],
    summary: Summary | None = None,
    text_of: TextOf = unspaced_text,
) -> int:
    """:func:`existing_count` for a thread that keeps the ids of its messages; a message with another id is new."""
    ids = {id_key(message, unspaced_text(message)) for message in history if message.id}
    ends = (n + 1 for n, message in enumerate(thread) if id_key(message, text_of(message)) in ids)
    return max(_summarized_count(thread, summary, text_of), *ends, 0)


def renumbered_count(history: Sequence[Message], thread: Sequence[Message], text_of: TextOf = unspaced_text) -> int:
    """How many messages a thread has up to its last question that a history has under another id."""
    both = _positions_in_both(_shared_exchanges(history, thread, "answers", text_of))
    return max((m + 1 for n, m in both if thread[m].role == "user" and thread[m].id != history[n].id), default=0)


def shared_positions(
    history: Sequence[Message], thread: Sequence[Message], text_of: TextOf = unspaced_text
) -> dict[int, int]:
    """The positions in a history of messages that a thread has too, each with its position in the thread."""
    return dict(_positions_in_both(_shared_exchanges(history, thread, "questions", text_of)))


def _shared_exchanges(
    history: Sequence[Message], thread: Sequence[Message], by: MatchBy, text_of: TextOf
) -> ExchangePairs:
    if not thread:  # as when a client sends only what is new: the whole history need not be split
        return []
    return pair_exchanges(*split_both(history, thread, text_of), by)


def _positions_in_both(pairs: ExchangePairs) -> Iterator[tuple[int, int]]:
    """The positions in the history and in the thread of each message that both have."""
    for old, new in pairs:
        yield from position_pairs(old, new)


def _summarized_count(thread: Sequence[Message], summary: Summary | None, text_of: TextOf) -> int:
    """How many messages a summary covers. The id at which it ends may belong to another message by now."""
    if summary is None or not summary.covers:
        return 0
    ends = (n + 1 for n, message in enumerate(thread) if entry_id(message.id) == summary.covers)
    return max((n for n in ends if summary.said in {"", content_fingerprint(thread[n - 1], text_of)}), default=0)


def merge(
    history: Sequence[Message],
    thread: Sequence[Message],
    start: int,
    *,
    own_positions: Collection[int] = (),
    shared_ids: Collection[str] = (),
    retained_positions: Collection[int] = (),
    text_of: TextOf = unspaced_text,
) -> list[Message]:
    """One conversation of a history and a thread whose first ``start`` messages are known to the history.

    What both have appears once, in the thread's order and form, but with tool calls that the thread does not show.
    What the thread has from before the history is left out: a summary covers it, or it is outside of the window.

    Args:
        history: The newest messages of the history.
        thread: The messages of the thread.
        start: How many of them are known.
        own_positions: Positions in the history that are left out if the thread no longer has them.
        shared_ids: Ids of messages that are left out in the same case, with what follows and the thread never showed.
        retained_positions: Those that stay nevertheless: the thread had them before deleted messages were taken out.
        text_of: As in :func:`existing_count`.
    """
    pairs = _shared_exchanges(history, thread[:start], "questions", text_of)
    positions = dict(_positions_in_both(pairs))
    own_positions = {*own_positions, *_removed_positions(history, {*positions, *retained_positions}, set(shared_ids))}
    left_out = {*own_positions, *(n for old, new in pairs if has_other_answer(old, new) for n in old.keys)}
    # If nothing of the session is left, the thread alone counts.
    known_count = 0 if 0 < len(own_positions) == len(history) else start
    cursor = _start_position(*pairs[0]) if pairs else max(known_count, instruction_count(thread))
    # By now the first exchange may be another one under the same ids.
    own_ids = {history[n].id for n in own_positions}
    cursor = next((position for position in range(cursor) if thread[position].id in own_ids), cursor)
    conversation = [message for message in thread[:cursor] if not is_dialogue(message)]
    remaining_ids = {id_key(message, text_of(message)) for message in thread[cursor:] if message.id}
    for n, old_message in enumerate(history):
        if n in positions:
            lacks_calls = old_message.tool_calls and not thread[positions[n]].tool_calls and n not in own_positions
            conversation += [*thread[cursor : positions[n]], old_message if lacks_calls else thread[positions[n]]]
            cursor = positions[n] + 1
        elif n not in left_out and id_key(old_message, unspaced_text(old_message)) not in remaining_ids:
            conversation.append(old_message)
    return conversation + list(thread[cursor:])


def _removed_positions(
    history: Sequence[Message], remaining_positions: Collection[int], shared_ids: Collection[str]
) -> Iterator[int]:
    """The positions of what a thread knew and no longer has, and of what follows that it never showed (tool calls)."""
    is_removed = False
    for n, message in enumerate(history):
        if message.id in shared_ids:
            is_removed = n not in remaining_positions
        elif message.role == "user":
            is_removed = False
        if is_removed:
            yield n


def _start_position(old: Exchange, new: Exchange) -> int:
    """Where the thread's part of a conversation begins, if this is the first exchange that both have."""
    if old.question is None:  # the question is older than this part of the history
        return next((position for _, position in position_pairs(old, new)), min(new.keys))
    return min(new.keys)
