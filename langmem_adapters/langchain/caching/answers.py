"""Answers of chat models as experiences: looked up before a call, kept after it, shared by concurrent callers."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, cast

from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult, Generation

from langmem_adapters.codec import to_plain
from langmem_adapters.concurrency.counts import Counts
from langmem_adapters.errors import LangmemError, SerializationError
from langmem_adapters.experience import ExperiencePool
from langmem_adapters.experience.background_scoring import BackgroundScoring
from langmem_adapters.experience.functions.calls import Calls
from langmem_adapters.experience.functions.rules import Invocation, Rules
from langmem_adapters.experience.model_answers import answer_text
from langmem_adapters.experience.shelf.eviction import Evicted
from langmem_adapters.experience.shelf.invalidation import StartMark
from langmem_adapters.experience.single_flight.asking import SingleFlightAnswers, StoredAnswers
from langmem_adapters.flow import Flow
from langmem_adapters.langchain.caching.chunks import Recording, answer_chunks, as_cached
from langmem_adapters.langchain.caching.costs import metric_of, saved_tokens
from langmem_adapters.langchain.caching.generations import (
    is_broken_off_silently,
    read_generations,
    worth_storing,
    write_generations,
)
from langmem_adapters.langchain.caching.prompt import dumped_messages, last_question
from langmem_adapters.langchain.caching.semantic import Paraphrases
from langmem_adapters.langchain.caching.tools import DeterministicTools
from langmem_adapters.model import Experience, Metric
from langmem_adapters.validation import call_user_code

_MAX_PENDING = 2_000  # entries for requests in flight, two for each


class Request(NamedTuple):
    """A request as LangChain shows it to a cache, and its key.

    ``call`` tells apart calls that ask the same at the same time: LangChain gives a cache the very same string object
    about the model at lookup and at update, and in another call another object, which may be equal. By then, what the
    model holds may have changed within, as a stand-in's own messages get their ids; no setting may have been replaced.
    """

    prompt: str
    llm_string: str
    key: str
    call: int = 0
    replacements: int = 0  # of settings of the model, until then
    has_changed_within: bool = False
    examples: Sequence[Experience] = ()  # of similar requests, if examples are wanted


class _Pending(NamedTuple):
    """A request in flight, when its latest call began, and how many calls it has."""

    key: str
    replacements: int
    start_mark: StartMark | None
    started: float
    calls: int


_NOT_PENDING = _Pending("", 0, None, math.inf, 0)


class Answers(SingleFlightAnswers):
    """The answers in a pool, around the calls of a model.

    Args:
        examples: How many similar experiences a model is shown on a miss. Above 0, questions are stored too, and the
            pool needs an index; otherwise only hashes are stored.
        tools: The tools that always give the same result. An answer made with any other is never shown as an example.
        paraphrases: Finds and keeps answers to the same request in other words; None: serve only identical requests.
        only_chats: Whether all answers are those of chat models.
        metric: Gives what an answer cost; None: no cost is stored with it.
        output_version: The form of content that the model's ``output_version`` asks for.
        rules: All other rules: ``should_store``, ``scorer``, ``judge``, ``wait`` and ``on_error``, as in
            :class:`~langmem_adapters.langchain.ExperienceMiddleware`.
    """

    _calls: _Calls
    _recording = Recording

    def __init__(
        self,
        pool: ExperiencePool,
        *,
        examples: int = 0,
        tools: DeterministicTools | None = None,
        paraphrases: Paraphrases | None = None,
        only_chats: bool = True,
        metric: Callable[[Any], Metric] | None = metric_of,
        scoring: BackgroundScoring,
        counts: Counts,
        output_version: str | None,
        clock: Callable[[], float],
        timer: Callable[[], float] = time.monotonic,
        new_id: Callable[[], str],
        **rules: Any,
    ) -> None:
        self._output_version = output_version
        self._pending: dict[tuple[str | int, int], _Pending] = {}  # by key alone, and by prompt and call
        context_builder = (lambda _, experiences: experiences) if examples else None
        super().__init__(
            pool,
            Request,
            rules=Rules(metric=metric, context_builder=context_builder, request="examples", k=examples, **rules),
            responses=_Generations(clock, new_id, only_chats=only_chats),
            calls=_Calls,
            counts=counts,
            keep_requests=examples > 0,
            scoring=scoring,
            clock=clock,
            timer=timer,
            new_id=new_id,
        )
        self._calls.paraphrases = paraphrases
        self._calls.tools = tools if examples else None

    def stats(self) -> dict[str, Any]:
        """The counts of calls and, in semantic mode, of what was found by meaning."""
        stats = super().stats()
        if self._calls.paraphrases is not None:
            stats |= self._calls.paraphrases.stats()
        return stats

    # --- for a cache that LangChain asks before it calls the model and updates after it

    def look_up(self, request: Request) -> Flow[list[Generation] | None]:
        """The answer to a request; None if the model must be called."""
        if not request.key:
            self._counts.add("unkeyed")
            return None
        call = yield from self._calls.begin(Invocation(request, {}))
        if call.served:
            answer: list[Generation] = self._mark_served(call.key, call.value)
            return answer
        if call.keeps:
            for name in ((hash(request.prompt), request.call), (request.key, 0)):
                self._note_pending(name, request.replacements, call)
        return None

    def _note_pending(self, name: tuple[str | int, int], replacements: int, call: Invocation) -> None:
        """Note a request in flight, as the newest; beyond the bound, the oldest is forgotten: its call has failed."""
        calls = self._pending.pop(name, _NOT_PENDING).calls + 1
        pending = _Pending(call.key, replacements, call.start_mark, call.started, calls)
        while len(self._pending) >= _MAX_PENDING:
            with suppress(KeyError, RuntimeError):  # another thread forgets it, too
                del self._pending[next(iter(self._pending))]
        self._pending[name] = pending

    def _take_pending(self, name: tuple[str | int, int]) -> _Pending:
        """A request in flight; it stays noted for the others of a batch with equal prompts."""
        pending = self._pending.pop(name, _NOT_PENDING)
        if pending.calls > 1:
            self._pending[name] = pending._replace(calls=pending.calls - 1)
        return pending

    def keep(self, request: Request, answer: Sequence[Generation]) -> Flow[Invocation | None]:
        """Keep the model's answer. Pass the result to :meth:`score`; None, if the request has no key.

        Nor is it kept if the key is another by now, as the model's owner has changed it while it was asked.
        """
        if not request.key:
            return None
        own = self._take_pending((hash(request.prompt), request.call))
        latest = self._take_pending((own.key or request.key, 0))
        has_changed_within = request.has_changed_within and own.replacements == request.replacements
        if own.calls and own.key != request.key and not has_changed_within:
            self._counts.add("refused")
            return None
        # The latest call with this key counts if update gets another string object than lookup.
        _, _, mark, started, _ = own if own.calls else latest
        arguments = {"prompt": request.prompt, "llm_string": request.llm_string}
        call = Invocation(request, {}, key=request.key, key_arguments=arguments, start_mark=mark, started=started)
        call.keeps = self.pool.writes and not self._calls._rules.is_judging  # noqa: SLF001 - as its calls do
        self._calls.note_request(call)
        yield from self._calls.finish(call, answer)
        return call

    def score(self, call: Invocation | None, *, on_loop: bool = False) -> None:
        """Have an answer scored in the background, if :meth:`keep` has kept it."""
        if call is not None:
            self._calls.score_later(call, on_loop=on_loop)

    def recent(self, key: str) -> list[Generation] | None:
        """An answer that was read a moment ago. Neither waits nor works for long, as it may run on an event loop."""
        if not key or self._calls._rules.judge is not None:  # noqa: SLF001 - a judge is asked each time, and may be slow
            return None
        try:
            experience = self.pool.recent(key)
            value = None if experience is None else self._calls.responses.from_experience(experience)
        except SerializationError:  # a read from the store heals it, or leaves it to those who can read it
            return None
        if value is None:
            return None
        self.pool.tally(experience)
        answer: list[Generation] = self._mark_served(key, value)
        return answer

    def read(self, experience: Experience) -> list[Generation]:
        """The generations of a stored answer. Raises SerializationError if they cannot be read."""
        return cast("list[Generation]", self._calls.responses.from_experience(experience))

    def _mark_served(self, key: str, answer: Any) -> Any:
        reports = [each.message.response_metadata for each in answer if isinstance(each, ChatGeneration)]
        for report in reports:
            report.setdefault("cache_key", key)
        self._counts.add("saved_tokens", saved_tokens(reports))
        return answer

    def _pieces(self, served: list[ChatGeneration]) -> Iterator[ChatGenerationChunk]:
        return answer_chunks(served[0])

    def _storable(self, answer: ChatResult) -> list[ChatGeneration]:
        return as_cached(answer, self._output_version)


class _Calls(Calls):
    """Looks once for an answer to the same request in other words, if there is none to the very same one."""

    paraphrases: Paraphrases | None = None
    tools: DeterministicTools | None = None  # decides which answers may be examples; None: no check

    def _request(self, arguments: dict[str, Any]) -> str:
        return last_question(arguments["prompt"])

    def _serve_similar(self, call: Invocation, exact: Experience | None) -> Flow[None]:
        if self.paraphrases is None:
            return
        try:
            partition, matches = yield from self.paraphrases.find(
                call.key_arguments["prompt"], call.key_arguments["llm_string"]
            )
            for match in matches:
                if exact is not None and match.key == call.key:
                    continue  # was examined already
                experience = yield from self.paraphrases.answer(partition, match)
                if experience is not None and (yield from self._judge_accepts(call, experience)):
                    yield from self._serve_experience(call, experience, match.key)
                is_found = call.served and self.paraphrases.mode.may_serve(call.value)
                if is_found and self.paraphrases.note_hit(call.value, match):
                    return
                call.served, call.experience = False, None
                if is_found:  # in a dry run
                    return
        except LangmemError as error:
            self._degrade(error, "semantic_errors")

    def _is_kept(self, call: Invocation, result: Any) -> bool:
        if self._rules.should_store is not worth_storing:
            return super()._is_kept(call, result)
        llm_string = call.key_arguments["llm_string"]
        return call_user_code(
            "should_store", lambda: worth_storing(result) and not is_broken_off_silently(llm_string, result)
        )

    def _create(self, call: Invocation, value: Any, experience: Experience) -> Flow[Experience]:
        if self.paraphrases is not None:
            return self._create_with_question(self.paraphrases, call, value, experience)
        if self.tools is not None and not self._may_be_example(self.tools, call, value):
            experience = experience.model_copy(update={"req": None})  # no search finds it, so nobody is shown it
        return super()._create(call, value, experience)

    def _create_with_question(
        self, paraphrases: Paraphrases, call: Invocation, value: Any, experience: Experience
    ) -> Flow[Experience]:
        """Put an answer into the pool, and its question into the semantic index, if other words may match it."""
        question = paraphrases.question(call.key_arguments["prompt"], call.key_arguments["llm_string"], value)
        if question is not None:
            experience = experience.model_copy(update={"partition": question.partition})
        evicted: Evicted = []
        created = yield from self.pool.create_flow(experience, key=call.key, evicted=evicted)
        try:
            yield from paraphrases.keep(question, call.key, evicted)
        except LangmemError as error:
            self._degrade(error, "semantic_errors")
        return created

    @staticmethod
    def _may_be_example(tools: DeterministicTools, call: Invocation, answer: Any) -> bool:
        """Whether every tool that had a part in an answer always gives the same result."""
        prompt, llm_string = call.key_arguments["prompt"], call.key_arguments["llm_string"]
        return (
            tools.cover_request(llm_string)
            and tools.cover_answer(answer)
            and tools.cover_messages(dumped_messages(prompt))
        )


class _Generations(StoredAnswers):
    """Writes answers as data, and reads them back."""

    def __init__(self, clock: Callable[[], float], new_id: Callable[[], str], *, only_chats: bool) -> None:
        super().__init__(clock, new_id)
        self._only_chats = only_chats

    def experience(self, value: Any, *, req: Any, metric: Metric | None) -> Experience:
        data = write_generations(value)
        to_plain(data)  # raises for anything but data
        return Experience(req=req, resp=data, metric=metric)

    def for_scorer(self, experience: Experience) -> str:
        return answer_text(experience.resp)

    def from_experience(self, experience: Experience) -> list[Generation]:
        generations = read_generations(experience.resp, age=self._age(experience), new_id=self._new_id)
        if self._only_chats and not all(isinstance(generation, ChatGeneration) for generation in generations):
            raise SerializationError("a stored answer is not that of a chat model")
        return generations
