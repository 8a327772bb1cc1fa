"""How to ask an embedding model for vectors, and what it is called: of LangChain, LlamaIndex, or a plain function."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from itertools import chain
from typing import Any, NamedTuple

from langmem_adapters.errors import ConfigurationError
from langmem_adapters.flow import is_coroutine
from langmem_adapters.language.word_pieces import is_sentence_transformer, make_encoder, tells_pieces

_MODEL_NAME_ATTRIBUTES = (
    *("model_name", "model", "model_id", "deployment", "repo_id", "model_path"),
    *("model_uid", "endpoint_name", "folder_name"),  # of Xinference, SageMaker, Optimum
)
_UNKNOWN_MODEL = "unknown"  # LlamaIndex's model_name of embedders with the name in another attribute, such as watsonx's
_AZURE_DEFAULT_MODEL = "text-embedding-ada-002"  # the model of Azure embedders that were given only a deployment
# The options of a wrapped SentenceTransformer that only change its vectors.
_VECTOR_OPTIONS = frozenset(("batch_size", "normalize_embeddings", "prompt", "prompt_name"))


class Calls(NamedTuple):
    """How to ask for the vectors of some texts, if that is possible, how to await them, and if word pieces come."""

    call: Callable[[list[str]], Any] | None
    acall: Callable[[list[str]], Awaitable[Any]] | None = None
    tells_pieces: bool = False


def calls_of(model: Any) -> tuple[Calls, Calls]:
    """How to ask a model for the vectors of texts, and for those of queries."""
    if isinstance(model, type):
        raise ConfigurationError(f"an embedder is an object, {model.__name__}(…), and not its class")
    if (encoders := _encoders_of(model)) is not None:
        inner, encode_texts, encode_query = encoders
        documents = Calls(make_encoder(inner, encode_texts), tells_pieces=tells_pieces(inner))
        return documents, Calls(make_encoder(inner, encode_query), tells_pieces=documents.tells_pieces)
    if hasattr(model, "embed_documents") and hasattr(model, "embed_query"):
        documents = Calls(model.embed_documents, getattr(model, "aembed_documents", None))
        aquery = getattr(model, "aembed_query", None)
        async_query = None if aquery is None else partial(_ask_at_once, aquery)
        return documents, Calls(lambda texts: list(map(model.embed_query, texts)), async_query)
    if hasattr(model, "get_text_embedding_batch") and hasattr(model, "get_query_embedding"):
        # Not the async twins: in many LlamaIndex models they block the event loop. A worker thread never does.
        return Calls(model.get_text_embedding_batch), Calls(lambda texts: list(map(model.get_query_embedding, texts)))
    if not callable(model) or hasattr(model, "forward"):  # a torch model, which is no supported SentenceTransformer
        raise ConfigurationError(
            "an embedder is a LangChain or LlamaIndex embedding model, a SentenceTransformer of sentence-transformers 5"
            f" or later, or a function from texts to vectors, not {type(model).__name__}"
        )
    if is_coroutine(model):
        return Calls(None, model), Calls(None, model)
    return Calls(model), Calls(model)


def _encoders_of(model: Any) -> tuple[Any, Callable[..., Any], Callable[..., Any]] | None:
    """A SentenceTransformer, also one in a wrapper of LangChain or LlamaIndex, and how it encodes texts and a query.

    A wrapper returns no word pieces, and does not say of which texts it has read only the beginning. So its model is
    asked with its options, unless it does more than ask it. A subclass of it may do anything, and so may one of a
    SentenceTransformer that embeds as LangChain's or LlamaIndex's models do.
    """
    if is_sentence_transformer(model) and not _is_of_a_host(model):
        return model, model.encode_document, model.encode_query
    inner: Any = None
    wrapper = type(model).__module__.partition(".")[0], type(model).__qualname__
    if wrapper == ("langchain_huggingface", "HuggingFaceEmbeddings") and not model.multi_process:
        inner, options = getattr(model, "_client", None), model.encode_kwargs
        query_options = getattr(model, "query_encode_kwargs", None) or options
    elif wrapper == ("llama_index", "HuggingFaceEmbedding") and not getattr(model, "_parallel_process", True):
        inner, size = (None if model.embeddings_cache else getattr(model, "_model", None)), model.embed_batch_size
        options, query_options = ({"batch_size": size, "prompt_name": name} for name in ("text", "query"))
    else:
        return None
    if not tells_pieces(inner) or not _VECTOR_OPTIONS.issuperset((*options, *query_options)):
        return None
    encode = inner.encode if wrapper[0] == "llama_index" else partial(_encode_on_one_line, inner.encode)
    return inner, partial(encode, **options), partial(encode, **query_options)


def _encode_on_one_line(encode: Callable[..., Any], texts: list[str], **options: Any) -> Any:
    """Encode texts as LangChain's wrapper does: to some tokenizers, a line break is another piece than a space."""
    return encode([text.replace("\n", " ") for text in texts], **options)


def _is_of_a_host(model: Any) -> bool:
    return hasattr(model, "embed_documents") or hasattr(model, "get_text_embedding_batch")


async def _ask_at_once(ask: Callable[[str], Awaitable[Any]], texts: list[str]) -> list[Any]:
    return [await ask(texts[0])] if len(texts) == 1 else await asyncio.gather(*map(ask, texts))


def model_name_of(model: Any) -> str:
    """The class and the model of a host's embedder, which identify its vectors later and on other machines, too."""
    for attribute in ("underlying_embeddings", "base_embeddings"):  # CacheBackedEmbeddings and HyDE, of LangChain
        if hasattr(model, attribute):
            return model_name_of(getattr(model, attribute))
    if not _is_of_a_host(model):
        kind = type(model).__name__ if is_sentence_transformer(model) else "function"
        raise ConfigurationError(f'a {kind} that embeds needs a name for its model: Embedder({kind}, name="…")')
    values = (getattr(model, attribute, None) for attribute in _MODEL_NAME_ATTRIBUTES)
    names = [name for name in values if isinstance(name, str) and name]
    model_name = next((name for name in names if name != _UNKNOWN_MODEL), _UNKNOWN_MODEL if names else "")
    wrapped = getattr(model, "_langchain_embedding", None)
    # LangchainEmbedding gives one of these where it finds no name.
    if wrapped is not None and model_name in {_AZURE_DEFAULT_MODEL, type(wrapped).__name__}:
        return model_name_of(wrapped)
    if model_name == _AZURE_DEFAULT_MODEL and hasattr(model, "azure_endpoint"):
        deployed = getattr(model, "azure_deployment", None) or getattr(model, "deployment", None)
        model_name = deployed or model_name
    return f"{type(model).__qualname__}:{model_name}" if model_name else type(model).__qualname__


def is_rate_limit(error: BaseException | None) -> bool:
    """Whether a provider says "429 Too Many Requests", which no text is to blame for."""
    errors = (error, error and error.__cause__)  # the second: of what a wrapper raises
    with suppress(Exception):  # of an attribute of theirs
        return HTTPStatus.TOO_MANY_REQUESTS in chain.from_iterable(map(_statuses, errors))
    return False


def _statuses(error: BaseException | None) -> Iterator[object]:
    response = getattr(error, "response", None)
    if isinstance(response, Mapping):  # of boto3
        yield response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    for source in (error, response):
        yield from (getattr(source, name, None) for name in ("status_code", "http_status", "code", "status"))
