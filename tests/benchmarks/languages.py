"""Evidence recall in seventeen languages, without an embedder: ``python -m tests.benchmarks.languages``.

The chats in ``tests/languages`` are invented: sixty messages in several sessions, and some thirty questions that are
asked as one would, often in other forms than the answers have. Each is a memory of its own. By the first eight, the
parts of words were chosen that stand beside whole words; the others were held back.

A chat begins with its speakers; ``==`` begins a session, of a day; a message is a number, A or B and what they say; and
behind ``??`` come the questions, each with the numbers of what answers it.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from langmem_adapters import LongTermMemory, Message
from langmem_adapters.evaluation import Evaluation, Question, evaluate
from langmem_adapters.indexes.lexical import LexicalIndex
from langmem_adapters.language.analysis import analyze, part_terms
from langmem_adapters.stores.memory import MemoryStore
from tests.benchmarks import recall_peers

CHOSEN_BY = {
    "ar": "Arabic",
    "de": "German",
    "fi": "Finnish",
    "hi": "Hindi",
    "ja": "Japanese",
    "ko": "Korean",
    "ru": "Russian",
    "tr": "Turkish",
}
HELD_BACK = {
    "el": "Greek",
    "es": "Spanish",
    "fr": "French",
    "he": "Hebrew",
    "hu": "Hungarian",
    "pl": "Polish",
    "th": "Thai",
    "vi": "Vietnamese",
    "zh": "Chinese",
}

_FOLDER = Path(__file__).parents[1] / "languages"
_SAID = re.compile(r"(\d+)([AB]) (.*)")
_MINUTE = 60


class Chat(NamedTuple):
    """What was said, by session, and what is asked."""

    sessions: dict[str, list[Message]]
    questions: list[Question]


def read(language: str) -> Chat:
    """The chat of a language, by its letters."""
    head, asked = (_FOLDER / f"{language}.txt").read_text(encoding="utf-8").split("??\n")
    speakers, *lines = head.splitlines()
    names = dict(part.split("=") for part in speakers.split())
    chat = Chat({}, [])
    for line in lines:
        if line.startswith("=="):
            day = line.strip("= ")
            at = datetime.fromisoformat(day).replace(hour=10, tzinfo=timezone.utc).timestamp()
            said = chat.sessions.setdefault(day, [])
        elif found := _SAID.match(line):
            name = names[found[2]]
            who = {"role": name} if name in {"user", "assistant"} else {"role": "user", "name": name}
            said.append(Message(content=found[3], id=found[1], created_at=at + _MINUTE * len(said), **who))
    for line in filter(str.strip, asked.splitlines()):
        question, answers = line.rsplit("|", 1)
        chat.questions.append(Question(question.strip(), frozenset(answers.split())))
    return chat


def whole_words(text: str) -> list[str]:
    """As :func:`~langmem_adapters.language.analysis.analyze`, without parts of words."""
    parts = part_terms(text)
    return [term for term in analyze(text) if term not in parts]


def measure(chat: Chat, *, parts: bool = True) -> Evaluation:
    """What a memory of the chat finds, with or without parts of words."""
    index = LexicalIndex(":memory:") if parts else LexicalIndex(":memory:", analyzer=whole_words, analyzer_id="whole")
    memory = LongTermMemory(MemoryStore(), index, user="u")
    for session, said in chat.sessions.items():
        memory.add(said, session=session)
    return _evaluated(memory, chat)


def _evaluated(memory: Any, chat: Chat) -> Evaluation:
    found = evaluate(lambda _: memory, chat.questions)
    assert not found.unknown
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.languages", description="Recall by language.")
    parser.add_argument("--peers", action="store_true", help="measure LlamaIndex too")
    peers = dict(recall_peers.installed(None)) if parser.parse_args(arguments).peers else {}
    columns = ["", "R@5", "R@10", "MRR", "R@10 without the parts", *(f"R@10 of {name}" for name in peers)]
    _row(columns)
    _row(["---"] * len(columns))
    for languages in (CHOSEN_BY, HELD_BACK):
        rows = [_figures(read(letters), list(peers.values())) for letters in languages]
        mean = [fmean(column) for column in zip(*rows, strict=True)]
        for name, row in zip((*languages.values(), "*mean*"), (*rows, mean), strict=True):
            _row([name, *(f"{value:.2f}" if n == _MRR else f"{100 * value:.1f}" for n, value in enumerate(row))])


def _figures(chat: Chat, peers: Sequence[Callable[..., Any]]) -> list[float]:
    ours, whole = measure(chat), measure(chat, parts=False)
    spoken = [message for said in chat.sessions.values() for message in said]
    others = [_evaluated(make(spoken), chat).recall[10] for make in peers]
    return [ours.recall[5], ours.recall[10], ours.mrr, whole.recall[10], *others]


_MRR = 2  # its place among the figures


def _row(cells: Sequence[str]) -> None:
    print(f"| {' | '.join(cells)} |", flush=True)  # noqa: T201 - its output


if __name__ == "__main__":
    main()
