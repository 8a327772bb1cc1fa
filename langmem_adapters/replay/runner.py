"""The replay itself: adds each message, and measures for each answer what a model would have been shown."""

from __future__ import annotations

import itertools
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from langmem_adapters.brain import BrainMemory
from langmem_adapters.errors import ConfigurationError
from langmem_adapters.evaluation import Question, checked_questions
from langmem_adapters.experience import Verifier
from langmem_adapters.experience.verified import VerifiedAnswers
from langmem_adapters.flow import Flow, Step, arun, run
from langmem_adapters.importing import Transcript, read_transcripts
from langmem_adapters.keys import fingerprint
from langmem_adapters.longterm import RECALLED
from langmem_adapters.model import Message, Recalled, Summary
from langmem_adapters.progress import Progress, advancing
from langmem_adapters.recall.memories import fold_text, memory_id
from langmem_adapters.replay.comparison import Call, Comparison, Outcome
from langmem_adapters.replay.configuration import Configuration, Memories
from langmem_adapters.tokens import TokenCounter, approximate_tokens, count_tokens, message_tokens
from langmem_adapters.validation import checked_list

Conversation: TypeAlias = Sequence[Message] | Sequence[Transcript] | str | os.PathLike[str]
"""Messages of one session; what :func:`~langmem_adapters.importing.read_transcripts` gives; or a file that it reads."""

_ScopedQuestion: TypeAlias = tuple[str, str, Question]  # with the user and the session in which it is asked
_DEFAULT_USER, _DEFAULT_SESSION = "replayed", "replayed"  # if the record does not say
_DEFAULT_START = 946_684_800.0  # the year 2000, for a record without times: memories are shown with their day


class RecordedSession(NamedTuple):
    """A session, its user and its messages."""

    user: str
    session: str
    messages: list[Message]


class _Setup(NamedTuple):
    """What all configurations of a comparison have in common."""

    model: Any
    counter: TokenCounter
    timer: Callable[[], float]


def replay(
    conversation: Conversation,
    configurations: Mapping[str, Configuration],
    *,
    questions: Sequence[Question] = (),
    model: Any = None,
    counter: TokenCounter = approximate_tokens,
    timer: Callable[[], float] = time.perf_counter,
    progress: Progress = False,
) -> Comparison:
    """Replay a recorded conversation with each configuration, and compare what that costs and finds.

    Every message of an assistant is a model call: what the model would be shown is read from the memory, and counted.
    Then the recorded answer is added, so that all configurations go through the same conversation. All is kept in this
    process and forgotten at the end. The clock is that of the record; without one, a second passes between two
    messages.

    Args:
        conversation: Messages of one session, transcripts, or the path of a file that
            :func:`~langmem_adapters.importing.read_transcripts` reads. Each session has a window of its own; the
            long-term memory is the user's.
        configurations: By names of your choice.
        questions: Asked at the end, in the user's last session: is their evidence shown to the model, in the
            window or recalled? See :func:`~langmem_adapters.evaluation.read_questions`.
        model: Makes the summaries: any LangChain or LlamaIndex model, or a function from prompt to text.
        counter: Counts tokens.
        timer: Gives seconds.
        progress: Shows the messages and questions; see :data:`~langmem_adapters.progress.Progress`.

    Raises ConfigurationError for settings that do not go together. A summary that fails is counted.

    >>> from langmem_adapters import Message
    >>> from langmem_adapters.evaluation import Question
    >>> said = [Message(role="user", content="My bike is in the old shed.", id="m1")]
    >>> for n in range(20):
    ...     said.append(Message(role="assistant", content="I see."))
    ...     said.append(Message(role="user", content=f"It rained on day {n}."))
    >>> settings = {
    ...     "everything": Configuration(),
    ...     "the last 4": Configuration(memory_k=4),
    ...     "with recall": Configuration(memory_k=4, recall_k=2),
    ... }
    >>> found = replay(said, settings, questions=[Question("Where is the bike?", frozenset({"m1"}))])
    >>> for row in found.rows():
    ...     print(row["configuration"], row["most_tokens"], row["recall"])
    everything 296 1.0
    the last 4 26 0.0
    with recall 68 1.0
    """
    setup = _Setup(model, counter, timer)
    return run(_replay_flow(recorded_sessions(conversation), configurations, questions, setup, progress))


