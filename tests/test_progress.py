"""Progress: nothing unless asked, and then exactly what was done, up to the end or the error."""

from __future__ import annotations

import asyncio
import importlib
import itertools
import json
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import rich.progress
from hypothesis import given
from hypothesis import strategies as st

from langmem_adapters.embedding import Embedder
from langmem_adapters.errors import ConfigurationError, MissingDependency, ModelError, StoreError
from langmem_adapters.evaluation import Question, aevaluate, afit, evaluate, fit
from langmem_adapters.experience import ExperiencePool
from langmem_adapters.experience.verifier.tuning import TunedPoint, choose_threshold
from langmem_adapters.indexes import open_vectors
from langmem_adapters.indexes.lexical import LexicalIndex
from langmem_adapters.langchain import ExperienceCache
from langmem_adapters.langchain.caching.semantic import SemanticMode
from langmem_adapters.longterm import LongTermMemory
from langmem_adapters.model import Experience, Message
from langmem_adapters.operations import Migration
from langmem_adapters.progress import Progress, advancing
from langmem_adapters.protocols import Store
from langmem_adapters.sessions import Sessions
from langmem_adapters.stores.memory import MemoryStore
from tests.test_package import BLOCK, ROOT

tqdm: Any = importlib.import_module("tqdm.std").tqdm  # which comes without types


class Bar:
    """A bar as tqdm's, which remembers."""

    def __init__(self, *, desc: str, total: int | None, unit: str) -> None:
        self.desc, self.total, self.unit = desc, total, unit
        self.n = 0
        self.is_closed = threading.Event()

    def update(self, n: int) -> None:
        assert not self.is_closed.is_set()
        self.n += n

    def close(self) -> None:
        self.is_closed.set()


class Bars(list[Bar]):
    """Makes bars as tqdm's class does."""

    def __call__(self, *, desc: str, total: int | None, unit: str) -> Bar:
        self.append(Bar(desc=desc, total=total, unit=unit))
        return self[-1]

    def told(self) -> list[tuple[str, int, int | None]]:
        assert all(bar.is_closed.is_set() for bar in self)
        return [(bar.desc, bar.n, bar.total) for bar in self]


def letters(texts: list[str]) -> list[list[float]]:
    return [[1.0 + text.count("a"), text.count("b"), text.count("c")] for text in texts]


def embedder(call: Callable[[list[str]], Any] = letters) -> Embedder:
    return Embedder(call, name="letters")


def memory(store: Store | None = None, count: int = 12, **settings: Any) -> LongTermMemory:
    made = LongTermMemory(store or MemoryStore(), LexicalIndex(":memory:"), user="ada", **settings)
    for n in range(count):
        made.add([Message(role="user", content=f"The number {n} is a lucky one", id=f"m{n}")])
    return made


QUESTIONS = [Question(f"Is {n} lucky?", frozenset({f"m{n}"})) for n in range(12)]
PAIRS = [("aab", "aaab", True), ("bbb", "ccc", False), ("abc", "aabbcc", True)] * 30


def sessions(store: Store, counts: Iterable[int] = (3, 0, 700)) -> Sessions:
    made = Sessions(store, user="ada")
    for number, count in enumerate(counts):
        line = {"v": 1, "type": "session", "session": f"s{number}", "values": {"title": '"t"'}}
        said = [
            {"v": 1, "type": "message", "session": f"s{number}", "message": {"v": 1, "role": "user", "id": f"m{n}"}}
            for n in range(count)
        ]
        made.import_([json.dumps(one) for one in (line, *said)])
    return made


async def listed(lines: AsyncIterator[bytes]) -> list[bytes]:
    return [line async for line in lines]


# --- what can be given


def test_a_function_is_told_how_much_is_done_and_how_much_there_is() -> None:
    told: list[tuple[int, int | None]] = []
    with advancing(lambda done, total: told.append((done, total)), "importing", 7, "lines") as advance:
        advance(3)
        advance(4)
    assert told == [(3, 7), (7, 7)]


