"""Plots: the figures that are drawn are the right ones, on the axes that were given, in light and in dark."""

from __future__ import annotations

import math
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import matplotlib as mpl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration

mpl.use("agg")  # before pyplot: the tests draw for nobody

from matplotlib import colors, style
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from langmem_adapters import cached
from langmem_adapters.brain import BrainMemory
from langmem_adapters.embedding import Embedder
from langmem_adapters.errors import ConfigurationError, MissingDependency
from langmem_adapters.experience import ExperiencePool, Saved
from langmem_adapters.experience.verifier.tuning import choose_threshold
from langmem_adapters.indexes import open_vectors
from langmem_adapters.indexes.lexical import LexicalIndex
from langmem_adapters.langchain import BrainChatMessageHistory, ExperienceCache, LongTermRetriever
from langmem_adapters.longterm import LongTermMemory
from langmem_adapters.model import Experience, Hit, Memory, Message, Metric, Recalled, Score
from langmem_adapters.plots import (
    Recorder,
    Snapshot,
    atrace,
    drawing,
    hit_rate,
    memory_timeline,
    savings,
    score_distribution,
    side_by_side,
    similarity_map,
    threshold_curve,
    trace,
)
from langmem_adapters.replay import Call, Comparison, Configuration, Outcome, replay
from langmem_adapters.stores.memory import MemoryStore
from langmem_adapters.testing.fakes import FakeClock
from tests.test_package import ROOT

TOPICS = ("bike", "piano", "garden", "soup")
SCORED = [(0.95, True), (0.9, True), (0.85, False), (0.8, True), (0.7, True), (0.6, False), (0.0, True)]


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    plt.close("all")  # what the code of the docs has drawn, where that ran before
    yield
    plt.close("all")


def topics(texts: list[str]) -> list[list[float]]:
    return [[0.05, *(float(text.lower().count(topic)) for topic in TOPICS)] for text in texts]


def embedder() -> Embedder:
    return Embedder(topics, name="topics")


TEXTS = ["My bike is old.", "The bike!", "A grand piano", "The piano is loud", "garden work", "a garden of soup"]


def looks(*counts: tuple[float, int, int]) -> list[Snapshot]:
    return [Snapshot(at, hits, misses, Saved(2.0 * hits, 10 * hits, 0.5 * hits)) for at, hits, misses in counts]


def session(**fields: Any) -> BrainMemory:
    store = MemoryStore()
    long_term = LongTermMemory(store, LexicalIndex(":memory:"), user="ada") if fields.pop("remembers", False) else None
    return BrainMemory(store, "monday", user="ada", long_term=long_term, **fields)


def fill(brain: BrainMemory, turns: int) -> None:
    for n in range(turns):
        brain.add_talk(f"On day {n} it rained.", id=f"u{n}")
        brain.add_answer("I see.", id=f"a{n}")


def compared(**more: Any) -> Comparison:
    said = [Message(role=role, content=f"Day {n}: it rained.") for n in range(9) for role in ("user", "assistant")]
    return replay(said, {"all": Configuration(), "the last 4": Configuration(memory_k=4)}, **more)


def across(line: Any) -> list[float]:
    return [float(x) for x in line.get_xdata()]


def up(line: Any) -> list[float]:
    return [float(y) for y in line.get_ydata()]


def named(ax: Axes) -> list[str]:
    legend: Any = ax.get_legend()
    return [text.get_text() for text in legend.get_texts()]


def title(ax: Axes) -> str:
    return ax.get_title(loc="left")


DRAWN: dict[str, Callable[[Axes | None], Axes]] = {
    "hit_rate": lambda ax: hit_rate(looks((0, 0, 0), (60, 1, 3), (90, 4, 4)), ax=ax),
    "savings": lambda ax: savings(looks((0, 0, 0), (60, 1, 3)), ax=ax),
    "score_distribution": lambda ax: score_distribution(choose_threshold(SCORED, 0.8), ax=ax),
    "threshold_curve": lambda ax: threshold_curve(choose_threshold(SCORED, 0.8), ax=ax),
    "memory_timeline": lambda ax: memory_timeline(trace_of(), ax=ax),
    "similarity_map": lambda ax: similarity_map(TEXTS, embedder(), query="a bike", ax=ax),
}


