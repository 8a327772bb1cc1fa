"""Convert a model's cosines to the scale of all-MiniLM-L6-v2, with which the verifier's score was learnt.

Models have different scales: texts of the same meaning have a cosine of 0.95 with one, and of 0.75 with another; with
some, none is below 0.7. So a model embeds 64 texts whose cosines with all-MiniLM-L6-v2 are known, and a straight line
is fitted to both. The less the models agree, the lower the line is, so that a deviating model is trusted less.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from langmem_adapters.embedding import Embedder, cosine_of
from langmem_adapters.flow import Flow, step

if TYPE_CHECKING:
    from langmem_adapters.experience.verifier.verifier import Verifier

_log = logging.getLogger("langmem_adapters")
_FAR_COSINE, _FAR_WEIGHT = 0.5, 0.2  # the weight of pairs up to this cosine: a good fit matters for near pairs
_CAUTION_SHARE = 0.25  # the share of the pairs' mean distance from the line by which it is lowered
_MIN_SPREAD = 1e-6
_SAME_TEXT_COSINE = 0.999


class Scale(NamedTuple):
    """A line that maps a model's cosines to those of all-MiniLM-L6-v2."""

    slope: float = 1.0
    offset: float = 0.0

    def convert(self, cosine: float) -> float:
        """Convert a cosine of the model."""
        return min(max(self.slope * cosine + self.offset, -1.0), 1.0)


class Pair(NamedTuple):
    """Two requests, and their cosines with all-MiniLM-L6-v2."""

    stored: str
    request: str
    cosine: float
    next_cosine: float
    """The cosine of ``request`` and the next pair's ``stored``."""


_SCALES: WeakKeyDictionary[Embedder, Scale] = WeakKeyDictionary()


def scale_flow(index: Any, verifier: Verifier) -> Flow[Scale]:
    """The scale of an index's embedder, which is measured once. Raises as :meth:`Embedder.texts` does.

    If a judge replaces the score, or the index has no embedder, cosines are not converted.
    """
    embedder: Embedder | None = getattr(index, "embedder", None)
    if embedder is None or verifier.judge is not None:
        return Scale()
    scale = _SCALES.get(embedder)
    if scale is None:
        scale = _SCALES[embedder] = yield from step(measure_scale, embedder)
        _log.info("cosines of %s are calibrated: times %.3f, then %+.3f", embedder.name, *scale)
    return scale


def measure_scale(embedder: Embedder) -> Scale:
    """Measure the scale of an embedder. If it finds all pairs equally near, as a toy does, cosines stay as they are."""
    stored_vectors = embedder.texts([pair.stored for pair in PAIRS])
    requests = [pair.request for pair in PAIRS]
    is_symmetric = (cosine_of(embedder.query(PAIRS[0].stored), stored_vectors[0]) or 0.0) > _SAME_TEXT_COSINE
    queries = embedder.texts(requests) if is_symmetric else [embedder.query(text) for text in requests]
    points = []
    for pair, query, vector, next_vector in zip(
        PAIRS, queries, stored_vectors, [*stored_vectors[1:], stored_vectors[0]], strict=True
    ):
        points.append((cosine_of(query, vector) or 0.0, pair.cosine))
        points.append((cosine_of(query, next_vector) or 0.0, pair.next_cosine))
    return _fit_line(points)


def _fit_line(points: list[tuple[float, float]]) -> Scale:
    """The line of weighted least squares, lowered by a share of the points' distance from it.

    A point is the model's cosine (x), and that of all-MiniLM-L6-v2 (y).
    """
    weights = [_FAR_WEIGHT if cosine <= _FAR_COSINE else 1.0 for _, cosine in points]
    total = sum(weights)

    def mean(values: list[float]) -> float:
        return sum(weight * value for weight, value in zip(weights, values, strict=True)) / total

    mean_x, mean_y = mean([x for x, _ in points]), mean([y for _, y in points])
    spread = mean([(x - mean_x) ** 2 for x, _ in points])
    if spread < _MIN_SPREAD:
        return Scale()
    slope = max(mean([(x - mean_x) * (y - mean_y) for x, y in points]) / spread, 0.0)
    distance = math.sqrt(mean([(slope * (x - mean_x) + mean_y - y) ** 2 for x, y in points]))
    return Scale(slope, mean_y - slope * mean_x - _CAUTION_SHARE * distance)


