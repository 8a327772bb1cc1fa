"""Measures how well a long-term memory finds what questions ask for, and fits weights to questions."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from langmem_adapters.errors import ConfigurationError, SerializationError
from langmem_adapters.fitting import Case, Fit, cross_validate, share_found
from langmem_adapters.flow import Flow, arun, run, step
from langmem_adapters.json_files import read_all, text_of, values_of
from langmem_adapters.longterm import LongTermMemory
from langmem_adapters.model import Memory
from langmem_adapters.progress import Progress, advancing
from langmem_adapters.recall.memories import fold_text
from langmem_adapters.signals import SIGNALS
from langmem_adapters.validation import check_function, check_text, checked_list

__all__ = ["Evaluation", "Question", "aevaluate", "afit", "checked_questions", "evaluate", "fit", "read_questions"]

CUTS = (5, 10, 20)


class Question(NamedTuple):
    """A question and its answers: for each, the id of a message or of a memory, or the text of one.

    ``user`` says whose memory is asked; "": the only one.

    >>> Question("Where is the bike?", frozenset({"m1"})).evidence
    frozenset({'m1'})
    """

    text: str
    evidence: frozenset[str]
    user: str = ""


class Evaluation(NamedTuple):
    """How well a memory found the answers.

    ``recall`` holds, by k, the mean share of a question's answers among the first k; ``mrr`` is the mean of 1 / rank
    of the first answer, 0 beyond the twentieth; ``unknown`` counts answers that no memory holds, and that count as
    not found; ``p50`` is the median of the milliseconds that a search took.
    """

    questions: int
    recall: dict[int, float]
    mrr: float
    unknown: int
    p50: float


def evaluate(
    memory_of: Callable[[str], LongTermMemory],
    questions: Sequence[Question],
    *,
    timer: Callable[[], float] = time.perf_counter,
    progress: Progress = False,
) -> Evaluation:
    """Search for every question, and measure what is found.

    Args:
        memory_of: Gives the memory of a user.
        questions: See :func:`read_questions`.
        timer: Gives seconds.
        progress: Shows the questions; see :data:`~langmem_adapters.progress.Progress`.

    Raises ConfigurationError if there are no questions.

    >>> from langmem_adapters import Message, open_index, open_store
    >>> memory = LongTermMemory(open_store("memory:"), open_index("memory:"), user="ada")
    >>> memory.add([Message(role="user", content="My bike is in the shed.", id="m1")])
    >>> evaluate(lambda user: memory, [Question("Where is the bike?", frozenset({"m1"}))]).recall[5]
    1.0
    """
    return run(_evaluate(memory_of, questions, timer, progress))


async def aevaluate(
    memory_of: Callable[[str], LongTermMemory],
    questions: Sequence[Question],
    *,
    timer: Callable[[], float] = time.perf_counter,
    progress: Progress = False,
) -> Evaluation:
    """:func:`evaluate`, without blocking the event loop."""
    return await arun(_evaluate(memory_of, questions, timer, progress))


def fit(
    memory_of: Callable[[str], LongTermMemory], questions: Sequence[Question], *, progress: Progress = False
) -> Fit:
    """Fit the weights of the signals to questions, and say whether that helps with others.

    It is judged on users whose questions took no part, or, with fewer than three of them, on every fifth question.
    The memories' own weights play no part: the fit starts from :data:`langmem_adapters.signals.SIGNALS`.
    ``progress`` shows the questions as they are asked.

    Raises ConfigurationError for fewer than ten questions that a memory has an answer to.
    """
    return run(_fit(memory_of, questions, progress))


async def afit(
    memory_of: Callable[[str], LongTermMemory], questions: Sequence[Question], *, progress: Progress = False
) -> Fit:
    """:func:`fit`, without blocking the event loop."""
    return await arun(_fit(memory_of, questions, progress))


def _evaluate(
    memory_of: Callable[[str], LongTermMemory],
    questions: Sequence[Question],
    timer: Callable[[], float],
    progress: Progress,
) -> Flow[Evaluation]:
    questions = checked_questions(questions)
    if not questions:
        raise ConfigurationError("there are no questions to search for")
    check_function("memory_of", memory_of)
    shares: dict[int, list[float]] = {cutoff: [] for cutoff in CUTS}
    reciprocal_ranks, seconds, unknown_count = [], [], 0
    with advancing(progress, "searching", len(questions), "questions") as advance:
        for user, user_questions in _questions_by_user(questions).items():
            memory, answers_by_memory = yield from _read_answers(memory_of, user, user_questions)
            known_answers = set().union(*answers_by_memory.values())
            for question in user_questions:
                unknown_count += len(question.evidence - known_answers)
                start = timer()
                recalled_memories = yield from memory.search_flow(question.text, max(CUTS))
                seconds.append(timer() - start)
                ids = [recalled.memory.id for recalled in recalled_memories]
                hits = [answers_by_memory.get(id_, frozenset()) & question.evidence for id_ in ids]
                for cutoff, values in shares.items():
                    values.append(share_found(hits[:cutoff], len(question.evidence)))
                reciprocal_ranks.append(next((1 / rank for rank, hit in enumerate(hits, start=1) if hit), 0.0))
                advance(1)
    recall = {cutoff: statistics.fmean(values) for cutoff, values in shares.items()}
    mrr, p50 = statistics.fmean(reciprocal_ranks), 1000 * statistics.median(seconds)
    return Evaluation(len(questions), recall, mrr, unknown_count, p50)


def _fit(memory_of: Callable[[str], LongTermMemory], questions: Sequence[Question], progress: Progress) -> Flow[Fit]:
    questions = checked_questions(questions)
    check_function("memory_of", memory_of)
    cases = []
    with advancing(progress, "searching", len(questions), "questions") as advance:
        for user, user_questions in _questions_by_user(questions).items():
            memory, answers_by_memory = yield from _read_answers(memory_of, user, user_questions)
            for question in user_questions:
                candidates = yield from memory.candidates_flow(question.text, max(CUTS))
                hits = [answers_by_memory.get(id_, frozenset()) & question.evidence for id_ in candidates]
                answers = {position: hit for position, hit in enumerate(hits) if hit}
                if answers:
                    cases.append(Case(user, list(candidates.values()), answers, len(question.evidence)))
                advance(1)
    has_meaning = any("meaning" in signals for case in cases for signals in case.signals)
    weights = {name: signal.both if has_meaning else signal.words for name, signal in SIGNALS.items()}
    return (yield from step(cross_validate, cases, weights))


def _read_answers(
    memory_of: Callable[[str], LongTermMemory], user: str, user_questions: Sequence[Question]
) -> Flow[tuple[LongTermMemory, dict[str, frozenset[str]]]]:
    """The memory of a user, and what each of its memories answers."""
    memory = memory_of(user)
    if not hasattr(memory, "search_flow"):
        raise ConfigurationError(f"memory_of gives a LongTermMemory for each user, not {type(memory).__name__}")
    return memory, _answers_by_memory((yield from step(memory.all)), user_questions)


def checked_questions(questions: Iterable[Question]) -> list[Question]:
    """The questions. Raises ConfigurationError for anything else, and for evidence that is empty or no set of texts."""
    checked = checked_list(questions, 'questions are a list of Question("…", frozenset({"m1"}))', Question)
    for question in checked:
        check_text("the text of a question", question.text)
        check_text("the user of a question", question.user)
        if not isinstance(question.evidence, frozenset | set):
            kind = type(question.evidence).__name__
            raise ConfigurationError(f'the evidence of a question is a set, such as frozenset({{"m1"}}), not {kind}')
        if not (question.evidence and all(isinstance(answer, str) and answer for answer in question.evidence)):
            raise ConfigurationError("the evidence of a question holds at least one id or text, and nothing else")
    return checked


def _questions_by_user(questions: Sequence[Question]) -> dict[str, list[Question]]:
    questions_by_user: dict[str, list[Question]] = {}
    for question in questions:
        questions_by_user.setdefault(question.user, []).append(question)
    return questions_by_user


def _answers_by_memory(memories: Sequence[Memory], questions: Sequence[Question]) -> dict[str, frozenset[str]]:
    """Which of the requested answers each memory holds, by the memory's id."""
    requested = frozenset().union(*(question.evidence for question in questions))
    answers_by_text: dict[str, set[str]] = {}
    for answer in requested:
        answers_by_text.setdefault(fold_text(answer), set()).add(answer)
    answers_by_memory = {}
    for memory in memories:
        memory_ids = {memory.id, *(occurrence.message_id for occurrence in memory.occurrences)}
        quoted = answers_by_text.get(fold_text(memory.message.text), set())
        answers_by_memory[memory.id] = (memory_ids & requested) | quoted
    return {id_: frozenset(answers) for id_, answers in answers_by_memory.items() if answers}


