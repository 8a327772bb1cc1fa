"""The harness measures what it says, and the gates: ours ÷ limit, both measured here and now."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree as ET

import pytest

from langmem_adapters.testing import FakeClock
from tests.benchmarks import harness, report, verifier
from tests.benchmarks.__main__ import ROWS, main
from tests.benchmarks.bench import Bench
from tests.benchmarks.goals import SECONDS, at_least, at_most, faster, flat, over, within
from tests.benchmarks.harness import Budget, Case, Goal, Line, line, take_turns
from tests.benchmarks.payloads import answer, as_bytes, conversation, prompt
from tests.benchmarks.plots import plot
from tests.benchmarks.process_rows import commands_of
from tests.benchmarks.round_trips import RoundTrips

GATES = [key for key, row in ROWS.items() if row.gate is not None]
ATTEMPTS = 5  # a busy neighbour spoils a measurement; it cannot make a slow thing quick


class Gate(Bench):
    """Measures a row's least size, and one that is large enough to tell, each until it passes once."""

    passes: float

    def sizes(self, *sizes: int) -> tuple[int, ...]:
        return (sizes[0], 1_000) if sizes[0] < 1_000 else sizes[:1]

    def line(self, size: str, case: Case) -> Line:
        for _ in range(ATTEMPTS):
            found = super().line(size, case)
            if found.undisturbed <= self.passes:
                break
        return found


@pytest.fixture(scope="module")
def bench() -> Iterator[Gate]:
    bench = Gate(short=True, peers=False, budget=Budget(150, 0.3))
    yield bench
    bench.close()


# --- gates


def test_the_gates_are_those_of_the_page() -> None:
    assert set(GATES) == {"append-redis", "append-sqlite", "newest-redis", "newest-sqlite", "hit-redis", "hit-sqlite"}


@pytest.mark.parametrize("key", GATES)
def test_gate(key: str, bench: Gate) -> None:
    row = ROWS[key]
    bench.passes = row.gate or 0.0
    found = {line.size: round(line.undisturbed, 2) for line in row.measure(bench)}
    assert max(found.values()) <= bench.passes, f"{row.title}: ours ÷ limit"


# --- harness


@pytest.fixture
def harness_clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """What the harness measures by."""
    clock = FakeClock(0.0)
    monkeypatch.setattr(harness, "time", SimpleNamespace(perf_counter=clock))
    return clock


def test_a_slower_work_has_the_greater_figure(harness_clock: FakeClock) -> None:
    def work(seconds: float) -> Callable[[object], None]:
        return lambda _: harness_clock.advance(seconds)

    found = line("1", Case(work(0.0005), work(0.002), {"peer": work(0.006)}, items=2), Budget(20, 1.0))
    assert found.limit is not None
    assert found.ratio == pytest.approx(4)
    assert found.undisturbed == pytest.approx(4)
    assert found.ours * SECONDS[found.unit] == pytest.approx(0.001)  # a thing, of two
    assert found.peers["peer"] == pytest.approx(3 * found.ours)


def test_contenders_take_turns_in_an_order_that_rotates() -> None:
    calls: list[str] = []
    works = {name: lambda _, name=name: calls.append(name) for name in "abc"}
    take_turns(works, lambda: None, Budget(3, 1.0))
    assert calls == [*"aaabbbccc", *"abc", *"bca", *"cab"]


def test_of_two_contenders_none_follows_itself() -> None:
    calls: list[str] = []
    works = {name: lambda _, name=name: calls.append(name) for name in "ab"}
    take_turns(works, lambda: None, Budget(3, 1.0))
    assert calls == [*"aaabbb", *"ab", *"ab", *"ab"]


