"""Models whose cosines lie elsewhere than those from which the verifier's score was learnt."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Sequence
from typing import NamedTuple

import pytest

from langmem_adapters.embedding import Embedder
from langmem_adapters.errors import ModelError
from langmem_adapters.experience import Verifier
from langmem_adapters.experience.verified import VerifiedAnswers
from langmem_adapters.experience.verifier.calibration import PAIRS, Scale, measure_scale, scale_flow
from langmem_adapters.experience.verifier.tuning import tune_flow
from langmem_adapters.flow import arun, run
from langmem_adapters.indexes import open_vectors
from langmem_adapters.indexes.vector import VectorIndex
from langmem_adapters.stores.memory import MemoryStore

SAME = ("How do I learn to speak Hindi?", "How will I learn to speak Hindi?", 0.98)
OTHER = ("How do I stop a payment?", "How do I avoid a payment?", 0.82)  # with the cosines of all-MiniLM-L6-v2


class Lie(NamedTuple):
    """Where a model's cosines lie."""

    all_have: float
    each_has: float

    def of(self, cosine: float) -> float:
        return self.all_have + (1 - self.all_have - self.each_has) * cosine


ELSEWHERE = {"as it is": Lie(0.0, 0.0), "all near": Lie(0.7, 0.0), "all far": Lie(0.0, 0.2)}


