"""CachedChatModel: a chat model that does not answer the same request twice."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Any, cast

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.load import dumps
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable, RunnableSerializable
from pydantic import BaseModel, Field, PlainSerializer, PrivateAttr
from typing_extensions import Self

from langmem_adapters.errors import ConfigurationError, SerializationError
from langmem_adapters.experience.functions.rules import Invocation
from langmem_adapters.experience.single_flight.asking import CachedModel, opened_again
from langmem_adapters.experience.single_flight.request_keys import record_request_key
from langmem_adapters.experience.single_flight.tenants import Tenants
from langmem_adapters.flow import arun, step
from langmem_adapters.langchain.cache import ExperienceCache
from langmem_adapters.langchain.caching.answers import Answers, Request
from langmem_adapters.langchain.caching.asking import call_options, is_current
from langmem_adapters.langchain.caching.chunks import answer_chunks, as_cached
from langmem_adapters.langchain.caching.classes import with_class_fields
from langmem_adapters.langchain.caching.examples import with_examples
from langmem_adapters.langchain.caching.model_description import refresh_description, tracked_call, with_omitted_parts
from langmem_adapters.langchain.caching.rebinding import FieldsOfTheModel, fields_of, implements, replace_models
from langmem_adapters.langchain.caching.request import check_self_contained, request_key, takes_a_while
from langmem_adapters.stores import has_no_password, pickling_error


class CachedChatModel(CachedModel, BaseChatModel):
    """A chat model with its cache (implements ``langchain_core.language_models.BaseChatModel``).

    It caches streams as :class:`ExperienceCache` caches ``invoke``: a repeated stream does not call the model, and
    yields chunks that add up to the same message. Of several callers with the same request at the same time, in this
    process or in others on the same store, one calls the model; if that fails, the others call it themselves. A stream
    that was not read to its end is not stored. It goes wherever the model goes: tools, structured output, chains,
    agents, callbacks, tracing. It shares its entries with ``set_llm_cache``. Attributes that it lacks are the model's.

    The whole request is compared, so tool calls and answers to tool results are served too: the same results get the
    same answer, and a tool call that is served again runs its tool again. ``should_store`` of the cache can refuse
    tool calls. In the cache's semantic mode, neither is served to a request that is only similar.

    Args:
        model: The chat model, before tools are bound to it.
        cache: Where answers are kept, and by which rules.
        url: Short for ``cache=ExperienceCache(url)``.
        wait: Seconds to wait at most for another caller with the same request; 0: each caller calls the model. A caller
            that waits for a stream sees none of it until that stream's reader has finished.

    >>> from langchain_core.language_models import FakeListChatModel
    >>> from langmem_adapters.langchain import CachedChatModel
    >>> model = CachedChatModel(FakeListChatModel(responses=["In Paris.", "In Lyon."]), url="memory:")
    >>> "".join(chunk.content for chunk in model.stream("Where is it?"))
    'In Paris.'
    >>> "".join(chunk.content for chunk in model.stream("Where is it?"))
    'In Paris.'
    """

    # A dump has only the class name: nothing can rebuild from it a model that would ask elsewhere.
    wrapped: Annotated[BaseChatModel, PlainSerializer(lambda model: type(model).__name__)] = Field(repr=False)
    streaming: bool | None = None  # BaseChatModel reads it, if a model has it
    _tenants: Tenants[Answers] = PrivateAttr()
    _init_arguments: dict[str, Any] | None = PrivateAttr()

    def __init__(
        self,
        model: BaseChatModel,
        cache: ExperienceCache | Tenants[Answers] | None = None,
        *,
        url: str | None = None,
        wait: float = 60.0,
    ) -> None:
        if not isinstance(model, BaseChatModel) or isinstance(model, CachedChatModel):
            raise ConfigurationError(
                f"CachedChatModel wraps a chat model of LangChain, before tools are bound to it, not"
                f" {type(model).__name__}"
            )
        if cache is not None and url is not None:
            raise ConfigurationError("give CachedChatModel a cache or a url, not both")
        if not (cache is None or isinstance(cache, ExperienceCache | Tenants)):
            raise ConfigurationError(
                f"a CachedChatModel's cache is an ExperienceCache (a URL goes in as url=), not {type(cache).__name__}"
            )
        super().__init__(wrapped=model, cache=False, **fields_of(model))
        source = ExperienceCache(url) if cache is None else cache  # its rules apply
        self._tenants = source if isinstance(source, Tenants) else source._answers_for(wait, self.output_version)  # noqa: SLF001
        self._init_arguments = {"url": url, "wait": wait} if cache is None and has_no_password(url) else None

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with the same cache; updates of the model's own fields go into a copy of the model."""
        own_updates = {name: value for name, value in (update or {}).items() if self._is_own_field(name)}
        copy = super().model_copy(update=own_updates, deep=deep)
        model_updates = {name: value for name, value in (update or {}).items() if name not in own_updates}
        if model_updates:
            copy.wrapped = copy.wrapped.model_copy(update=model_updates)
        return copy

    def __reduce__(self) -> Any:
        """Pickle the model, the URL and the fields set here, so that another process opens the same cache."""
        if self._init_arguments is None:
            raise pickling_error("a CachedChatModel with a cache of its own")
        fields = {name: getattr(self, name) for name in self.model_fields_set - {"wrapped"} if self._is_own_field(name)}
        make = partial(CachedChatModel.__init__, model=self.wrapped, **self._init_arguments)
        return opened_again, (type(self), make, fields)

    def _repr_html_(self) -> str:
        return self._model_html(self.wrapped)

    # --- calls

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        def ask(call: Invocation | None) -> ChatResult:
            if limiter := self.wrapped.rate_limiter:
                limiter.acquire(blocking=True)
            generate = self.wrapped._generate  # noqa: SLF001 - what a chat model implements
            with self._asking(call, messages, stop, kwargs) as shown:
                return generate(shown, stop=stop, **call_options(generate, run_manager, kwargs))

        return cast("ChatResult", self._answers.invoke(self._request(messages, stop, kwargs), ask, _chat_result))

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        async def ask(call: Invocation | None) -> ChatResult:
            if limiter := self.wrapped.rate_limiter:
                await limiter.aacquire(blocking=True)
            agenerate = self.wrapped._agenerate  # noqa: SLF001 - what a chat model implements
            with self._asking(call, messages, stop, kwargs) as shown:
                return await agenerate(shown, stop=stop, **call_options(agenerate, run_manager, kwargs))

        request = await self._arequest(messages, stop, kwargs)
        return cast("ChatResult", await self._answers.ainvoke(request, ask, _chat_result))

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        if not implements(self.wrapped, "_stream"):
            result = self._generate(messages, stop, run_manager, **kwargs)
            yield from answer_chunks(as_cached(result, self.output_version)[0])
            return

        def ask(call: Invocation | None) -> Iterator[ChatGenerationChunk]:
            if limiter := self.wrapped.rate_limiter:
                limiter.acquire(blocking=True)
            stream = self.wrapped._stream  # noqa: SLF001 - what a chat model implements
            with self._asking(call, messages, stop, kwargs) as shown:
                yield from stream(shown, stop=stop, **call_options(stream, run_manager, kwargs))

        request = None if self._wants_several_answers(kwargs) else self._request(messages, stop, kwargs)
        yield from self._answers.stream(request, ask)

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        if not (implements(self.wrapped, "_stream") or implements(self.wrapped, "_astream")):
            result = await self._agenerate(messages, stop, run_manager, **kwargs)
            for chunk in answer_chunks(as_cached(result, self.output_version)[0]):
                yield chunk
            return

        async def ask(call: Invocation | None) -> AsyncIterator[ChatGenerationChunk]:
            if limiter := self.wrapped.rate_limiter:
                await limiter.aacquire(blocking=True)
            astream = self.wrapped._astream  # noqa: SLF001 - what a chat model implements
            with self._asking(call, messages, stop, kwargs) as shown:
                async for chunk in astream(shown, stop=stop, **call_options(astream, run_manager, kwargs)):
                    yield chunk

        request = None if self._wants_several_answers(kwargs) else await self._arequest(messages, stop, kwargs)
        async for chunk in await self._answers.astream(request, ask):
            yield chunk

    def _request(self, messages: list[BaseMessage], *call: Any) -> Request | None:
        """The request as LangChain shows it to a cache; None if it has no key, or if a strict cache finds no tenant."""
        return None if self._tenants.current_for_call() is None else self._read_request(messages, *call)

    async def _arequest(self, messages: list[BaseMessage], *call: Any) -> Request | None:
        """:meth:`_request`; if it takes a while to read the messages, they are read on a worker thread."""
        if not takes_a_while(messages) or self._tenants.current() is None:
            return self._request(messages, *call)
        return await arun(step(self._read_request, messages, *call))

    def _read_request(
        self, messages: list[BaseMessage], stop: list[str] | None, kwargs: Mapping[str, Any]
    ) -> Request | None:
        prompt = dumps(list(messages))
        try:
            llm_string = self._get_llm_string(stop=stop, **kwargs)
            check_self_contained(prompt, llm_string)
        except SerializationError as error:
            self._tenants.default.count_unkeyed(error)  # a worker thread may not be able to tell whose tenant it is
            return None
        key = request_key(prompt, llm_string)
        record_request_key(key)
        return Request(prompt, llm_string, key)

    @contextmanager
    def _asking(
        self, call: Invocation | None, messages: list[BaseMessage], stop: list[str] | None, kwargs: Mapping[str, Any]
    ) -> Iterator[list[BaseMessage]]:
        """While the model is asked; gives what it is shown. Not kept is what is asked otherwise than its key says."""
        request = None if call is None else Request(*call.args)  # a plain tuple
        if call and request and not is_current(request, lambda: self._get_llm_string(stop=stop, **kwargs)):
            self._answers.refuse(call)
        with tracked_call(self.wrapped):
            yield with_examples(messages, request)

    def _wants_several_answers(self, kwargs: Mapping[str, Any]) -> bool:
        """Whether several answers are asked for: a stream has only one, so it cannot stand for all of them."""
        return (kwargs.get("n") or getattr(self.wrapped, "n", None) or 1) != 1

    # --- whatever is made from the model

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[LanguageModelInput, AIMessage]:
        """The model with tools bound to it, and its cache."""
        return self._rebind_cache(self.wrapped.bind_tools(tools, **kwargs))

    def with_structured_output(
        self, schema: Any, **kwargs: Any
    ) -> Runnable[LanguageModelInput, dict[str, Any] | BaseModel]:
        """The model with structured output, and its cache."""
        return self._rebind_cache(self.wrapped.with_structured_output(schema, **kwargs))

    def configurable_fields(self, **kwargs: Any) -> RunnableSerializable[Any, Any]:
        """The model with fields that a run's configuration sets, and its cache."""
        self.wrapped.configurable_fields(**kwargs)  # raises for fields that the model does not have
        return FieldsOfTheModel(default=self, fields=kwargs)

    def _rebind_cache(self, runnable: Runnable[Any, Any]) -> Runnable[Any, Any]:
        models: list[BaseChatModel] = []

        def replace(model: BaseChatModel) -> BaseChatModel:
            models.append(model)
            own = fields_of(self.wrapped)
            changed = {name: value for name, value in fields_of(model).items() if value != own.get(name)}
            return self if model is self.wrapped else self.model_copy(update={**changed, "wrapped": model})

        rebound: Runnable[Any, Any] = replace_models(runnable, replace)
        if not models:
            raise ConfigurationError(
                f"{type(self.wrapped).__name__} with its tools or schema contains no chat model that could be cached:"
                " give the model itself a cache (cache=ExperienceCache(…))"
            )
        return rebound

    # --- what others want to know of the model

    @property  # type: ignore[misc] # of an object it may be set
    def __class__(self) -> type[Any]:
        """The model's class, for ``isinstance``, by which others choose prompt caching, strict tools and the like."""
        return type(self.__dict__.get("wrapped", self))

    @property
    def _llm_type(self) -> str:
        return self.wrapped._llm_type  # noqa: SLF001 - what a chat model implements

    @property
    def _identifying_params(self) -> Mapping[str, Any]:
        return self.wrapped._identifying_params  # noqa: SLF001 - what a chat model implements

    @property
    def _serialized(self) -> dict[str, Any]:
        return refresh_description(self.wrapped)._serialized  # noqa: SLF001 - so that traces show the model

    def _get_llm_string(self, stop: list[str] | None = None, **kwargs: Any) -> str:
        model = refresh_description(self.wrapped)
        llm_string = model._get_llm_string(stop=stop, **kwargs)  # noqa: SLF001 - so that it has the model's entries
        return with_class_fields(with_omitted_parts(model, llm_string, kwargs), kwargs)

    def _get_invocation_params(self, stop: list[str] | None = None, **kwargs: Any) -> dict[str, Any]:
        return self.wrapped._get_invocation_params(stop=stop, **kwargs)  # noqa: SLF001 - so that traces show them

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> Any:
        return self.wrapped._get_ls_params(stop=stop, **kwargs)  # noqa: SLF001 - so that traces show them

    def _combine_llm_outputs(self, _llm_outputs: list[dict[str, Any] | None], /) -> dict[str, Any]:
        return self.wrapped._combine_llm_outputs(_llm_outputs)  # noqa: SLF001 - what a chat model implements

    def get_token_ids(self, text: str) -> list[int]:
        """The token ids of a text, by the model's own tokenizer."""
        return self.wrapped.get_token_ids(text)

    def get_num_tokens(self, text: str) -> int:
        """How many tokens a text has for the model."""
        return self.wrapped.get_num_tokens(text)

    def get_num_tokens_from_messages(self, messages: list[BaseMessage], tools: Any = None, **more: Any) -> int:
        """How many tokens messages have for the model."""
        return self.wrapped.get_num_tokens_from_messages(messages, tools, **more)

    def __dir__(self) -> set[str]:
        return {*super().__dir__(), *dir(type(self))}  # super() lists the model's, by __class__

    def __repr_name__(self) -> str:
        return "CachedChatModel"

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Name the class alone: a model's own representation may show what is in its headers."""
        yield "model", type(self.__dict__.get("wrapped")).__name__

    def _is_own_field(self, name: str) -> bool:
        """Whether the field is the wrapper's; token counting and the limiter (no hit waits for it) are the model's."""
        return name in type(self).model_fields and name not in {"custom_get_token_ids", "rate_limiter"}

    def __setattr__(self, name: str, value: Any) -> None:
        if name in type(self).__private_attributes__:  # pydantic looks for all of these in __class__
            self.__pydantic_private__[name] = value  # type: ignore[index] # it is there from the beginning
        elif name.startswith("_") or self._is_own_field(name):
            object.__setattr__(self, name, value)
            self.__pydantic_fields_set__.add(name)
        else:
            setattr(self.wrapped, name, value)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)  # type: ignore[misc] # pydantic hides it from type checkers
        except AttributeError:
            if name.startswith("_") or "wrapped" not in self.__dict__:
                raise
        return getattr(self.wrapped, name)


def _chat_result(generations: list[ChatGeneration]) -> ChatResult:
    return ChatResult(generations=generations)
