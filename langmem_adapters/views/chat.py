"""A conversation as a readable chat: who said what, tools with their results, and what is outside of the window."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from langmem_adapters.views.markup import Html, clipped, element, escaped, frame, header, joined, note, spaced
from langmem_adapters.views.plain import as_text, one_line, when

__all__ = ["NEWEST", "conversation", "other_blocks"]

NEWEST = 30
"""How many messages are shown at most."""

_LONG = 1_200  # characters of a message
_LONG_SUMMARY = 1_500
_LONG_CALL = 400  # characters of a call's arguments, and of its result
_MOST_CALLS = 12  # of one message
_OUTSIDE = 4  # messages before the window that are shown
_ROLES = frozenset({"user", "assistant", "tool", "system"})
_REMARKS = ("interrupted", "recalled", "damaged")  # keys of the metadata that are shown

if TYPE_CHECKING:  # shapes of what is shown; to make these classes costs time at every start

    class _Call(Protocol):
        """A tool's call."""

        id: str | None
        name: str

        @property
        def args(self) -> Mapping[str, Any]: ...

    class _Said(Protocol):
        """A message, such as a :class:`~langmem_adapters.Message`."""

        role: str
        name: str | None
        content: Any
        tool_call_id: str | None
        created_at: float | None

        @property
        def text(self) -> str: ...
        @property
        def tool_calls(self) -> Sequence[_Call]: ...
        @property
        def metadata(self) -> Mapping[str, Any]: ...


def conversation(
    messages: Sequence[_Said],
    *,
    title: str = "",
    details: Sequence[str] = (),
    summary: str = "",
    total: int | None = None,
    inside: int | None = None,
    departed: str = "",
) -> str:
    """Show the newest messages of a conversation.

    Args:
        messages: The newest, oldest first.
        title: What stands above them.
        details: What is said beside the title.
        summary: The summary of what was said before.
        total: How many messages the history holds; default: these.
        inside: How many of the newest are in the window; default: all.
        departed: How many have left the history, in words; empty if none has.
    """
    total = max(len(messages), total or 0)
    inside = total if inside is None else min(inside, total)
    shown = messages[-min(NEWEST, inside + _OUTSIDE) :]
    counted = f"{total:,} message{'' if total == 1 else 's'}"
    parts = [header(title or "Conversation", *details, counted)]
    if summary:
        heading = element("div", "Summary of what was said before", class_="lm-dim")
        said = element("div", clipped(summary, _LONG_SUMMARY), class_="lm-text", dir="auto")
        parts.append(element("div", heading, said, class_="lm-summary"))
    if departed:
        parts.append(note(f"{departed} left this history."))
    if total > len(shown):
        parts.append(note(f"{total - len(shown):,} older messages are not shown here."))
    parts += _turns(shown, outside=max(len(shown) - inside, 0), left=total - inside)
    return frame(*parts)


def _turns(messages: Sequence[_Said], *, outside: int, left: int) -> Iterator[Html]:
    """The messages, and a line where the window begins; results stand with their calls."""
    results = _results(messages)
    with_calls = {place for found in results.values() for place in found.values()}
    if left and not outside:
        yield _rule(left)
    day = ""
    for n, message in enumerate(messages):
        if outside and n == outside:
            yield _rule(left)
        if n not in with_calls:
            said_on = when(message.created_at).partition(" ")[0]
            if said_on and said_on != day:
                yield element("div", said_on, class_="lm-day")
            day = said_on or day
            answers = {call: messages[place] for call, place in results.get(n, {}).items()}
            yield _turn(message, answers, is_outside=n < outside)
    if outside and outside == len(messages):
        yield _rule(left)
    if not messages:
        yield note("Nothing has been said yet.")


def _results(messages: Sequence[_Said]) -> dict[int, dict[int, int]]:
    """By the place of a message and of a call in it, the place of its result: the next message with that id."""
    results: dict[int, dict[int, int]] = {}
    waiting: dict[str, tuple[int, int]] = {}
    for n, message in enumerate(messages):
        waiting |= {call.id: (n, place) for place, call in enumerate(message.tool_calls[:_MOST_CALLS]) if call.id}
        if message.role == "tool" and message.tool_call_id in waiting:
            asking, place = waiting.pop(message.tool_call_id)
            results.setdefault(asking, {})[place] = n
    return results


def _rule(left: int) -> Html:
    are = "message is" if left == 1 else "messages are"
    return element("div", f"{left:,} older {are} outside of the window", class_="lm-rule")


def _turn(message: _Said, results: Mapping[int, _Said], *, is_outside: bool) -> Html:
    role = message.role if message.role in _ROLES else "other"
    name = message.name if message.name and message.role != "tool" else ""
    remarks = [remark for remark in _REMARKS if message.metadata.get(remark)]
    small = (name, when(message.created_at).partition(" ")[2], *remarks)
    beside = [element("span", one_line(part, 40), class_="lm-dim") for part in small if part]
    who = element("div", spaced(one_line(message.role, 24), *beside), class_="lm-who")
    said = [element("div", clipped(message.text, _LONG), class_="lm-text", dir="auto")] if message.text else []
    said += [element("div", f"[{kind}]", class_="lm-dim") for kind in other_blocks(message.content)]
    calls = list(message.tool_calls)
    said += [_called(call, results.get(n)) for n, call in enumerate(calls[:_MOST_CALLS])]
    if len(calls) > _MOST_CALLS:
        said.append(note(f"… {len(calls) - _MOST_CALLS} more calls"))
    outside = " lm-left" if is_outside else ""
    return element("div", who, element("div", *said), class_=f"lm-turn lm-{role}{outside}")


def _called(call: _Call, result: _Said | None) -> Html:
    values = {name: repr(value) if isinstance(value, str) else as_text(value) for name, value in call.args.items()}
    arguments = ", ".join(f"{one_line(name)}={value}" for name, value in values.items())
    parts: list[Html] = [
        joined([element("b", one_line(call.name or "call")), "(", clipped(arguments, _LONG_CALL), ")"])
    ]
    if result is None:
        parts.append(element("span", "  no result here", class_="lm-dim"))
    else:
        parts.append(
            element("div", clipped(result.text, _LONG_CALL) or escaped("(empty)"), class_="lm-result", dir="auto")
        )
    return element("div", *parts, class_="lm-call")


def other_blocks(content: Any) -> Iterator[str]:
    """The kinds of blocks beside the text: a picture is named, never fetched."""
    for block in content if isinstance(content, list) else []:
        if isinstance(block, dict) and not isinstance(block.get("text"), str):
            yield one_line(block.get("type", "block"), 30)
