"""Responses of LlamaIndex models as plain data, and back; in the pieces of a stream, and whole again."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from llama_index.core.base.llms.types import ChatMessage, ChatResponse, CompletionResponse, TextBlock

from langmem_adapters.codec import plain
from langmem_adapters.errors import SerializationError
from langmem_adapters.llamaindex.convert import from_message, to_message
from langmem_adapters.model import Message
from langmem_adapters.text import replaced

__all__ = ["Response", "copied", "pieces", "read_response", "usage_of", "whole", "worth_storing", "write_response"]

Response: TypeAlias = ChatResponse | CompletionResponse

_WORD = re.compile(r"\S+\s*|\s+")
# As providers say that an answer was cut off or held back.
_SPOILED = frozenset(
    {"length", "max_tokens", "model_length", "content_filter", "safety", "recitation", "error", "refusal"}
    | {"blocklist", "prohibited_content", "spii", "guardrail_intervened", "error_toxic", "load"}
)
_REASONS = ("finish_reason", "stop_reason", "done_reason", "stopReason")
_IN = ("input_tokens", "prompt_tokens", "prompt_token_count", "prompt_eval_count")
_OUT = ("output_tokens", "completion_tokens", "candidates_token_count", "eval_count")
_TOTAL = ("total_tokens", "total_token_count")


def worth_storing(response: Response) -> bool:
    """Whether a response is whole: neither cut off, filtered, nor empty."""
    told: list[Mapping[str, Any]] = []
    if isinstance(response, ChatResponse):
        told = [response.message.additional_kwargs]
        empty = not any(not isinstance(block, TextBlock) or block.text for block in response.message.blocks)
        empty = empty and not response.message.additional_kwargs.get("tool_calls")
    else:
        empty = not response.text
    told += [response.additional_kwargs, _fields(response.raw), *map(_fields, _choices(response.raw))]
    reasons = (str(getattr(said.get(name), "name", said.get(name)) or "") for said in told for name in _REASONS)
    return not empty and not any(reason.lower() in _SPOILED for reason in reasons)


def usage_of(response: Response) -> dict[str, int] | None:
    """The tokens that a response took, as far as it tells: in, out, together."""
    raw = _fields(response.raw)
    for told in (_fields(raw.get("usage")), _fields(raw.get("usage_metadata")), response.additional_kwargs, raw):
        used_in, used_out = _number(told, _IN), _number(told, _OUT)
        if used_in or used_out:
            return {"input_tokens": used_in, "output_tokens": used_out, "total_tokens": used_in + used_out}
    return None


def _fields(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else getattr(value, "__dict__", None) or {}


def _choices(raw: Any) -> Sequence[Any]:
    choices = _fields(raw).get("choices") or _fields(raw).get("candidates") or ()
    return choices if isinstance(choices, list | tuple) else ()


def _number(told: Mapping[str, Any], names: Sequence[str]) -> int:
    return next((value for name in names if type(value := told.get(name)) is int), 0)


def write_response(response: Response) -> dict[str, Any]:
    """Turn a response into plain data. Raises SerializationError for one that would not come back equal.

    What the provider sent beside it, ``raw``, is not kept, except for the usage.
    """
    data: dict[str, Any] = {"kwargs": dict(response.additional_kwargs), "usage": usage_of(response)}
    if isinstance(response, CompletionResponse):
        data["text"] = response.text
    else:
        data["message"] = to_message(response.message).to_data()
        if _message(data) != response.message:
            raise SerializationError("a response of a model would not come back equal")
    plain(data)  # raises for what is no data
    return data


def read_response(data: Any, *, age: float, new_id: Callable[[], str]) -> Response:
    """Make a new response of stored data, with tool calls of its own, no usage, and marked as a hit.

    Raises SerializationError for anything that :func:`write_response` did not write.
    """
    try:
        kwargs = {name: 0 if name in {*_IN, *_OUT, *_TOTAL} else value for name, value in data["kwargs"].items()}
        kwargs |= {"cache": "hit", "cache_age": age, "cache_usage": data["usage"]}
        free = dict.fromkeys(("prompt_tokens", "completion_tokens", "total_tokens"), 0)
        if "text" in data:
            return CompletionResponse(text=data["text"], additional_kwargs=kwargs, raw={"usage": free})
        calls = [call["id"] for call in data["message"].get("tool_calls", ()) if call.get("id")]
        message = _message(replaced(data, {id_: f"call_{new_id()}" for id_ in calls}) if calls else data)
        return ChatResponse(message=message, additional_kwargs=kwargs, raw={"usage": free})
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise SerializationError(f"a stored response cannot be read: {type(error).__name__}") from error


def _message(data: Mapping[str, Any]) -> ChatMessage:
    return from_message(Message.from_data(data["message"]))


def pieces(response: Any) -> Iterator[Any]:
    """Responses as a stream gives them: each has all that came so far, and by its delta what is new."""
    text = _text(response)
    words = _WORD.findall(text) or [""]
    so_far = ""
    for word in words[:-1]:
        so_far += word
        if isinstance(response, CompletionResponse):
            yield CompletionResponse(text=so_far, delta=word)
        else:
            yield ChatResponse(message=ChatMessage(role=response.message.role, content=so_far), delta=word)
    yield response.model_copy(update={"delta": words[-1]})


def copied(response: Any) -> Any:
    """A response as it is now, whatever its reader does to it."""
    if isinstance(response, CompletionResponse):
        return response.model_copy()
    message = response.message
    same = message.model_copy(update={"blocks": [block.model_copy() for block in message.blocks]})
    return response.model_copy(update={"message": same})


def whole(last: Any, text: str) -> Any:
    """The response that a stream comes to: its last one, with the text of all deltas."""
    last = last.model_copy(update={"delta": None})
    if not text or text == _text(last):
        return last
    if isinstance(last, CompletionResponse):
        return last.model_copy(update={"text": text})
    blocks = last.message.blocks
    texts = [n for n, block in enumerate(blocks) if isinstance(block, TextBlock)]
    if len(texts) > 1:
        return last
    place = texts[0] if texts else 0
    blocks = [*blocks[:place], TextBlock(text=text), *blocks[place + len(texts) :]]
    return last.model_copy(update={"message": last.message.model_copy(update={"blocks": blocks})})


def _text(response: Response) -> str:
    return response.text if isinstance(response, CompletionResponse) else response.message.content or ""
