"""The address that a model asks, if no field of it says so: its client may be the user's, or read the environment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, Final

__all__ = ["ADDRESSES", "unsaid_address"]

ADDRESSES: Final = frozenset(
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
_CLIENTS: Final = ("root_client", "root_async_client", "client", "async_client", "_client", "_aclient")
_LINKS: Final = ("_client", "_api_client", "client")  # from a client to the one that asks for it
_DEPTH = 3  # a resource of a client, the client, and its HTTP client
# The default addresses of clients.
_HOMES: Final = frozenset(
    {
        "http://127.0.0.1:11434",
        "https://api.anthropic.com",
        "https://api.groq.com",
        "https://api.mistral.ai",
        "https://api.openai.com/v1",
        "https://generativelanguage.googleapis.com/v1beta",
    }
)


def unsaid_address(model: Any) -> str:
    """The addresses of a model's clients; "" if a field of the model says them too, or they are a provider's default.

    Only clients read ``OPENAI_BASE_URL``, ``OLLAMA_HOST``, ``AWS_ENDPOINT_URL``, ``AWS_REGION`` and others.
    """
    held = {**(getattr(model, "__pydantic_private__", None) or {}), **getattr(model, "__dict__", {})}
    said = [str(held[name]).rstrip("/").lower() for name in ADDRESSES if held.get(name)]
    found = dict.fromkeys(filter(None, (_asked_at(model, held, name) for name in _CLIENTS)))
    return " ".join(url for url in found if not (any(one in url.lower() for one in said) if said else url in _HOMES))


def _asked_at(model: Any, held: Mapping[str, Any], name: str) -> str:
    """A client's address. One that the model would make at its first call is made now, or the key would change then."""
    is_made = name not in held and isinstance(getattr(type(model), name, None), cached_property)
    try:
        return _address(getattr(model, name) if is_made else held.get(name))
    except Exception:  # noqa: BLE001 - whatever is wrong with it, the model says when it is asked
        return ""


def _address(client: Any) -> str:
    for _ in range(_DEPTH):
        if client is None:
            break
        for url in _urls(client):
            if isinstance(url, str) or type(url).__name__ == "URL":
                return "/".join((str(url).rstrip("/"), *_within(client)))
        client = next((found for link in _LINKS if (found := getattr(client, link, None)) is not None), None)
    return ""


def _urls(client: Any) -> Iterator[Any]:
    """What may be the URL of a client: of OpenAI's and similar ones, of Mistral's, of AWS's, of Google's."""
    yield getattr(client, "base_url", None)
    yield getattr(getattr(client, "sdk_configuration", None), "server_url", None)
    yield getattr(getattr(client, "meta", None), "endpoint_url", None)
    yield getattr(getattr(client, "_http_options", None), "base_url", None)


def _within(client: Any) -> Iterator[str]:
    """What a client of Google's adds to its URL: the version of the API, and for Vertex AI project and location."""
    if (options := getattr(client, "_http_options", None)) is None:
        return
    places = [getattr(options, "api_version", None)]
    if getattr(client, "vertexai", False):
        places += [client.project, client.location]
    yield from (place for place in places if isinstance(place, str) and place)
