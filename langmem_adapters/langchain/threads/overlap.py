"""The messages that a history and a thread share, and one conversation made of both. Pure rules; no store is read.

Messages with the same id and the same content are the same. But a client that sends the whole conversation with each
call may give new ids to old messages, leave out what it does not show, such as tool calls, and send texts in place of
blocks. So the rest is compared exchange by exchange: a question, and what was answered to it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from langmem_adapters.conversation.log import entry_id
from langmem_adapters.conversation.stored_summary import said_in, words_of
from langmem_adapters.langchain.threads.alignment import heaviest
from langmem_adapters.longterm import RECALLED
from langmem_adapters.model import Message, Summary

__all__ = [
    "CHANGED",
    "INSTRUCTS",
    "Proof",
    "Words",
    "is_marked",
    "is_said",
    "joined",
    "known",
    "known_by_id",
    "renumbered",
    "same",
    "shared",
]

Words: TypeAlias = Callable[[Message], str]
"""Gives the text of a message by which it is compared."""

Proof: TypeAlias = Literal["answers", "questions", "ids"]
"""How an exchange is recognized. "answers": by its question and answer. "questions", for a client's own: by the
question alone, or by the last answer and a part of the question. "ids", if it keeps ids: by both, or the latter."""

CHANGED: Final = "brain_changed"
"""Key in the metadata of a question: its client knows it in other words."""

_SURE = 2


class _Keys(NamedTuple):
    """What identifies a message."""

    id: tuple[str, str, str] | None
    content: tuple[str, ...] | None
    text: str


class _Exchange:
    """A question and what followed it; ``question`` is None if the conversation begins in the middle of an exchange."""

    __slots__ = ("answer", "answered", "changed", "keys", "question", "texts")

    def __init__(self, question: str | None) -> None:
        self.question = question
        self.answered = False
        self.changed = False  # whether its client is known to have the question in other words
        self.keys: dict[int, _Keys] = {}  # by the positions of the messages
        self.texts: set[str] = set()  # of all answers; those of tools may be shown as the assistant's
        self.answer = ""  # what the assistant said last

    def add(self, place: int, message: Message, text: str) -> None:
        calls = [call.id or "" for call in message.tool_calls]
        says = bool(text or calls or message.tool_call_id or message.role == "user")
        content = (message.role, text, message.tool_call_id or "", *calls) if says else None
        self.keys[place] = _Keys(_by_id(message, text), content, text)
        self.changed = self.changed or bool(message.metadata.get(CHANGED))
        if message.role != "user":
            self.answered = True
            self.texts |= {text} - {""}
            if text and message.role == "assistant":
                self.answer = text


def _by_id(message: Message, text: str) -> tuple[str, str, str] | None:
    """The id with role and text, if there is an id: clients that number each request's messages anew repeat ids."""
    return (message.id, message.role, text) if message.id else None


def is_said(message: Message) -> bool:
    """Whether a message was said in the conversation: it is no instruction, no summary and no recalled memory."""
    marks = message.host.get("langchain", {}).get("additional_kwargs") or {}
    return message.role not in INSTRUCTS and not (is_marked(marks) or message.metadata.get(RECALLED))


INSTRUCTS: Final = frozenset({"system", "developer"})
"""The roles of instructions."""


def is_marked(additional: Mapping[str, Any]) -> bool:
    """Whether the additional arguments of a message mark it as a summary or as recalled."""
    # LangChain's SummarizationMiddleware writes its summary as a user message
    return bool(additional.get(RECALLED)) or additional.get("lc_source") == "summarization"


def same(old: Message, message: Message, words: Words = words_of) -> bool:
    """Whether two messages with one id are the same: some clients number the messages of each request anew."""
    return old.role == message.role and words_of(old) == words(message)


def known(
    history: Sequence[Message],
    thread: Sequence[Message],
    summary: Summary | None = None,
    *,
    by: Proof = "answers",
    words: Words = words_of,
) -> int:
    """How many messages of a thread, from its beginning, a history already holds or its summary covers.

    A question that nothing follows is new, unless it is the last message of the history, too: a user who says "yes"
    again has said it twice.

    Args:
        history: The newest messages of the history.
        thread: The messages of the thread.
        summary: The history's summary.
        by: How exchanges are recognized.
        words: Gives the text of the thread's messages, if a store keeps other words than it is given.
    """
    covered = _covered(thread, summary, words)
    exchanges = _exchanges(thread, words)
    pairs = _pairs(_exchanges(history, words_of), exchanges, by)
    if not pairs:
        return covered
    old, last = pairs[-1]
    places = [place for _, place in _both(old, last)]
    places += [place for place, keys in last.keys.items() if keys.text in old.texts]
    if _stands_for(old, last) and last is not exchanges[-1]:
        places += last.keys
    return max(covered, max(places) + 1)


