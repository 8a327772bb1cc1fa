"""Ready-made context builders: they put similar experiences into a request as MetaGPT does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langmem_adapters.experience.policies import score_of
from langmem_adapters.experience.requests import as_text
from langmem_adapters.model import Experience
from langmem_adapters.text import hanging_indent

_PLACEHOLDER = "# Past Experience\n<experience>"
_HEADING = "# Past Experience\n"
_MAX_CHARS = 10_000  # characters of a request or a response in an example


def as_examples(experiences: Sequence[Experience]) -> str:
    """A numbered list of requests, responses and scores; long texts are reduced to beginning and end.

    Further lines of a text are indented, so that no response looks like another example.

    >>> as_examples([Experience(req="France", resp="Paris")])
    '1. Given the request: France, Returns: Paris, Which scored: N/A.'
    """
    lines = []
    for number, experience in enumerate(experiences, start=1):
        score = score_of(experience) or "N/A"
        request, response = _example_text(experience.req), _example_text(experience.resp)
        lines.append(f"{number}. Given the request: {request}, Returns: {response}, Which scored: {score}.")
    return "\n".join(lines)


def simple_context(req: Any, experiences: Sequence[Experience]) -> Any:
    """A prompt of experiences, request and instruction (MetaGPT's ``SimpleContextBuilder``).

    Without experiences, the request itself is returned.
    """
    if not experiences:
        return req
    return (
        "## Context\n\n### Experiences\n-----\n"
        f"{as_examples(experiences)}\n-----\n\n"
        f"## User Requirement\n{as_text(req)}\n\n"
        "## Instruction\nUse the **Experiences** where they help to give a better answer."
    )


def role_zero_context(req: Any, experiences: Sequence[Experience]) -> Any:
    """RoleZero's messages with the experiences in a copy of the last one (MetaGPT's ``RoleZeroContextBuilder``).

    They replace ``<experience>`` below the heading "# Past Experience"; without that, no text changes.
    """
    if not req or not experiences:
        return req
    *before, last = req
    content = str(last.get("content", "")).replace(_PLACEHOLDER, _HEADING + as_examples(experiences))
    return [*before, {**last, "content": content}]


def _example_text(value: Any) -> str:
    """A request or a response as text, shortened in the middle if it is long: the question is often at the end."""
    text, half = as_text(value), _MAX_CHARS // 2
    if len(text) > _MAX_CHARS:
        text = f"{text[:half]} … {text[-half:]}"
    return hanging_indent(text)
