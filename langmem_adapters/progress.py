"""Show progress where it is wanted: as a bar, or through a function."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

from langmem_adapters.annotations import signature_of
from langmem_adapters.errors import ConfigurationError, MissingDependency
from langmem_adapters.validation import check_sync_function

__all__ = ["Bar", "Progress", "Tasks", "advancing"]


@runtime_checkable
class Bar(Protocol):
    """A progress bar, such as ``tqdm.tqdm`` makes."""

    def update(self, n: int, /) -> object:
        """Advance it."""

    def close(self) -> object:
        """End it."""


@runtime_checkable
class Tasks(Protocol):
    """A display of several tasks, such as ``rich.progress.Progress``."""

    def add_task(self, description: str, /, *, total: float | None) -> Any:
        """Begin a task; returns its id."""

    def advance(self, task: Any, n: float, /) -> object:
        """Advance a task."""


Progress: TypeAlias = bool | Bar | Tasks | Callable[..., Any]
"""How progress is shown.

False, the default everywhere: not at all. True: as a text bar on the standard error stream, in a terminal and in a
notebook, with or without ipywidgets (needs tqdm, from the extra ``notebook``). Or your own: a class or function that
makes bars as ``tqdm.tqdm`` does, called with ``desc``, ``total`` (None: unknown) and ``unit``; an existing bar, which
is left open, such as ``tqdm(...)`` or a ``rich.progress.Progress``; or a function of the amount done and the total.
"""


class _Display(NamedTuple):
    advance: Callable[[int], object]
    close: Callable[[], object] = lambda: None


@contextmanager
def advancing(progress: Progress, what: str, total: int | None, unit: str) -> Iterator[Callable[[int], object]]:
    """Show a task's progress; yields a function that takes each new amount. The bar ends with the task or its error.

    Args:
        progress: See :data:`Progress`.
        what: The task, such as "importing".
        total: How much there is to do; None: unknown.
        unit: What is counted, such as "messages".

    Raises ConfigurationError for an unknown kind of ``progress``, and MissingDependency without tqdm.

    >>> with advancing(lambda done, total: print(done, "of", total), "importing", 3, "messages") as advance:
    ...     advance(1)
    ...     advance(2)
    1 of 3
    3 of 3
    """
    display = _open_display(progress, what, total, unit)
    try:
        yield display.advance
    finally:
        display.close()


def _open_display(progress: Any, description: str, total: int | None, unit: str) -> _Display:
    if progress is False or progress is None or (progress is True and sys.stderr is None):  # as under pythonw
        return _Display(lambda _: None)
    is_class = inspect.isclass(progress)
    if hasattr(progress, "add_task") and hasattr(progress, "advance") and not is_class:
        task = progress.add_task(description, total=total)
        return _Display(lambda count: progress.advance(task, count))
    if _is_bar(progress) and not is_class:
        return _Display(progress.update)
    callback = _tqdm() if progress is True else progress
    if _accepts(callback, desc=description, total=total, unit=unit):
        bar = callback(desc=description, total=total, unit=f" {unit}")  # tqdm writes the unit behind a number
        if not _is_bar(bar):
            raise _unknown_progress(progress)
        return _Display(bar.update, bar.close)
    if is_class or not _accepts(callback, 0, total):
        raise _unknown_progress(progress)
    check_sync_function("progress", callback)
    return _Display(_cumulative(callback, total))


def _tqdm() -> Callable[..., Any]:
    """The text bar of tqdm: its other bars want ipywidgets, warn without them, and do not show in hosted notebooks."""
    try:
        return importlib.import_module("tqdm.std").tqdm  # type: ignore[no-any-return]
    except ImportError as error:
        raise MissingDependency("tqdm", "notebook") from error


def _is_bar(value: Any) -> bool:
    return callable(getattr(value, "update", None)) and callable(getattr(value, "close", None))


def _accepts(function: Callable[..., Any], *args: Any, **kwargs: Any) -> bool:
    try:
        signature_of(function).bind(*args, **kwargs)
    except TypeError:
        return False
    except ValueError:  # a C function that does not tell its arguments
        return not kwargs
    return True


def _cumulative(report: Callable[[int, int | None], object], total: int | None) -> Callable[[int], None]:
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        report(done, total)

    return advance


def _unknown_progress(progress: object) -> ConfigurationError:
    return ConfigurationError(
        "progress is True or False, a bar as tqdm's, what makes one, or a function of what is done and of the total,"
        f" not {type(progress).__name__}"
    )
