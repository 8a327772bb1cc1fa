"""No function is served what another one has returned (F2b, C10), and each finds its own in another process."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import decimal
import functools
import itertools
import logging
import operator
import os
import re
import subprocess
import sys
import threading
import typing
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest
from pydantic import BaseModel

from langmem_adapters import ConfigurationError, ExperiencePool, cached
from langmem_adapters.experience.functions.naming import as_setting, function_identity
from langmem_adapters.experience.functions.values import name_of
from langmem_adapters.protocols import Store
from langmem_adapters.stores.memory import MemoryStore


def capital(country: str) -> str:
    return {"France": "Paris"}[country]


def currency(country: str) -> str:
    return {"France": "Euro"}[country]


def looked_up(tenant: str) -> Callable[[str], str]:
    def look_up(what: str) -> str:
        return f"{tenant}: {what}"

    return look_up


def both(functions: Sequence[Any], *args: Any, store: Store | None = None, **options: Any) -> list[Any]:
    """What each returns when it is called twice, all on one store."""
    store = store or MemoryStore()
    found = [cached(store=store, **options)(function) for function in functions]
    return [call(*args) for call in found for _ in range(2)][::2]


def test_functions_of_one_tag_or_pool_have_results_of_their_own(any_store: Store) -> None:
    assert both([capital, currency], "France", store=any_store, tag="geography") == ["Paris", "Euro"]
    pool = ExperiencePool(any_store, tag="pool")
    assert [cached(pool=pool)(function)("France") for function in (capital, currency)] == ["Paris", "Euro"]


def test_methods_of_one_name_and_lambdas_have_results_of_their_own_in_one_pool_too(any_store: Store) -> None:
    pool = ExperiencePool(any_store, tag="pool")

    class Capital:
        @cached(pool=pool)
        def ask(self, country: str) -> str:
            return f"Paris of {country}"

    class Currency:
        @cached(pool=pool)
        def ask(self, country: str) -> str:
            return f"Euro of {country}"

    class Gold(Currency):
        pass

    answers = ["Paris of France", "Euro of France", "Euro of France"] * 2
    assert [made().ask("France") for made in (Capital, Currency, Gold) * 2] == answers
    assert (Capital.ask.cache.stats()["hits"], Currency.ask.cache.stats()["hits"]) == (1, 2)
    lambdas = [lambda x: x + 1, lambda x: x * 2]
    assert [cached(pool=pool)(each)(5) for each in lambdas * 2] == [6, 10, 6, 10]
    assert both(lambdas, 5, store=any_store, tag="numbers") == [6, 10]


def test_lambdas_are_told_apart_by_their_code() -> None:
    assert both([lambda x: 2 * x, lambda x: x * x, lambda x: x in {"a", "b"}], 5) == [10, 25, False]
    assert both([lambda x: max(x, 1), lambda x: min(x, 1)], 5) == [5, 1]
    assert both([lambda x: sorted(x, key=lambda y: y), lambda x: sorted(x, key=lambda y: -y)], [1, 2]) == [
        [1, 2],
        [2, 1],
    ]
    store = MemoryStore()
    swapped = [cached(store=store)(each) for each in (lambda x, y: x or y, lambda y, x: y or x)]
    assert [swapped[0](1, 2), swapped[1](2, 1)] == [1, 2]
    assert function_identity(lambda: lambda *a: a) != function_identity(lambda: lambda **a: a)


def test_what_another_function_has_made_is_told_apart_by_what_it_holds() -> None:
    assert both([looked_up("acme"), looked_up("globex")], "revenue") == ["acme: revenue", "globex: revenue"]


def test_a_function_that_holds_another_is_told_apart_by_that() -> None:
    def twice(inner: Callable[[str], str]) -> Callable[[str], str]:
        def call(what: str) -> str:
            return inner(what) * 2

        return call

    assert both([twice(looked_up("a")), twice(looked_up("b"))], "!") == ["a: !a: !", "b: !b: !"]


def test_what_a_function_changes_itself_is_no_part_of_it() -> None:
    """It would not find its own results again."""

    def made(start: int, places: Iterator[int]) -> Callable[[int], int]:
        calls, gate, results = start, threading.Lock(), list[int]()

        def count(n: int) -> int:
            nonlocal calls
            with gate:
                calls += next(places)
                results.append(n)
            return n

        cached(store=MemoryStore())(count)(1)
        return count

    assert function_identity(made(0, itertools.count(1))) == function_identity(made(5, itertools.count(2)))


def test_a_function_that_calls_itself_or_two_that_call_each_other() -> None:
    @cached(store=MemoryStore())
    def factorial(n: int) -> int:
        return n * factorial(n - 1) if n else 1

    assert factorial(5) == 120

    def even(n: int) -> bool:
        return n == 0 or odd(n - 1)

    def odd(n: int) -> bool:
        return n != 0 and even(n - 1)

    assert both([even, odd], 4) == [True, False]


def test_the_variables_for_a_function_and_its_class_count_neither_before_nor_when_they_have_a_value() -> None:
    keys: list[str] = []

    def noted(function: Any) -> Any:
        keys.append(function.cache.calls.arguments.key({}))
        return function

    @noted
    @cached(store=MemoryStore())
    def count_down(number: int) -> list[int]:
        return [number, *count_down(number - 1)] if number else []

    class Asking:
        @noted
        @cached(store=MemoryStore())
        def say(self) -> str:
            return super().__repr__()

    assert count_down(2) == [2, 1]
    assert keys == [function.cache.calls.arguments.key({}) for function in (count_down, Asking.say)]


def test_what_stands_below_a_decorated_function_tells_it_from_others_too() -> None:
    store = MemoryStore()

    def made(tenant: str) -> Any:
        def ask(what: str) -> str:
            return answer(what)

        @cached(store=store)
        def look_up(what: str, depth: int = 1) -> str:
            return look_up(what, 0) if depth else f"{ask(what)}{mark}"

        def answer(what: str) -> str:
            return f"{tenant}: {what}"

        mark = "!" if tenant == "acme" else "?"
        return look_up

    assert [made(tenant)("revenue") for tenant in ("acme", "globex")] == ["acme: revenue!", "globex: revenue?"]
    again = made("acme")
    assert again.cache.lookup("revenue").resp == "acme: revenue!"
    assert again("revenue") == "acme: revenue!"
    assert again.cache.stats()["hits"] == 1


def test_what_has_no_value_yet_at_the_first_call_counts_as_soon_as_it_has_one() -> None:
    store = MemoryStore()

    def made(tenant: str) -> Any:
        @cached(store=store)
        def look_up(what: str) -> str:
            return tenant_name if what else ""

        assert look_up("") == ""
        tenant_name = tenant
        return look_up

    assert [made(tenant)("name") for tenant in ("acme", "globex")] == ["acme", "globex"]


@pytest.mark.parametrize("held", [functools.lru_cache, functools.partial, lambda inner: inner])
def test_what_stands_below_a_helper_counts_too_however_it_is_held(held: Any) -> None:
    store = MemoryStore()

    def made(tenant: str) -> list[Any]:
        def name(what: str) -> str:
            return f"{tenant_name}: {what}"

        helper, helpers = held(name), [held(name)]
        functions: list[Any] = [
            lambda what: helper(what) + "?",
            lambda what: helpers[0](what) + "!",
            functools.partial(helper),
        ]
        functions = [cached(store=store)(function) for function in functions]
        tenant_name = tenant
        return functions

    for tenant in ("acme", "globex"):
        assert [f("revenue") for f in made(tenant)] == [f"{tenant}: revenue{end}" for end in ("?", "!", "")]


async def awaited(n: int) -> int:
    return n


def streamed(n: int) -> Iterator[int]:
    yield n


async def streamed_later(n: int) -> AsyncIterator[int]:
    yield n


WRAPPERS: list[tuple[Callable[..., Any], str, str]] = [
    (capital, "args kwargs turn value", "Invocation args begin finish held kwargs led run score_later served value"),
    (
        awaited,
        "args kwargs turn value",
        "Invocation afinish args arun begin held kwargs led score_later served value",
    ),
    (
        streamed,
        "args kwargs turn item items stream returned sent error end",
        (
            "BaseException GeneratorExit Invocation StopIteration _Items _hears_nothing add args begin close end finish"
            " frozen keeps kwargs next note refused run score_later send served spoil throw value whole"
        ),
    ),
    (
        streamed_later,
        "args kwargs turn item items stream sent error",
        (
            "BaseException GeneratorExit Invocation StopAsyncIteration _Items __anext__ _hears_nothing aclose add"
            " afinish args arun asend athrow begin frozen keeps kwargs note refused score_later served spoil value"
            " whole"
        ),
    ),
]


@pytest.mark.parametrize(("function", "variables", "names"), WRAPPERS, ids=lambda value: getattr(value, "__name__", ""))
def test_the_names_in_a_wrapper_stay(function: Callable[..., Any], variables: str, names: str) -> None:
    """They are part of the identity of a function that holds a lambda with a cache: others would lose its results."""
    wrapper: Any = cached(url="memory:")(function)
    code = wrapper.__code__
    assert (" ".join(code.co_varnames), " ".join(sorted(code.co_names))) == (variables, names)


def test_what_a_function_holds_counts_as_it_is_at_the_call(any_store: Store) -> None:
    tenant, asked = "acme", itertools.count(1)

    def inner(what: str) -> str:
        return f"{tenant}: {what}"

    @cached(store=any_store)
    def look_up(what: str) -> str:
        next(asked)
        return inner(what)

    @cached(store=any_store)
    def direct(what: str) -> str:
        return f"{tenant}: {what}"

    @cached(store=any_store)
    @functools.wraps(inner)
    def namesake(what: str) -> str:
        return inner(what)

    for tenant in ("acme", "globex", "acme"):
        assert [look_up("revenue"), direct("revenue"), namesake("revenue")] == [f"{tenant}: revenue"] * 3
    assert (next(asked), look_up.cache.stats()["hits"], direct.cache.stats()["hits"]) == (3, 1, 1)


def test_an_object_and_a_partial_count_as_they_are_at_the_call(any_store: Store) -> None:
    prompt, prompts = Prompt("a {}"), {"x": "a ?"}
    functions: list[Any] = [prompt, prompt.ask, functools.partial(Prompt.ask, prompt)]
    asks: list[Any] = [cached(store=any_store)(function) for function in functions]
    found = cached(store=any_store)(prompts.get)
    assert [*(ask("?") for ask in asks), found("x")] == ["a ?"] * 4
    prompt.template = prompts["x"] = "b {}"
    assert [*(ask("?") for ask in asks), found("x")] == [*["b ?"] * 3, "b {}"]
    assert [cached(store=any_store)(each.join)("xy") for each in ("-", "+")] == ["x-y", "x+y"]


class Saying:
    """A decorator that is a class."""

    def __init__(self, function: Callable[[str], str], before: str) -> None:
        functools.update_wrapper(self, function)
        self.function, self.before = function, before

    def __call__(self, what: str) -> str:
        return self.before + self.function(what)


def test_what_a_decorator_below_keeps_in_an_object_or_a_default_counts() -> None:
    def said(what: str) -> str:
        return what

    def after(end: str) -> Callable[[str], str]:
        @functools.wraps(said)
        def call(*args: str, end: str = end) -> str:
            return said(*args) + end

        return call

    def around(inner: Callable[[str], str]) -> Callable[[str], str]:
        return lambda what: inner(what.strip())

    assert both([Saying(said, "a "), Saying(said, "b ")], "?") == ["a ?", "b ?"]
    assert both([around(Saying(said, "a ")), around(Saying(said, "b "))], "?") == ["a ?", "b ?"]
    assert both([after("!"), after(".")], "?") == ["?!", "?."]


def test_what_cannot_be_told_when_it_has_its_value_is_said_at_each_call_and_no_others_result_is_served() -> None:
    store = MemoryStore()

    def made(tenant: str) -> Any:
        @cached(store=store)
        def look_up(what: str) -> str:
            return f"{thread.name}: {what}"

        thread = threading.Thread(name=tenant)
        return look_up

    for look_up in (made("acme"), made("globex")):
        for _ in range(2):
            with pytest.raises(ConfigurationError, match="holds a value of type Thread of the function that made it"):
                look_up("revenue")


def test_partials_are_told_apart_by_what_they_have() -> None:
    partial = functools.partial
    assert both([partial(operator.add, 1), partial(operator.sub, 1)], 5) == [6, -4]
    assert both([partial(operator.add, 1), partial(operator.add, -1)], 5) == [6, 4]
    assert both([partial(pow, exp=2), partial(pow, exp=3)], 5) == [25, 125]
    with pytest.raises(ConfigurationError, match="name its cache with tag="):
        cached(store=MemoryStore())(functools.partial(isinstance, object()))


class Client:
    def __init__(self, name: str) -> None:
        self.name = name

    def ask(self, question: str) -> str:
        return f"{self.name}: {question}"

    def __call__(self, question: str) -> str:
        return self.ask(question)

    @classmethod
    def kind(cls, question: str) -> str:
        return f"{cls.__name__}: {question}"


class Other(Client):
    pass


@dataclasses.dataclass
class Prompt:
    template: str

    def ask(self, question: str) -> str:
        return self.template.format(question)

    __call__ = ask


class Model(BaseModel):
    name: str

    def ask(self, question: str) -> str:
        return f"{self.name}: {question}"


def _held(value: Any) -> Callable[[str], str]:
    def ask(question: str) -> str:
        return f"{value}: {question}"

    return ask


def _default(name: str) -> Callable[[], str]:
    def named(own: str = name) -> str:
        return own

    return named


HELD: list[tuple[Any, Any]] = [
    ({"who": "ACME"}, {"who": "Globex"}),
    (["ACME"], ["Globex"]),
    ({"ACME"}, {"Globex"}),
    ({"deep": [{"who": ("ACME",)}]}, {"deep": [{"who": ("Globex",)}]}),
    (Model(name="ACME"), Model(name="Globex")),
    (Prompt("a {}"), Prompt("b {}")),
    (Model(name="ACME").ask, Model(name="Globex").ask),
    ({"a": 1}.get, {"a": 2}.get),
    (functools.partial(pow, 2), functools.partial(pow, 3)),
    ([looked_up("ACME")], [looked_up("Globex")]),
    (_default("ACME"), _default("Globex")),
    (functools.lru_cache(looked_up("ACME")), functools.lru_cache(looked_up("Globex"))),
    (cached(url="memory:")(looked_up("ACME")), cached(url="memory:")(looked_up("Globex"))),
    (KeyError("ACME"), KeyError("Globex")),
    (decimal.Decimal("1.0"), decimal.Decimal("1.5")),
    (logging.getLogger("acme"), logging.getLogger("globex")),
    (operator, functools),
    (Client, Other),
]


@pytest.mark.parametrize(("one", "other"), HELD, ids=lambda held: type(held).__name__)
def test_data_that_a_function_holds_counts_by_value(one: Any, other: Any) -> None:
    assert both([_held(one), _held(other)], "hi") == [f"{one}: hi", f"{other}: hi"]
    assert function_identity(_held(one)) == function_identity(_held(one if one is operator else copy.deepcopy(one)))


@pytest.mark.parametrize("held", [Client("ada"), Client("ada").ask, [Client("ada")], {"a": object()}, Prompt])
def test_a_function_that_holds_what_is_no_data_needs_a_tag(held: Any) -> None:
    """Two clients at one place would have each other's answers."""
    if held is Prompt:
        held = dataclasses.replace(Prompt(""), template=typing.cast(str, object()))  # no data inside of data
    with pytest.raises(ConfigurationError, match=r"_held.*ask holds a .* name its cache with tag="):
        cached(store=MemoryStore())(_held(held))
    assert cached(store=MemoryStore(), tag="ada")(_held(held))("?") == f"{held}: ?"


