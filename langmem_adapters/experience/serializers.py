"""Ready-made serializers: they decide what the request of a call is, and how its response is kept as data."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel

from langmem_adapters.codec import decode, encode
from langmem_adapters.errors import ConfigurationError, SerializationError
from langmem_adapters.experience.policies import Serializer
from langmem_adapters.validation import check_sync_function

_ROLES = {"human": "user", "ai": "assistant", "AIMessageChunk": "assistant", "HumanMessageChunk": "user"}
_FILE_CONTENT_MARKER = "Command Editor.read executed: file_path"


class DataSerializer:
    """Keeps data unchanged. The request is the only argument, or all arguments by name.

    >>> DataSerializer().serialize_req(country="France"), DataSerializer().serialize_req(a=1, b=2)
    ('France', {'a': 1, 'b': 2})
    """

    def serialize_req(self, **arguments: Any) -> Any:
        """Return the only argument, or all by name."""
        return next(iter(arguments.values())) if len(arguments) == 1 else arguments

    def serialize_resp(self, resp: Any) -> Any:
        """Return the response."""
        return resp

    def deserialize_resp(self, data: Any) -> Any:
        """Return the response."""
        return data


class TextSerializer(DataSerializer):
    """Keeps the request as text (MetaGPT's ``SimpleSerializer``), and only responses that are texts.

    >>> TextSerializer().serialize_req(req=["a", 1])
    "['a', 1]"
    """

    def serialize_req(self, **arguments: Any) -> str:
        """Return the text of the request."""
        return str(super().serialize_req(**arguments))

    def serialize_resp(self, resp: Any) -> str:
        """Return the response."""
        if not isinstance(resp, str):
            raise SerializationError(f"a response of {type(resp).__qualname__} is no text")
        return resp


class JsonSerializer(DataSerializer):
    """Keeps request and response as one JSON text each, including types that JSON lacks.

    >>> JsonSerializer().serialize_resp({"rivers": (1, 2)})
    '{"rivers":{"$type":"tuple","$value":[1,2]}}'
    """

    def serialize_req(self, **arguments: Any) -> str:
        """Return the request's JSON."""
        return encode(super().serialize_req(**arguments)).decode()

    def serialize_resp(self, resp: Any) -> str:
        """Return the response's JSON."""
        return encode(resp).decode()

    def deserialize_resp(self, data: Any) -> Any:
        """Read the response's JSON."""
        return decode(data.encode())


class PydanticSerializer(DataSerializer):
    """Keeps responses that are pydantic models of one class, if the function has no annotation for it.

    >>> from langmem_adapters.model import Score
    >>> PydanticSerializer(Score).deserialize_resp({"val": 9}).val
    9
    """

    def __init__(self, model: type[BaseModel]) -> None:
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            raise ConfigurationError("PydanticSerializer takes a class of pydantic models")
        self._model = model

    def serialize_resp(self, resp: Any) -> dict[str, Any]:
        """Return the model's fields."""
        return self._model.model_dump(resp, by_alias=True, round_trip=True)

    def deserialize_resp(self, data: Any) -> BaseModel:
        """Make the model."""
        return self._model.model_validate(data)


class MessagesSerializer(DataSerializer):
    """Keeps only role, content, name and tool calls of the chat messages in a request: ids and usage do not count.

    It finds LangChain's messages anywhere in the arguments; dictionaries stay as they are.

    >>> from langchain_core.messages import HumanMessage
    >>> MessagesSerializer().serialize_req(messages=[HumanMessage("Hello.", id="m1")])
    [{'role': 'user', 'content': 'Hello.'}]
    """

    def serialize_req(self, **arguments: Any) -> Any:
        """Return the arguments with messages as plain data."""
        return _plain_messages(super().serialize_req(**arguments))


class RoleZeroSerializer(TextSerializer):
    """Keeps the request of MetaGPT's ``RoleZero``: only the part of its long prompt that makes the task, as JSON.

    These are the messages that show the content of a file, and ``state_data`` or, without it, the last message. Plan,
    time and the rest of the state, which change on each call, are left out.

    >>> RoleZeroSerializer().serialize_req(req=[{"role": "user", "content": "plan"}], state_data="the task")
    '[{"role": "user", "content": "the task"}]'
    """

    def serialize_req(self, **arguments: Any) -> str:
        """Return the request's JSON."""
        messages = arguments.get("req")
        if not messages:
            return ""
        task_messages = [message for message in messages if _FILE_CONTENT_MARKER in str(message.get("content", ""))]
        state = arguments.get("state_data")
        task_messages.append({"role": "user", "content": state} if state else messages[-1])
        return json.dumps(task_messages)


class _RequestSerializer(DataSerializer):
    """Makes requests with a plain function of the arguments."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def serialize_req(self, **arguments: Any) -> Any:
        return self._function(**arguments)


def as_serializer(serializer: Serializer | Callable[..., Any]) -> Serializer:
    """The serializer itself, or one that makes requests with a plain function."""
    if isinstance(serializer, Serializer):
        if isinstance(serializer, type):
            raise ConfigurationError(f"a serializer is an object, {serializer.__name__}(…), and not its class")
        for method in ("serialize_req", "serialize_resp", "deserialize_resp"):
            check_sync_function(f"the serializer's {method}", getattr(serializer, method))
        return serializer
    if callable(serializer):
        check_sync_function("the serializer", serializer)
        return _RequestSerializer(serializer)
    raise ConfigurationError("a serializer has serialize_req, serialize_resp and deserialize_resp, or is a function")


def _plain_messages(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain_messages(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain_messages(item) for item in value]
    if isinstance(value, BaseModel) and hasattr(value, "content") and isinstance(getattr(value, "type", None), str):
        return _plain_message(value)
    return value


def _plain_message(message: Any) -> dict[str, Any]:
    calls = [
        {"name": call.get("name"), "args": call.get("args")} for call in getattr(message, "tool_calls", None) or []
    ]
    plain = {"role": _ROLES.get(message.type, message.type), "content": message.content}
    extra = {"name": getattr(message, "name", None), "tool_calls": calls}
    return plain | {name: value for name, value in extra.items() if value}
