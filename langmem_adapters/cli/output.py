"""Files that commands write: complete ones, which replace nothing that is needed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from langmem_adapters.cli.commands import is_store_file
from langmem_adapters.cli.terminal import progress
from langmem_adapters.errors import ConfigurationError
from langmem_adapters.settings import Settings


def check_output(settings: Settings, path: Path, content_name: str, *, source: Path | None = None) -> None:
    """Raise ConfigurationError if no file can be written there, or if it would replace the store or the source."""
    if is_store_file(settings, path):
        raise ConfigurationError(f"{path} is the store itself: give {content_name} a file of its own")
    if source is not None and path.exists() and path.samefile(source):
        raise ConfigurationError(f"{path} is the file that is read: give {content_name} a file of its own")
    path = Path(os.path.realpath(path))
    if path.exists() and not path.is_file():
        raise ConfigurationError(f"{path} is not a file that can be replaced")
    if not path.parent.is_dir():
        raise ConfigurationError(f"{path.parent} is no folder: make it first")


def replace_file(path: Path, lines: Iterable[bytes]) -> None:
    """Write beside the file and rename, so that there is never half of one."""
    path = Path(os.path.realpath(path))  # follows a link, so that the link stays
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".langmem-")  # the name itself may be the longest
    try:
        with progress() as bar, os.fdopen(descriptor, "wb") as file:
            for line in bar.track(lines, description="exporting"):
                file.write(line)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)  # an interrupt may come just after the rename
        raise
