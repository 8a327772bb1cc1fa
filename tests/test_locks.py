"""Locks are let go of whatever comes in between, as the interrupt of a notebook's cell (J1)."""

from __future__ import annotations

import sys
import threading
from types import FrameType
from typing import Any

import pytest

from langmem_adapters.concurrency import forks, locks
from langmem_adapters.concurrency.locks import RecoverableLock
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


def test_j1_a_lock_whose_holder_was_kept_from_releasing_it_is_taken_once_its_thing_is_not_in_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(locks, "_LOST_SECONDS", 0.001)
    answers = [False, False, True, True]
    lock = RecoverableLock(answers.pop)
    lost = threading.Thread(target=lock.acquire)
    lost.start()
    lost.join()
    with lock:
        assert not answers
        other = threading.Thread(target=lock.release)  # who held it before
        other.start()
        other.join()
        assert not try_acquire(lock._lock)
    assert try_acquire(lock._lock)


def test_j1_a_lock_is_not_lost_as_its_holder_ends_a_long_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "_LOST_SECONDS", 0.001)
    release = threading.Event()
    is_held = threading.Event()
    looks: list[bool] = []

    def is_in_use() -> bool:
        looks.append(len(looks) < 2)
        if not looks[-1]:
            release.set()
            holder.join()
        return looks[-1]

    lock = RecoverableLock(is_in_use)

    def hold() -> None:
        with lock:
            is_held.set()
            release.wait(20)

    inner = lock._lock
    holder = threading.Thread(target=hold, daemon=True)
    holder.start()
    is_held.wait(20)
    with lock:
        assert looks == [True, True, False]
        assert lock._lock is inner


def test_j1_of_those_who_wait_for_a_lost_lock_one_is_let_in_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "_LOST_SECONDS", 0.001)
    release, is_held, is_in = (threading.Event() for _ in range(3))
    looks: list[threading.Thread] = []

    def is_in_use() -> bool:
        looks.append(threading.current_thread())
        if looks == [threading.main_thread()] * 2:  # which is about to replace it
            release.set()
            holder.join()
            other.start()
            while try_acquire(inner):
                pass
            is_in.wait(0.1)
        return False

    lock = RecoverableLock(is_in_use)

    def hold() -> None:
        with lock:
            is_held.set()
            release.wait(20)

    def enter() -> None:
        with lock:
            is_in.set()
            may_leave.wait(20)

    inner = lock._lock
    may_leave = threading.Event()
    holder, other = (threading.Thread(target=target, daemon=True) for target in (hold, enter))
    holder.start()
    is_held.wait(20)
    lock.acquire()
    assert not is_in.is_set()
    assert not try_acquire(lock._lock)
    lock.release()
    may_leave.set()
    other.join(20)
    assert is_in.is_set()


def try_acquire(lock: Any) -> bool:
    acquired: list[bool] = []
    thread = threading.Thread(target=lambda: acquired.append(lock.acquire(blocking=False)))
    thread.start()
    thread.join()
    return acquired[0]
