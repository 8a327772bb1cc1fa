"""Responses of LlamaIndex models as plain data and back, and as the pieces of a stream and back."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, TypeAlias, TypeVar, cast

from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    CompletionResponse,
    ContentBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from pydantic.fields import FieldInfo

from langmem_adapters.codec import decode, encode, to_plain
from langmem_adapters.errors import SerializationError
from langmem_adapters.experience.model_answers import split_words
from langmem_adapters.llamaindex.convert import from_message, to_message
from langmem_adapters.model import Message
from langmem_adapters.providers.content import without_thoughts
from langmem_adapters.providers.finish_reasons import ending_of
from langmem_adapters.providers.item_ids import without_thought_ids
from langmem_adapters.providers.tool_calls import are_complete, with_new_call_ids
from langmem_adapters.providers.usage import usage_of, with_zero_usage
from langmem_adapters.sharing import independent_copy

Response: TypeAlias = ChatResponse | CompletionResponse
R = TypeVar("R", bound=Response)

_STREAM_KWARGS = ("usage", "thinking_delta")  # not stored here: usage is stored beside it, the other is of one piece


def worth_storing(response: Response) -> bool:
    """Whether a response is whole: neither cut off, filtered, refused, nor empty, and its calls have all arguments."""
    ending = ending_of(response)
    if isinstance(response, CompletionResponse):
        return bool(without_thoughts(response.text)) and not (ending.cut or ending.calls)
    blocks, kwargs = response.message.blocks, response.message.additional_kwargs
    arguments = [call.tool_kwargs for call in blocks if isinstance(call, ToolCallBlock)]
    has_call = bool(arguments or kwargs.get("tool_calls"))
    is_cut = ending.cut or (ending.calls and not has_call)
    has_all_arguments = all(are_complete(args) for args in arguments if isinstance(args, str))
    # Of an answer in audio, a model would be shown only the id, which OpenAI soon forgets.
    is_kept_by_openai = "reference_audio_id" in kwargs
    has_content = has_call or any(map(_is_content, blocks))
    return has_content and has_all_arguments and not (is_cut or is_kept_by_openai)


def reached_limit(response: Response, limit: Any) -> bool:
    """Whether a response took all tokens it was allowed: streams of BedrockConverse do not tell that they were cut."""
    usage = usage_of(response)
    return type(limit) is int and usage is not None and usage["output_tokens"] >= limit > 0


def _is_content(block: ContentBlock) -> bool:
    """Whether it is text, and not an empty one, or anything but a thought."""
    return bool(without_thoughts(block.text)) if isinstance(block, TextBlock) else not isinstance(block, ThinkingBlock)


def write_response(response: Response) -> dict[str, Any]:
    """Turn a response into plain data. Raises SerializationError for one that would not come back equal.

    ``raw``, what the provider sent beside it, is not kept, except for the usage.
    """
    kwargs = {name: value for name, value in response.additional_kwargs.items() if name not in _STREAM_KWARGS}
    data: dict[str, Any] = {"kwargs": kwargs, "usage": usage_of(response)}
    own_fields = _own_fields(response)
    if own_fields and not any(field.is_required() for field in own_fields.values()):
        data["class"] = [type(response).__module__, type(response).__name__]
    if response.logprobs is not None:
        data["logprobs"] = [[token.model_dump() for token in candidates] for candidates in response.logprobs]
    if isinstance(response, CompletionResponse):
        data["text"] = response.text
        is_equal = True
    else:
        data["message"] = to_message(response.message).to_data()
        is_equal = _read_message(data["message"]) == _without_objects(response.message)
    if not is_equal or any(getattr(response, name) for name in own_fields) or decode(encode(data))["kwargs"] != kwargs:
        raise SerializationError("a response of a model would not come back equal")
    return data


def _own_fields(response: Response) -> dict[str, FieldInfo]:
    """The additional fields of a provider's own class of responses, such as citations."""
    common = {*ChatResponse.model_fields, *CompletionResponse.model_fields}
    return {name: field for name, field in type(response).model_fields.items() if name not in common}


def _without_objects(message: ChatMessage) -> ChatMessage:
    """A message whose tool calls are plain data, if they are the provider's own objects.

    OpenAI's and Mistral's models give such objects beside blocks, and read the blocks. LiteLLM's gives only the
    objects, and reads them as dictionaries, which they are in its streams.
    """
    calls = message.additional_kwargs.get("tool_calls")
    if not isinstance(calls, list):
        return message
    in_blocks = any(isinstance(block, ToolCallBlock) for block in message.blocks)
    if not (in_blocks or all(hasattr(call, "__getitem__") for call in calls)):
        return message
    return message.model_copy(
        update={"additional_kwargs": {**message.additional_kwargs, "tool_calls": to_plain(calls)}}
    )


