"""Word lists written as texts, which read better than lists."""

from __future__ import annotations


def word_set(words: str) -> frozenset[str]:
    """The words of a text, as a set."""
    return frozenset(words.split())


def word_groups(groups: str) -> list[list[str]]:
    """The words of each group."""
    return [group.split() for group in groups.split("|")]


def group_names(groups: str) -> dict[str, str]:
    """Map each word of each group to the first word of the group, which names it."""
    return {word: name for name, *words in map(str.split, groups.split(",")) for word in (name, *words)}


def base_forms(families: str) -> dict[str, str]:
    """Map each form to its base."""
    return {form: base for base, *forms in map(str.split, families.split(",")) for form in forms}
