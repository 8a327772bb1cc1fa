"""Reorder the result of a search by a model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from langmem_adapters.completion import Completer
from langmem_adapters.concurrency.counts import Counts
from langmem_adapters.errors import ModelError
from langmem_adapters.flow import Flow
from langmem_adapters.model import Recalled
from langmem_adapters.prompts import Prompts
from langmem_adapters.warn_once import warn_of_outage

_CANDIDATES_PER_RESULT = 4  # candidates for each memory that is wanted
_MAX_CANDIDATES = 40
_MAX_MEMORY_CHARS = 600  # of a memory that the model is shown
_NUMBER_PATTERN = re.compile(r"\d{1,9}")
# List formatting, which is not part of the answer: in "1. [3]" the 1 numbers the line.
_MARKUP_PATTERN = re.compile(r"```\w*|\*\*|^[ \t]*\d{1,9}[.)][ \t]*(?=\**\[)", re.MULTILINE)
_ANSWER_PATTERN = re.compile(r"[\s\[(]*\d{1,9}([\s,;.>\[\]()]+\d{1,9})*[\s\]).]*")


class Reranker:
    """Asks a model which of the memories found help with the question (MetaGPT's ``use_llm_ranker``).

    If the model fails, refuses or answers with anything but numbers, the order stays as it was. That is logged once per
    cause.

    Args:
        model: Any LangChain or LlamaIndex model, or a function from prompt to text, which may be async.
        stats: Where calls, failures, unparsed answers and tokens are counted.
        strict: Raise ModelError instead of keeping the order.
    """

    def __init__(self, model: Any, *, stats: Counts, strict: bool = False) -> None:
        self._completer = Completer(model, stats=stats)
        self._strict = strict

    @staticmethod
    def candidate_count(k: int) -> int:
        """How many memories a search should find, so that the best ``k`` can be chosen."""
        return max(min(_CANDIDATES_PER_RESULT * k, _MAX_CANDIDATES), k)

    def rerank(self, query: str, memories: Sequence[Recalled]) -> Flow[list[Recalled]]:
        """The same memories, those that the model names first; the scores stay in place, so they still fall."""
        ranked_positions = (yield from self._ask_order(query, memories)) if len(memories) > 1 else []
        order = [*ranked_positions, *(i for i in range(len(memories)) if i not in ranked_positions)]
        return [memories[i]._replace(score=original.score) for i, original in zip(order, memories, strict=True)]

    def _ask_order(self, query: str, memories: Sequence[Recalled]) -> Flow[list[int]]:
        lines = [" ".join(recalled.text[:_MAX_MEMORY_CHARS].split()) for recalled in memories]
        statements = "\n".join(f"[{number}] {line}" for number, line in enumerate(lines, start=1))
        try:
            answer = yield from self._completer.ask(Prompts().rank, f"Question:\n{query}\n\nStatements:\n{statements}")
            numbers = self._parse_numbers(answer)
        except ModelError as failure:
            if self._strict:
                raise
            warn_of_outage("the recalled memories were not reranked", failure)
            return []
        return [number - 1 for number in dict.fromkeys(numbers) if 1 <= number <= len(memories)]

    def _parse_numbers(self, answer: str) -> list[int]:
        answer = _MARKUP_PATTERN.sub(" ", answer)
        if not _ANSWER_PATTERN.fullmatch(answer):
            self._completer.stats.add("unparsed")
            raise ModelError("the model's answer is not a list of numbers")
        return [int(number) for number in _NUMBER_PATTERN.findall(answer)]
