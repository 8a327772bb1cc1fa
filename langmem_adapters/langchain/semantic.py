"""The semantic mode of LangChain's cache: what of a request may be said in other words, and what may not."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, Generation

from langmem_adapters.codec import parsed
from langmem_adapters.errors import ConfigurationError
from langmem_adapters.experience import Judge
from langmem_adapters.experience.verified import Match
from langmem_adapters.experience.verifier import Verifier
from langmem_adapters.langchain.request import request_key
from langmem_adapters.protocols import SemanticIndex

__all__ = ["SemanticMode"]

_HUMAN = frozenset({"HumanMessage", "HumanMessageChunk"})
_AI = frozenset({"AIMessage", "AIMessageChunk"})
_TOOL = frozenset({"ToolMessage", "ToolMessageChunk"})
_TEXT = frozenset({"type", "text"})  # of a block that is text and nothing else
# Of an answer: what a model says and thinks, and calls that are among its tool_calls.
_OWN = frozenset({"text", "output_text", "reasoning", "thinking", "redacted_thinking"})
_OWN |= {"tool_call", "tool_use", "function_call"}
_BESIDE = frozenset({"tool_calls", "function_call", "tool_outputs", "search_results", "citations"})


class SemanticMode:
    """How :class:`~langmem_adapters.langchain.ExperienceCache` serves requests that mean the same.

    Only the words of the last human message may differ, and only if it is text: everything else, the model and its
    parameters, tools, the system prompt and all messages before and after, must be equal. A request of a completion
    model, which is one text with all of that in it, is never served by its meaning.

    Unlike the exact cache, this keeps the text of the last human message in the store, and its vector in the index,
    under the cache's tenant and tag; it goes with the answer that it belongs to.

    Args:
        embedder: A LangChain or LlamaIndex embedding model, or what else an
            :class:`~langmem_adapters.embedding.Embedder` can be made of; its vectors lie beside the cache's store.
        index: An index of vectors instead, from :func:`~langmem_adapters.indexes.open_vectors`.
        verifier: Has the last word on each candidate; one with ``judge=`` asks a model of your own.
        candidates: How many of the nearest are checked.
        deterministic_tools: The names of tools that give the same answer tomorrow. Calls of other tools, and answers
            made from their results, are neither kept nor served.
        judge: Says whether a kept answer is good enough, also one to the very same request:
            :class:`~langmem_adapters.experience.AtLeast`, for one. It is shown what the user had asked last. One that
            is a coroutine function goes with async calls only.
        dry_run: Serve nothing, but count and log what would have been served.
        reveal: Give the text of the request that was found, as ``cache_request`` in ``response_metadata``.
    """

    def __init__(
        self,
        embedder: Any = None,
        *,
        index: SemanticIndex | None = None,
        verifier: Verifier | None = None,
        candidates: int = 5,
        deterministic_tools: Collection[str] = (),
        judge: Judge | None = None,
        dry_run: bool = False,
        reveal: bool = False,
    ) -> None:
        if (embedder is None) == (index is None):
            raise ConfigurationError("give the semantic mode an embedder or an index, and not both")
        if isinstance(deterministic_tools, str):
            raise ConfigurationError("deterministic_tools is a collection of names, not one text")
        self.embedder = embedder
        self.index = index
        self.verifier = verifier or Verifier()
        self.candidates = candidates
        self.deterministic_tools = frozenset(deterministic_tools)
        self.judge = judge
        self.dry_run = dry_run
        self.reveal = reveal

    @classmethod
    def of(cls, value: Any) -> SemanticMode:
        """Make one of an embedder; one that is a semantic mode already stays itself."""
        return value if isinstance(value, cls) else cls(value)

    def question(self, prompt: str, llm_string: str) -> Question | None:
        """What of a request may be said in other words; None, where nothing may."""
        messages = _messages(prompt)
        last = max((n for n, message in enumerate(messages) if _class(message) in _HUMAN), default=None)
        if last is None or not self._lasting(messages[last + 1 :]):
            return None
        text = _text(messages[last]["kwargs"].get("content"))
        if not text:
            return None
        blanked = {**messages[last], "kwargs": {**messages[last]["kwargs"], "content": ""}}
        rest = json.dumps([*messages[:last], blanked, *messages[last + 1 :]], sort_keys=True)
        return Question(text, request_key(rest, llm_string))

    def may_serve(self, generations: Sequence[Generation]) -> bool:
        """Whether an answer may be kept for other wordings: it calls no tool but deterministic ones.

        Nor was it made with a tool of the provider's, such as a search of the web, of which its blocks tell.
        """
        return all(
            isinstance(generation, ChatGeneration)
            and isinstance(generation.message, AIMessage)
            and self._are_deterministic(call["name"] for call in generation.message.tool_calls)
            and not generation.message.invalid_tool_calls
            and not _BESIDE.intersection(generation.message.additional_kwargs)
            and not generation.message.response_metadata.get("grounding_metadata")
            and (isinstance(generation.message.content, str) or _OWN.issuperset(map(_kind, generation.message.content)))
            for generation in generations
        )

    def mark(self, generations: Sequence[Generation], match: Match) -> None:
        """Say in an answer why it was served."""
        for generation in generations:
            if isinstance(generation, ChatGeneration):
                generation.message.response_metadata |= {
                    "cache": "semantic",
                    "cache_score": match.score,
                    "cache_cosine": match.cosine,
                    **({"cache_request": match.text} if self.reveal else {}),
                }

    def _lasting(self, after: Sequence[dict[str, Any]]) -> bool:
        """Whether all that came after the question are calls of deterministic tools, and their results."""
        calls = [call for message in after for call in message["kwargs"].get("tool_calls") or ()]
        return all(_class(message) in _AI | _TOOL for message in after) and self._are_deterministic(
            [
                *(call.get("name") for call in calls),
                *(
                    message["kwargs"].get("name") or _called(message, calls)
                    for message in after
                    if _class(message) in _TOOL
                ),
            ]
        )

    def _are_deterministic(self, names: Any) -> bool:
        return self.deterministic_tools.issuperset(names)


class Question(NamedTuple):
    """The text that may be said in other words, and the key of all that must be equal."""

    text: str
    partition: str


def _messages(prompt: str) -> list[dict[str, Any]]:
    """Chat messages as LangChain dumps them; none, where a prompt is something else."""
    try:
        dumped = parsed(prompt) if prompt.startswith("[{") else []
    except (ValueError, RecursionError):
        return []
    whole = all(
        isinstance(m, dict) and m.get("lc") == 1 and isinstance(m.get("kwargs"), dict) and m.get("id") for m in dumped
    )
    return dumped if whole else []


def _class(message: dict[str, Any]) -> str:
    return str(message["id"][-1])


def _text(content: Any) -> str:
    """The text of a message that is nothing but text."""
    if isinstance(content, str):
        return content if content.strip() else ""
    blocks = content if isinstance(content, list) else []
    texts = [block if isinstance(block, str) else block.get("text") for block in blocks if _is_text(block)]
    return "\n".join(texts) if texts and len(texts) == len(blocks) else ""


def _kind(block: Any) -> Any:
    return block.get("type") if isinstance(block, dict) else "text"


def _is_text(block: Any) -> bool:
    if isinstance(block, dict):
        return block.keys() <= _TEXT and block.get("type") == "text" and isinstance(block.get("text"), str)
    return isinstance(block, str)


def _called(message: dict[str, Any], calls: Sequence[dict[str, Any]]) -> str | None:
    """The name of the tool whose result this is."""
    id_ = message["kwargs"].get("tool_call_id")
    return next((call.get("name") for call in calls if call.get("id") == id_), None)
