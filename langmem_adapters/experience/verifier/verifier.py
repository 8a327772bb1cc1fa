"""Decide whether the answer to one request may be served for another: hard guards first, then a learnt score."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from langmem_adapters import views
from langmem_adapters.errors import ConfigurationError, ModelError
from langmem_adapters.experience.policies import attempt
from langmem_adapters.experience.verifier.alignment import Alignment, align
from langmem_adapters.experience.verifier.features import features
from langmem_adapters.experience.verifier.guards import GUARDS, Guard
from langmem_adapters.experience.verifier.reading import MAX_COMPARED_CHARS, Reading, read
from langmem_adapters.experience.verifier.snippets import Parts, separate_snippets
from langmem_adapters.experience.verifier.weights import (
    BASE_LOGIT,
    DEFAULT_THRESHOLD,
    MIN_COSINE,
    QUESTION_BASE_LOGIT,
    QUESTION_TREES,
    TREES,
)
from langmem_adapters.experience.verifier.word_order import same_words
from langmem_adapters.experience.verifier.words import POLITE_WORDS
from langmem_adapters.flow import Flow, arun, run
from langmem_adapters.validation import check_function, check_sync_function

PairJudge = Callable[[str, str], "bool | float | Awaitable[bool | float]"]
"""Says whether two requests mean the same, or how surely, from 0 to 1: a cross-encoder, or a call of a model."""

_Tree: TypeAlias = "tuple[int, float, _Tree, _Tree] | float"


class Verdict(NamedTuple):
    """The result of comparing two requests."""

    score: float
    """The confidence that they mean the same, from 0 to 1; 0 if a guard refuses."""
    guard: str
    """What refused the pair: a guard's name, "score" or "length"; "" if it is accepted."""
    reason: str
    """Why, such as "numbers differ: 5, 6"; "" if it is accepted."""

    @property
    def accepted(self) -> bool:
        """Whether the answer to one may be served for the other."""
        return not self.guard

    def _repr_html_(self) -> str:
        return views.render_safely(self, lambda: views.comparison(*self))


class Verifier:
    """Compares a request with a stored one of nearly the same meaning.

    The guards refuse pairs that differ in numbers, names, negation and the like. Pairs that pass them get a score,
    computed in plain Python without any model: in half a millisecond for a question of 120 characters. A text in
    another language than English, for which there is no score, passes only with the same words in the same order; so
    does a text of more than 2,000 characters. Code, data and formulas must be the same character by character; the
    score and the other guards do not read them.

    Args:
        threshold: The score below which nothing is served; see :meth:`~langmem_adapters.ExperiencePool.tune`.
        guards: The guards to ask, by name; default all of :data:`~langmem_adapters.experience.verifier.guards.GUARDS`.
        without: The names of guards to leave out.
        judge: Replaces the score: a function of the request and the stored request, sync or async, that returns True
            or False, or a number from 0 to 1, for which to set a threshold. The guards are still asked first.

    >>> verifier = Verifier()
    >>> verifier("How can I learn to speak Hindi?", "How do I learn to speak Hindi?", cosine=0.98).accepted
    True
    >>> verifier("Which phone is best under 15k?", "Which phone is best under 20k?", cosine=0.97).reason
    'numbers differ: 15000, 20000'
    """

    def __init__(
        self,
        threshold: float | None = None,
        *,
        guards: Mapping[str, Guard] = GUARDS,
        without: Sequence[str] = (),
        judge: PairJudge | None = None,
    ) -> None:
        if threshold is None:
            threshold = DEFAULT_THRESHOLD if judge is None else 0.5
        self.threshold: float = threshold
        if not isinstance(self.threshold, int | float) or not 0 < self.threshold <= 1:
            raise ConfigurationError(f"threshold is a number above 0, and at most 1, not {threshold!r:.50}")
        if not isinstance(guards, Mapping):
            raise ConfigurationError(f"guards are a dictionary from name to guard, not {type(guards).__name__}")
        for name, guard in guards.items():
            check_sync_function(f"the guard {name!r}", guard)
        is_list = isinstance(without, Collection) and not isinstance(without, str)
        if not is_list or any(name not in guards for name in without):
            raise ConfigurationError(f"without names guards ({', '.join(guards)}), not {without!r:.100}")
        self.guards: dict[str, Guard] = {name: guard for name, guard in guards.items() if name not in without}
        check_function("judge", judge)
        self.judge = judge

    def __call__(self, request: str, stored: str, *, cosine: float) -> Verdict:
        """Compare two requests. Raises ConfigurationError if the judge is a coroutine function.

        ``cosine`` is that of their vectors, on the scale of all-MiniLM-L6-v2: see
        :mod:`~langmem_adapters.experience.verifier.calibration`. Raises ModelError if the judge fails, or returns
        anything else.
        """
        return run(self.flow(request, stored, cosine))

    async def averify(self, request: str, stored: str, *, cosine: float) -> Verdict:
        """:meth:`__call__`, without blocking the event loop."""
        return await arun(self.flow(request, stored, cosine))

    def flow(self, request: str, stored: str, cosine: float) -> Flow[Verdict]:
        """Compare two requests, as part of another flow."""
        is_near = self.judge is not None or cosine >= MIN_COSINE  # False for NaN
        if not is_near and request.split() != stored.split():
            return Verdict(0.0, "score", f"cosine {cosine:.2f} is below {MIN_COSINE:.2f}")
        # Code, data and formulas, which only the guard "snippets" compares, move out of the prose.
        is_split = "snippets" in self.guards
        request_parts, stored_parts = (
            separate_snippets(request, stored) if is_split else (Parts(request), Parts(stored))
        )
        is_same_prose = request_parts.prose.split() == stored_parts.prose.split()
        if is_same_prose and request_parts.snippets == stored_parts.snippets:
            return Verdict(1.0, "", "")
        if max(len(request_parts.prose), len(stored_parts.prose)) > MAX_COMPARED_CHARS:
            return Verdict(0.0, "length", "too long to be compared word by word")
        left, right = (
            read(parts.prose)._replace(snippets=parts.snippets, has_data=parts.has_data)
            for parts in (request_parts, stored_parts)
        )
        alignment = align(left.content, right.content)
        for name, guard in self.guards.items():
            if reason := guard(left, right, alignment):
                return Verdict(0.0, name, reason)
        if self.judge is None:
            score = _score(left, right, alignment, cosine)
        else:
            score = yield from _judge_score(self.judge, request, stored)
        if score >= self.threshold:
            return Verdict(score, "", "")
        return Verdict(score, "score", f"score {score:.2f} is below {self.threshold:.2f}")

    def __repr__(self) -> str:
        return f"Verifier({self.threshold})"


