"""The commands that look after a store: health, doctor, watch, prune, delete-user, migrate, vacuum."""

from __future__ import annotations

import re
import sys
import time
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.live import Live
from rich.text import Text

from langmem_adapters.cli.commands import (
    Json,
    Tenant,
    Url,
    User,
    as_typed,
    existing_settings,
    is_store_file,
    settings_for,
    store_file,
)
from langmem_adapters.cli.terminal import (
    ERR,
    OUT,
    format_counts,
    format_findings,
    is_live,
    one_line,
    progress,
    store_overview,
    write,
    write_result,
)
from langmem_adapters.errors import ConfigurationError, StoreError
from langmem_adapters.files.scrubbing import files_of
from langmem_adapters.flow import run
from langmem_adapters.inspection import StoreStats, unwrap
from langmem_adapters.keys import fingerprint
from langmem_adapters.operations import Checkup, Migration, Pruning
from langmem_adapters.progress import advancing
from langmem_adapters.protection import every_index
from langmem_adapters.protocols import Index
from langmem_adapters.settings import Settings
from langmem_adapters.validation import check_seconds

_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_INDEXED_KINDS = ("memories", "experiences", "items")  # kinds whose words an index file beside a server may hold
_OTHER_INDEXES_HINT = (
    "This directory has no index of this server. Directories where applications search have one, with words of this"
    " user: run this command there too, or remove langmem-*-index.db."
)
_STATS_MAX_AGE_SECONDS = 30.0  # for which the figures of a watched store are kept, as counting reads all of its names

upkeep: typer.Typer = typer.Typer()


@upkeep.command(help="Say whether the store answers: exit code 0, or else 2. Redis is asked with PING alone.")
def health(*, as_json: Json = False, url: Url = None) -> None:
    settings = settings_for(url, None)
    result = Checkup(settings.store).health()
    if not (result.ok or as_json):
        raise StoreError(result.problem)
    text = f"{one_line(result.address)} answers in {1000 * result.seconds:.1f} ms"
    write_result(result._asdict(), text, as_json=as_json)
    if not result.ok:
        raise typer.Exit(2)


@upkeep.command(
    help="Look for what is wrong with the store, and say what to do: exit code 1, if there is a problem.\n\n"
    "Reads all of it, and writes one throw-away namespace.",
)
def doctor(*, as_json: Json = False, url: Url = None) -> None:
    settings = existing_settings(url, None)
    index = settings.index if _has_file(settings.index) else None
    checkup = Checkup(settings.store, index=index, ttl=settings.ttl)
    findings = checkup.examine()
    write_result([finding._asdict() for finding in findings], format_findings(findings), as_json=as_json)
    if any(finding.level == "problem" for finding in findings):
        raise typer.Exit(1)


def _has_file(index: Index) -> bool:
    """Whether an index has a file already: looking must not create one."""
    return bool(files_of(index).databases)