def trace_of() -> Any:
    brain = session(memory_k=3)
    fill(brain, 4)
    return trace(brain)


# --- what holds for all


@pytest.mark.parametrize("name", DRAWN)
def test_a_plot_is_drawn_where_it_is_asked_for(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plt, "show", lambda: pytest.fail("shown"))
    backend = mpl.get_backend()
    figure = Figure()
    left, right = figure.subplots(1, 2)
    assert DRAWN[name](right) is right
    assert plt.get_fignums() == []
    assert right.has_data()
    assert not left.has_data()
    figure.canvas.draw()
    made: Any = DRAWN[name](None)
    assert plt.get_fignums() == [made.figure.number]
    assert mpl.get_backend() == backend


@pytest.mark.parametrize("name", DRAWN)
@pytest.mark.parametrize(("theme", "text"), [("default", "black"), ("dark_background", "white")])
def test_text_follows_the_style(name: str, theme: str, text: str) -> None:
    with style.context(theme):
        ax = DRAWN[name](None)
        assert title(ax)
        texts = [ax.title, ax.xaxis.label, ax.yaxis.label, *ax.get_xticklabels(), *ax.get_yticklabels(), *ax.texts]
        legend = ax.get_legend()
        texts += legend.get_texts() if legend else []
        assert {colors.to_hex(one.get_color()) for one in texts} == {colors.to_hex(text)}
        assert ax.get_xlabel()
        assert ax.get_ylabel() or name == "memory_timeline"  # whose lanes have names