def test_what_a_decorator_holds_needs_a_tag_or_the_decorator_above() -> None:
    def asked_by(client: Client) -> Callable[[Callable[[str], str]], Callable[[str], str]]:
        def decorate(function: Callable[[str], str]) -> Callable[[str], str]:
            return functools.wraps(function)(lambda question: client.ask(function(question)))

        return decorate

    decorate, other = asked_by(Client("ada")), asked_by(Client("bob"))
    told = (
        r"capital holds a value of type Client .*: put @cached below its other decorators, or name its cache with tag="
    )
    with pytest.raises(ConfigurationError, match=told):
        cached(store=MemoryStore())(decorate(capital))
    kept = cached(store=MemoryStore())(capital)
    assert decorate(kept)("France") != other(kept)("France")
    assert kept.cache.stats()["hits"] == 1


def test_a_function_with_a_cache_may_hold_others_of_each_kind() -> None:
    @cached(url="memory:")
    def numbers(n: int) -> Iterator[int]:
        yield from range(n)

    @cached(url="memory:")
    async def later(n: int) -> int:
        return n

    def made(n: int) -> Callable[[], list[int]]:
        return cached(url="memory:")(lambda: [*numbers(n), asyncio.run(later(n))])

    assert [made(n)() for n in (1, 2, 1)] == [[0, 1], [0, 1, 2], [0, 1]]


