"""What a candidate of the semantic mode costs beside its vector: ``python -m tests.benchmarks.verifier``.

The texts are made of the paraphrases in ``tests/semantic``: the two of one pair, between the same others until they are
long enough. Each is read anew, as one that was never asked before; what single words say is known, as in a process that
has served some.
"""

from __future__ import annotations

import json
import random
import statistics
import time
from pathlib import Path

from langmem_adapters.experience.verifier.reading import read
from langmem_adapters.experience.verifier.verifier import Verifier

SIZES = (60, 120, 400, 800, 2_000)  # characters
_SETS = Path(__file__).parent.parent / "semantic"


def main(rounds: int = 300) -> None:
    chance, verifier = random.Random(7), Verifier()
    lines = [line for path in sorted(_SETS.glob("*paraphrases.jsonl")) for line in path.read_text("utf-8").splitlines()]
    pairs = [(row["stored"], row["asked"]) for row in map(json.loads, lines)]
    print(f"{'characters':>10} {'ms a candidate':>15}")  # noqa: T201 - its output
    for size in SIZES:
        texts = [_texts(pairs, size, chance) for _ in range(rounds)]
        for one, other in texts:
            verifier(one, other, cosine=0.97)
        print(f"{size:10} {statistics.median(_took(verifier, *each) for each in texts):15.2f}")  # noqa: T201 - same


def _texts(pairs: list[tuple[str, str]], size: int, chance: random.Random) -> tuple[str, str]:
    stored, asked = min((chance.choice(pairs) for _ in range(20)), key=lambda pair: abs(len(pair[0]) - min(size, 60)))
    others: list[str] = []
    while sum(map(len, (stored, *others))) < size - 30:  # half of a usual one
        others.append(chance.choice(pairs)[0])
    half = len(others) // 2
    one, other = (" ".join([*others[:half], each, *others[half:]])[:size] for each in (stored, asked))
    return one, other


def _took(verifier: Verifier, one: str, other: str) -> float:
    read.cache_clear()
    began = time.perf_counter()
    verifier(one, other, cosine=0.97)
    return 1000 * (time.perf_counter() - began)


if __name__ == "__main__":
    main()
