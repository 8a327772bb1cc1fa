"""Decides when two LangChain calls are one request: both have one key, whatever does not change the answer."""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from langchain_core.messages import BaseMessage

from langmem_adapters.errors import SerializationError
from langmem_adapters.keys import fingerprint, to_bytes
from langmem_adapters.langchain.caching.prompt import class_name, dumped_messages
from langmem_adapters.providers.item_ids import kwargs_without_item_ids, without_item_ids
from langmem_adapters.providers.tool_calls import with_numbered_calls

# How a call is made or watched, not what is asked.
CALL_SETTINGS = frozenset(
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
_ANSWER_METADATA = frozenset({"artifact", "id", "response_metadata", "type", "usage_metadata"})
_ANSWER_METADATA |= {"chunk_position", "tool_call_chunks"}  # of an answer that was joined from its chunks
_MANY_MESSAGES = 100  # LangChain takes some 3 ms to write them down, and a hop to a worker thread 0.1 ms
_SMALL_BLOCKS = frozenset({"reasoning", "text", "thinking", "tool_call", "tool_use"})
_EMPTY_VALUES: tuple[Any, ...] = (None, "", [], {})
_CALL_KEYS = ("name", "args", "id")  # what a call of a tool consists of
_call_fields = itemgetter(*_CALL_KEYS)
_GENERATED_ID_PREFIX = "lc_"
_key_of_digest: dict[bytes, str] = {}  # keys by a hash of their request, as a lookup and an update need the same one
_MAX_KEYS = 16_384
_PREVIOUS_RESPONSE_MARK = '"use_previous_response_id": true'  # in LangChain's dump of an OpenAI model
_CONTAINER_MARK = '"reuse_last_container": true'  # in that of an Anthropic model
_CONVERSATION = "conversation"  # the parameter that names a conversation that OpenAI keeps
_CONVERSATION_MARKS = (f"('{_CONVERSATION}', ", f"'{_CONVERSATION}': ")  # a parameter as LangChain writes it, or nested
_NESTED_PARAMETERS = ("extra_body", "model_kwargs")  # parameters with parameters in them
_CLASS_PATTERN = re.compile(r"<class '(?:(?:\w+|<locals>)\.)*(\w+)'>")
_OBJECT_TYPE = "not_implemented"  # what LangChain dumps only as its repr()
_OBJECT_MARK = f'"{_OBJECT_TYPE}"'  # in a dump; in a text of the user its quotes would be escaped
# What is quoted; a quotation that is never closed is read once, and stays.
_QUOTED_PATTERN = re.compile(r"""(?s)'(?:[^'\\]|\\.)*(?:'|(\\?\Z))|"(?:[^"\\]|\\.)*(?:"|(\\?\Z))""")
# An address, which another object has tomorrow, or what NumPy, pandas and PyTorch write for numbers left out.
_PARTIAL_PATTERN = re.compile(r" at 0x[0-9a-fA-F]+|\.\.\.")
# Addresses of Python's own functions in a process: ChatGoogleGenerativeAI takes enums apart, down to these.
_ADDRESS_PATTERN = re.compile(r"(<function Enum\.\w+|<built-in method __new__ of type object) at 0x[0-9a-fA-F]+>")


def takes_a_while(messages: Sequence[BaseMessage]) -> bool:
    """Whether an event loop should not make the key: of many messages, or of a medium, which may be large."""
    contents = (message.content for message in messages if isinstance(message.content, list))
    blocks = (block for content in contents for block in content if isinstance(block, dict))
    return len(messages) >= _MANY_MESSAGES or any(block.get("type") not in _SMALL_BLOCKS for block in blocks)


def request_key(prompt: str, llm_string: str) -> str:
    """The key of what ``BaseCache.lookup`` is given: 32 hexadecimal digits, from which nothing can be read back.

    Ids of messages, of their parts and of tool calls, artifacts of tools, the metadata of earlier answers, the order
    of keys, timeouts, retries, streaming, callbacks and tags do not change it. Everything else does. For a model with
    ``use_previous_response_id``, so do the ids of responses, by which the provider knows what was said; with
    ``reuse_last_container``, its containers; of an answer with more than text and tool calls, its provider, and whether
    it is in LangChain's own blocks.
    """
    digest = hashlib.sha256(to_bytes(f"{len(prompt)} {prompt}{llm_string}")).digest()
    key = _key_of_digest.get(digest)
    if key is None:
        try:
            ids = _continued_ids(prompt, llm_string)
            key = fingerprint("langchain", _visible_prompt(prompt), _model_fingerprint(llm_string), *ids)
        except SerializationError:  # nested deeper than data may be: the text itself is the request
            key = fingerprint("langchain", prompt, llm_string)
        if len(_key_of_digest) >= _MAX_KEYS:
            _key_of_digest.clear()
        _key_of_digest[digest] = key
    return key


def check_self_contained(prompt: str, llm_string: str) -> None:
    """Raise SerializationError for a call that its texts do not tell from another.

    It has an object in a message of which LangChain's dump does not tell all, or goes on from messages which only the
    provider keeps; nor would the provider, after a hit, know what had been said.
    """
    if _OBJECT_MARK in prompt:
        _check_objects(prompt)
    # A tool's description may speak of conversations, too.
    if _CONVERSATION in llm_string and _continues_conversation(llm_string):
        raise SerializationError("the model's provider keeps the conversation, so its messages do not say all of it")


def _check_objects(prompt: str) -> None:
    values = [_visible_prompt(prompt)]
    while values:
        value = values.pop()
        if isinstance(value, list):
            values += value
        elif isinstance(value, dict):
            told = _QUOTED_PATTERN.sub(lambda part: part[0] if part.lastindex else "", str(value.get("repr")))
            if value.get("type") == _OBJECT_TYPE and _PARTIAL_PATTERN.search(told):
                kind = ".".join(map(str, value.get("id") or ["object"]))
                raise SerializationError(f"a message holds a {kind}, of which LangChain does not tell a cache all")
            values += value.values()


@functools.lru_cache(maxsize=512)
def _continues_conversation(llm_string: str) -> bool:
    model, parameters = _request_parts(llm_string)
    if isinstance(parameters, str) and any(mark in parameters for mark in _CONVERSATION_MARKS):
        return True
    outer = [model["kwargs"] if model else {}, parameters if isinstance(parameters, dict) else {}]
    nested = [part.get(name) for part in outer for name in _NESTED_PARAMETERS]
    return any(part.get(_CONVERSATION) for part in [*outer, *nested] if isinstance(part, dict))


def _visible_prompt(prompt: str) -> Any:
    """Chat messages as LangChain dumps them, without what the model does not see; any other text is unchanged."""
    try:
        return with_numbered_calls(list(map(_visible_message, dumped_messages(prompt)))) or prompt
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return prompt


def _continued_ids(prompt: str, llm_string: str) -> list[Any]:
    """The responses or containers that a request may continue from, if the provider keeps what was said before."""
    names = []
    if _PREVIOUS_RESPONSE_MARK in llm_string:
        names.append("id")
    if _CONTAINER_MARK in llm_string:
        names.append("container")
    if not names:
        return []
    metadata = [message["kwargs"].get("response_metadata") for message in dumped_messages(prompt)]
    return [data[name] for data in metadata if isinstance(data, dict) for name in names if data.get(name)]


def _visible_message(message: dict[str, Any]) -> dict[str, Any]:
    """What the model sees of a dumped message. Raises almost any error for other data."""
    fields = message["kwargs"]
    content, metadata = fields.get("content"), fields.get("response_metadata")
    class_, metadata = class_name(message), metadata if isinstance(metadata, dict) else {}
    is_v1 = metadata.get("output_version") == "v1"
    if isinstance(content, list):
        content = [_visible_block(block, is_answered=class_ == "AIMessage") for block in without_item_ids(content)]
        if is_v1:
            content = _plain_content(content, fields.get("tool_calls") or [])
            is_v1 = isinstance(content, list)
        fields = {**fields, "content": content}
    if isinstance(extra := fields.get("additional_kwargs"), dict):
        fields = {**fields, "additional_kwargs": kwargs_without_item_ids(extra)}
    visible = {
        name: value
        for name, value in fields.items()
        if name not in _ANSWER_METADATA and (name == "content" or value not in _EMPTY_VALUES)
    }
    return {"class": class_, **(_author(fields, metadata, is_v1=is_v1) if metadata else {}), **visible}


def _author(fields: Mapping[str, Any], metadata: Mapping[str, Any], *, is_v1: bool) -> dict[str, Any]:
    """Who wrote an answer with more in it than text and calls, if that is told, and if it is in LangChain's own blocks.

    Models are sent the thoughts of their own maker, and not those of others; Bedrock has models of several makers.
    """
    content, extra = fields.get("content"), fields.get("additional_kwargs")
    has_blocks = isinstance(content, list) and not all(map(_is_text_or_call, content))
    has_extra = isinstance(extra, dict) and any(value not in _EMPTY_VALUES for value in extra.values())
    provider = metadata.get("model_provider") if is_v1 or has_blocks or has_extra else None
    model = metadata.get("model_name") if str(provider).startswith("bedrock") else None
    return {"author": [provider, model, is_v1]} if is_v1 or provider else {}


def _is_text_or_call(block: Any) -> bool:
    is_call = isinstance(block, dict) and block.get("type") == "tool_use"  # Anthropic's, beside LangChain's own call
    return isinstance(block, str) or is_call or _is_plain_block(block, "text")


def _visible_block(block: Any, *, is_answered: bool) -> Any:
    """A block of content without the id that LangChain makes up for it, a new one each time.

    A block of an answer also loses its place in the stream, by which LangChain joins chunks.
    """
    if not isinstance(block, dict):
        return block
    omitted = {"index"} if is_answered else set()
    if isinstance(id_ := block.get("id"), str) and id_.startswith(_GENERATED_ID_PREFIX):
        omitted.add("id")
    return {name: value for name, value in block.items() if name not in omitted}


def _plain_content(content: list[Any], calls: list[Any]) -> Any:
    """The text of LangChain's own blocks, if they hold only a text and the message's calls; otherwise the blocks.

    That is the form of an answer not streamed as events: a thread is the same request in either form.
    """
    blocks = list(content)
    text_block = blocks.pop(0) if blocks and _is_plain_block(blocks[0], "text") else {"text": ""}
    block_calls = [_call_fields(block) for block in blocks if _is_plain_block(block, "tool_call")]
    is_equivalent = len(block_calls) == len(blocks) and block_calls == list(map(_call_fields, calls))
    return text_block["text"] if is_equivalent else content


def _is_plain_block(block: Any, kind: str) -> bool:
    """Whether a block holds nothing but what the other form has, too."""
    if not isinstance(block, dict) or block.get("type") != kind:
        return False
    keys = {"text"} if kind == "text" else set(_CALL_KEYS)
    others = block.keys() - keys - {"type", "index"}
    return keys <= block.keys() and not any(block[name] for name in others)


@functools.lru_cache(maxsize=512)
def _model_fingerprint(llm_string: str) -> str:
    return fingerprint(*(part for part in _request_parts(llm_string) if part is not None))


def _request_parts(llm_string: str) -> tuple[dict[str, Any] | None, Any]:
    """The model as LangChain dumps it, or None, and the parameters; both without how the call is made or watched."""
    model, end = dumped_model(llm_string)
    if isinstance(model, dict) and isinstance(model.get("kwargs"), dict):
        settings = without_call_settings(model["kwargs"]).items()
        model = {**model, "kwargs": {name: value for name, value in settings if not _is_secret(value)}}
        if "name" in model and isinstance(id_ := model.get("id"), list) and id_:
            model["name"] = id_[-1]  # the class name, as for a model that was given no name
        return model, _parse_parameters(llm_string[end:].removeprefix("---"))
    return None, _parse_parameters(llm_string)


def dumped_model(llm_string: str) -> tuple[Any, int]:
    """What LangChain has dumped before the parameters, and where that ends; None and 0 if it dumped nothing."""
    try:
        return json.JSONDecoder().raw_decode(llm_string)
    except ValueError:
        return None, 0


def _is_secret(value: Any) -> bool:
    """Whether LangChain dumps only that a secret exists: a session with AWS may have two, three or none."""
    return isinstance(value, dict) and value.get("lc") == 1 and value.get("type") == "secret"


def without_call_settings(parameters: Mapping[Any, Any]) -> dict[Any, Any]:
    """Parameters, without those that say how a call is made or watched."""
    return {name: value for name, value in parameters.items() if name not in CALL_SETTINGS}


def _parse_parameters(text: str) -> Any:
    """``str(sorted(params.items()))`` parsed back, if it is made of literals; otherwise the text.

    A class counts by its name alone if the schema made from it stands beside it: the same script run as
    ``__main__`` and imported as a module then has the same requests.
    """
    if "<" in text:
        text = _ADDRESS_PATTERN.sub(r"\1>", text)
    if "ls_structured_output_format" in text:
        text = _CLASS_PATTERN.sub(r"'class \1'", text)
    try:
        pairs = ast.literal_eval(text)
        parameters = dict(pairs)
        # One may have a name under which something was added to the text.
        return without_call_settings(parameters) if len(parameters) == len(pairs) else text
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text
