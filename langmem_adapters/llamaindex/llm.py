"""CachedLLM: a LlamaIndex model that does not answer the same request twice."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import cache, partial
from typing import Any, Literal, cast

from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    ChatResponseAsyncGen,
    ChatResponseGen,
    CompletionResponse,
    CompletionResponseAsyncGen,
    CompletionResponseGen,
    LLMMetadata,
)
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.llms import LLM
from llama_index.core.llms.callbacks import llm_chat_callback, llm_completion_callback
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.structured_llm import StructuredLLM
from pydantic import computed_field
from typing_extensions import Self

from langmem_adapters.concurrency.counts import Counts
from langmem_adapters.errors import ConfigurationError, SerializationError
from langmem_adapters.experience import ExperiencePool, Judge, Prices, Scorer
from langmem_adapters.experience.background_scoring import BackgroundScoring
from langmem_adapters.experience.single_flight.asking import CachedModel, opened_again
from langmem_adapters.experience.single_flight.request_keys import record_request_key
from langmem_adapters.experience.single_flight.tenants import Tenant, Tenants
from langmem_adapters.flow import arun, step
from langmem_adapters.llamaindex.answers import Answers
from langmem_adapters.llamaindex.convert import checked_chats
from langmem_adapters.llamaindex.request import KeyedRequest, chat_request, completion_request, model_key, takes_a_while
from langmem_adapters.llamaindex.responses import Response, worth_storing
from langmem_adapters.llamaindex.wrapped_model import SHARED_FIELDS, FunctionCalls, StructuredPrediction
from langmem_adapters.protocols import Store
from langmem_adapters.stores import MissingStore, cache_store, has_no_password
from langmem_adapters.warn_once import WarnOnce

Call = Callable[..., Any]
_ModelCall = tuple[KeyedRequest | None, Call, Call]
_CALL_FIELDS = ("callback_manager", "rate_limiter")  # these are set on the model itself, also for its other users


def _reporting(callback: Call, is_async: bool, llm: LLM, /, *request: Any, **kwargs: Any) -> Call:
    """A function that gives a response, and reports it to callbacks and events as if the model had made it."""

    def serve(response: Any) -> Any:
        async def give(*_: Any, **__: Any) -> Any:
            return response

        return callback()(give if is_async else lambda *_, **__: response)(llm, *request, **kwargs)

    return serve


class CachedLLM(CachedModel, StructuredPrediction, LLM):
    """A model with its cache (implements ``llama_index.core.llms.LLM``, or ``FunctionCallingLLM`` if the model does).

    It caches ``chat``, ``complete``, their streams and async twins, and all that is built on them: agents, query
    engines, structured prediction. A stream and a plain call share their entries; the deltas of a served stream add up
    to the same text. Of several callers with the same request at the same time, in this process or in others on the
    same store, one calls the model; if that fails, the others call it themselves. A stream that was not read to its
    end, and a response that was cut off, filtered or empty, are not stored. Requests are stored only as a hash.

    A copy has the same cache, and a deep copy a model of its own. If its model and the functions that it was given can
    be pickled, so can it: where it is loaded, it opens the cache of its URL anew. With a store of its own, a password
    in its URL or a tenant that is not a text, it has no cache there, which counts as an outage of the store. A rate
    limiter that is set here is set on the model, so that no hit waits for it.

    A hit has tool calls with ids of its own, no usage, and in its ``additional_kwargs`` ``cache``, ``cache_key``,
    ``cache_age`` (seconds) and ``cache_usage``; callbacks and events report it like any response. The whole request is
    compared, so tool calls and answers to tool results are served too. A model that continues what its provider keeps
    of earlier calls (``track_previous_responses``, a ``conversation``) is always asked. Attributes that it does not
    have are the model's.

    Args:
        llm: The model. Two models that differ only in private state, or in objects, need a ``tag`` each.
        url: The store's URL; default ``LANGMEM_STORE_URL``, ``REDIS_URL``, ``sqlite:///langmem.db``.
        store: A store of your own instead of a URL.
        tenant: The tenant whose responses these are; other tenants are never served them. A context variable, or a
            function without arguments, gives the current tenant's id.
        strict: Whether calls for which these give no tenant bypass the cache. If False, they share their responses.
        tag: Keeps these responses apart from those of other tags.
        ttl: Seconds for which a response may be served; None: for ever.
        max_entries, max_bytes, prices: See :class:`~langmem_adapters.ExperiencePool`.
        should_store: Decides whether a ChatResponse or CompletionResponse is worth keeping.
        scorer: Scores each new response, in the background, after it was returned, such as
            :class:`~langmem_adapters.experience.LLMScorer`. It is shown the user's last message, or the prompt, and the
            response's text with the tools that it calls. A coroutine function scores responses of async calls. While it
            runs, all caches are bypassed.
        judge: Says whether a stored response may be served, such as :class:`~langmem_adapters.experience.AtLeast`. A
            coroutine function works only with async calls.
        wait: Seconds to wait at most for another caller with the same request; 0: each caller calls the model. A caller
            that waits for a stream sees none of it until that stream's reader has finished.
        on_error: What an outage of the store does to a model call: "degrade" goes on without the cache, is
            logged once for each cause and counted in :meth:`stats`; "raise" raises.

    >>> from llama_index.core.llms import MockLLM
    >>> from langmem_adapters.llamaindex import CachedLLM
    >>> llm = CachedLLM(MockLLM(max_tokens=3), url="memory:")
    >>> llm.complete("Hello!").text
    'text text text'
    >>> "".join(response.delta for response in llm.stream_complete("Hello!"))
    'text text text'
    >>> llm.stats()["hits"]
    1
    """

    _wrapped: LLM = PrivateAttr()
    _tenants: Tenants[Answers] = PrivateAttr()
    _init_arguments: dict[str, Any] = PrivateAttr()

    def __new__(cls, llm: Any = None, *_: Any, **__: Any) -> Self:
        """Make a FunctionCallingLLM for a model that calls functions."""
        is_wanted = isinstance(llm, FunctionCallingLLM) and not issubclass(cls, FunctionCallingLLM)
        return cast("Self", super().__new__(_calling_functions(cls) if is_wanted else cls))

    def __init__(
        self,
        llm: LLM,
        *,
        url: str | None = None,
        store: Store | None = None,
        tenant: Tenant = "",
        strict: bool = True,
        tag: str = "llama-index",
        ttl: float | None = None,
        max_entries: int | None = None,
        max_bytes: int | None = None,
        prices: Prices | None = None,
        should_store: Callable[[Any], bool] = worth_storing,
        scorer: Scorer | None = None,
        judge: Judge | None = None,
        wait: float = 60.0,
        on_error: Literal["degrade", "raise"] = "degrade",
        clock: Callable[[], float] = time.time,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        if not isinstance(llm, LLM) or isinstance(llm, CachedLLM):
            raise ConfigurationError(f"CachedLLM wraps a model of LlamaIndex, not {type(llm).__name__}")
        if isinstance(llm, StructuredLLM):  # its answer is the object in raw, which is not kept
            raise ConfigurationError(
                "a structured LLM cannot be wrapped: wrap its model, and call as_structured_llm(…) on the CachedLLM"
            )
        super().__init__(**{name: getattr(llm, name) for name in SHARED_FIELDS})
        self._wrapped = llm
        rules: dict[str, Any] = {"should_store": should_store, "scorer": scorer, "judge": judge}
        rules |= {"wait": wait, "on_error": on_error}
        sources: dict[str, Any] = {"clock": clock, "new_id": new_id}
        pool_settings: dict[str, Any] = {"tag": tag, "ttl": ttl, "prices": prices}
        pool_settings |= {"max_entries": max_entries, "max_bytes": max_bytes}
        can_reopen = store is None and isinstance(tenant, str) and has_no_password(url)
        # Nor is a call shared there, as nothing says whose it is.
        self._init_arguments = {"store": MissingStore("a CachedLLM"), "on_error": on_error, "wait": 0.0}
        if can_reopen:
            self._init_arguments = {"url": url, "tenant": tenant, **pool_settings, **rules}
        shared_pool = ExperiencePool(cache_store(url, store), **pool_settings, **sources)
        counts, scoring = Counts(), BackgroundScoring(scorer, "a response", WarnOnce())

        def answers_of(tenant: str) -> Answers:
            tenant_pool = shared_pool._of(tenant=tenant)  # noqa: SLF001 - of ours
            settings: dict[str, Any] = {"model": lambda: str(llm.metadata.model_name), **rules, **sources}
            return Answers(tenant_pool, counts=counts, scoring=scoring, **settings)

        self._tenants = Tenants(tenant, answers_of, counts=counts, strict=strict)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with the same cache. Raises ConfigurationError for fields that only the model has."""
        changes = dict(update or {})
        foreign = sorted(changes.keys() - type(self).model_fields.keys())
        if foreign:
            raise ConfigurationError(f"a CachedLLM has no {', '.join(foreign)}: change the model and wrap it again")
        copy = super().model_copy(update={name: changes[name] for name in changes if name in SHARED_FIELDS}, deep=deep)
        if changes:
            copy._wrapped = copy._wrapped.model_copy(update=changes)  # noqa: SLF001 - of its own class
        return copy

    def __reduce__(self) -> Any:
        """Pickle the model and the settings, so that another process opens the same cache."""
        fields = {name: getattr(self, name) for name in self.model_fields_set - CachedLLM.model_fields.keys()}
        make = partial(CachedLLM.__init__, llm=self._wrapped, **self._init_arguments)
        kind = type(self)
        if FunctionCalls in kind.__bases__:  # made by _calling_functions, so that no module need have it
            kind = kind.__bases__[0]
        return opened_again, (kind, make, fields)

    @classmethod
    def class_name(cls) -> str:
        """The name of the class, for serialisation."""
        return "CachedLLM"

    @classmethod
    def from_dict(cls, data: dict[str, Any], **_: Any) -> Self:  # noqa: ARG003 - LlamaIndex's signature
        """Refused: a dump has neither the model nor the cache."""
        raise ConfigurationError("a dump of a CachedLLM has neither its model nor its cache: make a new one")

    @property
    def pool(self) -> ExperiencePool:
        """The responses of the tenant that is being served: to clear, to export, and for what the hits have saved."""
        return self._tenants.require_current().pool

    def _repr_html_(self) -> str:
        return self._model_html(self._wrapped)

    def delete(self, hit: Response) -> bool:
        """Delete the entry that served this response; False if it no longer exists."""
        return self.pool.delete(key=_cache_key(hit))

    async def adelete(self, hit: Response) -> bool:
        """:meth:`delete`, without blocking the event loop."""
        return await self.pool.adelete(key=_cache_key(hit))

    # --- calls

    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """Answer a chat, from the cache if possible."""
        call = self._chat_call(self._wrapped.chat, messages, kwargs)
        return cast("ChatResponse", self._answers.invoke(*call))

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """Complete a prompt, from the cache if possible."""
        call = self._completion_call(self._wrapped.complete, prompt, formatted, kwargs)
        return cast("CompletionResponse", self._answers.invoke(*call))

    def stream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseGen:
        """Answer a chat in a stream, from the cache if possible."""
        call = self._chat_call(self._wrapped.stream_chat, messages, kwargs)
        return cast("ChatResponseGen", self._answers.stream(*call))

    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseGen:
        """Complete a prompt in a stream, from the cache if possible."""
        call = self._completion_call(self._wrapped.stream_complete, prompt, formatted, kwargs)
        return cast("CompletionResponseGen", self._answers.stream(*call))

    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """:meth:`chat`, without blocking the event loop."""
        call = await self._achat_call(self._wrapped.achat, messages, kwargs)
        return cast("ChatResponse", await self._answers.ainvoke(*call))

    async def acomplete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """:meth:`complete`, without blocking the event loop."""
        call = self._completion_call(self._wrapped.acomplete, prompt, formatted, kwargs, is_async=True)
        return cast("CompletionResponse", await self._answers.ainvoke(*call))

    async def astream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseAsyncGen:
        """:meth:`stream_chat`, without blocking the event loop."""
        call = await self._achat_call(self._wrapped.astream_chat, messages, kwargs)
        return cast("ChatResponseAsyncGen", await self._answers.astream(*call))

    async def astream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseAsyncGen:
        """:meth:`stream_complete`, without blocking the event loop."""
        call = self._completion_call(self._wrapped.astream_complete, prompt, formatted, kwargs, is_async=True)
        return cast("CompletionResponseAsyncGen", await self._answers.astream(*call))

    def _chat_call(self, ask: Call, messages: Sequence[ChatMessage], kwargs: dict[str, Any]) -> _ModelCall:
        """The request of a chat, a function that asks the model, and one that gives a stored answer."""
        chats = checked_chats(messages)  # once, as an iterator gives them only once
        request = self._keyed_request(chat_request, self._wrapped, chats, kwargs)
        serve = _reporting(llm_chat_callback, False, self, chats, **kwargs)
        return request, self._answers.asking(ask, chats, **kwargs), serve

    async def _achat_call(self, ask: Call, messages: Sequence[ChatMessage], kwargs: dict[str, Any]) -> _ModelCall:
        """:meth:`_chat_call`; if it takes a while to read the messages, they are read on a worker thread."""
        chats = checked_chats(messages)
        if takes_a_while(chats) and self._tenants.current() is not None:
            request = await arun(step(self._read_request, chat_request, self._wrapped, chats, kwargs))
        else:
            request = self._keyed_request(chat_request, self._wrapped, chats, kwargs)
        serve = _reporting(llm_chat_callback, True, self, chats, **kwargs)
        return request, self._answers.asking(ask, chats, **kwargs), serve

    def _completion_call(
        self, ask: Call, prompt: str, formatted: bool, kwargs: dict[str, Any], is_async: bool = False
    ) -> _ModelCall:
        """:meth:`_chat_call` for a completion."""
        request = self._keyed_request(completion_request, self._wrapped, prompt, formatted, kwargs)
        arguments = (prompt, formatted) if formatted else (prompt,)  # OpenAIMultiModal takes its pictures in this place
        serve = _reporting(llm_completion_callback, is_async, self, *arguments, **kwargs)
        return request, self._answers.asking(ask, *arguments, **kwargs), serve

    def _keyed_request(self, *request: Any) -> KeyedRequest | None:
        return None if self._tenants.current_for_call() is None else self._read_request(*request)

    def _read_request(self, make: Callable[..., KeyedRequest], *request: Any) -> KeyedRequest | None:
        try:
            keyed = make(*request)
        except SerializationError as error:
            self._tenants.default.count_unkeyed(error)  # a worker thread may not be able to tell whose tenant it is
            return None
        record_request_key(keyed.key)
        return keyed

    # --- what others want to know of the model

    @property
    def metadata(self) -> LLMMetadata:
        """The model's metadata."""
        return self._wrapped.metadata

    def to_payload(self) -> dict[str, Any]:
        """The model's payload."""
        return self._wrapped.to_payload()

    @computed_field  # type: ignore[prop-decorator] # mypy does not know it on top of a property
    @property
    def model_hash(self) -> str:
        """Identifies the model and its parameters in a dump, for an ``IngestionCache``."""
        return model_key(self._wrapped)

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "rate_limiter":  # a hit does not call the model, so it has nothing to wait for
            super().__setattr__(name, value)
        if name in _CALL_FIELDS:  # as Settings and query engines set it
            setattr(self._wrapped, name, value)
        elif name in SHARED_FIELDS:  # on a copy of the model, which others may use too
            self._wrapped = self._wrapped.model_copy(update={name: value})

    def __repr_args__(self) -> Generator[tuple[str, str], None, None]:
        """Show only the class name: a model's own representation may show its key."""
        yield "llm", type(self._wrapped).__name__

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)  # type: ignore[misc] # pydantic hides it from type checkers
        except AttributeError:
            if name.startswith("_"):
                raise
        return getattr(self._wrapped, name)


@cache
def _calling_functions(kind: type[CachedLLM]) -> type[CachedLLM]:
    """CachedLLM, or a class of the user's own derived from it, for a model that calls functions."""
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__}
    make: Any = type(kind)
    return cast("type[CachedLLM]", make(kind.__name__, (kind, FunctionCalls), names))


def _cache_key(hit: Response) -> str:
    key = hit.additional_kwargs.get("cache_key")
    if not isinstance(key, str):
        raise ConfigurationError("this response did not come from a cache: it has no cache_key in additional_kwargs")
    return key
