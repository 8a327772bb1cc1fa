"""Decides when two LlamaIndex calls are one request: both have one key, whatever does not change the answer."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from llama_index.core.base.llms.types import (
    CachePoint,
    ChatMessage,
    DocumentBlock,
    MessageRole,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from llama_index.core.llms import LLM
from llama_index.core.schema import ImageNode
from llama_index.core.tools import BaseTool
from pydantic import BaseModel, PydanticUserError

from langmem_adapters.errors import SerializationError
from langmem_adapters.experience.environment import environment_headers
from langmem_adapters.experience.functions.call_records import is_record_of_calls
from langmem_adapters.experience.functions.equality import ATOMS
from langmem_adapters.experience.functions.naming import as_setting
from langmem_adapters.experience.functions.values import StableSchema, identity, name_of
from langmem_adapters.keys import fingerprint
from langmem_adapters.llamaindex.convert import to_message
from langmem_adapters.providers.addresses import unstated_address
from langmem_adapters.providers.item_ids import without_thought_ids
from langmem_adapters.providers.tool_calls import call_ids, with_numbered_calls

# How a call is made or watched, not what is asked.
_CALL_SETTINGS = frozenset(
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
        "token",
        "verbose",
    }
)
# Private state that counts: LiteLLM's, GoogleGenAI's, LangChainLLM's, OpenAIResponses', an inner CachedLLM's.
_PRIVATE_FIELDS = ("_custom_llm_provider", "_generation_config", "_llm", "_previous_response_id", "_wrapped")
_CONVERSATION_PARAMETER = "conversation"  # names one that the provider of OpenAIResponses keeps
# Headers that clients add by themselves: what kind of client they are, and their API key.
_CLIENT_HEADERS = frozenset({"content-type", "user-agent", "x-goog-api-client", "x-goog-api-key"})
# Fields that count although they are not dumped: how prompts are made, and where BedrockConverse asks.
_UNDUMPED_FIELDS = frozenset({"completion_to_prompt", "messages_to_prompt", "output_parser", "query_wrapper_prompt"})
_UNDUMPED_FIELDS |= {"endpoint_url", "region_name"}
# In a message: its id, as a user interface has it (AG-UI), and what it takes to make an answer, not which.
_UNASKED_KEYS = frozenset({"cache_control", "id", "usage"})
_UI_CALLS_KEY = "ag_ui_tool_calls"  # where AG-UI's workflow repeats the calls of a message, or has them alone
_MANY_MESSAGES = 100  # whose key takes some 5 ms, and a hop to a worker thread 0.1 ms
_SMALL_BLOCKS = (TextBlock, ThinkingBlock, ToolCallBlock, CachePoint)


class KeyedRequest(NamedTuple):
    """A request's key, the user's question for scorers and judges, and how many tokens the answer may have.

    ``is_current`` says whether the model's settings are still those of the key.
    """

    key: str
    question: str
    limit: Any
    is_current: Callable[[], bool]


def chat_request(llm: LLM, messages: Sequence[ChatMessage], kwargs: Mapping[str, Any]) -> KeyedRequest:
    """The request of a chat; see :func:`chat_key`."""
    model = _model_data(llm)
    return _keyed_request(llm, model, chat_key(llm, messages, kwargs, model), _last_user_text(messages), kwargs)


def completion_request(llm: LLM, prompt: str, formatted: bool, kwargs: Mapping[str, Any]) -> KeyedRequest:
    """The request of a completion; see :func:`chat_key`."""
    _check_complete(llm, kwargs)
    model = _model_data(llm)
    key = fingerprint("llama-index completion", model, prompt, formatted, _parameter_values(kwargs))
    return _keyed_request(llm, model, key, prompt, kwargs)


def _keyed_request(llm: LLM, model: Any, key: str, question: str, kwargs: Mapping[str, Any]) -> KeyedRequest:
    def is_current() -> bool:
        with suppress(SerializationError):
            return bool(_model_data(llm) == model)
        return False

    limit = kwargs.get("max_tokens", getattr(llm, "max_tokens", None))
    return KeyedRequest(key, question, limit, is_current)


def chat_key(llm: LLM, messages: Sequence[ChatMessage], kwargs: Mapping[str, Any], model: Any = None) -> str:
    """The key of a chat with a model, of which ``model`` is the data: 32 hexadecimal digits, which tell nothing.

    Ids of messages, of tool calls and of thoughts, the order in which the tools of one message ended, the tokens of
    earlier answers, marks for the provider's cache, API keys, timeouts and retries do not change it. Everything else
    does: the model and its parameters, messages with the content of their files, tools, formats. Raises
    SerializationError for a request that cannot be told from another, or that continues what the provider keeps of
    earlier calls.
    """
    _check_complete(llm, kwargs)
    data = [without_thought_ids(to_message(_as_asked(message)).to_data()) for message in messages]
    data = with_numbered_calls(_in_call_order(data), [call for message in messages for call in _ui_calls(message)])
    contents = (content for message in messages for content in (message.blocks, message.additional_kwargs) if content)
    file_hashes = [_file_hash(path) for content in contents for path in _file_paths(content)]
    files = (file_hashes,) if file_hashes else ()
    return fingerprint("llama-index chat", model or _model_data(llm), data, _parameter_values(kwargs), *files)


def takes_a_while(messages: Sequence[ChatMessage]) -> bool:
    """Whether an event loop should not make the key: of many messages, or of a medium, which may be large or a file."""
    blocks = (block for message in messages for block in message.blocks)
    return len(messages) >= _MANY_MESSAGES or not all(isinstance(block, _SMALL_BLOCKS) for block in blocks)


def _in_call_order(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages with tool results in the order of the calls: agents append first what ends first, which is chance."""
    ids = call_ids(call for message in messages for call in message.get("tool_calls", ()))
    positions = {id_: n for n, id_ in enumerate(ids)}

    def call_position(message: dict[str, Any]) -> int:
        return positions.get(str(message.get("tool_call_id")), -1) if message["role"] == "tool" else -1

    runs = groupby(messages, key=lambda message: call_position(message) < 0)
    return [message for _, run in runs for message in sorted(run, key=call_position)]


