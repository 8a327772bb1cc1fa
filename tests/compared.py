"""Texts and numbers that count how often they are looked at: what a loop costs, whatever the machine."""

from __future__ import annotations

from typing import ClassVar

__all__ = ["Compared", "Number"]


class Compared(str):
    """A text; ``times`` says how often one of them was compared with anything."""

    __slots__ = ()
    __hash__ = str.__hash__
    times: ClassVar[int] = 0

    def __eq__(self, other: object) -> bool:
        Compared.times += 1
        return str.__eq__(self, other)


class Number(int):
    """A number, as is the sum of it and another; ``times`` says how often one was compared, or looked for in a set."""

    __slots__ = ()
    times: ClassVar[int] = 0

    def __add__(self, other: int) -> Number:
        return Number(int.__add__(self, other))

    def __lt__(self, other: int) -> bool:
        Number.times += 1
        return int.__lt__(self, other)

    def __gt__(self, other: int) -> bool:
        Number.times += 1
        return int.__gt__(self, other)

    def __eq__(self, other: object) -> bool:
        Number.times += 1
        return int.__eq__(self, other)

    def __hash__(self) -> int:
        Number.times += 1
        return int.__hash__(self)
