"""How objects are copied: a handle to stored data still refers to that data; plain data is copied."""

from __future__ import annotations

from typing import Any, NoReturn

from typing_extensions import Self

from langmem_adapters.errors import ConfigurationError


class SharedByCopies:
    """Is shared by copies, even deep copies of what holds it: connections, locks, models and keys are not copied.

    Hosts copy what they hold: LlamaIndex's workflows at each edge, pydantic's ``model_copy(deep=True)``, and forks of
    a LangGraph state.
    """

    __slots__ = ()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self


class Shared:  # no SharedByCopies: mypy would join two middlewares to that, and not to LangChain's class
    """Shared as :class:`SharedByCopies` is; refers to stored data, which another process opens itself, by its URL."""

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


def independent_copy(value: Any) -> Any:
    """Copy a value so that no change to the original's dictionaries or lists, at any depth, affects it."""
    if isinstance(value, dict):
        return {name: independent_copy(item) for name, item in value.items()}
    return [independent_copy(item) for item in value] if isinstance(value, list) else value