def test_one_that_has_used_up_its_time_sits_out_after_three_calls(harness_clock: FakeClock) -> None:
    calls = {"slow": 0, "quick": 0}

    def work(name: str, seconds: float) -> None:
        calls[name] += 1
        harness_clock.advance(seconds)

    works = {"slow": lambda _: work("slow", 0.1), "quick": lambda _: work("quick", 0)}
    take_turns(works, lambda: None, Budget(40, 0.15))
    assert calls == {"slow": 1 + 3, "quick": 3 + 40}


def test_each_call_is_given_something_of_its_own() -> None:
    given = iter(range(100))
    seen: list[int] = []
    case = Case(seen.append, seen.append, given=lambda: next(given))
    line("1", case, Budget(5, 1.0))
    assert seen == list(range(2 * (3 + 5)))


LINES = [Line("10", "µs", 10.0, 20.0, {"a": 200.0, "b": 30.0}), Line("100", "ms", 0.01, 0.03, {"a": 0.3})]


@pytest.mark.parametrize(
    ("goal", "met"),
    [
        (at_most(3.0), True),
        (at_most(2.9), False),
        (at_least(2.0), True),
        (at_least(2.1), False),
        (within(30e-6), True),
        (within(29e-6), False),
        (within(20e-6, size="10"), True),
        (within(20e-6, size="7"), None),
        (over(20e-6), True),
        (over(19e-6), False),
        (faster(1.5), True),
        (faster(1.6), False),
        (flat(1.6), True),
        (flat(1.4), False),
    ],
)
def test_a_goal_looks_at_the_worst_line(goal: Goal, met: bool | None) -> None:
    assert goal.verdict(LINES).met is met


def test_a_goal_may_leave_out_the_best_peer() -> None:
    assert faster(10.0, but=1).verdict(LINES[:1]).met
    assert not faster(10.1, but=1).verdict(LINES[:1]).met
    assert faster(10.0, size="100").verdict(LINES).met


def test_a_goal_without_anything_to_compare_is_neither_met_nor_missed() -> None:
    alone = [Line("10", "µs", None, 1.0, {})]
    assert [goal.verdict(alone).met for goal in (at_most(1), at_least(1), faster(1), flat(1))] == [None] * 4


def test_messages_are_as_the_page_says() -> None:
    messages = conversation(8)
    sizes = [len(data) for data in as_bytes(messages)]
    assert all(630 < size < 770 for size in sizes)
    assert len({message.id for message in messages}) == 8
    for message in messages:
        fields = type(message).model_fields
        answers = {"tool_calls", "invalid_tool_calls"} if str(message.id).startswith("ai") else set()
        for name in fields.keys() - {"type", *answers}:
            default = None if fields[name].is_required() else fields[name].get_default(call_default_factory=True)
            assert getattr(message, name) != default, name
    assert 1900 < len(prompt(1)) < 2300
    assert 490 < len(answer(1).text) <= 500


def test_round_trips_are_counted_at_the_socket() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, RoundTrips(server.getsockname()[1]) as door:
        client = socket.create_connection(("127.0.0.1", door.port))
        behind, _ = server.accept()
        with client, behind:
            for question in (b"one", b"two"):
                client.sendall(question)
                assert behind.recv(10) == question
                behind.sendall(b"answer")
                assert client.recv(10) == b"answer"
            assert (door.count, bytes(door.sent)) == (2, b"onetwo")


def test_a_turn_on_a_long_session_takes_two_round_trips(bench: Bench) -> None:
    row = ROWS["round-trips"]
    lines = list(row.measure(bench))
    assert [line.ours for line in lines] == [2, 2]


def test_the_bare_loop_sends_the_commands_of_a_turn(bench: Bench) -> None:
    read, written = commands_of(bench)
    assert b"XREVRANGE" in [command[0] for command in read]
    assert [command[0] for command in written].count(b"XADD") == 4
    assert any(conversation(1, 20)[0].text.encode() in word for command in written for word in command)


# --- report


