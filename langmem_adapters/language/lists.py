"""Lists of words, as texts, which read better."""

from __future__ import annotations

__all__ = ["bases", "grouped", "listed", "named"]


def listed(words: str) -> frozenset[str]:
    """The words of a text, as which a list of words reads best."""
    return frozenset(words.split())


def grouped(groups: str) -> list[list[str]]:
    """The words of each group."""
    return [group.split() for group in groups.split("|")]


def named(groups: str) -> dict[str, str]:
    """From each word of each group to the first in it, which names it."""
    return {word: name for name, *words in map(str.split, groups.split(",")) for word in (name, *words)}


def bases(families: str) -> dict[str, str]:
    """From each form to what it is a form of."""
    return {form: base for base, *forms in map(str.split, families.split(",")) for form in forms}
