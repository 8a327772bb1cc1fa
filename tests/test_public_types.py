"""What type checkers see of the public names.

It is mypy that tests this: it fails where a type is another, and where an error is not found that is ignored here.
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable
from contextlib import aclosing, closing
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from langchain_core.language_models import FakeListChatModel, LanguageModelInput
from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable
from llama_index.core.base.llms.types import ChatMessage, ChatResponse, CompletionResponse
from llama_index.core.llms import MockLLM
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, validate_call
from typing_extensions import assert_type

import langmem_adapters
import langmem_adapters.langchain
from langmem_adapters import *  # noqa: F403 - what is tested
from langmem_adapters.evaluation import read_questions
from langmem_adapters.experience import CachedFunction, ContextBuilder, Judge, Scorer, Serializer, read_metagpt_pool
from langmem_adapters.importing import read_transcripts
from langmem_adapters.inspection import Maintained
from langmem_adapters.langchain import *  # noqa: F403 - what is tested
from langmem_adapters.langgraph import ExperienceNodeCache
from langmem_adapters.llamaindex import CachedLLM, LongTermMemoryBlock, NodeVectors
from langmem_adapters.llamaindex.memory import _Settings
from langmem_adapters.metagpt import to_metagpt
from langmem_adapters.progress import Bar, Tasks
from langmem_adapters.protocols import Index, Store
from langmem_adapters.replay.runner import recorded_sessions
from langmem_adapters.sealing import BindingCodec, Codec
from langmem_adapters.stores.memory import MemoryStore
from langmem_adapters.validation import MessageFields


class Answer(BaseModel):
    text: str


def test_every_name_is_seen_and_no_other() -> None:
    made: type[langmem_adapters.BrainMemory] = BrainMemory  # noqa: F405 - what is tested
    model: type[langmem_adapters.langchain.CachedChatModel] = CachedChatModel  # noqa: F405 - what is tested
    assert_type(made.__name__ + model.__name__, str)
    for package in (langmem_adapters, langmem_adapters.langchain):
        assert sorted(package.__all__) == sorted(package._MODULE_OF_NAME)
    with pytest.raises(AttributeError, match="BrainMemmory"):
        langmem_adapters.BrainMemmory  # type: ignore[attr-defined] # noqa: B018 - a name that was mistyped
    with pytest.raises(ImportError, match="CachedModel"):
        from langmem_adapters.langchain import CachedModel  # type: ignore[attr-defined] # noqa: F401, PLC0415 - same


def test_a_cached_chat_model_gives_what_a_chat_model_gives() -> None:
    model = langmem_adapters.langchain.CachedChatModel(FakeListChatModel(responses=["In Paris."]), url="memory:")
    assert_type(model.invoke("Where is it?"), AIMessage)
    with pytest.raises(NotImplementedError):  # this one has no tools
        assert_type(model.bind_tools([]), Runnable[LanguageModelInput, AIMessage])
    with pytest.raises(NotImplementedError):
        assert_type(model.with_structured_output(Answer), Runnable[LanguageModelInput, dict[str, Any] | BaseModel])


async def test_a_cached_llm_gives_what_an_llm_gives() -> None:
    llm = CachedLLM(MockLLM(max_tokens=2), url="memory:")
    hello = [ChatMessage("Hello!")]
    assert_type(llm.chat(hello), ChatResponse)
    assert_type(await llm.achat(hello), ChatResponse)
    assert_type(llm.complete("Hello!"), CompletionResponse)
    assert_type(await llm.acomplete("Hello!"), CompletionResponse)
    assert_type([response.delta for response in llm.stream_chat(hello)], list[str | None])
    assert_type([response.delta async for response in await llm.astream_chat(hello)], list[str | None])
    assert_type([response.delta for response in llm.stream_complete("Hello!")], list[str | None])
    assert_type([response.delta async for response in await llm.astream_complete("Hello!")], list[str | None])
    assert_type(llm.model_hash, str)


def test_a_node_cache_needs_no_annotation() -> None:
    cache = ExperienceNodeCache("memory:")
    assert_type(cache, ExperienceNodeCache[Any])


def test_what_goes_on_to_others_has_the_names_of_what_takes_it() -> None:
    message, block = langmem_adapters.Message.model_fields, LongTermMemoryBlock.model_fields
    assert list(MessageFields.__annotations__) == [name for name in message if name not in {"role", "content"}]
    assert sorted(_Settings.__annotations__) == sorted(block)


class OwnBrain(langmem_adapters.BrainMemory):
    pass


async def test_a_brain_of_ones_own_stays_one_and_its_streams_can_be_closed() -> None:
    brain = OwnBrain.from_metagpt('{"history": []}', MemoryStore(), "s")
    assert_type(brain, OwnBrain)
    assert_type(await OwnBrain.afrom_metagpt('{"history": []}', MemoryStore(), "s"), OwnBrain)
    with brain.record_turn("Where is it?") as turn, closing(turn.watch(["In ", "Paris."])) as words:
        assert_type(next(words), str)
    lines = langmem_adapters.Sessions(brain.store).aexport()
    async with aclosing(lines):
        assert_type([line async for line in lines], list[bytes])


@pytest.mark.parametrize("update", [langmem_adapters.WorkingMemory.update, langmem_adapters.WorkingMemory.aupdate])
def test_a_change_may_be_a_lambda_whose_argument_has_a_type(update: Any) -> None:
    """Strict pyright refuses one where nothing says that a function may be given."""
    assert Callable[[Any], Any] in get_args(inspect.signature(update, eval_str=True).parameters["change"].annotation)


class Place(os.PathLike[str]):
    def __init__(self, path: Path) -> None:
        self.path = path

    def __fspath__(self) -> str:
        return str(self.path)


def test_a_file_is_any_path(tmp_path: Path) -> None:
    said, asked, settings = (Place(tmp_path / name) for name in ("said.json", "asked.json", "settings.yaml"))
    said.path.write_text(json.dumps([{"role": "user", "content": "It is in Paris."}]))
    asked.path.write_text(json.dumps([{"question": "Where is it?", "evidence": ["It is in Paris."]}]))
    settings.path.write_text("langmem: {url: 'memory:'}")
    assert len(read_transcripts(said)) == len(read_questions(asked)) == 1
    assert langmem_adapters.Settings.from_yaml(settings).url == "memory:"
    assert [one.user for one in recorded_sessions(said)] == ["replayed"]
    with pytest.raises(langmem_adapters.SerializationError, match="is not a docstore of LlamaIndex"):
        read_metagpt_pool(asked)


@pytest.mark.parametrize(
    "method",
    [
        *(Scorer.__call__, Judge.__call__, ContextBuilder.__call__),
        *(Serializer.serialize_resp, Serializer.deserialize_resp),
        *(Codec.encode, Codec.decode, BindingCodec.encode_at, BindingCodec.decode_at),
    ],
)
def test_a_class_of_ones_own_may_call_its_arguments_as_it_likes(method: Any) -> None:
    """As MetaGPT's serializers do: some type checkers hold a class to all names of a protocol that may be used."""
    _, *parameters = inspect.signature(method).parameters.values()
    assert {parameter.kind for parameter in parameters} == {inspect.Parameter.POSITIONAL_ONLY}