def known_by_id(
    history: Sequence[Message], thread: Sequence[Message], summary: Summary | None = None, words: Words = words_of
) -> int:
    """:func:`known` for a thread that keeps the ids of its messages; a message with another id is new."""
    ids = {_by_id(message, words_of(message)) for message in history if message.id}
    shared = (n + 1 for n, message in enumerate(thread) if _by_id(message, words(message)) in ids)
    return max(_covered(thread, summary, words), *shared, 0)


def renumbered(history: Sequence[Message], thread: Sequence[Message], words: Words = words_of) -> int:
    """How many messages a thread has up to its last question that a history has under another id."""
    pairs = _pairs(_exchanges(history, words_of), _exchanges(thread, words), "answers")
    both = (at for old, new in pairs for at in _both(old, new))
    return max((m + 1 for n, m in both if thread[m].role == "user" and thread[m].id != history[n].id), default=0)


def shared(history: Sequence[Message], thread: Sequence[Message], words: Words = words_of) -> dict[int, int]:
    """The positions in a history of messages that a thread has too, each with its position in the thread."""
    pairs = _pairs(_exchanges(history, words_of), _exchanges(thread, words), "questions")
    return {n: place for old, new in pairs for n, place in _both(old, new)}


def _covered(thread: Sequence[Message], summary: Summary | None, words: Words) -> int:
    """How many messages a summary covers. The id at which it ends may belong to another message by now."""
    if summary is None or not summary.covers:
        return 0
    last = (n + 1 for n, message in enumerate(thread) if entry_id(message.id) == summary.covers)
    return max((n for n in last if summary.said in {"", said_in(thread[n - 1], words)}), default=0)


def joined(
    history: Sequence[Message],
    thread: Sequence[Message],
    start: int,
    *,
    own: Collection[int] = (),
    knew: Collection[str] = (),
    left: Collection[int] = (),
    words: Words = words_of,
) -> list[Message]:
    """One conversation of a history and a thread whose first ``start`` messages are known to the history.

    What both have appears once, in the thread's order and form, but with tool calls that the thread does not show.
    What the thread has from before the history is left out: a summary covers it, or it is outside of the window.

    Args:
        history: The newest messages of the history.
        thread: The messages of the thread.
        start: How many of them are known.
        own: Positions in the history that are left out if the thread no longer has them.
        knew: Ids of messages that are left out in the same case, with what follows them and the thread never showed.
        left: Positions that stay nevertheless: the thread had them before deleted messages were taken out of it.
        words: As in :func:`known`.
    """
    pairs = _pairs(_exchanges(history, words_of), _exchanges(thread[:start], words), "questions")
    places = {n: place for old, new in pairs for n, place in _both(old, new)}
    own = {*own, *_without(history, {*places, *left}, set(knew))}
    replaced = {n for old, new in pairs if _stands_for(old, new) for n in old.keys}
    taken_back = 0 < len(own) == len(history)  # nothing of the session is left, so the thread alone counts
    begin = _begin(*pairs[0]) if pairs else 0 if taken_back else start
    edited = {history[n].id for n in own}  # by now the first exchange may be another one under the same ids
    begin = next((place for place in range(begin) if thread[place].id in edited), begin)
    conversation = [message for message in thread[:begin] if not is_said(message)]
    to_come = {_by_id(message, words(message)) for message in thread[begin:] if message.id}
    for n, old_message in enumerate(history):
        if n in places:
            lacks = old_message.tool_calls and not thread[places[n]].tool_calls and n not in own
            conversation += [*thread[begin : places[n]], old_message if lacks else thread[places[n]]]
            begin = places[n] + 1
        elif n not in own and n not in replaced and _by_id(old_message, words_of(old_message)) not in to_come:
            conversation.append(old_message)
    return conversation + list(thread[begin:])


def _without(history: Sequence[Message], left: Collection[int], knew: Collection[str]) -> Iterator[int]:
    """The positions of what a thread knew and no longer has, and of what follows that it never showed (tool calls)."""
    gone = False
    for n, message in enumerate(history):
        if message.id in knew:
            gone = n not in left
        elif message.role == "user":
            gone = False
        if gone:
            yield n


def _exchanges(messages: Sequence[Message], words: Words) -> list[_Exchange]:
    found: list[_Exchange] = []
    for place, message in enumerate(messages):
        if is_said(message):
            text = words(message)
            if message.role == "user" or not found:
                found.append(_Exchange(text if message.role == "user" else None))
            found[-1].add(place, message, text)
    return found


def _begin(old: _Exchange, new: _Exchange) -> int:
    """Where the thread's part of a conversation begins, if this is the first exchange that both have."""
    if old.question is None:  # the question is older than this part of the history
        return next((place for _, place in _both(old, new)), min(new.keys))
    return min(new.keys)


def _stands_for(old: _Exchange, new: _Exchange) -> bool:
    """Whether a thread shows another answer than the history to the same question."""
    differ = old.answered and bool(new.answer) and old.texts.isdisjoint(new.texts)
    return differ and len(_both(old, new)) < 2  # noqa: PLR2004


