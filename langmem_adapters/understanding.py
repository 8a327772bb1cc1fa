"""Parse a model's answers about a conversation. Pure rules."""

from __future__ import annotations

import re

__all__ = ["extract_info", "parse_verdict", "title_in", "unquoted"]

_TAG_PATTERN = re.compile(r"\s*\[([A-Z]+)\]:\s*(.+)", re.DOTALL)
_WORD_PATTERN = re.compile(r"[\w']+")
_FIELD_PATTERN = re.compile(r'"(?:is_)?related"\s*:\s*"?(\w+)')
_YES_WORDS, _NO_WORDS = frozenset({"true", "yes", "related"}), frozenset({"false", "no", "unrelated", "untrue"})
_NEGATIONS = frozenset({"not", "never", "neither", "nor", "hardly", "cannot"})
_NEGATION_DISTANCE = 3  # words
_SAYING_PATTERN = re.compile(r"[^\W_]|[\u2600-\u27bf\U0001f000-\U0001faff]")  # a letter, a digit or an emoji
_FENCE_PATTERN = re.compile(r"\s*```[^`]*$")
_BULLET_PATTERN = re.compile(r"[*•-]\s+")
_LABEL_PATTERN = re.compile(r"([*_]*)title(?:\1[:\uff1a]|[:\uff1a]\1)\s*", re.IGNORECASE)
_CLOSING_MARKS = {"“": "”", "„": "“”", "”": "”", "«": "»", "»": "«", "「": "」"} | {mark: mark for mark in "\"'*_`"}
_REPEATED_MARKS = "*_`"  # "**" surrounds as one mark
_MAX_MARKS = 8  # inside of each other: a model that is stuck may write many thousands, and each copies the rest
_OPENING_APOSTROPHE = re.compile(r"(?<!\w)'(?=\w)")  # any other may be within a word, or end one


def extract_info(text: str) -> tuple[str | None, str]:
    """Split a tagged answer: ``[SKILL]: draw a cat`` is ``("SKILL", "draw a cat")``; untagged text has no tag.

    >>> extract_info("[TALK]: Hello.")
    ('TALK', 'Hello.')
    """
    match = _TAG_PATTERN.match(text)
    return (match[1], match[2]) if match else (None, text)


def parse_verdict(answer: str) -> bool | None:
    """Read TRUE or FALSE strictly: "NOT TRUE" is False; None if the answer says both, or neither.

    In an answer in JSON, the field "related" decides.

    >>> parse_verdict("**TRUE**."), parse_verdict("It is not true"), parse_verdict("maybe")
    (True, False, None)
    """
    if values := set(_FIELD_PATTERN.findall(answer.lower())):  # its name is no vote
        return values <= _YES_WORDS if values <= _YES_WORDS or values <= _NO_WORDS else None
    words = _WORD_PATTERN.findall(answer.lower().replace("’", "'"))  # noqa: RUF001 - the apostrophe that models write
    is_negation = [word in _NEGATIONS or word.endswith("n't") for word in words]
    votes: set[bool | None] = set()
    for position, word in enumerate(words):
        is_negated = any(is_negation[max(position - _NEGATION_DISTANCE, 0) : position])
        if word in _YES_WORDS:
            votes.add(not is_negated)
        elif word in _NO_WORDS:
            votes.add(None if is_negated else False)  # "not false" may be meant in any way
    if votes == {True} and any(is_negation) and words[0] not in _YES_WORDS:
        return None
    return votes.pop() if len(votes) == 1 else None


def title_in(answer: str, max_words: int) -> str:
    r"""The title in an answer, without what models put before and around it; at most so many words of it.

    >>> title_in("Sure! Here is a title:\n\n**Title:** Ada's lost bike.", 5)
    "Ada's lost bike"
    """
    said = [line for line in answer.splitlines() if _SAYING_PATTERN.search(line) and not _FENCE_PATTERN.match(line)]
    titles = [line for line in said if not line.rstrip("* ").endswith((":", "\uff1a"))]
    title = next(iter(titles or said), "").lstrip("# ").rstrip().removesuffix(".")
    for lead in (_BULLET_PATTERN, _LABEL_PATTERN):
        title = unquoted(title)
        title = title[match.end() :] if (match := lead.match(title)) else title
    title = unquoted(title).removesuffix(".")
    return " ".join(title.split()[:max_words])


def unquoted(text: str) -> str:
    """A text without the quotation marks or the emphasis around the whole of it.

    >>> unquoted('**"Where is the bike?"**'), unquoted("'Ada's bike'")
    ('Where is the bike?', "Ada's bike")
    >>> unquoted('"Dune" or "Emma"'), unquoted("'Dune' or 'Emma'"), unquoted("*Dune* or *Emma*")
    ('"Dune" or "Emma"', "'Dune' or 'Emma'", '*Dune* or *Emma*')
    """
    for _ in range(_MAX_MARKS):
        if len(text) <= 1 or text[-1] not in _CLOSING_MARKS.get(text[0], ""):
            break
        is_repeated = text[0] in _REPEATED_MARKS
        marks = text[: len(text) - len(text.lstrip(text[0]))] if is_repeated else text[0]
        inner = text[len(marks) : -len(marks)]
        if is_repeated and not text.endswith(marks):
            break
        if _OPENING_APOSTROPHE.search(inner) if marks == "'" else marks in inner:
            break  # these surround its first words and its last ones
        text = inner.strip()
    return text