def test_what_goes_round_in_a_circle_is_no_data() -> None:
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(ConfigurationError, match="name its cache with tag="):
        cached(store=MemoryStore())(_held(circle))


def test_methods_of_objects_and_objects_are_told_apart_by_what_they_are_as_data() -> None:
    prompts = [Prompt("a {}"), Prompt("b {}")]
    assert both([prompt.ask for prompt in prompts], "?") == ["a ?", "b ?"]
    assert both(prompts, "?") == ["a ?", "b ?"]
    assert both([Model(name="a").ask, Model(name="b").ask], "?") == ["a: ?", "b: ?"]
    assert both([Client.kind, Other.kind], "?") == ["Client: ?", "Other: ?"]


@pytest.mark.parametrize("function", [Client("ada").ask, Client("ada")], ids=["method", "object"])
def test_an_object_that_is_no_data_needs_a_tag(function: Callable[[str], str]) -> None:
    with pytest.raises(
        ConfigurationError, match=r"nothing identifies the Client of .*Client.* name its cache with tag="
    ):
        cached(store=MemoryStore())(function)
    for place in ({"store": MemoryStore(), "tag": "ada"}, {"pool": ExperiencePool(MemoryStore())}):
        assert cached(**place)(function)("?") == "ada: ?"


def test_f2b_a_method_that_subclasses_inherit_has_results_of_each_class() -> None:
    class Base:
        topic = "base"

        @cached(store=MemoryStore())
        def ask(self, question: str) -> str:
            return f"{self.topic}: {question}"

    class Billing(Base):
        topic = "billing"

    class Medical(Base):
        topic = "medical"

    assert [cls().ask("hi") for cls in (Billing, Medical, Base) * 2] == ["billing: hi", "medical: hi", "base: hi"] * 2
    assert (Base.ask.cache.stats()["hits"], Base.ask.cache.stats()["misses"]) == (3, 3)
    found = Base.ask.cache.lookup("hi")
    assert found is not None
    assert found.resp == "base: hi"


