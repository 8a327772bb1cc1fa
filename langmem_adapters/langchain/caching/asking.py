"""Asks the model inside a CachedChatModel: for what its key says, and with parameters of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from langmem_adapters.annotations import signature_of
from langmem_adapters.errors import SerializationError
from langmem_adapters.langchain.caching.answers import Request
from langmem_adapters.langchain.caching.request import request_key
from langmem_adapters.sharing import independent_copy


def is_current(request: Request, describe: Callable[[], str]) -> bool:
    """Whether a request still has its key, by what ``describe`` says of the model and the parameters now.

    A call may wait for the store, for another call or for a rate limiter, while somebody changes a setting.
    """
    with suppress(SerializationError):
        llm_string = describe()
        return llm_string == request.llm_string or request_key(request.prompt, llm_string) == request.key
    return False


def call_options(call: Any, run_manager: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Copies of the parameters, which the model may change, and the run manager, if the call takes one.

    ``ChatGoogleGenerativeAI`` empties the schema of a bound tool without arguments: that would be another request.
    """
    parameters = signature_of(call).parameters
    takes_run_manager = "run_manager" in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    return {**independent_copy(kwargs), **({"run_manager": run_manager} if takes_run_manager else {})}
