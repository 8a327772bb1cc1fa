"""A session's summary as it is stored, and the message at which it ends."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from langmem_adapters.codec import refuse_sealed_or_newer
from langmem_adapters.errors import SerializationError
from langmem_adapters.keys import fingerprint
from langmem_adapters.model import Message, Summary
from langmem_adapters.warn_once import warn_of_damage

SUMMARY = "summary"
"""The key of the summary, which covers the messages up to one of them."""


def last_covered_id(summary: Summary | None) -> str:
    """The store's id of the last message that a summary covers; empty if there is none."""
    return summary.covers if summary else ""


def summary_end_id(summary: Summary | None) -> str:
    """The id of the log entry at which the part covered by a summary ends; empty if that part has left the log.

    A message that comes under the same id later, delivered or numbered again, is not covered.
    """
    return summary.covers if summary and not summary.left else ""


def end_id_in(values: Mapping[str, bytes]) -> str:
    """:func:`summary_end_id` of the summary in a session's values."""
    return summary_end_id(read_summary(values.get(SUMMARY)))


def unspaced_text(message: Message) -> str:
    """What a message says, regardless of its blocks and its white space."""
    return "".join(message.text.split())


def content_fingerprint(message: Message, words: Callable[[Message], str] = unspaced_text) -> str:
    """Identifies the last message that a summary covers, among others that come under its id."""
    return fingerprint(message.role, words(message))


def summary_after_removal(
    values: Mapping[str, bytes], removed_ids: Collection[str], ids: Sequence[str]
) -> dict[str, bytes]:
    """The summary to write as entries are removed: if it ends at one of them, it then ends at an earlier one.

    Args:
        values: The session's.
        removed_ids: The ids of all entries that are removed.
        ids: Ids of the log, oldest first: that at which the summary ends, and enough of those before it.
    """
    summary = read_summary(values.get(SUMMARY))
    end_id = summary_end_id(summary)
    if summary is None or end_id not in removed_ids:
        return {}
    staying_ids = [id_ for id_ in ids[: ids.index(end_id)] if id_ not in removed_ids]
    covers = staying_ids[-1] if staying_ids else ""
    return {SUMMARY: summary.model_copy(update={"covers": covers, "said": ""}).to_bytes()}


def summary_after_move(values: Mapping[str, bytes], moved_ids: Collection[str]) -> dict[str, bytes]:
    """The summary to write as the oldest entries leave: if it ends at one of them, what it covers has left too."""
    summary = read_summary(values.get(SUMMARY))
    if summary is None or summary_end_id(summary) not in moved_ids:
        return {}
    return {SUMMARY: summary.model_copy(update={"left": True}).to_bytes()}


def read_summary(data: bytes | None) -> Summary | None:
    """A stored summary; None if it is empty, or, with a warning, if it is damaged: its messages are then shown."""
    if data is None:
        return None
    refuse_sealed_or_newer(data, "a stored summary")
    try:
        summary = Summary.from_bytes(data)
    except SerializationError as damage:
        warn_of_damage(data, f"a stored summary is left out: {damage}")
        return None
    return summary if summary.text else None