def test_a_class_method_that_subclasses_inherit_has_results_of_each_class() -> None:
    class Base:
        @classmethod
        @cached(store=MemoryStore())
        def name(cls, suffix: str) -> str:
            return cls.__name__ + suffix

    class Sub(Base):
        pass

    assert [Sub.name("!"), Base.name("!"), Sub.name("!")] == ["Sub!", "Base!", "Sub!"]


@pytest.mark.parametrize("key", [{"self": lambda self: self.id}, lambda self: self.id], ids=["part", "whole"])
def test_a_key_of_its_own_for_the_object_is_all_that_counts_of_it(key: Any) -> None:
    class Base:
        id = 1

        @cached(store=MemoryStore(), key=key)
        def name(self) -> str:
            return type(self).__name__

    class Sub(Base):
        pass

    assert [Sub().name(), Base().name()] == ["Sub", "Sub"]


SCRIPT = """
import sys
from langmem_adapters import cached

def made(tenant):
    @cached(url=sys.argv[1])
    def look_up(what):
        print("asked")
        return f"{tenant} {what}"
    return look_up

for tenant in ("a", "b"):
    print(made(tenant)("x"), cached(lambda x: x in {"p", "q", "r", "s"}, url=sys.argv[1])("p"))
"""


def test_another_process_finds_the_results_of_each(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)

    def said() -> str:
        command = [sys.executable, str(tmp_path / "script.py"), f"sqlite:///{tmp_path / 'cache.db'}"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert said().split("\n") == ["asked", "a x True", "asked", "b x True", ""]
    assert said().split("\n") == ["a x True", "b x True", ""]


SPAWNING = """
import multiprocessing
import sys
from dataclasses import dataclass
from langmem_adapters import cached

@dataclass
class Question:
    text: str

@cached(url=sys.argv[1])
def ask(question):
    return f"asked by {sys.argv[2]} in {multiprocessing.current_process().name}"

if __name__ == "__main__":
    print(ask(Question("a")))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(*pool.map(ask, [Question("a"), Question("b")]), sep="\\n")
    print(ask(Question("b")))
"""


@pytest.mark.parametrize("module", [False, True])
def test_a_process_that_was_spawned_has_the_results_of_its_own_script(tmp_path: Path, *, module: bool) -> None:
    def said(name: str) -> list[str]:
        (tmp_path / f"{name}.py").write_text(SPAWNING)
        start = ["-m", name] if module else [f"{name}.py"]
        command = [sys.executable, *start, f"sqlite:///{tmp_path / 'cache.db'}", name]
        env = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), str(tmp_path)])}
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path, env=env)
        return re.sub(r"-\d+", "", done.stdout).splitlines()

    for name in ("one", "other"):
        here, there = f"asked by {name} in MainProcess", f"asked by {name} in SpawnPoolWorker"
        assert said(name) == [here, here, there, there]


