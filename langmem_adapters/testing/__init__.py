"""What every store must do, as tests that the tests of any store can inherit, and the fakes that our own use.

A backend's test file is ten lines::

    class TestMyStore(StoreConformance):
        @pytest.fixture
        def clock(self): return FakeClock()

        @pytest.fixture
        def store(self, clock): return MyStore(clock=clock)

        def let_ttl_pass(self, store, clock, seconds): clock.advance(seconds)

and a random walk beside the oracle: ``TestWalk = store_walk(lambda clock: MyStore(clock=clock))``.
"""

from __future__ import annotations

from langmem_adapters.errors import MissingDependency

try:
    import hypothesis  # noqa: F401 - only to say clearly that it is missing
    import pytest  # noqa: F401 - same
except ImportError as error:
    raise MissingDependency("pytest or hypothesis", "test") from error

from langmem_adapters.testing.conformance import StoreConformance
from langmem_adapters.testing.fakes import FakeClock
from langmem_adapters.testing.walk import store_walk

__all__ = ["FakeClock", "StoreConformance", "store_walk"]
