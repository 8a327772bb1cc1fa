"""The rolling summary: the summary so far and the next messages become one bounded text."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence

from langmem_adapters.completion import Completer, is_apology, is_refusal
from langmem_adapters.errors import ModelError
from langmem_adapters.flow import Flow
from langmem_adapters.model import Message
from langmem_adapters.prompts import Prompts
from langmem_adapters.text import INDENT, as_text
from langmem_adapters.tokens import (
    TokenCounter,
    approximate_tokens,
    count_tokens,
    truncate,
    truncate_middle,
    truncate_start,
)
from langmem_adapters.validation import check_count

WINDOW_TOKENS = 3000
"""How many tokens of a conversation one call is shown."""
_OVERLAP_TOKENS = 40  # tokens of a window that are shown again in the next one, so that nothing is lost between them
_log = logging.getLogger("langmem_adapters")
_TOKENS_PER_WORD = 1.5
_MAX_CHARS_PER_TOKEN = 8
_MAX_WINDOWS_PER_MESSAGE = 8
_MARK_INSTRUCTION = (
    " Begin the summary with <summary> and end it with </summary>. Where you cannot or will not give one, say so"
    " without these marks."
)
_MARK_PATTERN = re.compile("</?summary>", re.IGNORECASE)
_MARKED_PATTERN = re.compile(r"<summary>((?:(?!</?summary>).)*)</summary>", re.DOTALL | re.IGNORECASE)


class Summarizer:
    """Makes summaries. The model is given the messages in windows, each with the summary so far.

    A single message of more than eight windows is shown to the model without its middle, with a warning.

    A model is asked to put its summary between marks, so that what it says beside it is left out. If a model leaves the
    marks out, or a plain function answers, which is not asked for them, the answer is trusted unless it begins like a
    usual refusal or an error message.

    A summary of more than ``max_tokens`` is shortened by the model, or else cut. With ``keep_language`` it is in the
    conversation's language.
    """

    def __init__(
        self,
        completer: Completer,
        *,
        max_tokens: int = 400,
        keep_language: bool = True,
        counter: TokenCounter = approximate_tokens,
        prompts: Prompts | None = None,
    ) -> None:
        check_count("max_tokens", max_tokens)
        self.max_tokens = max_tokens
        self._completer = completer
        self._counter = counter
        prompts = prompts or Prompts()
        words = max(int(max_tokens / _TOKENS_PER_WORD), 1)
        language = f" {prompts.keep_language}" if keep_language else ""
        mark_instruction = "" if completer.is_function else _MARK_INSTRUCTION
        self._instruction = prompts.summary.replace("{max_words}", str(words)) + language + mark_instruction
        self._shorten_instruction = prompts.shorten.replace("{max_words}", str(words)) + language + mark_instruction

    def summarize(self, summary: str, messages: Sequence[Message]) -> Flow[str]:
        """The new summary. Raises ModelError if the model does not give one."""
        conversation = as_text(map(self._limit_message, messages))
        for window in split_windows(conversation, WINDOW_TOKENS, _OVERLAP_TOKENS, self._counter):
            previous = truncate(summary, 2 * self.max_tokens, self._counter)  # an answer may have any length
            previous = f"Summary so far:\n{previous}\n\n" if previous else ""
            summary = yield from self._ask(self._instruction, f"{previous}Said next:\n{window}")
        if count_tokens(summary, self._counter) <= self.max_tokens:
            return summary
        try:
            summary = yield from self._ask(self._shorten_instruction, summary)
        except ModelError as failure:
            _log.warning("a summary that is too long is cut: %s", failure)
        return truncate(summary, self.max_tokens, self._counter)

    def _limit_message(self, message: Message) -> Message:
        max_tokens = _MAX_WINDOWS_PER_MESSAGE * WINDOW_TOKENS
        text = truncate_middle(message.text, max_tokens, self._counter)
        if text == message.text:
            return message
        _log.warning("message %r has more than %d tokens: its middle is not summarised", message.id, max_tokens)
        return message.model_copy(update={"content": text})

    def _ask(self, instruction: str, text: str) -> Flow[str]:
        answer = yield from self._completer.ask(instruction, text)
        is_marked = not self._completer.is_function and _MARK_PATTERN.search(answer) is not None
        summary = _marked_text(answer) if is_marked else answer
        # An apology may still have marks. No error message has any, but a summary may begin with an error.
        is_declined = is_apology(summary) if is_marked else is_refusal(summary)
        has_words = any(map(str.isalnum, summary))
        if is_declined or not has_words:
            self._completer.stats.add("failures")
            flaw = "is a refusal or an error, not a summary" if has_words else "has no summary in it"
            raise ModelError(f"the model's answer {flaw}")
        return summary


def _marked_text(answer: str) -> str:
    """The text between the last marks; empty if it only repeats our request for marks."""
    marked = _MARKED_PATTERN.findall(answer)
    summary = marked[-1].strip() if marked else ""
    return "" if summary in _MARK_INSTRUCTION else summary


def split_windows(text: str, size: int, overlap: int, counter: TokenCounter = approximate_tokens) -> Iterator[str]:
    """Split a long text into windows of at most ``size`` tokens, at line ends where possible.

    Each window but the first begins with about ``overlap`` tokens from the end of the one before.
    """
    window: list[str] = []
    window_tokens = 0
    for piece in _pieces(text, max(size - overlap - 4, 1), counter):
        tokens = count_tokens(piece, counter) + 1
        if window and window_tokens + tokens > size:
            joined = "\n".join(window)
            yield joined
            window, window_tokens = [], 0
            ending = _last_words(joined, overlap, counter)
            ending_tokens = count_tokens(ending, counter) + 1
            if ending and ending_tokens + tokens <= size:
                window, window_tokens = [ending], ending_tokens
        window.append(piece)
        window_tokens += tokens
    if window:
        yield "\n".join(window)


def _pieces(text: str, size: int, counter: TokenCounter) -> Iterator[str]:
    """The lines; a line longer than a window is split, and its further parts are indented."""
    for line in filter(str.strip, text.splitlines()):
        rest, margin = line, ""
        while rest:
            part = truncate(rest, size, counter) or rest[:1]
            yield margin + part
            rest, margin = rest[len(part) :].lstrip(), INDENT


def _last_words(text: str, tokens: int, counter: TokenCounter) -> str:
    """The last words of a text, at most so many tokens; indented if they do not begin a line."""
    tail = text[max(len(text) - _MAX_CHARS_PER_TOKEN * tokens, 0) :]
    ending = truncate_start(tail, tokens, counter)
    before = text.removesuffix(ending)
    continues_line = bool(ending and before) and not before.endswith("\n")
    return INDENT + ending if continues_line else ending
