"""Ask a model for text: any LangChain or LlamaIndex model, or a plain function, sync or async."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

from langmem_adapters.concurrency.counts import Counts
from langmem_adapters.errors import ConfigurationError, ModelError
from langmem_adapters.flow import Flow, is_coroutine
from langmem_adapters.providers.content import without_thoughts
from langmem_adapters.providers.finish_reasons import ending_of, field, is_cut, refuses
from langmem_adapters.providers.usage import usage_of
from langmem_adapters.run_callbacks import call_without_callbacks
from langmem_adapters.text import replace_surrogates
from langmem_adapters.tokens import TokenCounter, approximate_tokens, count_tokens

_ASYNC_MODEL_ERROR = "this model is a coroutine function: call the async twin of this method, whose name begins with a"
_APOLOGY_PATTERN = re.compile(
    r"\W*((i'?m|i am|we'?re|we are)\s+(very\s+|so\s+)?(sorry|afraid|unable|not able)\b|sorry\b"
    r"|i\s+(can'?t|can\s?not|won'?t|will not|(must|have to) decline|apologi[sz]e)\b|as an ai\b"
    r"|unfortunately,? (i|we)\b|i (don'?t|do not) have (enough|sufficient|access)\b"
    r"|(please|(could|can) you( please)?) (provide|share|paste)\b"
    r"|there (is|was) (no|nothing)\b[\w ]{0,60}\bto summari[sz]e\b"
    r"|es tut mir leid|leider kann ich|ich kann (dabei |dazu |das |dir |ihnen |hier )?(leider )?nicht\b"
    r"|ich bin nicht in der lage|je suis désolée?|désolée?\b|je ne (peux|puis) pas\b|lo siento|lamento|no puedo\b"
    r"|mi dispiace|non posso\b|desculpe|sinto muito|não posso\b|к сожалению|извините|я не могу"
    r"|抱歉|对不起|很抱歉|我无法|我不能|申し訳|すみません|죄송|(n/?a|none|null|undefined|nan)\W*\Z)",
    re.IGNORECASE,
)
_ERROR_PATTERN = re.compile(
    r"\W*((error|exception)(\s+code)?\s*:|error\s+(generating|creating|calling|communicating|while|occurred)\b"
    r"|traceback \(most recent|an? (internal |unexpected |unknown )?error (has )?occurred"
    r"|(http )?[45]\d\d:? (bad|unauthorized|forbidden|not found|too many|internal|service|gateway|client|server)\b"
    r"|(internal server error|bad gateway|service unavailable|gateway time-?out|too many requests)\b"
    r"|rate limit ((has been|is|was) )?(exceeded|reached|hit)\b"
    r"|(the )?(request|connection) (has )?timed out\b|your (request|prompt|input) (was|has been|is) \w+ed by\b"
    r"|(!doctype|html)\b|(error|detail)\"\s*:)",
    re.IGNORECASE,
)


def is_refusal(text: str) -> bool:
    """Whether an answer begins as refusals, apologies and texts of errors do, in one of the larger languages."""
    return is_apology(text) or _ERROR_PATTERN.match(text) is not None


def is_apology(text: str) -> bool:
    """Whether an answer begins like a refusal or an apology, or is a mere "none"."""
    return _APOLOGY_PATTERN.match(text.replace("’", "'")) is not None  # noqa: RUF001 - the apostrophe that models write


class Completer:
    """Asks one model, in whichever way it can be asked, and keeps count.

    Args:
        model: Something with ``invoke`` and ``ainvoke`` (LangChain models, chains), with ``complete`` and
            ``acomplete`` (LlamaIndex models), or a function from a prompt to a text, which may be async.
        counter: Counts tokens, if the model does not say how many it used.
        stats: Where calls, failures, tokens_in and tokens_out are counted.
    """

    def __init__(self, model: Any, *, counter: TokenCounter = approximate_tokens, stats: Counts | None = None) -> None:
        self._counter = counter
        self.stats: Counts = Counts() if stats is None else stats
        self._call, self._async_call = _bind_calls(model)
        # What a plain function returns is its owner's word, and not a model's.
        self.is_function: bool = not (hasattr(model, "invoke") or hasattr(model, "complete"))

    @property
    def blocks(self) -> bool:
        """Whether it can be asked without an event loop."""
        return self._call is not None

    def ask(self, system: str, text: str) -> Flow[str]:
        """The model's answer. Raises ModelError for an error and for an answer that is empty, filtered or cut off."""
        system, text = replace_surrogates(system), replace_surrogates(text)
        try:
            response = yield from call_without_callbacks(self._call, self._async_call, _ASYNC_MODEL_ERROR, system, text)
        except ConfigurationError:
            raise
        except Exception as error:
            self.stats.add("calls")
            self.stats.add("failures")
            raise ModelError(f"the model failed: {type(error).__name__}") from error
        answer = _answer_text(response)
        self.stats.add("calls")
        self._count(response, system + text, answer)
        if not answer or _is_incomplete(response):
            self.stats.add("failures")
            is_text = isinstance(response, str) or hasattr(response, "text")
            flaw = "empty, filtered or cut off" if is_text else f"no text, but of type {type(response).__name__}"
            raise ModelError(f"the model's answer is {flaw}")
        return answer

    def _count(self, response: Any, prompt: str, answer: str) -> None:
        if _is_cache_hit(response):
            return
        usage = getattr(response, "usage_metadata", None) or usage_of(response) or {}
        tokens_in = usage.get("input_tokens") or count_tokens(prompt, self._counter)
        tokens_out = usage.get("output_tokens") or count_tokens(answer, self._counter)
        self.stats.add("tokens_in", tokens_in)
        self.stats.add("tokens_out", tokens_out)


