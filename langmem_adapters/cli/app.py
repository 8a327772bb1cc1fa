"""The command line, ``langmem-adapters``: imports, sessions, recall, export, upkeep, and a demo that needs no key."""

from __future__ import annotations

import functools
import io
import json
import signal
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated

from langmem_adapters import __version__, evaluation
from langmem_adapters.brain import BrainMemory
from langmem_adapters.conversation.log import brain_namespace
from langmem_adapters.errors import ConfigurationError, MissingDependency
from langmem_adapters.flow import run
from langmem_adapters.importing import FileFormat, Transcript, read_transcripts
from langmem_adapters.longterm import longterm_namespace
from langmem_adapters.model import Scope
from langmem_adapters.operations import Checkup
from langmem_adapters.progress import Bar, advancing
from langmem_adapters.settings import Settings
from langmem_adapters.views.plain import escape_control_chars

try:
    import rich  # noqa: F401 - only to say clearly that it is missing
    import typer
except ImportError as error:
    _missing = MissingDependency("typer", "cli")
    if Path(sys.argv[0]).stem == "langmem-adapters":  # it imports this module before it could catch anything
        sys.stderr.write(f"{_missing}\n")
        sys.exit(2)
    raise _missing from error

from langmem_adapters.cli.commands import (
    Commands,
    Json,
    Tenant,
    Url,
    User,
    as_typed,
    check_not_encrypted,
    existing_settings,
    settings_for,
    store_file,
)
from langmem_adapters.cli.output import check_output, replace_file
from langmem_adapters.cli.terminal import (
    format_counts,
    format_hits,
    format_message,
    one_line,
    progress,
    session_table,
    write,
    write_result,
)
from langmem_adapters.cli.upkeep import upkeep

_PAGE_SIZE = 500  # lines that the long-term memory takes at once

app: typer.Typer = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # they would show local variables, with what is in them
)


def _print_version(value: bool) -> None:
    if value:
        write(f"langmem_adapters {__version__}")
        raise typer.Exit


