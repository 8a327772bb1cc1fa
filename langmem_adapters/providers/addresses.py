"""The address that a model asks, if no field of it says so: its client may be the user's, or read the environment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cached_property, lru_cache
from typing import Any, Final

from langmem_adapters.keys import fingerprint

ADDRESS_FIELDS: Final = frozenset(
    {
        "anthropic_api_url",
        "api_base",
        "azure_endpoint",
        "base_url",
        "endpoint",
        "endpoint_url",
        "groq_api_base",
        "openai_api_base",
    }
)
"""The fields in which models say what address they ask."""
_CLIENT_FIELDS: Final = ("root_client", "root_async_client", "client", "async_client", "_client", "_aclient")
_CLIENT_LINKS: Final = ("_client", "_api_client", "client")  # from a client to the one that asks for it
_URL_PLACES: Final = (("sdk_configuration", "server_url"), ("meta", "endpoint_url"), ("_http_options", "base_url"))
_ROUTER_LIMITS: Final = frozenset({"max_retries", "rpm", "stream_timeout", "timeout", "tpm", "weight"})
_MAX_REMEMBERED = 256  # classes of models, and URLs
_url_texts: dict[int, tuple[Any, str]] = {}  # by the id of the URL, which is held so that no other gets it
_MAX_CLIENTS = 3  # a resource of a client, the client, and its HTTP client
_DEFAULT_ADDRESSES: Final = frozenset(
    {
        "http://127.0.0.1:11434",
        "https://api.anthropic.com",
        "https://api.groq.com",
        "https://api.mistral.ai",
        "https://api.openai.com/v1",
        "https://generativelanguage.googleapis.com/v1beta",
    }
)


def unstated_address(model: Any) -> str:
    """The addresses of a model's clients; "" if a field of the model says them too, or they are a provider's default.

    Only clients read ``OPENAI_BASE_URL``, ``OLLAMA_HOST``, ``AWS_ENDPOINT_URL``, ``AWS_REGION`` and others. Of a model
    behind LiteLLM's router, also the hashes of the router's models.
    """
    attributes = {**(getattr(model, "__pydantic_private__", None) or {}), **getattr(model, "__dict__", {})}
    kind: type = type(model)
    lazy_names = _lazy_clients(kind)
    seen: dict[int, Any] = {}
    urls = dict.fromkeys(
        _client_address(model, attributes, name, seen)
        for name in _CLIENT_FIELDS
        if attributes.get(name) is not None or name in lazy_names
    )
    field_addresses = [str(attributes[name]).rstrip("/").lower() for name in ADDRESS_FIELDS if attributes.get(name)]
    unstated = [url for url in urls if url and not _is_expected(url, field_addresses)]
    router = attributes.get("router")
    return " ".join(unstated if router is None else [*unstated, *dict.fromkeys(_routed_models(router))])


def _is_expected(url: str, field_addresses: list[str]) -> bool:
    if field_addresses:
        return any(address in url.lower() for address in field_addresses)
    return url in _DEFAULT_ADDRESSES


def _client_address(model: Any, attributes: Mapping[str, Any], name: str, seen: dict[int, Any]) -> str:
    """A client's address. One that the model would make at its first call is made now, or the key would change then.

    It is "" if it is that of another client of the model, which was ``seen`` before: OpenAI's has two for each.
    """
    try:
        client = attributes[name] if name in attributes else getattr(model, name)
        address = _address(client, seen)
    except Exception:  # noqa: BLE001 - whatever is wrong with it, the model says when it is asked
        return ""
    seen[id(client)] = client
    return address


@lru_cache(_MAX_REMEMBERED)
def _lazy_clients(kind: type) -> list[str]:
    """The clients that models of a class make at their first call."""
    return [name for name in _CLIENT_FIELDS if isinstance(getattr(kind, name, None), cached_property)]


def _routed_models(router: Any) -> Iterator[str]:
    """Hashes of the models and their parameters, but for keys and limits, to which LiteLLM's router may send a call."""
    with suppress(Exception):  # another's router, of which anything may be
        for deployment in router.model_list:
            asked = {
                name: str(value)
                for name, value in dict(deployment["litellm_params"]).items()
                if not (value is None or value is False or name in _ROUTER_LIMITS or name.endswith("_key"))
            }
            yield fingerprint(deployment["model_name"], asked)


def _address(client: Any, seen: Mapping[int, Any]) -> str:
    for _ in range(_MAX_CLIENTS):
        if client is None or id(client) in seen:
            break
        if (url := _url(client)) is not None:
            return "/".join((_text(url).rstrip("/"), *_path_parts(client)))
        client = next((linked for link in _CLIENT_LINKS if (linked := getattr(client, link, None)) is not None), None)
    return ""


def _text(url: Any) -> str:
    """The text of a URL. httpx takes it apart and joins it again each time, though its URLs never change."""
    if not type(url).__module__.startswith("httpx"):
        return str(url)
    remembered = _url_texts.get(id(url))
    if remembered is None or remembered[0] is not url:
        if len(_url_texts) >= _MAX_REMEMBERED:
            _url_texts.clear()
        remembered = _url_texts[id(url)] = (url, str(url))
    return remembered[1]


def _url(client: Any) -> Any:
    """The URL of a client: its own, or where those of Mistral, AWS and Google have it; None if it has none."""
    if _is_url(url := getattr(client, "base_url", None)):
        return url
    for holder_name, name in _URL_PLACES:
        holder = getattr(client, holder_name, None)
        if holder is not None and _is_url(url := getattr(holder, name, None)):
            return url
    return None


def _is_url(value: Any) -> bool:
    return isinstance(value, str) or type(value).__name__ == "URL"


def _path_parts(client: Any) -> Iterator[str]:
    """What a client of Google's adds to its URL: the version of the API, and for Vertex AI project and location."""
    if (options := getattr(client, "_http_options", None)) is None:
        return
    parts = [getattr(options, "api_version", None)]
    if getattr(client, "vertexai", False):
        parts += [client.project, client.location]
    yield from (part for part in parts if isinstance(part, str) and part)
