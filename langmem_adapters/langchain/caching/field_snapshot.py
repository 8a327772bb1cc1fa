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
    omitted: list[tuple[str, str]] | None = None
    noted: _Noted | None = None  # one object, as several threads may look

    def __reduce__(self) -> Any:
        """Pickled as None: a process that unpickles a model need not have this library."""
        return type(None), ()

    def note(self, names: tuple[str, ...], values: Mapping[str, Any], composite: Mapping[str, Any]) -> None:
        """Note the names of all attributes, and which fields cannot change but by being set, for :meth:`is_current`."""
        atoms = {name: value for name, value in values.items() if name not in composite}
        self.noted = names, atoms, [*composite]

    def is_current(self, attributes: Mapping[str, Any], comparable_value: Callable[[Any], Any]) -> bool:
        """Whether nothing has changed since :meth:`note`; finds it out sooner than a new snapshot does."""
        if self.noted is None:
            return False
        names, atoms, composite = self.noted
        return (
            tuple(attributes) == names
            and not differs([*map(attributes.get, atoms)], [*atoms.values()])
            and not any(differs(self.comparable[name], comparable_value(attributes.get(name))) for name in composite)
        )


def differs(one: Any, other: Any) -> bool:
    """Whether two values are not equal, or do not say so."""
    try:
        return one is not other and bool(one != other)
    except Exception:  # noqa: BLE001 - arrays, for instance, are equal item by item, which is no answer
        return True
