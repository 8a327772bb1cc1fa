"""Locks are let go of whatever comes in between, as the interrupt of a notebook's cell (J1)."""

from __future__ import annotations

import sys
import threading
from types import FrameType
from typing import Any

import pytest

from langmem_adapters.concurrency import forks
from langmem_adapters.stores.memory import MemoryStore


@pytest.mark.parametrize(("function", "event"), [("__enter__", "return"), ("__exit__", "call"), ("__exit__", "return")])
def test_j1_a_store_goes_on_after_an_interrupt_wherever_it_came(
    function: str, event: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forks, "_work_depths", {})  # a fork would wait for the interrupted thread, though not for ever
    store = MemoryStore()
    seen: list[Any] = []

    def interrupt(frame: FrameType, what: str, _: Any) -> Any:
        code = frame.f_code
        if (code.co_filename, code.co_name, what) == (forks.__file__, function, event):
            sys.settrace(None)
            raise KeyboardInterrupt
        return interrupt

    def cells() -> None:
        sys.settrace(interrupt)
        try:
            store.append(("s",), [("a", b"1")])
        except KeyboardInterrupt:
            seen.append("interrupted")
        finally:
            sys.settrace(None)
        store.append(("s",), [("b", b"2")])
        other = threading.Thread(target=lambda: seen.append(store.scan(("s",)).items[-1].id), daemon=True)
        other.start()
        other.join(10)

    first = threading.Thread(target=cells, daemon=True)
    first.start()
    first.join(20)
    assert seen == ["interrupted", "b"]