def luminance(colour: str) -> float:
    """Relative luminance, as WCAG 2 defines it."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colors.to_rgb(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("colour", sorted({*drawing.COLOURS, drawing.GREY, drawing.RED, drawing.GREEN}))
def test_colours_are_readable_on_light_and_dark(colour: str) -> None:
    assert 1.05 / (luminance(colour) + 0.05) >= 3
    assert (luminance(colour) + 0.05) / 0.05 >= 3


def test_without_numpy_the_map_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(MissingDependency, match=r"langmem_adapters\[vectors\]"):
        similarity_map(TEXTS, embedder())


def test_it_works_without_a_display(tmp_path: Path) -> None:
    code = (
        "from langmem_adapters.plots import Snapshot, hit_rate\n"
        f"hit_rate([Snapshot(0, 0, 0), Snapshot(60, 1, 1)]).figure.savefig({str(tmp_path / 'a.png')!r})\n"
    )
    env = {
        name: value for name, value in os.environ.items() if name not in {"DISPLAY", "WAYLAND_DISPLAY", "MPLBACKEND"}
    }
    command = [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c", code]
    subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    assert (tmp_path / "a.png").stat().st_size > 1000


# --- over time


def drawn_rate(ax: Axes) -> tuple[list[float], list[float]]:
    steps: Any = ax.patches[0]
    return [float(step) for step in steps.get_data().values], up(ax.lines[0])


def test_the_hit_rate_is_that_between_looks_and_since_the_first() -> None:
    ax = hit_rate(looks((0, 10, 10), (60, 11, 13), (120, 14, 14)))
    assert drawn_rate(ax) == ([25.0, 75.0], [25.0, 50.0])
    assert title(ax) == "50 % of 8 requests were answered from the cache"


def test_a_pause_is_no_rate_and_looks_are_put_in_order() -> None:
    steps, line = drawn_rate(hit_rate(looks((120, 3, 1), (0, 0, 0), (60, 0, 0))))
    assert math.isnan(steps[0])
    assert steps[1] == 75.0
    assert line == [75.0]


def test_a_cache_that_was_made_anew_counts_from_its_beginning() -> None:
    again = looks((0, 0, 0), (60, 8, 2), (120, 1, 1), (180, 2, 2))
    assert drawn_rate(hit_rate(again))[0] == [80.0, 50.0, 50.0]
    ax = savings(again)
    assert up(ax.lines[0]) == [0, 80, 90, 100]


def test_a_miss_that_became_a_hit_is_no_loss() -> None:
    ax = hit_rate(looks((0, 0, 5), (60, 5, 2)))  # three misses were credited as hits
    assert drawn_rate(ax)[0] == [100.0]


@pytest.mark.parametrize(
    ("of", "shown", "total"),
    [
        ("tokens", "hits have saved 40 tokens", 40),
        ("seconds", "hits have saved 8 seconds", 8),
        ("money", "hits have saved 2 EUR", 2),
    ],
)
def test_savings_since_the_first_look(of: Any, shown: str, total: float) -> None:
    ax = savings(looks((0, 1, 0), (60, 2, 3), (90, 5, 4)), of, currency="EUR")
    assert title(ax) == shown
    assert up(ax.lines[0])[-1] == total
    assert ax.get_ylabel() == shown.replace(str(total) + " ", "").replace("hits have ", "")


def test_figures_of_savings_and_shares_have_no_power_of_ten_and_are_all_only_where_they_are() -> None:
    first, last = Snapshot(0.0, 0, 0), Snapshot(60.0, 9_999, 1, Saved(money=12_345.67, seconds=120.5))
    assert title(savings([first, last], "money", currency="EUR")) == "hits have saved 12,345.67 EUR"
    ax = savings([first, last], "seconds")
    assert title(ax) == "hits have saved 120.5 seconds"
    assert ax.yaxis.get_major_formatter()(2_500_000.0) == "2,500,000"
    assert title(hit_rate([first, last])) == "above 99.9 % of 10,000 requests were answered from the cache"


@pytest.fixture
def in_berlin(set_time_zone: Callable[[str], None]) -> None:
    set_time_zone("CET-1CEST,M3.5.0,M10.5.0/3")


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="a process of Windows cannot change its time zone")
@pytest.mark.usefixtures("in_berlin")
@pytest.mark.parametrize("month", [1, 7])
def test_a_look_has_the_local_time_of_its_day_in_summer_and_in_winter(month: int) -> None:
    noon = datetime(2026, month, 1, 12).astimezone().timestamp()
    ax = hit_rate(looks((noon, 0, 0), (noon + 3600, 1, 1)))
    plt.gcf().canvas.draw()
    labels = [label.get_text() for label in ax.get_xticklabels()]
    assert (labels[0], labels[-1]) == ("12:00", "13:00")


def test_what_cannot_be_drawn_over_time() -> None:
    with pytest.raises(ConfigurationError, match="the cache had no requests"):
        hit_rate(looks((0, 1, 1), (60, 1, 1)))
    for draw in (hit_rate, savings):
        with pytest.raises(ConfigurationError, match="needs two snapshots"):
            draw(looks((0, 1, 1)))
    with pytest.raises(ConfigurationError, match="not of 'time'"):
        savings(looks((0, 0, 0), (1, 1, 1)), "time")  # type: ignore[arg-type]
    assert plt.get_fignums() == []


def test_a_recorder_takes_what_a_pool_counts_and_has_saved() -> None:
    clock = FakeClock(100.0)
    pool = ExperiencePool(MemoryStore(), prices={"m": (1.0, 1.0)})
    recorder = Recorder(pool, clock=clock)
    metric = Metric(model="m", input_tokens=1_000_000, output_tokens=2, time_cost=3.0)
    pool.create(Experience(req="a", resp="b", metric=metric))
    for req in ("a", "b", "a"):
        pool.lookup(req)
    clock.advance(5)
    assert recorder.take("an event of IPython's") == Snapshot(105.0, 2, 1, Saved(6.0, 2_000_004, 2.000004))
    assert recorder.snapshots[0] == Snapshot(100.0, 0, 0)
    assert title(hit_rate(recorder)) == "67 % of 3 requests were answered from the cache"
    assert title(savings(recorder, "money", currency="USD")) == "hits have saved 2 USD"
    assert "sk-" not in repr(recorder)


def test_a_recorder_looks_at_caches_and_decorated_functions() -> None:
    cache = ExperienceCache(store=MemoryStore())
    recorder = Recorder(cache)
    usage: Any = {"input_tokens": 5, "output_tokens": 7, "total_tokens": 12}
    cache.update("p", "m", [ChatGeneration(message=AIMessage("x", usage_metadata=usage))])
    cache.lookup("p", "m")
    assert recorder.take()[1:] == (1, 0, Saved(tokens=12))

    @cached(store=MemoryStore())
    def double(n: int) -> int:
        return 2 * n

    watched = Recorder(double)
    assert (double(2), double(2), double(3)) == (4, 4, 6)
    assert watched.take()[1:3] == (1, 2)


def test_a_recorder_says_what_it_cannot_look_at() -> None:
    with pytest.raises(ConfigurationError, match="not dict"):
        Recorder({})
    with pytest.raises(ConfigurationError, match="LongTermMemory does not count hits"):
        Recorder(LongTermMemory(MemoryStore(), LexicalIndex(":memory:"), user="ada"))


# --- scores


def heights(ax: Axes, part: int = 0) -> list[float]:
    return [bar.get_height() for bar in ax.containers[part]]


def test_scores_fall_into_bins() -> None:
    ax = score_distribution([0.0, 0.01, 0.05, 1.0, 0.97], threshold=0.97)
    assert sum(heights(ax)) == 5
    assert (heights(ax)[0], heights(ax)[1], heights(ax)[-1]) == (2, 1, 2)
    assert title(ax) == "2 of 5 scores are at or above 0.97"
    assert across(ax.lines[0])[0] == 0.97


def test_scores_between_the_whole_ones_from_one_to_ten_have_finer_bins() -> None:
    assert [len(heights(score_distribution([1.0, score, 9.0]))) for score in (2.0, 2.5)] == [10, 20]


def test_the_highest_score_is_drawn_however_the_bins_are_rounded() -> None:
    ax = score_distribution([0.1, 1.7])
    assert (heights(ax)[0], heights(ax)[-1]) == (1, 1)


def test_what_has_a_score_is_drawn_by_it() -> None:
    found = [Recalled(Memory(message=Message(role="user")), 0.5), Hit("a", 0.5)]
    assert heights(score_distribution(found))[10] == 2
    experiences = [Experience(metric=Metric(score=Score(val=val))) for val in (1, 10, 10)]
    ax = score_distribution([*experiences, Experience()])
    assert heights(ax) == [1, 0, 0, 0, 0, 0, 0, 0, 0, 2]
    assert title(ax) == "3 scores"
    assert sum(heights(score_distribution([-3.0, 8.5]))) == 2
    assert sum(heights(score_distribution([42.0, 42.0]))) == 2


def test_tuned_pairs_are_told_apart() -> None:
    ax = score_distribution(choose_threshold(SCORED, 0.8))
    assert named(ax) == ["the same", "not the same"]
    assert (sum(heights(ax, 0)), sum(heights(ax, 1))) == (5, 2)
    assert title(ax) == "5 of 7 scores are at or above 0.70"
    assert title(score_distribution(choose_threshold(SCORED, 0.8), threshold=0.9)).startswith("2 of 7")


def test_a_document_has_its_score_in_its_metadata() -> None:
    memory = LongTermMemory(MemoryStore(), LexicalIndex(":memory:"), user="ada")
    memory.add([Message(role="user", content=text) for text in TEXTS])
    found = LongTermRetriever(memory=memory).invoke(TEXTS[0])
    assert title(score_distribution(found)).startswith(f"{len(found)} score")
    assert len(found) > 0


@pytest.mark.parametrize(
    "draw",
    [
        memory_timeline,
        trace,
        similarity_map,
        hit_rate,
        savings,
        score_distribution,
        threshold_curve,
        side_by_side,
    ],
)
@pytest.mark.parametrize("wrong", [object(), BrainChatMessageHistory("s", url="memory:"), "a"])
def test_what_is_drawn_is_what_a_picture_is_of(draw: Any, wrong: object) -> None:
    with pytest.raises(ConfigurationError, match=rf"not (one |of )?{type(wrong).__name__}$"):
        draw(wrong)
    assert plt.get_fignums() == []


def test_scores_may_be_numbers_of_numpy() -> None:
    found = [np.float32(0.25), *np.array([0.5, 0.75], "float32"), np.int64(1)]  # as FAISS gives them
    assert title(score_distribution(found, threshold=0.6)) == "2 of 4 scores are at or above 0.60"


@pytest.mark.parametrize("wrong", [["0.5"], [float("nan")], [True], [object()], [float("inf")]])
def test_what_is_no_score(wrong: list[Any]) -> None:
    with pytest.raises(ConfigurationError, match="a score is a finite number"):
        score_distribution(wrong)


def test_nothing_to_draw() -> None:
    for nothing in ([], [Experience()]):
        with pytest.raises(ConfigurationError, match="no scores"):
            score_distribution(nothing)


def test_the_curve_shows_precision_and_recall_of_each_threshold() -> None:
    found = choose_threshold(SCORED, 0.8)
    ax = threshold_curve(found)
    precision, recall, false, chosen = ax.lines
    for line, name in ((precision, "precision"), (recall, "hit_rate"), (false, "false_hit_rate")):
        assert across(line) == [point.threshold for point in found.curve]
        assert up(line) == [100 * getattr(point, name) for point in found.curve]
        assert line.get_drawstyle() == "steps-pre"  # between two scores, as the higher one
    assert across(chosen)[0] == found.threshold == 0.7
    assert title(ax) == "at 0.7: precision 80 %, recall 80 %"


# --- where messages are


def placed(brain: BrainMemory) -> dict[str, str]:
    """By id: w, s, l for window, summary, long-term memory."""
    found = trace(brain)
    assert len({one.message_id for one in found}) == len(found)
    return {
        one.message_id: "".join(letter for letter, is_in in zip("wsl", one[3:], strict=True) if is_in) for one in found
    }


def test_without_anything_the_rest_is_only_in_the_history() -> None:
    brain = session(memory_k=3)
    fill(brain, 3)
    assert placed(brain) == {"u0": "", "a0": "", "u1": "", "a1": "", "u2": "w", "a2": "w"}


def test_what_leaves_the_window_is_in_the_long_term_memory() -> None:
    brain = session(memory_k=2, remembers=True)
    fill(brain, 3)
    assert brain.long_term is not None
    brain.long_term.add([Message(role="user", content="elsewhere", id="x")], session="tuesday")
    assert placed(brain) == {"u0": "l", "a0": "l", "u1": "l", "a1": "l", "u2": "w", "a2": "w"}


@pytest.mark.parametrize(("remembers", "gone"), [(True, "sl"), (False, "s")])
def test_what_the_summary_stands_for(*, remembers: bool, gone: str) -> None:
    brain = session(memory_k=20, remembers=remembers, model=lambda _: "It rained.")
    fill(brain, 4)
    brain.summarize(keep=2)
    assert placed(brain) == {f"{who}{n}": gone if n < 3 else "w" for n in range(4) for who in "ua"}
    fill(brain, 5)
    assert placed(brain)["a4"] == "w"


def test_a_summary_of_ones_own_stands_for_nothing() -> None:
    brain = session(memory_k=4)
    fill(brain, 2)
    brain.set_summary("It rained.")
    assert set(placed(brain).values()) == {"w"}


def test_a_summary_whose_last_message_is_gone_stands_for_all_that_have_left() -> None:
    brain = session(memory_k=20, remembers=True, model=lambda _: "It rained.")
    fill(brain, 4)
    brain.summarize(keep=4)
    brain.delete(["a1"])
    assert placed(brain) == {"u0": "sl", "a0": "sl", "u1": "sl", **{f"{who}{n}": "w" for n in (2, 3) for who in "ua"}}


@given(
    st.lists(st.tuples(st.sampled_from(["user", "assistant"]), st.booleans()), min_size=1, max_size=30),
    st.integers(1, 6),
)
@settings(max_examples=60)
def test_every_message_is_somewhere_once(said: list[tuple[str, bool]], memory_k: int) -> None:
    brain = session(memory_k=memory_k, remembers=True, model=lambda _: "It rained.")
    for n, (role, summarizes) in enumerate(said):
        brain.add_messages([Message(role=role, content=f"{n}", id=f"m{n}", created_at=1.0 + n)])
        if summarizes and n % 5 == 0:
            brain.summarize(keep=2)
    found = trace(brain)
    assert [one.message_id for one in found] == [f"m{n}" for n in range(len(said))]
    assert {one.message_id for one in found if one.window} == {message.id for message in brain.context().messages}
    here = {message.id for message in brain.messages()}
    assert all(one.long_term for one in found if one.message_id not in here)
    assert not any(one.window and one.long_term for one in found)


def test_messages_stay_in_the_order_of_their_session_whatever_their_times_say() -> None:
    brain = session(memory_k=2)
    brain.add_messages([Message(role="user", content=f"{at}", id=f"{at}", created_at=at) for at in (1.0, 3.0, 2.0)])
    assert placed(brain) == {"1.0": "", "3.0": "w", "2.0": "w"}
    assert [one.message_id for one in trace(brain)] == ["1.0", "3.0", "2.0"]


async def test_the_async_twin_reads_the_same() -> None:
    brain = session(memory_k=2, remembers=True)
    fill(brain, 5)
    assert await atrace(brain) == trace(brain)


def test_the_timeline_has_a_lane_for_each_place() -> None:
    brain = session(memory_k=2)
    fill(brain, 3)
    ax = memory_timeline(brain)
    assert [label.get_text() for label in ax.get_yticklabels()] == [
        "window (2)",
        "summary (0)",
        "long-term\nmemory (0)",
        "history,\nnot shown (4)",
    ]
    window, _, _, history = ax.collections
    assert [tuple(path.get_extents().intervalx) for path in window.get_paths()] == [(4.5, 6.5)]
    assert [tuple(path.get_extents().intervalx) for path in history.get_paths()] == [(0.5, 4.5)]
    assert title(ax) == "a model is shown 2 of 6 messages"
    full = session(memory_k=9)
    fill(full, 2)
    assert len(memory_timeline(full).get_yticklabels()) == 3
    with pytest.raises(ConfigurationError, match="no messages"):
        memory_timeline(session())


# --- the map


def points(ax: Axes) -> dict[str, list[tuple[float, float]]]:
    return {
        str(dots.get_label()): [(float(x), float(y)) for x, y in cast("Any", dots.get_offsets())]
        for dots in ax.collections
    }


def distance(one: Sequence[float], other: Sequence[float]) -> float:
    return float(((one[0] - other[0]) ** 2 + (one[1] - other[1]) ** 2) ** 0.5)


def test_what_means_the_same_lies_together() -> None:
    ax = similarity_map(TEXTS, embedder(), query="bike, please")
    (bike, cycle, piano, loud, garden, soup), (asked,) = points(ax)["text"], points(ax)["the query"]
    assert distance(bike, cycle) < 0.01 < distance(bike, piano)
    assert distance(piano, loud) < 0.01 < distance(piano, garden)
    assert distance(asked, bike) < 0.1 < distance(asked, soup)
    assert title(ax) == "6 memories by what they mean"


def test_it_is_the_same_map_each_time() -> None:
    assert points(similarity_map(TEXTS, embedder())) == points(similarity_map(TEXTS, embedder()))


@pytest.mark.parametrize("seed", range(12))
def test_a_map_is_not_mirrored_and_what_all_have_in_common_does_not_count(seed: int) -> None:
    """Across is the greatest difference, and more of what differs most is to the right, on every machine."""
    chance = random.Random(seed)
    vectors = {f"text {n}": [5.0, chance.uniform(-2, 2), chance.uniform(-0.5, 0.5)] for n in range(20)}
    embedder_ = Embedder(lambda texts: [vectors[text] for text in texts], name="random")
    found = points(similarity_map(list(vectors), embedder_))["text"]
    wide, high = (max(values) - min(values) for values in zip(*found, strict=True))
    assert wide > high
    most, least = (list(vectors).index(pick(vectors, key=lambda text: vectors[text][1])) for pick in (max, min))
    assert found[most][0] > 0 > found[least][0]
    assert all(abs(sum(values)) < 1e-3 for values in zip(*found, strict=True))


def test_the_axes_say_how_much_they_show() -> None:
    flat = Embedder(lambda texts: [[1.0, len(text) / 100] for text in texts], name="flat")
    ax = similarity_map(["a", "bb" * 30, "ccc" * 60], flat)
    shares = [int(label.split("(")[1].split(" ")[0]) for label in (ax.get_xlabel(), ax.get_ylabel())]
    assert sum(shares) == 100
    assert shares[0] > shares[1]


def test_a_memory_is_drawn_with_its_own_embedder_and_by_speaker() -> None:
    calls: list[list[str]] = []

    def counted(texts: list[str]) -> list[list[float]]:
        calls.append(texts)
        return topics(texts)

    vectors = open_vectors("memory:", Embedder(counted, name="counted"))
    memory = LongTermMemory(MemoryStore(), LexicalIndex(":memory:"), user="ada", vectors=vectors)
    for n, text in enumerate(TEXTS):
        memory.add([Message(role=("user", "assistant", "tool")[n % 3], content=text, name="Ann" if n == 3 else None)])
    memory.flush()
    calls.clear()
    ax = similarity_map(memory)
    assert calls == []  # it remembers its vectors
    assert {name: len(dots) for name, dots in points(ax).items()} == {"user": 1, "assistant": 2, "Ann": 1}
    with pytest.raises(ConfigurationError, match="embedder="):
        similarity_map(LongTermMemory(MemoryStore(), LexicalIndex(":memory:"), user="ada"))
    assert similarity_map(memory, embedder()).has_data()


def test_more_speakers_than_colours_share_one() -> None:
    said = [Message(role="user", name=f"n{n}", content=f"{topic} {n}") for n, topic in enumerate(TOPICS * 3)]
    found = points(similarity_map(said, embedder()))
    assert len(found) == len(drawing.COLOURS) + 1
    assert len(found["others"]) == 12 - len(drawing.COLOURS)


def test_only_the_newest_are_drawn() -> None:
    ax = similarity_map(TEXTS, embedder(), limit=4)
    assert len(points(ax)["text"]) == 4
    assert {"The piano is loud", "a garden of soup"} & {text.get_text() for text in ax.texts}
    assert "My bike is old." not in {text.get_text() for text in ax.texts}


@pytest.mark.parametrize(
    ("texts", "more"),
    [([], {}), (["a bike", "a piano"], {}), (["a bike"] * 9, {}), (["  "] * 9, {}), (TEXTS, {"limit": 0})],
)
def test_a_map_needs_three_places(texts: list[str], more: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="three memories"):
        similarity_map(texts, embedder(), **more)
    assert plt.get_fignums() == []


def test_any_text_can_be_a_label(tmp_path: Path) -> None:
    """Dollars are no formula, a font lacks most of the world's signs, and a leading underscore hides nothing."""
    texts = ["a bike for $5 or $6_a", "piano \U0001f600", "soup 漢字", "garden\n\x07of\tmany words, more than fit"]
    said = [
        Message(role="user", name=name, content=text)
        for name, text in zip(["_x", "$a^{$", "漢", ""], texts, strict=True)
    ]
    ax = similarity_map(said, embedder(), query="soup")
    plt.savefig(tmp_path / "map.png")
    shown = {text.get_text() for text in ax.texts}
    assert "a bike for $5 or $6_a" in shown
    assert "soup □□" in shown
    assert all(len(text) <= 24 and "\n" not in text for text in shown)
    assert [name.strip("\u200b") for name in named(ax)][:2] == ["_x", "$a^{$"]
    assert len(similarity_map(said, embedder(), labels=0).texts) == 0


