"""What the semantic cache serves, and what it should not: ``python -m tests.benchmarks.semantic FILE…``.

A file holds pairs. JSON with ``pairs`` of ``[stored, asked, same?, cluster, cluster]``: every distinct first text
is stored, every distinct second one that is not stored is looked up, and a hit is right where both lie in one cluster.
JSON with ``pairs`` of ``[stored, asked]``: the hit is right where it is the asked text's own. JSON Lines as in
``tests/semantic``: adversarial pairs have no right entry, paraphrases have their own. What is stored itself is not
looked up.

Precision is right hits / hits, hit rate is right hits / look-ups that have a right entry, and false hits are wrong hits
of look-ups / those that have none (where each has one: wrong hits / look-ups). The embedder is a function from a list
of texts to their vectors, "package.module:function"; default: all-MiniLM-L6-v2, which the extra ``bench`` brings.
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from langmem_adapters.embedding import Embedder
from langmem_adapters.experience.verifier.calibration import Scale, measure_scale
from langmem_adapters.experience.verifier.verifier import Verifier
from tests.benchmarks.recall import minilm

CANDIDATES = 5
_AS_IT_IS = Scale()
Embed = Callable[[Sequence[str]], Any]
Checked = Callable[[str, Sequence[tuple[str, float]]], str | None]


class Set(NamedTuple):
    name: str
    stored: dict[str, set[Any]]
    """Texts, and what each is an answer to."""
    asked: dict[str, set[Any]]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.semantic", description="Semantic cache quality.")
    parser.add_argument("paths", type=Path, nargs="+", help="files of pairs, plain or gzipped")
    parser.add_argument("--embedder", default="", help="package.module:function, from texts to vectors")
    chosen = parser.parse_args(arguments)
    embed = _embedder(chosen.embedder)
    scale = measure_scale(Embedder(lambda texts: list(embed(texts)), name="measured"))
    print(f"as shipped, cosines are calibrated: times {scale.slope:.3f}, then {scale.offset:+.3f}")  # noqa: T201
    print(f"{'':32} {'look-ups':>8} {'precision':>9} {'hit rate':>8} {'false hits':>10} {'ms a candidate':>14}")  # noqa: T201 - its output
    for path in chosen.paths:
        pairs = read(path)
        candidates = nearest(pairs, embed)
        for name, check in (
            ("as shipped", verified(scale=scale)),
            ("cosine ≥ 0.90", by_cosine(0.9)),
            ("cosine ≥ 0.97", by_cosine(0.97)),
        ):
            measure(pairs, candidates, f"{pairs.name}, {name}", check)


def read(path: Path) -> Set:
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    if path.suffix == ".jsonl":
        rows = [json.loads(line) for line in text.splitlines()]
        pairs: list[list[Any]] = [[row["stored"], row["asked"]] for row in rows]
        hostile = path.stem.endswith("adversarial")
    else:
        pairs, hostile = json.loads(text)["pairs"], False
    stored: dict[str, set[Any]] = {}
    asked: dict[str, set[Any]] = {}
    for n, (first, second, *more) in enumerate(pairs):
        one, other = (more[1], more[2]) if more else (n, -n - 1 if hostile else n)
        stored.setdefault(first, set()).add(one)
        asked.setdefault(second, set()).add(other)
    new = {text: groups for text, groups in asked.items() if text not in stored}
    return Set(path.name.split(".")[0], stored, new)


def nearest(pairs: Set, embed: Embed) -> dict[str, list[tuple[str, float]]]:
    """The nearest stored texts of each that is asked, with their cosines."""
    stored, asked = list(pairs.stored), list(pairs.asked)
    matrix, queries = _unit(embed(stored)), _unit(embed(asked))
    found = {}
    for text, vector in zip(asked, queries, strict=True):
        cosines = matrix @ vector
        best = np.argsort(-cosines)[:CANDIDATES]
        found[text] = [(stored[n], float(cosines[n])) for n in best]
    return found


def measure(pairs: Set, candidates: dict[str, list[tuple[str, float]]], name: str, check: Checked) -> None:
    answers = set().union(*pairs.stored.values())
    counts: Counter[str] = Counter()
    start = time.perf_counter()
    served = {text: check(text, near) for text, near in candidates.items()}
    took = time.perf_counter() - start
    for text, groups in pairs.asked.items():
        has, hit = bool(groups & answers), served[text]
        right = hit is not None and bool(pairs.stored[hit] & groups)
        counts.update(has=has, has_none=not has, hits=hit is not None, right=right, wrong=hit is not None and not right)
        counts["false"] += hit is not None and not has
    of_none, wrong = (counts["has_none"], counts["false"]) if counts["has_none"] else (counts["has"], counts["wrong"])
    figures = [_share(counts["right"], counts["hits"]), _share(counts["right"], counts["has"]), _share(wrong, of_none)]
    milliseconds = 1000 * took / sum(map(len, candidates.values()))
    line = f"{name:32} {len(pairs.asked):8} {figures[0]:>9} {figures[1]:>8} {figures[2]:>10} {milliseconds:14.2f}"
    print(line, flush=True)  # noqa: T201 - its output


def verified(verifier: Verifier | None = None, scale: Scale = _AS_IT_IS) -> Checked:
    """Serve as the semantic cache does: of the candidates that pass, the one with the best score."""
    judge = verifier or Verifier()

    def check(text: str, near: Sequence[tuple[str, float]]) -> str | None:
        verdicts = [(judge(text, stored, cosine=scale.convert(cosine)), stored) for stored, cosine in near]
        passed = [(verdict.score, stored) for verdict, stored in verdicts if verdict.accepted]
        return max(passed, key=lambda pair: pair[0])[1] if passed else None

    return check


def by_cosine(threshold: float) -> Checked:
    def check(_: str, near: Sequence[tuple[str, float]]) -> str | None:
        return near[0][0] if near[0][1] >= threshold else None

    return check


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def _unit(vectors: Any) -> Any:
    matrix = np.asarray(vectors, dtype="f4")
    return matrix / np.linalg.norm(matrix, axis=1, keepdims=True).clip(1e-9)


def _embedder(name: str) -> Embed:
    if name:
        module, _, function = name.partition(":")
        return getattr(importlib.import_module(module), function)  # type: ignore[no-any-return]
    model = minilm()
    return lambda texts: model.encode(list(texts), batch_size=64)


if __name__ == "__main__":
    main()
