"""cached: every kind of function and of result, exactly what was asked for, and never in the way (F2b, C5, C7)."""

# ruff: noqa: ARG001, ARG005, PERF203 - functions to be cached need their arguments

from __future__ import annotations

import asyncio
import contextlib
import copy
import dataclasses
import datetime as dt
import decimal
import enum
import functools
import gc
import inspect
import itertools
import json
import logging
import math
import pickle
import sys
import threading
import time
import tracemalloc
import typing
import uuid
from collections import OrderedDict, UserDict, deque, namedtuple
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, ClassVar, Literal, NamedTuple
from unittest.mock import Mock
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.runnables import chain
from pydantic import BaseModel, ConfigDict, Field, HttpUrl, PrivateAttr, SecretStr, TypeAdapter, create_model
from pydantic.dataclasses import dataclass as pydantic_dataclass
from typing_extensions import Self, TypedDict

import langmem_adapters
from langmem_adapters import ConfigurationError, Experience, ExperiencePool, StoreUnavailable, cached, exp_cache
from langmem_adapters.experience import (
    AtLeast,
    DataSerializer,
    FunctionCache,
    JsonSerializer,
    LLMScorer,
    PydanticSerializer,
    bypass,
    refresh,
)
from langmem_adapters.experience.functions import wrappers
from langmem_adapters.experience.functions.equality import is_same
from langmem_adapters.experience.functions.values import identity, name_of
from langmem_adapters.keys import fingerprint
from langmem_adapters.model import Message, Metric
from langmem_adapters.protocols import Appended, Store
from langmem_adapters.stores.memory import MemoryStore
from langmem_adapters.stores.sqlite import SQLiteStore
from langmem_adapters.testing import FakeClock
from tests.allocations import traced


class Colour(enum.Enum):
    RED = "r"
    BLUE = "b"


class Level(enum.IntEnum):
    LOW = 1


class City(BaseModel):
    name: str
    rivers: tuple[str, ...] = ()
    zip_code: int = Field(default=0, alias="zip")


@dataclasses.dataclass
class Point:
    x: int
    where: Colour = Colour.RED


class Pair(NamedTuple):
    left: int
    right: str


class Secretive(BaseModel):
    shown: int
    hidden: int = Field(default=0, exclude=True)


PARIS = City(name="Paris", rivers=("Seine",), zip=75000)
PLAIN: list[Any] = [
    *(None, "", 0, 0.0, False, [], {}, (), b"", set(), frozenset()),
    *("text", 7, -0.5, True, [1, (2, b"3")], {"a": {1: 2}}, {1, 2}, float("inf"), "\ud800"),
    *(dt.datetime(2026, 1, 2, 3, tzinfo=dt.timezone.utc), dt.date(2026, 1, 2), dt.timedelta(1), uuid.UUID(int=5)),
    decimal.Decimal("1.10"),
]
RESULTS: list[tuple[Any, Any]] = [(value, Any) for value in PLAIN]
RESULTS += [
    (None, City | None),
    (0, int),
    (1, float),  # not what it says, and kept all the same
    (PARIS, City),
    ([PARIS, None], list[City | None]),
    (Point(1, Colour.BLUE), Point),
    (Colour.BLUE, Colour),
    (Level.LOW, Level),
    (Pair(1, "a"), Pair),
    ({"a": Point(2)}, dict[str, Point]),
]


KINDS = ("function", "coroutine", "generator", "async generator")