@upkeep.command(help="Show the store and its latest sessions as they change, until Ctrl-C.")
def watch(
    *,
    every: Annotated[float, typer.Option(min=0.1, max=86_400, help="Seconds between two updates.")] = 2.0,
    once: Annotated[
        bool, typer.Option("--once", help="Show the store once, which is the default if the output is not a terminal.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, help="How many sessions, the latest first.")] = 10,
    url: Url = None,
    user: User = "",
    tenant: Tenant = None,
) -> None:
    check_seconds("--every", every)  # typer 0.26 lets NaN through
    view = _StoreView(existing_settings(url, tenant), user, limit)
    if once or not is_live(OUT):
        write(view.render())
        if view.problem:
            raise typer.Exit(1)
        return
    try:
        with Live(view.render(), console=OUT, auto_refresh=False) as live:
            while True:
                time.sleep(every)
                live.update(view.render(), refresh=True)
    except KeyboardInterrupt:
        pass


class _StoreView:
    """The view of a store at a moment; an outage is shown, and does not end it."""

    def __init__(self, settings: Settings, user: str, limit: int) -> None:
        self._checkup = Checkup(settings.store)
        self._sessions = settings.sessions(user=user)
        self._limit = limit
        self._stats: StoreStats | None = None
        self._counted_at = 0.0
        self.problem = ""

    def render(self) -> RenderableType:
        report = self._checkup.health()
        self.problem = report.problem
        if report.ok:
            try:
                if self._stats is None or time.monotonic() - self._counted_at > _STATS_MAX_AGE_SECONDS:
                    self._stats, self._counted_at = self._checkup.stats(), time.monotonic()
                return store_overview(report, self._stats, self._sessions.list_sessions(self._limit))
            except StoreError as error:
                self.problem = str(error)
        return Text(one_line(self.problem), "bold red")


@upkeep.command(
    help="Remove sessions and working memories that nobody has written to for long, and what indexes have of expired"
    " ones.\n\n"
    "Of experiences and cached answers, those pools go in which everything has expired."
    " Long-term memories of users stay.",
)
def prune(
    *,
    older_than: Annotated[
        str, typer.Option(help="Remove what had no write for this long: a number and s, m, h, d or w.")
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count what would be removed, and remove nothing.")
    ] = False,
    as_json: Json = False,
    url: Url = None,
    user: Annotated[
        str | None, typer.Option(help="Only of this user. Default: everybody's.", callback=as_typed)
    ] = None,
    tenant: Annotated[
        str | None, typer.Option(help="Only of this tenant. Default: everybody's.", callback=as_typed)
    ] = None,
) -> None:
    settings = existing_settings(url, tenant)
    indexes = every_index(settings.url, codec=None, vectors=settings.vectors_url, embedder=settings.embedder)
    with progress() as bar, advancing(bar, "pruning", None, "namespaces") as advance:
        pruning = Pruning(
            settings.store,
            _parse_duration(older_than),
            user=user,
            tenant=tenant,
            indexes=[index for index in indexes if _has_file(index)],
            dry_run=dry_run,
            report=advance,
        )
        pruned = pruning.run()
    names = {"brain": "sessions", "longterm": "their long-term memories", "working": "working memories"}
    names |= {"experience": "pools of expired experiences", "indexed": "expired memories, from indexes"}
    counts = {names[kind]: count for kind, count in pruned.kinds.items()}
    write_result(counts, format_counts(counts) if counts else "Nothing is that old.", as_json=as_json)


def _parse_duration(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw])", text.strip())
    if not match:
        raise ConfigurationError(f"--older-than is a number and a unit, s, m, h, d or w, such as 30d; not {text!r}")
    seconds = float(match[1]) * _UNIT_SECONDS[match[2]]
    check_seconds("--older-than", seconds, or_none=False)
    return seconds


@upkeep.command(
    "delete-user",
    help="Delete all that is kept for a user, here and in this machine's indexes, with its traces. It cannot be undone."
    "\n\n"
    "After an interruption, the same command goes on.",
)
def delete_user(
    user: Annotated[str, typer.Argument(help="The user to delete.", callback=as_typed)],
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Delete without asking.")] = False,
    as_json: Json = False,
    url: Url = None,
    tenant: Tenant = None,
) -> None:
    settings = existing_settings(url, tenant)
    if not yes:
        if not sys.stdin.isatty():
            raise ConfigurationError("delete-user asks before it deletes, and nobody can answer here: add --yes")
        typer.confirm(f"Delete all that is kept for the user {one_line(repr(user))}?", abort=True, err=True)
    with progress() as bar, advancing(bar, "deleting", None, "namespaces") as advance:
        deleted = run(settings.delete_user_flow(user, report=lambda _, count: advance(count)))
    counts = {kind: count for kind, count in deleted.items() if count}
    write_result(counts, format_counts(counts) if counts else "Nothing was kept for them.", as_json=as_json)
    if any(deleted[kind] for kind in _INDEXED_KINDS) and not files_of(settings.store, settings.index).databases:
        write(_OTHER_INDEXES_HINT, console=ERR)


@upkeep.command(
    help="Copy a whole store into another one, and compare; after an interruption, the same command goes on.\n\n"
    "Exit code 1, if writers kept changing the source: stop them, and run it again.",
)
def migrate(
    from_url: Annotated[str, typer.Argument(help="The store to move from; it is not changed.")],
    to_url: Annotated[str, typer.Argument(help="The store to move to.")],
    *,
    as_json: Json = False,
) -> None:
    source, target = existing_settings(from_url, None), settings_for(to_url, None)
    if is_store_file(source, store_file(target)):
        raise ConfigurationError("a store cannot be migrated into itself: give two different URLs")
    with progress() as bar:
        name = fingerprint(repr(unwrap(source.store)))
        migrated = Migration(source.store, target.store, name=name, progress=bar).run()
    total = f"{migrated.namespaces:,} namespaces with {migrated.entries:,} entries"
    differing = len(migrated.differing)
    if differing and not as_json:
        problem = f"{differing:,} of {total} were written all the time: stop the writers and run again"
        write(problem, style="red", console=ERR)
    else:
        text = f"{total} are the same in both; {migrated.copied:,} were copied now."
        write_result(migrated._asdict(), text, as_json=as_json)
    if differing:
        raise typer.Exit(1)


@upkeep.command(help="Give the space of what was removed from a file back to the disk. Writers wait meanwhile.")
def vacuum(*, url: Url = None) -> None:
    settings = existing_settings(url, None)
    store = unwrap(settings.store)
    if not hasattr(store, "vacuum"):
        raise ConfigurationError("only a file can be vacuumed; a server looks after its memory itself")
    size_before = store.stats().size
    store.vacuum()
    write(f"{size_before:,} bytes before, {store.stats().size:,} now.")
