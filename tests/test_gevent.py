"""Under gevent: greenlets are what threads are elsewhere, whether it was there first or came after this library."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.interpreters import STRICT

pytest.importorskip("gevent", reason="needs gevent, of the extra test")

FIRST = "from gevent import monkey\nmonkey.patch_all()\n"
CROWD = """
import gevent
import time
from langchain_core.language_models import FakeListChatModel
from langmem_adapters.langchain import BrainChatMessageHistory, CachedChatModel

asked = []

class Slow(FakeListChatModel):
    def _stream(self, *args, **options):
        asked.append(1)
        for chunk in super()._stream(*args, **options):
            time.sleep(0.01)
            yield chunk

model = CachedChatModel(Slow(responses=["In the shed."]), url="sqlite:///a.db")

def turn(user):
    history = BrainChatMessageHistory("s", "sqlite:///a.db", user=user)
    with history.record_turn("Where? " + user) as turn:
        said = "".join(chunk.content for chunk in turn.watch(model.stream("Where?")))
    assert [message.content for message in history.messages] == ["Where? " + user, "In the shed."]
    return said

greenlets = [gevent.spawn(turn, str(number)) for number in range(8)]
gevent.joinall(greenlets, timeout=20, raise_error=True)
assert {greenlet.value for greenlet in greenlets} == {"In the shed."}
print(len(asked))
"""
AFTERWARDS = """
from langmem_adapters.flow import arun, step, submit
from langmem_adapters.stores.redis_connections import FIFOPool
from gevent import monkey
monkey.patch_all(ssl=False)  # as a worker of gunicorn does to what was loaded before it was forked
import asyncio, gevent, time

turns = FIFOPool(1, 10)

def use():
    hand = []
    turns.take(hand)
    time.sleep(0.01)
    turns.give_back(hand)

async def several():
    return await asyncio.gather(*(arun(step(time.sleep, 0.01)) for _ in range(5)))

def work():
    futures = [submit(lambda: time.sleep(0.01)) for _ in range(10)]
    return [future.result(10) for future in futures]

greenlets = [gevent.spawn(call) for call in (use, use, lambda: asyncio.run(several()), work, work)]
assert len(gevent.joinall(greenlets, timeout=20, raise_error=True)) == 5
print("done")
"""
PAUSES = """
from langmem_adapters import WorkingMemory, open_store
from langmem_adapters.concurrency.turns import Turn
from langmem_adapters.experience.single_flight.leases import Leases
from langmem_adapters.flow import run
from langmem_adapters.stores.redis_outage import Retries

store = open_store("memory:")
leases = Leases(store, ("leases",), seconds=60, clock=lambda: 0.0, new_id=lambda: "id")
working = WorkingMemory(store)
turn = Turn("c")
next(turn.attempts)
from gevent import monkey
monkey.patch_all(ssl=False)
import gevent

def failing(tries=[]):
    tries.append(1)
    return tries if len(tries) > 1 else 1 / 0

for waits in (
    lambda: run(leases.pause(1)),
    lambda: run(working._read_in_turn(turn, ("working", "", "", "c", "SHORT_TERM"), None)),
    lambda: Retries(60).call(failing, lambda _: True),
):
    seen = []
    gevent.joinall([gevent.spawn(lambda: (waits(), seen.append("waited"))), gevent.spawn(seen.append, "other")])
    print(*seen)
"""


def run(program: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, *STRICT, "-c", program], cwd=folder, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def test_greenlets_that_ask_the_same_share_an_answer_and_each_has_its_own_history(tmp_path: Path) -> None:
    assert run(FIRST + CROWD, tmp_path) == "1"


def test_what_was_imported_before_gevent_came_blocks_no_other_greenlet(tmp_path: Path) -> None:
    assert run(AFTERWARDS, tmp_path) == "done"


def test_whoever_waits_lets_others_go_on_though_gevent_came_later(tmp_path: Path) -> None:
    """For a lease, for other writers, and for Redis."""
    assert run(PAUSES, tmp_path).split("\n") == ["other waited"] * 3
