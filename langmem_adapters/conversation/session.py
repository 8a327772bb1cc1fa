"""The flows of one session: the operations of a conversation on its store, once for sync and async."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import takewhile
from typing import NamedTuple, TypeVar

from langmem_adapters import text
from langmem_adapters.codec import decode, encode, refuse_sealed_or_newer
from langmem_adapters.concurrency.garbage import build_many
from langmem_adapters.conversation.log import GENERATION, PAGE_SIZE, WATCHED_KEYS, SessionLog, readable_entries
from langmem_adapters.conversation.stored_summary import (
    SUMMARY,
    content_fingerprint,
    end_id_in,
    read_summary,
    summary_end_id,
)
from langmem_adapters.errors import ConfigurationError, SerializationError
from langmem_adapters.flow import Flow
from langmem_adapters.model import Message, Recalled, Summary, salvage
from langmem_adapters.protocols import Item, Page
from langmem_adapters.tokens import TokenCounter
from langmem_adapters.validation import check_count, check_integer, check_text, checked_list
from langmem_adapters.warn_once import warn_of_damage

TITLE, KNOWLEDGE = "title", "knowledge/"
_FIRST_PAGE_SIZE = 4 * PAGE_SIZE  # messages read first; each further read doubles their number, until these are enough
S = TypeVar("S", bound=text.MessageLike)


class Context(NamedTuple):
    """What a model is shown of a conversation."""

    summary: Summary | None
    messages: list[Message]


class Backlog(NamedTuple):
    """The messages that a summary does not cover yet, oldest first; the summary; the values read with it."""

    entries: list[tuple[Item, Message]]
    summary: Summary
    values: dict[str, bytes]


class Conversation(SessionLog):
    """The log and the values of one session. :class:`~langmem_adapters.brain.BrainMemory` is its public face."""

    def messages(self, limit: int | None) -> Flow[list[Message]]:
        """All messages, or the newest ``limit``; oldest first."""
        return _readable_messages((yield from self.entries(limit)))

    def entries(self, limit: int | None) -> Flow[list[Item]]:
        """The entries of :meth:`messages`."""
        if limit is None:
            return (yield from self.session.scan()).items
        check_integer("limit", limit)
        if limit <= 0:
            return []
        return (yield from self.session.scan(limit=limit, reverse=True)).items[::-1]

    def context(self, k: int, max_tokens: int | None, counter: TokenCounter) -> Flow[Context]:
        """The summary, and the newest messages that it does not cover, in a form that a model may be shown."""
        if max_tokens is not None:
            check_count("max_tokens", max_tokens)
        is_full = partial(text.is_window_full, k=k, max_tokens=max_tokens, counter=counter) if max_tokens else None
        summary, newest = yield from self.newest(k, _readable_messages, is_full)
        return Context(summary, text.window(newest, k, max_tokens=max_tokens, counter=counter))

    def newest(
        self, k: int, parse: Callable[[Sequence[Item]], list[S]], is_enough: Callable[[Sequence[S]], bool] | None = None
    ) -> Flow[tuple[Summary | None, list[S]]]:
        """The summary, the newest ``k`` messages after it, and those before them back to one of the user's.

        ``is_enough`` is asked about the newest messages, as more of them are read, whether they are enough.
        """
        check_count("k", k)
        limit = min(k, _FIRST_PAGE_SIZE) if is_enough else k
        page = yield from self.session.scan(limit=limit, reverse=True, keys=[SUMMARY])
        summary = read_summary(page.values.get(SUMMARY))
        end_id = summary_end_id(summary)
        newest: list[S] = []  # newest first, unlike what is returned
        read_count = 0
        is_covered = has_question = False
        while page.items:
            read_count += len(page.items)
            uncovered = [] if is_covered else list(takewhile(lambda item: item.id != end_id, page.items))
            is_covered = len(uncovered) < len(page.items)
            messages = parse(uncovered)  # all together, which is quicker
            newest += messages
            has_question = has_question or any(message.role == "user" for message in messages)
            for item in page.items[len(uncovered) :]:
                if text.starts_with_user(newest[::-1]):
                    return summary, newest[::-1]
                newest += [message for message in parse([item]) if message.role == "user"]
            has_k = read_count >= k
            if len(page.items) < limit or (has_k and has_question and not is_covered):
                break
            if not has_k and is_enough and is_enough(newest[::-1]):
                break
            limit = PAGE_SIZE if has_k else min(read_count, k - read_count)
            page = yield from self.session.scan(limit=limit, reverse=True, before=page.items[-1].seq)
        return summary, newest[::-1]

    def backlog(self) -> Flow[Backlog]:
        """The messages that the summary does not cover yet."""
        page = yield from self.session.scan(limit=PAGE_SIZE, reverse=True, keys=WATCHED_KEYS)
        values = page.values
        summary = read_summary(values.get(SUMMARY)) or Summary(text="")
        end_id = summary_end_id(summary)
        items: list[Item] = []
        while page.items:
            uncovered = list(takewhile(lambda item: item.id != end_id, page.items))
            items += uncovered
            if len(uncovered) < PAGE_SIZE:
                break
            page = yield from self.session.scan(limit=PAGE_SIZE, reverse=True, before=page.items[-1].seq)
        return Backlog(readable_entries(reversed(items)), summary, values)

    def remaining_backlog(self, before: Backlog, positions: Sequence[int]) -> Flow[Backlog | None]:
        """The rest of ``before`` after a summary of these positions was stored; None if that summary is not there.

        The messages are not read again: with a long backlog, every pass would read all that the other passes left.
        """
        values = (yield from self.session.scan(limit=0, keys=WATCHED_KEYS)).values
        summary = read_summary(values.get(SUMMARY))
        if summary is None or summary.covers != before.entries[positions[-1]][0].id:
            return None
        summarized = set(positions)
        remaining = [entry for position, entry in enumerate(before.entries) if position not in summarized]
        return Backlog(remaining, summary, values)

    def store_summary(
        self, before: Backlog, entries: Sequence[tuple[Item, Message]], summary: str, *, archive: bool
    ) -> Flow[bool]:
        """Store a summary of these messages and let them leave, in one write; False if something came in between.

        With ``archive`` they go to the long-term memory, or stay in the log without one; otherwise they are deleted.
        """
        is_removed = self.long_term is not None or not archive
        last_item, last_message = entries[-1]
        new = Summary(
            text=summary,
            covers=last_item.id,
            said=content_fingerprint(last_message),
            left=is_removed,
            updated_at=self._clock(),
        )
        put = {SUMMARY: new.to_bytes()}
        items = [item for item, _ in entries]
        end_id = summary_end_id(before.summary) if is_removed else ""
        after = 0 if end_id else items[0].seq - 1
        # Read again: a model takes long, and an entry repeated by mistake leaves unguarded.
        page = yield from self.session.scan(after=after, before=items[-1].seq + 1, keys=WATCHED_KEYS)
        if page.values != before.values or not set(items).issubset(page.items):
            return False
        ids = [item.id for item in page.items]
        if end_id in ids:  # what an earlier summary covers was kept here; it would be shown again
            entries = [*readable_entries(page.items[: ids.index(end_id) + 1]), *entries]
        if archive and self.long_term is not None:
            return (yield from self.move(self.long_term, entries, before.values, put=put))
        return (yield from self.leave(entries, before.values, put=put, remove=is_removed))

    def exists(self, exact_text: str) -> Flow[bool]:
        """Whether a message says exactly this."""
        check_text("what is looked for", exact_text)
        before: int | None = None
        while True:
            page = yield from self.session.scan(limit=PAGE_SIZE, reverse=True, before=before)
            if any(message.text == exact_text for message in _readable_messages(page.items)):
                return True
            if len(page.items) < PAGE_SIZE:
                return False
            before = page.items[-1].seq

    def history_text(self) -> Flow[str]:
        """The summary and the history as text."""
        page = yield from self.session.scan(keys=[SUMMARY])
        history = text.as_text(_readable_messages(page.items))
        summary = read_summary(page.values.get(SUMMARY))
        return f"{summary.text}\n{history}" if summary else history

    def add_knowledge(self, messages: Sequence[Message | str]) -> Flow[None]:
        """Add facts, in their order."""
        new_facts = checked_list(messages, "knowledge is a list of facts", str, Message)
        facts = [fact if isinstance(fact, Message) else Message(role="system", content=str(fact)) for fact in new_facts]
        entries = [self.entry(fact)[1] for fact in facts]
        while entries:
            values = yield from self.session.get(None)
            put = knowledge_after(values, entries)
            if (yield from self.session.try_write(put=put, guard=dict.fromkeys(put))):
                return  # otherwise another writer took these keys

    def get_knowledge(self) -> Flow[list[Message]]:
        """The facts, oldest first."""
        values = yield from self.session.get(None)
        facts = [salvage(values[key], key) for key in sorted(values) if key.startswith(KNOWLEDGE)]
        return [fact for fact in facts if fact is not None]

    def set_summary(self, summary: str) -> Flow[None]:
        """Replace the summary's text; it covers the same messages. An empty summary covers none."""
        check_text("a summary", summary)
        while True:
            values = yield from self.session.get([SUMMARY])
            old = read_summary(values.get(SUMMARY)) if summary else None
            new = (old or Summary(text="")).model_copy(update={"text": summary, "updated_at": self._clock()})
            guard = {SUMMARY: values.get(SUMMARY)}
            if (yield from self.session.try_write(put={SUMMARY: new.to_bytes()}, guard=guard)):
                return  # otherwise it was replaced just now

    def set_title(self, title: str) -> Flow[None]:
        """Replace the title."""
        check_text("a title", title)
        yield from self.get_title()  # raises if it is sealed and there is no codec, or unsealed and there is one
        yield from self.session.write(put={TITLE: encode(title)})

    def set_generated_title(self, title: str, latest: list[Item]) -> Flow[str]:
        """Store a title made by a model, unless the session has one by now or was cleared; returns its title.

        ``latest`` is the newest entry from before the model was asked.
        """
        after = latest[0].seq - 1 if latest else 0
        page = yield from self.session.scan(after=after, limit=1, keys=WATCHED_KEYS)
        marked_values = (yield from self.ensure_marks(latest, page.values)) if page.items == latest else None
        if marked_values is not None:
            guard = {TITLE: None, GENERATION: marked_values.get(GENERATION)}
            yield from self.session.try_write(put={TITLE: encode(title)}, guard=guard)
        return (yield from self.get_title())

    def get_summary(self) -> Flow[Summary | None]:
        """The summary, if there is one."""
        values = yield from self.session.get([SUMMARY])
        return read_summary(values.get(SUMMARY))

    def get_title(self) -> Flow[str]:
        """The title; empty if there is none."""
        values = yield from self.session.get([TITLE])
        return read_title(values.get(TITLE))

    def recall(self, query: str, k: int | None) -> Flow[list[Recalled]]:
        """Search the long-term memory for memories that the window does not show."""
        if self.long_term is None:
            raise ConfigurationError("this BrainMemory has no long-term memory: give it long_term=")
        _, visible_messages = yield from self.newest(self.memory_k, _readable_messages)
        return (yield from self.long_term.search_flow(query, k, exclude=visible_messages))