@app.callback(help="Look into the memory of LangChain, LangGraph and LlamaIndex applications.")
def _root(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Take the options that belong to no command."""


def _open_session(settings: Settings, session: str, user: str) -> BrainMemory:
    brain = settings.brain(session, user=user)
    if not (brain.count() or settings.store.get(brain_namespace(brain.scope))):
        raise ConfigurationError(f"there is no session {session!r} {_describe_scope(settings, user)}")
    return brain


def _describe_scope(settings: Settings, user: str) -> str:
    description = f"of user {user!r}" if user else "without a user"
    description += f" of tenant {settings.tenant!r}" if settings.tenant else ""
    return description if user else f"{description}; choose another user with --user"


@app.command(help="Show history, overflow, recall and cached answers with a scripted model: no key, no network.")
def demo(
    *, url: Annotated[str | None, typer.Option(help="The store. Default: a file that is removed at the end.")] = None
) -> None:
    from langmem_adapters.cli.demo import play  # noqa: PLC0415 - needs an extra that no other command needs

    if url is not None:
        play(url)
        return
    with tempfile.TemporaryDirectory(prefix="langmem-demo-") as folder:
        play(f"sqlite:///{Path(folder, 'demo.db')}")


@app.command(
    "import",
    help="Take conversations in, of this library, OpenAI, LangChain, LlamaIndex, ChatGPT, LoCoMo or MetaGPT.\n\n"
    "The whole file is checked before anything is written. Importing it again adds nothing.",
)
def import_(
    file: Annotated[Path, typer.Argument(help="The file, plain or gzipped; for MetaGPT, its folder.")],
    *,
    format_: Annotated[FileFormat, typer.Option("--format", help="The format of the file.")] = "auto",
    session: Annotated[
        str,
        typer.Option(help="The name of the session, for chat messages. Default: the file's name.", callback=as_typed),
    ] = "",
    long_term: Annotated[
        bool | None,
        typer.Option(
            "--long-term/--no-long-term",
            help="Add the messages to the long-term memory, too. Default: for LoCoMo only.",
        ),
    ] = None,
    url: Url = None,
    user: User = "",
    tenant: Tenant = None,
) -> None:
    settings = settings_for(url, tenant)
    transcripts = read_transcripts(file, format_=format_, session=session)
    if user and any(transcript.user is not None for transcript in transcripts):
        raise ConfigurationError("a LoCoMo file makes each conversation a user: leave --user out")
    check_not_encrypted(settings)
    total_count = new_count = 0
    line_count = sum(len(transcript.lines) for transcript in transcripts)
    with progress() as bar, advancing(bar, "importing", line_count, "lines") as advance:
        shared_bar = SimpleNamespace(update=advance, close=lambda: None)  # one bar for all of them
        for transcript in transcripts:
            new_count += _import_transcript(settings, transcript, user, long_term=long_term, bar=shared_bar)
            total_count += sum(line["type"] == "message" for line in transcript.lines)
    users = {transcript.user for transcript in transcripts if transcript.user is not None}
    of_users = f" of {len(users)} users ({', '.join(sorted(map(one_line, users)))})" if users else ""
    write(f"{new_count:,} of {total_count:,} messages were new, in {len(transcripts):,} sessions{of_users}.")


def _import_transcript(
    settings: Settings, transcript: Transcript, user: str, *, long_term: bool | None, bar: Bar
) -> int:
    user = transcript.user if transcript.user is not None else user
    imported = run(settings.sessions(user=user).import_flow(map(json.dumps, transcript.lines), bar))
    if long_term is None:
        long_term = transcript.user is not None  # as in LoCoMo, which names users
    if long_term:
        memory = settings.long_term(user=user, session=transcript.session)
        for start in range(0, len(transcript.lines), _PAGE_SIZE):
            page = transcript._replace(lines=transcript.lines[start : start + _PAGE_SIZE]).messages()
            memory.add(imported.as_stored(page))
            memory.flush()
    return imported.new


@app.command(help="List the sessions of a user.")
def sessions(
    *,
    limit: Annotated[int, typer.Option(min=1, help="How many sessions, those with the latest activity first.")] = 20,
    url: Url = None,
    user: User = "",
    tenant: Tenant = None,
) -> None:
    settings = existing_settings(url, tenant)
    listed = settings.sessions(user=user).list_sessions(limit)
    write(session_table(listed) if listed else f"There are no sessions {one_line(_describe_scope(settings, user))}.")


@app.command(help="Show a conversation, with its title, summary and knowledge.")
def show(
    session: Annotated[str, typer.Argument(help="The session's id.", callback=as_typed)],
    *,
    last: Annotated[int | None, typer.Option(min=1, help="Show only this many of the newest messages.")] = None,
    url: Url = None,
    user: User = "",
    tenant: Tenant = None,
) -> None:
    brain = _open_session(existing_settings(url, tenant), session, user)
    if title := brain.get_title():
        write(one_line(title), style="bold")
    if summary := brain.get_summary():
        write(f"Summary: {escape_control_chars(summary.text)}", style="italic")
    for fact in brain.get_knowledge():
        write(f"Known: {escape_control_chars(fact.text)}", style="italic")
    for message in brain.messages(last):
        write(format_message(message))


@app.command(help="Search the long-term memory of a user.")
def recall(
    question: Annotated[str, typer.Argument(help="What to look for.", callback=as_typed)],
    *,
    k: Annotated[
        int | None,
        typer.Option("-k", min=1, help="How many results at the most. Default: LANGMEM_SIMILARITY_TOP_K, or 5."),
    ] = None,
    session: Annotated[str, typer.Option(help="Whose memory to search, if there is no user.", callback=as_typed)] = "",
    url: Url = None,
    user: User = "",
    tenant: Tenant = None,
) -> None:
    if not (user or session):
        raise ConfigurationError("say whose memory to search: give --user, or --session if there is no user")
    settings = existing_settings(url, tenant)
    scope = Scope(tenant=settings.tenant, user=user, session=session)
    if not settings.store.scan(longterm_namespace(scope), limit=0).total:
        write(
            f"There are no memories of {one_line(repr(user or session))}: what is said becomes one once it has left its"
            " session's window, and what is imported with --long-term."
        )
        return
    results = settings.long_term(user=user, session=session).search(question, k)
    write(format_hits(results) if results else "Nothing was found.")


@app.command("eval", help="Measure how well the long-term memory finds what your questions ask for.")
def eval_(
    file: Annotated[Path, typer.Argument(help="Questions and what answers them: JSON, JSON Lines, or LoCoMo.")],
    *,
    fit: Annotated[bool, typer.Option("--fit", help="Look for better weights, and say whether they help.")] = False,
    save: Annotated[Path | None, typer.Option(help="With --fit: write the weights that changed, as JSON.")] = None,
    url: Url = None,
    user: User = "",
    tenant: Tenant = None,
) -> None:
    if save is not None and not fit:
        raise ConfigurationError("--save writes the weights that --fit finds: give it --fit, too")
    settings, questions = existing_settings(url, tenant), evaluation.read_questions(file)
    if save:
        check_output(settings, save, "the weights", source=file)
    memory_of = functools.cache(lambda name: settings.long_term(user=name or user))
    report = evaluation.evaluate(memory_of, questions)
    recall = ", ".join(f"recall@{k} {100 * share:.1f} %" for k, share in report.recall.items())
    write(f"{report.questions} questions: {recall}, MRR {report.mrr:.3f}, {report.p50:.1f} ms each")
    if report.unknown:
        write(f"{report.unknown} answers are in no memory, and count as not found")
    if fit:
        fitted = evaluation.fit(memory_of, questions)
        write(f"On questions left out, {fitted.before:.4f} becomes {fitted.after:.4f}: {fitted.verdict}")
        typer.echo(json.dumps(fitted.weights))
        if save:
            replace_file(save, [json.dumps(fitted.weights, indent=2).encode()])


@app.command(help="Write sessions as JSON Lines, as the command import reads them.")
def export(
    session: Annotated[
        str | None, typer.Argument(help="The session's id. Default: all of the user.", callback=as_typed)
    ] = None,
    *,
    output: Annotated[Path | None, typer.Option(help="The file to write. Default: standard output.")] = None,
    url: Url = None,
    user: User = "",
    tenant: Tenant = None,
) -> None:
    settings = existing_settings(url, tenant)
    if session is not None:
        _open_session(settings, session, user)
    elif not settings.sessions(user=user).count():  # a mistyped user must not replace a good backup by nothing
        raise ConfigurationError(f"there are no sessions {_describe_scope(settings, user)}")
    lines = settings.sessions(user=user).export(session)
    if output is None:
        for line in lines:
            typer.echo(line, nl=False)
    else:
        check_output(settings, output, "the export")
        replace_file(output, lines)


@app.command(help="Count what is kept of a user, or all that is in the store.")
def stats(
    *,
    all_: Annotated[bool, typer.Option("--all", help="Count the whole store, by kind, instead of one user.")] = False,
    as_json: Json = False,
    url: Url = None,
    user: User = "",
    tenant: Tenant = None,
) -> None:
    settings = existing_settings(url, tenant)
    counts = _store_counts(settings) if all_ else _user_counts(settings, user)
    write_result(counts, format_counts(counts), as_json=as_json)


def _user_counts(settings: Settings, user: str) -> dict[str, int]:
    listed = settings.sessions(user=user).list_sessions(limit=None)
    counts = {"sessions": len(listed), "messages": sum(info.messages for info in listed)}
    counts["memories"] = sum(
        settings.long_term(user=user, session=name).count() for name in _memory_sessions(settings, user)
    )
    pool_prefix = ("experience", settings.tenant, user)
    for *parent, tag in settings.store.namespaces(pool_prefix):
        if tuple(parent) == pool_prefix:  # what lies below a pool serves it
            counts[f"experiences of {tag!r}"] = settings.experiences(tag, user=user).count()
    if store_file(settings):
        counts["bytes on disk"] = Checkup(settings.store).stats().size or 0
    return counts


def _store_counts(settings: Settings) -> dict[str, int]:
    report = Checkup(settings.store).stats()
    counts = {}
    for kind, kind_stats in report.kinds.items():
        counts[f"namespaces of {kind!r}"] = kind_stats.namespaces
        counts[f"entries of {kind!r}"] = kind_stats.entries
        counts[f"expiring of {kind!r}"] = kind_stats.expiring
    totals = {"keys": report.keys, "bytes": report.size, "bytes at the most": report.limit}
    return counts | {name: count for name, count in totals.items() if count is not None}


def _memory_sessions(settings: Settings, user: str) -> list[str]:
    """The sessions that have a long-term memory of their own; a user's memories are in one."""
    return [""] if user else [name[-1] for name in settings.store.namespaces(("longterm", settings.tenant, ""))]


app.add_typer(upkeep)


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # stored text may hold what no code page of Windows has
            stream.reconfigure(errors="backslashreplace")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no half of an export is left behind
    app(prog_name="langmem-adapters")
