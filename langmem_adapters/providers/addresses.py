"""Where a model asks, where no field of it says so: its client may be the user's, or know it from the environment."""

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
"""The fields in which models say where they ask."""
_CLIENTS: Final = ("root_client", "root_async_client", "client", "async_client", "_client", "_aclient")
_LINKS: Final = ("_client", "_api_client", "client")  # in a client, to what asks for it
_DEPTH = 3  # a resource of a client, the client, and that of HTTP
# Where clients ask that were told nothing.
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
    """The address of a model's client, or of each; "" where a field of the model says it too, and for a provider's own.

    ``OPENAI_BASE_URL``, ``OLLAMA_HOST``, ``AWS_ENDPOINT_URL``, ``AWS_REGION`` and others are read by the clients alone.
    """
    held = {**(getattr(model, "__pydantic_private__", None) or {}), **getattr(model, "__dict__", {})}
    said = [str(held[name]).rstrip("/").lower() for name in ADDRESSES if held.get(name)]
    found = dict.fromkeys(filter(None, (_asked_at(model, held, name) for name in _CLIENTS)))
    return " ".join(url for url in found if not (any(one in url.lower() for one in said) if said else url in _HOMES))


def _asked_at(model: Any, held: Mapping[str, Any], name: str) -> str:
    """A client's address; made now, where a model makes it as it asks, or the key would be another one by then."""
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
    """What may be the URL of a client: of OpenAI's and its like, of Mistral's, of that of AWS, of Google's."""
    yield getattr(client, "base_url", None)
    yield getattr(getattr(client, "sdk_configuration", None), "server_url", None)
    yield getattr(getattr(client, "meta", None), "endpoint_url", None)
    yield getattr(getattr(client, "_http_options", None), "base_url", None)


def _within(client: Any) -> Iterator[str]:
    """Where below its URL a client of Google's asks: in which version of the API, of which project, where."""
    if (options := getattr(client, "_http_options", None)) is None:
        return
    places = [getattr(options, "api_version", None)]
    if getattr(client, "vertexai", False):
        places += [client.project, client.location]
    yield from (place for place in places if isinstance(place, str) and place)
