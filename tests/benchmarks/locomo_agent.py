"""LoCoMo conversations through an agent with memory: ``python -m tests.benchmarks.locomo_agent locomo.json.gz``.

Every conversation is a user's; each of its sessions is a new thread, and all of them are one session of the memory.
A scripted model answers with what the other speaker said, every fifth time after two parallel tool calls, and a
scripted summary is the end of what it is made from. Each request is checked: within the budget, and in a form that
providers accept.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver

from langmem_adapters.importing import Transcript, read_transcripts
from langmem_adapters.langchain import BrainMemoryMiddleware
from langmem_adapters.model import Message
from tests.agents import Scripted, invalid, look
from tests.test_langchain_middleware import tokens

Turn = tuple[Message, str]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.locomo_agent", description="LoCoMo as an agent.")
    parser.add_argument("path", type=Path, help="the LoCoMo file, plain or gzipped")
    parser.add_argument("--budget", type=int, default=2000, help="tokens of a request")
    options = parser.parse_args(arguments)
    transcripts = read_transcripts(options.path, format_="locomo")
    with tempfile.TemporaryDirectory() as folder:
        measure(transcripts, f"sqlite:///{Path(folder, 'agent.db')}", options.budget)


def measure(transcripts: Sequence[Transcript], url: str, budget: int) -> None:
    script: dict[str, str] = {}

    def answer(messages: list[BaseMessage]) -> AIMessage:
        question = next(m for m in reversed(messages) if isinstance(m, HumanMessage))
        if len(script) % 5 == 0 and not isinstance(messages[-1], ToolMessage):
            calls = [
                {"name": "look", "args": {"place": place}, "id": f"{place}-{question.id}", "type": "tool_call"}
                for place in ("diary", "calendar")
            ]
            return AIMessage("", tool_calls=calls)
        return AIMessage(script[str(question.id)])

    model = Scripted(answer=answer)
    memory = BrainMemoryMiddleware(url, model=lambda prompt: prompt[-1200:], max_tokens=budget, on_error="raise")
    agent = create_agent(
        model, [look], system_prompt="You are a friend.", middleware=[memory], checkpointer=InMemorySaver()
    )
    asked, start = 0, time.perf_counter()
    for transcript in transcripts:
        user = transcript.user or ""
        for said, reply in turns(transcript.messages()):
            script[f"{user}/{said.id}"] = reply
            turn: Any = {"messages": [HumanMessage(said.text, name=said.name, id=f"{user}/{said.id}")]}
            agent.invoke(
                turn,
                {"configurable": {"thread_id": transcript.session}},
                context={"user_id": user, "session_id": user},
            )
            asked += 1
    memory.flush()
    users = {transcript.user or "" for transcript in transcripts}
    print(f"{asked} turns of {len(users)} conversations in {time.perf_counter() - start:.1f} s")  # noqa: T201 - its output
    report(model, memory, users, budget)


def turns(messages: Sequence[Message]) -> Iterator[Turn]:
    """What one says and what the other answers; who speaks twice is answered with a nod."""
    rest = list(messages)
    while rest:
        said = rest.pop(0)
        answered = bool(rest) and rest[0].name != said.name
        yield said, rest.pop(0).text if answered else "I see."


def report(model: Scripted, memory: BrainMemoryMiddleware, users: set[str], budget: int) -> None:
    sizes = [tokens(shown) for shown in model.seen]
    refused = [reason for shown in model.seen if (reason := invalid(shown))]
    stats = memory.stats()
    kept = 0
    for user in users:
        brain = memory.brain(user, user=user)
        assert brain.long_term is not None
        ids = {o.message_id for found in brain.long_term.all() for o in found.occurrences}
        kept += len(ids | {message.id for message in brain.messages()})
    lines = [
        f"{len(model.seen)} model calls",
        f"largest request {max(sizes)} tokens of {budget}; mean {sum(sizes) / len(sizes):.0f}",
        f"over budget {sum(size > budget for size in sizes)}; invalid {len(refused)} {refused[:3]}",
        f"{stats['recorded']} messages recorded, {kept} kept; {stats['recalled']} memories recalled",
        f"{stats['summaries']} summaries with {stats['calls']} calls, {stats['tokens_in']} tokens in",
    ]
    print("\n".join(lines))  # noqa: T201 - its output


if __name__ == "__main__":
    main()
