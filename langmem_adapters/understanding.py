"""Parse a model's answers about a conversation. Pure rules."""

from __future__ import annotations

import re

__all__ = ["extract_info", "parse_verdict"]

_INFO = re.compile(r"\s*\[([A-Z]+)\]:\s*(.+)", re.DOTALL)
_WORD = re.compile(r"[\w']+")
_YES, _NO = frozenset({"true", "yes", "related"}), frozenset({"false", "no", "unrelated", "untrue"})
_NEGATIONS = frozenset({"not", "never", "neither", "nor", "hardly", "cannot"})
_NEAR = 3  # words


def extract_info(text: str) -> tuple[str | None, str]:
    """Split a tagged answer: ``[SKILL]: draw a cat`` is ``("SKILL", "draw a cat")``; untagged text has no tag.

    >>> extract_info("[TALK]: Hello.")
    ('TALK', 'Hello.')
    """
    match = _INFO.match(text)
    return (match[1], match[2]) if match else (None, text)


def parse_verdict(answer: str) -> bool | None:
    """Read TRUE or FALSE strictly: "NOT TRUE" is False; None if the answer says both, or neither.

    >>> parse_verdict("**TRUE**."), parse_verdict("It is not true"), parse_verdict("maybe")
    (True, False, None)
    """
    words = _WORD.findall(answer.lower().replace("’", "'"))  # noqa: RUF001 - the apostrophe that models write
    denied = [word in _NEGATIONS or word.endswith("n't") for word in words]
    votes: set[bool | None] = set()
    for n, word in enumerate(words):
        near = any(denied[max(n - _NEAR, 0) : n])
        if word in _YES:
            votes.add(not near)
        elif word in _NO:
            votes.add(None if near else False)  # "not false" may be meant in any way
    if votes == {True} and any(denied) and words[0] not in _YES:
        return None
    return votes.pop() if len(votes) == 1 else None
