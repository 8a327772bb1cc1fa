"""What a model is asked about a conversation: a title, whether texts are related, a sentence made plain."""

from __future__ import annotations

import logging
import re

from langmem_adapters.completion import Completer, is_refusal
from langmem_adapters.errors import ModelError
from langmem_adapters.flow import Flow
from langmem_adapters.prompts import Prompts

__all__ = ["extract_info", "is_related", "make_title", "parse_verdict", "rewrite"]

_log = logging.getLogger("langmem_adapters")
_INFO = re.compile(r"\s*\[([A-Z]+)\]:\s*(.+)", re.DOTALL)
_WORD = re.compile(r"[\w']+")
_YES, _NO = frozenset({"true", "yes", "related"}), frozenset({"false", "no", "unrelated", "untrue"})
_NEGATIONS = frozenset({"not", "never", "neither", "nor", "hardly", "cannot"})
_NEAR = 3  # words


def extract_info(text: str) -> tuple[str | None, str]:
    """Split a tagged answer: ``[SKILL]: draw a cat`` is ``("SKILL", "draw a cat")``; untagged text has no tag.

    >>> extract_info("[TALK]: Hello.")
    ('TALK', 'Hello.')
    """
    match = _INFO.match(text)
    return (match[1], match[2]) if match else (None, text)


def parse_verdict(answer: str) -> bool | None:
    """Read TRUE or FALSE strictly: "NOT TRUE" is False; None, where the answer says both, or neither.

    >>> parse_verdict("**TRUE**."), parse_verdict("It is not true"), parse_verdict("maybe")
    (True, False, None)
    """
    words = _WORD.findall(answer.lower().replace("’", "'"))  # noqa: RUF001 - the apostrophe that models write
    denied = [word in _NEGATIONS or word.endswith("n't") for word in words]
    votes: set[bool | None] = set()
    for n, word in enumerate(words):
        near = any(denied[max(n - _NEAR, 0) : n])
        if word in _YES:
            votes.add(not near)
        elif word in _NO:
            votes.add(None if near else False)  # "not false" may be meant in any way
    if votes == {True} and any(denied) and words[0] not in _YES:
        return None
    return votes.pop() if len(votes) == 1 else None


def is_related(completer: Completer, text: str, context: str, *, prompts: Prompts, default: bool) -> Flow[bool]:
    """Whether ``text`` continues or depends on ``context``; ``default``, where the model does not say."""
    if not context.strip() or not text.strip():
        return False
    try:
        answer = yield from completer.ask(prompts.related, f"First text:\n{context}\n\nSecond text:\n{text}")
    except ModelError as failure:
        _log.warning("whether a text is related stays unknown: %s", failure)
        return default
    verdict = parse_verdict(answer)
    if verdict is None:
        completer.stats["unparsed"] += 1
        return default
    return verdict


def rewrite(completer: Completer, sentence: str, context: str, *, prompts: Prompts) -> Flow[str]:
    """The sentence, understandable without its context; the sentence itself, where the model fails."""
    if not context.strip() or not sentence.strip():
        return sentence
    try:
        answer = yield from completer.ask(prompts.rewrite, f"Context:\n{context}\n\nSentence:\n{sentence}")
    except ModelError as failure:
        _log.warning("a sentence stays as it was: %s", failure)
        return sentence
    return sentence if _is_refused(completer, answer, sentence) else answer


def make_title(completer: Completer, context: str, *, max_words: int, prompts: Prompts) -> Flow[str]:
    """A title of at most ``max_words`` words; empty, where there is nothing to name or the model fails."""
    if not context.strip():
        return ""
    try:
        answer = yield from completer.ask(prompts.title.format(max_words=max_words), context)
    except ModelError as failure:
        _log.warning("a session stays without a title: %s", failure)
        return ""
    if _is_refused(completer, answer, ""):
        return ""
    line = answer.splitlines()[0].strip().strip("\"'*#«»“”„ ").removesuffix(".")
    return " ".join(line.split()[:max_words])


def _is_refused(completer: Completer, answer: str, asked: str) -> bool:
    """Whether an answer is a refusal, in a way that what was asked about is not."""
    if not is_refusal(answer) or is_refusal(asked):
        return False
    completer.stats["failures"] += 1
    _log.warning("the model refused")
    return True
