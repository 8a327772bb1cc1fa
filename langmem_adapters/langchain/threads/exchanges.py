"""The exchanges of a conversation, and those that a history and a thread share. Pure rules; no store is read.

An exchange is a question and what was answered to it. Messages with the same id and the same content are the same. But
a client that sends the whole conversation with each call may give new ids to old messages, leave out what it does not
show, such as tool calls, and send texts in place of blocks. So the rest is compared exchange by exchange.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import takewhile
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from langmem_adapters.conversation.stored_summary import unspaced_text
from langmem_adapters.longterm import RECALLED
from langmem_adapters.model import Message
from langmem_adapters.recall.memories import NOTIFICATION
from langmem_adapters.text import INSTRUCTION_ROLES

TextOf: TypeAlias = Callable[[Message], str]
"""Gives the text of a message by which it is compared."""

MatchBy: TypeAlias = Literal["answers", "questions", "ids"]
"""How an exchange is recognized. "answers": by its question and answer. "questions", for a client's own: by the
question alone, or by the last answer and a part of the question. "ids", if it keeps ids: by both, or the latter."""

CHANGED_KEY: Final = "brain_changed"
"""Key in the metadata of a question: its client knows it in other words."""

_CERTAIN = 2


class _Keys(NamedTuple):
    """What identifies a message."""

    id: tuple[str, str, str] | None
    content: tuple[str, ...] | None
    text: str

    @property
    def call_ids(self) -> tuple[str, ...]:
        """The ids of its tool calls, or of the one whose result it is."""
        return tuple(filter(None, (self.content or ())[2:]))


class Exchange:
    """A question and what followed it; ``question`` is None if the conversation begins in the middle of an exchange."""

    __slots__ = ("answer_texts", "is_answered", "is_changed", "keys", "last_answer", "question")

    def __init__(self, question: str | None) -> None:
        self.question = question
        self.is_answered = False
        self.is_changed = False  # whether its client is known to have the question in other words
        self.keys: dict[int, _Keys] = {}  # by the positions of the messages
        self.answer_texts: set[str] = set()  # of all answers; those of tools may be shown as the assistant's
        self.last_answer = ""  # what the assistant said last

    def add(self, position: int, message: Message, text: str) -> None:
        """Add the next message, with the text by which it is compared."""
        calls = [call.id or "" for call in message.tool_calls]
        has_content = bool(text or calls or message.tool_call_id or message.role == "user")
        content = (message.role, text, message.tool_call_id or "", *calls) if has_content else None
        self.keys[position] = _Keys(id_key(message, text), content, text)
        self.is_changed = self.is_changed or bool(message.metadata.get(CHANGED_KEY))
        if message.role != "user":
            self.is_answered = True
            self.answer_texts |= {text} - {""}
            if text and message.role == "assistant":
                self.last_answer = text


ExchangePairs: TypeAlias = list[tuple[Exchange, Exchange]]


def id_key(message: Message, text: str) -> tuple[str, str, str] | None:
    """The id with role and text, if there is an id: clients that number each request's messages anew repeat ids."""
    return (message.id, message.role, text) if message.id else None


def is_dialogue(message: Message) -> bool:
    """Whether a message was said in the conversation: it is no instruction, no summary and no recalled memory."""
    if message.role in INSTRUCTION_ROLES or message.metadata.get(RECALLED):
        return False
    return not is_summary_or_recalled(message.host.get("langchain", {}).get("additional_kwargs") or {})


def is_summary_or_recalled(additional_kwargs: Mapping[str, Any]) -> bool:
    """Whether the additional arguments of a message mark it as a summary or as recalled."""
    # LangChain's SummarizationMiddleware writes its summary as a user message
    return bool(additional_kwargs.get(RECALLED)) or additional_kwargs.get("lc_source") == "summarization"


def instruction_count(messages: Sequence[Message]) -> int:
    """How many instructions a conversation begins with."""
    return next((n for n, message in enumerate(messages) if message.role not in INSTRUCTION_ROLES), len(messages))


