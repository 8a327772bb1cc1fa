"""The data types of the library, versioned and independent of any framework."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from typing_extensions import Self

from langmem_adapters import views
from langmem_adapters.codec import FORMAT, decode, encode, encode_plain, is_plain, is_tagged, refuse_sealed_or_newer
from langmem_adapters.errors import SerializationError
from langmem_adapters.warn_once import warn_of_damage

_NO_DEFAULT = object()

__all__ = [
    "Content",
    "Experience",
    "Hit",
    "Memory",
    "Message",
    "MessageData",
    "Metric",
    "Occurrence",
    "Recalled",
    "Scope",
    "Score",
    "SessionInfo",
    "Summary",
    "ToolCall",
    "Trajectory",
    "salvage",
]

Content: TypeAlias = str | list[str | dict[Any, Any]]
"""Text, or content blocks: plain strings and dictionaries with a ``type`` as LangChain and OpenAI write them."""


class _StoredModel(BaseModel):
    """A stored type. Unknown fields are kept, as a newer version of the library may have written them."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="allow", ser_json_inf_nan="constants", protected_namespaces=()
    )

    _repr_pretty_ = views.print_masked

    def to_bytes(self, **overrides: Any) -> bytes:
        """Write the format version and the fields that differ from their defaults; ``overrides`` replaces some."""
        fields = self.to_data()
        if "v" in fields:
            raise SerializationError(f'{type(self).__name__} cannot have a field "v": that is the format\'s version')
        return encode({"v": FORMAT, **fields, **overrides})

    def to_data(self) -> dict[str, Any]:
        """The fields that differ from their defaults; values inside are not copied."""
        defaults = _field_defaults(type(self))
        fields = {**self.__dict__, **extra} if (extra := self.__pydantic_extra__) else self.__dict__
        data = {}
        for name, value in fields.items():
            default = defaults.get(name, _NO_DEFAULT)
            if value is not default and (type(value) is not type(default) or value != default):
                data[name] = value if type(value) is str else _to_stored(value)
        return data

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read what :meth:`to_bytes` wrote. Raises SerializationError if it cannot be read."""
        if not is_tagged(data):
            try:
                instance: Self = cls.__pydantic_validator__.validate_json(data)  # parsed and validated in one go
            except ValueError:
                pass  # the code below reports the error
            else:
                if instance.__pydantic_extra__ and instance.__pydantic_extra__.pop("v", None) == FORMAT:
                    instance.__pydantic_fields_set__.discard("v")
                    return instance
        fields = decode(data)
        if not isinstance(fields, dict):
            raise SerializationError(f"a stored {cls.__name__} is not an object")
        version = fields.pop("v", None)
        if version != FORMAT:
            number = f" {version}" if type(version) is int else ""
            raise SerializationError(f"a stored {cls.__name__} has an unknown format version{number}")
        return cls.from_data(fields)

    @classmethod
    def from_data(cls, fields: dict[str, Any]) -> Self:
        """Read what :meth:`to_data` returned. Raises SerializationError, which names the wrong fields."""
        try:
            return cls.model_validate(fields)
        except ValidationError as error:  # it quotes content, which a traceback would show
            places = [detail["loc"] for detail in error.errors(include_input=False)]
            names = dict.fromkeys(str(place[0]) for place in places if place) or ["a field's name"]
            raise SerializationError(f"a stored {cls.__name__} has wrong values in {', '.join(names)}") from None


@functools.cache
def _field_defaults(model: type[_StoredModel]) -> dict[str, Any]:
    fields = model.model_fields.items()
    return {name: field.get_default(call_default_factory=True) for name, field in fields if not field.is_required()}


def _to_stored(value: Any) -> Any:
    if isinstance(value, list) and value and isinstance(value[0], _StoredModel):
        return [_to_stored(item) for item in value]
    return value.to_data() if isinstance(value, _StoredModel) else value


class Scope(BaseModel, frozen=True, extra="forbid"):  # class arguments, so that pyright sees that it is hashable
    """The owner of a memory: a tenant, a user of the tenant, a session of the user.

    Short-term memory belongs to the session; long-term memory and experiences belong to the user, or to the tenant if
    asked. What a scope does not name is never searched: without a user, long-term memory stays inside the session.

    >>> Scope(user="ada", session="monday")
    Scope(tenant='', user='ada', session='monday')
    """

    tenant: str = ""
    user: str = ""
    session: str = ""


class ToolCall(_StoredModel):
    """A tool call that a model asked for. ``args`` is the parsed argument object."""

    id: str | None = None
    name: str = ""
    args: dict[str, Any] = Field(default_factory=dict)


class Message(_StoredModel):
    """One message of a conversation, in the terms that all frameworks share.

    ``role`` is "system", "user", "assistant" or "tool", or a host's own word. ``host`` holds, under the name of the
    framework that wrote the message, what only that framework understands, so that the message comes back equal there.

    >>> Message(role="user", content="Where is my bike?").text
    'Where is my bike?'
    """

    id: str = ""
    role: str
    content: Content = ""
    name: str | None = None
    tool_calls: list[ToolCall] = Field(default_factory=list)
    tool_call_id: str | None = None
    created_at: float | None = Field(default=None, description="Unix time in seconds.")
    metadata: dict[str, Any] = Field(default_factory=dict)
    host: dict[str, dict[str, Any]] = Field(default_factory=dict)

    @property
    def text(self) -> str:
        """The text blocks of the content, joined by line ends."""
        if isinstance(self.content, str):
            return self.content
        parts = (block if isinstance(block, str) else block.get("text") for block in self.content)
        return "\n".join(part for part in parts if isinstance(part, str))

    def _repr_html_(self) -> str:
        return views.render_safely(self, lambda: views.conversation([self], title="Message"))


class MessageData:
    """What :meth:`Message.to_data` returns, for callers that know it to be valid and plain: neither is checked again.

    >>> MessageData({"role": "user", "content": "Where is my bike?"}).message().text
    'Where is my bike?'
    """

    __slots__ = ("fields",)

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields: dict[str, Any] = fields

    @property
    def id(self) -> str:
        """The id of the message."""
        return self.fields.get("id", "")  # type: ignore[no-any-return]  # a cast costs a call

    @property
    def created_at(self) -> float | None:
        """When the message was made, in Unix seconds."""
        return self.fields.get("created_at")

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata of the message."""
        return self.fields.get("metadata", {})  # type: ignore[no-any-return]  # same

    def to_bytes(self, **overrides: Any) -> bytes:
        """Like :meth:`Message.to_bytes`."""
        return (encode_plain if is_plain(overrides) else encode)({"v": FORMAT, **self.fields, **overrides})

    def to_data(self) -> dict[str, Any]:
        """Like :meth:`Message.to_data`."""
        return self.fields

    def message(self) -> Message:
        """Validate the fields and make the message."""
        return Message.from_data(self.fields)