class Model:
    """Knows the pairs by the cosines of all-MiniLM-L6-v2, as they lie in this model, and nothing else.

    A vector has a part that all texts have, one that it has by itself, and one for what the text means: texts stand in
    a row, and the meaning of each is turned from that of the one before. A model that is not symmetric puts a query
    further away from all texts.
    """

    def __init__(self, lie: Lie, *, symmetric: bool = True) -> None:
        self.queries = 0
        self.texts: list[str] = []
        self.failing = False
        self.was_asked = threading.Event()
        self._symmetric = symmetric
        row = [link for pair in PAIRS for link in ((pair.stored, pair.cosine), (pair.request, pair.next_cosine))]
        row += [link for kept, asked, cosine in (SAME, OTHER) for link in ((kept, cosine), (asked, 0.0))]
        self._vectors: dict[str, list[float]] = {}
        meaning = [1.0] + [0.0] * len(row)
        for place, (text, cosine) in enumerate(row):
            own = [0.0] * len(row)
            own[place] = math.sqrt(lie.each_has)
            share = math.sqrt(1 - lie.all_have - lie.each_has)
            self._vectors[text] = [math.sqrt(lie.all_have), *own, *(share * number for number in meaning), 0.0]
            meaning = [cosine * number for number in meaning]
            meaning[place + 1] = math.sqrt(1 - cosine * cosine)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        if self.failing:
            raise OSError
        self.texts += texts
        if PAIRS[-1].request in texts:
            self.was_asked.set()
        return [self._vectors[text] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        self.queries += 1
        return self.embed_documents([text])[0] if self._symmetric else self._turned(text)

    def _turned(self, text: str) -> list[float]:
        return [*(0.8 * number for number in self._vectors[text][:-1]), 0.6]


@pytest.mark.parametrize("lie", ELSEWHERE.values(), ids=ELSEWHERE)
def test_cosines_are_read_as_those_that_the_score_was_learnt_from(lie: Lie) -> None:
    scale = measure_scale(Embedder(Model(lie)))
    for cosine in (0.75, 0.9, 0.95, 1.0):
        assert scale.convert(lie.of(cosine)) == pytest.approx(cosine, abs=0.01)


@pytest.mark.parametrize("lie", ELSEWHERE.values(), ids=ELSEWHERE)
def test_what_is_served_does_not_hang_on_where_a_models_cosines_lie(lie: Lie) -> None:
    index = open_vectors("memory:", Embedder(Model(lie)))
    answers = VerifiedAnswers(MemoryStore(), ("asked",), index, verifier=Verifier())
    for kept, _, _ in (SAME, OTHER):
        run(answers.keep_flow("p", kept, kept))
    (match,) = run(answers.find_flow("p", SAME[1]))
    assert match.key == SAME[0]
    assert match.cosine == pytest.approx(lie.of(SAME[2]), abs=1e-5)  # as the model has it
    assert run(answers.find_flow("p", OTHER[1])) == []


async def test_it_is_asked_once_and_ahead_of_the_first_look_up_that_finds_something() -> None:
    model = Model(ELSEWHERE["all near"])
    index = open_vectors("memory:", Embedder(model))
    answers = VerifiedAnswers(MemoryStore(), ("asked",), index, verifier=Verifier())
    assert await arun(answers.find_flow("p", SAME[1])) == []
    assert model.texts == [SAME[1]]  # there was nothing to be compared with
    await arun(answers.keep_flow("p", SAME[0], "1"))
    assert await asyncio.to_thread(model.was_asked.wait, 60)
    before = model.texts[:]
    assert {*before} == {*SAME[:2], *(text for pair in PAIRS for text in (pair.stored, pair.request))}
    for _ in range(3):
        assert [match.key for match in await arun(answers.find_flow("p", SAME[1]))] == ["1"]
    assert model.texts == before
    assert len(before) == len({*before}) + 1  # the first text once more, to see whether it is the same as a query


def test_a_model_that_embeds_queries_otherwise_is_asked_for_queries() -> None:
    model = Model(ELSEWHERE["as it is"], symmetric=False)
    scale = measure_scale(Embedder(model))
    assert model.queries == 1 + len(PAIRS)
    for cosine in (0.75, 0.9, 0.98):
        assert scale.convert(0.8 * cosine) == pytest.approx(cosine, abs=0.01)


def test_thresholds_are_tuned_on_the_scale_that_they_are_for() -> None:
    for lie in ELSEWHERE.values():
        index = open_vectors("memory:", Embedder(Model(lie)))
        pairs = [(*SAME[:2], True), (*OTHER[:2], False)]
        same, other = (score for score, _ in run(tune_flow(index, pairs, 0.9, verifier=Verifier())).scored)
        assert (same, other) == pytest.approx((0.95, 0.70), abs=0.05)


def test_a_judge_knows_no_cosines_and_costs_no_texts() -> None:
    model = Model(ELSEWHERE["as it is"])
    index = open_vectors("memory:", Embedder(model))
    assert run(scale_flow(index, Verifier(judge=lambda *_: True))) == Scale()
    assert run(scale_flow(object(), Verifier())) == Scale()  # an index that tells nothing of its embedder
    assert model.texts == []


def test_a_model_that_fails_is_asked_again() -> None:
    model = Model(ELSEWHERE["all far"])
    index: VectorIndex = open_vectors("memory:", Embedder(model))
    model.failing = True
    with pytest.raises(ModelError):
        run(scale_flow(index, Verifier()))
    model.failing = False
    assert run(scale_flow(index, Verifier())).convert(0.72) == pytest.approx(0.9, abs=0.01)


def _letters(texts: Sequence[str]) -> list[list[float]]:
    return [[text.count(letter) + 0.1 for letter in "aeiou"] for text in texts]


def test_a_model_that_knows_no_meanings_is_not_believed() -> None:
    """What it finds the same is next to nothing on the scale, so that all but the same words are refused."""
    scale = measure_scale(Embedder(_letters, name="letters"))
    verifier = Verifier()
    near = scale.convert(0.99)
    assert not verifier(OTHER[1], OTHER[0], cosine=near).accepted
    assert near < 0.95
    assert Scale(3.0).convert(0.5) == -Scale(3.0).convert(-0.5) == 1.0


def test_a_model_that_finds_everything_alike_is_taken_at_its_word() -> None:
    assert measure_scale(Embedder(lambda texts: [[1.0, 2.0] for _ in texts], name="toy")) == Scale()
