"""Choose a threshold by labelled pairs of your own."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from langmem_adapters.embedding import cosine_of
from langmem_adapters.errors import ConfigurationError
from langmem_adapters.experience.verifier.calibration import Scale, scale_flow
from langmem_adapters.flow import Flow
from langmem_adapters.progress import Progress, advancing

if TYPE_CHECKING:
    from langmem_adapters.experience.verifier.verifier import Verifier

_PAGE_SIZE = 32  # pairs that are embedded at a time


class TunedPoint(NamedTuple):
    """The effect of a threshold on the pairs."""

    threshold: float
    precision: float
    """The share of the served pairs that mean the same."""
    hit_rate: float
    """The share of the pairs that mean the same which is served."""
    false_hit_rate: float
    """The share of the pairs that do not mean the same which is served."""


class Tuned(NamedTuple):
    """The lowest threshold with the wanted precision, and the curve of all thresholds."""

    threshold: float
    curve: list[TunedPoint]
    scored: Sequence[tuple[float, bool]] = ()
    """The score of each pair, and whether it means the same."""


def choose_threshold(scored: Sequence[tuple[float, bool]], precision: float) -> Tuned:
    """Choose a threshold among the scores of pairs; the boolean says whether a pair means the same.

    No threshold serves a score of 0. Raises ConfigurationError if no threshold has that precision.

    >>> choose_threshold([(0.9, True), (0.8, True), (0.7, False), (0.6, True), (0.0, False)], precision=0.9).threshold
    0.8
    """
    if not 0 < precision <= 1:
        raise ConfigurationError(f"precision is a number above 0, and at most 1, not {precision}")
    if not any(is_same for _, is_same in scored):
        raise ConfigurationError("a threshold is tuned by pairs of which at least one is the same")
    curve = _curve(scored)
    if not curve:
        raise ConfigurationError(
            "no threshold serves any of these pairs: Verifier()(kept, asked, cosine=…) says why one is refused"
        )
    precise = [point for point in curve if point.precision >= precision]
    if not precise:
        best = max(point.precision for point in curve)
        raise ConfigurationError(f"no threshold has a precision of {precision} on these pairs; the best has {best:.3f}")
    return Tuned(min(precise).threshold, curve, list(scored))


def tune_flow(
    index: Any,
    pairs: Sequence[tuple[str, str, bool]],
    precision: float,
    *,
    verifier: Verifier | None = None,
    progress: Progress = False,
) -> Flow[Tuned]:
    """Score pairs of a stored and a new request, and choose a threshold.

    The score is the verifier's; without a verifier, that of a search in the index.
    """
    embedder: Any = getattr(index, "embedder", None)
    if embedder is None:
        raise ConfigurationError("tune needs an index of vectors that has an embedder: use open_vectors")
    if not all(map(_is_pair, pairs)):
        raise ConfigurationError("a pair holds two requests and whether they mean the same: (kept, asked, True)")
    scale = Scale() if verifier is None else (yield from scale_flow(index, verifier))
    scored = []
    with advancing(progress, "tuning", len(pairs), "pairs") as advance:
        for start in range(0, len(pairs), _PAGE_SIZE):
            page = pairs[start : start + _PAGE_SIZE]
            vectors = yield from embedder.texts_flow([stored for stored, _, _ in page])
            for (stored, request, same), stored_vector in zip(page, vectors, strict=True):
                request_vector = yield from embedder.query_flow(request)
                score = yield from _score(verifier, stored, request, cosine_of(stored_vector, request_vector), scale)
                scored.append((score, bool(same)))
            advance(len(page))
    return choose_threshold(scored, precision)


def _is_pair(pair: Any) -> bool:
    if not isinstance(pair, tuple | list) or len(pair) != 3:  # noqa: PLR2004 - two requests and a verdict
        return False
    return isinstance(pair[0], str) and isinstance(pair[1], str) and not isinstance(pair[2], str)


def _score(verifier: Verifier | None, stored: str, request: str, cosine: float | None, scale: Scale) -> Flow[float]:
    if verifier is not None:
        return (yield from verifier.flow(request, stored, scale.convert(cosine or 0.0))).score
    return 0.0 if cosine is None else min(max((1 + cosine) / 2, 0.0), 1.0)


def _curve(scored: Sequence[tuple[float, bool]]) -> list[TunedPoint]:
    """The effect of each score as a threshold, lowest first."""
    same_count = sum(is_same for _, is_same in scored)
    different_count = len(scored) - same_count
    points, right, wrong = [], 0, 0
    served = sorted((pair for pair in scored if pair[0] > 0), reverse=True)
    for threshold, group in groupby(served, key=lambda pair: pair[0]):
        labels = [is_same for _, is_same in group]
        right += sum(labels)
        wrong += len(labels) - sum(labels)
        false_hit_rate = wrong / different_count if different_count else 0.0
        points.append(TunedPoint(threshold, right / (right + wrong), right / same_count, false_hit_rate))
    return points[::-1]
