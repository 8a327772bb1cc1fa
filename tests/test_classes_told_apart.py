"""Classes among the parameters of a call: two of one name with other fields never share answers (F2b, C4)."""

from __future__ import annotations

import dataclasses
import enum
import gc
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage
from pydantic import BaseModel, create_model
from typing_extensions import TypedDict

from langmem_adapters.errors import SerializationError
from langmem_adapters.langchain import CachedChatModel, ExperienceCache
from langmem_adapters.langchain.caching.classes import classes_in, with_class_fields
from langmem_adapters.langchain.caching.request import request_key
from langmem_adapters.stores.memory import MemoryStore
from tests.test_cached_chat_model import Scripted

HEAD = '{"lc": 1, "type": "constructor", "id": ["x"], "kwargs": {"model": "m"}}'


class Alone(BaseModel):
    """The only one of its name."""

    x: int


def made(name: str = "Answer", **fields: Any) -> type[BaseModel]:
    return create_model(name, **fields)


def told(*parameters: tuple[str, Any]) -> str:
    """What LangChain tells of a model and such parameters."""
    return f"{HEAD}---{sorted(parameters)}"


def answers(cached: bool, script: list[Any]) -> tuple[Scripted, Callable[..., str]]:
    """A model with a cache, and a way to ask it for an answer of a class."""
    inner, cache = Scripted(script=script), ExperienceCache(store=MemoryStore())
    if not cached:
        inner.cache = cache
    model: Any = CachedChatModel(inner, cache) if cached else inner
    return inner, lambda cls, **others: str(model.invoke("What is it?", response_format=cls, **others).content)


def test_two_classes_of_one_name_do_not_share_answers() -> None:
    one, other, same = made(x=(int, ...)), made(y=(str, ...)), made(x=(int, ...))
    assert repr(one) == repr(other) == repr(same)
    inner, ask = answers(cached=True, script=["x", "y"])
    assert [ask(cls) for cls in (one, other, one, other, same)] == ["x", "y", "x", "y", "x"]
    assert inner.asked == 2


def test_where_they_cannot_be_told_apart_nobody_is_served(caplog: pytest.LogCaptureFixture) -> None:
    one, other = made(x=(int, ...)), made(y=(str, ...))
    inner, cache = Scripted(script=["x", "y", "z"]), ExperienceCache(store=MemoryStore())
    inner.cache = cache
    said = [inner.invoke("What is it?", response_format=cls).content for cls in (one, other, one)]
    assert said == ["x", "y", "z"]
    assert (cache.stats()["unkeyed"], cache.stats()["stored"], cache.stats()["misses"]) == (3, 0, 0)
    assert len([record for record in caplog.records if "without a key" in record.getMessage()]) == 1


@pytest.mark.parametrize("cached", [True, False])
def test_the_only_class_of_a_name_has_its_answers(cached: bool) -> None:
    inner, ask = answers(cached=cached, script=["x", "y"])
    assert [ask(Alone), ask(Alone), ask(Alone, timeout=5), ask(Alone, top_p=1)] == ["x", "x", "x", "y"]
    assert inner.asked == 2


def test_both_caches_have_the_same_entries() -> None:
    store = MemoryStore()
    inner = Scripted(script=["x"], cache=ExperienceCache(store=store))
    wrapped = CachedChatModel(inner, ExperienceCache(store=store))
    assert inner.invoke("Hi", response_format=Alone).content == wrapped.invoke("Hi", response_format=Alone).content
    assert inner.asked == 1


def test_a_class_that_is_gone_does_not_count() -> None:
    first = made("Gone", x=(int, ...))
    key = with_class_fields(told(("response_format", first)))
    del first
    gc.collect()
    second = made("Gone", y=(str, ...))
    assert with_class_fields(told(("response_format", second))) != key
    del second
    gc.collect()
    with pytest.raises(SerializationError, match="whose fields cannot be found"):
        with_class_fields(told(("response_format", "?")).replace("'?'", "<class 'tests.Gone'>"))


def test_a_class_of_that_name_elsewhere_does_not_count() -> None:
    text = told(("response_format", Alone))
    key = with_class_fields(text)
    elsewhere = create_model("Alone", __module__="elsewhere", y=(int, ...))
    assert repr(elsewhere) != repr(Alone)
    assert with_class_fields(text) == key == with_class_fields(text, {"response_format": Alone, "tools": [elsewhere]})


def test_a_class_within_an_object_is_found() -> None:
    class Tool:
        def __repr__(self) -> str:
            return f"Tool({Alone!r})"

    text = told(("tools", [Tool()]))
    assert with_class_fields(text, {"tools": [Tool()]}) == with_class_fields(text)
    assert "class Alone" in with_class_fields(text)


def test_a_class_that_says_itself_what_is_equal_to_it_stands_in_nobodys_way() -> None:
    class Lax(type):
        def __eq__(cls, other: object) -> bool:
            return True

        __hash__ = None  # type: ignore[assignment]

    lax = Lax("Lax", (), {})
    assert "class Alone" in with_class_fields(told(("response_format", Alone)))
    assert lax == Alone