ASK = "@cached(store=store)\ndef ask(question):\n    return 'Briefly: ' + question\n"
CELL = f"{ASK}answer = ask('hi')"
CALLED = """
@dataclass
class Prompt:
    end: str
    def __call__(self, question):
        return 'Briefly: ' + question + self.end
ask = cached(store=store)(Prompt(''))
answer = ask('hi')
"""


@pytest.mark.parametrize("file", [None, "cells.py", "<stdin>"], ids=["notebook", "window of VS Code", "standard input"])
@pytest.mark.parametrize(("cell", "name"), [(CELL, "ask"), (CALLED, "Prompt")], ids=["function", "object"])
def test_what_is_typed_in_anew_is_another_function(cell: str, name: str, file: str | None) -> None:
    """A notebook's cell that was edited and run again."""
    space: dict[str, Any] = {"__name__": "__main__", "cached": cached, "store": MemoryStore()}
    space["dataclass"] = dataclasses.dataclass
    main = sys.modules["__main__"]
    kept = main.__dict__.get("__file__"), main.__spec__
    try:
        main.__dict__.pop("__file__", None)
        main.__dict__.update(shown := {} if file is None else {"__file__": file})
        main.__spec__ = None
        space.update(shown)
        for code in (cell, "\n\n" + cell, cell.replace("Briefly", "At length")):
            exec(compile(code, "<stdin>", "exec"), space)  # as a notebook does
            space.setdefault("answers", []).append(space["answer"])
            space.setdefault("names", []).append(name_of(space[name]))
            space.setdefault("hits", []).append(space["ask"].cache.stats()["hits"])
    finally:
        main.__spec__ = kept[1]
        main.__dict__.pop("__file__", None)
        if kept[0] is not None:
            main.__dict__["__file__"] = kept[0]
    assert space["answers"] == ["Briefly: hi", "Briefly: hi", "At length: hi"]
    assert space["hits"] == [0, 1, 0]
    assert space["names"] == [f"{'__main__' if file is None else Path(file).stem}.{name}"] * 3