def make(  # noqa: C901 - four kinds
    kind: str, result: Callable[..., Any], **options: Any
) -> tuple[Callable[..., Any], list[Any], FunctionCache]:
    """A cached function of a kind that gives a result (a stream gives it twice), how to call it, and its calls."""
    calls: list[Any] = []

    def function(*args: Any, **kwargs: Any) -> Any:
        calls.append((args, kwargs))
        return result(*args, **kwargs)

    async def coroutine(*args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(0)
        return function(*args, **kwargs)

    def generator(*args: Any, **kwargs: Any) -> Iterator[Any]:
        value = function(*args, **kwargs)
        yield value
        yield value

    async def async_generator(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        await asyncio.sleep(0)
        for value in generator(*args, **kwargs):
            yield value

    where = {} if "pool" in options else {"tag": "made"}  # as what it holds may be no data
    made = cached(**{**where, **options})(
        {"function": function, "coroutine": coroutine, "generator": generator}.get(kind, async_generator)
    )

    async def consumed(*args: Any, **kwargs: Any) -> list[Any]:
        return [item async for item in made(*args, **kwargs)]

    def call(*args: Any, **kwargs: Any) -> Any:
        if kind == "function":
            return made(*args, **kwargs)
        if kind == "coroutine":
            return asyncio.run(made(*args, **kwargs))
        if kind == "generator":
            return list(made(*args, **kwargs))
        return asyncio.run(consumed(*args, **kwargs))

    return call, calls, made.cache


# --- F2b: value and type


@pytest.mark.parametrize("kind", KINDS)
def test_f2b_every_kind_of_function_serves_an_equal_value_of_the_same_type(any_store: Store, kind: str) -> None:
    for number, (value, returns) in enumerate(RESULTS):
        call, calls, cache = make(kind, lambda n, value=value: value, store=any_store, returns=returns, tag=f"{number}")
        first, second, third = call(number), call(number), call(number)
        wanted = [value, value] if "generator" in kind else value
        assert is_same(first, wanted)
        assert is_same(second, wanted), value
        assert is_same(third, wanted), value
        assert (len(calls), cache.stats()["hits"], cache.stats()["refused"]) == (1, 2, 0), value


class Town:
    """Methods of every kind, whose annotations say what they give."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    @cached(url="memory:", tag="town.city")
    def city(self, name: str = "Paris") -> City:
        self.calls.append(name)
        return City(name=name)

    @cached(url="memory:", tag="town.acity")
    async def acity(self, name: str) -> Point:
        self.calls.append(name)
        return Point(len(name))

    @cached(url="memory:", tag="town.cities")
    def cities(self, *names: str) -> Generator[City, None, None]:
        self.calls.append("".join(names))
        yield from (City(name=name) for name in names)

    @classmethod
    @cached(url="memory:", tag="town.colour")
    def colour(cls, **by: int) -> Colour:
        COLOURS.append(by)
        return Colour.BLUE


COLOURS: list[Any] = []


class Awaited(DataSerializer):
    """A serializer that would have to be awaited."""

    async def serialize_resp(self, resp: Any) -> Any:
        return resp


def test_f2b_methods_share_their_results_and_annotations_bring_types_back() -> None:
    one, other = Town(), Town()
    for town in (one, other):
        assert is_same(town.city(), City(name="Paris"))
        assert is_same(asyncio.run(town.acity(name="Oslo")), Point(4))
        assert is_same(list(town.cities("a", "b")), [City(name="a"), City(name="b")])
        assert Town.colour(a=1, b=2) is town.colour(b=2, a=1) is Colour.BLUE
    assert (one.calls, other.calls, COLOURS) == (["Paris", "Oslo", "ab"], [], [{"a": 1, "b": 2}])
    found = one.city.cache.lookup("Paris")
    assert found is not None
    assert found.resp == {"name": "Paris", "rivers": (), "zip": 0}
    assert one.city.cache.invalidate(name="Paris")
    assert not one.city.cache.invalidate("Paris")
    other.city()
    assert other.calls == ["Paris"]


def test_self_counts_when_asked() -> None:
    class User:
        def __init__(self, id_: int) -> None:
            self.id, self.calls = id_, 0

        @cached(store=MemoryStore(), key={"self": lambda self: self.id})
        def name(self, n: int) -> str:
            self.calls += 1
            return f"{self.id} {n}"

    one, same_one, other = User(1), User(1), User(2)
    assert [user.name(5) for user in (one, same_one, other)] == ["1 5", "1 5", "2 5"]
    assert [user.calls for user in (one, same_one, other)] == [1, 0, 1]
    assert User.name.cache.invalidate(same_one, 5)
    assert one.name(5) == "1 5"
    assert one.calls == 2


@cached(url="memory:")
def scaled(self: int, by: int) -> int:
    return self * by


def test_the_first_argument_of_what_is_no_method_counts_whatever_its_name_is() -> None:
    class Adder:
        @staticmethod
        @cached(store=MemoryStore())
        def add(a: int, b: int) -> int:
            return a + b

    @cached(store=MemoryStore())
    def joined(cls: str, end: str) -> str:
        return cls + end

    assert [Adder.add(n, 2) for n in (1, 5)] == [3, 7]
    assert [scaled(n, 2) for n in (1, 5)] == [2, 10]
    assert [joined(text, "!") for text in ("a", "b")] == ["a!", "b!"]


def test_a_decorated_function_is_still_that_function() -> None:
    @exp_cache
    def plain(a: int, *, b: str = "x") -> str:
        """Say."""
        return b * a

    @exp_cache(url="memory:")
    async def coroutine() -> None: ...

    @exp_cache()
    async def stream() -> AsyncIterator[int]:
        yield 1

    assert (vars(plain)["__wrapped__"].__name__, plain.__doc__) == ("plain", "Say.")
    assert str(inspect.signature(plain)) == "(a: 'int', *, b: 'str' = 'x') -> 'str'"
    assert inspect.iscoroutinefunction(coroutine)
    assert inspect.isasyncgenfunction(stream)
    assert repr(plain.cache).startswith("FunctionCache(test_a_decorated_function")
    assert langmem_adapters.exp_cache is langmem_adapters.cached


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "value",
    [PARIS, Point(1), Colour.RED, Pair(1, "a"), object(), float, lambda: 1, type("S", (str,), {})("s")],
    ids=lambda value: type(value).__name__,
)
def test_what_would_not_come_back_equal_is_returned_and_not_kept(kind: str, value: Any) -> None:
    call, calls, cache = make(kind, lambda: value, store=MemoryStore())
    for _ in range(2):
        got = call()
        assert (got[0] if "generator" in kind else got) is value
    assert len(calls) == 2
    assert (cache.stats()["stored"], cache.pool.count()) == (0, 0)


@pytest.mark.parametrize(
    ("value", "returns"),
    [
        (Secretive(shown=1, hidden=2), Secretive),
        (dt.datetime(2026, 1, 2, tzinfo=ZoneInfo("Europe/Paris")), dt.datetime),
        ([True], list[int] | None),
    ],
)
def test_a_type_that_loses_something_is_not_kept_or_comes_back_whole(value: Any, returns: Any) -> None:
    call, calls, _ = make("function", lambda: value, store=MemoryStore(), returns=returns)
    assert is_same(call(), value)
    assert is_same(call(), value)
    assert len(calls) == (1 if value == [True] else 2)


@pytest.mark.parametrize(
    ("value", "returns"),
    [
        (None, str),
        ("five", int),
        (("a",), list[int]),
        ([5], City),
        ({(1, 2)}, set[tuple[float, float]]),
        (frozenset({frozenset({True})}), frozenset[frozenset[int]]),
    ],
)
def test_what_the_annotation_does_not_say_comes_back_equal_too(value: Any, returns: Any) -> None:
    call, calls, cache = make("function", lambda: value, store=MemoryStore(), returns=returns)
    assert repr(call()) == repr(value)
    assert repr(call()) == repr(value)
    assert (len(calls), cache.stats()["hits"]) == (1, 1)


@pytest.mark.parametrize("returns", [Annotated[str, Field(pattern="^(?=.*e)")], Literal[()], "int('x')"])
def test_what_no_annotation_can_be_made_of_does_not_fail_a_call(returns: Any) -> None:
    """A pattern that pydantic's engine does not know, a choice of nothing, an annotation that raises."""

    def five() -> Any:
        return "five"

    five.__annotations__["return"] = returns
    call = cached(store=MemoryStore())(five)
    assert [call(), call()] == ["five", "five"]
    assert call.cache.stats()["hits"] == 1


class Said(BaseModel):
    role: str
    audio: str | None = None
    told: Said | None = None
    others: dict[str, list[Said]] = {}


SAID = Said(role="a", told=Said(role="b", audio=None), others={"x": [Said(role="c"), Said(role="d", others={})]})
"""What OpenAI's client would send on differs from what it would send of an equal model: audio is null in one only."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("value", "options"),
    [
        (SAID, {"returns": Said}),
        ([Said(role="a"), SAID], {"returns": list[Said]}),
        (SAID, {"serializer": PydanticSerializer(Said)}),
        (Said(role="a", audio=None, told=None, others={}), {"returns": Said}),
    ],
    ids=["model", "list", "serializer", "all set"],
)
def test_fields_that_were_not_set_are_not_set_in_a_hit_either(kind: str, value: Any, options: dict[str, Any]) -> None:
    call, calls, _ = make(kind, lambda: value, store=MemoryStore(), **options)
    adapter = TypeAdapter(Any)
    found = [adapter.dump_python(call(), exclude_unset=True) for _ in range(3)]
    assert found == [adapter.dump_python([value] * 2 if "generator" in kind else value, exclude_unset=True)] * 3
    assert len(calls) == 1


class Used(BaseModel):
    tokens: int = 0


class Told(BaseModel):
    said: Said
    used: Used


class ToldInAnotherOrder(BaseModel):
    """:class:`Told`, as another version of its library may have it."""

    used: Used
    cached: Used = Used()
    said: Said


class OnlyUsed(BaseModel):
    used: Used


@pytest.mark.parametrize(
    ("returns", "sent"),
    [
        (ToldInAnotherOrder, {"used": {"tokens": 7}, "said": {"role": "a"}}),
        (OnlyUsed, {"used": {"tokens": 7}}),
        (dict[str, dict[str, Any]], {"said": Said(role="a").model_dump(), "used": {"tokens": 7}}),
    ],
    ids=["other order", "fewer models", "no models"],
)
def test_fields_that_were_not_set_are_those_of_their_model_after_its_class_has_changed(
    returns: Any, sent: dict[str, Any]
) -> None:
    store, calls = MemoryStore(), []

    def ask() -> Told:
        calls.append("ask")
        return Told(said=Said(role="a"), used=Used(tokens=7))

    cached(store=store, tag="t")(ask)()
    found = TypeAdapter(Any).dump_python(cached(store=store, tag="t", returns=returns)(ask)(), exclude_unset=True)
    assert calls == ["ask"]
    assert {name: found[name] for name in sent} == sent


class Shy(BaseModel):
    model_config = ConfigDict(frozen=True)
    size: int = 1


class HasShy(BaseModel):
    number: int
    shy: Shy = Field(default=Shy(size=1), exclude=True)


def test_a_default_that_all_models_of_a_class_share_keeps_the_fields_that_it_has_set() -> None:
    call, calls, _ = make("function", lambda: HasShy(number=2, shy=Shy()), store=MemoryStore(), returns=HasShy)
    assert [call(), call()] == [HasShy(number=2)] * 2
    assert (len(calls), HasShy(number=3).shy.model_fields_set) == (1, {"size"})


def test_an_entry_that_does_not_say_which_fields_were_set_is_served() -> None:
    """As one of an earlier version."""
    call, calls, cache = make("function", lambda: SAID, store=MemoryStore(), returns=Said)
    call()
    kept = cache.lookup()
    assert kept is not None
    cache.pool.create(Experience(resp=kept.resp, form="typed"), key=cache.calls.arguments.call_key((), {}))
    assert call() == SAID
    assert len(calls) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_result_that_could_be_written_alone_but_not_in_an_entry_is_returned_and_not_kept(kind: str) -> None:
    deep: Any = 1
    for _ in range(200):
        deep = [deep]
    call, calls, cache = make(kind, lambda: deep, store=MemoryStore())
    assert str([call(), call()]).count("1") == (4 if "generator" in kind else 2)
    assert (len(calls), cache.stats()["refused"]) == (2, 2)


@pytest.mark.parametrize(
    ("make_value", "returns"),
    [
        (lambda: (n for n in (1, 2)), Iterable[int]),
        (lambda: (n for n in (1, 2)), Generator[int, None, None]),
        (lambda: map(abs, [1, 2]), Iterable[int]),
        (lambda: map(abs, [1, 2]), Any),
    ],
)
def test_what_can_be_read_once_is_left_to_the_caller(make_value: Callable[[], Any], returns: Any) -> None:
    call, calls, cache = make("function", make_value, store=MemoryStore(), returns=returns)
    assert [list(call()), list(call())] == [[1, 2], [1, 2]]
    assert (len(calls), cache.stats()["refused"]) == (2, 2)
    call, _, _ = make("function", lambda: {"a": [make_value()]}, store=MemoryStore(), returns=dict[str, list[Any]])
    assert list(call()["a"][0]) == [1, 2]
    call, _, _ = make("function", lambda: {"a": deque([make_value()])}, store=MemoryStore(), returns=dict)
    assert list(call()["a"][0]) == [1, 2]


class Page(BaseModel):
    url: HttpUrl
    file: Path
    data: bytes = b"\x00"
    links: dict[int, Path] = {}
    key: SecretStr | None = None


PAGE = {"url": "https://example.org", "file": "a", "links": {1: "b"}}


@pytest.mark.parametrize(
    ("value", "returns"),
    [(Path("a") / "b", Path), ([Path()], list[Path]), (Page.model_validate(PAGE), Page)],
    ids=["path", "list", "model"],
)
def test_paths_and_urls_come_back_by_the_annotation(value: Any, returns: Any) -> None:
    call, calls, _ = make("function", lambda: value, store=MemoryStore(), returns=returns)
    assert is_same(call(), value)
    assert is_same(call(), value)
    assert len(calls) == 1


def test_a_secret_is_not_kept_as_the_stars_that_stand_for_it(any_store: Store) -> None:
    page = Page.model_validate({**PAGE, "key": "my-secret"})
    call, calls, cache = make("function", lambda: page, store=any_store, returns=Page)
    assert [call(), call()] == [page, page]
    assert (len(calls), cache.stats()["refused"]) == (2, 2)


def test_why_a_result_is_not_kept_is_said_once_without_its_content(caplog: pytest.LogCaptureFixture) -> None:
    call, _, cache = make("function", lambda: City(name="my-secret"), store=MemoryStore())
    with caplog.at_level(logging.WARNING, "langmem_adapters"):
        call(), call()
    assert len(caplog.records) == 1
    assert "City would not come back equal; declare its type with returns=" in caplog.text
    assert "my-secret" not in caplog.text
    assert cache.stats()["refused"] == 2
    call, _, _ = make("function", lambda: AIMessage("my-secret"), store=MemoryStore(), returns=BaseMessage)
    with caplog.at_level(logging.WARNING, "langmem_adapters"):
        call()
    assert "AIMessage would not come back equal as what its annotation or returns= says: name its exact" in caplog.text
    assert "my-secret" not in caplog.text


@pytest.mark.parametrize(
    ("value", "returns", "why"),
    [
        (np.array([1]), None, "ndarray would not come back equal; return plain data"),
        ((n for n in range(0)), None, "generator would not come back equal; put @cached directly above the function"),
        (np.array([1]), np.ndarray, "ndarray would not come back equal; return plain data"),
        (
            {"mean": np.float64(1)},
            None,
            "dict would not come back equal, as it holds a value of type float64; declare its type",
        ),
        (
            {"mean": np.float64(1)},
            dict[str, float],
            "dict would not come back equal, as it holds a value of type float64; return plain",
        ),
        (
            {"home": City(name="x")},
            None,
            "dict would not come back equal, as it holds a value of type City; declare its type",
        ),
    ],
    ids=["array", "generator", "array, as it was told", "number", "number, as it was told", "dataclass"],
)
def test_why_a_result_is_not_kept_says_what_helps_and_never_what_was_done_already(
    value: Any, returns: Any, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    call, _, _ = make("function", lambda: value, store=MemoryStore(), returns=returns)
    with caplog.at_level(logging.WARNING, "langmem_adapters"):
        call()
    assert f"a response of {why}" in caplog.text


class Frame:
    """Equal item by item, as those of pandas and Polars."""

    def __init__(self, *rows: int) -> None:
        self.rows = list(rows)

    def __eq__(self, other: object) -> Any:
        return np.array(self.rows) == np.array(getattr(other, "rows", None))

    __hash__ = None  # type: ignore[assignment]

    def equals(self, other: Frame) -> bool:
        return self.rows == other.rows


class Frames(DataSerializer):
    def __init__(self, most: int) -> None:
        self.most = most

    def serialize_resp(self, resp: Frame) -> list[int]:
        return resp.rows[: self.most]

    def deserialize_resp(self, data: list[int]) -> Frame:
        return Frame(*data)


@pytest.mark.parametrize(("most", "kept"), [(3, 1), (2, 0)], ids=["whole", "in part"])
def test_a_frame_is_kept_by_a_serializer_that_loses_nothing_of_it(most: int, kept: int) -> None:
    call, calls, cache = make("function", lambda: Frame(1, 2, 3), store=MemoryStore(), serializer=Frames(most))
    assert [call().rows, call().rows] == [[1, 2, 3]] * 2
    assert (cache.stats()["stored"], len(calls)) == (kept, 2 - kept)


@dataclasses.dataclass(slots=True)
class Lazy:
    given: int
    found: int = dataclasses.field(init=False, compare=False)  # nothing, at first


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([1], [1, 2]),
        ({1}, {2}),
        ([math.nan], [1.0]),
        (dt.datetime(2024, 1, 1, tzinfo=dt.timezone.utc), dt.datetime(2024, 1, 2, tzinfo=dt.timezone.utc)),
        (np.array([1, 2]), np.array([1, 3])),
        (np.array([1, 2]), np.array([[1, 2]])),
        (np.zeros(2, np.int64), np.zeros(2, np.float64)),
        (Lazy(1), Lazy(2)),
        (Lazy(1), Lazy(True)),
    ],
)
def test_values_are_the_same_all_the_way_down_or_not_at_all(one: Any, other: Any) -> None:
    assert not is_same(one, other)
    assert is_same(one, pickle.loads(pickle.dumps(one)))


def test_the_text_of_a_message_is_a_text(any_store: Store) -> None:
    """LangChain's ``message.text`` is of a class of its own, which holds nothing but the text."""
    model = FakeListChatModel(responses=["In the shed."])
    asked: list[str] = []

    @cached(store=any_store, tag="annotated")
    def annotated(question: str) -> str:
        asked.append(question)
        return model.invoke(question).text

    @cached(store=any_store, tag="inside")
    def inside(question: str):  # type: ignore[no-untyped-def]  # noqa: ANN202 - as many are written
        asked.append(question)
        return {"answers": [model.invoke(question).text]}

    @cached(store=any_store, tag="pieces")
    def pieces(question: str) -> Iterator[str]:
        asked.append(question)
        for chunk in model.stream(question):
            yield chunk.text

    question = HumanMessage("Where is my bike?").text
    for function, answer in ((annotated, "In the shed."), (inside, {"answers": ["In the shed."]})):
        assert function(question) == function(str(question)) == answer
        assert type(function(question)) is type(answer)
    assert list(pieces(question)) == list(pieces(str(question))) == list("In the shed.")
    assert asked == ["Where is my bike?"] * 3


def test_a_hit_is_a_new_object_each_time() -> None:
    call, _, _ = make("function", lambda: {"list": [1]}, store=MemoryStore())
    call()["list"].append(2)
    call()["list"].append(3)
    assert call() == {"list": [1]}


def test_what_the_caller_does_to_a_streams_items_changes_nothing() -> None:
    @cached(store=MemoryStore())
    def lists() -> Iterator[list[int]]:
        yield [1]
        yield [2]

    for _ in range(3):
        items = []
        for item in lists():
            items.append(list(item))
            item.append(9)
        assert items == [[1], [2]]


# --- which calls are the same


def test_positional_keyword_and_default_arguments_are_one_call(any_store: Store) -> None:
    calls = []

    @cached(store=any_store)
    def f(a: int, /, b: int = 2, *rest: int, c: int = 3, **more: int) -> list[Any]:
        calls.append(1)
        return [a, b, rest, c, more]

    assert f(1) == f(1, 2) == f(1, b=2) == f(1, 2, c=3) == [1, 2, (), 3, {}]
    assert len(calls) == 1
    assert f(1, 2, 3, d=4, e=5) == f(1, 2, 3, e=5, d=4) == [1, 2, (3,), 3, {"d": 4, "e": 5}]
    assert len(calls) == 2


leaf = (
    st.none()
    | st.booleans()
    | st.integers(-1, 1)
    | st.sampled_from(
        [
            0.0,
            1.0,
            "",
            "RED",
            b"",
            Colour.RED,
            Colour.BLUE,
            Level.LOW,
            Point(1),
            Point(0),
            City(name=""),
            int,
            Pair(1, "a"),
        ]
    )
)
values = st.recursive(
    leaf,
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.lists(inner, max_size=2).map(tuple)
        | st.dictionaries(st.sampled_from(["a", "enum", 1, None, (1,)]), inner, max_size=2)
    ),
    max_leaves=4,
)


@settings(max_examples=300)
@given(values, values)
def test_c4_identities_differ_exactly_where_values_or_types_do(one: Any, other: Any) -> None:
    assert (fingerprint(identity(one)) == fingerprint(identity(other))) == _alike(one, other)
    assert fingerprint(identity(one)) == fingerprint(identity(one))


def _alike(a: Any, b: Any) -> bool:
    """Equal and of the same types, in whichever order a dictionary was made."""
    if isinstance(a, dict) and isinstance(b, dict):
        typed = {(type(k), k): v for k, v in b.items()}
        return len(a) == len(b) and all((type(k), k) in typed and _alike(v, typed[type(k), k]) for k, v in a.items())
    if type(a) is type(b) and isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(_alike, a, b))
    return is_same(a, b)


