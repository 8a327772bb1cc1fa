"""The request of a model call, in place of the arguments of a function."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Final

from langmem_adapters.experience.functions.arguments import Arguments

CALL_NAME: Final = "the model call"
"""The name of a model call in the log."""


class RequestArguments(Arguments):
    """Treats a request, a named tuple that has its own key, as the arguments of a function."""

    def __init__(self, request: type[tuple[Any, ...]]) -> None:
        super().__init__(request, trusted=True)
        self.name = CALL_NAME

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> inspect.BoundArguments:  # noqa: ARG002 - none
        """The arguments by name. ``Signature.bind`` would take a third of the time of a hit."""
        arguments = dict(zip(self._key_names, args, strict=True))
        return inspect.BoundArguments(self.signature, arguments)

    def key_arguments(self, bound: inspect.BoundArguments) -> dict[str, Any]:
        """All arguments."""
        return bound.arguments

    def key(self, arguments: Mapping[str, Any], owner: str = "") -> str:  # noqa: ARG002 - of no method
        """The key of the request."""
        return str(arguments["key"])

    def function_fingerprint(self, owner: str = "") -> str:  # noqa: ARG002 - same
        """Empty: all requests may be compared with each other."""
        return ""

    def request(self, arguments: Mapping[str, Any]) -> Any:
        """The question of the request."""
        return arguments["question"]
