"""Rows about messages as bytes: everything between a LangChain message and its store, without the store."""

from __future__ import annotations

import importlib
import itertools
import json
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from langchain_core.messages import messages_from_dict, messages_to_dict

from langmem_adapters.keys import Namespace
from langmem_adapters.langchain import BrainChatMessageHistory
from langmem_adapters.protocols import Appended, Item, Page
from langmem_adapters.stores.memory import MemoryStore
from tests.benchmarks.bench import Bench
from tests.benchmarks.goals import faster, within
from tests.benchmarks.harness import Case, Line, Row
from tests.benchmarks.payloads import as_bytes, conversation

__all__ = ["ROWS"]

_MESSAGES = 1000  # of one call, so that what a call costs beside its messages does not count


class _Instant(MemoryStore):
    """Forgets what it is given, and always reads the same."""

    def __init__(self, data: Sequence[bytes] = ()) -> None:
        super().__init__()
        self._page = Page([Item(n + 1, str(n), item) for n, item in enumerate(data)], len(data), {})

    def append(
        self,
        namespace: Namespace,  # noqa: ARG002 - as the protocol has it
        entries: Sequence[tuple[str, bytes]],
        *,
        put: object = None,  # noqa: ARG002
        keys: Sequence[str] = (),  # noqa: ARG002
        ttl: float | None = None,  # noqa: ARG002
    ) -> Appended:
        return Appended([True] * len(entries), len(entries), {})

    def scan(self, namespace: Namespace, **_: Any) -> Page:  # noqa: ARG002
        return self._page


def _write(bench: Bench) -> Iterator[Line]:
    messages = conversation(_MESSAGES)
    orjson: Any = importlib.import_module("orjson")
    plain = [json.loads(data) for data in as_bytes(messages)]
    history = BrainChatMessageHistory("s", store=_Instant())
    # new ids each time, as a message that is written twice would be known
    case = Case(
        lambda _: [orjson.dumps(fields) for fields in plain],
        history.add_messages,
        {"messages_to_dict": partial(_dumped)} if bench.peers else {},
        given=partial(next, (conversation(_MESSAGES, n) for n in itertools.count(0, _MESSAGES))),
        items=_MESSAGES,
    )
    yield bench.line("a message", case)


def _dumped(messages: Any) -> object:
    return [json.dumps(fields) for fields in messages_to_dict(messages)]


def _read(bench: Bench) -> Iterator[Line]:
    messages = conversation(_MESSAGES)
    data = as_bytes(messages)
    orjson: Any = importlib.import_module("orjson")
    history = BrainChatMessageHistory("s", store=_Instant(data))
    dumped = _dumped(messages)
    assert history.messages == messages
    case = Case(
        lambda _: [orjson.loads(item) for item in data],
        lambda _: history.messages,
        {"messages_from_dict": lambda _: _loaded(dumped)} if bench.peers else {},
        items=_MESSAGES,
    )
    yield bench.line("a message", case)


def _loaded(data: Any) -> object:
    return messages_from_dict([json.loads(item) for item in data])


ROWS = (
    Row("write-message", "Message to bytes", "orjson.dumps of plain data", _write, (within(2e-6), faster(1))),
    Row("read-message", "Bytes to message", "orjson.loads to plain data", _read, (within(10e-6), faster(1))),
)