def _kinds() -> list[tuple[type, type]]:
    def first() -> list[type]:
        @dataclasses.dataclass
        class Data:
            x: int

        class Typed(TypedDict):
            x: int

        class Colour(enum.Enum):
            RED = 1

        return [Data, Typed, Colour]

    def second() -> list[type]:
        @dataclasses.dataclass
        class Data:
            y: int

        class Typed(TypedDict):
            y: int

        class Colour(enum.Enum):
            BLUE = 1

        return [Data, Typed, Colour]

    pairs = list(zip(first(), second(), strict=True))
    for one, other in pairs:
        other.__qualname__ = one.__qualname__
    return pairs


@pytest.mark.parametrize(("one", "other"), _kinds(), ids=lambda cls: cls.__name__)
def test_classes_of_all_kinds_are_told_apart(one: type, other: type) -> None:
    assert repr(one) == repr(other)
    text = told(("tools", [{"schema": one}]))
    assert with_class_fields(text, [one]) != with_class_fields(text, [other])
    assert with_class_fields(text, [one]) == with_class_fields(text, [one, one, int])
    classes: Any
    for classes in ([one, other], [], [int], {}, None):
        with pytest.raises(SerializationError, match="class"):
            with_class_fields(text, classes)
    assert set(classes_in({"tools": ({"schema": [one]}, "text", 5)})) == {one}


def test_what_stands_beside_its_schema_stays_as_it_was() -> None:
    beside = {"kwargs": {"method": "json_schema"}, "schema": {"title": "Answer"}}
    text = told(("response_format", made(x=(int, ...))), ("ls_structured_output_format", beside))
    assert with_class_fields(text) == text


def test_words_that_begin_like_a_class_beside_a_schema_are_read_in_no_time() -> None:
    beside = {"schema": {"title": "Answer", "description": f"one of <class '{'x' * 24}> or another"}}
    text = told(("response_format", made(x=(int, ...))), ("ls_structured_output_format", beside))
    start = time.process_time()
    request_key("a", text)
    assert time.process_time() - start < 1  # each letter more took twice as long


def test_beside_its_schema_a_class_is_known_by_its_whole_name() -> None:
    beside = ("ls_structured_output_format", {"schema": {"title": "Answer"}})
    one, other, moved = (told(("response_format", name), beside) for name in ("a.Answer", "a.Other", "b.Answer"))
    classes = [re.sub(r"'(\w\.\w+)'", r"<class '\1'>", text) for text in (one, other, moved)]
    keys = [request_key("a", text) for text in classes]
    assert keys[0] == keys[2] != keys[1]


@given(st.text(max_size=40), st.text(max_size=20))
def test_words_that_look_like_a_class_are_words(words: str, name: str) -> None:
    for said in (words, f"<class '{name}'>", f"{words}<class 'Answer'>{name}"):
        text = told(("stop", [said]))
        assert with_class_fields(text) == text
        assert with_class_fields(with_class_fields(text)) == text


def test_the_models_own_parameters_stay_as_they_were() -> None:
    text = HEAD.replace('"m"', "\"<class 'Answer'>\"") + "---[('stop', None)]"
    assert with_class_fields(text) == text
    plain = "[('cls', <class 'tests.test_classes_told_apart.Alone'>)]"  # of a model that cannot be dumped
    assert request_key("a", with_class_fields(plain)) != request_key("a", plain)
    assert with_class_fields(with_class_fields(plain)) == with_class_fields(plain)


def test_timeouts_beside_a_class_do_not_count() -> None:
    keys = {
        request_key("a", with_class_fields(told(("response_format", Alone), ("timeout", timeout))))
        for timeout in (5, 6, None)
    }
    assert len(keys) == 1


def test_a_script_and_its_import_have_the_same_entries(tmp_path: Path) -> None:
    script = tmp_path / "forms.py"
    script.write_text(
        "from pydantic import BaseModel\n"
        "from langmem_adapters.langchain.caching.classes import with_class_fields\n"
        "class Form(BaseModel):\n    x: int\n"
        "print(with_class_fields(str([('response_format', Form)]), [Form]))\n"
    )
    runs = [[sys.executable, "forms.py"], [sys.executable, "-c", "import forms"]]
    told = {subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=True).stdout for run in runs}
    assert len(told) == 1
    assert "class Form" in told.pop()


@pytest.mark.parametrize("mode", ["invoke", "stream"])
def test_a_call_without_a_key_reaches_the_model(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> str:
        raise SerializationError("several")

    monkeypatch.setattr("langmem_adapters.langchain.chat_model.with_class_fields", refuse)
    inner = Scripted(script=[AIMessage("x"), AIMessage("y")])
    cache = ExperienceCache(store=MemoryStore())
    model = CachedChatModel(inner, cache)

    def ask() -> str:
        if mode == "invoke":
            return str(model.invoke("Hi").content)
        return "".join(str(chunk.content) for chunk in model.stream("Hi"))

    assert [ask(), ask()] == ["x", "y"]
    assert (model.stats()["unkeyed"], model.stats()["stored"]) == (2, 0)
    assert cache.stats()["unkeyed"] == 2