def read_response(data: Any, *, age: float, new_id: Callable[[], str]) -> Response:
    """Make a new response of stored data, with tool call ids of its own, no usage, and marked as a hit.

    Raises SerializationError for anything that :func:`write_response` did not write.
    """
    try:
        kwargs = with_zero_usage(data["kwargs"]) | {"cache": "hit", "cache_age": age, "cache_usage": data["usage"]}
        fields: dict[str, Any] = {"additional_kwargs": kwargs, "logprobs": data.get("logprobs")}
        fields["raw"] = {"usage": dict.fromkeys(("prompt_tokens", "completion_tokens", "total_tokens"), 0)}
        if "text" in data:
            return _response_class(data, CompletionResponse)(text=data["text"], **fields)
        message = _read_message(without_thought_ids(with_new_call_ids(data["message"], new_id)))
        if "usage" in message.additional_kwargs:  # Anthropic's streams put it here, where keys ignore it
            message.additional_kwargs |= with_zero_usage({"usage": message.additional_kwargs["usage"]})
        return _response_class(data, ChatResponse)(message=message, **fields)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise SerializationError(f"a stored response cannot be read: {type(error).__name__}") from error


def _response_class(data: Mapping[str, Any], default: type[R]) -> type[R]:
    """The provider's own class of a stored response, whose fields are empty, but which its code reads.

    Only classes that this process already has are looked at: nothing is imported because a store names it.
    """
    pending = deque([default])
    while pending:
        cls = pending.popleft()
        if [cls.__module__, cls.__name__] == data.get("class"):
            return cls
        pending.extend(cast("list[type[R]]", cls.__subclasses__()))
    return default


def _read_message(data: dict[str, Any]) -> ChatMessage:
    return from_message(Message.from_data(data))


def pieces(response: Any) -> Iterator[Any]:
    """Responses as a stream gives them: each has all so far, and in its delta what is new; thoughts come first."""
    thoughts: list[ContentBlock] = []
    if isinstance(response, ChatResponse):
        for thought in response.message.blocks:
            if isinstance(thought, ThinkingBlock) and thought.content:
                for so_far, word in _growing_texts(split_words(thought.content)):
                    blocks = [*thoughts, ThinkingBlock(content=so_far), TextBlock(text="")]
                    yield _piece(response, blocks, delta="", additional_kwargs={"thinking_delta": word})
                thoughts.append(thought)
    words = split_words(_text(response))
    for so_far, word in _growing_texts(words[:-1]):
        if isinstance(response, CompletionResponse):
            yield type(response)(text=so_far, delta=word)
        else:
            yield _piece(response, [*thoughts, TextBlock(text=so_far)], delta=word)
    yield response.model_copy(update={"delta": words[-1]})


def _growing_texts(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    return zip(accumulate(words), words, strict=True)


def _piece(response: ChatResponse, blocks: list[ContentBlock], **fields: Any) -> ChatResponse:
    return type(response)(message=ChatMessage(role=response.message.role, blocks=blocks), **fields)


def _independent_copy(response: Any) -> Any:
    """A copy of a response that its reader cannot change."""
    update = {"additional_kwargs": independent_copy(response.additional_kwargs)}
    if isinstance(response, ChatResponse):
        message = response.message
        blocks = [block.model_copy(update=independent_copy(dict(block))) for block in message.blocks]
        kwargs = independent_copy(message.additional_kwargs)
        update["message"] = message.model_copy(update={"blocks": blocks, "additional_kwargs": kwargs})
    return response.model_copy(update=update)


class Recording:
    """Records what a stream adds up to, while it is read."""

    def __init__(self) -> None:
        self._text = ""
        self._last: Any = None
        self._cut_raw: Any = None
        self._last_flags: set[bool] = set()

    def take(self, response: Any) -> None:
        """Record the next piece."""
        self._text += response.delta or ""
        self._last = _independent_copy(response)
        ending = ending_of(response)
        if ending.cut:  # a last piece with nothing but the usage does not repeat it
            self._cut_raw = response.raw
        self._last_flags |= ending.last_flags

    def answer(self) -> Any:
        """The last response, with the text of all deltas, and with what was told of a cut; None if nothing came.

        It was also cut if its pieces have a field for the reason why it ends, and none has a reason. It has no
        logprobs, as those of a piece are not those of the whole.
        """
        if self._last is None:
            return None
        update = {} if self._cut_raw is None else {"raw": self._cut_raw}
        if self._last_flags == {False}:
            update = {"raw": {"status": "incomplete"}}
        return _with_text(self._last.model_copy(update={"delta": None, "logprobs": None, **update}), self._text)


def _with_text(last: Any, text: str) -> Any:
    if not text or text == _text(last):
        return last
    if isinstance(last, CompletionResponse):
        return last.model_copy(update={"text": text})
    blocks = last.message.blocks
    texts = [block for block in blocks if isinstance(block, TextBlock)]
    position = blocks.index(texts[0]) if texts else 0  # several that do not add up to it: Mistral's has all pieces
    others = [block for block in blocks[position:] if not isinstance(block, TextBlock)]
    blocks = [*blocks[:position], TextBlock(text=text), *others]
    return last.model_copy(update={"message": last.message.model_copy(update={"blocks": blocks})})


def _text(response: Response) -> str:
    """The text as a stream's deltas add up to it: ``content`` would have a line break between two blocks."""
    if isinstance(response, CompletionResponse):
        return response.text
    return "".join(block.text for block in response.message.blocks if isinstance(block, TextBlock))