@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_f2b_hit_exactly_where_bound_arguments_are_equal(data: st.DataObject) -> None:
    """Random signatures, two random calls each."""
    kinds = [inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY]
    chosen = sorted(data.draw(st.lists(st.sampled_from(kinds), max_size=4)))
    parameters = [inspect.Parameter(f"p{n}", kind, default=data.draw(leaf)) for n, kind in enumerate(chosen)]
    if data.draw(st.booleans()):
        place = sum(kind is not inspect.Parameter.KEYWORD_ONLY for kind in chosen)
        parameters.insert(place, inspect.Parameter("rest", inspect.Parameter.VAR_POSITIONAL))
    if data.draw(st.booleans()):
        parameters.append(inspect.Parameter("more", inspect.Parameter.VAR_KEYWORD))
    signature = inspect.Signature(parameters)
    calls = []

    def target(*args: Any, **kwargs: Any) -> int:
        calls.append((args, kwargs))
        return len(calls)

    vars(target)["__signature__"] = signature
    f = cached(store=MemoryStore())(target)
    names = [p.name for p in parameters if p.kind in kinds[1:]] + ["x", "y"]
    bound = []
    for _ in range(2):
        args = tuple(data.draw(st.lists(values, max_size=3)))
        kwargs = data.draw(st.dictionaries(st.sampled_from(names), values, max_size=3))
        try:
            bound.append(signature.bind(*args, **kwargs))
        except TypeError:
            assume(False)
        bound[-1].apply_defaults()
        f(*args, **kwargs)
        assert calls[-1] == (args, kwargs) or len(calls) < len(bound)  # exactly what the caller passed
    assert (len(calls) == 1) == _alike(dict(bound[0].arguments), dict(bound[1].arguments))


