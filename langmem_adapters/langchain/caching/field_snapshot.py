"""The fields of a model at one moment, to find out later whether they are still the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

_Noted = tuple[tuple[str, ...], dict[str, Any], list[str]]


@dataclass
class FieldSnapshot:
    """The fields of a model when it was last looked at. It is an attribute of the model, and copied with it."""

    model_id: int  # of the object, as a copy of the model has the same snapshot
    values: dict[str, Any]
    comparable: dict[str, Any]  # the values as they were then
    bookkeeping: frozenset[str]  # fields that the model itself changed when it was asked
    has_changed_within: bool = False  # the same objects, while it was asked
    replacements: int = 0  # how often settings were found to be other objects than before
    omitted: list[tuple[str, str]] | None = None
    noted: _Noted | None = None  # one object, as several threads may look

    def __reduce__(self) -> Any:
        """Pickled as None: a process that unpickles a model need not have this library."""
        return type(None), ()

    def note(self, names: tuple[str, ...], values: Mapping[str, Any], comparable: Mapping[str, Any]) -> None:
        """Note the names of all attributes, and which values can change inside, for :meth:`is_current`."""
        fixed = {name: value for name, value in values.items() if comparable[name] is value and is_hashable(value)}
        self.noted = names, fixed, [name for name in values if name not in fixed]

    def is_current(self, attributes: Mapping[str, Any], comparable_value: Callable[[Any], Any]) -> bool:
        """Whether nothing has changed since :meth:`note`; finds it out in a third of the time of a new snapshot."""
        if self.noted is None:
            return False
        names, fixed, changeable = self.noted
        return (
            tuple(attributes) == names
            and not differs([*map(attributes.get, fixed)], [*fixed.values()])
            and not any(differs(self.comparable[name], comparable_value(attributes.get(name))) for name in changeable)
        )


def is_hashable(value: Any) -> bool:
    """Whether a value is of a class that gives hashes, so that it can be compared by what it is."""
    return type(value).__hash__ is not None


def differs(one: Any, other: Any) -> bool:
    """Whether two values are not equal, or do not say so."""
    try:
        return one is not other and bool(one != other)
    except Exception:  # noqa: BLE001 - arrays, for instance, are equal item by item, which is no answer
        return True
