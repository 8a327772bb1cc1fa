"""Decides when two LlamaIndex calls are one request: both have one key, whatever does not change the answer."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any

from llama_index.core.base.llms.types import ChatMessage, DocumentBlock, MessageRole
from llama_index.core.llms import LLM
from llama_index.core.schema import ImageNode
from llama_index.core.tools import BaseTool
from pydantic import BaseModel, PydanticUserError

from langmem_adapters.errors import SerializationError
from langmem_adapters.experience.functions.equality import ATOMS
from langmem_adapters.experience.functions.naming import as_setting
from langmem_adapters.experience.functions.values import identity, name_of
from langmem_adapters.keys import fingerprint
from langmem_adapters.llamaindex.convert import checked_chats, to_message
from langmem_adapters.providers.addresses import unsaid_address
from langmem_adapters.providers.item_ids import without_thought_ids
from langmem_adapters.providers.tool_calls import call_ids, numbered

__all__ = ["chat_key", "completion_key", "last_said", "model_key"]

# How a call is made or watched, not what is asked.
_OF_THE_CALL = frozenset(
    {
        "api_key",
        "azure_ad_token_provider",
        "callback_manager",
        "max_retries",
        "num_workers",
        "rate_limiter",
        "request_timeout",
        "reuse_client",
        "timeout",
        "verbose",
    }
)
# Private state that counts: LiteLLM's, GoogleGenAI's, LangChainLLM's, OpenAIResponses', an inner CachedLLM's.
_ASKED_IN_PRIVATE = ("_custom_llm_provider", "_generation_config", "_llm", "_previous_response_id", "_wrapped")
_CONTINUED = "conversation"  # the parameter that names a conversation that the provider of OpenAIResponses keeps
# Headers that clients add by themselves: what kind of client they are, and their API key.
_OF_THE_CLIENT = frozenset({"content-type", "user-agent", "x-goog-api-client", "x-goog-api-key"})
# Fields that count although they are not dumped: how prompts are made, and where BedrockConverse asks.
_UNDUMPED = frozenset({"completion_to_prompt", "messages_to_prompt", "output_parser", "query_wrapper_prompt"})
_UNDUMPED |= {"endpoint_url", "region_name"}


def chat_key(llm: LLM, messages: Sequence[ChatMessage], kwargs: Mapping[str, Any]) -> str:
    """The key of a chat: 32 hexadecimal digits, from which nothing can be read back.

    Ids of tool calls and of thoughts, the order in which the tools of one message ended, the tokens of earlier answers,
    API keys, timeouts and retries do not change it. Everything else does: the model and its parameters, messages with
    the content of their files, tools, formats. Raises SerializationError for a request that cannot be told from
    another, or that continues what the provider keeps of earlier calls.
    """
    _check_whole(llm, kwargs)
    said = _as_called([without_thought_ids(to_message(_without_usage(message)).to_data()) for message in messages])
    held = (place for message in messages for place in (message.blocks, message.additional_kwargs) if place)
    files = [_content(path) for place in held for path in _paths(place)]
    shown = (files,) if files else ()
    return fingerprint("llama-index chat", _model(llm), numbered(said), _described(_lasting(kwargs)), *shown)


def _as_called(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages with tool results in the order of the calls: agents append first what ends first, which is chance."""
    ids = call_ids(call for message in messages for call in message.get("tool_calls", ()))
    places = {id_: place for place, id_ in enumerate(ids)}

    def place(message: dict[str, Any]) -> int:
        return places.get(str(message.get("tool_call_id")), -1) if message["role"] == "tool" else -1

    runs = groupby(messages, key=lambda message: place(message) < 0)
    return [message for _, run in runs for message in sorted(run, key=place)]


def _without_usage(message: ChatMessage) -> ChatMessage:
    """A message without the tokens that it took, which Anthropic's streams put into it: a hit took none."""
    if "usage" not in message.additional_kwargs:  # copying each message takes half as long again as its key
        return message
    kwargs = {name: value for name, value in message.additional_kwargs.items() if name != "usage"}
    return message.model_copy(update={"additional_kwargs": kwargs})


def completion_key(llm: LLM, prompt: str, formatted: bool, kwargs: Mapping[str, Any]) -> str:
    """The key of a completion; see :func:`chat_key`."""
    _check_whole(llm, kwargs)
    return fingerprint("llama-index completion", _model(llm), prompt, formatted, _described(_lasting(kwargs)))


def model_key(llm: LLM) -> str:
    """The key of a model and its parameters; see :func:`chat_key`."""
    return fingerprint("llama-index model", _model(llm))


