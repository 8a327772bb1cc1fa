"""What the environment adds to each request of a model, although no field of the model says so."""

from __future__ import annotations

import os
from typing import Final

_HEADER_VARIABLES: Final = ("ANTHROPIC_CUSTOM_HEADERS", "FIREWORKS_CUSTOM_HEADERS", "OPENAI_CUSTOM_HEADERS")


def environment_headers() -> dict[str, str]:
    """The headers that clients read from the environment when they are made: a gateway may choose the model by them."""
    lines = [line for name in _HEADER_VARIABLES for line in os.environ.get(name, "").split("\n")]
    pairs = [line.split(":", 1) for line in lines if ":" in line]
    return {name.strip(): value.strip() for name, value in pairs}