@pytest.mark.parametrize(
    "protocol",
    [
        *(Bar, Tasks, Scorer, Judge, ContextBuilder, Serializer, Codec, BindingCodec, CachedFunction),
        *(Store, Index, Maintained),
    ],
)
def test_a_model_of_ones_own_may_have_a_field_of_each_protocol(protocol: Any) -> None:
    """Pydantic asks whether a value is one, as it does for every class that it does not know."""
    adapter: TypeAdapter[Any] = TypeAdapter(protocol, config=ConfigDict(arbitrary_types_allowed=True))
    with pytest.raises(ValidationError):
        adapter.validate_python(object())


@pytest.mark.parametrize(
    "function",
    [
        langmem_adapters.open_vectors,
        *(langmem_adapters.BrainMemory.add_talk, langmem_adapters.BrainMemory.add_answer),
        *(langmem_adapters.Embedder.query, langmem_adapters.Embedder.atexts, NodeVectors.nearest, NodeVectors.cosines),
        *(langmem_adapters.LongTermMemory.rebuild, langmem_adapters.Sessions.import_, to_metagpt),
    ],
)
def test_tools_that_read_annotations_understand_them(function: Callable[..., Any]) -> None:
    inspect.signature(function, eval_str=True)
    get_type_hints(function)
    validate_call(config=ConfigDict(arbitrary_types_allowed=True))(function)