def split_both(
    history: Sequence[Message], thread: Sequence[Message], text_of: TextOf
) -> tuple[list[Exchange], list[Exchange]]:
    """The exchanges of a history and of a thread, without instructions, summaries and recalled memories.

    What an agent's harness added is no question, not even where a client sends it back as a user's message.
    """
    added, asked = set[str](), set[str]()
    for message in filter(is_dialogue, history):
        if message.role == "user":
            (added if message.metadata.get(NOTIFICATION) else asked).add(unspaced_text(message))
    return _split_exchanges(history, unspaced_text), _split_exchanges(thread, text_of, added - asked)


def _split_exchanges(messages: Sequence[Message], text_of: TextOf, added: Collection[str] = ()) -> list[Exchange]:
    exchanges: list[Exchange] = []
    for position, message in enumerate(messages):
        if is_dialogue(message):
            text = text_of(message)
            is_question = message.role == "user" and not message.metadata.get(NOTIFICATION) and text not in added
            if is_question or not exchanges:
                exchanges.append(Exchange(text if is_question else None))
            exchanges[-1].add(position, message, text)
    return exchanges


def has_other_answer(old: Exchange, new: Exchange) -> bool:
    """Whether a thread shows another answer than the history to the same question."""
    answers_differ = old.is_answered and bool(new.last_answer) and old.answer_texts.isdisjoint(new.answer_texts)
    return answers_differ and len(position_pairs(old, new)) < 2  # noqa: PLR2004


def position_pairs(old: Exchange, new: Exchange) -> list[tuple[int, int]]:
    """The positions of the messages that both forms of an exchange have; rising."""
    pairs = [(min(old.keys), min(new.keys))] if _asks_the_same(old, new) else []
    by_id: dict[object, list[int]] = {}
    by_content: dict[object, list[int]] = {}
    by_content_without_calls: dict[object, list[int]] = {}
    for n, keys in old.keys.items():
        if keys.id:
            by_id.setdefault(keys.id, []).append(n)
        if keys.content:
            by_content.setdefault(keys.content, []).append(n)
            by_content_without_calls.setdefault(keys.content[:3], []).append(n)
    for position, keys in list(new.keys.items())[len(pairs) :]:
        last_position = pairs[-1][0] if pairs else -1
        candidates = by_id.get(keys.id), by_content.get(keys.content), by_content_without_calls.get(keys.content)
        positions = next((ns for ns in candidates if ns and ns[-1] > last_position), None)
        if positions is not None:
            pairs.append((positions[bisect_right(positions, last_position)], position))
    return pairs


def _asks_the_same(old: Exchange, new: Exchange) -> bool:
    """Whether two forms of an exchange have the same question, even in other words.

    A filter may have changed it before it was recorded, or a client sends more with it than it keeps. But a client that
    keeps the ids of answers may have asked something else: an agent may be given a part of a question.
    """
    if old.question is None or new.question is None:
        return False
    if old.question == new.question:
        return True
    ids = {keys.id for keys in old.keys.values()} - {None}
    return old.is_changed or ids.isdisjoint(keys.id for keys in new.keys.values())


def _may_ask_the_same(old: Exchange, new: Exchange) -> bool:
    """Whether a client may know the question in these words; a shared short answer such as "Yes." does not prove it."""
    return old.is_changed or bool(new.question and old.question and new.question in old.question)


def pair_exchanges(history: list[Exchange], thread: list[Exchange], by: MatchBy) -> ExchangePairs:
    """The exchanges that both have, rising: those that share an id, and between them those that say the same."""
    ids = {keys.id: n for n, old in enumerate(history) for keys in old.keys.values() if keys.id}
    shared_by_id: list[tuple[int, int]] = []
    for m, new in enumerate(thread):
        n = next((ids[keys.id] for keys in new.keys.values() if keys.id in ids), -1)
        if n >= 0 and (not shared_by_id or n > shared_by_id[-1][0]):
            shared_by_id.append((n, m))
    if shared_by_id and by == "questions":
        by = "ids"  # a client that returns ids returns answers
    pairs: ExchangePairs = []
    history_start = thread_start = 0
    for n, m in [*shared_by_id, (len(history), len(thread))]:
        between = history[history_start:n]
        pairs += _longest_common(between, _without_pending_question(between, thread[thread_start:m]), by)
        pairs += zip(history[n : n + 1], thread[m : m + 1], strict=True)  # none at the end of both
        history_start, thread_start = n + 1, m + 1
    return pairs


