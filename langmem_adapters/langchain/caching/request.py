"""Decides when two LangChain calls are one request: both have one key, whatever does not change the answer."""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from langmem_adapters.errors import SerializationError
from langmem_adapters.keys import fingerprint, to_bytes
from langmem_adapters.langchain.caching.prompt import class_of, messages_in
from langmem_adapters.providers.item_ids import without_item_ids, without_item_ids_beside
from langmem_adapters.providers.tool_calls import numbered

__all__ = ["OF_THE_CALL", "check_whole", "dumped_model", "lasting", "request_key"]

# How a call is made or watched, not what is asked.
OF_THE_CALL = frozenset(
    {
        "cache",
        "callbacks",
        "custom_get_token_ids",
        "default_request_timeout",
        "disable_streaming",
        "max_concurrent_requests",
        "max_retries",
        "metadata",
        "name",
        "rate_limiter",
        "request_timeout",
        "stream",
        "stream_chunk_timeout",
        "stream_usage",
        "streaming",
        "tags",
        "timeout",
        "timeout_seconds",
        "verbose",
    }
)
# What belongs to an earlier answer, or to a tool's, and is not sent to the model again.
_OF_THE_ANSWER = frozenset({"artifact", "id", "response_metadata", "type", "usage_metadata"})
_OF_THE_ANSWER |= {"chunk_position", "tool_call_chunks"}  # of an answer that was joined from its chunks
_CALL = ("name", "args", "id")  # what a call of a tool consists of
_MADE_UP = "lc_"
_known: dict[bytes, str] = {}  # keys by a hash of their request, as a lookup and an update need the same one
_REMEMBERED = 16_384
_CHAINED = '"use_previous_response_id": true'  # in LangChain's dump of an OpenAI model
_CONTAINED = '"reuse_last_container": true'  # in that of an Anthropic model
_KEPT = "conversation"  # the parameter that names a conversation that OpenAI keeps
_NAMED = (f"('{_KEPT}', ", f"'{_KEPT}': ")  # as LangChain writes a parameter, and a nested one
_MORE = ("extra_body", "model_kwargs")  # parameters with parameters in them
_CLASS = re.compile(r"<class '(?:(?:\w+|<locals>)\.)*(\w+)'>")
# Addresses of Python's own functions in a process: ChatGoogleGenerativeAI takes enums apart, down to these.
_ADDRESS = re.compile(r"(<function Enum\.\w+|<built-in method __new__ of type object) at 0x[0-9a-fA-F]+>")


def request_key(prompt: str, llm_string: str) -> str:
    """The key of what ``BaseCache.lookup`` is given: 32 hexadecimal digits, from which nothing can be read back.

    Ids of messages, of their parts and of tool calls, artifacts of tools, the metadata of earlier answers, the order
    of keys, timeouts, retries, streaming, callbacks and tags do not change it. Everything else does. For a model with
    ``use_previous_response_id``, so do the ids of responses, by which the provider knows what was said; with
    ``reuse_last_container``, its containers.
    """
    asked = hashlib.sha256(to_bytes(f"{len(prompt)} {prompt}{llm_string}")).digest()
    key = _known.get(asked)
    if key is None:
        try:
            key = fingerprint("langchain", _prompt(prompt), _model(llm_string), *_continued(prompt, llm_string))
        except SerializationError:  # nested deeper than data may be: the text itself is the request
            key = fingerprint("langchain", prompt, llm_string)
        if len(_known) >= _REMEMBERED:
            _known.clear()
        _known[asked] = key
    return key


def check_whole(llm_string: str) -> None:
    """Raise SerializationError for a call that goes on from messages which only the provider keeps.

    Nor would the provider, after a hit, know what had been said.
    """
    if _KEPT in llm_string and _is_kept(llm_string):  # a tool's description may speak of conversations, too
        raise SerializationError("the model's provider keeps the conversation, so its messages do not say all of it")


@functools.lru_cache(maxsize=512)
def _is_kept(llm_string: str) -> bool:
    model, parameters = _parts(llm_string)
    given = [model["kwargs"] if model else {}, parameters if isinstance(parameters, dict) else {}]
    given += [more for one in given for name in _MORE if isinstance(more := one.get(name), dict)]
    unread = isinstance(parameters, str) and any(named in parameters for named in _NAMED)
    return unread or any(one.get(_KEPT) for one in given)


def _prompt(prompt: str) -> Any:
    """Chat messages as LangChain dumps them, without what the model does not see; any other text is unchanged."""
    try:
        return numbered(list(map(_said, messages_in(prompt)))) or prompt
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return prompt


