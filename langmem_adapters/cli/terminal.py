"""What the commands write: consoles, progress bars, conversations, and stored text made harmless."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence

import typer
from rich.console import Console, Group, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from langmem_adapters.inspection import Finding, Health, StoreStats
from langmem_adapters.model import Message, Recalled, SessionInfo
from langmem_adapters.views import format_time
from langmem_adapters.views.chat import other_blocks
from langmem_adapters.views.plain import escape_control_chars

OUT = Console(markup=False, highlight=False, emoji=False)
ERR = Console(markup=False, highlight=False, emoji=False, stderr=True)

_LEVEL_STYLES = {"ok": "green", "note": "yellow", "problem": "bold red"}
_ROLE_COLOURS = {"user": "cyan", "assistant": "green", "tool": "yellow", "system": "magenta"}


def write(content: RenderableType, *, style: str | None = None, console: Console = OUT) -> None:
    """Write something. Its lines stay whole, as a terminal breaks them itself; a table keeps to the width."""
    console.print(content, style=style, soft_wrap=not isinstance(content, Table))


def write_result(data: object, text: RenderableType, *, as_json: bool) -> None:
    """Write data for scripts, or what a person is shown of it."""
    if as_json:
        typer.echo(json.dumps(data))
    else:
        write(text)


def one_line(text: str) -> str:
    """:func:`escape_control_chars`, with all white space as single spaces."""
    return escape_control_chars(" ".join(text.split()))


def is_live(console: Console) -> bool:
    """Whether what is written can be overwritten: on a terminal that is not dumb, and no pipe with FORCE_COLOR."""
    return console.is_interactive and console.file.isatty()


def progress(console: Console = ERR) -> Progress:
    """A bar beside the output; only on a terminal, and removed when it is done."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, disable=not is_live(console), get_time=time.monotonic)


def session_table(sessions: Sequence[SessionInfo]) -> Table:
    """The sessions, one a row."""
    table = Table("session", "title", box=None, pad_edge=False, header_style="bold")
    table.add_column("messages", justify="right")
    table.add_column("last activity", no_wrap=True)
    for info in sessions:
        name, title = Text(one_line(info.session), "cyan", overflow="fold"), Text(one_line(info.title), overflow="fold")
        table.add_row(name, title, f"{info.messages:,}", format_time(info.updated_at))
    return table


def format_counts(counts: Mapping[str, int]) -> Text:
    """Names and their counts, one a line."""
    width = max(map(len, map(one_line, counts)), default=0)
    return Text("\n").join(Text(f"{one_line(name):<{width}}  {count:>14,}") for name, count in counts.items())


def format_findings(items: Sequence[Finding]) -> Text:
    """What an examination found, one a line, and below it what to do."""
    return Text("\n").join(_format_finding(finding) for finding in items)


def _format_finding(finding: Finding) -> Text:
    text = Text.assemble((f"{finding.level:<7}", _LEVEL_STYLES[finding.level]))
    text.append(f"  {one_line(finding.subject)}: {one_line(finding.message)}")
    return text.append(f"\n         → {one_line(finding.remedy)}", "dim") if finding.remedy else text


def store_overview(health: Health, stats: StoreStats, sessions: Sequence[SessionInfo]) -> Group:
    """One look at a store: how it is, what it holds, and the sessions with the latest activity."""
    heading = Text.assemble((f"{one_line(health.address)} · {1000 * health.seconds:.1f} ms", "bold"))
    if stats.size is not None:
        heading.append(f" · {stats.size:,} bytes" + (f" of {stats.limit:,}" if stats.limit else ""))
    kinds = " · ".join(f"{one_line(kind)} {kind_stats.namespaces:,}" for kind, kind_stats in stats.kinds.items())
    return Group(heading.append(f"\n{kinds}", "dim"), session_table(sessions))


def format_message(message: Message) -> Text:
    """A message as a person reads it: who, when, what, and the tools that were called."""
    colour = _ROLE_COLOURS.get(message.role, "blue")
    text = Text.assemble((one_line(message.role), f"bold {colour}"))
    for detail in (message.name, message.tool_call_id, format_time(message.created_at)):
        if detail:
            text.append(f" · {one_line(detail)}", "dim")
    for line in (message.text, *(f"[{kind}]" for kind in other_blocks(message.content))):
        if line:
            text.append(f"\n{escape_control_chars(line)}")
    for call in message.tool_calls:
        arguments = ", ".join(f"{name}={value!r}" for name, value in call.args.items())
        text.append(f"\n→ {one_line(f'{call.name}({arguments})')}", "yellow")
    return text


def format_hits(results: Sequence[Recalled]) -> Text:
    """What a search found, best first: score, when it was last said, by whom and where, and the text."""
    return Text("\n\n").join(_format_hit(recalled) for recalled in results)


def _format_hit(result: Recalled) -> Text:
    message, occurrences = result.memory.message, result.memory.occurrences
    details = [message.name or message.role]
    if occurrences:
        latest = occurrences[-1]
        session = f"session {latest.session}" if latest.session else ""
        details = [format_time(latest.created_at), session, *details]
    if len(occurrences) > 1:
        details.append(f"said {len(occurrences)} times")
    text = Text.assemble((f"{result.score:.2f}", "bold green"))
    for detail in filter(None, details):
        text.append(f" · {one_line(detail)}", "dim")
    return text.append(f"\n{escape_control_chars(message.text)}")
