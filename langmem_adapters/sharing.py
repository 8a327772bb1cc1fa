"""What a copy is: of what stands for a place where things are kept, the same place; of data, data of its own."""

from __future__ import annotations

from typing import Any, NoReturn

from typing_extensions import Self

from langmem_adapters.errors import ConfigurationError

__all__ = ["Lasting", "Shared", "apart"]


class Lasting:
    """Is shared by copies, also deep ones of what holds it, as connections, locks, models and keys are not copied.

    Hosts copy what they hold: LlamaIndex's workflows at each edge, ``model_copy(deep=True)`` of pydantic, who forks a
    state of LangGraph.
    """

    __slots__ = ()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self


class Shared:  # no Lasting: of two middlewares, mypy would find that rather than LangChain's class in common
    """Is as lasting, and stands for a place where things are kept: another process opens that itself, by its URL."""

    __slots__ = ()

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __copy__(self) -> Self:
        copied = object.__new__(type(self))
        copied.__dict__.update(self.__dict__)
        return copied

    def __reduce__(self) -> NoReturn:
        name = type(self).__name__
        raise ConfigurationError(
            f"{name} has connections of this process, and cannot be pickled:"
            " keep its URL and names, and make a new one where it is used"
        )


def apart(value: Any) -> Any:
    """A value that stays as it is, whatever is done to a dictionary or list of the other, or to one within it."""
    if isinstance(value, dict):
        return {name: apart(part) for name, part in value.items()}
    return [apart(part) for part in value] if isinstance(value, list) else value
