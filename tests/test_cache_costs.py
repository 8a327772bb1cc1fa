"""What LangChain's cache does for a hit and for an update, counted: a check that is added must be a cheap one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pytest
from langchain_core.language_models import FakeListChatModel
from langchain_core.load import dumps
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration
from pydantic import Field

import langmem_adapters
from langmem_adapters.langchain import CachedChatModel, ExperienceCache
from langmem_adapters.langchain.caching import model_description
from langmem_adapters.langchain.caching.field_snapshot import FieldSnapshot
from langmem_adapters.providers.addresses import _url_texts, unstated_address

_PACKAGE = str(Path(langmem_adapters.__file__).parent)
_MODEL = '{"lc": 1, "type": "constructor", "id": ["langchain", "Model"], "kwargs": {"temperature": 0.0}}---[]'


def _answer() -> ChatGeneration:
    tokens = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
    metadata = {"model_name": "small", "finish_reason": "stop"}
    return ChatGeneration(message=AIMessage("Paris", usage_metadata=tokens, response_metadata=metadata))


def _prompt(number: int) -> str:
    return dumps([HumanMessage(f"What is the capital of country {number}?")])


def _functions_entered(call: Callable[[int], object]) -> int:
    """How often a function of this package is entered or resumed, after some calls in which things are made once."""
    counts = []
    for number in range(8):
        entered = 0

        def count(frame: FrameType, event: str, _: object) -> None:
            nonlocal entered
            entered += event == "call" and frame.f_code.co_filename.startswith(_PACKAGE)

        former = sys.getprofile()
        sys.setprofile(count)
        try:
            call(number)
        finally:
            sys.setprofile(former)
        counts.append(entered)
    return min(counts)


@pytest.mark.parametrize(("keep", "most"), [(None, 85), (60, 43)])
def test_a_hit_takes_few_calls(tmp_path: Path, keep: float | None, most: int) -> None:
    cache = ExperienceCache(url=f"sqlite:///{tmp_path}/cache.db", keep=keep)
    cache.update(_prompt(0), _MODEL, [_answer()])
    assert 20 < _functions_entered(lambda _: cache.lookup(_prompt(0), _MODEL)) <= most
    hit = cache.lookup(_prompt(0), _MODEL)
    assert hit is not None
    assert hit[0].text == "Paris"


def test_an_update_takes_few_calls(tmp_path: Path) -> None:
    cache = ExperienceCache(url=f"sqlite:///{tmp_path}/cache.db")
    assert 60 < _functions_entered(lambda number: cache.update(_prompt(number), _MODEL, [_answer()])) <= 170
    assert cache.lookup(_prompt(7), _MODEL) is not None


def test_a_hit_of_a_model_takes_few_calls(tmp_path: Path) -> None:
    model = FakeListChatModel(responses=["Paris"], cache=ExperienceCache(url=f"sqlite:///{tmp_path}/cache.db"))
    assert model.invoke("Hi").text == "Paris"
    assert 40 < _functions_entered(lambda _: model.invoke("Hi")) <= 120


def test_a_url_is_remembered_with_its_own_text() -> None:
    class URL:
        __module__ = "httpx"

        def __init__(self, text: str) -> None:
            self.text = text
            made.append(text)

        def __str__(self) -> str:
            written.append(self.text)
            return self.text

    made: list[str] = []
    written: list[str] = []
    for number in range(1000):  # most have the id of an earlier one
        client = SimpleNamespace(base_url=URL(f"https://host-{number}/v1"))
        assert unstated_address(SimpleNamespace(client=client)) == f"https://host-{number}/v1"
        assert unstated_address(SimpleNamespace(client=client)) == f"https://host-{number}/v1"
    assert written == made
    assert len(_url_texts) <= 256


def test_a_client_is_asked_for_its_address_once_though_others_of_its_model_lead_to_it() -> None:
    class Client:
        @property
        def base_url(self) -> str:
            asked.append(self)
            return "https://gateway/v1"

    asked: list[Client] = []
    root, other = Client(), Client()
    model = SimpleNamespace(
        root_client=root, client=SimpleNamespace(_client=root), async_client=SimpleNamespace(_client=other)
    )
    assert unstated_address(model) == "https://gateway/v1"
    assert asked == [root, other]


class _Model(FakeListChatModel):
    temperature: float = 0.0
    options: dict[str, list[int]] = Field(default_factory=dict)


def test_a_model_that_has_not_changed_is_compared_and_not_looked_at_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counted(FieldSnapshot):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            made.append(self)

    monkeypatch.setattr(model_description, "FieldSnapshot", Counted)
    made: list[FieldSnapshot] = []
    model = CachedChatModel(_Model(responses=["Paris"]), cache=ExperienceCache(url="memory:"))
    for _ in range(4):
        model.invoke("Hi")
    assert made
    made.clear()
    model.invoke("Hi")
    assert not made


def test_whatever_changes_in_a_model_that_has_long_been_the_same_makes_another_request() -> None:
    wrapped = _Model(responses=["Paris"], options={"a": [1]})
    model = CachedChatModel(wrapped, cache=ExperienceCache(url="memory:"))
    changes: list[Callable[[], object]] = [
        lambda: setattr(wrapped, "temperature", 0.5),
        lambda: wrapped.options.update(b=[1]),
        lambda: wrapped.options["a"].append(2),
        lambda: setattr(wrapped, "options", {}),
        lambda: setattr(wrapped, "responses", ["Lyon"]),
    ]
    for number, change in enumerate(changes, 1):
        for _ in range(4):
            model.invoke("Hi")
        assert model.stats()["misses"] == number
        change()
    assert model.invoke("Hi").text == "Lyon"