@pytest.fixture(scope="module")
def record(bench: Bench) -> dict[str, object]:
    record = report.begin(bench)
    record["left out"] = {"Peer C": "not installed"}
    lines = [
        Line("10", "µs", 10.0, 40.0, {"Peer <A>": 4000.0}),
        Line("1,000", "µs", 10.0, 20.0, {"Peer <A>": 90000.0, "Peer B": 7.0}),
    ]
    report.add(record, ROWS["append-redis"], lines)
    report.add(record, ROWS["round-trips"], [Line("10", "trips", 2, 2, {})])
    return record


def test_tables_show_limit_ours_ratio_goal_and_peers(record: dict[str, object]) -> None:
    text = report.tables(record)
    assert "| 10 | 10 µs | 40 µs | 4.00 | 4,000 µs | - |" in text
    assert "| size | limit | ours | ours ÷ limit | Peer <A> | Peer B |" in text
    assert "| ≤ 1.5 x limit (gate: 2 x) | 4.00 x | **no** |" in text
    assert "| ≤ 1 x limit | 1.00 x | yes |" in text


def test_a_plot_is_a_drawing_with_a_bar_for_each_figure(record: dict[str, dict[str, dict[str, object]]]) -> None:
    drawing = ET.fromstring(plot(record["rows"]["append-redis"]))
    bars = [float(bar.attrib["width"]) for bar in drawing.iter("{http://www.w3.org/2000/svg}rect")]
    assert len(bars) == 7
    assert bars[0] < bars[1] < bars[2]
    assert bars[0] == bars[3]
    assert "Peer <A>" in [text.text for text in drawing.iter("{http://www.w3.org/2000/svg}text")]


def test_the_docs_keep_their_prose_and_renew_their_figures(record: dict[str, object], tmp_path: Path) -> None:
    target = tmp_path / "benchmarks.md"
    target.write_text("Prose.\n<!-- figures: begin -->\nold\n<!-- figures: end -->\nMore prose.\n")
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "gone.svg").write_text("")
    for _ in range(2):
        report.write_docs(record, tmp_path)
    text = target.read_text()
    assert text.startswith("Prose.\n")
    assert text.endswith("\nMore prose.\n")
    assert "old" not in text
    assert text.count("### ") == 2
    assert "Peer C: not installed" in text
    assert [path.name for path in (tmp_path / "benchmarks").iterdir()] == ["append-redis.svg"]
    assert "(benchmarks/append-redis.svg)" in text
    assert "round-trips.svg" not in text


def test_the_page_names_no_host_and_no_path(record: dict[str, object], bench: Bench) -> None:
    text = report.page(record)
    assert socket.gethostname() not in text
    assert str(bench.redis_path) not in text
    assert str(Path.home()) not in text


def test_the_command_measures_keeps_and_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = tmp_path / "figures.json"
    figures.write_text(
        json.dumps({"rows": {"append-redis": {"title": "t", "limit": "l", "gate": 1.5, "lines": [], "goals": []}}})
    )
    main(["--short", "--no-peers", "--only", "round-trips", "--json", str(figures)])
    measured = capsys.readouterr().out
    assert list(json.loads(figures.read_text())["rows"]) == ["append-redis", "round-trips"]
    main(["--read", str(figures)])
    assert capsys.readouterr().out == measured


def test_every_row_has_a_name_a_limit_and_a_place() -> None:
    assert len(ROWS) >= 20
    assert all(row.title and row.limit and key == row.key for key, row in ROWS.items())


def test_the_verifier_is_timed_at_each_length(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # What it computes, as a busy machine may keep a short text waiting for longer than a long one takes.
    monkeypatch.setattr(verifier, "time", SimpleNamespace(perf_counter=time.thread_time))
    verifier.main(rounds=3)
    _, *rows = (line.split() for line in capsys.readouterr().out.splitlines())
    assert [int(size) for size, _ in rows] == list(verifier.SIZES)
    assert float(rows[0][1]) < float(rows[-1][1])