def test_a_secret_is_no_label() -> None:
    ax = similarity_map([*TEXTS, "password: hunter2hunter2"], embedder(), labels=7)
    labels = {text.get_text() for text in ax.texts}
    assert "password: ***" in labels


# --- side by side


def bars(ax: Axes) -> list[float]:
    return [bar.get_width() for bar in ax.containers[0]]


def test_configurations_stand_side_by_side() -> None:
    found = compared()
    course, calls, tokens, seconds = side_by_side(found).axes
    lines = [up(line) for line in course.lines]
    assert lines == [[call.tokens for call in outcome.calls] for outcome in found.values()]
    assert across(course.lines[0]) == list(range(1, 10))
    assert [label.get_text() for label in calls.get_yticklabels()] == ["all", "the last 4"]
    assert bars(calls) == [9, 9]
    assert bars(tokens) == [outcome.tokens for outcome in found.values()]
    assert bars(seconds) == [outcome.seconds for outcome in found.values()]
    assert all(ax.get_xlim()[1] > max(bars(ax)) for ax in (calls, tokens, seconds))
    assert course.lines[0].get_color() == colors.to_hex(calls.containers[0][0].get_facecolor())


def test_recall_and_summaries_are_shown_where_there_are_some() -> None:
    calls_ = [Call(10, 0.1)] * 4
    found = Comparison(
        {
            "a": Outcome(calls_, 0, 3, 0, 99, 0.5, 1.0),
            "$b$ 漢 with a name that is far too long": Outcome(calls_, 0, 0, 0, 1234, None, 0.25),
        }
    )
    figure = side_by_side(found)
    _, calls, tokens, recall, seconds = figure.axes
    assert bars(calls) == [7, 4]
    assert [(bar.get_x(), bar.get_width()) for bar in calls.containers[1]] == [(4, 3), (4, 0)]
    assert calls.get_xlabel() == "hatched: for summaries"
    assert bars(recall)[0] == 50.0
    assert [text.get_text() for text in recall.texts] == ["50 %", ""]
    assert "1,234" in {text.get_text() for text in tokens.texts}
    assert [text.get_text() for text in seconds.texts] == ["1", "0.25"]
    figure.canvas.draw()
    with pytest.raises(ConfigurationError, match="nothing"):
        side_by_side(Comparison({}))


def test_of_many_calls_means_are_drawn() -> None:
    many = Outcome([Call(n % 4, 0.0) for n in range(601)], 0, 0, 0, 9, None, 1.0)
    course = side_by_side(Comparison({"many": many, "none": Outcome([], 0, 0, 0, 0, None, 0.0)})).axes[0]
    assert title(course) == "tokens of a model call, means of 5"
    assert across(course.lines[0])[:2] == [3.0, 8.0]
    assert up(course.lines[0])[:2] == [1.2, 1.4]
    assert (across(course.lines[0])[-1], up(course.lines[0])[-1]) == (601.0, 0.0)
    assert across(course.lines[1]) == []


def test_it_is_drawn_on_a_part_of_a_figure() -> None:
    whole = Figure()
    subfigures: Any = whole.subfigures(1, 2)
    right = subfigures[1]
    assert side_by_side(compared(), fig=right) is right
    assert len(right.axes) == 4
    assert plt.get_fignums() == []
