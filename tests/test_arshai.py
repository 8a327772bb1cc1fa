"""arshai's managers: its own code runs unchanged, and what it loses is kept.

arshai cannot be in the test extra: it refuses Python 3.10, 3.13 and later, and wants openai below version 2. So its
interface is recorded below, and every test runs against the record. Where arshai itself is installed
(``pip install --no-deps arshai==1.15.0``), the record is compared with it, and every test runs with its classes, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.util
import inspect
import itertools
import logging
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import create_model

from langmem_adapters import WorkingMemory, arshai, open_store, stores
from langmem_adapters.arshai import InMemoryManager, MemoryText, RedisWorkingMemoryManager
from langmem_adapters.errors import ConfigurationError, StoreUnavailable
from langmem_adapters.protocols import Store
from langmem_adapters.testing import FakeClock
from langmem_adapters.working import TWELVE_HOURS
from tests.interleaved_world import Part, World, processes
from tests.interleavings import Outcome, explore
from tests.servers import RedisServer

VERSION = "1.15.0"
METHODS = {
    "store": "(self, input: IMemoryInput) -> str",
    "retrieve": "(self, input: IMemoryInput) -> List[IWorkingMemory]",
    "update": "(self, input: IMemoryInput) -> None",
    "delete": "(self, input: IMemoryInput) -> None",
}
CONSTRUCTORS = {
    "RedisWorkingMemoryManager": "(self, storage_url: str = None, **kwargs)",
    "InMemoryManager": "(self, **kwargs)",
}
TYPES = ("SHORT_TERM_MEMORY", "LONG_TERM_MEMORY", "WORKING_MEMORY")
FIELDS = {  # of IMemoryInput, with their defaults
    "conversation_id": ...,
    "memory_type": "SHORT_TERM_MEMORY",
    "data": None,
    "query": None,
    "memory_id": None,
    "limit": 5,
    "filters": None,
    "metadata": None,
}
INSTALLED = importlib.util.find_spec("arshai") is not None
THEIRS = "arshai.core.interfaces.imemorymanager"


class _Types(str, Enum):
    SHORT_TERM_MEMORY = "SHORT_TERM_MEMORY"
    LONG_TERM_MEMORY = "LONG_TERM_MEMORY"
    WORKING_MEMORY = "WORKING_MEMORY"


class _Reference:
    """What arshai's own managers do, without their expiry: the last text of a list is the only one."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], Any] = {}

    def store(self, input: Any) -> str:  # noqa: A002
        if not input.data:
            raise ValueError("No data provided to store")
        self.kept[input.memory_type, input.conversation_id] = input.data[-1]
        return f"memory:{input.memory_type.value}:{input.conversation_id}"

    def retrieve(self, input: Any) -> list[Any]:  # noqa: A002
        one = self.kept.get((input.memory_type, input.conversation_id))
        return [] if one is None else [one]

    def update(self, input: Any) -> None:  # noqa: A002
        if not input.data:
            raise ValueError("No data provided to update")
        if self.retrieve(input):
            self.store(input)

    def delete(self, input: Any) -> None:  # noqa: A002
        self.kept.pop((input.memory_type, input.conversation_id), None)


class Host:
    """The classes that code written for arshai uses: arshai's own, or made from the record."""

    def __init__(self, name: str) -> None:
        if name == "arshai":
            interface, managers = _imported(THEIRS), _imported("arshai.memory.working_memory")
            self.Text = interface.IWorkingMemory
            self.Input = interface.IMemoryInput
            self.Types = _imported("arshai.memory").ConversationMemoryType
            self.oracle: Callable[[], Any] = managers.InMemoryManager
        else:
            self.Text = create_model("IWorkingMemory", working_memory=(str, ...))
            kinds = {"memory_type": _Types, "data": list[self.Text] | None}  # type: ignore[name-defined]
            fields: dict[str, Any] = {
                name: (kinds.get(name, Any), _Types(default) if name == "memory_type" else default)
                for name, default in FIELDS.items()
            }
            self.Input = create_model("IMemoryInput", **fields)
            self.Types = _Types
            self.oracle = _Reference

    def input(self, *texts: str, conversation_id: str = "c1", **fields: Any) -> Any:
        data = [self.Text(working_memory=text) for text in texts] or None
        return self.Input(conversation_id=conversation_id, data=data, **fields)


