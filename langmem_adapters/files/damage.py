"""Damaged files of indexes: told in one sentence, and removed by the next clearing if they can be rebuilt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from langmem_adapters.concurrency.locks import ForkSafeLock
from langmem_adapters.errors import Conflict, LangmemError, SearchError, StoreError, StoreUnavailable
from langmem_adapters.files.locations import FILE_SUFFIXES, FileLocation, file_state, path_to_show
from langmem_adapters.files.sqlite_errors import is_damage

_VALUE_ERRORS = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError)
"""What reading rows raises if their values are damaged, and not the structure of the file, which SQLite checks."""

_removal_lock = ForkSafeLock()


@contextmanager
def search_errors(index: str, location: FileLocation) -> Iterator[None]:
    """Turn what the reading and writing of an index's file raises into SearchErrors, and note damage."""
    try:
        yield
    except Conflict:
        raise
    except StoreError as error:
        location.is_damaged |= is_damage(error)
        raise SearchError(f"the {index} index failed: {error}") from error
    except LangmemError:
        raise
    except _VALUE_ERRORS as error:
        if location.in_memory:
            raise
        location.is_damaged = True
        raise SearchError(
            f"the {index} index failed: {path_to_show(location.path)} holds damaged values: clear or rebuild the index"
        ) from error


@contextmanager
def removing_if_damaged(location: FileLocation, close: Callable[[], None], *, disposable: bool) -> Iterator[None]:
    """Wrap the clearing of something: if its file is damaged and ``disposable``, close and remove the file.

    Damage that was met before counts too, as the clearing may not meet it. A file that another process has replaced
    meanwhile stays.
    """
    before = file_state(location)
    try:
        yield
    except StoreError as error:
        if not disposable or not is_damage(error):
            raise
    else:
        if not (disposable and location.is_damaged):
            return
        before = file_state(location)
    with _removal_lock.held():
        if file_state(location) != before:
            return
        close()
        try:
            for suffix in FILE_SUFFIXES:
                Path(f"{location.file}{suffix}").unlink(missing_ok=True)
        except OSError as failure:  # as on Windows, where another process has it open
            raise StoreUnavailable(
                f"{location.path} is damaged, and cannot be removed ({failure.strerror}): end whatever has it open"
            ) from failure
        location.is_damaged = False
