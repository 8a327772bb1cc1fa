"""Texts that count how often they are compared: what a loop over a loop costs, whatever the machine."""

from __future__ import annotations

from typing import ClassVar

__all__ = ["Compared"]


class Compared(str):
    """A text; ``times`` says how often one of them was compared with anything."""

    __slots__ = ()
    __hash__ = str.__hash__
    times: ClassVar[int] = 0

    def __eq__(self, other: object) -> bool:
        Compared.times += 1
        return str.__eq__(self, other)