def _both(old: _Exchange, new: _Exchange) -> list[tuple[int, int]]:
    """The positions of the messages that both forms of an exchange have; rising."""
    found = [(min(old.keys), min(new.keys))] if _asks_the_same(old, new) else []
    places: dict[tuple[int, object], list[int]] = {}  # by id, by content, by content without its calls
    for n, keys in old.keys.items():
        for key in enumerate((keys.id, keys.content, keys.content and keys.content[:3])):
            places.setdefault(key, []).append(n)
    for place, keys in list(new.keys.items())[len(found) :]:
        last = found[-1][0] if found else -1
        alike = (places.get(key, []) for key in enumerate((keys.id, keys.content, keys.content)) if key[1])
        behind = (there[bisect_right(there, last)] for there in alike if there[-1:] > [last])
        if (known_at := next(behind, None)) is not None:
            found.append((known_at, place))
    return found


def _asks_the_same(old: _Exchange, new: _Exchange) -> bool:
    """Whether two forms of an exchange have the same question, even in other words.

    A filter may have changed it before it was recorded, or a client sends more with it than it keeps. But a client that
    keeps the ids of answers may have asked something else: an agent may be given a part of a question.
    """
    if old.question == new.question or None in {old.question, new.question}:
        return old.question == new.question is not None
    ids = {keys.id for keys in old.keys.values()} - {None}
    return old.changed or ids.isdisjoint(keys.id for keys in new.keys.values())


def _asks_less(old: _Exchange, new: _Exchange) -> bool:
    """Whether a client may know the question in these words; a shared short answer such as "Yes." does not prove it."""
    return old.changed or bool(new.question and old.question and new.question in old.question)


def _pairs(history: list[_Exchange], thread: list[_Exchange], by: Proof) -> list[tuple[_Exchange, _Exchange]]:
    """The exchanges that both have, rising: those that share an id, and between them those that say the same."""
    ids = {keys.id: n for n, old in enumerate(history) for keys in old.keys.values() if keys.id}
    shared: list[tuple[int, int]] = []
    for m, new in enumerate(thread):
        n = next((ids[keys.id] for keys in new.keys.values() if keys.id in ids), -1)
        if n >= 0 and (not shared or n > shared[-1][0]):
            shared.append((n, m))
    if shared and by == "questions":
        by = "ids"  # a client that returns ids returns answers
    pairs: list[tuple[_Exchange, _Exchange]] = []
    begin = 0, 0
    for n, m in [*shared, (len(history), len(thread))]:
        between = history[begin[0] : n]
        pairs += _longest(between, _answered(between, thread[begin[1] : m]), by)
        pairs += zip(history[n : n + 1], thread[m : m + 1], strict=True)
        begin = n + 1, m + 1
    return pairs


def _answered(history: list[_Exchange], thread: list[_Exchange]) -> list[_Exchange]:
    """The thread without a last question that is not answered yet, unless the history ends with that one, too."""
    if not thread or thread[-1].answered or (history and _likeness(history[-1], thread[-1], "answers") == _SURE):
        return thread
    return thread[:-1]


def _longest(history: list[_Exchange], thread: list[_Exchange], by: Proof) -> list[tuple[_Exchange, _Exchange]]:
    """The longest sequence of exchanges that both have; of several, the one that reaches farthest in the thread."""
    both = zip(reversed(history), reversed(thread), strict=False)
    end = len(list(takewhile(lambda pair: _likeness(*pair, by) == _SURE, both)))
    last = zip(history[len(history) - end :], thread[len(thread) - end :], strict=True)
    history, thread = history[: len(history) - end], thread[: len(thread) - end]
    pairs = heaviest(_weights(history, thread, by), len(thread))
    return [*((history[n], thread[m]) for n, m in pairs), *last]


def _weights(history: list[_Exchange], thread: list[_Exchange], by: Proof) -> list[dict[int, int]]:
    """For each exchange of a history, the positions of those in the thread that may be it, and how sure that is."""
    questions: dict[str | None, list[int]] = {}
    answers: dict[str, list[int]] = {}
    for m, new in enumerate(thread):
        questions.setdefault(new.question, []).append(m)
        if by != "answers" and new.answer:
            answers.setdefault(new.answer, []).append(m)
    weights = []
    for old in history:
        alike = {*questions.get(old.question, ()), *questions.get(None, ()), *answers.get(old.answer, ())}
        places = range(len(thread)) if old.question is None else alike
        weights.append({m: sure for m in places if (sure := _likeness(old, thread[m], by))})
    return weights


def _likeness(old: _Exchange, new: _Exchange, by: Proof) -> int:
    """How sure it is that two exchanges are the same; 0 if nothing says so."""
    answers = not old.texts.isdisjoint(new.texts)
    if None in {old.question, new.question}:
        return _SURE if answers else 0
    if old.question != new.question:
        return int(by != "answers" and bool(old.answer) and old.answer == new.answer and _asks_less(old, new))
    if answers or not (old.answered or new.answered):
        return _SURE
    if not new.answered:
        return 0 if old.answer else 1  # clients do not show an answer without text
    return 1 if by == "questions" or not old.answered else 0