# ---- files


def read_questions(path: str | os.PathLike[str]) -> list[Question]:
    """Read questions from a JSON list, from JSON Lines, or from a LoCoMo file, plain or gzipped.

    A question is ``{"question": "Where is the bike?", "evidence": ["m1"], "user": "ada"}``, with the user if there are
    several. ``evidence`` names messages by id, or quotes their text. Each conversation of a LoCoMo file is a user,
    as ``langmem-adapters import`` makes it; its questions without evidence are left out.

    Raises SerializationError, naming the first wrong place, and OSError if the file cannot be read.
    """
    try:
        with Path(path).open("rb") as file:
            values = values_of(text_of(read_all(file)))
        return [question for location, value in values for question in _parse_questions(location, value)]
    except SerializationError as error:
        raise SerializationError(f"{path}: {error}") from error


def _parse_questions(location: str, value: Any) -> Iterator[Question]:
    if isinstance(value, dict) and isinstance(value.get("conversations"), list):
        for number, item in enumerate(value["conversations"], start=1):
            yield from _parse_questions(f"item {number}", item)
    elif isinstance(value, dict) and isinstance(value.get("qa"), list):
        for number, item in enumerate(value["qa"], start=1):
            inner = f"{location}, question {number}"
            if not isinstance(item, dict) or "ev" not in item:
                raise SerializationError(f'{inner} has no "ev"')
            if item["ev"]:
                yield _parse_question(inner, item.get("q"), item["ev"], value.get("id"))
    elif isinstance(value, dict):
        yield _parse_question(location, value.get("question"), value.get("evidence"), value.get("user", ""))
    else:
        raise SerializationError(f"{location} is not a question")


def _parse_question(location: str, text: Any, evidence: Any, user: Any) -> Question:
    if not (isinstance(text, str) and text.strip()):
        raise SerializationError(f'{location} has no text as its "question"')
    evidence = [evidence] if isinstance(evidence, str) else evidence
    if not (isinstance(evidence, list) and evidence and all(isinstance(answer, str) and answer for answer in evidence)):
        raise SerializationError(f'{location} has no list of texts as its "evidence"')
    if not isinstance(user, str):
        raise SerializationError(f'{location} has no text as its "user"')
    return Question(text, frozenset(evidence), user)
