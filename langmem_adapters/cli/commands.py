"""What all commands share: the application, its common options, and how it reports errors."""

from __future__ import annotations

import os
import sys
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from langmem_adapters.cli.terminal import ERR, one_line, write
from langmem_adapters.codec import refuse_sealed_or_newer
from langmem_adapters.errors import ConfigurationError, LangmemError, StoreUnavailable
from langmem_adapters.files.locations import FILE_SUFFIXES
from langmem_adapters.files.urls import file_of
from langmem_adapters.settings import Settings
from langmem_adapters.text import decode_escaped_utf8


class Commands(TyperGroup):
    """Reports an error in one sentence, and exits with code 2."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Read the arguments, and run a command."""
        try:
            return super().main(*args, **kwargs)
        except LangmemError as error:
            _fail(str(error))
        except OSError as error:
            name = error.filename2 or error.filename  # the former is set if a file was to replace another
            reason = error.strerror or str(error)
            _fail(f"{name}: {reason}" if name else reason)


def _fail(sentence: str) -> NoReturn:
    write(one_line(sentence), style="red", console=ERR)
    sys.exit(2)


Url = Annotated[
    str | None,
    typer.Option(help="The store, such as sqlite:///file.db. Default: LANGMEM_STORE_URL, REDIS_URL, langmem.db here."),
]


def as_typed(value: str | None) -> str | None:
    """The callback of each argument that is a text, and no path: what was typed, whatever the locale."""
    return None if value is None else decode_escaped_utf8(value)


User = Annotated[str, typer.Option(help="The user whose memory it is. Default: none.", callback=as_typed)]
Tenant = Annotated[str | None, typer.Option(help="The tenant. Default: LANGMEM_TENANT.", callback=as_typed)]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, for scripts.")]


def settings_for(url: str | None, tenant: str | None) -> Settings:
    """Settings for a command that may create the file it writes to."""
    options = {name: value for name, value in {"url": url, "tenant": tenant}.items() if value is not None}
    settings = Settings(**options)
    if settings.url.startswith("memory:"):
        raise ConfigurationError('"memory:" is lost when the command ends: give the URL of a file or a server')
    return settings


def existing_settings(url: str | None, tenant: str | None) -> Settings:
    """Settings for a command that reads, and must not create the file it looks for."""
    settings = settings_for(url, tenant)
    path = store_file(settings)
    if path is not None and not path.exists():
        raise StoreUnavailable(f"there is no file {path} yet: give the URL of the store where the memory is")
    return settings


def check_not_encrypted(settings: Settings) -> None:
    """Raise SerializationError if what is kept is encrypted: a command would write beside it as plain text.

    The tenant's own sessions and memories decide; if there are none, those of other tenants.
    """
    store = settings.store
    prefixes = [(kind, *tenant) for tenant in ((settings.tenant,), ()) for kind in ("brain", "longterm")]
    for namespace in islice(chain.from_iterable(map(store.namespaces, prefixes)), 1):
        values = [item.data for item in store.scan(namespace, limit=1, reverse=True).items]
        for data in values or store.get(namespace).values():
            refuse_sealed_or_newer(data, "what is kept here")


def store_file(settings: Settings) -> Path | None:
    """The file of an SQLite store; None for any other store."""
    return file_of(settings.url)[0] if settings.url.startswith("sqlite:") else None


def is_store_file(settings: Settings, path: Path | None) -> bool:
    """Whether this path is a file of an SQLite store, also by a link, or because ``A.db`` is ``a.db`` here."""
    own_path = store_file(settings)
    if own_path is None or path is None:
        return False
    own_file = os.path.realpath(own_path)
    own_files = [Path(f"{own_file}{suffix}") for suffix in FILE_SUFFIXES]
    return Path(os.path.realpath(path)) in own_files or (
        path.exists() and any(own.exists() and own.samefile(path) for own in own_files)
    )