def salvage(data: bytes, place: str) -> Message | None:
    """Read a stored message as far as possible, so that a damaged row does not make its session unreadable.

    Damaged parts are left out, and a logged warning names the place. None, if nothing of the message can be read.
    """
    try:
        return Message.from_bytes(data)
    except SerializationError as damage:
        refuse_sealed_or_newer(data, place)
        warn_of_damage(data, f"{place} holds a damaged message: {damage}")
    try:
        fields = decode(data)
        content = fields.get("content", "")
        return Message(
            id=str(fields.get("id", "")),
            role=str(fields["role"]),
            content=content if isinstance(content, str) else encode(content).decode(),
            metadata={"damaged": True},
        )
    except (SerializationError, AttributeError, KeyError):
        return None


class Summary(_StoredModel):
    """A summary of the messages before the window. ``covers`` is the log entry id of the last message it covers."""

    text: str
    covers: str = ""
    said: str = Field(default="", description="Fingerprint of who says what in that message; empty: not known.")
    left: bool = Field(default=False, description="Whether these messages have left the history.")
    updated_at: float | None = Field(default=None, description="Unix time in seconds.")


class SessionInfo(_StoredModel):
    """One line of a list of sessions. Times are Unix times in seconds."""

    session: str
    title: str = ""
    messages: int = 0
    created_at: float | None = None
    updated_at: float | None = None
    cursor: str = Field(default="", description="A text for ``list_sessions``, to go on behind this one.")


class Hit(NamedTuple):
    """An id that a search found. ``score`` lies in [0, 1]; higher is better."""

    id: str
    score: float


class Occurrence(_StoredModel):
    """Where and when something was said."""

    session: str = ""
    message_id: str = ""
    created_at: float | None = Field(default=None, description="Unix time in seconds.")
    said: str = Field(default="", description="In which words, where they are not those of the memory.")


class Memory(_StoredModel):
    """An entry of the long-term memory: a message, and the occurrences of it and its repeats."""

    id: str = ""
    message: Message
    occurrences: list[Occurrence] = Field(default_factory=list)
    corrected: bool = Field(default=False, description="Whether it says by now something else than was said.")


class Recalled(NamedTuple):
    """A memory that a search found. ``score`` lies in [0, 1]; higher is better.

    ``signals`` holds what each signal added to the score, if the search was asked to explain.
    """

    memory: Memory
    score: float
    signals: Mapping[str, float] = MappingProxyType({})

    @property
    def text(self) -> str:
        """The text of the message."""
        return self.memory.message.text

    def __repr__(self) -> str:
        message = self.memory.message
        speaker = views.one_line(message.name or message.role)
        return f"Recalled({self.score:.2f}, {speaker}: {views.one_line(message.text)!r})"

    def _repr_html_(self) -> str:
        return views.render_safely(self, lambda: views.memories([self]))


class Score(_StoredModel):
    """How good a response was, 1 (poor) to 10 (perfect), and why."""

    val: int = Field(default=1, ge=1, le=10)
    reason: str = ""


class Metric(_StoredModel):
    """What a response cost (seconds, money, tokens of a model) and how good it was."""

    time_cost: float = 0.0
    money_cost: float = 0.0
    model: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    score: Score | None = None


class Trajectory(_StoredModel):
    """The steps that led to a response: plan, action, observation, reward."""

    plan: str = ""
    action: str = ""
    observation: str = ""
    reward: int = 0


class Experience(_StoredModel):
    """A request, the response that it got, and how good that was (MetaGPT's ``Experience``).

    ``req`` and ``resp`` are plain data, kept with their types. ``timestamp`` is Unix time in seconds.

    >>> Experience(req="the capital of France", resp="Paris", metric=Metric(score=Score(val=9))).metric.score.val
    9
    """

    req: Any = None
    resp: Any = None
    metric: Metric | None = None
    exp_type: Literal["success", "failure", "insight"] = "success"
    entry_type: Literal["Automatic", "Manual"] = "Automatic"
    tag: str = ""
    traj: Trajectory | None = None
    timestamp: float | None = None
    uuid: str = ""
    expires_at: float | None = Field(default=None, description="Unix time in seconds; None: never.")

    def _repr_html_(self) -> str:
        return views.render_safely(self, lambda: views.one_experience(self))
