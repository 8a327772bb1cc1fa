"""The demo: a LangChain chain with history, an overflow, a recall, and an answer from the cache."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.text import Text

from langmem_adapters.brain import BrainMemory
from langmem_adapters.cli.terminal import OUT, format_hits, write
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

_TENANT, _USER, _SESSION = "langmem-demo", "ada", "demo"
_MEMORY_K = 4
_DELAY_SECONDS = 0.4  # seconds that the scripted model takes for an answer
_RECALL_QUESTION = "Where did I leave my bike?"
_CACHE_QUESTION = "What is the capital of France?"
_CONVERSATION = (
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
        for leftover in (brain, long_term, cache):
            leftover.clear()
        write("The model is scripted: it needs no key and no network. All the rest is real.\n")
        _write_panel("1. A LangChain chain with history", _chat(BrainChatMessageHistory(brain=brain)))
        _write_panel("2. Overflow", [_overflow(brain, long_term)])
        _write_panel(f'3. Recall: "{_RECALL_QUESTION}"', [format_hits(brain.recall(_RECALL_QUESTION, k=1))])
        _write_panel("4. Cache", _ask_twice(cache))


def _write_panel(title: str, lines: Sequence[RenderableType]) -> None:
    OUT.print(Panel(Group(*lines), title=title, title_align="left", border_style="cyan"))


def _chat(history: BrainChatMessageHistory) -> list[RenderableType]:
    prompt = ChatPromptTemplate.from_messages([MessagesPlaceholder("history"), ("human", "{question}")])
    chain = prompt | FakeListChatModel(responses=[answer for _, answer in _CONVERSATION])
    lines: list[RenderableType] = []
    for question, _ in _CONVERSATION:
        answer = chain.invoke({"history": history.messages, "question": question})
        history.add_messages([HumanMessage(question), answer])
        lines += [
            Text.assemble(("you    ", "bold cyan"), question),
            Text.assemble(("model  ", "bold green"), answer.text),
        ]
    return lines


def _overflow(brain: BrainMemory, long_term: LongTermMemory) -> str:
    return (
        f"{2 * len(_CONVERSATION)} messages were written. The window keeps the newest {brain.count()}; "
        f"{long_term.count()} moved to the long-term memory."
    )


def _ask_twice(cache: ExperienceCache) -> list[RenderableType]:
    model = FakeListChatModel(responses=["Paris."], sleep=_DELAY_SECONDS, cache=cache)
    lines: list[RenderableType] = [_CACHE_QUESTION]
    for _ in range(2):
        hits_before = cache.stats()["hits"]
        started = time.perf_counter()
        answer = model.invoke(_CACHE_QUESTION)
        milliseconds = 1000 * (time.perf_counter() - started)
        outcome, colour = ("hit ", "green") if cache.stats()["hits"] > hits_before else ("miss", "yellow")
        lines.append(Text.assemble((f"{outcome} {milliseconds:8.1f} ms", f"bold {colour}"), f"  {answer.text}"))
    return [*lines, Text(f"The scripted model takes {1000 * _DELAY_SECONDS:.0f} ms on purpose.", "dim")]
