"""What a history and a thread both have, and one conversation made of the two. Pure rules; nothing here reads a store.

Ids tell it, where both have the same ones and the same content under them. But a client that sends the whole
conversation with each call gives new ids to old messages, leaves out what it does not show, such as calls of tools,
and sends texts where there were blocks. So the rest is compared exchange by exchange: a question, and what was
answered to it.
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
"""What of a message is compared."""

Proof: TypeAlias = Literal["answers", "questions", "ids"]
"""What an exchange is known by: its question and answer. Of a client's own: its question, whatever was answered, or the
last answer and what of the question the client keeps; and where it keeps ids, both, or the latter."""

CHANGED: Final = "brain_changed"
"""The key in the metadata of questions that tells that a client knows them in other words."""

_SURE = 2


class _Keys(NamedTuple):
    """What a message is known by."""

    id: tuple[str, str, str] | None
    content: tuple[str, ...] | None
    text: str


class _Exchange:
    """A question and what followed it; without a question, where the conversation begins in the midst of one."""

    __slots__ = ("answer", "answered", "changed", "keys", "question", "texts")

    def __init__(self, question: str | None) -> None:
        self.question = question
        self.answered = False
        self.changed = False  # whether it is known that its client has the question in other words
        self.keys: dict[int, _Keys] = {}  # by the messages' places
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
    """What a message is known by that has an id: clients that number those of each request anew repeat ids."""
    return (message.id, message.role, text) if message.id else None


def is_said(message: Message) -> bool:
    """Whether a message of a thread was said in the conversation: no instruction, no summary, nothing recalled."""
    marks = message.host.get("langchain", {}).get("additional_kwargs") or {}
    return message.role not in INSTRUCTS and not (is_marked(marks) or message.metadata.get(RECALLED))


INSTRUCTS: Final = frozenset({"system", "developer"})
"""The roles of instructions."""


def is_marked(additional: Mapping[str, Any]) -> bool:
    """Whether the additional arguments of a message say that it is a summary or recalled."""
    # LangChain's SummarizationMiddleware says its summary as a user
    return bool(additional.get(RECALLED)) or additional.get("lc_source") == "summarization"


def same(old: Message, message: Message, words: Words = words_of) -> bool:
    """Whether two messages with one id are one message: some clients number those of each request anew."""
    return old.role == message.role and words_of(old) == words(message)


def known(
    history: Sequence[Message],
    thread: Sequence[Message],
    summary: Summary | None = None,
    *,
    by: Proof = "answers",
    words: Words = words_of,
) -> int:
    """How many messages of a thread, from its beginning, a history holds already or its summary stands for.

    A question that nothing follows is new, unless it is the last message of the history too: who says "yes" once
    more has said it twice.

    Args:
        history: The newest messages of the history.
        thread: The messages of the thread.
        summary: The history's.
        by: What exchanges are known by.
        words: What of the thread's messages is compared, if a store keeps other words than it is given.
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
    """:func:`known`, of a thread that keeps the ids of its messages; what has another id has been said anew."""
    ids = {_by_id(message, words_of(message)) for message in history if message.id}
    shared = (n + 1 for n, message in enumerate(thread) if _by_id(message, words(message)) in ids)
    return max(_covered(thread, summary, words), *shared, 0)


def renumbered(history: Sequence[Message], thread: Sequence[Message], words: Words = words_of) -> int:
    """How many messages of a thread there are up to its last question that a history has under another id."""
    pairs = _pairs(_exchanges(history, words_of), _exchanges(thread, words), "answers")
    both = (at for old, new in pairs for at in _both(old, new))
    return max((m + 1 for n, m in both if thread[m].role == "user" and thread[m].id != history[n].id), default=0)


def shared(history: Sequence[Message], thread: Sequence[Message], words: Words = words_of) -> dict[int, int]:
    """The places in a history of what a thread has too, and where the thread has it."""
    pairs = _pairs(_exchanges(history, words_of), _exchanges(thread, words), "questions")
    return {n: place for old, new in pairs for n, place in _both(old, new)}


