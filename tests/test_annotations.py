"""Functions and classes whose annotations name what is not there, or not yet: Python 3.14 lets them stand."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from langmem_adapters import cached
from langmem_adapters.langgraph import ExperienceNodeCache
from langmem_adapters.progress import advancing
from langmem_adapters.stores.memory import MemoryStore

_LATE = """
import dataclasses
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import TYPE_CHECKING

from pydantic import BaseModel

from langmem_adapters import cached
from langmem_adapters.langgraph import ExperienceNodeCache
from langmem_adapters.stores.memory import MemoryStore

if TYPE_CHECKING:
    from nowhere import Client

asked = []

def plain(client: Client, question: str) -> Answer:
    asked.append(question)
    return Answer(text=question)

def in_a_list(client: Client, question: str) -> list[Answer] | None:
    return [plain(client, question)]

def stream(client: Client, question: str) -> Iterator[Answer]:
    yield plain(client, question)

def tell(done: Client, total: Client) -> None:
    asked.append(done)

class Answer(BaseModel):
    text: str

@dataclasses.dataclass
class Held:
    client: Client
    size: int

@dataclasses.dataclass
class Other:
    client: Client
    length: int
"""

late = pytest.mark.parametrize(
    "head",
    [
        "from __future__ import annotations\n",
        pytest.param("", marks=pytest.mark.skipif(sys.version_info < (3, 14), reason="Python reads them at once")),
    ],
    ids=["as text", "read late"],
)


def written(head: str, monkeypatch: pytest.MonkeyPatch, body: str = _LATE) -> dict[str, Any]:
    """What a module with such annotations has, by name."""
    module = type(sys)("late")
    monkeypatch.setitem(sys.modules, "late", module)
    exec(compile(head + body, "late.py", "exec", dont_inherit=True), module.__dict__)
    return module.__dict__


@late
@pytest.mark.parametrize("name", ["plain", "in_a_list", "stream"])
def test_a_function_is_cached_with_the_class_that_it_returns(
    head: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = written(head, monkeypatch)
    function: Callable[..., Any] = cached(store=MemoryStore(), ignore=["client"])(late[name])
    first, second = ([*function(client, "Who?")] for client in (object(), object()))
    assert first == second
    assert late["asked"] == ["Who?"]
    assert function.cache.stats()["hits"] == 1  # type: ignore[attr-defined]


@late
def test_it_is_cached_before_the_class_is_there(head: str, monkeypatch: pytest.MonkeyPatch) -> None:
    body = _LATE.replace("def plain", "@cached(store=MemoryStore(), ignore=['client'])\ndef plain")
    late = written(head, monkeypatch, body)
    assert late["plain"](1, "Who?") == late["plain"](2, "Who?") == late["Answer"](text="Who?")
    assert late["asked"] == ["Who?"]


@late
def test_a_class_counts_by_its_fields(head: str, monkeypatch: pytest.MonkeyPatch) -> None:
    late, asked = written(head, monkeypatch), []

    @cached(store=MemoryStore())
    def ask(kind: type) -> int:
        asked.append(kind)
        return len(asked)

    late["Other"].__name__ = late["Other"].__qualname__ = "Held"
    assert [ask(late["Held"]), ask(late["Other"]), ask(late["Held"]), ask(late["Other"])] == [1, 2, 1, 2]


@late
def test_a_node_may_return_such_an_object(head: str, monkeypatch: pytest.MonkeyPatch) -> None:
    held = written(head, monkeypatch)["Held"]
    cache: ExperienceNodeCache[Any] = ExperienceNodeCache("memory:", tag="late", types=[held])
    cache.set({((), "key"): (held(None, 3), None)})
    assert cache.get([((), "key")]) == {((), "key"): held(None, 3)}


@late
def test_progress_is_told(head: str, monkeypatch: pytest.MonkeyPatch) -> None:
    late = written(head, monkeypatch)
    with advancing(late["tell"], "importing", 3, "messages") as advance:
        advance(2)
    assert late["asked"] == [2]
