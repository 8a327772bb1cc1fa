"""The demo: a LangChain chain with history, an overflow, a recall, and an answer from the cache."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.text import Text

from langmem_adapters.brain import BrainMemory
from langmem_adapters.cli.terminal import OUT, hits, say
from langmem_adapters.errors import MissingDependency
from langmem_adapters.indexes import open_index
from langmem_adapters.longterm import LongTermMemory
from langmem_adapters.stores import open_store

try:
    from langchain_core.language_models import FakeListChatModel
    from langchain_core.messages import HumanMessage
    from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
except ImportError as error:
    raise MissingDependency("langchain-core", "langchain") from error

from langmem_adapters.langchain import BrainChatMessageHistory, ExperienceCache

__all__ = ["play"]

_TENANT, _USER, _SESSION = "langmem-demo", "ada", "demo"
_MEMORY_K = 4
_DELAY = 0.4  # seconds that the scripted model takes for an answer
_QUESTION = "Where did I leave my bike?"
_CAPITAL = "What is the capital of France?"
_SCRIPT = (
    ("Hello, I am Ada.", "Hello Ada."),
    ("My bike is in the shed behind the house.", "Noted."),
    ("On Friday I fly to Lisbon.", "Have a good flight."),
    ("Which day was that?", "Friday."),
    ("And to which city?", "Lisbon."),
)


def play(url: str) -> None:
    """Run the demo on a store and show it. What an earlier run left there is removed first."""
    with closing(open_store(url)) as store, closing(open_index(url)) as index:
        long_term = LongTermMemory(store, index, user=_USER, tenant=_TENANT)
        brain = BrainMemory(store, _SESSION, user=_USER, tenant=_TENANT, memory_k=_MEMORY_K, long_term=long_term)
        cache = ExperienceCache(store=store, tenant=_TENANT, on_error="raise")
        for earlier in (brain, long_term, cache):
            earlier.clear()
        say("The model is scripted: it needs no key and no network. All the rest is real.\n")
        _show("1. A LangChain chain with history", _chat(BrainChatMessageHistory(brain=brain)))
        _show("2. Overflow", [_overflow(brain, long_term)])
        _show(f'3. Recall: "{_QUESTION}"', [hits(brain.recall(_QUESTION, k=1))])
        _show("4. Cache", _ask_twice(cache))


def _show(title: str, lines: Sequence[RenderableType]) -> None:
    OUT.print(Panel(Group(*lines), title=title, title_align="left", border_style="cyan"))


def _chat(history: BrainChatMessageHistory) -> list[RenderableType]:
    prompt = ChatPromptTemplate.from_messages([MessagesPlaceholder("history"), ("human", "{question}")])
    chain = prompt | FakeListChatModel(responses=[answer for _, answer in _SCRIPT])
    shown: list[RenderableType] = []
    for question, _ in _SCRIPT:
        answer = chain.invoke({"history": history.messages, "question": question})
        history.add_messages([HumanMessage(question), answer])
        shown += [
            Text.assemble(("you    ", "bold cyan"), question),
            Text.assemble(("model  ", "bold green"), answer.text),
        ]
    return shown


def _overflow(brain: BrainMemory, long_term: LongTermMemory) -> str:
    return (
        f"{2 * len(_SCRIPT)} messages were written. The window keeps the newest {brain.count()}; "
        f"{long_term.count()} moved to the long-term memory."
    )


def _ask_twice(cache: ExperienceCache) -> list[RenderableType]:
    model = FakeListChatModel(responses=["Paris."], sleep=_DELAY, cache=cache)
    shown: list[RenderableType] = [_CAPITAL]
    for _ in range(2):
        hits_before = cache.stats()["hits"]
        start = time.perf_counter()
        answer = model.invoke(_CAPITAL)
        took = 1000 * (time.perf_counter() - start)
        word, colour = ("hit ", "green") if cache.stats()["hits"] > hits_before else ("miss", "yellow")
        shown.append(Text.assemble((f"{word} {took:8.1f} ms", f"bold {colour}"), f"  {answer.text}"))
    return [*shown, Text(f"The scripted model takes {1000 * _DELAY:.0f} ms on purpose.", "dim")]