def test_ignored_and_shortened_arguments(any_store: Store) -> None:
    calls: list[Any] = []

    @cached(store=any_store, ignore=["timeout"], key={"user": lambda user: user["id"]})
    def f(user: dict[str, Any], timeout: float = 1) -> int:
        calls.append((user, timeout))
        return int(user["id"]) * 2

    assert f({"id": 1, "seen": 5}) == f({"id": 1, "seen": object()}, timeout=9) == 2
    assert (f({"id": 2}), len(calls)) == (4, 2)

    @cached(store=any_store, key=lambda a, b=0: a + b)
    def g(a: int, b: int = 0) -> int:
        calls.append((a, b))
        return a + b

    assert g(1, 2) == g(3) == g(b=3, a=0) == 3
    assert len(calls) == 3


def test_functions_tenants_and_tags_are_apart(any_store: Store) -> None:
    def made(n: int, **options: Any) -> Callable[[int], list[int]]:
        def g(x: int) -> list[int]:
            return [n, x]

        return cached(store=any_store, **options)(g)

    places: list[dict[str, str]] = [{"tag": "a"}, {"tag": "b"}, {"tag": "a", "tenant": "t"}, {"tag": "a", "user": "u"}]
    functions = [made(n, **options) for n, options in enumerate(places)]

    def other(x: int) -> str:
        return f"other {x}"

    @cached(store=any_store)
    def f(x: int) -> str:
        return f"f {x}"

    for _ in range(2):
        assert [function(1) for function in functions] == [[0, 1], [1, 1], [2, 1], [3, 1]]
    assert (f(1), cached(store=any_store)(other)(1), f(1)) == ("f 1", "other 1", "f 1")
    assert name_of(other) == "tests.test_cached." + other.__qualname__


def test_arrays_are_equal_whatever_their_order_in_memory() -> None:
    array = np.arange(4).reshape(2, 2)
    assert identity(np.asfortranarray(array)) == identity(array)
    assert identity(array[:, ::-1]) == identity(np.array([[1, 0], [3, 2]]))


def test_a_large_array_is_told_from_others_by_one_copy_of_it() -> None:
    array = np.zeros(1_000_000)
    _, _, most = traced(lambda: identity(array))
    assert most < 1.5 * array.nbytes


@pytest.mark.parametrize(
    "array", [np.array([object()]), np.ma.array([1, 2], mask=[False, True])], ids=["any", "masked"]
)
def test_arrays_of_which_their_bytes_do_not_tell_all_are_no_data(array: Any) -> None:
    f = cached(store=MemoryStore())(len)
    with pytest.raises(ConfigurationError, match="cannot tell one call from another"):
        f(array)


def test_a_mock_of_a_model_is_no_data() -> None:
    with pytest.raises(ConfigurationError, match="cannot tell one call from another, as its type is Mock"):
        cached(store=MemoryStore())(len)(Mock(spec=Message))


def test_an_argument_that_is_no_data_is_named(any_store: Store) -> None:
    @cached(store=any_store)
    def f(query: str, db: object) -> str:
        raise AssertionError

    with pytest.raises(
        ConfigurationError, match=r"the argument 'db' of .*f cannot tell .* leave it out with ignore=\[\"db\"\]"
    ):
        f("q", object())


def test_wrong_arguments_are_the_functions_own_error() -> None:
    @cached(store=MemoryStore())
    def f(a: int) -> int:
        return a

    with pytest.raises(TypeError, match=r"f\(\) missing 1 required positional argument: 'a'"):
        f()  # type: ignore[call-arg]


def test_plain_parameters_are_bound_without_inspecting_the_signature() -> None:
    @cached(store=MemoryStore())
    def f(a: int, b: int = 2) -> int:
        made.append((a, b))
        return a + b

    made: list[tuple[int, int]] = []
    entered: list[str] = []
    assert f(1) == f(1, 2) == f(b=2, a=1) == f(a=1) == 3
    former = sys.getprofile()
    sys.setprofile(lambda frame, event, _: entered.append(frame.f_code.co_name) if event == "call" else None)
    try:
        f(1, b=2)
    finally:
        sys.setprofile(former)
    assert "bind" in entered
    assert "_bind" not in entered
    wrong_calls: list[tuple[tuple[int, ...], dict[str, int]]] = [((), {}), ((1, 2, 2), {}), ((1,), {"a": 1})]
    for args, kwargs in (*wrong_calls, ((1,), {"c": 2}), ((), {"b": 2}), ((), {"b": 1, "c": 2})):
        with pytest.raises(TypeError):
            f(*args, **kwargs)
    assert made == [(1, 2)]


def test_an_argument_that_is_missing_or_out_of_place_is_no_part_of_a_key() -> None:
    @cached(store=MemoryStore(), key={"a": lambda a: a + 1})
    def f(a: int, b: int = 2) -> int:
        return a + b

    @cached(store=MemoryStore())
    def g(*, a: int) -> int:
        return a

    with pytest.raises(TypeError, match=r"f\(\) missing 1 required positional argument: 'a'"):
        f(b=1)  # type: ignore[call-arg]
    assert g(a=1) == 1
    with pytest.raises(TypeError, match=r"g\(\) takes 0 positional arguments"):
        g(1)  # type: ignore[call-arg]


@pytest.mark.parametrize("is_stream", [False, True])
def test_what_is_given_more_arguments_by_a_decorator_below_is_refused_and_told_of_once(
    any_store: Store, caplog: pytest.LogCaptureFixture, *, is_stream: bool
) -> None:
    def f(query: str, session: str) -> list[str]:
        return [query, session]

    @functools.wraps(f)
    def call(query: str) -> list[str]:
        return f(query, "s")

    @functools.wraps(f)
    def stream(query: str) -> Iterator[str]:
        yield from f(query, "s")

    made = cached(store=any_store, tag="f")(stream if is_stream else call)
    assert [list(made("q")), list(made("q"))] == [["q", "s"], ["q", "s"]]
    with refresh():
        assert list(made("q")) == ["q", "s"]
    assert (made.cache.stats()["stored"], made.cache.stats()["refused"]) == (0, 3)
    assert ["put @cached below the decorator" in record.message for record in caplog.records] == [True]


# --- never in the way


class Keeper(BaseModel):
    shown: int
    _kept: int = PrivateAttr(0)


def test_what_a_model_keeps_for_itself_counts() -> None:
    @cached(store=MemoryStore())
    def kept(keeper: Keeper) -> int:
        return keeper._kept

    one, other = Keeper(shown=1), Keeper(shown=1)
    other._kept = 5
    assert [kept(keeper) for keeper in (one, other, one)] == [0, 5, 0]
    assert kept.cache.stats()["hits"] == 1


class Worked(BaseModel):
    words: str

    @functools.cached_property
    def client(self) -> object:
        return object()

    @functools.cached_property
    def count(self) -> int:
        return len(self.words.split())


def test_what_a_model_has_worked_out_of_its_fields_does_not_count() -> None:
    @cached(store=MemoryStore())
    def count(worked: Worked) -> Worked:
        assert worked.client
        again = worked.model_copy()
        assert again.count
        return again

    one = Worked(words="one two")
    assert [count(one), count(one), count(Worked(words="one two")).count] == [one, one, 2]
    assert (count.cache.stats()["hits"], count.cache.stats()["refused"]) == (2, 0)


@dataclasses.dataclass
class Counted:
    words: str

    @functools.cached_property
    def count(self) -> int:
        return len(self.words.split())


def test_what_a_dataclass_has_worked_out_of_its_fields_does_not_count() -> None:
    @cached(store=MemoryStore())
    def count(words: str) -> Counted:
        counted = Counted(words)
        assert counted.count
        return counted

    assert [count("one two"), count("one two")] == [Counted("one two")] * 2
    assert count.cache.stats()["hits"] == 1


SUMMER = dt.datetime(2026, 7, 1, tzinfo=dt.timezone.utc)
HOUR = dt.timedelta(hours=1)


class Missing(enum.Enum):
    """Only their names tell them apart."""

    ABSENT = object()
    UNKNOWN = object()  # noqa: PIE796 - another one

    def __deepcopy__(self, _: object) -> Missing:
        """Python 3.10 would look for a member with a copy of the value."""
        return self


class Switch(enum.IntFlag):
    ON = 1


def moved(ordered: OrderedDict[str, int]) -> OrderedDict[str, int]:
    """The same with the first at the end, which only it and no dict knows."""
    ordered.move_to_end(next(iter(ordered)))
    return ordered


class Form(dict[str, Any]):
    """Several values by one name, of which the last is shown, as in Django and Werkzeug."""

    def __getitem__(self, name: str) -> Any:
        return super().__getitem__(name)[-1]

    def items(self) -> Any:
        return [(name, self[name]) for name in self]

    def __deepcopy__(self, memo: Any) -> Form:
        return Form({name: [*values] for name, values in super().items()})


class Pairs(Mapping[str, str]):
    """The same, kept as pairs."""

    def __init__(self, *pairs: tuple[str, str]) -> None:
        self.pairs = pairs

    def __getitem__(self, name: str) -> str:
        return dict(self.pairs)[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict(self.pairs))

    def __len__(self) -> int:
        return len(dict(self.pairs))


class Query(Pairs):
    """All of them by a method of its own, as in Starlette and HTTPX."""

    def multi_items(self) -> list[tuple[str, str]]:
        return [*self.pairs]