def _check_whole(llm: LLM, kwargs: Mapping[str, Any]) -> None:
    """Refuse a request that does not say all; nor would the provider, after a hit, know what had been said."""
    given = {**(getattr(llm, "additional_kwargs", None) or {}), **kwargs}
    given |= more if isinstance(more := given.get("extra_body"), Mapping) else {}
    if getattr(llm, "track_previous_responses", False) or given.get(_CONTINUED):
        raise SerializationError("the model's provider keeps the conversation, so its messages do not say all of it")


def last_said(messages: Sequence[ChatMessage]) -> str:
    """What the user said last. Raises ConfigurationError for anything but a list of messages."""
    said = (one.content or "" for one in reversed(checked_chats(messages)) if one.role == MessageRole.USER)
    return next(said, "")


def _paths(value: Any) -> Iterator[Any]:
    """The files that are named in place of their content, in blocks and in the values beside them."""
    held = vars(value) | (value.model_extra or {}) if isinstance(value, BaseModel) else value
    for item in held.values() if isinstance(held, dict) else held:
        if type(item) in ATOMS:
            continue
        if isinstance(item, Path):
            yield item
        elif isinstance(item, DocumentBlock) and item.path is not None:  # which may be a str
            yield item.path
        elif isinstance(item, (BaseModel, dict, list)):
            yield from _paths(item)


def _content(path: Any) -> str:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError as error:
        raise SerializationError(f"a file of the request cannot be read: {type(error).__name__}") from error


def _model(llm: LLM) -> Any:
    """A model and its parameters."""
    known_as = llm.metadata.model_name  # before its fields: here Ollama asks its server how long a context may be
    kind, fields = _parameters(llm)
    return [kind, known_as, fields]


def _parameters(model: BaseModel) -> list[Any]:
    """The class of a model, with the fields that a dump would have, and some others."""
    names = [name for name, field in type(model).model_fields.items() if not field.exclude or name in _UNDUMPED]
    fields = {name: getattr(model, name, None) for name in names}
    if isinstance(given := fields.get("additional_kwargs"), Mapping):  # sent with each call: LiteLLM's API key too
        fields["additional_kwargs"] = _lasting(given)
    private = getattr(model, "__pydantic_private__", None) or {}
    fields |= {name: private[name] for name in _ASKED_IN_PRIVATE if private.get(name) is not None}
    if address := unsaid_address(model):
        fields["address"] = address
    said = getattr(model, "default_headers", None) or {}
    headers = _headers(private.get("_client") or private.get("_aclient"))
    fields |= {f"header {name}": value for name, value in headers.items() if value != said.get(name)}
    return [name_of(type(model)), {name: _told(it) for name, it in _lasting(fields).items()}]


def _headers(client: Any) -> dict[str, Any]:
    """The headers of a client of Anthropic's or Google's, as far as the user gave them."""
    options = getattr(getattr(client, "_api_client", None), "_http_options", None)
    headers = getattr(client, "_custom_headers", None) or getattr(options, "headers", None)
    given = headers.items() if isinstance(headers, Mapping) else ()
    return {name: value for name, value in given if name.lower() not in _OF_THE_CLIENT}


def _told(value: Any) -> Any:
    """A parameter as data; for one that is no data, such as a client, its name."""
    try:
        return fingerprint(_described(value))
    except SerializationError:
        if isinstance(value, BaseModel):  # such as LangChain's model in a LangChainLLM
            return _parameters(value)
        if isinstance(value, Mapping):
            return {str(name): _told(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [_told(item) for item in value]
    except RecursionError:  # it contains itself
        pass
    with suppress(SerializationError, RecursionError):  # of a path, an enum, a dataclass
        return fingerprint(identity(value))
    return ["a", as_setting(value) or getattr(value, "__qualname__", type(value).__qualname__)]


def _lasting(parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in parameters.items() if name not in _OF_THE_CALL}


def _described(value: Any) -> Any:
    """A value as data; tools and classes by their name, description and schema."""
    if isinstance(value, BaseTool):
        metadata = value.metadata
        return ["tool", metadata.name, metadata.description, _described(metadata.get_parameters_dict())]
    if isinstance(value, type):
        return ["class", value.__qualname__, _held_by(value)]
    if isinstance(value, ImageNode) and value.image_path:
        raise SerializationError("an image node names a file, whose content may have changed")
    if isinstance(value, BaseModel):
        return ["model", type(value).__qualname__, _described(dict(value))]
    if isinstance(value, Mapping):
        return {name: _described(item) for name, item in value.items()}
    return [_described(item) for item in value] if isinstance(value, list | tuple) else value


def _held_by(cls: type) -> Any:
    """What an object of a class holds: two classes of one name may ask for different things."""
    if not issubclass(cls, BaseModel):
        return identity(cls)
    try:
        return cls.model_json_schema()
    except PydanticUserError as error:  # for a type that JSON does not know
        raise SerializationError(f"the class {cls.__qualname__} has no schema: {type(error).__name__}") from error