def _as_asked(message: ChatMessage) -> ChatMessage:
    """A message without its id, and without what Anthropic's model writes into it: a stream's tokens, and marks.

    A hit took no tokens, and does not mark what the provider is to cache, so the next turn would not be the same.
    """
    if _UNASKED_KEYS.isdisjoint(message.additional_kwargs):  # copying each message takes half as long again as its key
        return message
    kwargs = {name: value for name, value in message.additional_kwargs.items() if name not in _UNASKED_KEYS}
    return message.model_copy(update={"additional_kwargs": kwargs})


def _ui_calls(message: ChatMessage) -> list[dict[str, Any]]:
    calls = message.additional_kwargs.get(_UI_CALLS_KEY)
    return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


def model_key(llm: LLM) -> str:
    """The key of a model and its parameters; see :func:`chat_key`."""
    return fingerprint("llama-index model", _model_data(llm))


def _check_complete(llm: LLM, kwargs: Mapping[str, Any]) -> None:
    """Refuse a request that does not say all; nor would the provider, after a hit, know what had been said."""
    parameters = {**(getattr(llm, "additional_kwargs", None) or {}), **kwargs}
    extra_body = parameters.get("extra_body")
    if isinstance(extra_body, Mapping):
        parameters |= extra_body
    if getattr(llm, "track_previous_responses", False) or parameters.get(_CONVERSATION_PARAMETER):
        raise SerializationError("the model's provider keeps the conversation, so its messages do not say all of it")


def _last_user_text(messages: Sequence[ChatMessage]) -> str:
    """What the user said last."""
    texts = (message.content or "" for message in reversed(messages) if message.role == MessageRole.USER)
    return next(texts, "")


def _file_paths(value: Any) -> Iterator[Any]:
    """The files that are named in place of their content, in blocks and in the values beside them."""
    values = vars(value) | (value.model_extra or {}) if isinstance(value, BaseModel) else value
    for item in values.values() if isinstance(values, dict) else values:
        if type(item) in ATOMS:
            continue
        if isinstance(item, Path):
            yield item
        elif isinstance(item, DocumentBlock) and item.path is not None:  # which may be a str
            yield item.path
        elif isinstance(item, (BaseModel, dict, list)):
            yield from _file_paths(item)


def _file_hash(path: Any) -> str:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except (OSError, ValueError) as error:  # a path may hold a zero byte, or half of a surrogate pair
        raise SerializationError(f"a file of the request cannot be read: {type(error).__name__}") from error


