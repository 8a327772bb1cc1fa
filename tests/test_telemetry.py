"""OpenTelemetry: what is told, what never is, and that nothing of it is loaded where nobody asked."""

from __future__ import annotations

import bisect
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from langmem_adapters import BrainMemory, LongTermMemory, Message, Sessions, open_index
from langmem_adapters.errors import ConfigurationError, Conflict, StoreUnavailable
from langmem_adapters.experience.single_flight.leases import Leases
from langmem_adapters.flow import run
from langmem_adapters.operations import Checkup, Migration, Pruning
from langmem_adapters.protocols import Store
from langmem_adapters.sealing import SealedStore
from langmem_adapters.stores import open_store, shared_store
from langmem_adapters.stores.memory import MemoryStore
from langmem_adapters.stores.redis import RedisStore
from langmem_adapters.telemetry import Traced, is_wanted
from langmem_adapters.testing import FakeClock, StoreConformance, store_walk

ROOT = Path(__file__).parent.parent
NS = ("brain", "tenant-7", "user-7", "session-7")
LABELS = {"db.system.name", "db.operation.name", "langmem.kind", "langmem.hit", "error.type"}


class Watched:
    """OpenTelemetry's own collectors, in memory."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.meters = MeterProvider(metric_readers=[self._reader])

    def store(self, store: Store) -> Traced:
        return Traced(store, tracer_provider=self.tracers, meter_provider=self.meters)

    @property
    def spans(self) -> list[Any]:
        return list(self._exporter.get_finished_spans())

    def points(self, name: str) -> list[Any]:
        data = self._reader.get_metrics_data()
        return [
            point
            for resource in (data.resource_metrics if data else [])
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]


@pytest.fixture
def watched() -> Iterator[Watched]:
    watched = Watched()
    yield watched
    watched.tracers.shutdown()
    watched.meters.shutdown()


class TestATracedStoreIsLikeAnyOther(StoreConformance):
    @pytest.fixture
    def store(self, watched: Watched, clock: FakeClock) -> Traced:
        return watched.store(MemoryStore(clock=clock))

    def let_ttl_pass(self, store: Any, clock: FakeClock, seconds: float) -> None:  # noqa: ARG002 - the kit's words
        clock.advance(seconds)


TestTracedWalk = store_walk(lambda clock: Traced(MemoryStore(clock=clock)))


@pytest.mark.parametrize("wrapped", [Traced, SealedStore])
def test_what_stands_in_front_of_a_store_closes_it_and_takes_nothing_else(wrapped: Callable[[Store], Store]) -> None:
    closed = []

    class Watching(MemoryStore):
        def close(self) -> None:
            closed.append(self)

    store = Watching()
    wrapped(store).close()
    assert closed == [store]
    with pytest.raises(ConfigurationError, match=r"^a store is what "):
        wrapped("memory:")  # type: ignore[arg-type]


def test_each_operation_is_a_span_and_a_duration(watched: Watched, any_store: Store) -> None:
    store = watched.store(any_store)
    store.append(NS, [("a", b"1")])
    items = store.scan(NS, keys=["k"]).items
    store.write(NS, put={"k": b"v"}, remove=items)
    store.get(NS, ["k"])
    store.get(NS, ["other"])
    store.scan(NS, limit=0, keys=["k"])
    store.recent(NS[:-1])
    store.recent(("nobody",))
    store.clear(NS)
    store.scan(NS)
    told = [
        (span.name, span.attributes["db.operation.name"], span.attributes.get("langmem.hit")) for span in watched.spans
    ]
    assert told == [
        ("langmem.append", "append", None),
        ("langmem.scan", "scan", True),
        ("langmem.write", "write", None),
        ("langmem.get", "get", True),
        ("langmem.get", "get", False),
        ("langmem.scan", "scan", True),
        ("langmem.recent", "recent", True),
        ("langmem.recent", "recent", False),
        ("langmem.clear", "clear", None),
        ("langmem.scan", "scan", False),
    ]
    backend = type(any_store).__name__.removesuffix("Store").lower()
    assert {span.attributes["db.system.name"] for span in watched.spans} == {backend}
    assert {span.kind for span in watched.spans} == {SpanKind.CLIENT}
    assert {span.attributes["langmem.kind"] for span in watched.spans} == {"brain", "other"}
    durations = watched.points("langmem.store.duration")
    assert sum(point.count for point in durations) == 10
    assert all(0 <= point.sum < 60 for point in durations)
    (bounds,) = {tuple(point.explicit_bounds) for point in durations}
    assert len({bisect.bisect(bounds, seconds) for seconds in (0.0005, 0.003, 0.03, 0.3, 3)}) == 5  # quantiles
    lookups = {
        (point.attributes["db.operation.name"], point.attributes["langmem.hit"]): point.value
        for point in watched.points("langmem.store.lookups")
    }
    assert lookups == {
        ("scan", True): 2, ("get", True): 1, ("get", False): 1,
        ("recent", True): 1, ("recent", False): 1, ("scan", False): 1,
    }  # fmt: skip


def test_what_is_asked_of_no_namespace_is_of_another_kind(watched: Watched) -> None:
    store = watched.store(MemoryStore())
    store.write(("brain",), put={"k": b"v"})
    assert [row.namespace for row in store.recent(())] == [("brain",)]
    assert [span.attributes["langmem.kind"] for span in watched.spans] == ["brain", "other"]


def test_no_content_no_ids_and_few_labels(watched: Watched) -> None:
    store = watched.store(MemoryStore())
    for n in range(50):
        BrainMemory(store, f"session-{n}", user=f"user-{n}").add_talk(f"secret-{n}")
        store.append((f"kind-{n}", f"user-{n}"), [(f"id-{n}", b"secret")])
    with pytest.raises(Conflict):
        store.write(NS, put={"key-7": b"secret"}, guard={"key-7": b"secret-other"})
    points = watched.points("langmem.store.duration") + watched.points("langmem.store.lookups")
    told = [dict(each.attributes) for each in [*watched.spans, *points]]
    assert set().union(*told) <= LABELS
    text = str(told) + str([(span.name, span.status.description, span.events) for span in watched.spans])
    for private in ("secret", "user-", "session-", "tenant-", "id-", "key-", "kind-"):
        assert private not in text
    assert len(points) < 15


def test_an_error_is_told_by_its_class_alone(watched: Watched) -> None:
    store = watched.store(RedisStore("redis://:S3cret@127.0.0.1:1", retry_for=0))
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        store.append(NS, [("a", b"")])
    with pytest.raises(StoreUnavailable):
        store.get(NS, ["k"])
    for span in watched.spans:
        assert span.status.status_code is StatusCode.ERROR
        assert span.attributes["error.type"] == "StoreUnavailable"
        assert not span.events
        assert "S3cret" not in span.to_json()
    (first, _) = watched.points("langmem.store.duration")
    assert first.attributes["error.type"] == "StoreUnavailable"
    assert watched.points("langmem.store.lookups") == []  # an outage is no miss
    assert "S3cret" not in repr(store)
    store.close()


def test_processes_that_wait_for_the_same_answer_alert_nobody(watched: Watched) -> None:
    """Each tries to take a lease, and all but one are told that another has it."""
    kept, clock = MemoryStore(), FakeClock()
    first = Leases(watched.store(kept), ("experience", "leases"), seconds=60, clock=clock, new_id=lambda: "1")
    second = Leases(watched.store(kept), ("experience", "leases"), seconds=60, clock=clock, new_id=lambda: "2")
    assert run(first.take("key")) is not None
    assert run(second.take("key")) is None
    told = [(span.name, span.status.status_code, span.attributes.get("error.type")) for span in watched.spans]
    assert told == [
        ("langmem.write", StatusCode.UNSET, None),
        ("langmem.write", StatusCode.UNSET, "Conflict"),
        ("langmem.get", StatusCode.UNSET, None),
    ]
    points = watched.points("langmem.store.duration")
    assert [point.attributes.get("error.type") for point in points] == [None, "Conflict", None]


async def test_spans_are_children_of_the_callers(watched: Watched) -> None:
    store = watched.store(MemoryStore())
    brain = BrainMemory(store, "s")
    with watched.tracers.get_tracer("app").start_as_current_span("request") as request:
        await brain.aadd_messages([Message(role="user", content="Hello.")])
        brain.add_talk("Again.")
        own = request.get_span_context()
    children = [span for span in watched.spans if span.name != "request"]
    assert len(children) >= 2
    assert {span.parent.span_id for span in children} == {own.span_id}


def test_what_a_redactor_took_out_is_known_again_through_it(watched: Watched) -> None:
    sealed = SealedStore(MemoryStore(), redactor=lambda text: text.replace("4711", "[pin]"))
    brain = BrainMemory(watched.store(sealed), "s")
    for _ in range(2):
        brain.add_messages([Message(id="a", role="user", content="My pin is 4711.")])
    assert [message.text for message in brain.messages()] == ["My pin is [pin]."]


def test_services_and_upkeep_work_through_it(watched: Watched) -> None:
    store = watched.store(MemoryStore())
    memory = LongTermMemory(store, open_index("memory:"), user="ada")
    memory.add([Message(role="user", content="A red kite.")])
    assert [found.text for found in memory.search("kite")] == ["A red kite."]
    BrainMemory(store, "s").add_talk("Hello.")
    assert [info.session for info in Sessions(store).list_sessions()] == ["s"]
    assert Checkup(store).health().ok
    stats = Checkup(store).stats()
    assert (stats.kinds["brain"].entries, stats.address) == (1, "memory:")
    assert Pruning(store, 1000).run().kinds == {}
    target = watched.store(MemoryStore())
    assert Migration(store, target).run().copied == 2


@pytest.mark.parametrize(("value", "wanted"), [("1", True), ("true", True), (" ON ", True), ("0", False), ("", False)])
def test_the_environment_asks_for_it(value: str, wanted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANGMEM_OTEL", value)
    assert is_wanted() == wanted
    url = f"sqlite:///{tmp_path}/one.db"
    assert isinstance(shared_store(url), Traced) == wanted
    assert shared_store(url) is shared_store(url)
    assert not isinstance(open_store(url), Traced)
    shared_store(url).close()


def test_a_wrong_wish_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANGMEM_OTEL", "yes please")
    with pytest.raises(ConfigurationError, match="LANGMEM_OTEL is 1 or 0"):
        shared_store(f"sqlite:///{tmp_path}/one.db")


def script(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-c", code]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)


def test_nothing_is_imported_where_nobody_asked() -> None:
    code = (
        "import sys; from langmem_adapters.stores import shared_store; s = shared_store('memory:');"
        "s.append(('a',), [('b', b'c')]); print([m for m in sys.modules if m.startswith('opentelemetry')])"
    )
    assert script(code).stdout == "[]\n"


def test_without_the_package_it_is_one_sentence() -> None:
    code = (
        "import sys; sys.modules['opentelemetry.trace'] = None\n"
        "from langmem_adapters.stores import shared_store\n"
        "try:\n    shared_store('memory:')\nexcept ImportError as error:\n    print(error)\n"
    )
    done = script(code, LANGMEM_OTEL="1")
    assert done.stdout == (
        'opentelemetry-api is not installed. Install it with: pip install "langmem_adapters[otel]"\n'
    ), done.stderr