def _without_pending_question(history: list[Exchange], thread: list[Exchange]) -> list[Exchange]:
    """The thread without a last question that is not answered yet, unless the history ends with that one, too."""
    if not thread or thread[-1].is_answered or (history and _likeness(history[-1], thread[-1], "answers") == _CERTAIN):
        return thread
    return thread[:-1]


def _longest_common(history: list[Exchange], thread: list[Exchange], by: MatchBy) -> ExchangePairs:
    """The longest sequence of exchanges that both have; of several, the one that reaches farthest in the thread."""
    reversed_pairs = zip(reversed(history), reversed(thread), strict=False)
    tail_length = len(list(takewhile(lambda pair: _likeness(*pair, by) == _CERTAIN, reversed_pairs)))
    tail = zip(history[len(history) - tail_length :], thread[len(thread) - tail_length :], strict=True)
    history, thread = history[: len(history) - tail_length], thread[: len(thread) - tail_length]
    pairs = heaviest_alignment(_weights(history, thread, by), len(thread))
    return [*((history[n], thread[m]) for n, m in pairs), *tail]


def _weights(history: list[Exchange], thread: list[Exchange], by: MatchBy) -> list[dict[int, int]]:
    """For each exchange of a history, the positions of those in the thread that may be it, and how sure that is."""
    questions: dict[str | None, list[int]] = {}
    answers: dict[str, list[int]] = {}
    for m, new in enumerate(thread):
        questions.setdefault(new.question, []).append(m)
        if by != "answers" and new.last_answer:
            answers.setdefault(new.last_answer, []).append(m)
    weights = []
    for old in history:
        candidates = {*questions.get(old.question, ()), *questions.get(None, ()), *answers.get(old.last_answer, ())}
        positions = range(len(thread)) if old.question is None else candidates
        weights.append({m: likeness for m in positions if (likeness := _likeness(old, thread[m], by))})
    return weights


def _likeness(old: Exchange, new: Exchange, by: MatchBy) -> int:
    """How sure it is that two exchanges are the same; 0 if nothing says so."""
    shares_answer = not old.answer_texts.isdisjoint(new.answer_texts)
    if None in {old.question, new.question}:
        return _CERTAIN if shares_answer else 0
    if old.question != new.question:
        shares_last_answer = bool(old.last_answer) and old.last_answer == new.last_answer
        return int(by != "answers" and shares_last_answer and _may_ask_the_same(old, new))
    if shares_answer or not (old.is_answered or new.is_answered):
        return _CERTAIN
    if not new.is_answered:
        return 0 if old.last_answer else 1  # clients do not show an answer without text
    return 1 if by == "questions" or not old.is_answered else 0


def heaviest_alignment(weights: Sequence[Mapping[int, int]], column_count: int) -> list[tuple[int, int]]:
    """Pairs of a row and a column, both rising, of the greatest total weight; of several, those in the last columns.

    Only pairs that are possible are examined, as Hunt and Szymanski do it, not each row with each column.

    Args:
        weights: For each row, the columns that it may be paired with, and the weight of each pair, which is above 0.
        column_count: How many columns there are.

    >>> heaviest_alignment([{0: 1, 2: 1}, {1: 2}, {2: 2}], 3)
    [(0, 0), (1, 1), (2, 2)]
    """
    first_columns: list[int] = []  # the first column that reaches a weight of 1, 2, 3 …
    pairs_by_total: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)  # the pairs that complete each weight
    for row, row_weights in enumerate(weights):
        totals = [(bisect_left(first_columns, column) + weight, column) for column, weight in row_weights.items()]
        for total, column in totals:
            pairs_by_total[total].append((row, column))
            start = total
            while start and (start > len(first_columns) or first_columns[start - 1] > column):
                start -= 1
            first_columns[start:total] = [column] * (total - start)
    pairs: list[tuple[int, int]] = []
    end_row, end_column, total = len(weights), column_count, len(first_columns)
    while total:
        candidates = [(row, column) for row, column in pairs_by_total[total] if row < end_row and column < end_column]
        rows_of_last_column = [row for row, column in candidates if column == end_column - 1]
        if rows_of_last_column:
            end_row, end_column = rows_of_last_column[-1], end_column - 1
        else:
            end_row, _ = candidates[0]  # rows rise
            end_column = max(column for row, column in candidates if row == end_row)
        total -= weights[end_row][end_column]
        pairs.append((end_row, end_column))
    return pairs[::-1]