def count_visible(
    page: Page, entries: Sequence[tuple[Item, Message]], k: int, max_tokens: int | None, counter: TokenCounter
) -> int:
    """How many messages the context of a session holds, by its newest page: exactly, unless older ones may be in it."""
    end_id = end_id_in(page.values)
    covered_seq = next((item.seq for item in page.items if item.id == end_id), 0)
    messages = [message for item, message in entries if item.seq > covered_seq]
    if not text.starts_with_user(messages):
        messages[:0] = [m for item, m in entries if item.seq <= covered_seq and m.role == "user"][-1:]
    are_all = covered_seq or page.total == len(page.items)
    if are_all or text.is_window_full(messages, k, max_tokens=max_tokens or sys.maxsize, counter=counter):
        return len(text.uncut_window(messages, k, max_tokens, counter))
    return min(page.total, k)


def knowledge_after(values: Iterable[str], facts: Iterable[bytes]) -> dict[str, bytes]:
    """The values that add facts after those that a session has; ``values`` are its keys."""
    numbers = [int(key[len(KNOWLEDGE) :]) for key in values if key.startswith(KNOWLEDGE)]
    first = max(numbers, default=0) + 1
    return {f"{KNOWLEDGE}{number:08}": data for number, data in enumerate(facts, start=first)}


def read_title(data: bytes | None) -> str:
    """A stored title; empty if there is none, or, with a warning, if it is damaged."""
    if data is None:
        return ""
    try:
        title = decode(data)
        check_text("a title", title)
    except (SerializationError, ConfigurationError) as damage:
        refuse_sealed_or_newer(data, "a stored title")
        warn_of_damage(data, f"a stored title is left out: {damage}")
        return ""
    return str(title)


def _readable_messages(items: Sequence[Item]) -> list[Message]:
    return build_many(len(items), lambda: [message for _, message in readable_entries(items)])