def test_a_builtin_that_does_not_tell_its_arguments_is_a_function_too(capsys: pytest.CaptureFixture[str]) -> None:
    with advancing(print, "importing", 2, "lines") as advance:
        advance(2)
    assert capsys.readouterr().out == "2 2\n"
    with advancing(max, "importing", 2, "lines") as advance:  # which has no signature
        advance(2)


def test_what_makes_bars_is_told_the_task_and_its_bar_is_closed_also_after_an_error() -> None:
    bars = Bars()

    def work(*, fails: bool) -> None:
        with advancing(bars, "importing", 7, "lines") as advance:
            advance(3)
            advance(4 // (not fails))

    with pytest.raises(ZeroDivisionError):
        work(fails=True)
    assert bars.told() == [("importing", 3, 7)]
    assert bars[0].unit == " lines"


def test_a_bar_of_ones_own_moves_on_and_stays_open() -> None:
    bar = Bar(desc="mine", total=None, unit="")
    for _ in range(2):
        with advancing(bar, "importing", 7, "lines") as advance:
            advance(3)
    assert bar.n == 6
    assert not bar.is_closed.is_set()


def test_rich_shows_each_task() -> None:
    with rich.progress.Progress(disable=True) as shown:
        for what in ("indexing", "embedding"):
            with advancing(shown, what, 7, "lines") as advance:
                advance(3)
                advance(2)
    assert [(task.description, task.completed, task.total) for task in shown.tasks] == [
        ("indexing", 5, 7),
        ("embedding", 5, 7),
    ]


def test_tqdm_itself_and_one_that_is_set(tmp_path: Path) -> None:
    with Path(tmp_path, "bar").open("w+", encoding="utf-8") as file:
        bar = tqdm(total=5, file=file)
        with advancing(bar, "importing", 5, "lines") as advance:
            advance(5)
        assert not bar.disable
        bar.close()
        with advancing(lambda **given: tqdm(file=file, **given), "exporting", 4, "lines") as advance:
            advance(4)
        file.seek(0)
        shown = file.read()
    assert "5/5" in shown
    assert "exporting: 100%" in shown
    assert " lines/s" in shown


@pytest.mark.parametrize(
    "wrong",
    ["yes", 3, object(), {}, dict, rich.progress.Progress, lambda: None, lambda **_: None, lambda done: done],
)
def test_anything_else_is_refused_before_anything_is_done(wrong: Any) -> None:
    store = MemoryStore()
    line = json.dumps({"v": 1, "type": "message", "session": "s", "message": {"v": 1, "role": "user"}})
    with pytest.raises(ConfigurationError, match="progress is True or False"):
        Sessions(store).import_([line], progress=wrong)
    assert list(store.namespaces()) == []


def test_a_function_that_must_be_awaited_is_refused() -> None:
    async def show(done: int, total: int | None) -> None:
        raise AssertionError(done, total)

    with pytest.raises(ConfigurationError, match="progress is a coroutine function: give it a plain one"):
        Sessions(MemoryStore()).import_([], progress=show)


# --- printed: nothing by default, one line of text where it is asked for


def everything(progress: Progress) -> None:
    with_progress: dict[str, Any] = {} if progress is None else {"progress": progress}
    store = MemoryStore()
    lines = list(sessions(store).export(**with_progress))
    Sessions(MemoryStore()).import_(lines, **with_progress)
    Migration(store, MemoryStore(), **with_progress).run()
    found = memory(vectors=open_vectors("memory:", embedder()))
    found.rebuild(**with_progress)
    found.flush(**with_progress)
    evaluate(lambda _: found, QUESTIONS, **with_progress)
    fit(lambda _: found, QUESTIONS, **with_progress)
    pool = ExperiencePool(store, index=open_vectors("memory:", embedder()))
    pool.tune(PAIRS, precision=0.1, **with_progress)


@pytest.mark.parametrize("progress", [None, False])
def test_j3_nothing_is_printed_by_default(progress: Progress, capfd: pytest.CaptureFixture[str]) -> None:
    everything(progress)
    assert capfd.readouterr() == ("", "")


def test_j3_a_bar_of_text_goes_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    everything(True)
    out, err = capfd.readouterr()
    assert out == ""
    for what in ("exporting", "importing", "copying", "comparing", "indexing", "embedding", "searching", "tuning"):
        assert f"{what}: " in err
    assert "exporting: 100%" in err
    assert "706/706" in err


def test_where_there_is_no_stderr_no_bar_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", None)  # as in a program without a console on Windows
        everything(True)


def test_j3_in_a_notebook_without_ipywidgets_it_is_text_without_a_warning() -> None:
    kernel = (
        "import types\n"
        "shell = types.SimpleNamespace(config={'IPKernelApp': {}})\n"
        "sys.modules['IPython'] = types.SimpleNamespace(get_ipython=lambda: shell)\n"
        "from langmem_adapters import *\n"
        "pool = ExperiencePool(open_store('memory:'), index=open_vectors('memory:', Embedder(\n"
        "    lambda texts: [[1.0, len(text)] for text in texts], name='lengths')))\n"
        "pool.tune([('a', 'b', True)], progress=True)\n"
    )
    code = BLOCK.format(blocked=["ipywidgets"]) + kernel
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "tuning: 100%" in done.stderr
    assert "Warning" not in done.stderr
    assert done.stdout == ""


def test_without_tqdm_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tqdm.std", None)
    with pytest.raises(MissingDependency, match=r"langmem_adapters\[notebook\]"):
        memory().rebuild(progress=True)
    bars = Bars()
    memory().rebuild(progress=bars)  # one of your own needs none
    assert bars.told() == [("indexing", 12, 12)]


# --- what is counted


@pytest.mark.parametrize("is_async", [False, True])
async def test_export_and_import_count_lines(any_store: Store, *, is_async: bool) -> None:
    source, bars = sessions(any_store), Bars()
    if is_async:
        lines = await listed(source.aexport(progress=bars))
        await Sessions(MemoryStore()).aimport(lines, progress=bars)
        one = await listed(source.aexport("s0", progress=bars))
    else:
        lines = list(source.export(progress=bars))
        Sessions(MemoryStore()).import_(lines, progress=bars)
        one = list(source.export("s0", progress=bars))
    assert len(lines) == 706
    assert len(one) == 4
    assert bars.told() == [("exporting", 706, 706), ("importing", 706, 706), ("exporting", 4, 4)]


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_pool_counts_experiences(*, is_async: bool) -> None:
    pool, bars = ExperiencePool(MemoryStore()), Bars()
    for n in range(5):
        pool.create(Experience(req=n, resp="x", expires_at=1.0 if n == 2 else None))
    lines = list(pool.export(progress=bars))
    other = ExperiencePool(MemoryStore())
    added = await other.aimport(lines, progress=bars) if is_async else other.import_(lines, progress=bars)
    assert added == 4
    assert bars.told() == [("exporting", 4, None), ("importing", 4, 4)]


def test_lines_that_are_there_already_are_done_too() -> None:
    source, bars = sessions(MemoryStore()), Bars()
    assert source.import_(list(source.export()), progress=bars) == 0
    assert bars.told() == [("importing", 706, 706)]


def test_an_export_that_is_not_read_to_its_end_closes_its_bar() -> None:
    bars = Bars()
    lines = sessions(MemoryStore()).export(progress=bars)
    assert len(list(itertools.islice(lines, 5))) == 5
    lines.close()
    assert bars.told() == [("exporting", 5, 706)]


async def test_so_does_an_async_one() -> None:
    bars = Bars()
    lines = sessions(MemoryStore()).aexport(progress=bars)
    async for _ in lines:
        break
    await lines.aclose()
    assert bars[0].is_closed.wait(10)


class Full(MemoryStore):
    """A store that takes one page, and no more."""

    pages = 0

    def write(self, *args: Any, **kwargs: Any) -> None:
        self.pages += bool(kwargs.get("append"))
        if self.pages > 1:
            raise StoreError("the disk is full")
        super().write(*args, **kwargs)


@pytest.mark.parametrize("is_async", [False, True])
async def test_an_import_that_fails_has_counted_what_was_written(*, is_async: bool) -> None:
    lines, bars, target = list(sessions(MemoryStore(), [700]).export()), Bars(), Sessions(Full())
    with pytest.raises(StoreError, match="full"):
        await target.aimport(lines, progress=bars) if is_async else target.import_(lines, progress=bars)
    assert bars.told() == [("importing", 501, 701)]


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_migration_counts_namespaces_as_it_copies_and_as_it_compares(*, is_async: bool) -> None:
    source, bars = MemoryStore(), Bars()
    sessions(source, [1, 2, 3, 4])
    migration = Migration(source, MemoryStore(), progress=bars)
    migrated = await migration.arun() if is_async else migration.run()
    assert migrated.namespaces == 4
    assert bars.told() == [("copying", 4, 4), ("comparing", 4, 4)]


def test_a_migration_that_is_refused_closes_its_bar() -> None:
    source, target, bars = MemoryStore(), MemoryStore(), Bars()
    sessions(source, [1, 2])
    sessions(target, [5])
    with pytest.raises(ConfigurationError, match="something else"):
        Migration(source, target, progress=bars).run()
    assert bars[0].is_closed.is_set()
    assert bars[0].n < 2


@pytest.mark.parametrize("is_async", [False, True])
async def test_rebuilding_counts_what_is_indexed_and_what_is_embedded(any_store: Store, *, is_async: bool) -> None:
    found, bars = memory(any_store, 700, vectors=open_vectors("memory:", embedder())), Bars()
    found.flush()
    await found.arebuild(progress=bars) if is_async else found.rebuild(progress=bars)
    assert bars.told() == [("indexing", 700, 700), ("embedding", 700, 700)]


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_flush_does_not_know_its_total(*, is_async: bool) -> None:
    found, bars = memory(), Bars()
    for _ in range(2):
        await found.aflush(progress=bars) if is_async else found.flush(progress=bars)
    assert bars.told() == [("indexing", 12, None), ("indexing", 0, None)]


def test_an_embedder_that_fails_ends_the_bar() -> None:
    calls = itertools.count()

    def fail_later(texts: list[str]) -> list[list[float]]:
        if next(calls) > 0:
            raise OSError("no connection")
        return letters(texts)

    found, bars = memory(vectors=open_vectors("memory:", Embedder(fail_later, name="x", batch=5))), Bars()
    with pytest.raises(ModelError):
        found.rebuild(progress=bars)
    assert bars.told() == [("indexing", 12, 12), ("embedding", 0, 12)]


@pytest.mark.parametrize("is_async", [False, True])
async def test_evaluating_and_fitting_count_questions(*, is_async: bool) -> None:
    found, bars = memory(), Bars()
    if is_async:
        await aevaluate(lambda _: found, QUESTIONS, progress=bars)
        await afit(lambda _: found, QUESTIONS, progress=bars)
    else:
        evaluate(lambda _: found, QUESTIONS, progress=bars)
        fit(lambda _: found, QUESTIONS, progress=bars)
    assert bars.told() == [("searching", 12, 12)] * 2


# --- tuning


def tunable(kind: str) -> Any:
    index = open_vectors("memory:", embedder())
    if kind == "pool":
        return ExperiencePool(MemoryStore(), index=index)
    return ExperienceCache(store=MemoryStore(), semantic=SemanticMode(index=index))


@pytest.mark.parametrize("kind", ["pool", "cache"])
@pytest.mark.parametrize("is_async", [False, True])
async def test_tuning_counts_pairs(kind: str, *, is_async: bool) -> None:
    pairs = [("aab", "aab", True), ("bbb", "ccc", False), ("abc", "abc", True)] * 30
    bars, subject = Bars(), tunable(kind)
    found = await subject.atune(pairs, progress=bars) if is_async else subject.tune(pairs, progress=bars)
    assert bars.told() == [("tuning", 90, 90)]
    assert len(found.scored) == 90
    assert [same for _, same in found.scored] == [same for *_, same in pairs]


def test_tuning_that_fails_closes_its_bar() -> None:
    bars = Bars()

    def fail(texts: list[str]) -> Any:
        if "boom" in texts:
            raise OSError("no connection")
        return letters(texts)

    pool = ExperiencePool(MemoryStore(), index=open_vectors("memory:", embedder(fail)))
    with pytest.raises(ModelError):
        pool.tune([*PAIRS, ("boom", "boom", True)], progress=bars)
    assert bars.told() == [("tuning", 64, 91)]


class Hanging:
    """An embedding model of LangChain's form that never answers on an event loop."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return letters(texts)

    def embed_query(self, text: str) -> list[float]:
        return letters([text])[0]

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        self.asked.set()
        await asyncio.Event().wait()
        return letters(texts)

    def aembed_query(self, text: str) -> Awaitable[list[float]]:
        raise NotImplementedError(text)


async def test_tuning_that_is_cancelled_closes_its_bar() -> None:
    bars, model = Bars(), Hanging()
    pool = ExperiencePool(MemoryStore(), index=open_vectors("memory:", Embedder(model, name="hanging")))
    task = asyncio.create_task(pool.atune(PAIRS, progress=bars))
    await model.asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert bars[0].is_closed.wait(10)


def test_a_pool_is_tuned_by_the_scores_of_its_own_query() -> None:
    pool = ExperiencePool(MemoryStore(), index=open_vectors("memory:", embedder()))
    pairs = [("aab", "aaab", True), ("cccc", "aab", False), ("bbb", "", False)]
    found = pool.tune(pairs, precision=1.0)
    for (kept, asked, _), (score, _) in zip(pairs, found.scored, strict=True):
        pool.clear()
        pool.create(Experience(req=kept, resp="x"))
        served = pool.query(asked, k=1)
        assert score == pytest.approx(served[0].score if served else 0.0, abs=1e-6)
    assert found.threshold == found.scored[0][0]
    assert found.curve[-1].precision == 1.0


@pytest.mark.parametrize("index", [None, LexicalIndex(":memory:")])
def test_a_pool_that_finds_by_words_cannot_be_tuned(index: Any) -> None:
    with pytest.raises(ConfigurationError, match="open_vectors"):
        ExperiencePool(MemoryStore(), index=index).tune(PAIRS)


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9, 1.0]), st.booleans()), min_size=1, max_size=40))
def test_each_point_of_the_curve_is_what_its_threshold_serves(scored: list[tuple[float, bool]]) -> None:
    same = sum(is_same for _, is_same in scored)
    others = len(scored) - same
    try:
        found = choose_threshold(scored, 0.01)
    except ConfigurationError:
        assert not any(is_same and score for score, is_same in scored)
        return
    assert [point.threshold for point in found.curve] == sorted({score for score, _ in scored if score > 0})
    for point in found.curve:
        served = [is_same for score, is_same in scored if score >= point.threshold]
        wrong = len(served) - sum(served)
        expected = (sum(served) / len(served), sum(served) / same, wrong / others if others else 0.0)
        assert point == TunedPoint(point.threshold, *expected)
    assert found.scored == scored


@pytest.mark.parametrize("pair", [("a", "b"), ("a", "b", "yes"), ("a", 5, True), "abc", ("a", "b", True, 1)])
def test_a_pair_that_is_none_is_one_sentence_before_anything_is_embedded(pair: Any) -> None:
    asked: list[Any] = []
    pool = ExperiencePool(MemoryStore(), index=open_vectors("memory:", Embedder(asked.append, name="x")))
    with pytest.raises(ConfigurationError, match="a pair holds two requests and whether they mean the same"):
        pool.tune([("a", "b", True), pair])
    assert asked == []