async def areplay(
    conversation: Conversation,
    configurations: Mapping[str, Configuration],
    *,
    questions: Sequence[Question] = (),
    model: Any = None,
    counter: TokenCounter = approximate_tokens,
    timer: Callable[[], float] = time.perf_counter,
    progress: Progress = False,
) -> Comparison:
    """:func:`replay`, without blocking the event loop."""
    setup = _Setup(model, counter, timer)
    return await arun(_replay_flow(recorded_sessions(conversation), configurations, questions, setup, progress))


def _replay_flow(
    sessions: Sequence[RecordedSession],
    configurations: Mapping[str, Configuration],
    questions: Sequence[Question],
    setup: _Setup,
    progress: Progress,
) -> Flow[Comparison]:
    if not configurations or not isinstance(configurations, Mapping):
        raise ConfigurationError("give at least one configuration, under a name")
    checked_list(configurations.values(), "configurations are made as Configuration(…)", Configuration)
    if setup.model is None and any(each.summarize_at is not None for each in configurations.values()):
        raise ConfigurationError("a configuration with summarize_at needs a model= that makes summaries")
    last_sessions = {session.user: session.session for session in sessions}
    scoped_questions = [_with_scope(question, last_sessions) for question in checked_questions(questions)]
    total = len(configurations) * (sum(len(session.messages) for session in sessions) + len(scoped_questions))
    outcomes = {}
    with advancing(progress, "replaying", total, "messages") as advance:
        for name, configuration in configurations.items():
            outcomes[name] = yield from _Replay(configuration, setup, advance).flow(sessions, scoped_questions)
    return Comparison(outcomes)


def recorded_sessions(conversation: Conversation) -> list[RecordedSession]:
    """The sessions of a conversation that have messages, in their order. Raises ConfigurationError if none has."""
    if isinstance(conversation, str | os.PathLike):
        conversation = read_transcripts(conversation)
    items: list[Any] = checked_list(conversation, "a conversation is messages or transcripts", Message, Transcript)
    messages = [item for item in items if isinstance(item, Message)]
    transcripts = [item for item in items if isinstance(item, Transcript)]
    if transcripts and messages:
        raise ConfigurationError("a conversation is messages or transcripts, and not both")
    sessions = [RecordedSession(item.user or _DEFAULT_USER, item.session, item.messages()) for item in transcripts]
    sessions.append(RecordedSession(_DEFAULT_USER, _DEFAULT_SESSION, messages))
    sessions = [session for session in sessions if session.messages]
    if not sessions:
        raise ConfigurationError("this conversation has no messages to replay")
    return sessions


def _with_scope(question: Question, last_sessions: Mapping[str, str]) -> _ScopedQuestion:
    user = question.user
    if not user and len(last_sessions) == 1:
        (user,) = last_sessions
    if user not in last_sessions:
        raise ConfigurationError("a question names one of the users whose conversations are replayed")
    return user, last_sessions[user], question