_BLOCKING_CLASSES = ("CustomLLM", "LangChainLLM")  # LlamaIndex classes whose acomplete blocks, if not overridden
_Call = Callable[[str, str], Any]
_AsyncCall = Callable[[str, str], Awaitable[Any]]


def _bind_calls(model: Any) -> tuple[_Call | None, _AsyncCall | None]:
    if isinstance(model, type) and (hasattr(model, "invoke") or hasattr(model, "complete")):
        raise ConfigurationError(f"a model is an object, {model.__name__}(…), and not its class")
    if hasattr(model, "invoke") and hasattr(model, "ainvoke"):
        return (
            lambda system, text: model.invoke([("system", system), ("human", text)], None),
            lambda system, text: model.ainvoke([("system", system), ("human", text)], None),
        )
    if hasattr(model, "complete") and hasattr(model, "acomplete"):
        return (
            lambda system, text: model.complete(f"{system}\n\n{text}"),
            None if _is_blocking(model) else lambda system, text: model.acomplete(f"{system}\n\n{text}"),
        )
    if not callable(model):
        raise ConfigurationError(
            f"a model is a LangChain or LlamaIndex model or a function from prompt to text, not {type(model).__name__}"
        )
    if is_coroutine(model):
        return None, lambda system, text: model(f"{system}\n\n{text}")
    return (lambda system, text: model(f"{system}\n\n{text}")), None


def _is_blocking(model: Any) -> bool:
    """Whether a LlamaIndex model, or the one in a CachedLLM, blocks the event loop in its async method."""
    model_class = type(getattr(model, "_wrapped", model))
    defining_class = next((cls for cls in model_class.__mro__ if "acomplete" in vars(cls)), object)
    return defining_class.__name__ in _BLOCKING_CLASSES


def _answer_text(response: Any) -> str:
    """The text of a LangChain message, a LlamaIndex response, or of a text itself, without written-out thoughts."""
    given = response if isinstance(response, str) else getattr(response, "text", None)
    return without_thoughts(str(given or ""))


def _is_cache_hit(response: Any) -> bool:
    """Whether a cache gave the answer, so that no model used any tokens."""
    host_fields = (field(response, "response_metadata"), field(response, "additional_kwargs"))
    return any(field(fields, "cache") in ("hit", "semantic") for fields in host_fields)


def _is_incomplete(response: Any) -> bool:
    """Whether a LangChain message, or what the provider sent in a LlamaIndex response, says that it is not whole."""
    if isinstance(response, str):
        return False
    metadata = field(response, "response_metadata")
    return ending_of(response).cut or is_cut(metadata) or refuses(field(response, "content"))
