"""A conversation as a readable chat: who said what, tools with their results, and what is outside of the window."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from langmem_adapters.views.markup import Html, clip, element, frame, header, join, join_spaced, note
from langmem_adapters.views.plain import as_text, format_time, one_line

MAX_MESSAGES = 30
"""How many messages are shown at most."""

_MAX_CHARS = 1_200  # of a message
_MAX_SUMMARY_CHARS = 1_500
_MAX_CALL_CHARS = 400  # of a call's arguments, and of its result
_MAX_CALLS = 12  # of one message
_MAX_OUTSIDE_WINDOW = 4  # messages that are shown
_ROLES = frozenset({"user", "assistant", "tool", "system"})
_REMARK_KEYS = ("interrupted", "recalled", "damaged")  # keys of the metadata that are shown

if TYPE_CHECKING:  # shapes of what is shown; to make these classes costs time at every start

    class _Call(Protocol):
        id: str | None
        name: str

        @property
        def args(self) -> Mapping[str, Any]: ...

    class _Message(Protocol):
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
    messages: Sequence[_Message],
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
    visible = messages[-min(MAX_MESSAGES, inside + _MAX_OUTSIDE_WINDOW) :]
    count = f"{total:,} message{'' if total == 1 else 's'}"
    parts = [header(title or "Conversation", *details, count)]
    if summary:
        heading = element("div", "Summary of what was said before", class_="lm-dim")
        text = element("div", clip(summary, _MAX_SUMMARY_CHARS), class_="lm-text", dir="auto")
        parts.append(element("div", heading, text, class_="lm-summary"))
    if departed:
        parts.append(note(f"{departed} left this history."))
    if total > len(visible):
        parts.append(note(f"{total - len(visible):,} older messages are not shown here."))
    parts += _messages(visible, outside=max(len(visible) - inside, 0), older=total - inside)
    return frame(*parts)


def _messages(messages: Sequence[_Message], *, outside: int, older: int) -> Iterator[Html]:
    """The messages, and a line where the window begins; results stand with their calls."""
    results = _results_by_call(messages)
    shown_with_call = {position for positions in results.values() for position in positions.values()}
    day = ""
    for index, message in enumerate(messages):
        if older and index == outside:
            yield _window_rule(older)
        if index not in shown_with_call:
            date, _, _ = format_time(message.created_at).partition(" ")
            if date and date != day:
                yield element("div", date, class_="lm-day")
            day = date or day
            answers = {call: messages[position] for call, position in results.get(index, {}).items()}
            yield _message(message, answers, is_outside=index < outside)
    if older and outside == len(messages):
        yield _window_rule(older)
    if not messages:
        yield note("Nothing has been said yet.")


def _results_by_call(messages: Sequence[_Message]) -> dict[int, dict[int, int]]:
    """By the place of a message and of a call in it, the place of its result: the next message with that id."""
    results: dict[int, dict[int, int]] = {}
    pending: dict[str, tuple[int, int]] = {}
    for index, message in enumerate(messages):
        calls = reversed([*enumerate(message.tool_calls[:_MAX_CALLS])])  # of those with the same id, the first counts
        pending |= {call.id: (index, position) for position, call in calls if call.id}
        if message.role == "tool" and message.tool_call_id in pending:
            caller, position = pending.pop(message.tool_call_id)
            results.setdefault(caller, {})[position] = index
    return results


def _window_rule(older: int) -> Html:
    subject = "message is" if older == 1 else "messages are"
    return element("div", f"{older:,} older {subject} outside of the window", class_="lm-rule")


def _message(message: _Message, results: Mapping[int, _Message], *, is_outside: bool) -> Html:
    role = message.role if message.role in _ROLES else "other"
    name = "" if message.role == "tool" else message.name
    remarks = [remark for remark in _REMARK_KEYS if message.metadata.get(remark)]
    _, _, time = format_time(message.created_at).partition(" ")
    details = (name, time, *remarks)
    spans = [element("span", one_line(part, 40), class_="lm-dim") for part in details if part]
    heading = element("div", join_spaced(one_line(message.role, 24), *spans), class_="lm-who")
    parts = [element("div", clip(message.text, _MAX_CHARS), class_="lm-text", dir="auto")] if message.text else []
    parts += [element("div", f"[{kind}]", class_="lm-dim") for kind in other_blocks(message.content)]
    calls = message.tool_calls
    parts += [_tool_call(call, results.get(index)) for index, call in enumerate(calls[:_MAX_CALLS])]
    if len(calls) > _MAX_CALLS:
        parts.append(note(f"… {len(calls) - _MAX_CALLS} more calls"))
    outside_class = " lm-left" if is_outside else ""
    return element("div", heading, element("div", *parts), class_=f"lm-turn lm-{role}{outside_class}")


def _tool_call(call: _Call, result: _Message | None) -> Html:
    values = {name: repr(value) if isinstance(value, str) else as_text(value) for name, value in call.args.items()}
    arguments = ", ".join(f"{one_line(name)}={value}" for name, value in values.items())
    parts: list[Html] = [
        join([element("b", one_line(call.name or "call")), "(", clip(arguments, _MAX_CALL_CHARS), ")"])
    ]
    if result is None:
        parts.append(element("span", "  no result here", class_="lm-dim"))
    else:
        kinds = [f"[{kind}]" for kind in other_blocks(result.content)]
        text = "\n".join(filter(None, [result.text, *kinds])) or "(empty)"
        parts.append(element("div", clip(text, _MAX_CALL_CHARS), class_="lm-result", dir="auto"))
    return element("div", *parts, class_="lm-call")


def other_blocks(content: Any) -> Iterator[str]:
    """The kinds of blocks beside the text: a picture is named, never fetched."""
    for block in content if isinstance(content, list) else []:
        if isinstance(block, dict) and not isinstance(block.get("text"), str):
            yield one_line(block.get("type", "block"), 30)
