"""What langchain-tests asks of any chat model, asked of a cached one: of its misses, and then of its hits."""

# ruff: noqa: ARG002 - a model takes more than a script reads

from __future__ import annotations

import asyncio
import inspect
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.utils.function_calling import convert_to_openai_tool
from langchain_tests.integration_tests import ChatModelIntegrationTests

from langmem_adapters.langchain import CachedChatModel, ExperienceCache
from langmem_adapters.stores.memory import MemoryStore

_USAGE: Any = {"input_tokens": 5, "output_tokens": 6, "total_tokens": 11}
_kept: list[MemoryStore] = []
_asked: list[str] = []


class Obliging(BaseChatModel):
    """Calls the tool that it is given, with what the question holds, and says something friendly otherwise."""

    model: str = "obliging-1"
    temperature: float = 0.0
    max_tokens: int | None = None
    stop: list[str] | None = None

    @property
    def _llm_type(self) -> str:
        return "obliging"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("model", "temperature", "max_tokens", "stop")}

    def bind_tools(self, tools: Any, *, tool_choice: Any = None, **kwargs: Any) -> Runnable[Any, Any]:
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], tool_choice=tool_choice, **kwargs)

    def _answer(self, messages: list[BaseMessage], stop: list[str] | None, asked: dict[str, Any]) -> AIMessage:
        _asked.append(messages[-1].text)
        said, calls = "Hello there, my friend.", []
        if asked.get("tools") and isinstance(messages[-1], HumanMessage):
            functions = [tool["function"] for tool in asked["tools"]]
            chosen = next((each for each in functions if each["name"] == asked.get("tool_choice")), functions[0])
            args = _fitting(chosen["parameters"], messages[-1].text, chosen["parameters"].get("$defs", {}))
            said, calls = "", [{"name": chosen["name"], "args": args, "id": "call_1", "type": "tool_call"}]
        for end in stop or self.stop or ():
            said = said.split(end)[0]
        told = {"model_name": asked.get("model") or self.model, "model_provider": "obliging"}
        return AIMessage(said, tool_calls=calls, usage_metadata=_USAGE, response_metadata=told)

    def _generate(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._answer(messages, stop, kwargs))])

    def _stream(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: Any = None, **kwargs: Any
    ) -> Iterator[ChatGenerationChunk]:
        answer = self._answer(messages, stop, kwargs)
        for word in re.findall(r"\S+\s*", answer.text):
            yield ChatGenerationChunk(message=AIMessageChunk(content=word))
        yield ChatGenerationChunk(
            message=AIMessageChunk(
                content="",
                tool_call_chunks=[
                    tool_call_chunk(name=call["name"], args=json.dumps(call["args"]), id=call["id"], index=n)
                    for n, call in enumerate(answer.tool_calls)
                ],
                usage_metadata=answer.usage_metadata,
                response_metadata=answer.response_metadata,
                chunk_position="last",
            )
        )


def _fitting(schema: dict[str, Any], question: str, named: dict[str, Any]) -> Any:
    """A value of a JSON schema, from what a question holds."""
    if "$ref" in schema:
        return _fitting(named[schema["$ref"].rpartition("/")[2]], question, named)
    if "anyOf" in schema:
        return _fitting(schema["anyOf"][0], question, named)
    if "enum" in schema:
        return schema["enum"][0]
    if schema["type"] == "object":
        return {name: _fitting(field, question, named) for name, field in schema.get("properties", {}).items()}
    if schema["type"] == "array":
        return [_fitting(schema["items"], question, named)]
    found = re.search(r"\d+" if schema["type"] == "integer" else r"[^\x00-\x7f]+", question)
    return int(found[0] if found else 1) if schema["type"] == "integer" else found[0] if found else "something"


class Kept(CachedChatModel):
    """Made as the tests make a model."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(Obliging(**settings), ExperienceCache(store=_kept[-1]))


@pytest.mark.filterwarnings("ignore:.*in beta")
class TestHits(ChatModelIntegrationTests):
    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        return Kept

    @property
    def has_tool_choice(self) -> bool:
        return True

    @property
    def model_override_value(self) -> str:
        return "obliging-2"

    @pytest.fixture(autouse=True)
    def _misses_first(self, request: pytest.FixtureRequest) -> Iterator[None]:
        """Run each test before it is run, so that it is served from the cache then."""
        _kept.append(MemoryStore())
        wanted = inspect.signature(request.function).parameters.values()
        given = {each.name: request.getfixturevalue(each.name) for each in wanted if each.default is each.empty}
        met = request.function(**given)
        if inspect.iscoroutine(met):
            asyncio.run(met)
        assert _asked
        _asked.clear()
        yield
        assert _asked == []


for _name in (
    *("image_inputs", "pdf_inputs", "audio_inputs", "image_tool_message", "pdf_tool_message", "anthropic_inputs"),
    *("stream_time", "json_mode"),  # of a recording, and of a provider's own
    "no_overrides_DO_NOT_OVERRIDE",  # minds that the others, which fetch files from the network, are left out
):
    setattr(TestHits, f"test_{_name}", None)
