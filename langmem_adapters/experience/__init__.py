"""Experiences: requests, the responses that they got, and how good those were."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_adapters.experience.cached import CachedFunction, FunctionCache
from langmem_adapters.experience.contexts import as_examples, role_zero_context, simple_context
from langmem_adapters.experience.metagpt_pools import read_metagpt_pool
from langmem_adapters.experience.policies import (
    AtLeast,
    ContextBuilder,
    Judge,
    RuleScorer,
    Scorer,
    Serializer,
    exact_and_perfect,
)
from langmem_adapters.experience.pool import ExperiencePool
from langmem_adapters.experience.pool_flows import QueryType, Similar
from langmem_adapters.experience.savings import Prices, Saved
from langmem_adapters.experience.scoring import LLMJudge, LLMScorer
from langmem_adapters.experience.serializers import (
    DataSerializer,
    JsonSerializer,
    MessagesSerializer,
    PydanticSerializer,
    RoleZeroSerializer,
    TextSerializer,
)
from langmem_adapters.experience.switches import bypass, refresh
from langmem_adapters.lazy_names import lazy_attributes

if TYPE_CHECKING:
    from langmem_adapters.experience.verifier.guards import GUARDS as GUARDS
    from langmem_adapters.experience.verifier.verifier import Verdict as Verdict
    from langmem_adapters.experience.verifier.verifier import Verifier as Verifier

__all__ = [
    "GUARDS",
    "AtLeast",
    "CachedFunction",
    "ContextBuilder",
    "DataSerializer",
    "ExperiencePool",
    "FunctionCache",
    "JsonSerializer",
    "Judge",
    "LLMJudge",
    "LLMScorer",
    "MessagesSerializer",
    "Prices",
    "PydanticSerializer",
    "QueryType",
    "RoleZeroSerializer",
    "RuleScorer",
    "Saved",
    "Scorer",
    "Serializer",
    "Similar",
    "TextSerializer",
    "Verdict",
    "Verifier",
    "as_examples",
    "bypass",
    "exact_and_perfect",
    "read_metagpt_pool",
    "refresh",
    "role_zero_context",
    "simple_context",
]

if not TYPE_CHECKING:
    # The verifier takes longer to import than all the rest, and only serving by meaning needs it.
    _MODULE_OF_NAME = {"GUARDS": "verifier.guards", "Verdict": "verifier.verifier", "Verifier": "verifier.verifier"}
    __getattr__, __dir__ = lazy_attributes(globals(), _MODULE_OF_NAME)