def _imported(name: str) -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # arshai is written for pydantic 1
        return importlib.import_module(name)


@pytest.fixture(params=["recorded", *(["arshai"] if INSTALLED else [])])
def host(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Host:
    host = Host(request.param)
    if request.param == "recorded":  # as in a process where arshai is not loaded
        monkeypatch.delitem(sys.modules, THEIRS, raising=False)
    return host


@pytest.fixture(params=["memory", "sqlite", "redis"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "memory":
        yield InMemoryManager()
        return
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'store.db'}"
    else:
        url = request.getfixturevalue("redis_server").url(db=7)
    yield RedisWorkingMemoryManager(url)
    store = stores.shared_store(url)
    for namespace in list(store.namespaces(("working",))):
        store.clear(namespace)
    store.close()


def texts(found: list[Any]) -> list[str]:
    return [one.working_memory for one in found]


# --- the interface ------------------------------------------------------------------------------------------


def _signature(function: Any) -> str:
    text = str(inspect.signature(function)).replace("typing.", "").replace("'", "")
    return text.replace(f"{THEIRS}.", "")


@pytest.mark.parametrize("described", ["recorded", *(["arshai"] if INSTALLED else [])])
def test_the_record_is_what_arshai_is(described: str) -> None:
    """In a process without arshai, this says that the record is complete."""
    if described == "arshai":
        interface, managers = _imported(THEIRS), _imported("arshai.memory.working_memory")
        assert _imported("arshai").__version__ == VERSION
        for name, signature in METHODS.items():
            assert _signature(getattr(interface.IMemoryManager, name)) == signature
        for name, signature in CONSTRUCTORS.items():
            assert _signature(getattr(managers, name).__init__) == signature
        assert tuple(kind.value for kind in interface.ConversationMemoryType) == TYPES
        fields = interface.IMemoryInput.model_fields
        assert {name: ... if field.is_required() else field.default for name, field in fields.items()} == FIELDS
        assert set(interface.IWorkingMemory.model_fields) == {"working_memory"}
    assert {name: getattr(_Types, name).value for name in TYPES} == {name: name for name in TYPES}


@pytest.mark.parametrize("name", CONSTRUCTORS)
def test_the_methods_have_arshais_names_and_parameters(name: str) -> None:
    ours = getattr(arshai, name)
    for method, signature in METHODS.items():
        parameters = list(inspect.signature(getattr(ours, method)).parameters)
        assert parameters == ["self", "input"], signature
        assert inspect.iscoroutinefunction(getattr(ours, f"a{method}"))
    assert set(arshai.__all__) == {*CONSTRUCTORS, "MemoryText"}


def test_constructors_take_what_arshais_take(monkeypatch: pytest.MonkeyPatch) -> None:
    assert InMemoryManager().ttl == RedisWorkingMemoryManager("memory:").ttl == TWELVE_HOURS
    assert InMemoryManager(ttl=5, colour="red").ttl == 5
    assert RedisWorkingMemoryManager(storage_url="memory:", ttl=5, colour="red").ttl == 5
    monkeypatch.setenv("REDIS_URL", "redis://user:S3cret@127.0.0.1:2/3")
    assert "'redis://user:***@127.0.0.1:2/3'" in repr(RedisWorkingMemoryManager())
    monkeypatch.setenv("LANGMEM_STORE_URL", "redis://127.0.0.1:4")
    assert "'redis://127.0.0.1:4'" in repr(RedisWorkingMemoryManager())
    monkeypatch.delenv("REDIS_URL")
    monkeypatch.delenv("LANGMEM_STORE_URL")
    assert repr(RedisWorkingMemoryManager()) == (
        "RedisWorkingMemoryManager(WorkingMemory(RedisStore('redis://localhost:6379/1'), ttl=43200.0))"
    )


def test_a_store_of_ones_own_is_used_and_not_one_beside_it(any_store: Store) -> None:
    manager = RedisWorkingMemoryManager(store=any_store)
    manager.store(SimpleNamespace(conversation_id="c", data=[MemoryText(working_memory="a bike")]))
    assert [item.data for item in WorkingMemory(any_store).retrieve("c")] == ["a bike"]
    with pytest.raises(ConfigurationError, match=r"^give a url or a store, not both$"):
        RedisWorkingMemoryManager("memory:", store=any_store)
    with pytest.raises(ConfigurationError, match=r"not int; a store of your own, .*, goes in as store=$"):
        RedisWorkingMemoryManager(cast("Any", 5))


# --- arshai's code ------------------------------------------------------------------------------------------


def test_code_written_for_arshai_runs_unchanged(manager: Any, host: Host) -> None:
    assert manager.retrieve(host.input()) == []
    key = manager.store(host.input("looks for a bike", metadata={"turn": 1}))
    assert key == "memory:SHORT_TERM_MEMORY:c1"
    (found,) = manager.retrieve(host.input())
    assert found.working_memory == "looks for a bike"
    manager.update(host.input("found the bike"))
    assert manager.retrieve(host.input())[0].working_memory == "found the bike"
    manager.delete(host.input())
    assert manager.retrieve(host.input()) == []


def test_what_is_retrieved_can_be_handed_in_again(manager: Any, host: Host) -> None:
    """arshai's models take nothing but arshai's own class in their fields."""
    manager.store(host.input("a", "b"))
    found = manager.retrieve(host.input())
    ours = host.Text is not getattr(sys.modules.get(THEIRS), "IWorkingMemory", None)
    assert {type(one) for one in found} == {MemoryText if ours else host.Text}
    data = [host.Text(**one.to_dict()) for one in found] if ours else found
    manager.store(host.Input(conversation_id="c2", data=data))
    assert texts(manager.retrieve(host.input(conversation_id="c2"))) == ["a", "b"]
    assert MemoryText.from_dict(found[0].to_dict()).working_memory == "b"


def test_what_arshai_loses_is_kept(manager: Any, host: Host) -> None:
    manager.store(host.input("a", "b"))
    manager.store(host.input("c"))
    assert texts(manager.retrieve(host.input())) == ["c", "b", "a"]
    manager.update(host.input("C", "d"))
    assert texts(manager.retrieve(host.input())) == ["d", "C", "b", "a"]
    assert texts(manager.retrieve(host.input(limit=1))) == ["d"]
    manager.store(host.input("e", "f"))
    assert texts(manager.retrieve(host.input())) == ["f", "e", "d", "C", "b"]
    assert texts(manager.retrieve(host.input(limit=None))) == ["f", "e", "d", "C", "b", "a"]


def test_memory_types_and_conversations_are_apart(manager: Any, host: Host) -> None:
    places = list(itertools.product(host.Types, ("c1", "c2", "SHORT_TERM_MEMORY:c1")))
    for memory_type, conversation in places:
        key = manager.store(host.input(conversation, memory_type=memory_type, conversation_id=conversation))
        assert key == f"memory:{memory_type.value}:{conversation}"
    manager.delete(host.input(memory_type=host.Types.LONG_TERM_MEMORY))
    for memory_type, conversation in places:
        gone = (memory_type.value, conversation) == ("LONG_TERM_MEMORY", "c1")
        found = manager.retrieve(host.input(memory_type=memory_type, conversation_id=conversation))
        assert texts(found) == ([] if gone else [conversation])


def test_metadata_and_times_are_kept_by_an_update(redis_server: RedisServer, key_prefix: str, host: Host) -> None:
    clock = FakeClock()
    url = redis_server.url(db=6)
    manager = RedisWorkingMemoryManager(url, clock=clock)
    place = {"conversation_id": key_prefix, "memory_type": host.Types.WORKING_MEMORY}
    manager.store(host.input("a", metadata={"k": 1}, **place))
    clock.advance(10)
    manager.update(host.input("b", "c", metadata={"other": 2}, **place))
    found = WorkingMemory(open_store(url)).retrieve(key_prefix, memory_type="WORKING")
    assert [(item.data, item.metadata) for item in found] == [("b", {"k": 1}), ("c", {"k": 1})]
    assert [item.updated_at - item.created_at for item in found] == [10, 0]
    manager.delete(host.input(**place))
    stores.shared_store(url).close()


def test_an_update_of_nothing_changes_nothing(manager: Any, host: Host, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "langmem_adapters"):
        manager.update(host.input("private"))
    assert [record.getMessage() for record in caplog.records] == [
        "there is no memory of type SHORT_TERM to update in this conversation"
    ]
    assert manager.retrieve(host.input()) == []


@pytest.mark.parametrize("other", ["delete", "expire", "retrieve", "update"])
def test_an_update_of_several_texts_is_there_at_once_or_not_at_all(other: str, host: Host) -> None:
    def manager(world: World) -> Any:
        return arshai._Manager(world.store, 60.0, world.clock)

    def expire(world: World) -> None:
        world.turn("expire")
        world.clock.advance(61)

    def read(world: World) -> list[str]:
        return texts(manager(world).retrieve(host.input()))

    others: dict[str, Part] = {
        "delete": lambda world: manager(world).delete(host.input()),
        "expire": expire,
        "retrieve": read,
        "update": lambda world: manager(world).update(host.input("c")),
    }
    parts: list[Part] = [lambda world: manager(world).update(host.input("a", "b")), others[other]]

    def check(outcome: Outcome) -> None:
        outcome.done()
        found = read(outcome.store)
        assert len({*found} & {"a", "b"}) == 2 or other == "update" or not found
        assert other not in {"delete", "expire"} or not found
        assert other != "update" or len(found) == 2
        assert other != "retrieve" or outcome.results[1] in (["old"], ["b", "a"])

    def make() -> World:
        return World(0, begin=lambda world: manager(world).store(host.input("old")))

    explore(make, processes(*parts), check)


@pytest.mark.parametrize(("keep", "left"), [(1, ["b"]), (2, ["b", "a"]), (3, ["b", "a", "one"])])
def test_an_update_of_several_texts_keeps_to_the_bound(
    keep: int, left: list[str], any_store: Store, host: Host
) -> None:
    manager = arshai._Manager(any_store, 60.0, time.time, keep=keep)
    for text in ("one", "two"):
        manager.store(host.input(text))
    manager.update(host.input("a", "b"))
    assert texts(manager.retrieve(host.input())) == left
    assert len(any_store.get(("working", "", "", "c1", "SHORT_TERM"))) == 1 + len(left)


def test_the_newest_texts_are_kept_and_others_go_with_the_next_write(any_store: Store, host: Host) -> None:
    manager = arshai._Manager(any_store, TWELVE_HOURS, time.time, keep=3)
    for n in range(10):
        manager.store(host.input(str(n), conversation_id="c"))
        manager.store(host.input("stays", conversation_id="other"))
    everything = host.input(conversation_id="c", limit=100)
    assert texts(manager.retrieve(everything)) == ["9", "8", "7"]
    manager.store(host.input(*"abcde", conversation_id="c"))
    assert texts(manager.retrieve(everything)) == ["e", "d", "c"]
    manager.update(host.input("E", "f", conversation_id="c"))
    assert texts(manager.retrieve(everything)) == ["f", "E", "d"]
    kept = any_store.get(("working", "", "", "c", "SHORT_TERM"))
    assert len(kept) == 1 + 3
    with pytest.raises(ConfigurationError, match="keep is a whole number of at least 1"):
        InMemoryManager(keep=0)


def test_many_that_were_kept_before_become_fewer_with_each_write(any_store: Store, host: Host) -> None:
    WorkingMemory(any_store).store("c", *map(str, range(10)))
    manager = arshai._Manager(any_store, TWELVE_HOURS, time.time, keep=3)
    counts = []
    for _ in range(9):
        manager.store(host.input("new", conversation_id="c"))
        counts.append(len(manager.retrieve(host.input(conversation_id="c", limit=100))))
    assert counts == [9, 8, 7, 6, 5, 4, 3, 3, 3]


@pytest.mark.parametrize("ttl", [60, None])
def test_texts_expire_after_the_last_write(host: Host, ttl: float | None) -> None:
    clock = FakeClock()
    manager = InMemoryManager(clock=clock, ttl=ttl) if ttl else InMemoryManager(clock=clock)
    manager.store(host.input("a"))
    for write in (manager.store, manager.update):
        clock.advance((ttl or TWELVE_HOURS) - 1)
        write(host.input("b"))
    clock.advance((ttl or TWELVE_HOURS) - 1)
    assert texts(manager.retrieve(host.input())) == ["b", "a"]
    clock.advance(1)
    assert manager.retrieve(host.input()) == []


_actions = st.lists(
    st.tuples(
        st.sampled_from(["store", "update", "delete"]),
        st.lists(st.text("ab", max_size=2), min_size=1, max_size=3),
        st.sampled_from(["c1", "c2"]),
        st.sampled_from(TYPES),
    ),
    max_size=12,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # a host is never changed
@given(_actions)
def test_the_first_text_is_always_arshais_own_answer(
    host: Host, actions: list[tuple[str, list[str], str, str]]
) -> None:
    ours, theirs = InMemoryManager(), host.oracle()
    for method, data, conversation, name in actions:
        place = {"conversation_id": conversation, "memory_type": host.Types(name)}
        assert getattr(ours, method)(host.input(*data, **place)) == getattr(theirs, method)(host.input(*data, **place))
        for look in (ours.retrieve(host.input(limit=1, **place)), ours.retrieve(host.input(**place))[:1]):
            assert texts(look) == texts(theirs.retrieve(host.input(**place)))


# --- what goes wrong ----------------------------------------------------------------------------------------


def test_no_data_is_a_value_error_in_arshais_words(manager: Any, host: Host) -> None:
    for method in ("store", "update"):
        for flaw in (host.input(), SimpleNamespace(conversation_id="c1", data=[])):
            with pytest.raises(ValueError, match=f"^No data provided to {method}$"):
                getattr(manager, method)(flaw)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"memory_type": "SHORT"}, "memory_type is SHORT_TERM_MEMORY, LONG_TERM_MEMORY, WORKING_MEMORY, not 'SHORT'"),
        ({"conversation_id": ""}, "a conversation id is a text that is not empty"),
        ({"conversation_id": None}, "a conversation id is a text that is not empty"),
        ({"data": ["text"]}, "data is a list of objects with a text as working_memory"),
        ({"data": "text"}, "data is a list of objects with a text as working_memory"),
        ({"data": [SimpleNamespace(working_memory=7)]}, "data is a list of objects with a text as working_memory"),
        ({"metadata": "k"}, "metadata is a dictionary"),
        ({"limit": -1}, "limit is a whole number of at least 1"),
    ],
)
def test_a_wrong_input_is_one_clear_sentence(fields: dict[str, Any], sentence: str) -> None:
    given = SimpleNamespace(**{"conversation_id": "c1", "data": [MemoryText(working_memory="x")], **fields})
    manager = InMemoryManager()
    with pytest.raises(ConfigurationError, match=sentence):
        manager.retrieve(given) if "limit" in fields else manager.store(given)
    with pytest.raises(ConfigurationError):
        manager.delete(SimpleNamespace())


