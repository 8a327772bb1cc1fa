"""The semantic mode of LangChain's cache: what of a request may be said otherwise, and how it is kept and found."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple

from langchain_core.outputs import ChatGeneration, Generation

from langmem_adapters import experience
from langmem_adapters.concurrency.counts import Counts
from langmem_adapters.errors import ConfigurationError, SerializationError
from langmem_adapters.experience import Judge
from langmem_adapters.experience.policies import is_asked
from langmem_adapters.experience.pool import ExperiencePool, experience_namespace
from langmem_adapters.experience.shelf.eviction import Evicted
from langmem_adapters.experience.verified import Match, VerifiedAnswers
from langmem_adapters.flow import Flow
from langmem_adapters.keys import Namespace
from langmem_adapters.langchain.caching.prompt import dumped_messages, is_human
from langmem_adapters.langchain.caching.request import request_key
from langmem_adapters.langchain.caching.tools import DeterministicTools
from langmem_adapters.model import Experience
from langmem_adapters.protocols import SemanticIndex
from langmem_adapters.validation import check_count, check_function

_SEMANTIC_PART: Final = "semantic"  # appended to the namespace of a cache's answers, for that of its questions
_TEXT_BLOCK_KEYS = frozenset({"type", "text"})  # the keys of a block that is only text
_log = logging.getLogger("langmem_adapters")


class SemanticMode:
    """How :class:`~langmem_adapters.langchain.ExperienceCache` serves requests that mean the same.

    Only the words of the last human message may differ, and only if it is text: everything else, the model and its
    parameters, tools, the system prompt and all messages before and after, must be equal. A request of a completion
    model, which is one text with all of that in it, is never served by its meaning.

    Unlike the exact cache, this keeps the text of the last human message in the store, and its vector in the index,
    under the cache's tenant and tag; both are deleted with the answer that they belong to.

    Args:
        embedder: A LangChain or LlamaIndex embedding model, or anything else that an
            :class:`~langmem_adapters.embedding.Embedder` can be made of; its vectors are stored beside the cache's
            store. It embeds 64 texts of this library once, to learn how to read its cosines.
        index: An index of vectors instead, from :func:`~langmem_adapters.indexes.open_vectors`.
        verifier: Has the last word on each candidate; one with ``judge=`` asks a model of your own.
        candidates: How many of the nearest requests are checked.
        deterministic_tools: Names of tools that always give the same result. Calls of other tools, and answers made
            from their results, are neither kept nor served.
        judge: Says whether a stored answer is good enough, also for an identical request, such as
            :class:`~langmem_adapters.experience.AtLeast`. It is shown what the user asked last. A coroutine function
            works only with async calls.
        dry_run: Serve nothing, but count and log what would have been served.
        reveal: Give the text of the matched request, as ``cache_request`` in ``response_metadata``.

    >>> from langchain_core.language_models import FakeListChatModel
    >>> from langmem_adapters import Embedder
    >>> from langmem_adapters.langchain import ExperienceCache
    >>> mode = SemanticMode(Embedder(lambda texts: [[1.0, 0.1] for text in texts], name="toy"))
    >>> model = FakeListChatModel(responses=["Take a course.", "No."], cache=ExperienceCache("memory:", semantic=mode))
    >>> model.invoke("How do I learn to speak Hindi?").content, model.invoke("How can I learn to speak Hindi?").content
    ('Take a course.', 'Take a course.')
    """

    def __init__(
        self,
        embedder: Any = None,
        *,
        index: SemanticIndex | None = None,
        verifier: experience.Verifier | None = None,
        candidates: int = 5,
        deterministic_tools: Collection[str] = (),
        judge: Judge | None = None,
        dry_run: bool = False,
        reveal: bool = False,
    ) -> None:
        if (embedder is None) == (index is None):
            raise ConfigurationError("give the semantic mode an embedder or an index, not both")
        if not isinstance(verifier, experience.Verifier | None):
            raise ConfigurationError(f"verifier is a Verifier, such as Verifier(0.9), not {verifier!r:.50}")
        check_count("candidates", candidates)
        check_function("judge", judge)
        self.embedder = embedder
        self.index = index
        self.verifier: experience.Verifier = verifier or experience.Verifier()
        self.candidates = candidates
        self._tools = DeterministicTools(deterministic_tools)
        self.judge = judge
        self.dry_run = dry_run
        self.reveal = reveal

    @classmethod
    def of(cls, value: Any) -> SemanticMode:
        """Make a semantic mode of an embedder; a semantic mode is returned as it is."""
        return value if isinstance(value, cls) else cls(value)

    def __repr__(self) -> str:
        return f"SemanticMode({type(self.embedder or self.index).__name__}, verifier={self.verifier!r})"

    def question(self, prompt: str, llm_string: str) -> Question | None:
        """The part of a request that may be said in other words; None if there is none."""
        messages = dumped_messages(prompt)
        position = max((index for index, message in enumerate(messages) if is_human(message)), default=None)
        if position is None or not self._tools.is_tool_exchange(messages[position + 1 :]):
            return None
        if not self._tools.cover_request(llm_string) or is_asked(self.verifier.judge):
            return None
        text = _pure_text(messages[position]["kwargs"].get("content"))
        if not text:
            return None
        blanked = {**messages[position], "kwargs": {**messages[position]["kwargs"], "content": ""}}
        rest = json.dumps([*messages[:position], blanked, *messages[position + 1 :]], sort_keys=True)
        return Question(text, request_key(rest, llm_string))

    def may_serve(self, generations: Sequence[Generation]) -> bool:
        """Whether an answer may be kept for other wordings: it calls no tool but deterministic ones."""
        return self._tools.cover_answer(generations)

    def mark(self, generations: Sequence[Generation], match: Match) -> None:
        """Record in an answer why it was served."""
        for generation in generations:
            if isinstance(generation, ChatGeneration):
                generation.message.response_metadata |= {
                    "cache": "semantic",
                    "cache_key": match.key,
                    "cache_score": match.score,
                    "cache_cosine": match.cosine,
                    **({"cache_request": match.text} if self.reveal else {}),
                }


class Question(NamedTuple):
    """The text that may be said in other words, and the key of all that must be equal."""

    text: str
    partition: str


def _pure_text(content: Any) -> str:
    """The text of a message that holds nothing else; otherwise ""."""
    if isinstance(content, str):
        return content if content.strip() else ""
    blocks = content if isinstance(content, list) else []
    texts = [block if isinstance(block, str) else block.get("text") for block in blocks if _is_text_block(block)]
    return "\n".join(texts) if texts and len(texts) == len(blocks) else ""


def _is_text_block(block: Any) -> bool:
    if isinstance(block, dict):
        return block.keys() <= _TEXT_BLOCK_KEYS and block.get("type") == "text" and isinstance(block.get("text"), str)
    return isinstance(block, str)


def question_namespace(pool: ExperiencePool) -> Namespace:
    """Where the questions of a pool's answers are kept."""
    return (*experience_namespace(pool.scope, pool.tag), _SEMANTIC_PART)


