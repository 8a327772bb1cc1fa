"""Deep copies of what holds a memory hold the same memory; another process opens it itself."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from langchain_core.embeddings import Embeddings
from langchain_core.language_models import FakeListChatModel
from llama_index.core.llms import MockLLM

from langmem_adapters import (
    BrainMemory,
    ConfigurationError,
    Embedder,
    Experience,
    ExperiencePool,
    LongTermMemory,
    Message,
    Sessions,
    Settings,
    WorkingMemory,
    cached,
    open_index,
)
from langmem_adapters.encryption import AESGCMCodec, EnvelopeCodec
from langmem_adapters.experience import LLMJudge, LLMScorer
from langmem_adapters.langchain import (
    BrainChatMessageHistory,
    BrainMemoryMiddleware,
    ExperienceCache,
    ExperienceMiddleware,
    LongTermRetriever,
)
from langmem_adapters.langgraph import ExperienceNodeCache, LongTermStore
from langmem_adapters.llamaindex import BrainRetriever, CachedLLM
from langmem_adapters.model import Score
from langmem_adapters.protocols import Store
from langmem_adapters.sealing import SealedStore
from langmem_adapters.stores.memory import MemoryStore
from langmem_adapters.telemetry import Traced


class Lengths(Embeddings):
    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return [float(len(text)), 1.0]


class OwnEmbedder(Embedder):
    def __init__(self, region: str) -> None:
        super().__init__(Lengths(), name="lengths", batch=1, remembered=2, longest=3)
        self.region = region


def nine(prompt: str) -> str:
    return '{"val": 9}' if "Paris" in prompt else '{"perfect": true}'


class OwnScorer(LLMScorer):
    def __init__(self, region: str) -> None:
        super().__init__(nine, prompt="Score.")
        self.region = region


def capital(country: str) -> str:
    return {"France": "Paris"}[country]


MADE: dict[str, Callable[[Store], Any]] = {
    "store": lambda store: store,
    "sealed store": lambda store: SealedStore(store, redactor=str),
    "traced store": Traced,
    "index": lambda _: open_index("memory:"),
    "brain": lambda store: BrainMemory(store, "s", model=lambda text: text),
    "long-term memory": lambda store: LongTermMemory(store, open_index("memory:"), user="ada"),
    "working memory": WorkingMemory,
    "pool": ExperiencePool,
    "sessions": lambda store: Sessions(store, user="ada"),
    "history": lambda store: BrainChatMessageHistory("s", store=store),
    "cache": lambda store: ExperienceCache(store=store),
    "memory in agents": lambda store: BrainMemoryMiddleware(store=store),
    "cache in agents": lambda store: ExperienceMiddleware(store=store),
    "graph's store": lambda store: LongTermStore(store=store),
    "graph's cache": lambda store: ExperienceNodeCache(store=store),
}


@pytest.mark.parametrize("name", MADE)
def test_a_deep_copy_is_the_same_place_and_a_pickle_is_refused(any_store: Store, name: str) -> None:
    made = MADE[name](any_store)
    assert copy.deepcopy({"state": [made]})["state"][0] is made
    shallow = copy.copy(made)
    assert shallow is not made
    assert vars(shallow) == vars(made)
    refused = f"{type(made).__name__} has connections of this process.* make a new one where it is used"
    with pytest.raises(ConfigurationError, match=refused):
        pickle.dumps(made)


def test_a_decorated_function_crosses_to_another_process_by_its_name_alone(any_store: Store) -> None:
    made = cached(store=any_store)(capital)
    assert copy.deepcopy({"state": [made.cache]})["state"][0] is made.cache
    with pytest.raises(ConfigurationError, match=r"capital is decorated by @cached.* define it in a module"):
        pickle.dumps(made.cache)  # as cloudpickle does with what a notebook defines


def test_what_holds_a_memory_is_copied_and_holds_the_same(any_store: Store) -> None:
    @dataclass
    class State:
        history: BrainChatMessageHistory
        notes: list[str]

    state = State(BrainChatMessageHistory("s", store=any_store), [])
    other = copy.deepcopy(state)
    other.notes.append("mine")
    other.history.add_user_message("Where is my bike?")
    assert [message.text for message in state.history.messages] == ["Where is my bike?"]
    assert state.notes == []


def test_models_and_keys_are_not_copied_with_what_holds_them(tmp_path: Path) -> None:
    codec = EnvelopeCodec(MemoryStore(), AESGCMCodec({"k": bytes(32)}))
    embedder = Embedder(lambda texts: [[1.0] for _ in texts], name="ones")
    settings = Settings(url=f"sqlite:///{tmp_path}/memory.db", codec=codec, embedder=embedder)
    settings.long_term(user="ada").add([Message(role="user", content="My bike is red.")])
    copied = settings.model_copy(deep=True)
    assert (copied.codec, copied.embedder) == (codec, embedder)
    assert [found.text for found in copied.long_term(user="ada").search("bike")] == ["My bike is red."]
    assert copy.deepcopy(codec._keys) is codec._keys


def test_retrievers_and_models_are_copied_with_the_memory_that_they_have(any_store: Store) -> None:
    memory = LongTermMemory(any_store, open_index("memory:"), user="ada")
    retriever = LongTermRetriever(memory=memory)
    ours = BrainRetriever("s", store=any_store)
    model = FakeListChatModel(responses=["one", "two"], cache=ExperienceCache(store=any_store))
    copied = retriever.model_copy(deep=True), copy.deepcopy(ours), model.model_copy(deep=True)
    memory.add([Message(role="user", content="My bike is red.")])
    BrainMemory(any_store, "s").add_talk("My bike is blue.")
    assert [found.page_content for found in copied[0].invoke("bike")] == ["My bike is red."]
    assert [found.text for found in copied[1].retrieve("bike")] == ["My bike is blue."]
    assert model.invoke("hello").content == copied[2].invoke("hello").content == "one"


def test_an_embedder_goes_to_another_process_with_its_settings() -> None:
    embedder = OwnEmbedder("eu")
    data = pickle.dumps(Settings(url="memory:", embedder=embedder))
    loaded: OwnEmbedder = pickle.loads(data).embedder
    assert loaded.texts(["a", "bb", "cccc"]) == embedder.texts(["a", "bb", "ccc"])
    assert (loaded.region, loaded.name) == ("eu", "lengths")
    assert (type(loaded), loaded.stats) == (OwnEmbedder, {"calls": 3, "texts": 3, "remembered": 0})
    assert loaded.texts(["bb", "a"]) == embedder.texts(["bb", "a"])
    assert loaded.stats == embedder.stats
    assert copy.copy(embedder) is embedder


def test_what_asks_a_model_goes_to_another_process_with_what_it_is_told() -> None:
    scorer, judge = OwnScorer("eu"), LLMJudge(nine)
    asked = pickle.loads(pickle.dumps(scorer)), pickle.loads(pickle.dumps(judge))
    assert asked[0]("the capital of France", "Paris") == Score(val=9)
    assert asked[1](Experience(req="a", resp="b"), "a") is True
    assert (asked[0].region, asked[0]._prompt) == ("eu", "Score.")
    assert (asked[0].stats()["calls"], scorer.stats()["calls"]) == (1, 0)
    assert copy.copy(scorer) is copy.deepcopy(scorer) is scorer  # with a model, which is not copied
    model = CachedLLM(MockLLM(max_tokens=2), url="memory:", scorer=scorer)
    assert pickle.loads(pickle.dumps(model)).complete("Hello!").text == "text text"


def test_keys_are_not_written_down() -> None:
    codec = AESGCMCodec({"k": bytes(32)})
    with pytest.raises(ConfigurationError, match=r"an AESGCMCodec holds keys.* make one in the other process"):
        pickle.dumps(Settings(url="memory:", codec=codec))
    assert copy.copy(codec) is codec
