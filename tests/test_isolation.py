"""H5: what is written in one scope is never found in another, and a scope that is missing is refused."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from langmem_adapters.brain import BrainMemory
from langmem_adapters.conversation.session_search import SessionSearch
from langmem_adapters.errors import ConfigurationError
from langmem_adapters.experience import ExperiencePool
from langmem_adapters.indexes.lexical import LexicalIndex
from langmem_adapters.langchain import BrainChatMessageHistory, LongTermRetriever
from langmem_adapters.langgraph import LongTermStore
from langmem_adapters.llamaindex import BrainRetriever
from langmem_adapters.longterm import LongTermMemory
from langmem_adapters.model import Experience, Message
from langmem_adapters.model import Scope as Narrowed
from langmem_adapters.protocols import Store
from langmem_adapters.sessions import Sessions
from langmem_adapters.stores.memory import MemoryStore
from langmem_adapters.stores.redis import RedisStore
from langmem_adapters.stores.sqlite import SQLiteStore
from langmem_adapters.working import WorkingMemory
from tests.at_rest import KINDS
from tests.servers import RedisServer


class Scope(NamedTuple):
    tenant: str
    user: str
    session: str
    tag: str


# Parts that begin like each other, look like separators, like patterns, like encoded parts, or like our own names.
_PARTS = [
    *("", "a", "A", "ab", "a/b", "a/", "/", "//", "a%2Fb", "%2F", "%", ":", "a:b", "{a}", "*", "a*", "?", "[a]", "_"),
    *(
        "\\",
        "a\0",
        "\0",
        " ",
        "a ",
        "é",
        "e\u0301",
        "\ud800",
        "🙂",
        "leases",
        "items",
        "tree",
        "a" * 300,
        "'; --",
        "\n",
    ),
]
_part = st.sampled_from(_PARTS) | st.text(max_size=4)
_name = _part.filter(bool)
_scopes = st.builds(Scope, _part, _part, _name, _part)


@st.composite
def _two(draw: st.DrawFn) -> tuple[Scope, Scope]:
    """Two scopes, most of which differ in one part, or have the parts of one shifted."""
    one = draw(_scopes)
    how = draw(st.sampled_from(["one part", "one part", "one part", "shifted", "any"]))
    if how == "one part":
        field = draw(st.sampled_from(Scope._fields))
        other = one._replace(**{field: draw(_name if field == "session" else _part)})
    elif how == "shifted":
        other = Scope(one.user, one.tenant, one.session, one.tag)
    else:
        other = draw(_scopes)
    assume(one != other)
    return one, other


@pytest.fixture(params=KINDS)
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """Makes an empty store each time that it is called."""
    made: list[Store] = []
    server: RedisServer | None = request.getfixturevalue("redis_server") if request.param == "redis" else None

    def new() -> Store:
        if request.param == "memory":
            store: Store = MemoryStore()
        elif server is not None:
            store = RedisStore(server.url(), prefix=f"test-{uuid.uuid4().hex[:12]}:")
        else:
            store = SQLiteStore(tmp_path / f"{len(made)}.db")
        made.append(store)
        return store

    yield new
    for store in made:
        store.close()


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(scopes=_two())
def test_nothing_is_found_in_another_scope(make: Any, scopes: tuple[Scope, Scope]) -> None:
    store, index = make(), LexicalIndex(":memory:")
    one, other = scopes
    _write(store, index, one)
    assert [what for what, there in _found(store, index, one).items() if not there] == []
    for what, there in _found(store, index, other).items():
        same = all(getattr(one, part) == getattr(other, part) for part in _BELONGS[what](other))
        assert there is same, what
    _change(store, index, other)
    for what, there in _found(store, index, one).items():
        same = all(getattr(one, part) == getattr(other, part) for part in _BELONGS[what](one))
        assert there or same, f"{what} was changed from another scope"


# Which parts of a scope decide about each: long-term memory is a session's own where there is no user.
_BELONGS: dict[str, Callable[[Scope], tuple[str, ...]]] = {
    "history": lambda _: ("tenant", "user", "session"),
    "chat history": lambda _: ("tenant", "user", "session"),
    "knowledge": lambda _: ("tenant", "user", "session"),
    "retriever": lambda _: ("tenant", "user", "session"),
    "session search": lambda _: ("tenant", "user", "session"),
    "sessions": lambda _: ("tenant", "user", "session"),
    "memories": lambda scope: ("tenant", "user") if scope.user else ("tenant", "user", "session"),
    "recalled": lambda scope: ("tenant", "user") if scope.user else ("tenant", "user", "session"),
    "working": lambda _: ("tenant", "user", "session"),
    "experience": lambda _: ("tenant", "user", "tag"),
    "similar": lambda _: ("tenant", "user", "tag"),
    "items": lambda _: ("tenant", "session"),
}


def _long_term(store: Store, index: LexicalIndex, scope: Scope) -> LongTermMemory:
    return LongTermMemory(store, index, user=scope.user, tenant=scope.tenant, session=scope.session)


def _pool(store: Store, index: LexicalIndex, scope: Scope) -> ExperiencePool:
    return ExperiencePool(store, tag=scope.tag, user=scope.user, tenant=scope.tenant, index=index)


def _label(scope: Scope) -> tuple[str, ...]:
    """LangGraph takes neither periods nor NUL in a namespace."""
    return ("m", scope.session.replace(".", "\x01p").replace("\0", "\x01n"))


def _write(store: Store, index: LexicalIndex, scope: Scope) -> None:
    whose: Any = {"user": scope.user, "tenant": scope.tenant}
    brain = BrainMemory(store, scope.session, **whose)
    brain.add_talk("Where is my bike?")
    brain.add_knowledge(["The bike is red."])
    _long_term(store, index, scope).add([Message(role="user", content="My bike is in the shed.")])
    WorkingMemory(store, **whose).store(scope.session, "bike")
    _pool(store, index, scope).create(Experience(req="bike", resp="shed"))
    LongTermStore(store=store, index=index, tenant=scope.tenant).put(_label(scope), "k", {"text": "bike"})


def _found(store: Store, index: LexicalIndex, scope: Scope) -> dict[str, bool]:
    whose: Any = {"user": scope.user, "tenant": scope.tenant}
    brain = BrainMemory(store, scope.session, **whose)
    history = BrainChatMessageHistory(brain=brain)
    memory = _long_term(store, index, scope)
    pool = _pool(store, index, scope)
    items = LongTermStore(store=store, index=index, tenant=scope.tenant)
    listed = Sessions(store, **whose).list_sessions()
    place = _label(scope)
    return {
        "history": brain.count() > 0,
        "chat history": history.messages != [],
        "knowledge": brain.get_knowledge() != [],
        "retriever": BrainRetriever(brain=brain, index=index).retrieve("bike") != [],
        "session search": SessionSearch(brain, index).search("bike", 5) != [],
        "sessions": any(info.session == scope.session for info in listed),
        "memories": memory.all() != [],
        "recalled": memory.search("bike") != [] or LongTermRetriever(memory=memory).invoke("bike") != [],
        "working": WorkingMemory(store, **whose).retrieve(scope.session) != [],
        "experience": pool.lookup("bike") is not None,
        "similar": pool.query("bike") != [] and pool.all() != [],
        "items": items.get(place, "k") is not None and items.search(place, query="bike") != [],
    }


def _change(store: Store, index: LexicalIndex, scope: Scope) -> None:
    """Remove all that can be removed from a scope."""
    whose: Any = {"user": scope.user, "tenant": scope.tenant}
    Sessions(store, **whose).delete_session(scope.session)
    _long_term(store, index, scope).clear()
    WorkingMemory(store, **whose).delete(scope.session)
    _pool(store, index, scope).clear()
    LongTermStore(store=store, index=index, tenant=scope.tenant).delete(_label(scope), "k")


def test_a_missing_scope_is_refused(any_store: Store) -> None:
    index = LexicalIndex(":memory:")
    _write(any_store, index, Scope("t", "u", "s", "tag"))
    whole: Any = {"store": any_store, "index": index}
    refused: list[Callable[[], object]] = [
        lambda: BrainMemory(any_store, ""),
        lambda: BrainMemory(any_store, None),  # type: ignore[arg-type]
        lambda: LongTermMemory(**whole),
        lambda: LongTermMemory(**whole, tenant="t"),
        lambda: WorkingMemory(any_store, user="u", tenant="t").retrieve(""),
        lambda: WorkingMemory(any_store, user="u", tenant="t").delete(None),  # type: ignore[arg-type]
        lambda: WorkingMemory(any_store, user=None),  # type: ignore[arg-type]
        lambda: LongTermMemory(**whole, user="u", tenant="t").search("bike", scope=Narrowed(tenant="t")),
        lambda: LongTermMemory(**whole, user="u", tenant="t").search("bike", scope=Narrowed(tenant="t", user="v")),
        lambda: LongTermMemory(**whole, user="u", tenant="t").search("bike", scope=Narrowed(user="u")),
    ]
    for call in refused:
        with pytest.raises(ConfigurationError):
            call()
    kinds: list[tuple[Any, dict[str, Any]]] = [
        (LongTermMemory, {"index": index}),
        (BrainMemory, {"session": "s"}),
        (ExperiencePool, {}),
        (Sessions, {}),
    ]
    for wrong in (None, 5, ["u"]):
        for kind, more in kinds:
            with pytest.raises(ValueError, match="user"):
                kind(any_store, user=wrong, **more)


def test_nobody_is_not_everybody(any_store: Store) -> None:
    """What is read without a user, tenant or tag is what was written without, and nothing of others."""
    index = LexicalIndex(":memory:")
    _write(any_store, index, Scope("t", "u", "s", "tag"))
    for scope in (
        Scope("", "", "s", ""),
        Scope("t", "", "s", "tag"),
        Scope("", "u", "s", "tag"),
        Scope("t", "u", "x", ""),
    ):
        found = _found(any_store, index, scope)
        shared = {"memories", "recalled"} if scope[:2] == ("t", "u") else set()
        shared |= {"items"} if (scope.tenant, scope.session) == ("t", "s") else set()
        assert {what for what, there in found.items() if there} == shared