class Headers(Pairs):
    """All of them by the usual one, as in aiohttp."""

    def items(self) -> Any:
        return [*self.pairs]


class Noted(str):
    """A text with what is said of it."""

    __slots__ = ("__dict__",)

    def __new__(cls, text: str, **notes: Any) -> Self:
        noted = super().__new__(cls, text)
        noted.__dict__.update(notes)
        return noted


class Priced(float):
    """A number with its unit."""

    unit: str


class Batch(list[int]):
    """A list with a name."""

    name: str


@dataclasses.dataclass
class Asked:
    words: str
    tongue: dataclasses.InitVar[str] = "en"

    def __post_init__(self, tongue: str) -> None:
        self._tongue = tongue


@dataclasses.dataclass
class Words(list[str]):
    tongue: str


class Exact(dt.datetime):
    """Knows nanoseconds, as a Timestamp of pandas."""

    nanosecond = 0

    def __repr__(self) -> str:
        return f"{super().__repr__()} {self.nanosecond}"

    def __deepcopy__(self, memo: Any) -> Self:
        return self


def having(value: Any, **held: Any) -> Any:
    """A value that holds something beside what it is made of."""
    vars(value).update(held)
    return value


class Masked(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "***"


class MaskedPath(PurePosixPath):
    def __str__(self) -> str:
        return "***"


def tone(said: str) -> Any:
    return enum.Enum("Tone", {"SHORT": said})


def with_words(words: Words, *more: str) -> Words:
    words += more
    return words


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Noted("a", by="ada"), Noted("a", by="bob")),
        (having(Priced(5), unit="EUR"), having(Priced(5), unit="USD")),
        (having(Batch([1]), name="a"), having(Batch([1]), name="b")),
        (Form(a=["1"]), having(Form(a=["1"]), encoding="latin-1")),
        (UserDict(a=1), having(UserDict(a=1), name="b")),
        (Asked("a", "en"), Asked("a", "de")),
        (having(Counted("a"), tone=Path("a")), having(Counted("a"), tone=Path("b"))),
        (MaskedPath("a"), MaskedPath("b")),
        (with_words(Words("en"), "a"), with_words(Words("en"), "b")),
        (Exact(2026, 7, 1), having(Exact(2026, 7, 1), nanosecond=1)),
        (tone("be short"), tone("be very short")),
        (tone("be short").SHORT, tone("be very short").SHORT),
        (Missing.ABSENT, Missing.UNKNOWN),
        (*(dataclasses.make_dataclass("Turn", [("most", int, dataclasses.field(default=n))]) for n in (1, 2)),),
        (SUMMER.astimezone(ZoneInfo("Europe/Berlin")), SUMMER.astimezone(ZoneInfo("Africa/Johannesburg"))),
        (SUMMER.astimezone(ZoneInfo("UTC")), SUMMER),
        (SUMMER.replace(tzinfo=None), SUMMER.replace(tzinfo=None, fold=1)),
        (dt.time(2, 30), dt.time(2, 30, fold=1)),
        (SUMMER.astimezone(dt.timezone(HOUR, "CET")), SUMMER.astimezone(dt.timezone(HOUR))),
        (dt.time(2, tzinfo=dt.timezone(HOUR, "CET")), dt.time(2, tzinfo=dt.timezone(HOUR, "BST"))),
        (Switch(16), Switch(32)),
        (Switch(0), Switch(16)),
        (Switch(0), Switch(1)),
        (OrderedDict(a=1, b=2), OrderedDict(b=2, a=1)),
        (OrderedDict(a=1, b=2), {"a": 1, "b": 2}),
        (moved(OrderedDict(a=1, b=2)), OrderedDict(a=1, b=2)),
        (Lazy(1), Lazy(2)),
        (Form(a=["1", "2"]), Form(a=["2"])),
        (Form(a=["1", "2"]), Form(a=["2", "2"])),
        (Query(("a", "1"), ("a", "2")), Query(("a", "2"))),
        (Query(("a", "1"), ("a", "2")), Query(("a", "2"), ("a", "1"))),
        (Headers(("a", "1"), ("a", "2")), Headers(("a", "2"))),
        (Path("a"), Path("b")),
        (Path("a"), "a"),
        (np.arange(4), np.arange(4).astype("f8")),
        (np.arange(4), np.arange(4).reshape(2, 2)),
        (np.arange(4), np.arange(4)[::-1]),
        (np.arange(1), [0]),
        ([np.arange(1)], [np.arange(1, 2)]),
        (np.int64(1), 1),
        (np.int64(1), np.int32(1)),
        (np.float64(1), 1.0),
        (np.str_("a"), "a"),
        (Masked("a"), Masked("b")),
    ],
)
def test_c4_what_differs_beside_its_words_is_another_argument(one: Any, other: Any) -> None:
    """An hour that comes twice, another zone with the same offset now, flags without a name, forms, paths, arrays.

    And what a class of one's own holds beside its fields or items.
    """
    assert fingerprint(identity(one)) != fingerprint(identity(other))
    assert fingerprint(identity(one)) == fingerprint(identity(copy.deepcopy(one)))


def test_c4_what_is_no_data_beside_an_argument_does_not_count() -> None:
    """Such as a client, the neighbours of a text in its page, and the tree of which a value is a leaf."""
    for client in (object(), lambda: None):
        assert fingerprint(identity(having(Asked("a"), client=client))) == fingerprint(identity(Asked("a")))
    text, neighbour = Noted("a"), Noted("b")
    having(text, next=neighbour)
    having(neighbour, previous=text)
    assert fingerprint(identity(text)) == fingerprint(identity(Noted("a")))
    leaf, tree = Counted("a"), having(Batch(), leaf=None)
    tree.append(having(leaf, tree=tree))
    assert fingerprint(identity(leaf)) == fingerprint(identity(copy.deepcopy(leaf)))


def test_a_time_that_pydantic_read_is_the_argument_that_python_makes() -> None:
    for zone in ("Z", "+02:00"):
        text = f"2026-07-01T00:00:00{zone}"
        made = dt.datetime.fromisoformat(text.replace("Z", "+00:00"))
        assert fingerprint(identity(TypeAdapter(dt.datetime).validate_python(text))) == fingerprint(identity(made))


def _circle(kind: type[Any]) -> Any:
    circle: Any = kind()
    if kind is dict:
        circle["round"] = circle
    else:
        circle.append(circle)
    return circle


def _deep() -> list[Any]:
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    return deep


@pytest.mark.parametrize("make_value", [lambda: _circle(list), lambda: _circle(dict), _deep])
def test_an_argument_without_end_is_named(make_value: Callable[[], Any]) -> None:
    @cached(store=MemoryStore())
    def f(first: int, second: Any) -> int:
        return first

    gc.collect()  # else what other tests left may be finalised in the depth of this one, where there is no room for it
    with pytest.raises(ConfigurationError, match=r"the argument 'second' of .*f cannot tell one call from another"):
        f(1, make_value())


@pytest.mark.parametrize("callers", range(4))  # so that the stack ends at another place in the library
def test_no_argument_is_blamed_where_a_function_calls_itself_too_often(callers: int) -> None:
    @cached(store=MemoryStore())
    def count(down: int) -> int:
        return 1 + count(down - 1) if down else 0

    def call(callers: int) -> int:
        return call(callers - 1) if callers else count(5000)

    gc.collect()
    with pytest.raises(
        (ConfigurationError, RecursionError),
        match=r"count, or its calls of itself, are too many|maximum recursion depth",
    ):
        call(callers)
    assert count(50) == 50  # and nobody is waited for


def test_a_key_that_is_no_data_is_told_by_its_own_name() -> None:
    @cached(store=MemoryStore(), key=lambda first: {"m": object()})
    def f(first: int) -> int:
        return first

    with pytest.raises(
        ConfigurationError, match=r"what key= gives for the arguments of .*f cannot be a cache key: its type is dict"
    ):
        f(1)


def _streamed(kind: str, items: Callable[[], Iterator[Any]], **options: Any) -> tuple[Callable[[], list[Any]], Any]:
    """A cached stream, how to read it to its end, and its cache."""

    async def later() -> AsyncIterator[Any]:
        for item in items():
            yield item

    async def read(stream: Any) -> list[Any]:
        return [item async for item in stream]

    made: Any = cached(**{"store": MemoryStore(), "tag": "made", **options})(
        later if kind == "async generator" else lambda: (yield from items())
    )
    return (lambda: asyncio.run(read(made())) if kind == "async generator" else list(made())), made.cache


STREAMS = pytest.mark.parametrize("kind", KINDS[2:])