class _Replay:
    """One configuration at work."""

    def __init__(self, configuration: Configuration, setup: _Setup, advance: Callable[[int], object]) -> None:
        self._configuration = configuration
        self._setup = setup
        self._advance = advance
        self._now = _DEFAULT_START
        self._question_numbers = itertools.count(1)
        self._memories = Memories(configuration, model=setup.model, counter=setup.counter, clock=lambda: self._now)
        self._served_answers: VerifiedAnswers | None = None
        if configuration.serve_above is not None:
            verifier = Verifier(configuration.serve_above)
            store, vectors = self._memories.store, self._memories.vectors
            self._served_answers = VerifiedAnswers(store, ("replayed",), vectors, verifier=verifier)
        self._calls: list[Call] = []
        self._served = 0
        self._tokens = 0

    def flow(self, sessions: Sequence[RecordedSession], questions: Sequence[_ScopedQuestion]) -> Flow[Outcome]:
        """Go through the conversation, and then ask."""
        brains: dict[tuple[str, str], BrainMemory] = {}
        start = self._setup.timer()
        for user, session, messages in sessions:
            brain = brains.setdefault((user, session), self._memories.brain(user, session))
            for message in messages:
                if message.role == "assistant":
                    yield from self._count_answer(brain, message)
                self._now = self._now + 1 if message.created_at is None else message.created_at
                yield _as_step(brain.add_messages, brain.aadd_messages, [message])
                self._advance(1)
        seconds = self._setup.timer() - start
        stats = [brain.stats() for brain in brains.values()]
        tokens = self._tokens + sum(usage["tokens_in"] + usage["tokens_out"] for usage in stats)
        summaries = sum(usage["calls"] for usage in stats)
        failed_summaries = sum(usage["failed_summaries"] for usage in stats)
        shares = []
        for scoped_question in questions:
            shares.append((yield from self._evidence_share(*scoped_question)))
            self._advance(1)
        recall = statistics.fmean(shares) if shares else None
        return Outcome(self._calls, self._served, summaries, failed_summaries, tokens, recall, seconds)

    def _count_answer(self, brain: BrainMemory, message: Message) -> Flow[None]:
        """Count what an answer costs: it is served, or it is a call."""
        start = self._setup.timer()
        visible = yield from self._visible_messages(brain)
        summary: Summary | None = yield _as_step(brain.get_summary, brain.aget_summary)
        seconds = self._setup.timer() - start
        summary_text = summary.text if summary else ""
        if not message.tool_calls and (yield from self._is_served(summary_text, visible)):
            self._served += 1
            return
        counter = self._setup.counter
        summary_tokens = count_tokens(summary_text, counter) if summary_text else 0
        tokens = sum(message_tokens(each, counter) for each in visible) + summary_tokens
        self._calls.append(Call(tokens, seconds))
        self._tokens += tokens + message_tokens(message, counter)

    def _visible_messages(self, brain: BrainMemory) -> Flow[list[Message]]:
        """The window, with the memories that fit its last message."""
        if brain.long_term is not None and self._configuration.embedder is not None:
            # Vectors follow in the background; otherwise what is found would depend on timing.
            yield _as_step(brain.long_term.flush, brain.long_term.aflush)
        k = self._configuration.recall_k
        messages: list[Message] = yield _as_step(brain.remembering_window, brain.aremembering_window, recall_k=k)
        return messages

    def _is_served(self, summary_text: str, visible: Sequence[Message]) -> Flow[bool]:
        """Whether this was asked before, in any words; if not, note that it was asked now."""
        if self._served_answers is None or not visible or visible[-1].role != "user":
            return False
        partition = fingerprint(summary_text, [[message.role, message.text] for message in visible[:-1]])
        if (yield from self._served_answers.find_flow(partition, visible[-1].text)):
            return True
        yield from self._served_answers.keep_flow(partition, visible[-1].text, f"answer-{len(self._calls)}")
        return False

    def _evidence_share(self, user: str, session: str, question: Question) -> Flow[float]:
        """The share of a question's evidence that a model would be shown with it. Deletes the question afterwards."""
        brain = self._memories.brain(user, session, with_summaries=False)
        # A new id each time: a deleted one would be taken for a repeated delivery.
        message = Message(role="user", content=question.text, id=f"question-{next(self._question_numbers)}")
        yield _as_step(brain.add_messages, brain.aadd_messages, [message])
        visible = yield from self._visible_messages(brain)
        recalled = yield from self._recalled_memories(brain, message, visible)
        session_only = BrainMemory(self._memories.store, session, user=user)
        yield _as_step(session_only.delete, session_only.adelete, [message.id])
        said = [each for each in visible if each.id != message.id]  # the question is no evidence of itself
        names = {name for each in said for name in (each.id, memory_id(each), fold_text(each.text))}
        names.update(name for memory in recalled for name in _evidence_names(memory))
        expected = {name if name in names else fold_text(name) for name in question.evidence}
        return len(expected & names) / len(expected)

    def _recalled_memories(
        self, brain: BrainMemory, question: Message, visible: Sequence[Message]
    ) -> Flow[list[Recalled]]:
        """The memories in front of the window, each on a line below the heading: the best that had room."""
        lines = sum(message.text.count("\n") for message in visible if message.metadata.get(RECALLED))
        if brain.long_term is None or not lines:
            return []
        window: list[Message] = yield _as_step(brain.window, brain.awindow)
        k = self._configuration.recall_k
        long_term = brain.long_term
        memories: list[Recalled] = yield _as_step(long_term.search, long_term.asearch, question.text, k, exclude=window)
        return memories[:lines]


def _evidence_names(recalled: Recalled) -> Iterator[str]:
    """The names by which evidence may refer to a memory."""
    yield recalled.memory.id
    yield fold_text(recalled.text)
    yield from (occurrence.message_id for occurrence in recalled.memory.occurrences)


def _as_step(call: Callable[..., Any], acall: Callable[..., Any], *args: Any, **kwargs: Any) -> Step:
    return Step(partial(call, *args, **kwargs), partial(acall, *args, **kwargs))
