"""LangChain messages built without their constructors: from stored bytes in less than half of the time.

While it is read, stored data is checked by pydantic against what langchain-core leaves in a message; whatever differs
goes through the constructor. So does every class that this release of langchain-core builds in another way than this
module: that is found out when this module is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Annotated, Any, Final, Generic, Literal, TypeAlias, TypeVar

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from typing_extensions import TypedDict

from langmem_adapters.codec import is_tagged

_Fields: TypeAlias = dict[str, Any]
_InstanceT = TypeVar("_InstanceT", BaseMessage, ChatGeneration)
_HostFieldsT = TypeVar("_HostFieldsT")
_RoleT = TypeVar("_RoleT")

# --- the stored data that a message's class would leave as it is


class _Exact(TypedDict):
    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)  # type: ignore[misc]  # as pydantic has it


class _HostFields(_Exact, total=False):
    id: str | None
    additional_kwargs: dict[Any, Any]
    response_metadata: dict[Any, Any]


class _InvalidCall(_Exact, total=False):
    type: Literal["invalid_tool_call"]
    id: str | None
    name: str | None
    args: str | None
    error: str | None


class _AIHostFields(_HostFields, total=False):
    invalid_tool_calls: list[_InvalidCall]
    usage_metadata: UsageMetadata


class _ToolHostFields(_HostFields, total=False):
    artifact: Any
    status: Literal["success", "error"]


class _Host(_Exact, Generic[_HostFieldsT]):
    langchain: _HostFieldsT


class _Call(_Exact, total=False):
    id: str | None
    name: str
    args: dict[str, Any]


class _Stored(_Exact, Generic[_RoleT, _HostFieldsT], total=False):
    v: Literal[1]
    id: str
    role: _RoleT
    content: str | list[str | dict[Any, Any]]
    name: str
    tool_calls: list[_Call]
    tool_call_id: str
    created_at: float
    metadata: dict[str, Any]
    host: _Host[_HostFieldsT]


_StoredUser: TypeAlias = _Stored[Literal["user", "system"], _HostFields]
_StoredAssistant: TypeAlias = _Stored[Literal["assistant"], _AIHostFields]
_StoredTool: TypeAlias = _Stored[Literal["tool"], _ToolHostFields]
_validator: Final = TypeAdapter[Any](
    Annotated[_StoredUser | _StoredAssistant | _StoredTool, Field(discriminator="role")]
).validator

# --- the message


def message_from_bytes(data: bytes) -> BaseMessage | None:
    """The message that its class would make of what ``Message.to_bytes`` wrote; None if only the class can tell."""
    if is_tagged(data):
        return None
    try:
        stored = _validator.validate_json(data)
    except ValueError:
        return None
    return _build_message(stored, _SUPPORTED_KINDS.get(stored["role"])) if "v" in stored else None


def message_from_data(data: object) -> BaseMessage | None:
    """:func:`message_from_bytes` for what ``Message.to_data`` returned, which is not changed."""
    try:
        stored = _validator.validate_python(data)
    except ValueError:
        return None
    return _build_message(stored, _SUPPORTED_KINDS.get(stored["role"]))


def _build_message(stored: _Fields, kind: _Kind | None) -> BaseMessage | None:
    host_fields = stored["host"]["langchain"] if "host" in stored else {}
    if kind is None or ("metadata" in stored and not host_fields):
        return None
    cls, type_, add = kind
    id_ = host_fields["id"] if "id" in host_fields else stored.get("id") or None
    name = stored.get("name")
    fields_set = {"content", *host_fields}
    if id_ is None:
        fields_set.discard("id")
    else:
        fields_set.add("id")
    if name is not None:
        fields_set.add("name")
    fields = {
        "content": stored.get("content", ""),
        "additional_kwargs": host_fields.get("additional_kwargs") or {},
        "response_metadata": host_fields.get("response_metadata") or {},
        "type": type_,
        "name": name,
        "id": id_,
    }
    add(fields, stored, host_fields, fields_set)
    if "tool_calls" in fields["additional_kwargs"] and cls is AIMessage:
        return None
    return _fill_instance(cls, fields, fields_set, {})


def _fill_instance(cls: type[_InstanceT], fields: _Fields, fields_set: set[str], extra: _Fields | None) -> _InstanceT:
    instance = cls.__new__(cls)
    _set_fields(instance, fields)
    _set_fields_set(instance, fields_set)
    _set_extra(instance, extra)
    _set_private(instance, None)
    return instance


# Not by object.__setattr__, which takes twice the time, as it looks for these in all of the class's bases.
_set_fields, _set_fields_set, _set_extra, _set_private = (
    vars(BaseModel)[name].__set__
    for name in ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
)


def _add_nothing(*_: object) -> None: ...


def _add_ai_fields(fields: _Fields, stored: _Fields, host_fields: _Fields, fields_set: set[str]) -> None:
    calls, invalid = stored.get("tool_calls"), host_fields.get("invalid_tool_calls")
    fields["tool_calls"] = [{**_CALL_DEFAULTS, "args": {}, **call} for call in calls] if calls else []
    fields["invalid_tool_calls"] = [_INVALID_CALL_DEFAULTS | call for call in invalid] if invalid else []
    fields["usage_metadata"] = host_fields.get("usage_metadata")
    if calls:
        fields_set.add("tool_calls")


_CALL_DEFAULTS: Final[_Fields] = {"name": "", "id": None, "type": "tool_call"}
_INVALID_CALL_DEFAULTS: Final = {"type": "invalid_tool_call", **dict.fromkeys(("id", "name", "args", "error"))}


def _add_tool_fields(fields: _Fields, stored: _Fields, host_fields: _Fields, fields_set: set[str]) -> None:
    fields["tool_call_id"] = stored.get("tool_call_id", "")
    fields["artifact"], fields["status"] = host_fields.get("artifact"), host_fields.get("status", "success")
    fields_set.add("tool_call_id")


def rebuild_generation(message: BaseMessage, info: _Fields | None) -> ChatGeneration:
    """The generation that the class ChatGeneration would make of a message."""
    is_plain_info = info is None or (type(info) is dict and all(type(key) is str for key in info))
    if not (_CAN_BUILD_GENERATIONS and type(message.content) is str and is_plain_info):
        return ChatGeneration(message=message, generation_info=info)
    return _build_generation(message, info)


def _build_generation(message: BaseMessage, info: _Fields | None) -> ChatGeneration:
    fields = {"text": message.text, "generation_info": info, "type": "ChatGeneration", "message": message}
    return _fill_instance(ChatGeneration, fields, {"text", "generation_info", "message"}, extra=None)


# --- does this release of langchain-core make the same?

_Kind: TypeAlias = "tuple[type[BaseMessage], str, Callable[[_Fields, _Fields, _Fields, set[str]], None]]"

_ALL_KINDS: Final[dict[str, _Kind]] = {
    "user": (HumanMessage, "human", _add_nothing),
    "assistant": (AIMessage, "ai", _add_ai_fields),
    "system": (SystemMessage, "system", _add_nothing),
    "tool": (ToolMessage, "tool", _add_tool_fields),
}
_HOST_SAMPLE: Final[_Fields] = {"additional_kwargs": {"a": 1}, "response_metadata": {"b": [2]}}
_SAMPLES: Final[dict[str, tuple[_Fields, ...]]] = {
    "user": ({},),
    "system": ({},),
    "tool": ({"tool_call_id": "c"}, {"tool_call_id": "", "artifact": [1], "status": "error"}),
    "assistant": (
        {},
        {
            "tool_calls": [{"name": "n", "args": {"x": 1}, "id": "i"}, {"name": "", "args": {}, "id": None}],
            "invalid_tool_calls": [{"name": "n", "args": "{", "id": None, "error": "e"}],
            "usage_metadata": {
                "input_tokens": 1,
                "output_tokens": 2,
                "total_tokens": 3,
                "input_token_details": {"audio": 1, "cache_creation": 1, "cache_read": 1},
                "output_token_details": {"audio": 1, "reasoning": 1},
            },
        },
    ),
}


_pydantic_state = attrgetter("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")


def _is_built_alike(role: str, kind: _Kind, fields: _Fields) -> bool:
    """Whether the class makes of these fields what this module builds."""
    stored = {name: value for name, value in fields.items() if name in _Stored.__annotations__}
    host_fields = {name: value for name, value in fields.items() if name not in stored}
    host = {"host": {"langchain": host_fields}} if host_fields else {}
    built = _build_message(_validator.validate_python({"role": role, **stored, **host}), kind)
    constructed = kind[0](**fields)
    return (
        built is not None
        and _pydantic_state(built) == _pydantic_state(constructed)
        and list(built.__dict__) == list(constructed.__dict__)
    )


_SUPPORTED_KINDS: Final = {
    role: kind
    for role, kind in _ALL_KINDS.items()
    if all(
        _is_built_alike(role, kind, {"content": content, **sample, **more})
        for sample in _SAMPLES[role]
        for content in ("text", ["a", {"type": "text", "text": "b"}])
        for more in ({}, {"id": "m", "name": "n", **_HOST_SAMPLE})
    )
}
_CAN_BUILD_GENERATIONS: Final = all(
    _pydantic_state(_build_generation(AIMessage("text"), info))
    == _pydantic_state(ChatGeneration(message=AIMessage("text"), generation_info=info))
    for info in (None, {"a": [1]})
)
