"""Counts: exact, whatever threads do at once."""

from __future__ import annotations

import copy
import os
import pickle
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Thread

import pytest

from langmem_adapters.concurrency.counts import Counts


class Meanwhile(int):
    """A number, beside the adding of which another thread comes to add its own."""

    counts: Counts

    def __radd__(self, other: int) -> int:
        thread = Thread(target=self.counts.add, args=("hits", 10))
        thread.start()
        thread.join()
        return other + int(self)


def test_what_another_thread_adds_in_the_middle_is_not_lost() -> None:
    counts = Counts()
    counts.add("hits")
    number = Meanwhile(100)
    number.counts = counts
    counts.add("hits", number)
    assert counts["hits"] == 111


def test_a_crowd_of_threads_is_counted_to_the_last() -> None:
    counts, together = Counts(), Barrier(8)

    def add(_: int) -> None:
        together.wait()
        for n in range(2000):
            counts.add("hits")
            counts.add(f"name {n % 50}", 2)

    with ThreadPoolExecutor(8) as crowd:
        list(crowd.map(add, range(8)))
    assert counts["hits"] == 16_000
    assert {counts[f"name {n}"] for n in range(50)} == {8 * 40 * 2}


def test_what_is_added_to_sums_as_well_stays_there() -> None:
    sums, first, second = Counts(), Counts(), Counts()
    first.add("hits")
    first.add_to(sums)
    second.add_to(sums)
    first.add("hits", 2)
    second.add("misses")
    second.add("hits", 0.5)
    sums.add("hits", 10)
    del second
    assert dict(first) == {"hits": 3}
    assert dict(sums) == {"hits": 12.5, "misses": 1}


def test_it_is_read_as_a_counter_is() -> None:
    counts = Counts("misses")
    counts.add("hits", True)
    counts.add("hits")
    counts.add("hits", -1)
    counts.add("money", 0.25)
    assert counts["never"] == 0
    assert dict(counts) == {"misses": 0, "hits": 1, "money": 0.25}
    assert counts == Counter(misses=0, hits=1) | {"money": 0.25}
    assert len(counts) == 3
    assert repr(counts) == "Counts({'misses': 0, 'hits': 1, 'money': 0.25})"


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda counts: pickle.loads(pickle.dumps(counts))])
def test_a_copy_goes_on_by_itself(copied: Counts) -> None:
    counts = Counts()
    counts.add("hits")
    other = copied(counts)  # type: ignore[operator]
    other.add("hits")
    assert (counts["hits"], other["hits"]) == (1, 2)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_goes_on_with_what_its_parent_has_counted() -> None:
    counts = Counts()
    other = Thread(target=counts.add, args=("hits", 5))
    other.start()
    other.join()
    counts.add("hits")
    child = os.fork()
    if child == 0:
        counts.add("hits")
        os._exit(counts["hits"])
    _, status = os.waitpid(child, 0)
    assert (os.waitstatus_to_exitcode(status), counts["hits"]) == (7, 6)
