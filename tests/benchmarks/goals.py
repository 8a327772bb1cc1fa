"""What figures can be asked to show. Every goal looks at all lines of its row and tells the worst of them."""

from __future__ import annotations

from collections.abc import Sequence

from tests.benchmarks.harness import Goal, Line

__all__ = ["SECONDS", "at_least", "at_most", "faster", "flat", "over", "within"]

SECONDS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}
"""What the units of time are in seconds."""


def at_most(times: float) -> Goal:
    """Ours is so many times the limit, at the most."""

    def judge(lines: Sequence[Line]) -> tuple[str, bool | None]:
        ratios = [line.ratio for line in lines if line.ratio is not None]
        return (f"{max(ratios):.2f} x", max(ratios) <= times) if ratios else ("-", None)

    return Goal(f"≤ {times:g} x limit", judge)


def at_least(times: float) -> Goal:
    """Ours is so many times the limit, at the least: for figures of which more is better."""

    def judge(lines: Sequence[Line]) -> tuple[str, bool | None]:
        ratios = [line.ratio for line in lines if line.ratio is not None]
        return (f"{min(ratios):.2f} x", min(ratios) >= times) if ratios else ("-", None)

    return Goal(f"≥ {times:g} x limit", judge)


def within(seconds: float, *, size: str | None = None) -> Goal:
    """Ours takes so many seconds at the most."""

    def judge(lines: Sequence[Line]) -> tuple[str, bool | None]:
        took = [line.ours * SECONDS[line.unit] for line in lines if size in {None, line.size}]
        return (_time(max(took)), max(took) <= seconds) if took else ("-", None)

    return Goal(f"≤ {_time(seconds)}" + _at(size), judge)


def over(seconds: float) -> Goal:
    """Ours takes so much longer than the limit, at the most, for each thing that is handled."""

    def judge(lines: Sequence[Line]) -> tuple[str, bool | None]:
        above = max((line.ours - (line.limit or 0)) * SECONDS[line.unit] for line in lines)
        return _time(above), above <= seconds

    return Goal(f"≤ {_time(seconds)} over the limit", judge)


def faster(times: float, *, but: int = 0, size: str | None = None) -> Goal:
    """Ours is so many times faster than every peer, or than all but so many; at one size, or at every size."""

    def judge(lines: Sequence[Line]) -> tuple[str, bool | None]:
        looked = [line for line in lines if size in {None, line.size}]
        found = [sorted((peer / line.ours, name) for name, peer in line.peers.items())[but:] for line in looked]
        worst = min((ranked[0] for ranked in found if ranked), default=None)
        return (f"{worst[0]:,.1f} x ({worst[1]})", worst[0] >= times) if worst else ("-", None)

    return Goal(f"≥ {times:g} x faster than every peer" + (f" but {but}" if but else "") + _at(size), judge)


def flat(times: float) -> Goal:
    """Ours at the largest size is so many times ours at the smallest, at the most."""

    def judge(lines: Sequence[Line]) -> tuple[str, bool | None]:
        if len(lines) < 2:
            return "-", None
        first, last = (line.ours * SECONDS[line.unit] for line in (lines[0], lines[-1]))
        return f"{last / first:.2f} x", last <= times * first

    return Goal(f"the largest ≤ {times:g} x the smallest", judge)


def _at(size: str | None) -> str:
    return f" at {size}" if size else ""


def _time(seconds: float) -> str:
    unit = next((unit for unit, least in SECONDS.items() if abs(seconds) >= least), "µs")
    return f"{seconds / SECONDS[unit]:.3g} {unit}"
