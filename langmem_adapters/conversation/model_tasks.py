"""What a model is asked about a session: the flows behind BrainMemory's summarize, get_title, refine and the like."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any

from langmem_adapters.completion import Completer, is_refusal
from langmem_adapters.concurrency.counts import Counts
from langmem_adapters.concurrency.forks import call_in_child
from langmem_adapters.concurrency.locks import ForkSafeLock
from langmem_adapters.concurrency.outcomes import Outcome
from langmem_adapters.conversation.compaction import Compaction
from langmem_adapters.conversation.session import Conversation
from langmem_adapters.conversation.summary import Summarizer
from langmem_adapters.errors import ConfigurationError, ModelError
from langmem_adapters.flow import Flow, Step, call_either, run, submit
from langmem_adapters.keys import Namespace
from langmem_adapters.prompts import Prompts
from langmem_adapters.text import as_text, window
from langmem_adapters.tokens import TokenCounter
from langmem_adapters.understanding import parse_verdict, title_in, unquoted
from langmem_adapters.validation import check_count, check_sync_function, check_text

_ASYNC_MODEL_ERROR = (
    "messages are summarised inline by a model that is a coroutine function: add them with an async method"
)
_log = logging.getLogger("langmem_adapters")
_LOOK_SECONDS = 1.0  # between two looks whether a summary has ended
CONTEXT_TOKENS = 2000  # tokens of history that a model is asked about; a longer history is summarised first


class _PendingSummary:
    """A summary in progress; ``has_grown``: whether its session has grown since it was last checked."""

    def __init__(self) -> None:
        self.end = Outcome[None]()
        self.has_grown = True


_pending: dict[tuple[int, Namespace], _PendingSummary] = {}  # by session, while a summary is in progress
_lock = ForkSafeLock()
call_in_child(_pending.clear)  # their threads are the parent's


class ModelTasks:
    """The tasks of a model for one session."""

    def __init__(
        self,
        conversation: Conversation,
        *,
        model: Any,
        summarize_at: int,
        archive: bool,
        max_summary_tokens: int,
        counter: TokenCounter,
        prompts: Prompts,
        stats: Counts,
    ) -> None:
        if not isinstance(prompts, Prompts):
            raise ConfigurationError(f"prompts are langmem_adapters.prompts.Prompts(…), not {type(prompts).__name__}")
        if not callable(counter):
            raise ConfigurationError(f"counter is a function from a text to its tokens, not {type(counter).__name__}")
        check_sync_function("counter", counter)
        self._conversation = conversation
        self._compaction = Compaction(
            conversation, summarize_at=summarize_at, archive=archive, counter=counter, stats=stats
        )
        self._max_summary_tokens = max_summary_tokens
        self._counter = counter
        self._prompts = prompts
        self._stats = stats
        self._key = (id(conversation.store), conversation.namespace)
        self._default_completer = None if model is None else self._completer(model)

    def compact(self, model: Any = None) -> Flow[None]:
        """Summarise, if that is due and not in progress already."""
        pending = _PendingSummary()
        try:
            if self._start_summary(pending):
                yield from self._compaction.compact_if_due(self._summarizer(model))
        finally:
            self._end_summary(pending)

    def check_background(self) -> None:
        """Raise ConfigurationError if the model cannot be asked on a worker thread."""
        if not self._completer(None).blocks:
            raise ConfigurationError('a model that is a coroutine function needs summarize_in="inline"')

    def check_inline(self) -> Flow[None]:
        """Raise ConfigurationError, before anything is stored, if this blocks and the model can only be awaited."""
        if not self._completer(None).blocks:
            yield from call_either(None, asyncio.sleep, _ASYNC_MODEL_ERROR, 0)

    def compact_in_background(self) -> None:
        """:meth:`compact` on a worker thread; again, if messages were added while it ran."""
        pending = _PendingSummary()
        try:
            if self._start_summary(pending):
                submit(lambda: self._compact_and_log(pending))
        except BaseException as error:
            self._end_summary(pending)
            if not isinstance(error, RuntimeError):  # of an interpreter that is shutting down
                raise

    def _start_summary(self, pending: _PendingSummary) -> bool:
        """False if a summary is in progress; one in the background then checks again."""
        with _lock.held():
            current = _pending.setdefault(self._key, pending)
            current.has_grown = True
            return current is pending

    def _compact_and_log(self, pending: _PendingSummary) -> None:
        try:
            while self._begin_check(pending):
                run(self._compaction.compact_if_due(self._summarizer(None)))
        except BaseException:  # noqa: BLE001 - even a cancelled client's: only a log can tell
            self._stats.add("failed_summaries")
            _log.exception("a summary in the background failed, and the next turn tries again")
        finally:
            self._end_summary(pending)

    def _begin_check(self, pending: _PendingSummary) -> bool:
        """Whether another check is due; if not, the next message that is added begins a new summary."""
        with _lock.held():
            is_due, pending.has_grown = pending.has_grown and _pending.get(self._key) is pending, False
            if not is_due:
                self._forget(pending)
            return is_due

    def _end_summary(self, pending: _PendingSummary) -> None:
        with _lock.held():
            self._forget(pending)
        pending.end.settle(None)  # flush waits for this

    def _forget(self, pending: _PendingSummary) -> None:
        if _pending.get(self._key) is pending:  # otherwise it has ended already, or is the parent's
            del _pending[self._key]

    def wait(self) -> Flow[None]:
        """Wait until this process's summary of the session is done."""
        pending = _pending.get(self._key)
        while pending is not None and not pending.end.is_settled:
            yield Step(partial(pending.end.wait, _LOOK_SECONDS), partial(pending.end.await_, _LOOK_SECONDS))

    def summarize(self, model: Any, max_tokens: int | None, keep: int, *, keep_language: bool) -> Flow[str]:
        """Summarise now."""
        summarizer = self._summarizer(model, max_tokens, keep_language=keep_language)
        return (yield from self._compaction.summarize(summarizer, keep))

    def title(self, model: Any, max_words: int) -> Flow[str]:
        """The title; a new one, if there is none and there is a model to ask."""
        check_count("max_words", max_words)
        title = yield from self._conversation.get_title()
        if title or (model is None and self._default_completer is None):
            return title
        latest = yield from self._conversation.entries(1)
        context = yield from self._context("")
        completer = self._completer(model)
        if not context.strip():
            return ""
        failure_note = "a session stays without a title"
        instruction = self._prompts.title.replace("{max_words}", str(max_words))
        answer = yield from _ask(completer, instruction, context, failure_note, original="")
        title = title_in(answer, max_words)
        if not title:
            return ""
        return (yield from self._conversation.set_generated_title(title, latest))

    def is_related(self, text: str, context: str, model: Any, *, default: bool) -> Flow[bool]:
        """Whether a text continues or depends on another; ``default`` if the model does not say."""
        completer = self._completer(model)
        _check_texts(text, context)
        if not context.strip() or not text.strip():
            return False
        failure_note = "it is unknown whether a text is related"
        prompt = f"First text:\n{context}\n\nSecond text:\n{text}"
        answer = yield from _ask(completer, self._prompts.related, prompt, failure_note)
        verdict = parse_verdict(answer)
        if answer and verdict is None:
            self._stats.add("unparsed")
        return default if verdict is None else verdict

    def rewrite(self, sentence: str, context: str, model: Any) -> Flow[str]:
        """The sentence, understandable without its context; unchanged if the model fails."""
        completer = self._completer(model)
        _check_texts(sentence, context)
        if not context.strip() or not sentence.strip():
            return sentence
        failure_note = "a sentence was not rewritten"
        prompt = f"Context:\n{context}\n\nSentence:\n{sentence}"
        rewritten = yield from _ask(completer, self._prompts.rewrite, prompt, failure_note, original=sentence)
        if unquoted(sentence) == sentence:
            rewritten = unquoted(rewritten)
        return rewritten or sentence

    def refine(self, last_talk: str, model: Any) -> Flow[str]:
        """Summarise, test whether related, rewrite: the sequence of MetaGPT's Assistant."""
        check_text("what was said last", last_talk)
        if not (yield from self._context(last_talk)):
            return last_talk
        yield from self.compact(model)
        context = yield from self._context(last_talk)
        if not (yield from self.is_related(last_talk, context, model, default=False)):
            return last_talk
        return (yield from self.rewrite(last_talk, context, model))

    def _context(self, last_talk: str) -> Flow[str]:
        """The summary and the newest messages as text, without the latest one."""
        k = self._conversation.memory_k
        summary, messages = yield from self._conversation.context(k, None, self._counter)
        if messages and messages[-1].role == "user" and messages[-1].text == last_talk:
            messages = messages[:-1]
        messages = window(messages, k, max_tokens=CONTEXT_TOKENS, counter=self._counter)
        summary_text = summary.text if summary else ""
        return "\n".join(filter(None, [summary_text, as_text(messages)]))

    def _completer(self, model: Any) -> Completer:
        if model is not None:
            return Completer(model, counter=self._counter, stats=self._stats)
        if self._default_completer is None:
            raise ConfigurationError("this needs a model: give BrainMemory model=, or one to this call")
        return self._default_completer

    def _summarizer(self, model: Any, max_tokens: int | None = None, *, keep_language: bool = True) -> Summarizer:
        return Summarizer(
            self._completer(model),
            max_tokens=self._max_summary_tokens if max_tokens is None else max_tokens,
            keep_language=keep_language,
            counter=self._counter,
            prompts=self._prompts,
        )


def _check_texts(text: object, context: object) -> None:
    check_text("the sentence or text", text)
    check_text("its context, as history_text() gives it,", context)


def _ask(
    completer: Completer, instruction: str, text: str, failure_note: str, *, original: str | None = None
) -> Flow[str]:
    """A model's answer; empty if it fails, or refuses in a way that ``original`` does not: then a log tells."""
    try:
        answer = yield from completer.ask(instruction, text)
    except ModelError as failure:
        _log.warning("%s: %s", failure_note, failure)
        return ""
    if original is None or is_refusal(original) or not is_refusal(answer):
        return answer
    completer.stats.add("failures")
    _log.warning("%s: the model refused", failure_note)
    return ""
