"""What is something else than is meant is told at the entrance, in one sentence, and nothing is stored of it."""

from __future__ import annotations

import asyncio
import sys
import uuid
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis
from langchain_core.messages import HumanMessage
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.llms import MockLLM
from llama_index.core.vector_stores import SimpleVectorStore

import langmem_adapters
from langmem_adapters import (
    BrainMemory,
    ConfigurationError,
    Experience,
    ExperiencePool,
    LongTermMemory,
    Message,
    Sessions,
    Settings,
    WorkingMemory,
    langchain,
    langgraph,
    llamaindex,
    open_index,
)
from langmem_adapters.conversation.session_search import SessionSearch
from langmem_adapters.encryption import AESGCMCodec, EnvelopeCodec
from langmem_adapters.erasure import delete_user
from langmem_adapters.evaluation import Question, evaluate, fit, read_questions
from langmem_adapters.experience import AtLeast, LLMJudge, LLMScorer, Verifier
from langmem_adapters.flow import arun
from langmem_adapters.importing import read_transcripts
from langmem_adapters.indexes.lexical import LexicalIndex
from langmem_adapters.model import Memory, MessageData, Recalled, SessionInfo
from langmem_adapters.operations import Checkup, Migration, Pruning
from langmem_adapters.protocols import Store
from langmem_adapters.replay import Configuration, replay
from langmem_adapters.sealing import SealedStore
from langmem_adapters.stores.memory import MemoryStore
from langmem_adapters.stores.sqlite import SQLiteStore
from langmem_adapters.telemetry import Traced

SECRET = "my secret words"


@pytest.mark.parametrize(
    "make",
    [
        lambda store: BrainMemory(store, "s"),
        lambda store: LongTermMemory(store, open_index("memory:"), user="ada"),
        lambda store: ExperiencePool(store, tag="t"),
        Sessions,
        WorkingMemory,
        Checkup,
        lambda store: Pruning(store, older_than=5),
        lambda store: Migration(store, MemoryStore()),
        lambda store: EnvelopeCodec(store, AESGCMCodec({"a": bytes(32)})),
        lambda store: delete_user(store, user="ada"),
        SealedStore,
        Traced,
    ],
    ids=[
        "brain",
        "long-term",
        "pool",
        "sessions",
        "working",
        "checkup",
        "pruning",
        "migration",
        "keys",
        "erasure",
        "sealed",
        "traced",
    ],
)
def test_a_url_is_no_store(make: Callable[[Any], object]) -> None:
    client = redis.Redis()  # which has methods get, scan and append
    named = [("redis://:secret@h/0", "str"), (Path("x.db"), ".*Path"), (None, "NoneType"), (client, "Redis")]
    ours = [(Settings(url="memory:"), "Settings"), (_brain(), "BrainMemory"), (len, "builtin_function_or_method")]
    for wrong, kind in [*named, *ours]:
        with pytest.raises(ConfigurationError, match=rf'a store is what open_store\("sqlite.* not {kind}$'):
            make(wrong)


_MAKE: list[Callable[..., object]] = [
    lambda **place: langchain.BrainChatMessageHistory("s", **place),
    langchain.BrainMemoryMiddleware,
    langchain.ExperienceCache,
    lambda **place: langchain.ExperienceMiddleware(examples=1, **place),
    langgraph.ExperienceNodeCache,
    langgraph.LongTermStore,
    llamaindex.BrainChatStore,
    lambda **place: llamaindex.BrainRetriever("s", **place),
    lambda **place: llamaindex.CachedLLM(MockLLM(), **place),
    llamaindex.LongTermMemoryBlock,
    llamaindex.SyncBrainChatStore,
    lambda **place: langmem_adapters.cached(lambda: 1, **place).cache.pool,
]


@pytest.mark.parametrize("make", _MAKE)
@pytest.mark.parametrize("wrong", [MemoryStore(), Path("x.db"), redis.Redis()], ids=["store", "path", "client"])
def test_a_store_is_no_url(make: Callable[..., object], wrong: object) -> None:
    with pytest.raises(ConfigurationError, match=rf'^url is a text such as "memory:".*, not {type(wrong).__name__}; '):
        make(url=wrong)