def partition_of(data: bytes) -> str | None:
    """The partition with the question of a stored answer; None if its entry names none or cannot be read."""
    try:
        partition = (Experience.from_bytes(data).model_extra or {}).get("partition")
    except SerializationError:
        return None
    return partition if isinstance(partition, str) else None


class Paraphrases:
    """The semantic mode of :class:`~langmem_adapters.langchain.ExperienceCache` at work, beside a pool of answers."""

    def __init__(self, mode: SemanticMode, pool: ExperiencePool, index: SemanticIndex, counts: Counts) -> None:
        self.mode: SemanticMode = mode
        self._pool = pool
        self._counts = counts
        self.verified_answers: VerifiedAnswers = VerifiedAnswers(
            pool.store,
            question_namespace(pool),
            index,
            verifier=mode.verifier,
            candidates=mode.candidates,
            counts=counts,
            answers=experience_namespace(pool.scope, pool.tag),
        )

    def stats(self) -> dict[str, int]:
        """Hits, hits of a dry run, errors, texts whose vectors are behind, and rejected candidates, also by guard."""
        names = ("semantic_hits", "semantic_dry", "semantic_errors", "behind", "rejected")
        guards = sorted(name for name in self._counts if name.startswith("rejected_"))
        return {name: self._counts[name] for name in (*names, *guards)}

    def find(self, prompt: str, llm_string: str) -> Flow[tuple[str, list[Match]]]:
        """The partition of a request, and the earlier requests in it that mean the same, the surest first."""
        question = self.mode.question(prompt, llm_string)
        if question is None:
            return "", []
        return question.partition, (yield from self.verified_answers.find_flow(question.partition, question.text))

    def answer(self, partition: str, match: Match) -> Flow[Experience | None]:
        """The answer to a match, with the matched text as its request; None if the answer is gone."""
        experience = yield from self._pool.read_flow(match.key)
        if experience is None:
            yield from self.verified_answers.drop_flow(partition, match.key)
            return None
        return experience.model_copy(update={"req": match.text})

    def note_hit(self, answer: Sequence[Generation], match: Match) -> bool:
        """Count an answer that may be served, and record in it why it is served; False, if it is not, in a dry run."""
        if self.mode.dry_run:
            self._counts.add("semantic_dry")
            _log.info("dry run: %s would have been served, score %.3f", match.key, match.score)
            return False
        self._counts.add("semantic_hits")
        self.mode.mark(answer, match)
        return True

    def question(self, prompt: str, llm_string: str, answer: Sequence[Generation]) -> Question | None:
        """What to keep of a request beside its answer; None if other words must not get this answer."""
        return self.mode.question(prompt, llm_string) if self.mode.may_serve(answer) else None

    def keep(self, question: Question | None, key: str, evicted: Evicted) -> Flow[None]:
        """Keep a question, and drop the questions of evicted answers."""
        if not self._pool.writes:
            return
        evicted_by_partition: dict[str, list[str]] = {}
        for evicted_key, data in evicted:
            if (partition := partition_of(data)) is not None:
                evicted_by_partition.setdefault(partition, []).append(evicted_key)
        if question is not None:
            yield from self.verified_answers.keep_flow(question.partition, question.text, key)
        for partition, keys in evicted_by_partition.items():
            yield from self.verified_answers.drop_flow(partition, *keys)
