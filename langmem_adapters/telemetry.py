"""Spans and metrics of store operations, for OpenTelemetry: off by default, and then OpenTelemetry is not imported.

``LANGMEM_OTEL=1`` puts a :class:`Traced` in front of every store that a process shares by URL; wrap your own stores
by hand. Neither content nor ids are reported: only the operation, the backend, the kind of namespace, hit or miss,
the duration, and the class of an error. So there are few labels, however many users there are.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from langmem_adapters.errors import ConfigurationError, Conflict, MissingDependency
from langmem_adapters.keys import Namespace
from langmem_adapters.protocols import Appended, Listed, Page, Store
from langmem_adapters.sharing import Shared
from langmem_adapters.validation import check_store

__all__ = ["Traced", "is_wanted"]

_NAMESPACE_KINDS = frozenset({"brain", "longterm", "working", "experience", "langgraph", "nodes"})
_BACKENDS = {"MemoryStore": "memory", "SQLiteStore": "sqlite", "RedisStore": "redis"}
_INSTRUMENTATION_NAME = "langmem_adapters"
# Those of db.client.operation.duration; the SDK's are for milliseconds.
_BUCKET_SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10)
T = TypeVar("T")
_ON_VALUES, _OFF_VALUES = {"1", "true", "yes", "on"}, {"", "0", "false", "no", "off"}


def is_wanted() -> bool:
    """Whether ``LANGMEM_OTEL`` asks for spans and metrics."""
    value = os.environ.get("LANGMEM_OTEL", "").strip().lower()
    if value not in _ON_VALUES | _OFF_VALUES:
        raise ConfigurationError("LANGMEM_OTEL is 1 or 0")
    return value in _ON_VALUES


class Traced(Shared):
    """Implements :class:`~langmem_adapters.protocols.Store` in front of another store, and reports what it does.

    Each call makes a span ``langmem.<operation>``. There is a histogram ``langmem.store.duration`` (seconds) and a
    counter ``langmem.store.lookups``, which tells reads that found something from those that did not.

    Args:
        store: The store that it wraps.
        tracer_provider, meter_provider: OpenTelemetry's; default: the global ones.

    Raises:
        MissingDependency: OpenTelemetry's API is not installed.

    >>> from langmem_adapters import BrainMemory, open_store
    >>> brain = BrainMemory(Traced(open_store("memory:")), "monday")
    >>> brain.add_talk("Good morning.")
    >>> brain.count()
    1
    """

    def __init__(self, store: Store, *, tracer_provider: Any = None, meter_provider: Any = None) -> None:
        try:
            trace = importlib.import_module("opentelemetry.trace")
            metrics = importlib.import_module("opentelemetry.metrics")
        except ImportError as error:
            raise MissingDependency("opentelemetry-api", "otel") from error
        check_store(store)
        self.store = store
        if hasattr(store, "redacted"):  # services call it on a SealedStore, to recognise what they wrote
            self.redacted: Callable[..., bytes] = store.redacted
        self._backend = _BACKENDS.get(type(store).__name__, "other")
        self._tracer = trace.get_tracer(_INSTRUMENTATION_NAME, tracer_provider=tracer_provider)
        self._span_kind = trace.SpanKind.CLIENT
        self._error_status = trace.StatusCode.ERROR
        meter = metrics.get_meter(_INSTRUMENTATION_NAME, meter_provider=meter_provider)
        self._durations = meter.create_histogram(
            "langmem.store.duration",
            unit="s",
            description="How long a store's operation took.",
            explicit_bucket_boundaries_advisory=_BUCKET_SECONDS,
        )
        self._lookups = meter.create_counter(
            "langmem.store.lookups", unit="{lookup}", description="Reads, by whether they found something."
        )

    def get(self, namespace: Namespace, keys: Sequence[str] | None = None) -> dict[str, bytes]:
        """:meth:`Store.get`."""
        return self._trace("get", namespace, lambda: self.store.get(namespace, keys), is_hit=bool)

    def scan(self, namespace: Namespace, **options: Any) -> Page:
        """:meth:`Store.scan`."""
        return self._trace(
            "scan",
            namespace,
            lambda: self.store.scan(namespace, **options),
            is_hit=lambda page: bool(page.items or page.values),
        )

    def append(self, namespace: Namespace, entries: Sequence[tuple[str, bytes]], **options: Any) -> Appended:
        """:meth:`Store.append`."""
        return self._trace("append", namespace, lambda: self.store.append(namespace, entries, **options))

    def write(self, namespace: Namespace, **change: Any) -> None:
        """:meth:`Store.write`."""
        self._trace("write", namespace, lambda: self.store.write(namespace, **change))

    def clear(self, namespace: Namespace) -> None:
        """:meth:`Store.clear`."""
        self._trace("clear", namespace, lambda: self.store.clear(namespace))

    def recent(self, parent: Namespace, **options: Any) -> list[Listed]:
        """:meth:`Store.recent`."""
        return self._trace("recent", parent, lambda: self.store.recent(parent, **options), is_hit=bool)

    def namespaces(self, prefix: Namespace = ()) -> Iterator[Namespace]:
        """:meth:`Store.namespaces`; not reported, since it lasts as long as its reader takes."""
        return self.store.namespaces(prefix)

    def close(self) -> None:
        """:meth:`Store.close`."""
        self.store.close()

    def __repr__(self) -> str:
        return f"Traced({self.store!r})"

    def _trace(
        self, operation: str, namespace: Namespace, call: Callable[[], T], *, is_hit: Callable[[T], bool] | None = None
    ) -> T:
        """Ask the store, and report it; for a read, ``is_hit`` says whether the result holds something."""
        kind = namespace[0] if namespace else ""
        labels = {
            "db.system.name": self._backend,
            "db.operation.name": operation,
            "langmem.kind": kind if kind in _NAMESPACE_KINDS else "other",
        }
        start = time.perf_counter()
        # The error's message stays out: the host's log decides about it.
        with self._tracer.start_as_current_span(
            f"langmem.{operation}",
            kind=self._span_kind,
            attributes=labels,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                result = call()
            except BaseException as error:
                labels["error.type"] = type(error).__name__
                span.set_attribute("error.type", type(error).__name__)
                if not isinstance(error, Conflict):  # an answer that services expect of a guarded write
                    span.set_status(self._error_status)
                raise
            finally:
                self._durations.record(time.perf_counter() - start, labels)
            if is_hit is not None:
                hit = is_hit(result)
                span.set_attribute("langmem.hit", hit)
                self._lookups.add(1, {**labels, "langmem.hit": hit})
            return result