def _continued(prompt: str, llm_string: str) -> list[Any]:
    """The responses or containers that a request may continue from, if the provider keeps what was said before."""
    names = [name for mark, name in ((_CHAINED, "id"), (_CONTAINED, "container")) if mark in llm_string]
    if not names:
        return []
    told = [message["kwargs"].get("response_metadata") for message in messages_in(prompt)]
    return [data[name] for data in told if isinstance(data, dict) for name in names if data.get(name)]


def _said(message: dict[str, Any]) -> dict[str, Any]:
    """What the model sees of a dumped message. Raises almost any error for other data."""
    said = message["kwargs"]
    content, told = said.get("content"), said.get("response_metadata")
    class_ = class_of(message).removesuffix("Chunk")
    if isinstance(content, list):
        content = [_block(block, is_answered=class_ == "AIMessage") for block in without_item_ids(content)]
        if isinstance(told, dict) and told.get("output_version") == "v1":
            content = _unblocked(content, said.get("tool_calls") or [])
        said = {**said, "content": content}
    if isinstance(beside := said.get("additional_kwargs"), dict):
        said = {**said, "additional_kwargs": without_item_ids_beside(beside)}
    return {
        "class": class_,
        **{
            name: value
            for name, value in said.items()
            if name not in _OF_THE_ANSWER and (name == "content" or value not in (None, "", [], {}))
        },
    }


def _block(block: Any, *, is_answered: bool) -> Any:
    """A block of content without the id that LangChain makes up for it, a new one each time.

    A block of an answer also loses its place in the stream, by which LangChain joins chunks.
    """
    if not isinstance(block, dict):
        return block
    left_out = {"index"} if is_answered else set()
    if isinstance(id_ := block.get("id"), str) and id_.startswith(_MADE_UP):
        left_out.add("id")
    return {name: value for name, value in block.items() if name not in left_out}


def _unblocked(content: list[Any], calls: list[Any]) -> Any:
    """The text of LangChain's own blocks, if they hold only a text and the message's calls; otherwise the blocks.

    That is the form of an answer not streamed as events: a thread is the same request in either form.
    """
    blocks = list(content)
    said = blocks.pop(0) if blocks and _is_block(blocks[0], "text") else {"text": ""}
    called = [{name: block[name] for name in _CALL} for block in blocks if _is_block(block, "tool_call")]
    whole = len(called) == len(blocks) and called == [{name: call[name] for name in _CALL} for call in calls]
    return said["text"] if whole else content


def _is_block(block: Any, kind: str) -> bool:
    """Whether a block holds nothing but what the other form has, too."""
    if not isinstance(block, dict) or block.get("type") != kind:
        return False
    own = {"text"} if kind == "text" else set(_CALL)
    return own == {name for name, value in block.items() if name in own or (value and name not in {"type", "index"})}


@functools.lru_cache(maxsize=512)
def _model(llm_string: str) -> str:
    """The fingerprint of a model and its parameters."""
    return fingerprint(*(part for part in _parts(llm_string) if part is not None))


def _parts(llm_string: str) -> tuple[dict[str, Any] | None, Any]:
    """The model as LangChain dumps it, or None, and the parameters; both without how the call is made or watched."""
    model, end = dumped_model(llm_string)
    if isinstance(model, dict) and isinstance(model.get("kwargs"), dict):
        settings = lasting(model["kwargs"]).items()
        model = {**model, "kwargs": {name: value for name, value in settings if not _is_secret(value)}}
        if "name" in model and isinstance(id_ := model.get("id"), list) and id_:
            model["name"] = id_[-1]  # the class name, as for a model that was given no name
        return model, _parameters(llm_string[end:].removeprefix("---"))
    return None, _parameters(llm_string)


def dumped_model(llm_string: str) -> tuple[Any, int]:
    """What LangChain has dumped before the parameters, and where that ends; None and 0 if it dumped nothing."""
    try:
        return json.JSONDecoder().raw_decode(llm_string)
    except ValueError:
        return None, 0


def _is_secret(value: Any) -> bool:
    """Whether LangChain dumps only that a secret exists: a session with AWS may have two, three or none."""
    return isinstance(value, dict) and value.get("lc") == 1 and value.get("type") == "secret"


def lasting(parameters: Mapping[Any, Any]) -> dict[Any, Any]:
    """Parameters, without those that say how a call is made or watched."""
    return {name: value for name, value in parameters.items() if name not in OF_THE_CALL}


def _parameters(text: str) -> Any:
    """``str(sorted(params.items()))`` parsed back, if it is made of literals; otherwise the text.

    A class counts by its name alone if the schema made from it stands beside it: the same script run as
    ``__main__`` and imported as a module then has the same requests.
    """
    if "<" in text:
        text = _ADDRESS.sub(r"\1>", text)
    if "ls_structured_output_format" in text:
        text = _CLASS.sub(r"'class \1'", text)
    try:
        pairs = ast.literal_eval(text)
        return lasting(dict(pairs))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text
