"""Every order in which the calls of several processes can reach a store, one after another.

What a store promises is atomic by the call, so that whatever two processes can do to each other is an order of their
calls. Each process is a function of a store; it runs in a thread that waits at each of its calls until it is its turn.
An order is tried anew from the start, and from it those that differ in one turn, as in a search in depth.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from langmem_adapters.protocols import Store

Process = Callable[[Any], Any]
_PATIENCE = 30.0  # seconds
_INTERRUPTED = 0.5  # of the calls, where chance says so


class Killed(BaseException):
    """A process that ends between two calls."""


class Outcome(NamedTuple):
    """What became of the processes in one order of their calls."""

    store: Any
    results: list[Any]
    """What each process gave, or the exception that ended it."""
    trace: list[str]
    """Whose call came when, such as "0.append"."""

    def done(self) -> list[Any]:
        """The results, where no process failed."""
        for result in self.results:
            if isinstance(result, BaseException):
                raise result
        return self.results


def explore(
    make: Callable[[], Any],
    processes: Sequence[Process],
    check: Callable[[Outcome], None],
    *,
    switches: int = 2,
    deaths: int | None = None,
) -> int:
    """Have a check look at what comes of every order; gives how many there were.

    Args:
        make: Gives a store as it is at the start.
        processes: Are given that store each, seen through a gate.
        check: Raises for what must not be. The failing order is told with it.
        switches: How often a process is interrupted by another at the most, though it could go on.
        deaths: A process that is killed before each of its calls in turn, and once not at all.
    """
    orders = 0
    mortal = range(_calls(make, processes[deaths]) + 1) if deaths is not None else (None,)
    for death in mortal:
        turns: list[int] | None = []
        while turns is not None:
            one = _Order(make(), processes, turns, None if death is None or deaths is None else (deaths, death))
            outcome = one.run()
            try:
                check(outcome)
            except BaseException as error:
                killed = "" if death is None else f", process {deaths} killed before its call {death}"
                raise AssertionError(f"in the order {' '.join(outcome.trace)}{killed}: {error!r}") from error
            orders += 1
            turns = one.following(switches)
    return orders


def fits_an_order(
    make: Callable[[], Any],
    processes: Sequence[Process],
    view: Callable[[Any], Any],
    *,
    switches: int = 2,
    deaths: int | None = None,
    by_chance: int | None = None,
) -> int:
    """Have every order come to what some order of whole processes comes to; one that is killed may do nothing, too.

    ``view`` says of a store what counts; it may first let somebody else heal what a killed process has left. Of three
    processes there are too many orders: give how many are to be chosen ``by_chance``, always the same.
    """
    whole: list[Any] = []
    explore(make, processes, lambda outcome: whole.append(view(outcome.store)), switches=0)
    if deaths is not None:
        others = [process for n, process in enumerate(processes) if n != deaths]
        explore(make, others, lambda outcome: whole.append(view(outcome.store)), switches=0)

    def check(outcome: Outcome) -> None:
        failures = [each for each in outcome.results if isinstance(each, BaseException)]
        assert all(isinstance(failure, Killed) for failure in failures), failures
        assert view(outcome.store) in whole

    if by_chance is not None:
        return _wander(make, processes, check, by_chance)
    return explore(make, processes, check, switches=switches, deaths=deaths)


def _wander(
    make: Callable[[], Any], processes: Sequence[Process], check: Callable[[Outcome], None], orders: int
) -> int:
    """:func:`explore` for some orders, chosen by chance."""
    for seed in range(orders):
        outcome = _Order(make(), processes, [], None, random.Random(seed)).run()
        try:
            check(outcome)
        except BaseException as error:
            raise AssertionError(f"in the order {' '.join(outcome.trace)}: {error!r}") from error
    return orders


def _calls(make: Callable[[], Any], process: Process) -> int:
    """How many calls a process makes by itself."""
    alone = _Order(make(), [process], [], None)
    return len(alone.run().trace)


class _Choice(NamedTuple):
    taken: int
    open: list[int]
    last: int | None

    def interrupts(self, taken: int) -> bool:
        return self.last in self.open and taken != self.last

    def sorted(self) -> list[int]:
        """Whose turn it may be: who had the last one first."""
        return sorted(self.open, key=lambda number: (number != self.last, number))


def _closed() -> threading.Lock:
    """A gate for one thread: a semaphore is one of these within much Python, half of what an order took."""
    gate = threading.Lock()
    gate.acquire()
    return gate


class _Order:
    """One order: the turns that it begins with, and then as few switches as may be, or those that chance has."""

    def __init__(
        self,
        store: Any,
        processes: Sequence[Process],
        turns: Sequence[int],
        death: tuple[int, int] | None,
        chance: random.Random | None = None,
    ) -> None:
        self._store = store
        self._processes = processes
        self._turns = turns
        self._death = death
        self._chance = chance
        self._choices: list[_Choice] = []
        self._trace: list[str] = []
        self._made = [0] * len(processes)
        self._results: list[Any] = [None] * len(processes)
        self._waiting: dict[int, str] = {}
        self._stopped = _closed()  # whoever runs has come to a gate, or to its end
        self._gates = [_closed() for _ in processes]
        self._is_over = False

    def run(self) -> Outcome:
        threads = [threading.Thread(target=self._live, args=(n,), daemon=True) for n in range(len(self._processes))]
        for thread in threads:
            thread.start()
            self._await()
        last: int | None = None
        while self._waiting:
            choice = _Choice(-1, sorted(self._waiting), last)
            place = len(self._choices)
            taken = self._turns[place] if place < len(self._turns) else choice.sorted()[0]
            if self._chance is not None and self._chance.random() < _INTERRUPTED:
                taken = self._chance.choice(choice.open)
            if taken not in self._waiting:
                raise AssertionError(f"the processes do not make the same calls again: {' '.join(self._trace)}")
            self._choices.append(choice._replace(taken=taken))
            self._trace.append(f"{taken}.{self._waiting.pop(taken)}")
            last = taken
            self._gates[taken].release()
            self._await()
        for thread in threads:
            thread.join(_PATIENCE)
        self._is_over = True
        return Outcome(self._store, self._results, self._trace)

    def following(self, switches: int) -> list[int] | None:
        """The turns of the next order that has not been tried; None, where there is none left."""
        for place in range(len(self._choices) - 1, -1, -1):
            before = sum(choice.interrupts(choice.taken) for choice in self._choices[:place])
            choice = self._choices[place]
            others = choice.sorted()
            for taken in others[others.index(choice.taken) + 1 :]:
                if before + choice.interrupts(taken) <= switches:
                    return [*(choice.taken for choice in self._choices[:place]), taken]
        return None

    def _await(self) -> None:
        if not self._stopped.acquire(timeout=_PATIENCE):
            raise AssertionError(f"a process waits for another, and not at the store: {' '.join(self._trace)}")

    def _live(self, number: int) -> None:
        try:
            self._results[number] = self._processes[number](Gated(self._store, lambda name: self._pass(number, name)))
        except BaseException as error:  # noqa: BLE001 - what ended it is its result
            self._results[number] = error
        self._stopped.release()

    def _pass(self, number: int, name: str) -> None:
        if self._is_over:  # what is left of a killed one gives its lease back as the tests end
            return
        if self._death == (number, self._made[number]):
            raise Killed
        self._made[number] += 1
        self._waiting[number] = name
        self._stopped.release()
        if not self._gates[number].acquire(timeout=_PATIENCE):
            raise AssertionError("the order has ended without this process")


class Gated:
    """A store whose calls wait for their turn. Threads of the library's own must not call it."""

    def __init__(self, store: Any, turn: Callable[[str], None]) -> None:
        self._store = store
        self._turn = turn

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._store, name)
        return self._waiting(name, value) if callable(value) else value

    def _waiting(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wait(*args: Any, **kwargs: Any) -> Any:
            self._turn(name)
            return call(*args, **kwargs)

        return wait


def gated(name: str) -> Any:
    """A method of this name, as one that is looked up on the class itself is not asked for by ``__getattr__``."""

    def method(self: Gated, *args: Any, **kwargs: Any) -> Any:
        return self.__getattr__(name)(*args, **kwargs)

    return method


for _name in ("get", "scan", "append", "write", "clear", "recent", "namespaces", "close"):
    assert hasattr(Store, _name)
    setattr(Gated, _name, gated(_name))  # as a class that is asked whether it is a Store looks at itself alone
