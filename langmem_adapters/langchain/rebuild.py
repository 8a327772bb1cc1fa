"""LangChain messages built without their constructors: from stored bytes in two thirds of the time.

While it is read, stored data is checked by pydantic against what langchain-core leaves in a message; whatever differs
goes through the constructor. So does every class that this release of langchain-core builds in another way than this
module: that is found out when this module is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, Generic, Literal, TypeAlias, TypeVar

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGeneration
from pydantic import ConfigDict, Field, TypeAdapter
from typing_extensions import TypedDict

from langmem_adapters.codec import is_tagged

__all__ = ["of_bytes", "of_data", "rebuilt_generation"]

_Fields: TypeAlias = dict[str, Any]
_T = TypeVar("_T", BaseMessage, ChatGeneration)
_OwnT = TypeVar("_OwnT")
_RoleT = TypeVar("_RoleT")

# --- the stored data that a message's class would leave as it is


class _Exact(TypedDict):
    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)  # type: ignore[misc]  # as pydantic has it


class _Own(_Exact, total=False):
    id: str | None
    additional_kwargs: dict[Any, Any]
    response_metadata: dict[Any, Any]


class _InvalidCall(_Exact, total=False):
    type: Literal["invalid_tool_call"]
    id: str | None
    name: str | None
    args: str | None
    error: str | None


class _InputTokens(_Exact, total=False):
    audio: int
    cache_creation: int
    cache_read: int


class _OutputTokens(_Exact, total=False):
    audio: int
    reasoning: int


class _Tokens(_Exact):
    input_tokens: int
    output_tokens: int
    total_tokens: int


class _Usage(_Tokens, total=False):
    input_token_details: _InputTokens
    output_token_details: _OutputTokens


class _OwnOfAI(_Own, total=False):
    invalid_tool_calls: list[_InvalidCall]
    usage_metadata: _Usage


class _OwnOfTool(_Own, total=False):
    artifact: Any
    status: Literal["success", "error"]


class _Host(_Exact, Generic[_OwnT]):
    langchain: _OwnT


class _Call(_Exact, total=False):
    id: str | None
    name: str
    args: dict[str, Any]


class _Stored(_Exact, Generic[_RoleT, _OwnT], total=False):
    v: Literal[1]
    id: str
    role: _RoleT
    content: str | list[str | dict[Any, Any]]
    name: str
    tool_calls: list[_Call]
    tool_call_id: str
    created_at: float
    metadata: dict[str, Any]
    host: _Host[_OwnT]


_User: TypeAlias = _Stored[Literal["user", "system"], _Own]
_Assistant: TypeAlias = _Stored[Literal["assistant"], _OwnOfAI]
_Tool: TypeAlias = _Stored[Literal["tool"], _OwnOfTool]
_validator: Final = TypeAdapter[Any](Annotated[_User | _Assistant | _Tool, Field(discriminator="role")]).validator

# --- the message


def of_bytes(data: bytes) -> BaseMessage | None:
    """The message that its class would make of what ``Message.to_bytes`` wrote; None if only the class can tell."""
    if is_tagged(data):
        return None
    try:
        stored = _validator.validate_json(data)
    except ValueError:
        return None
    return _made(stored, _KINDS.get(stored["role"])) if "v" in stored else None


def of_data(data: object) -> BaseMessage | None:
    """:func:`of_bytes` for what ``Message.to_data`` returned, which is not changed."""
    try:
        stored = _validator.validate_python(data)
    except ValueError:
        return None
    return _made(stored, _KINDS.get(stored["role"]))


def _made(stored: _Fields, kind: _Kind | None) -> BaseMessage | None:
    own = stored["host"]["langchain"] if "host" in stored else {}
    if kind is None or ("metadata" in stored and not own):
        return None
    cls, type_, add = kind
    id_, name = own["id"] if "id" in own else stored.get("id") or None, stored.get("name")
    given = {"content", *own}
    if id_ is None:
        given.discard("id")
    else:
        given.add("id")
    if name is not None:
        given.add("name")
    fields = {
        "content": stored.get("content", ""),
        "additional_kwargs": own.get("additional_kwargs") or {},
        "response_metadata": own.get("response_metadata") or {},
        "type": type_,
        "name": name,
        "id": id_,
    }
    add(fields, stored, own, given)
    return None if "tool_calls" in fields["additional_kwargs"] and cls is AIMessage else _filled(cls, fields, given, {})


def _filled(cls: type[_T], fields: _Fields, given: set[str], extra: _Fields | None) -> _T:
    made = cls.__new__(cls)
    _set(made, "__dict__", fields)
    _set(made, "__pydantic_fields_set__", given)
    _set(made, "__pydantic_extra__", extra)
    _set(made, "__pydantic_private__", None)
    return made


_set = object.__setattr__


def _add_nothing(*_: object) -> None: ...


def _add_of_ai(fields: _Fields, stored: _Fields, own: _Fields, given: set[str]) -> None:
    calls, invalid = stored.get("tool_calls"), own.get("invalid_tool_calls")
    fields["tool_calls"] = [_NO_CALL | {"args": {}} | call for call in calls] if calls else []
    fields["invalid_tool_calls"] = [_NO_INVALID_CALL | call for call in invalid] if invalid else []
    fields["usage_metadata"] = own.get("usage_metadata")
    if calls:
        given.add("tool_calls")


_NO_CALL: Final[_Fields] = {"name": "", "id": None, "type": "tool_call"}
_NO_INVALID_CALL: Final[_Fields] = {"type": "invalid_tool_call", "id": None, "name": None, "args": None, "error": None}


def _add_of_tool(fields: _Fields, stored: _Fields, own: _Fields, given: set[str]) -> None:
    fields["tool_call_id"] = stored.get("tool_call_id", "")
    fields["artifact"], fields["status"] = own.get("artifact"), own.get("status", "success")
    given.add("tool_call_id")


def rebuilt_generation(message: BaseMessage, info: _Fields | None) -> ChatGeneration:
    """The generation that the class ChatGeneration would make of a message."""
    sure = info is None or (type(info) is dict and all(type(key) is str for key in info))
    if not (_GENERATES and type(message.content) is str and sure):
        return ChatGeneration(message=message, generation_info=info)
    return _generation(message, info)


def _generation(message: BaseMessage, info: _Fields | None) -> ChatGeneration:
    fields = {"text": message.text, "generation_info": info, "type": "ChatGeneration", "message": message}
    return _filled(ChatGeneration, fields, {"text", "generation_info", "message"}, extra=None)


# --- does this release of langchain-core make the same?

_Kind: TypeAlias = "tuple[type[BaseMessage], str, Callable[[_Fields, _Fields, _Fields, set[str]], None]]"

_ALL: Final[dict[str, _Kind]] = {
    "user": (HumanMessage, "human", _add_nothing),
    "assistant": (AIMessage, "ai", _add_of_ai),
    "system": (SystemMessage, "system", _add_nothing),
    "tool": (ToolMessage, "tool", _add_of_tool),
}
_OWN_SAMPLE: Final[_Fields] = {"additional_kwargs": {"a": 1}, "response_metadata": {"b": [2]}}
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
                "input_token_details": dict.fromkeys(_InputTokens.__annotations__, 1),
                "output_token_details": dict.fromkeys(_OutputTokens.__annotations__, 1),
            },
        },
    ),
}


def _is_same(role: str, kind: _Kind, fields: _Fields) -> bool:
    """Whether the class makes of these fields what this module builds."""
    stored = {name: value for name, value in fields.items() if name in _Stored.__annotations__}
    own = {name: value for name, value in fields.items() if name not in stored}
    host = {"host": {"langchain": own}} if own else {}
    built = _made(_validator.validate_python({"role": role, **stored, **host}), kind)
    made = kind[0](**fields)
    return built is not None and _state(built) == _state(made) and list(built.__dict__) == list(made.__dict__)


def _state(made: BaseMessage | ChatGeneration) -> tuple[Any, ...]:
    return made.__dict__, made.__pydantic_fields_set__, made.__pydantic_extra__, made.__pydantic_private__


_KINDS: Final = {
    role: kind
    for role, kind in _ALL.items()
    if all(
        _is_same(role, kind, {"content": content, **sample, **more})
        for sample in _SAMPLES[role]
        for content in ("text", ["a", {"type": "text", "text": "b"}])
        for more in ({}, {"id": "m", "name": "n", **_OWN_SAMPLE})
    )
}
_GENERATES: Final = all(
    _state(_generation(AIMessage("text"), info))
    == _state(ChatGeneration(message=AIMessage("text"), generation_info=info))
    for info in (None, {"a": [1]})
)
