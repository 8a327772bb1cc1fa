"""A warning is given once for each cause, however many calls meet it, and whoever says it."""

from __future__ import annotations

import copy
import pickle

import pytest

from langmem_adapters import warn_once
from langmem_adapters.concurrency.breaker import Breaker
from langmem_adapters.errors import StoreError, StoreUnavailable
from langmem_adapters.warn_once import WarnOnce, warn_of_damage


def test_each_cause_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    warn = WarnOnce()
    for _ in range(3):
        for what, error in (
            ("it goes on", StoreError("50 % full")),
            ("it goes on", StoreUnavailable("50 % full")),
            ("so does that", StoreError("50 % full")),
            ("a line without a cause", None),
        ):
            warn(what, error)
    assert [record.getMessage() for record in caplog.records] == [
        "it goes on: StoreError: 50 % full",
        "it goes on: StoreUnavailable: 50 % full",
        "so does that: StoreError: 50 % full",
        "a line without a cause",
    ]


def test_an_outage_that_a_breaker_knows_of_is_the_same_one(caplog: pytest.LogCaptureFixture) -> None:
    def down() -> None:
        raise StoreUnavailable("nobody answers")

    breaker, warn, met = Breaker(down, grace=5), WarnOnce(), []
    for _ in range(3):
        with pytest.raises(StoreUnavailable) as caught:
            breaker.guard(down)
        met.append(str(caught.value))
        warn("it goes on", caught.value)
    assert met[0] == "nobody answers" != met[1]
    assert [record.getMessage() for record in caplog.records] == ["it goes on: StoreUnavailable: nobody answers"]


def test_the_damage_of_one_stored_thing_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        for data in (b"{", b"["):
            warn_of_damage(data, "a title is left out")
    assert [record.getMessage() for record in caplog.records] == ["a title is left out"] * 2


def test_what_changes_each_time_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warn_once, "_MAX_CAUSES", 3)
    warn = WarnOnce()
    for n in range(10):
        warn("it goes on", StoreError(str(n)))
        assert len(warn._seen_causes) <= 3


def test_whoever_has_one_can_be_copied(caplog: pytest.LogCaptureFixture) -> None:
    warn = WarnOnce()
    warn("once")
    for other in (copy.deepcopy(warn), pickle.loads(pickle.dumps(warn))):
        other("once")
    assert len(caplog.records) == 1