def _judge_score(judge: PairJudge, request: str, stored: str) -> Flow[float]:
    answer = yield from attempt("the judge of two requests", judge, request, stored)
    try:
        score = float(answer)
    except (TypeError, ValueError):
        score = math.nan
    if not 0 <= score <= 1:
        raise ModelError("the judge of two requests gave neither True nor False nor a number from 0 to 1")
    return score


def _score(left: Reading, right: Reading, alignment: Alignment, cosine: float) -> float:
    """1 for the same words, 0 for other words in another language than English, otherwise the score of the trees."""
    is_same_text = left.symbols == right.symbols and _plain_words(left.text) == _plain_words(right.text)
    if is_same_text or same_words(left, right):
        return 1.0
    if not (left.english and right.english):
        return 0.0
    values = features(left, right, alignment, cosine)
    return _tree_score(values, is_question=any(reading.text.rstrip().endswith("?") for reading in (left, right)))


def _plain_words(text: str) -> list[str]:
    """All words, without punctuation and courtesies."""
    return [word for word in text.translate(_PUNCTUATION_TO_BLANKS).split() if word not in POLITE_WORDS]


class _PunctuationToBlanks(dict[int, str]):
    """Maps punctuation to blanks, for ``str.translate``; the category of each character is looked up once."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        self[code] = " " if character == "`" or unicodedata.category(character)[0] in "PZC" else character
        return self[code]


_PUNCTUATION_TO_BLANKS = _PunctuationToBlanks()


# ---- the trees


def _tree_score(values: Sequence[float], *, is_question: bool) -> float:
    logit = QUESTION_BASE_LOGIT if is_question else BASE_LOGIT
    for tree in _parse_trees(QUESTION_TREES if is_question else TREES):
        node = tree
        while isinstance(node, tuple):
            feature, value, low, high = node
            node = low if values[feature] <= value else high
        logit += node
    return 1 / (1 + math.exp(-logit))


@lru_cache(maxsize=2)
def _parse_trees(text: str) -> tuple[_Tree, ...]:
    tokens = iter(text.split())
    return tuple(_parse_tree(token, tokens) for token in tokens)


def _parse_tree(token: str, tokens: Iterator[str]) -> _Tree:
    if "<" not in token:
        return int(token) / 1000
    feature, _, value = token.partition("<")
    return int(feature), float(value), _parse_tree(next(tokens), tokens), _parse_tree(next(tokens), tokens)