def _covered(thread: Sequence[Message], summary: Summary | None, words: Words) -> int:
    """How many messages a summary stands for. Under the id at which it ends there may be something else by now."""
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

    What both have is there once, in the thread's order and form, but with the calls of tools that it does not show.
    What the thread has from before the history is left out: a summary stands for it, or it is behind the window.

    Args:
        history: The newest messages of the history.
        thread: The messages of the thread.
        start: How many of them are known.
        own: The places of the history that are left out, where the thread does not have them any more.
        knew: The ids of what is left out of it then, with what follows it there and the thread never showed.
        left: The places of what is not left out for that: the thread had it, with what is deleted from it.
        words: As in :func:`known`.
    """
    pairs = _pairs(_exchanges(history, words_of), _exchanges(thread[:start], words), "questions")
    places = {n: place for old, new in pairs for n, place in _both(old, new)}
    own = {*own, *_without(history, {*places, *left}, set(knew))}
    replaced = {n for old, new in pairs if _stands_for(old, new) for n in old.keys}
    taken_back = 0 < len(own) == len(history)  # all that the session has, and then it is the thread that counts
    begin = _begin(*pairs[0]) if pairs else 0 if taken_back else start
    edited = {history[n].id for n in own}  # the first exchange may be another one by now, under the same ids
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
    """The places of what a thread knew and has no more, and of what it never showed of that, as calls of tools."""
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
    if old.question is None:  # it was asked before what the history has
        return next((place for _, place in _both(old, new)), min(new.keys))
    return min(new.keys)


def _stands_for(old: _Exchange, new: _Exchange) -> bool:
    """Whether a thread shows another answer than the one that the history has to the same question."""
    differ = old.answered and bool(new.answer) and old.texts.isdisjoint(new.texts)
    return differ and len(_both(old, new)) < 2  # noqa: PLR2004


def _both(old: _Exchange, new: _Exchange) -> list[tuple[int, int]]:
    """The places of the messages that both forms of an exchange have; rising."""
    found = [(min(old.keys), min(new.keys))] if _asks_the_same(old, new) else []
    places: dict[tuple[int, object], list[int]] = {}  # by ids; contents; contents without the calls that end them
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
    """Whether the questions of two forms of an exchange are one, whatever their words.

    A filter may have changed it before it was recorded, or a client sends more with it than it keeps. But who keeps the
    ids of what was answered may have asked something else: an agent may be given a part of a question.
    """
    if old.question == new.question or None in {old.question, new.question}:
        return old.question == new.question is not None
    ids = {keys.id for keys in old.keys.values()} - {None}
    return old.changed or ids.isdisjoint(keys.id for keys in new.keys.values())


def _asks_less(old: _Exchange, new: _Exchange) -> bool:
    """Whether a client may know a question in these other words: many a question has a short answer such as "Yes."."""
    return old.changed or bool(new.question and old.question and new.question in old.question)


def _pairs(history: list[_Exchange], thread: list[_Exchange], by: Proof) -> list[tuple[_Exchange, _Exchange]]:
    """The exchanges that both have; rising. Those that share an id, and between them what says the same."""
    ids = {keys.id: n for n, old in enumerate(history) for keys in old.keys.values() if keys.id}
    shared: list[tuple[int, int]] = []
    for m, new in enumerate(thread):
        n = next((ids[keys.id] for keys in new.keys.values() if keys.id in ids), -1)
        if n >= 0 and (not shared or n > shared[-1][0]):
            shared.append((n, m))
    if shared and by == "questions":
        by = "ids"  # who gives back ids gives back answers
    pairs: list[tuple[_Exchange, _Exchange]] = []
    begin = 0, 0
    for n, m in [*shared, (len(history), len(thread))]:
        between = history[begin[0] : n]
        pairs += _longest(between, _answered(between, thread[begin[1] : m]), by)
        pairs += zip(history[n : n + 1], thread[m : m + 1], strict=True)
        begin = n + 1, m + 1
    return pairs


def _answered(history: list[_Exchange], thread: list[_Exchange]) -> list[_Exchange]:
    """Without a last question that is still to be answered, unless the history ends with it too."""
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
    """For each exchange of a history those of a thread that may be it, by their places, and how sure that is."""
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
    """How sure it is that two exchanges are the same one; 0, where nothing says so."""
    answers = not old.texts.isdisjoint(new.texts)
    if None in {old.question, new.question}:
        return _SURE if answers else 0
    if old.question != new.question:
        return int(by != "answers" and bool(old.answer) and old.answer == new.answer and _asks_less(old, new))
    if answers or not (old.answered or new.answered):
        return _SURE
    if not new.answered:
        return 0 if old.answer else 1  # a client does not show what is not said
    return 1 if by == "questions" or not old.answered else 0