# Half of the pairs mean the same. They are from tests/semantic, chosen so that these few give the same line as all.
_ROWS = """
I'm allergic to nuts. What can I eat? | I am allergic to nuts. What can I eat? | 0.9971 | -0.0905
Explain why the test passes. | Explain why the test does not pass. | 0.8503 | -0.0237
What is the best time to sell a house? | What is the best time to buy a house? | 0.8932 | 0.0475
How do I end a formal letter? | How should I end a formal letter? | 0.9843 | -0.1624
Does poverty cause crime? | Does crime cause poverty? | 0.9887 | 0.0532
Can a 4-year-old fly alone? | Can a 14-year-old fly alone? | 0.8926 | -0.0717
To begin, open the terminal and type the command. | To start, open the terminal and type the command. | 0.9261 | 0.0136
Proofread this sentence: I has a dog. | Please proofread this sentence: I has a dog. | 0.9845 | 0.0401
How do I convert a list to a string in Python? | How can I convert a list into a string in Python? | 0.9961 | 0.0671
How do I reset my Samsung phone? | How do I reset my Nokia phone? | 0.7771 | 0.0102
Is it safe to swim after eating? | Is it safe to swim after you eat? | 0.9817 | -0.0882
How do I organise my desk? | How do I organize my desk? | 0.9513 | -0.0019
What is the dose of paracetamol for a child of 12 kg? \
| What is the dose of paracetamol for a child of 21 kg? | 0.9741 | 0.0984
What is the best way to peel garlic? | How do I peel garlic? | 0.9616 | 0.063
What are the side effects of melatonin? | What side effects does melatonin have? | 0.9743 | 0.2067
How do I choose a mattress? | How can I choose a mattress? | 0.9885 | 0.0689
How do I tie a bow tie? | How do I tie a shoelace? | 0.721 | 0.0956
Convert 10 miles to kilometers. | Convert 10 miles into kilometres. | 0.9686 | 0.0314
How do I dowload the app? | How do I download the app? | 0.8413 | 0.0166
What can I plant in spring? | What can I plant in autumn? | 0.7591 | 0.2447
Which animals are awake at night? | Which animals are asleep at night? | 0.9477 | 0.1309
Do you ship to Norway? | Do you deliver to Norway? | 0.8801 | 0.0943
How do vaccines work? | Do vaccines work? | 0.8073 | 0.0331
Is Pluto a planet? | Is Pluto considered a planet? | 0.9687 | -0.0685
How do I get into the building? | How do I get out of the building? | 0.7897 | 0.1246
How do I encrypt a file? | How do I decrypt a file? | 0.8352 | 0.1144
Give me a recipe for banana bread. | Give me a banana bread recipe. | 0.985 | 0.0991
How do I tie a tie? Thanks! | How do I tie a tie? | 0.9851 | 0.048
Who wrote Anna Karenina? | Who wrote Madame Bovary? | 0.3585 | 0.064
Where is /etc/hosts? | Where is /etc/passwd? | 0.4514 | 0.0845
Move the button from the left to the right. | Move the button from the right to the left. | 0.9987 | 0.0382
What is the capital of Australia? | What is the capital of Austria? | 0.7104 | 0.1043
"""
PAIRS = tuple(
    Pair(stored, request, float(cosine), float(next_cosine))
    for stored, request, cosine, next_cosine in (row.split(" | ") for row in _ROWS.strip().splitlines())
)