def _model_data(llm: LLM) -> Any:
    model_name = llm.metadata.model_name  # before its fields: here Ollama asks its server how long a context may be
    kind, fields = _parameters(llm)
    return [kind, model_name, fields]


def _parameters(model: BaseModel) -> list[Any]:
    """The class of a model, with the fields that a dump would have but for its own record of calls, and some others."""
    names = [name for name, field in type(model).model_fields.items() if not field.exclude or name in _UNDUMPED_FIELDS]
    fields = {name: getattr(model, name, None) for name in names if not is_record_of_calls(model, name)}
    if isinstance(kwargs := fields.get("additional_kwargs"), Mapping):  # sent with each call: LiteLLM's API key too
        fields["additional_kwargs"] = _without_call_settings(kwargs)
    if isinstance(headers := fields.get("headers"), Mapping):  # Perplexity has its API key there
        own_key = f"Bearer {getattr(model, 'api_key', None)}"
        fields["headers"] = {name: value for name, value in headers.items() if value != own_key}
    private = getattr(model, "__pydantic_private__", None) or {}
    fields |= {name: private[name] for name in _PRIVATE_FIELDS if private.get(name) is not None}
    added_headers = environment_headers()
    own_headers = added_headers | dict(getattr(model, "default_headers", None) or {})  # both count already
    headers, body = _always_sent(private.get("_client") or private.get("_aclient"))
    fields |= {f"header {name}": value for name, value in headers.items() if value != own_headers.get(name)}
    extras = {"address": unstated_address(model), "headers of the environment": added_headers, "body": body}
    fields |= {name: value for name, value in extras.items() if value}
    fields = _without_call_settings(fields)
    return [name_of(type(model)), {name: _parameter_data(value) for name, value in fields.items()}]


def _always_sent(client: Any) -> tuple[dict[str, Any], Any]:
    """What the user had a client of Anthropic's or Google's send with each request: headers, and parts of its body."""
    options = getattr(getattr(client, "_api_client", None), "_http_options", None)
    headers = getattr(client, "_custom_headers", None) or getattr(options, "headers", None)
    items = headers.items() if isinstance(headers, Mapping) else ()
    sent_headers = {name: value for name, value in items if name.lower() not in _CLIENT_HEADERS}
    return sent_headers, getattr(options, "extra_body", None)


def _parameter_data(value: Any) -> Any:
    """A parameter as data; for one that is no data, such as a client, its name."""
    try:
        return fingerprint(_value_data(value))
    except SerializationError:
        if isinstance(value, BaseModel):  # such as LangChain's model in a LangChainLLM
            return _parameters(value)
        if isinstance(value, Mapping):
            return {str(name): _parameter_data(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [_parameter_data(item) for item in value]
    except RecursionError:  # it contains itself
        pass
    with suppress(SerializationError, RecursionError):  # of a path, an enum, a dataclass
        return fingerprint(identity(value))
    return ["a", as_setting(value) or getattr(value, "__qualname__", type(value).__qualname__)]


def _parameter_values(parameters: Mapping[str, Any]) -> Any:
    return _value_data(_without_call_settings(parameters))


def _without_call_settings(parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in parameters.items() if name not in _CALL_SETTINGS}


def _value_data(value: Any) -> Any:
    """A value as data; tools and classes by their name, description and schema."""
    if isinstance(value, BaseTool):
        metadata = value.metadata
        return ["tool", metadata.name, metadata.description, _value_data(metadata.get_parameters_dict())]
    if isinstance(value, type):
        return ["class", value.__qualname__, _class_schema(value)]
    if isinstance(value, ImageNode) and value.image_path:
        raise SerializationError("an image node names a file, whose content may have changed")
    if isinstance(value, BaseModel):
        return ["model", type(value).__qualname__, _value_data(dict(value))]
    if isinstance(value, Mapping):
        return {name: _value_data(item) for name, item in value.items()}
    return [_value_data(item) for item in value] if isinstance(value, list | tuple) else value


def _class_schema(cls: type) -> Any:
    """What an object of a class holds: two classes of one name may ask for different things."""
    if not issubclass(cls, BaseModel):
        return identity(cls)
    try:
        return cls.model_json_schema(schema_generator=StableSchema)
    except PydanticUserError as error:  # for a type that JSON does not know
        raise SerializationError(f"the class {cls.__qualname__} has no schema: {type(error).__name__}") from error