@pytest.mark.parametrize(
    ("module", "cell"),
    [("__main__", CELL), ("__main__", CALLED), ("<run_path>", CELL)],
    ids=["a function on a page of Streamlit", "an object", "a function in a file that runpy runs"],
)
def test_each_of_the_scripts_that_run_under_one_name_has_its_own_results(module: str, cell: str) -> None:
    """Streamlit's pages, of which ``sys.modules`` has none: only the app that shows them."""
    store, answers = MemoryStore(), []
    for file, code in {"brief.py": cell, "long.py": cell.replace("Briefly", "At length")}.items():
        space = {"__name__": module, "__file__": file, "cached": cached, "store": store}
        space["dataclass"] = dataclasses.dataclass
        exec(compile(code, file, "exec"), space)
        answers.append(space["answer"])
    assert answers == ["Briefly: hi", "At length: hi"]


@pytest.mark.parametrize(
    "ask",
    [
        ASK.replace("ask(", "_cell_MJUe_ask("),
        f"def _cell_MJUe_make():\n{indent(ASK, '  ')}  return ask\n_cell_MJUe_ask = _cell_MJUe_make()\n",
        f"class _cell_MJUe_Asker:\n  @staticmethod\n{indent(ASK, '  ')}_cell_MJUe_ask = _cell_MJUe_Asker.ask\n",
    ],
    ids=["function", "function made by one", "method of a class"],
)
def test_what_is_private_in_a_cell_of_marimo_that_was_moved_has_its_own_results(ask: str) -> None:
    """Run as a script: marimo names it after the place of its cell, ``_ask`` in the first one ``_cell_MJUe_ask``."""
    store, answers, hits = MemoryStore(), [], []
    cell = f"{ask}answer = _cell_MJUe_ask('hi')"
    for code in (cell, cell, cell.replace("Briefly", "At length")):
        space: dict[str, Any] = {"__name__": "__main__", "__file__": "notes.py", "cached": cached, "store": store}
        exec(compile(code, "notes.py", "exec"), space)
        answers.append(space["answer"])
        hits.append(space["_cell_MJUe_ask"].cache.stats()["hits"])
    assert answers == ["Briefly: hi", "Briefly: hi", "At length: hi"]
    assert hits == [0, 1, 0]


def test_a_script_that_gets_a_new_name_each_time_has_its_results_again() -> None:
    """Bokeh and Panel run their app anew for each visitor."""
    store, hits = MemoryStore(), []
    for module in ("bokeh_app_1", "bokeh_app_2"):
        space: dict[str, Any] = {"__name__": module, "__file__": "app.py", "cached": cached, "store": store}
        exec(compile(CELL, "app.py", "exec"), space)
        hits.append(space["ask"].cache.stats()["hits"])
    assert hits == [0, 1]


def test_a_models_function_that_holds_what_is_no_data_is_known_by_its_name() -> None:
    def choose(thing: object) -> Callable[[], object]:
        return lambda: thing

    def other() -> object:
        return thing

    thing = object()
    assert as_setting(choose(object())) == as_setting(choose(object())) != as_setting(other) != ""
    assert as_setting(choose(1)) != as_setting(choose(2))
    assert as_setting("no function") == ""