@pytest.mark.parametrize("make", _MAKE)
@pytest.mark.parametrize("wrong", ["memory:", redis.Redis()], ids=["url", "client"])
def test_an_adapter_says_at_once_what_is_no_store(make: Callable[..., object], wrong: object) -> None:
    with pytest.raises(ConfigurationError, match=f"^a store is what .* not {type(wrong).__name__}$"):
        make(store=wrong)


@pytest.mark.parametrize("wrong", [b"memory:", Path("x.db"), MemoryStore()])
def test_what_makes_no_store_is_told_whether_redis_is_installed_or_not(wrong: object) -> None:
    with pytest.raises(ConfigurationError, match=rf"ready redis-py client or pool, not {type(wrong).__name__}$"):
        langmem_adapters.open_store(wrong)


@pytest.mark.parametrize("variable", ["LANGMEM_STORE_URL", "REDIS_URL"])
@pytest.mark.parametrize("url", ["localhost:6379", "http://localhost:6379"])
def test_a_url_that_nobody_gave_is_told_with_its_variable(
    variable: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LANGMEM_STORE_URL", raising=False)
    monkeypatch.setenv(variable, url)
    for make in (langmem_adapters.open_store, lambda: langchain.BrainChatMessageHistory("s")):
        with pytest.raises(ConfigurationError, match=f"; what {variable} says is none of them$"):
            make()


async def are_refused(messages: Any, sentence: str, end: str) -> None:
    """By each that takes messages, with the sentence, which quotes nothing, and its end; and nothing is kept."""
    store = MemoryStore()
    brain, memory = BrainMemory(store, "s"), LongTermMemory(store, open_index("memory:"), user="ada")
    for add in (brain.add_messages, memory.add):
        with pytest.raises(ConfigurationError, match=sentence) as caught:
            add(messages)
        assert SECRET not in str(caught.value)
    for aadd in (brain.aadd_messages, memory.aadd):
        with pytest.raises(ConfigurationError, match=end):
            await aadd(messages)
    assert (brain.messages(), memory.count()) == ([], 0)


@pytest.mark.parametrize(
    ("messages", "kind"),
    [
        (SECRET, "one str"),
        (Message(role="user", content=SECRET), "one Message"),
        ({"role": "user", "content": SECRET}, "one dict"),
        (None, "one NoneType"),
        ([SECRET], "of str"),
        ([Message(role="user", content="a"), {"role": "user", "content": SECRET}], "of dict"),
        ([("user", SECRET)], "of tuple"),
        ([HumanMessage(SECRET)], "of HumanMessage"),
    ],
)
async def test_messages_are_a_list_of_messages(messages: Any, kind: str) -> None:
    sentence = rf"messages are a list of Message\(.*, which to_message .*, not {kind}$"
    await are_refused(messages, sentence, f"not {kind}$")


async def test_words_that_are_given_as_the_text_of_a_message_are_not_lost() -> None:
    wrong: Any = {"role": "user", "text": SECRET}
    messages = [Message(role="user", content="Hello."), Message(**wrong)]
    await are_refused(messages, r'^a message takes content="…", not text=', r"text is read from its content$")


async def test_a_message_that_was_once_kept_with_a_text_leaves_the_session_as_others_do(
    any_store: Store,
) -> None:
    """As an older version kept it."""
    memory = LongTermMemory(any_store, open_index("memory:"), user="ada")
    brain = BrainMemory(any_store, "s", user="ada", memory_k=1, long_term=memory)
    older = MessageData({"role": "user", "content": "Hello.", "text": "Hello."})
    await arun(brain._flows.add([older]))
    BrainMemory(any_store, "copy").add_messages(brain.messages())
    brain.add_talk("My bike is red.")
    await brain.aadd_talk("Where is it?")
    assert ([message.text for message in brain.messages()], memory.count()) == (["Where is it?"], 2)


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"text": None}, "content; whole messages go to add_messages, a host's through to_message"),
        ({"text": 5}, "content; .*"),
        ({"text": SECRET, "name": {"a": SECRET}}, "name"),
    ],
)
async def test_what_is_said_is_a_text(fields: dict[str, Any], names: str) -> None:
    brain = BrainMemory(MemoryStore(), "s")
    for add in (brain.add_talk, brain.add_answer):
        with pytest.raises(
            ConfigurationError, match=f"a message cannot have a value of this type as {names}$"
        ) as caught:
            add(**fields)
        assert caught.value.__context__ is None or SECRET not in str(caught.value.__cause__)
    for aadd in (brain.aadd_talk, brain.aadd_answer):
        with pytest.raises(ConfigurationError, match=f"as {names}$"):
            await aadd(**fields)
    assert brain.messages() == []