def test_inputs_need_no_more_than_they_say() -> None:
    manager = InMemoryManager()
    data = tuple(MemoryText(working_memory=str(n)) for n in range(7))
    manager.store(SimpleNamespace(conversation_id="c1", data=data))
    assert texts(manager.retrieve(SimpleNamespace(conversation_id="c1"))) == ["6", "5", "4", "3", "2"]
    manager.delete(SimpleNamespace(conversation_id="c1", memory_type=None))
    assert manager.retrieve(SimpleNamespace(conversation_id="c1", memory_type="SHORT_TERM_MEMORY")) == []


def test_data_that_is_no_text_is_shown_as_json(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    WorkingMemory(open_store(url)).store("c1", {"n": [1]})
    assert texts(RedisWorkingMemoryManager(url).retrieve(SimpleNamespace(conversation_id="c1"))) == ['{"n":[1]}']


@pytest.mark.usefixtures("no_retries")
def test_an_outage_is_not_an_empty_memory(host: Host) -> None:
    manager = RedisWorkingMemoryManager("redis://user:S3cret@127.0.0.1:1")
    for method in METHODS:
        with pytest.raises(StoreUnavailable, match="cannot be reached") as caught:
            getattr(manager, method)(host.input("x"))
        assert "S3cret" not in str(caught.value)


def test_no_repr_and_no_log_shows_content_or_password(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        manager = RedisWorkingMemoryManager("redis://user:S3cret@127.0.0.1:1")
        with contextlib.suppress(StoreUnavailable):
            manager.store(SimpleNamespace(conversation_id="c1", data=[MemoryText(working_memory="private")]))
    assert "S3cret" not in repr(manager) + caplog.text
    assert "private" not in repr(MemoryText(working_memory="private")) + caplog.text


def test_managers_in_memory_are_apart_and_those_of_one_url_are_not(host: Host, tmp_path: Path) -> None:
    one, other = InMemoryManager(), InMemoryManager()
    one.store(host.input("x"))
    assert other.retrieve(host.input()) == []
    url = f"sqlite:///{tmp_path / 'store.db'}"
    RedisWorkingMemoryManager(url).store(host.input("x"))
    assert texts(RedisWorkingMemoryManager(url).retrieve(host.input())) == ["x"]


# --- async --------------------------------------------------------------------------------------------------


async def test_async_twins_do_the_same(manager: Any, host: Host) -> None:
    assert await manager.astore(host.input("a", "b")) == "memory:SHORT_TERM_MEMORY:c1"
    await manager.aupdate(host.input("B"))
    assert texts(await manager.aretrieve(host.input())) == texts(manager.retrieve(host.input())) == ["B", "a"]
    await manager.adelete(host.input())
    assert manager.retrieve(host.input()) == []
    with pytest.raises(ValueError, match="No data provided to store"):
        await manager.astore(host.input())


def test_g1_one_manager_works_in_successive_loops_and_inside_of_one(manager: Any, host: Host) -> None:
    async def turn(n: int) -> None:
        manager.store(host.input(f"sync {n}"))  # while a loop runs, as in a notebook's cell
        await manager.astore(host.input(f"async {n}"))

    for n in range(3):
        asyncio.run(turn(n))
    newest_first = [f"{way} {n}" for n in (2, 1, 0) for way in ("async", "sync")]
    assert texts(manager.retrieve(host.input(limit=9))) == newest_first


def test_arshai_is_never_imported() -> None:
    code = (
        "import sys\nfrom types import SimpleNamespace as N\nfrom langmem_adapters.arshai import *\n"
        "InMemoryManager().retrieve(N(conversation_id='c'))\nprint([m for m in sys.modules if m.startswith('arshai')])"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
