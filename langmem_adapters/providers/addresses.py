"""Where a model asks, where no field of it says so: its client may be the user's, or know it from the environment."""

from __future__ import annotations

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
_DEPTH = 3  # a resource of a client, the client, and that of HTTP
# Where clients ask that were told nothing.
_HOMES: Final = frozenset(
    {
        "http://127.0.0.1:11434",
        "https://api.anthropic.com",
        "https://api.groq.com",
        "https://api.mistral.ai",
        "https://api.openai.com/v1",
    }
)


def unsaid_address(model: Any) -> str:
    """The address of a model's client, or of each; "" where a field of the model says it too, and for a provider's own.

    ``OPENAI_BASE_URL``, ``OLLAMA_HOST``, ``GROQ_BASE_URL`` and ``ANTHROPIC_BASE_URL`` are read by the clients alone.
    """
    held = {**(getattr(model, "__pydantic_private__", None) or {}), **getattr(model, "__dict__", {})}
    said = [str(held[name]).rstrip("/").lower() for name in ADDRESSES if held.get(name)]
    found = dict.fromkeys(filter(None, (_address(held.get(name)) for name in _CLIENTS)))
    return " ".join(url for url in found if not (any(one in url.lower() for one in said) if said else url in _HOMES))


def _address(client: Any) -> str:
    for _ in range(_DEPTH):
        if client is None:
            break
        url = getattr(client, "base_url", None) or getattr(
            getattr(client, "sdk_configuration", None), "server_url", None
        )
        if isinstance(url, str) or type(url).__name__ == "URL":
            return str(url).rstrip("/")
        client = getattr(client, "_client", None)
    return ""
