"""LangChain messages without their constructors, where nothing is left to check: a quarter of the time.

A stored message was validated when it was written and is checked again here, field by field; whatever is not exactly
as langchain-core itself leaves it goes through the constructor. So does every class of which this release makes
something else than what is built here: that is found out when this module is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from langmem_adapters.model import ToolCall

__all__ = ["rebuilt"]

_Fields: TypeAlias = dict[str, Any]

_HOST: Final = "langchain"
_TEXT: Final = frozenset({str})
_TEXT_OR_NONE: Final = frozenset({str, type(None)})
_INT: Final = frozenset({int})
_BLOCKS: Final = frozenset({str, dict})
_NOTHING: Final[_Fields] = {}
_OWN: Final = frozenset({"id", "additional_kwargs", "response_metadata"})
_OWN_OF_AI: Final = _OWN | {"invalid_tool_calls", "usage_metadata"}
_OWN_OF_TOOL: Final = _OWN | {"artifact", "status"}
_CALL: Final[_Fields] = {"name": "", "args": {}, "id": None, "type": "tool_call"}
_INVALID_CALL: Final[_Fields] = {"type": "invalid_tool_call", "id": None, "name": None, "args": None, "error": None}
_TOKENS: Final = frozenset({"input_tokens", "output_tokens", "total_tokens"})
_TOKEN_DETAILS: Final = {
    "input_token_details": frozenset({"audio", "cache_creation", "cache_read"}),
    "output_token_details": frozenset({"audio", "reasoning"}),
}
_USAGE: Final = _TOKENS | _TOKEN_DETAILS.keys()


def rebuilt(stored: _Fields) -> BaseMessage | None:
    """The message that its class would make of the fields of a Message; None, where the class must be asked.

    The tool calls among them may be data, too.
    """
    kind, host = _KINDS.get(stored["role"]), stored.get("host")
    own = host.get(_HOST) if host else _NOTHING
    if kind is None or own is None or (stored.get("metadata") and not own):
        return None
    cls, build = kind
    given = {"content"}
    fields = build(stored, own, given)
    return None if fields is None else _filled(cls, fields, given)


def _filled(cls: type[BaseMessage], fields: _Fields, given: set[str]) -> BaseMessage:
    made = cls.__new__(cls)
    _set(made, "__dict__", fields)
    _set(made, "__pydantic_fields_set__", given)
    _set(made, "__pydantic_extra__", {})
    _set(made, "__pydantic_private__", None)
    return made


_set = object.__setattr__


def _plain(stored: _Fields, own: _Fields, given: set[str], type_: str, known: frozenset[str]) -> _Fields | None:
    """The fields that all classes have."""
    content, name = stored.get("content", ""), stored.get("name")
    id_ = own.get("id", stored.get("id") or None)
    kwargs, metadata = own.get("additional_kwargs", _NOTHING), own.get("response_metadata", _NOTHING)
    if type(content) is not str:
        if type(content) is not list or not _BLOCKS.issuperset(map(type, content)):
            return None
        content = [block.copy() if type(block) is dict else block for block in content]
    if (
        not known.issuperset(own)
        or type(name) not in _TEXT_OR_NONE
        or type(id_) not in _TEXT_OR_NONE
        or type(kwargs) is not dict
        or type(metadata) is not dict
    ):
        return None
    given.update(own)
    if id_ is None:
        given.discard("id")
    else:
        given.add("id")
    if name is not None:
        given.add("name")
    return {
        "content": content,
        "additional_kwargs": kwargs.copy(),
        "response_metadata": metadata.copy(),
        "type": type_,
        "name": name,
        "id": id_,
    }


def _human(stored: _Fields, own: _Fields, given: set[str]) -> _Fields | None:
    return _plain(stored, own, given, "human", _OWN)


def _system(stored: _Fields, own: _Fields, given: set[str]) -> _Fields | None:
    return _plain(stored, own, given, "system", _OWN)


def _tool(stored: _Fields, own: _Fields, given: set[str]) -> _Fields | None:
    fields = _plain(stored, own, given, "tool", _OWN_OF_TOOL)
    call, status = stored.get("tool_call_id") or "", own.get("status", "success")
    if fields is None or type(call) is not str or status not in ("success", "error"):
        return None
    given.add("tool_call_id")
    fields["tool_call_id"], fields["artifact"], fields["status"] = call, own.get("artifact"), status
    return fields


def _ai(stored: _Fields, own: _Fields, given: set[str]) -> _Fields | None:
    fields = _plain(stored, own, given, "ai", _OWN_OF_AI)
    calls = [_call(call) for call in stored.get("tool_calls", ())]
    invalid = [_invalid_call(call) for call in own.get("invalid_tool_calls", ())]
    usage = own.get("usage_metadata")
    if fields is None or None in calls or None in invalid or "tool_calls" in fields["additional_kwargs"]:
        return None
    if usage is not None:
        usage = _usage(usage)
        if usage is None:
            return None
    if calls:
        given.add("tool_calls")
    fields["tool_calls"], fields["invalid_tool_calls"], fields["usage_metadata"] = calls, invalid, usage
    return fields


def _call(call: Any) -> _Fields | None:
    if type(call) is ToolCall:
        call = {**call.__dict__, **(call.__pydantic_extra__ or {})}
    if type(call) is not dict or not call.keys() <= _CALL.keys():
        return None
    whole = {**_CALL, **call}
    args = whole["args"]
    if type(whole["name"]) is not str or type(whole["id"]) not in _TEXT_OR_NONE or not _is_object(args):
        return None
    whole["args"] = args.copy()
    return whole


def _invalid_call(call: Any) -> _Fields | None:
    if not _is_object(call) or not call.keys() <= _INVALID_CALL.keys():
        return None
    whole = {**_INVALID_CALL, **call}
    return (
        whole if whole["type"] == "invalid_tool_call" and _TEXT_OR_NONE.issuperset(map(type, call.values())) else None
    )


def _usage(usage: Any) -> _Fields | None:
    if not _is_object(usage) or not (_TOKENS <= usage.keys() <= _USAGE):
        return None
    whole: _Fields = {}
    for name, count in usage.items():
        if name in _TOKENS:
            if type(count) is not int:
                return None
            whole[name] = count
        elif not _is_object(count) or not count.keys() <= _TOKEN_DETAILS[name] or not _counts(count):
            return None
        else:
            whole[name] = count.copy()
    return whole


def _counts(values: Mapping[str, Any]) -> bool:
    return _INT.issuperset(map(type, values.values()))


def _is_object(value: Any) -> bool:
    return type(value) is dict and _TEXT.issuperset(map(type, value))


# --- does this release of langchain-core make the same?

_Build: TypeAlias = Callable[[_Fields, _Fields, set[str]], "_Fields | None"]

_ALL: Final[dict[str, tuple[type[BaseMessage], _Build]]] = {
    "user": (HumanMessage, _human),
    "assistant": (AIMessage, _ai),
    "system": (SystemMessage, _system),
    "tool": (ToolMessage, _tool),
}
_OWN_SAMPLE: Final[_Fields] = {"additional_kwargs": {"a": 1}, "response_metadata": {"b": [2]}}
_SAMPLES: Final[dict[type[BaseMessage], tuple[_Fields, ...]]] = {
    HumanMessage: ({},),
    SystemMessage: ({},),
    ToolMessage: ({"tool_call_id": "c"}, {"tool_call_id": "", "artifact": [1], "status": "error"}),
    AIMessage: (
        {},
        {
            "tool_calls": [{"name": "n", "args": {"x": 1}, "id": "i"}, {"name": "", "args": {}, "id": None}],
            "invalid_tool_calls": [{"name": "n", "args": "{", "id": None, "error": "e"}],
            "usage_metadata": {
                "input_tokens": 1,
                "output_tokens": 2,
                "total_tokens": 3,
                **{name: dict.fromkeys(known, 1) for name, known in _TOKEN_DETAILS.items()},
            },
        },
    ),
}


def _is_same(cls: type[BaseMessage], build: _Build, fields: _Fields) -> bool:
    """Whether the class makes of these fields what is built here."""
    own = {name: value for name, value in fields.items() if name in _OWN_OF_AI | _OWN_OF_TOOL}
    stored = {name: value for name, value in fields.items() if name not in own}
    given = {"content"}
    built = build(stored, own, given)
    made = cls(**fields)
    return built is not None and _state(made) == (built, given, {}, None) and list(made.__dict__) == list(built)


def _state(message: BaseMessage) -> tuple[Any, ...]:
    return (
        message.__dict__,
        message.__pydantic_fields_set__,
        message.__pydantic_extra__,
        message.__pydantic_private__,
    )


_KINDS: Final = {
    role: (cls, build)
    for role, (cls, build) in _ALL.items()
    if all(
        _is_same(cls, build, {"content": content, **sample, **more})
        for sample in _SAMPLES[cls]
        for content in ("text", ["a", {"type": "text", "text": "b"}])
        for more in ({}, {"id": "m", "name": "n", **_OWN_SAMPLE})
    )
}