@pytest.mark.parametrize("name", ["metdata", "role", "content", "session"])
def test_what_is_said_has_the_fields_of_a_message_and_no_others(name: str) -> None:
    brain = BrainMemory(MemoryStore(), "s")
    with pytest.raises(
        ConfigurationError, match=f"^a message has no field {name}; besides its text, it can have id, name, .*"
    ):
        brain.add_talk("Hello.", **{name: SECRET})  # type: ignore[arg-type]
    assert brain.messages() == []


def _memory(**settings: Any) -> Any:
    return LongTermMemory(MemoryStore(), open_index("memory:"), user="ada", **settings)


def _brain(**settings: Any) -> Any:
    return BrainMemory(MemoryStore(), "s", **settings)


def _found(query: Any) -> object:
    return SessionSearch(_brain(), open_index("memory:")).search(query, 1)


def _any(value: object) -> Any:
    return value


def _recalled() -> Any:
    return Recalled(Memory(message=Message(role="user", content="x")), 0.5)


def _history() -> Any:
    return langchain.BrainChatMessageHistory("s", url="memory:")


def _replayed(configurations: Any = None, **arguments: Any) -> object:
    return replay([Message(role="user", content="a")], configurations or {"all": Configuration()}, **arguments)


ours: Any = langmem_adapters
_ASKED = Question("Where?", frozenset({"m1"}))
_INFO = SessionInfo(session="s")
_WRONG = Question("Where?", _any("m1"))  # its letters would be looked for, and not be found
_UNANSWERED = Question("Where?", frozenset())  # there is no share of nothing
_NUMBERED = Question("Where?", frozenset({_any(1)}))