@STREAMS
def test_a_stream_that_cannot_be_kept_is_refused_and_told_of_once(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    read, cache = _streamed(kind, lambda: iter([object(), object()]))
    for _ in range(2):
        assert len(read()) == 2
    assert (cache.stats()["refused"], cache.stats()["stored"]) == (2, 0)
    assert caplog.text.count("is not kept: a response of object") == 1


def test_a_generator_that_returns_something_is_refused_as_it_would_not_come_back() -> None:
    @cached(store=MemoryStore())
    def numbers() -> Generator[int, None, str]:
        yield 1
        return "the end"

    def whole() -> Generator[int, None, str]:
        return (yield from numbers())

    for _ in range(2):
        reader = whole()
        assert next(reader) == 1
        with pytest.raises(StopIteration, match="the end") as end:
            next(reader)
        assert end.value.value == "the end"
    assert (numbers.cache.stats()["refused"], numbers.cache.stats()["stored"]) == (2, 0)


@STREAMS
def test_a_stream_without_end_is_not_gathered_without_bound(
    kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def items() -> Iterator[str]:
        yield from ("x" * 100 for _ in range(12))

    monkeypatch.setattr(wrappers, "_MAX_STREAM_BYTES", 1000)
    read, cache = _streamed(kind, items)
    assert len(read()) == 12
    assert (cache.stats()["refused"], cache.stats()["stored"]) == (1, 0)
    assert "is not kept: a stream of more than 1,000 bytes is too long" in caplog.text
    for most, refused in ((1500, 0), (500, 1)):  # a bound of the pool's own counts instead
        read, cache = _streamed(kind, items, max_bytes=most)
        assert len(read()) == 12
        assert cache.stats()["refused"] == refused


def test_of_a_stream_that_is_too_long_nothing_stays_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wrappers, "_MAX_STREAM_BYTES", 10_000)
    text = "x" * 1000

    @cached(store=MemoryStore())
    def endless() -> Generator[str, None, None]:
        while True:
            yield text + ""

    stream = endless()
    for _ in range(20):
        next(stream)
    tracemalloc.start()
    try:
        for _ in range(1000):
            next(stream)
        assert tracemalloc.get_traced_memory()[0] < 100_000
    finally:
        tracemalloc.stop()
        stream.close()


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        *((kind, error) for kind in KINDS for error in (KeyError("k"), SystemExit(2))),
        ("function", StopIteration(3)),  # of which Python itself makes another error elsewhere
        ("function", StopAsyncIteration()),
    ],
    ids=repr,
)
def test_exceptions_come_through_and_are_never_kept(kind: str, error: BaseException) -> None:
    fails = [True]

    def result() -> int:
        if fails.pop():
            fails.append(False)
            raise error
        fails.append(False)
        return 5

    call, calls, cache = make(kind, result, store=MemoryStore())
    with pytest.raises(type(error)) as caught:
        call()
    assert caught.value is error
    assert call() == call() == ([5, 5] if "generator" in kind else 5)
    assert (len(calls), cache.stats()["hits"]) == (2, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_the_function_gets_the_very_objects_of_its_caller(any_store: Store, kind: str) -> None:
    call, calls, _ = make(kind, lambda *_, **__: 1, store=any_store)
    given, named = [1, {"a": 2}], {"k": [3]}
    call(given, named=named)
    ((got,), kwargs) = calls[0]
    assert got is given
    assert kwargs["named"] is named
    assert (given, named) == ([1, {"a": 2}], {"k": [3]})


def test_an_argument_that_the_function_changes_is_still_the_one_that_was_asked_for() -> None:
    @cached(store=MemoryStore(), keep_requests=True)
    def f(items: list[int]) -> int:
        items.append(0)
        return len(items)

    assert (f([1]), f([1]), f([1, 0])) == (2, 2, 3)
    assert [found.req for found in f.cache.pool.all()] == [[1], [1, 0]]


def test_a_request_that_is_no_data_is_not_kept_beside_its_result() -> None:
    @cached(store=MemoryStore(), keep_requests=True)
    def f(kind: type) -> str:
        return kind.__name__

    assert (f(int), f(int), f(str)) == ("int", "int", "str")
    assert (f.cache.stats()["hits"], f.cache.stats()["errors"]) == (1, 0)
    assert [found.req for found in f.cache.pool.all()] == [None, None]


class Broken(MemoryStore):
    """A store that fails while it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.reads, self.writes = True, True

    def get(self, *args: Any, **kwargs: Any) -> Any:
        if not self.reads:
            raise StoreUnavailable("it is down")
        return super().get(*args, **kwargs)

    def append(self, *args: Any, **kwargs: Any) -> Appended:
        if not self.writes:
            raise StoreUnavailable("it is down")
        return super().append(*args, **kwargs)

    def write(self, *args: Any, **kwargs: Any) -> None:
        if not self.writes:
            raise StoreUnavailable("it is down")
        super().write(*args, **kwargs)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("reads", "writes"), [(False, False), (True, False), (False, True)])
def test_c7_without_its_store_the_function_runs(
    kind: str, *, reads: bool, writes: bool, caplog: pytest.LogCaptureFixture
) -> None:
    store = Broken()
    call, calls, cache = make(kind, lambda: 5, store=store)
    store.reads, store.writes = reads, writes
    with caplog.at_level(logging.WARNING, "langmem_adapters"):
        first, second = call(), call()
    assert first == second == ([5, 5] if "generator" in kind else 5)
    assert len(calls) == 2
    assert cache.stats()["errors"] >= 2
    assert len({r.getMessage() for r in caplog.records}) == len(caplog.records) == 1
    store.reads = store.writes = True
    call(), call()
    assert len(calls) <= 3
    assert cache.stats()["hits"] >= 1


def test_an_outage_can_be_an_error() -> None:
    store = Broken()
    call, calls, _ = make("function", lambda: 5, store=store, on_error="raise")
    store.reads = False
    with pytest.raises(StoreUnavailable):
        call()
    store.reads, store.writes = True, False
    with pytest.raises(StoreUnavailable):
        call()
    assert calls == []
    store.writes = True
    assert (call(), call(), len(calls)) == (5, 5, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_bypass_and_refresh(any_store: Store, kind: str) -> None:
    numbers = itertools.count()
    call, calls, cache = make(kind, lambda: next(numbers), store=any_store)

    def value() -> Any:
        got = call()
        return got[0] if "generator" in kind else got

    assert (value(), value()) == (0, 0)
    with bypass():
        assert value() == 1
    assert value() == 0
    with refresh():
        assert value() == 2
    assert (value(), len(calls)) == (2, 3)
    cache.pool.enable_write = False
    assert value() == 2
    cache.pool.enabled = False
    assert (value(), value()) == (3, 4)


@pytest.mark.parametrize("kind", KINDS)
def test_a_refresh_whose_result_is_not_kept_takes_the_older_one_away(any_store: Store, kind: str) -> None:
    results = iter(["old", object(), "new"])
    call, calls, _ = make(kind, lambda: next(results), store=any_store)
    first = call()
    with refresh():
        call()
    assert call() != first
    assert (call(), len(calls)) == (call(), 3)


def test_a_refresh_whose_result_is_not_kept_takes_away_what_the_clock_of_another_machine_made_newer() -> None:
    clock, results = FakeClock(), iter(["old", object(), "new"])
    f = cached(pool=ExperiencePool(MemoryStore(), clock=clock))(lambda: next(results))
    assert f() == "old"
    clock.advance(-60)
    with refresh():
        f()
    assert f() == "new"


@pytest.mark.parametrize("meanwhile", ["another result", "another failure", "others removed"])
def test_a_refresh_that_comes_too_late_to_be_kept_leaves_no_older_result(meanwhile: str) -> None:
    numbers = itertools.count()

    @cached(store=MemoryStore())
    def f() -> str:
        number = next(numbers)
        if number == 1 and meanwhile == "others removed":
            f.cache.pool.invalidate(lambda _: False)
        elif number == 1:
            with refresh(), contextlib.suppress(ZeroDivisionError):
                f()
        elif number == 2 and meanwhile == "another failure":
            raise ZeroDivisionError
        return f"result {number}"

    assert f() == "result 0"
    with refresh():
        assert f() == "result 1"
    assert f() == ("result 3" if meanwhile == "another failure" else "result 2")
    assert f() == f()


def test_a_refresh_that_is_refused_takes_the_older_one_away_and_one_that_fails_does_not(any_store: Store) -> None:
    results: Iterator[Any] = iter([1, ZeroDivisionError(), -1, 2])

    @cached(store=any_store, should_store=lambda result: result > 0)
    def f() -> Any:
        result = next(results)
        if isinstance(result, Exception):
            raise result
        return result

    assert f() == 1
    with refresh(), pytest.raises(ZeroDivisionError):
        f()
    assert f() == 1
    with refresh():
        assert f() == -1
    assert (f(), f()) == (2, 2)


def test_a_bypass_asks_for_no_key() -> None:
    call, calls, _ = make("function", lambda it: "made", store=MemoryStore())
    with pytest.raises(ConfigurationError, match="cannot tell one call from another"):
        call(object())
    with bypass():
        assert (call(object()), len(calls)) == ("made", 1)


def test_nothing_is_opened_before_the_first_call(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.chdir(tmp_path)

    @cached
    def f() -> int:
        return 1

    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv("LANGMEM_STORE_URL", f"sqlite:///{tmp_path}/mine.db")
    assert (f(), f()) == (1, 1)
    assert (tmp_path / "mine.db").exists()
    assert not (tmp_path / "langmem.db").exists()


def test_no_argument_is_at_rest_unless_something_reads_it(tmp_path: Any) -> None:
    store = SQLiteStore(tmp_path / "s.db")

    @cached(store=store, scorer=lambda req, resp: 9 if req == "sk-secret" else 1)  # who is shown it
    def f(api_key: str) -> str:
        return "answer"

    f("sk-secret")
    f.cache.flush()
    store.close()
    raw = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"answer" in raw
    assert b'"val":9' in raw
    assert b"sk-secret" not in raw


# --- streams


def test_a_broken_off_stream_is_not_kept(any_store: Store) -> None:
    closed = []

    @cached(store=any_store)
    def stream(n: int) -> Iterator[int]:
        try:
            yield from range(n)
        finally:
            closed.append(n)

    one = stream(3)
    assert next(one) == 0
    one.close()  # type: ignore[attr-defined]
    assert closed == [3]
    for _ in stream(3):
        break
    gc.collect()
    assert stream.cache.pool.count() == 0
    assert list(stream(3)) == list(stream(3)) == [0, 1, 2]
    assert len(closed) == 3


async def test_a_broken_off_async_stream_is_not_kept(any_store: Store) -> None:
    closed = []

    @cached(store=any_store)
    async def stream(n: int) -> AsyncIterator[int]:
        try:
            for i in range(n):
                yield i
        finally:
            closed.append(n)

    one = stream(3)
    assert await one.__anext__() == 0
    await one.aclose()  # type: ignore[attr-defined]
    assert closed == [3]
    assert await stream.cache.pool.acount() == 0
    assert [i async for i in stream(3)] == [i async for i in stream(3)] == [0, 1, 2]
    assert len(closed) == 2


def test_a_stream_that_is_spoken_to_is_not_kept_and_hears_everything() -> None:
    @cached(store=MemoryStore())
    def echo() -> Generator[Any, Any, Any]:
        got: Any = "ready"
        while got != "stop":
            try:
                got = yield got
            except KeyError as error:
                got = error.args[0]
        return "returned"

    for _ in range(2):
        talk = echo()
        assert (next(talk), talk.send("a"), talk.throw(KeyError("b"))) == ("ready", "a", "b")
        with pytest.raises(StopIteration) as end:
            talk.send("stop")
        assert end.value.value == "returned"
    assert echo.cache.stats()["stored"] == 0


def test_a_stream_that_an_error_was_thrown_into_is_not_kept() -> None:
    @cached(store=MemoryStore())
    def f() -> Generator[str, None, None]:
        try:
            yield "a"
        except KeyError:
            yield "only after an error"

    stream = f()
    assert (next(stream), stream.throw(KeyError())) == ("a", "only after an error")
    assert list(stream) == []
    assert f.cache.pool.count() == 0


async def test_an_async_stream_that_is_spoken_to_is_not_kept_and_hears_everything() -> None:
    @cached(store=MemoryStore())
    async def echo() -> typing.AsyncGenerator[Any, Any]:
        got: Any = "ready"
        while got != "stop":
            try:
                got = yield got
            except KeyError as error:
                got = error.args[0]

    for _ in range(2):
        talk = echo()
        assert (await talk.asend(None), await talk.asend("a"), await talk.athrow(KeyError("b"))) == ("ready", "a", "b")
        with pytest.raises(StopAsyncIteration):
            await talk.asend("stop")
    assert echo.cache.stats()["stored"] == 0


async def test_a_stream_out_of_the_cache_cannot_be_spoken_to() -> None:
    @cached(store=MemoryStore())
    def talk() -> Generator[str, Any, None]:
        heard = yield "ready"
        yield f"heard {heard}"

    @cached(store=MemoryStore())
    async def atalk() -> AsyncGenerator[str, Any]:
        heard = yield "ready"
        yield f"heard {heard}"

    assert list(talk()) == list(talk()) == [each async for each in atalk()] == ["ready", "heard None"]
    served, aserved = talk(), atalk()
    assert (next(served), await aserved.__anext__()) == ("ready", "ready")
    with pytest.raises(ConfigurationError, match="a cached stream cannot be sent a value"):
        served.send("a")
    with pytest.raises(ConfigurationError, match="a cached stream cannot be sent a value"):
        await aserved.asend("a")


def test_an_empty_stream_is_a_hit_and_two_of_one_kind_do_not_wait_for_each_other() -> None:
    calls = []

    @cached(store=MemoryStore())
    def f(n: int) -> Iterator[int]:
        calls.append(n)
        yield from range(n)

    assert (list(f(0)), list(f(0)), calls) == ([], [], [0])
    before = time.monotonic()
    assert list(zip(f(2), f(2), strict=True)) == [(0, 0), (1, 1)]
    assert time.monotonic() - before < 5


# --- C5: poison


def _poison() -> dict[str, Callable[[dict[str, Any]], bytes]]:
    return {
        "not JSON": lambda record: b"\xff\xfe\x00 no JSON",
        "wrong version": lambda record: json.dumps({**record, "v": 99}).encode(),
        "wrong type": lambda record: json.dumps({**record, "resp": {"name": ["no", "name"]}}).encode(),
        "truncated": lambda record: json.dumps(record).encode()[:-9],
        "foreign class": lambda record: json.dumps(
            {**record, "resp": {"$type": "os.system", "$value": "touch pwned"}}
        ).encode(),
        "huge": lambda record: b'{"v":1,"form":"typed","resp":' + b"[" * 2_000_000,
        "absent field": lambda record: json.dumps({k: v for k, v in record.items() if k != "resp"}).encode(),
        "absent form": lambda record: json.dumps({k: v for k, v in record.items() if k != "form"}).encode(),
        "foreign form": lambda record: json.dumps({**record, "form": "os.system"}).encode(),
        "another class's constructor": lambda record: json.dumps(
            {**record, "resp": {"lc": 1, "type": "secret", "id": ["PATH"]}}
        ).encode(),
    }


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("poison", _poison())
def test_c5_a_poisoned_record_is_a_miss_and_is_healed(any_store: Store, kind: str, poison: str) -> None:
    call, calls, cache = make(kind, lambda: PARIS, store=any_store, returns=City, tag="t")
    wanted = call()
    place = ("experience", "", "", "t")
    ((key, data),) = any_store.get(place).items()
    any_store.write(place, put={key: _poison()[poison](json.loads(data))})
    assert is_same(call(), wanted)
    assert len(calls) == 2
    assert is_same(call(), wanted)
    assert (len(calls), cache.pool.stats()["unreadable"]) == (2, 1)
    assert set(any_store.get(place)) == {key}


def test_c5_a_response_that_was_lost_is_not_taken_for_none() -> None:
    store = MemoryStore()
    call, calls, _ = make("function", lambda: 5, store=store, tag="t")
    call()
    ((key, data),) = store.get(("experience", "", "", "t")).items()
    lost = {name: value for name, value in json.loads(data).items() if name != "resp"}
    store.write(("experience", "", "", "t"), put={key: json.dumps(lost).encode()})
    assert (call(), len(calls)) == (5, 2)


def test_c5_a_type_that_has_changed_is_a_miss() -> None:
    store = MemoryStore()
    make("function", lambda: 5, store=store, returns=int, tag="t")[0]()
    call, calls, _ = make("function", lambda: "five", store=store, returns=str, tag="t")
    assert (call(), call(), len(calls)) == ("five", "five", 1)


# --- what is kept, and until when


def test_should_store_ttl_and_bounds() -> None:
    clock = FakeClock()
    call, calls, cache = make("function", lambda x: x, store=MemoryStore(), should_store=bool, ttl=60, clock=clock)
    assert (call(0), call(0), len(calls)) == (0, 0, 2)
    assert (call(1), call(1), len(calls)) == (1, 1, 3)
    clock.advance(61)
    assert (call(1), len(calls)) == (1, 4)
    assert cache.stats()["refused"] == 2
    options: dict[str, Any] = {"should_store": any, "metric": None, "max_entries": 2}
    call, calls, cache = make("generator", lambda x: x, store=MemoryStore(), **options)
    for n in (0, 1, 2, 3, 0):
        call(n)
    assert (len(calls), cache.pool.count()) == (5, 2)


def test_part7_what_hits_have_saved() -> None:
    ticks = itertools.count(0, 2)
    call, _, cache = make(
        "function",
        lambda: {"in": 1000, "out": 500},
        store=MemoryStore(),
        prices={"small": (1.0, 2.0)},
        metric=lambda got: Metric.model_validate(
            {"model": "small", "input_tokens": got["in"], "output_tokens": got["out"]}
        ),
        timer=lambda: float(next(ticks)),
        wait=0,
        should_store=None,
    )
    for _ in range(3):
        call()
    assert cache.pool.saved() == (4.0, 3000, 0.004)


# --- what is refused at once


def test_a_pool_goes_with_the_defaults_of_what_it_has_itself() -> None:
    options: dict[str, Any] = {"user": "", "tenant": "", "ttl": None, "max_entries": None, "prices": None}
    assert cached(pool=ExperiencePool(MemoryStore()), tag=None, index=None, **options)(len)("ab") == 2


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"url": "memory:", "store": MemoryStore()}, "one of url, store and pool"),
        ({"pool": ExperiencePool(MemoryStore()), "ttl": 5}, "a pool has its own tag, index, bounds"),
        ({"pool": ExperiencePool(MemoryStore()), "tag": "x"}, "a pool has its own tag, index, bounds"),
        ({"ignore": ["z"]}, "has no argument 'z'; it has a, b"),
        ({"ignore": "a"}, 'a list of names, such as \\["timeout"\\]'),
        ({"key": {"z": len}}, "has no argument 'z'"),
        ({"on_error": "x"}, 'on_error is "degrade" or "raise"'),
        ({"query_type": "near"}, 'query_type is "exact" or "semantic"'),
        ({"query_type": "semantic"}, "needs a judge"),
        ({"query_type": "semantic", "judge": AtLeast(7)}, "needs a judge.*, not only the scores, as AtLeast"),
        ({"context_builder": lambda req, exps: req}, "which argument of .* is the request"),
        ({"request": "no_such"}, "which argument of .* is the request"),
        ({"serializer": 5}, "a serializer has serialize_req"),
        ({"serializer": asyncio.sleep}, "the serializer is a coroutine function: give it a plain one"),
        ({"serializer": Awaited()}, "the serializer's serialize_resp is a coroutine function"),
        ({"scorer": LLMScorer}, r"scorer is an object, LLMScorer\(…\), and not its class"),
        ({"judge": AtLeast}, r"judge is an object, AtLeast\(…\), and not its class"),
        ({"serializer": JsonSerializer}, r"a serializer is an object, JsonSerializer\(…\), and not its class"),
        ({"colour": "red"}, "cached has no option colour"),
        ({"prices": {"m": 5}, "wait": -1}, "wait is a number of seconds"),
        ({"wait": "3"}, "wait is a number of seconds, or 0, not '3'"),
        ({"wait": float("inf")}, "wait is a number of seconds, or 0, not inf"),
        ({"k": "4"}, "k is a whole number of at least 0, not '4'"),
        ({"key": "a"}, "key is a function, or a dictionary of functions"),
        ({"key": {"a": "id"}}, "key is a function, or a dictionary of functions"),
        ({"ignore": 5}, "ignore is a list of names"),
        ({"pool": "sqlite:///x.db"}, "a pool is what ExperiencePool\\(…\\) gives, not str"),
        ({"should_store": asyncio.sleep}, "should_store is a coroutine function: give it a plain one"),
        ({"metric": asyncio.sleep}, "metric is a coroutine function: give it a plain one"),
        ({"returns": 5}, r"returns is a type, such as int or list\[str\], not 5"),
        ({"returns": [int]}, "returns is a type, .*, not "),
        ({"returns": len}, "returns is a type, .*, not <built-in function len>"),
        ({"timer": 5}, "timer is a function, .*, not 5"),
        ({"sleep": None}, "sleep is a function, or is left out, and not None"),
    ],
)
def test_wrong_options_are_refused_in_a_sentence(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):

        @cached(**options)
        def f(a: int, b: int) -> int:
            return a


def test_a_decision_that_must_be_awaited_is_no_yes() -> None:
    async def is_worth_keeping() -> bool:
        return False

    @cached(store=MemoryStore(), should_store=lambda _: is_worth_keeping())  # type: ignore[arg-type, return-value]
    def f() -> int:
        return 1

    with pytest.raises(ConfigurationError, match="should_store gave what must be awaited: give it a plain function"):
        f()
    assert f.cache.lookup() is None


async def test_an_object_that_is_called_like_a_coroutine_function_is_one() -> None:
    class Ask(BaseModel):
        style: str
        asked: ClassVar[list[str]] = []

        async def __call__(self, question: str) -> str:
            self.asked.append(question)
            return f"{self.style} {question}"

    ask = cached(store=MemoryStore())(Ask(style="brief"))
    assert [await ask("why"), await ask("why"), Ask.asked] == ["brief why", "brief why", ["why"]]


def test_what_cannot_be_decorated_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="put @classmethod above @cached"):

        class Class:
            @cached
            @classmethod
            def f(cls) -> None: ...

    with pytest.raises(ConfigurationError, match="cached decorates functions, not int"):
        cached(5)  # type: ignore[call-overload]
    with pytest.raises(ConfigurationError, match="min does not say which arguments it takes"):
        cached(store=MemoryStore())(min)
    with pytest.raises(ConfigurationError, match="not RunnableLambda: put it below the decorator that made this"):

        @cached  # type: ignore[call-overload]
        @chain
        def g(question: str) -> str:
            return question


def test_a_pool_of_ones_own() -> None:
    pool = ExperiencePool(MemoryStore(), tag="mine")
    calls = []

    @cached(pool=pool)
    def f(a: int) -> int:
        calls.append(a)
        return a

    assert (f(1), f(1), pool.count(), calls) == (1, 1, 1, [1])
    assert f.cache.pool is pool
    assert isinstance(f.cache.lookup(1), Experience)


async def test_the_faces_of_a_cache_in_async_code() -> None:
    call = cached(store=MemoryStore())(_double)
    assert await call(2) == 4
    cache = call.cache
    found = await cache.alookup(2)
    assert found is not None
    assert found.resp == 4
    assert (await cache.ainvalidate(2), await cache.ainvalidate(2), await cache.alookup(2)) == (True, False, None)


async def _double(n: int) -> int:
    return n * 2


# --- classes -------------------------------------------------------------------------------------------------


def test_a_class_counts_by_what_its_instances_hold() -> None:
    @cached(url="memory:")
    def fields_of(schema: type[BaseModel]) -> list[str]:
        return list(schema.model_fields)

    opaque = [
        create_model("Answer", __config__=ConfigDict(arbitrary_types_allowed=True), **{name: (kind, ...)})  # type: ignore[call-overload]
        for name, kind in (("a", object), ("a", threading.Event), ("b", threading.Event))
    ]
    of_data = [create_model("Answer", city=(str, ...)), create_model("Answer", price=(float, ...))]
    assert [fields_of(schema) for schema in of_data + opaque] == [["city"], ["price"], ["a"], ["a"], ["b"]]
    keys = {fingerprint(identity(schema)) for schema in of_data + opaque}
    assert len(keys) == 5
    assert fingerprint(identity(of_data[0])) == fingerprint(identity(create_model("Answer", city=(str, ...))))


_MAKERS: dict[str, Callable[[Any], type]] = {
    "model": lambda default: create_model("Answer", x=(Any, default), of=(Any, object())),
    "dataclass": lambda default: dataclasses.make_dataclass("Answer", [("x", Any, default), ("of", Any, object())]),
    "pydantic dataclass": lambda default: pydantic_dataclass(
        dataclasses.make_dataclass("Answer", [("x", Any, Field(default=default))])
    ),
}


@pytest.mark.parametrize("make", _MAKERS.values(), ids=_MAKERS)
def test_a_class_counts_by_its_defaults_in_whatever_order_a_set_is(make: Callable[[Any], type]) -> None:
    defaults = [(frozenset(numbers), 1) for numbers in ([0, 8], [8, 0], [8, 1])]
    assert [list(numbers) for numbers, _ in defaults[:2]] == [[0, 8], [8, 0]]  # as words differ between processes
    one, same, other = (fingerprint(identity(make(default))) for default in defaults)
    assert one == same != other


def typed_dict(*, total: bool) -> type:
    if total:

        class Answer(TypedDict):
            x: int
    else:

        class Answer(TypedDict, total=False):  # type: ignore[no-redef]
            x: int

    return Answer


@pytest.mark.parametrize(
    "fields",
    [
        {"_fields": property(list)},
        {"_fields": None},
        {"_fields": [("x", int)]},
        {"__optional_keys__": ["x"]},
        {"__optional_keys__": frozenset({"x"})},
    ],
    ids=["property", "nothing", "pairs", "keys in a list", "keys without types"],
)
def test_a_class_counts_that_names_something_of_its_own_as_named_tuples_and_typed_dicts_do(
    fields: dict[str, Any],
) -> None:
    call, calls, _ = make("function", lambda kind: kind.__name__, store=MemoryStore())
    assert [call(type("Answer", (tuple,), fields)) for _ in range(2)] == ["Answer"] * 2
    assert len(calls) == 1


def tuple_class(name: str, **defaults: Any) -> type:
    return namedtuple("Answer", name, **defaults)  # noqa: PYI024 - the kind without types


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda: typed_dict(total=True), lambda: typed_dict(total=False)),
        (lambda: tuple_class("x"), lambda: tuple_class("y")),
        (lambda: tuple_class("x", defaults=[1]), lambda: tuple_class("x", defaults=[2])),
        (lambda: NamedTuple("Answer", [("x", int)]), lambda: NamedTuple("Answer", [("x", str)])),
        (
            lambda: type("Answer", (type("Base", (), {"__annotations__": {"x": int}}),), {}),
            lambda: type("Answer", (type("Base", (), {"__annotations__": {"x": str}}),), {}),
        ),
    ],
    ids=["optional keys", "names", "defaults", "types", "inherited"],
)
def test_a_class_of_another_kind_counts_by_its_fields_too(one: Callable[[], type], other: Callable[[], type]) -> None:
    assert fingerprint(identity(one())) == fingerprint(identity(one())) != fingerprint(identity(other()))


def test_values_of_classes_in_two_modules_are_two() -> None:
    def user_of(module: str) -> Any:
        made = dataclasses.make_dataclass("User", ["id"])
        made.__module__ = module
        return made(1)

    shop, crm, again = user_of("shop"), user_of("crm"), user_of("shop")
    assert fingerprint(identity(shop)) == fingerprint(identity(again)) != fingerprint(identity(crm))
    assert fingerprint(identity(type(shop))) != fingerprint(identity(type(crm)))
    assert fingerprint(identity(enum.Enum("Size", "S M"))) != fingerprint(identity(enum.Enum("Size", "S L")))
