"""Work in the background: on a few threads, in the caller's context, and refused when the script is over."""

from __future__ import annotations

import _thread
import contextvars
import os
import queue
import signal
import subprocess
import sys
import threading
from typing import Any

import pytest

from langmem_adapters.concurrency import background
from langmem_adapters.concurrency.background import submit

who: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")


def test_a_call_has_its_answer_its_error_and_the_context_of_its_caller() -> None:
    def fails() -> None:
        raise KeyError("lost")

    token = who.set("ada")
    asked = submit(who.get)
    who.reset(token)
    assert asked.result(120) == "ada"
    assert isinstance(submit(fails).exception(120), KeyError)
    assert submit(lambda: threading.current_thread().name).result(120).startswith("langmem-background")


def test_eight_calls_wait_at_the_same_time_and_a_ninth_has_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(background._lanes, "work", background.DaemonThreads(8, "langmem-background"))
    everybody, held = threading.Barrier(9), threading.Event()
    waiting = [submit(lambda: (everybody.wait(120), held.wait(120))) for _ in range(8)]
    everybody.wait(120)
    ninth = submit(lambda: threading.current_thread().name)
    names = [thread.name for thread in threading.enumerate()]
    assert background._lanes["work"]._threads == 8
    assert not ninth.done()
    held.set()
    assert ninth.result(120) in names
    for call in waiting:
        call.result(120)


def test_a_thread_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    own = background.DaemonThreads(8, "langmem-background")
    monkeypatch.setitem(background._lanes, "work", own)
    for _ in range(20):
        submit(threading.get_ident).result(120)
        own._idle.get(timeout=120)  # it is free again
        own._idle.put(None)
    assert own._threads == 1


def test_a_call_that_was_cancelled_before_its_turn_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(background._lanes, "work", background.DaemonThreads(1, "langmem-background"))
    held, made = threading.Event(), list[int]()
    submit(lambda: held.wait(120))
    cancelled = submit(lambda: made.append(1))
    assert cancelled.cancel()
    held.set()
    submit(lambda: None).result(120)
    assert made == []


def test_where_no_thread_can_be_started_the_caller_is_told_or_those_that_are_there_do_the_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(background._lanes, "work", background.DaemonThreads(8, "langmem-background"))

    def refuse(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(_thread, "start_new_thread", refuse)
        with pytest.raises(RuntimeError, match="new thread"):
            submit(lambda: 1)
    held = threading.Event()
    first = submit(lambda: held.wait(120))
    with monkeypatch.context() as patch:
        patch.setattr(_thread, "start_new_thread", refuse)
        second = submit(lambda: 2)
    held.set()
    assert (first.result(120), second.result(120)) == (True, 2)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)  # the one that was to start it could be started just before
        monkeypatch.setattr(background._lanes["work"], "_idle", queue.SimpleQueue())
        assert submit(lambda: 3).result(120) == 3


@pytest.mark.timeout(60)
def test_memory_that_runs_out_as_a_thread_starts_leaves_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_out(_: threading.Thread) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", run_out)
        with pytest.raises(MemoryError):
            background.start_thread(threading.Thread(target=int))
    own = background.DaemonThreads(1, "langmem-background")
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", run_out)
        assert own.submit(lambda: "done").result(30) == "done"
    assert own.submit(lambda: "again").result(30) == "again"


def test_where_no_thread_can_be_started_those_that_wait_for_the_end_do_not_grow_in_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(background, "_lanes", {})
    start, started = _thread.start_new_thread, []

    def start_unless_it_works(call: Any, arguments: Any) -> int:
        if arguments:
            raise RuntimeError("can't start new thread")
        started.append(call)
        return start(call, arguments)

    with monkeypatch.context() as patch:
        patch.setattr(_thread, "start_new_thread", start_unless_it_works)
        for _ in range(3):
            with pytest.raises(RuntimeError, match="new thread"):
                submit(lambda: 1)
    assert len(started) == 1
    assert submit(lambda: 2).result(120) == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_child_has_threads_of_its_own() -> None:
    assert submit(lambda: 1).result(120) == 1
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)  # it must not hang for ever
        status = 1
        try:
            status = submit(lambda: 0).result(50)
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0


def test_the_end_of_a_script_waits_for_what_a_daemon_thread_began() -> None:
    """As those of Streamlit's scripts and of Flask's and Django's own servers are: a thread is what its maker is."""
    code = """
import atexit
import threading
from langmem_adapters.concurrency.background import submit

over = threading.Event()
atexit.register(over.set)  # comes after the threads that are waited for

def slow():
    threading.main_thread().join()
    print("broken off" if over.wait(0.5) else "made")

host = threading.Thread(target=submit, args=[slow], daemon=True)
host.start()
host.join()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=100)
    assert done.stdout == "made\n"


def test_nothing_is_begun_when_the_script_is_over() -> None:
    code = """
import threading
from langmem_adapters.concurrency.background import submit

def late():
    threading.main_thread().join()
    while True:
        try:
            submit(lambda: None)  # not waited for: Python 3.12 starts no other thread by now
        except RuntimeError as error:
            return print(error)

submit(late)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=100)
    assert done.stdout == "the interpreter is shutting down\n"