@pytest.mark.parametrize(
    ("use", "sentence"),
    [
        (lambda: _brain(memory_k="5"), "memory_k is a whole number of at least 1, not '5'"),
        (lambda: _brain(memory_k=2**63), f"memory_k is a whole number of at least 1, and {sys.maxsize} at the most"),
        (lambda: _brain().messages(10**5000), f"limit is a whole number, and {sys.maxsize} at the most"),
        (lambda: _brain(ttl=10**400), "ttl is a number of seconds above 0, or None, not 10+"),
        (lambda: _brain(memory_k=0), "memory_k is a whole number of at least 1, not 0"),
        (lambda: _brain(max_tokens=1.5), "max_tokens is a whole number of at least 1, not 1.5"),
        (lambda: _brain(max_summary_tokens=0), "max_summary_tokens is a whole number of at least 1, not 0"),
        (lambda: _brain(summarize_at=0), "summarize_at is a whole number of at least 1, not 0"),
        (lambda: _brain(summarize_at=5), "summarize_at needs a model= to summarise with"),
        (lambda: _brain(ttl="5"), "ttl is a number of seconds above 0, or None, not '5'"),
        (lambda: _brain(ttl=float("inf")), "ttl is a number of seconds above 0, or None, not inf"),
        (lambda: _brain(ttl=float("nan")), "ttl is a number of seconds above 0, or None, not nan"),
        (lambda: _brain(user=5), "user is a text, not int"),
        (lambda: _brain(tenant=None), "tenant is a text, not NoneType"),
        (lambda: _brain().messages("2"), "limit is a whole number, not '2'"),
        (lambda: _brain().context("2"), "k is a whole number of at least 1, not '2'"),
        (lambda: _brain().context(max_tokens=0), "max_tokens is a whole number of at least 1, not 0"),
        (lambda: _brain().set_summary(None), "a summary is a text, not NoneType"),
        (lambda: _brain().set_title(5), "a title is a text, not int"),
        (lambda: _brain().add_knowledge(5), "knowledge is a list of facts, not one int"),
        (lambda: _brain().add_knowledge(SECRET), "knowledge is a list of facts, not one str"),
        (
            lambda: _brain().add_knowledge(Message(role="system", content="x")),
            "knowledge is .* not one Message",
        ),
        (lambda: _brain().summarize(str, max_tokens=0), "max_tokens is a whole number of at least 1, not 0"),
        (lambda: _brain().summarize(str, keep="2"), "keep is a whole number of at least 0, not '2'"),
        (lambda: _brain().get_title(str, max_words="5"), "max_words is a whole number of at least 1, not '5'"),
        (lambda: _brain().exists(Message(role="user", content="x")), "what is looked for is a text, not Message"),
        (lambda: _brain().is_related("it", None, str), "its context, as .* gives it, is a text, not NoneType"),
        (lambda: _brain().rewrite("it", _brain().messages(), str), "its context, as .* gives it, is a text, not list"),
        (lambda: _brain().rewrite(5, "x", str), "the sentence or text is a text, not int"),
        (lambda: _brain().refine(HumanMessage("it"), str), "what was said last is a text, not HumanMessage"),
        (lambda: _brain(prompts={"title": "x"}), "prompts are .*Prompts.*, not dict"),
        (lambda: _brain(model="openai:gpt-4o"), "a model is a LangChain or LlamaIndex model or a function .*, not str"),
        (lambda: _brain(counter="gpt-4"), "counter is a function from a text to its tokens, not str"),
        (lambda: ours.Embedder(len, name=_any(5)), "name is a text, not int"),
        (lambda: Pruning(MemoryStore(), 5, user=_any(5)), "user is a text, not int"),
        (lambda: Pruning(MemoryStore(), 5, tenant=_any(5)), "tenant is a text, not int"),
        (lambda: Pruning(MemoryStore(), 5, indexes=_any("x")), "indexes are a list, .*, not one str"),
        (lambda: Pruning(MemoryStore(), 5, indexes=_any(open_index("memory:"))), "indexes are a list, .* LexicalIndex"),
        (lambda: Pruning(MemoryStore(), 5, report=_any(5)), "report is a function, or an object .*, not 5"),
        (lambda: Checkup(MemoryStore(), index=_any("x")), "index is what .* gives, for one, not str"),
        (lambda: Checkup(MemoryStore(), ttl=_any("5")), "ttl is a number of seconds above 0, or None, not '5'"),
        (lambda: Migration(MemoryStore(), MemoryStore(), name=_any(5)), "name is a text, not int"),
        (lambda: LLMScorer(len, prompt=_any(5)), "prompt is a text, not int"),
        (lambda: LLMJudge(len, prompt=_any(None)), "prompt is a text, not NoneType"),
        (lambda: Verifier(guards=_any(["numbers"])), "guards are a dictionary from name to guard, not list"),
        (lambda: Verifier(guards={"numbers": _any(5)}), "the guard 'numbers' is a function, .*, not 5"),
        (lambda: Verifier(without=_any(5)), r"without names guards \(.*\), not 5"),
        (
            lambda: AESGCMCodec({"a": bytes(32)}, current=_any(["a"])),
            r"current is not the name of one of the keys \(a\)",
        ),
        (
            lambda: EnvelopeCodec(MemoryStore(), _any({"a": bytes(32)})),
            r"your keys are AESGCMCodec\(\{'2026': key\}\), not dict",
        ),
        (lambda: SQLiteStore(_any(None)), "a file is named by a text or a path, not NoneType"),
        (lambda: LexicalIndex(_any(5)), "a file is named by a text or a path, not int"),
        (lambda: SQLiteStore("a.db", synchronous=_any(1)), 'synchronous is "normal" or "full", not 1'),
        (lambda: SQLiteStore("a.db", timeout=_any("5")), "timeout is a number of seconds, not '5'"),
        (lambda: LexicalIndex(":memory:", stop_words=_any("the")), "stop_words are a collection of words, not one str"),
        (lambda: LexicalIndex(":memory:", megabytes=_any(None)), "megabytes is a number, not None"),
        (
            lambda: langgraph.ExperienceNodeCache("memory:", serde=_any(5)),
            "serde is a serializer of LangGraph, not int",
        ),
        (lambda: _brain(counter=asyncio.sleep), "counter is a coroutine function: give it a plain one"),
        (lambda: _brain(counter=None), "counter is a function from a text to its tokens, not NoneType"),
        (lambda: _brain().record_turn(HumanMessage("Where?")), "messages are a list of .*, not of HumanMessage"),
        (lambda: _brain().delete("abc"), "message_ids are a list of ids, not one str"),
        (lambda: _brain().find_news("my cat"), "messages are a list of .*, not one str"),
        (lambda: _brain().find_news([None]), "messages are a list of .*, not of NoneType"),
        (lambda: _brain(summarize_in=["inline"]), r'summarize_in is "background" or "inline", not .*'),
        (lambda: _memory(ttl=-1), "ttl is a number of seconds above 0, or None, not -1"),
        (lambda: _memory(similarity_top_k="5"), "similarity_top_k is a whole number of at least 0, not '5'"),
        (lambda: _memory().search(None), "a query is a text, not NoneType"),
        (lambda: _found(None), "a query is a text, not NoneType"),
        (lambda: _memory().search("bike", "3"), "k is a whole number, not '3'"),
        (lambda: _memory().search("bike", 2.5), "k is a whole number, not 2.5"),
        (lambda: _memory().search("bike", where="x"), "where is a function, .*, not 'x'"),
        (lambda: _memory().search("bike", exclude="abc"), "exclude is a list of messages, not one str"),
        (lambda: _memory().add([], session=5), "session is a text, not int"),
        (lambda: _memory(weights=["words"]), "weights are a dictionary of numbers by signal, not list"),
        (lambda: _memory(weights={"words": "1"}), "the weight of a signal is a finite number, not '1'"),
        (lambda: _memory(vectors=len), "vectors is what .* gives, for one, not builtin_function_or_method"),
        (lambda: LongTermMemory(MemoryStore(), _memory(), user="ada"), "index is what .* for one, not LongTermMemory"),
        (
            lambda: LongTermMemory(MemoryStore(), _any(None), user="ada"),
            "index is what .* gives, for one, not NoneType",
        ),
        (lambda: _memory().delete(None), "memory_ids are a list of ids, not one NoneType"),
        (lambda: _memory().delete([5]), "memory_ids are a list of ids, not of int"),
        (lambda: _memory().get(_recalled()), "the id of a memory is a text, not Recalled"),
        (lambda: _memory().update(_recalled(), "x"), "the id of a memory is a text, not Recalled"),
        (lambda: ours.WorkingMemory(MemoryStore()).delete("c", item_id=5), "item_id is a text, not int"),
        (lambda: ours.WorkingMemory(MemoryStore()).update("c", "x", item_id=5), "item_id is a text, not int"),
        (lambda: ours.WorkingMemory(MemoryStore(), tenant=5), "tenant is a text, not int"),
        (lambda: ours.Sessions(MemoryStore(), user=5), "user is a text, not int"),
        (lambda: ours.Sessions(MemoryStore(), ttl=-1), "ttl is a number of seconds above 0, or None, not -1"),
        (lambda: ours.Sessions(MemoryStore(), refresh="always"), 'refresh is "write", "read" or "never", not .*'),
        (lambda: ours.ExperiencePool(MemoryStore(), tag=5), "tag is a text, not int"),
        (lambda: ours.ExperiencePool(MemoryStore(), index="memory:"), "index is what .* gives, for one, not str"),
        (lambda: llamaindex.BrainRetriever("s", index=_any("memory:")), "index is what .* gives, for one, not str"),
        (lambda: ours.Embedder(len, name="e").texts("bike"), "an embedder takes a list of texts, not one str"),
        (lambda: ours.Embedder(len, name="e").query(None), "an embedder takes a list of texts, not of NoneType"),
        (lambda: ours.open_index("langmem.db"), "an index is opened with the URL of a store: .*"),
        (lambda: ours.open_index(""), "an index is opened with the URL of a store: .*"),  # as open_store refuses it
        (lambda: ours.open_index("https://ledger"), "an index is opened with the URL of a store: .*"),
        (lambda: ours.open_vectors("langmem.db", ours.Embedder(len, name="e")), "an index is opened with the URL .*"),
        (lambda: ours.open_vectors("http://ledger:8000", ours.Embedder(len, name="e")), '.* "chroma.http://host:8000"'),
        (
            lambda: asyncio.run(llamaindex.LongTermMemoryBlock(lambda _: _any(None)).aget([])),
            "the function of .* NoneType",
        ),
        (lambda: ours.open_index(5), "a store's URL is a text, not int"),
        (lambda: ours.Sessions(MemoryStore()).list_sessions("9"), "limit is a whole number, not '9'"),
        *(
            (
                partial(ours.Sessions(MemoryStore()).list_sessions, cursor=cursor),
                "a cursor is the .cursor of the last session .*",
            )
            for cursor in ("s", "", "1.0", "1.0 ", "x s", "nan s", "inf s", 5, _INFO)
        ),
        (lambda: ours.Sessions(MemoryStore()).delete_session(_INFO), "a session's id, .* not SessionInfo"),
        (
            lambda: ours.Sessions(MemoryStore()).rename_session(_INFO, "t"),
            "a session's id, .* not SessionInfo",
        ),
        (lambda: list(ours.Sessions(MemoryStore()).export(_INFO)), "a session's id, .* not SessionInfo"),
        (
            lambda: delete_user(MemoryStore(), user="ada", report=_any(asyncio.sleep)),
            "report is a coroutine function: give it a plain one",
        ),
        (
            lambda: delete_user(MemoryStore(), _any(open_index("memory:")), user="ada"),
            "indexes are .* not one .*",
        ),
        (lambda: delete_user(MemoryStore(), _any(["memory:"]), user="ada"), "index is what .* for one, not str"),
        (lambda: delete_user(MemoryStore(), _any([None]), user="ada"), "index is what .* for one, not NoneType"),
        (lambda: langchain.ExperienceMiddleware(deterministic_tools=_any(None)), "deterministic_tools is .* NoneType"),
        (
            lambda: langchain.ExperienceMiddleware(deterministic_tools=_any([len])),
            "deterministic_tools is .* not of .*",
        ),
        (lambda: langchain.SemanticMode("x", verifier=_any(0.9)), r"verifier is a Verifier, such as .*, not 0\.9"),
        (lambda: langchain.SemanticMode("x", candidates=0), "candidates is a whole number of at least 1, not 0"),
        (lambda: langchain.SemanticMode("x", judge=_any(7)), "judge is a function, .*, not 7"),
        (
            lambda: langchain.ExperienceCache("memory:", should_store=_any(asyncio.sleep)),
            "should_store is a coroutine function: give it a plain one",
        ),
        (lambda: langgraph.ExperienceNodeCache(types=_any(Message)), "types is a list of classes, not one .*"),
        (lambda: langgraph.ExperienceNodeCache(types=_any(["Message"])), "types is a list of classes, not of str"),
        (lambda: Verifier(_any("0.9")), r"threshold is a number above 0, and at most 1, not '0\.9'"),
        (lambda: AtLeast(_any("7")), "a threshold is a score from 1 to 10, not '7'"),
        (lambda: _replayed(_any({"a": {"memory_k": 4}})), "configurations are made as Configuration.*, not of dict"),
        (
            lambda: ours.Sessions(MemoryStore()).import_(Path("x.jsonl")),
            r"an import takes the lines .*, as open\(path, 'rb'\) gives them, not a path",
        ),
        (lambda: _brain(long_term=True), r"long_term is a LongTermMemory, .*, not bool"),
        (
            lambda: langchain.BrainChatMessageHistory("s", url="memory:", long_term=_memory()),
            "long_term takes what leaves the window: give memory_k= or summarize_at= too",
        ),
        (lambda: langchain.BrainChatMessageHistory(brain=_any("s")), "brain is a BrainMemory, not str"),
        (lambda: llamaindex.SyncBrainChatStore("memory:").delete_message("s", _any("0")), "idx is a .* not '0'"),
        (lambda: langchain.ExperienceCache("memory:", on_error=_any(["raise"])), r'on_error is "degrade" .*, not .*'),
        (lambda: llamaindex.BrainRetriever(brain=_any("s")), "brain is a BrainMemory, not str"),
        (lambda: langchain.history_to_thread(_history()), r"a session .* \.brain, not BrainChatMessageHistory"),
        (lambda: langchain.thread_to_history([], _history()), r"a session .* \.brain, not BrainChatMessageHistory"),
        (lambda: langchain.to_message(_any("x")), "to_message converts a message of LangChain, not str"),
        (lambda: langchain.from_message(_any("x")), "from_message converts a Message of langmem_adapters, not str"),
        (lambda: llamaindex.to_message(_any("x")), "to_message converts a ChatMessage of LlamaIndex, not str"),
        (lambda: llamaindex.from_message(_any("x")), "from_message converts a Message of langmem_adapters, not str"),
        (
            lambda: langchain.ExperienceMiddleware("memory:", examples=_any("2")),
            "examples is a whole number .* not '2'",
        ),
        (lambda: evaluate(_any(_memory()), [_ASKED]), "memory_of is a function, .* not LongTermMemory.*"),
        (lambda: fit(_any(_memory()), [_ASKED]), "memory_of is a function, .* not LongTermMemory.*"),
        (lambda: evaluate(lambda _: _memory(), _any(["Where?"])), "questions are a list of Question.*, not of str"),
        (lambda: evaluate(lambda _: _memory(), [_WRONG]), "the evidence of a question is a set, .*, not str"),
        (lambda: _replayed(questions=[_WRONG]), "the evidence of a question is a set, .*, not str"),
        (lambda: evaluate(lambda _: _memory(), [_UNANSWERED]), "the evidence of a question holds at least one .*"),
        (lambda: _replayed(questions=[_UNANSWERED]), "the evidence of a question holds at least one .*"),
        (lambda: evaluate(lambda _: _memory(), [_NUMBERED]), "the evidence of a question holds .* and nothing else"),
        (lambda: _replayed(questions=_any("Where?")), "questions are a list of Question.*, not one str"),
        (lambda: _replayed(_any([Configuration()])), "give at least one configuration, under a name"),
        (
            lambda: ours.open_store("memory:", timeout="5"),
            "timeout is a number of seconds above 0, or None, not '5'",
        ),
        (lambda: ours.cached(len, url="memory:", ttl="5"), "ttl is a number of seconds above 0, or None, not '5'"),
        (
            lambda: ours.cached(len, url="memory:", scorer=5),
            "scorer is a function, .*, not 5",
        ),
        (
            lambda: ours.cached(len, url="memory:", judge="x"),
            "judge is a function, .*, not 'x'",
        ),
    ],
)
def test_settings_are_of_their_kind(use: Callable[[], object], sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{sentence}$"):
        use()


_SOURCED: list[tuple[Callable[..., object], str]] = [
    (_brain, "clock new_id"),
    (_memory, "clock new_id"),
    (partial(ExperiencePool, MemoryStore()), "clock new_id"),
    (partial(WorkingMemory, MemoryStore()), "clock new_id sleep"),
    (partial(Sessions, MemoryStore()), "clock"),
    (partial(ours.cached, len, url="memory:"), "clock new_id sleep timer"),
    (partial(langchain.ExperienceCache, "memory:"), "clock new_id timer"),
    (partial(langchain.BrainMemoryMiddleware, "memory:"), "clock new_id"),
    (partial(langchain.ExperienceMiddleware, "memory:"), "clock new_id"),
    (partial(langgraph.LongTermStore, "memory:"), "clock new_id"),
    (partial(langgraph.ExperienceNodeCache, "memory:"), "clock"),
    (partial(llamaindex.CachedLLM, MockLLM(), url="memory:"), "clock new_id"),
    (partial(llamaindex.NodeVectors, SimpleVectorStore()), "new_id"),
]


@pytest.mark.parametrize("awaited", ["get", "scan", "append", "close"])
def test_a_store_that_must_be_awaited_is_none(awaited: str) -> None:
    store: Any = type("AsyncStore", (MemoryStore,), {awaited: asyncio.sleep})()
    with pytest.raises(ConfigurationError, match=f"^a store has plain methods, and AsyncStore.{awaited} must be"):
        BrainMemory(store, "s")


@pytest.mark.parametrize("awaited", ["search", "apply"])
def test_an_index_that_must_be_awaited_is_none(awaited: str) -> None:
    index: Any = type("AsyncIndex", (LexicalIndex,), {awaited: asyncio.sleep})(":memory:")
    with pytest.raises(ConfigurationError, match=f"^index has plain methods, and AsyncIndex.{awaited} must be"):
        LongTermMemory(MemoryStore(), index, user="ada")


@pytest.mark.parametrize("wrong", [5, None, asyncio.sleep])
@pytest.mark.parametrize(("make", "name"), [(make, name) for make, names in _SOURCED for name in names.split()])
def test_what_gives_times_and_ids_is_a_plain_function(make: Callable[..., object], name: str, wrong: object) -> None:
    with pytest.raises(ConfigurationError, match=rf"^{name} is a (coroutine )?function"):
        make(**{name: wrong})


@pytest.mark.parametrize(("make", "names"), _SOURCED)
def test_a_clock_gives_seconds_and_ids_are_texts(make: Callable[..., object], names: str) -> None:
    for name, wrong in {"clock": datetime.now, "new_id": uuid.uuid4}.items():
        if name in names:
            with pytest.raises(ConfigurationError, match=f"{name} gives .*, and not a (datetime|UUID)$"):
                make(**{name: wrong})


def test_what_comes_one_by_one_is_taken_as_a_list() -> None:
    said = [Message(role="user", content=text) for text in ("one", "two")]
    brain, memory = _brain(), _memory()
    brain.add_messages(message for message in said)
    memory.add(message for message in said)
    assert ([message.text for message in brain.messages()], memory.count()) == (["one", "two"], 2)
    assert memory.delete(found.id for found in memory.all()) == 2


def test_a_scope_is_a_scope() -> None:
    memory = LongTermMemory(MemoryStore(), open_index("memory:"), user="ada")
    with pytest.raises(ConfigurationError, match="the scope of a search is a Scope, not str"):
        memory.search("bike", scope="monday")  # type: ignore[arg-type]


@pytest.mark.parametrize("experience", [SECRET, None, {"req": SECRET}])
async def test_an_experience_is_an_experience(experience: Any) -> None:
    pool = ExperiencePool(MemoryStore(), tag="t")
    with pytest.raises(ConfigurationError, match=rf"Experience\(req=.*, not {type(experience).__name__}$"):
        pool.create(experience)
    with pytest.raises(ConfigurationError, match="not "):
        await pool.acreate(experience)
    assert pool.count() == 0


def test_an_export_may_come_as_one_text() -> None:
    source, there = MemoryStore(), MemoryStore()
    BrainMemory(source, "s").add_talk("Where is my bike?")
    ExperiencePool(source, tag="t").create(Experience(req="a", resp="b"))
    assert Sessions(there).import_(b"".join(Sessions(source).export()).decode()) == 1
    lines = b"\n".join(bytes(line) for line in ExperiencePool(source, tag="t").export())
    assert ExperiencePool(there, tag="t").import_(lines.decode()) == 1


@pytest.mark.parametrize("messages", [SECRET, [SECRET], [{"role": "user", "content": SECRET}], ChatMessage(SECRET)])
async def test_messages_of_llamaindex_are_a_list_of_them(messages: Any) -> None:
    sync, chat = llamaindex.SyncBrainChatStore("memory:"), llamaindex.BrainChatStore("memory:")
    llm = llamaindex.CachedLLM(MockLLM(), url="memory:")
    wanted = r"^messages are a list of ChatMessage\(.*, not (one|of) (str|dict|ChatMessage)$"
    with pytest.raises(ConfigurationError, match=wanted):
        sync.set_messages("s", messages)
    with pytest.raises(ConfigurationError, match=wanted):
        await chat.add_messages("s", messages)
    with pytest.raises(ConfigurationError, match=wanted):
        llm.chat(messages)
    with pytest.raises(ConfigurationError, match=wanted):
        await llm.achat(messages)
    assert sync.get_messages("s") == await chat.get_messages("s") == []


def test_a_file_may_be_named_by_a_text(tmp_path: Path) -> None:
    questions, talk = tmp_path / "questions.json", tmp_path / "talk.json"
    questions.write_text('[{"question": "Where?", "evidence": ["m1"]}]')
    talk.write_text('[{"role": "user", "content": "Here."}]')
    assert read_questions(str(questions)) == read_questions(questions) == [_ASKED]
    assert read_transcripts(str(talk)) == read_transcripts(talk)
