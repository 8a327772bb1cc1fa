"""Scoring in the background: no caller waits for the score of its result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Any, NamedTuple

from langmem_adapters.concurrency.counts import Counts
from langmem_adapters.concurrency.forks import reset_in_child
from langmem_adapters.errors import LangmemError
from langmem_adapters.experience.policies import Scorer, ask, needs_event_loop, to_score
from langmem_adapters.experience.pool import ExperiencePool
from langmem_adapters.experience.switches import bypass
from langmem_adapters.flow import Flow, arun, run, submit
from langmem_adapters.model import Experience
from langmem_adapters.warn_once import WarnOnce

_MAX_PENDING = 1000  # experiences waiting for their score; each is held in memory


class PendingScore(NamedTuple):
    """An experience that waits for its score, and where it is kept."""

    pool: ExperiencePool
    key: str
    experience: Experience
    req: Any
    response: Callable[[Experience], Any]
    """Returns the response that the scorer is shown."""


class BackgroundScoring:
    """Scores kept experiences. Failures of the scorer are counted, and logged once for each cause.

    At most a thousand experiences wait for the scorer; further ones stay unscored, which is counted and logged too.

    While a scorer runs, all caches of this library are bypassed: otherwise a scorer that asks a model through the same
    cache would have its own answers scored, endlessly.
    The log calls what is scored by the ``label``. All caches that score here share ``warn``, so that what concerns all
    of them is logged once.
    """

    def __init__(self, scorer: Scorer | None, label: str, warn: WarnOnce) -> None:
        self._scorer: Any = scorer  # never called if it is None
        self._label = label
        self.warn = warn
        self._counts = Counts()
        reset_in_child(self)

    def reset_state(self) -> None:
        """Forget all scoring under way: after a fork, its threads exist only in the parent."""
        self._running: set[Future[None] | asyncio.Task[None]] = set()

    def begin(self, pending: PendingScore) -> None:
        """Score an experience on a background thread."""
        if self._scorer is not None and self._has_room():
            with bypass(), suppress(RuntimeError):  # the interpreter is shutting down
                self._track(submit(lambda: run(self._score(pending)), lane="scores"))

    def abegin(self, pending: PendingScore) -> None:
        """:meth:`begin` from an async function; on its event loop if the scorer needs one."""
        if not needs_event_loop(self._scorer):
            self.begin(pending)
        elif self._has_room():
            with bypass():
                self._track(asyncio.get_running_loop().create_task(arun(self._score(pending))))

    def stats(self) -> dict[str, int]:
        """How many experiences were scored, and how many not."""
        return {name: self._counts[name] for name in ("scored", "unscored")}

    def flush(self) -> None:
        """Wait for the scores that are being made on threads."""
        wait([future for future in list(self._running) if isinstance(future, Future)])

    async def aflush(self) -> None:
        """:meth:`flush`, without blocking the event loop; also waits for scores made on it, not on other loops."""
        loop = asyncio.get_running_loop()
        running = [each for each in list(self._running) if isinstance(each, Future) or each.get_loop() is loop]
        futures = [asyncio.wrap_future(each) for each in running]
        if futures:
            await asyncio.wait(futures)

    def _has_room(self) -> bool:
        if len(self._running) >= _MAX_PENDING:
            for scoring in list(self._running):
                if isinstance(scoring, asyncio.Task) and scoring.get_loop().is_closed():
                    self._finish(scoring)
        if len(self._running) < _MAX_PENDING:
            return True
        self._count_unscored(f"{_MAX_PENDING:,} others wait for the scorer")
        return False

    def _count_unscored(self, reason: str) -> None:
        self._counts.add("unscored")
        self.warn(f"{self._label} was not scored: {reason}")

    def _track(self, scoring: Future[None] | asyncio.Task[None]) -> None:
        self._running.add(scoring)
        scoring.add_done_callback(self._finish)

    def _finish(self, scoring: Future[None] | asyncio.Task[None]) -> None:
        self._running.discard(scoring)
        if scoring.cancelled() or not scoring.done():
            self._count_unscored("its event loop ended before")

    def _score(self, pending: PendingScore) -> Flow[None]:
        pool, key, experience, req, response = pending
        try:
            score = to_score((yield from ask(self._scorer, req, response(experience))))
            if (yield from pool.score_flow(experience, score, key=key)):
                self._counts.add("scored")
        except Exception as error:  # noqa: BLE001 - no caller waits for it, so it is counted and logged
            self._count_unscored(str(error) if isinstance(error, LangmemError) else type(error).__name__)
