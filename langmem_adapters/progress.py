"""Progress, shown where somebody asks for it: as a bar, or told to a function."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol, TypeAlias

from langmem_adapters.annotations import signature_of
from langmem_adapters.errors import ConfigurationError, MissingDependency

__all__ = ["Bar", "Progress", "Tasks", "advancing"]


class Bar(Protocol):
    """What moves on, and ends: ``tqdm.tqdm`` makes such ones."""

    def update(self, n: int, /) -> object:
        """Say that so much more is done."""

    def close(self) -> object:
        """Say that no more will come."""


class Tasks(Protocol):
    """What shows several tasks at once, as ``rich.progress.Progress`` does."""

    def add_task(self, description: str, /, *, total: float | None) -> Any:
        """Begin one; gives what it is known by."""

    def advance(self, task: Any, n: float, /) -> object:
        """Say that so much more of it is done."""


Progress: TypeAlias = bool | Bar | Tasks | Callable[..., Any]
"""How progress is shown.

False, the default everywhere: not at all. True: as a bar of text on the standard error stream, in a terminal and in a
notebook, with or without ipywidgets (needs tqdm, which the extra ``notebook`` has). Or of your own: a class or function
that makes bars as ``tqdm.tqdm`` does, given ``desc``, ``total`` (None: not known) and ``unit``; a bar that is there
already and is left open, such as ``tqdm(...)`` or a ``rich.progress.Progress``; or a function of how much is done and
how much there is in all.
"""


class _Shown(NamedTuple):
    advance: Callable[[int], object]
    close: Callable[[], object] = lambda: None


@contextmanager
def advancing(
    progress: Progress, what: str, total: int | None, unit: str, *, report: Callable[[int], object] | None = None
) -> Iterator[Callable[[int], None]]:
    """Show how a task goes on, by what is called with how much more is done; the bar ends with the task, or its error.

    Args:
        progress: See :data:`Progress`.
        what: The task, such as "importing".
        total: How much there is to do; None: not known.
        unit: Of what, such as "messages".
        report: Is told the same.

    Raises ConfigurationError where ``progress`` is nothing of all that, and MissingDependency.

    >>> with advancing(lambda done, total: print(done, "of", total), "importing", 3, "messages") as advance:
    ...     advance(1)
    ...     advance(2)
    1 of 3
    3 of 3
    """
    shown = _begun(progress, what, total, unit)

    def advance(count: int) -> None:
        if report is not None:
            report(count)
        shown.advance(count)

    try:
        yield advance
    finally:
        shown.close()


def _begun(progress: Any, what: str, total: int | None, unit: str) -> _Shown:
    if progress is False or progress is None:
        return _Shown(lambda _: None)
    if hasattr(progress, "add_task") and hasattr(progress, "advance"):
        task = progress.add_task(what, total=total)
        return _Shown(lambda count: progress.advance(task, count))
    if _is_bar(progress) and not inspect.isclass(progress):
        return _Shown(progress.update)
    make = _drawn() if progress is True else progress
    if not callable(make):
        raise _unknown(progress)
    if _takes(make, desc=what, total=total, unit=unit):
        bar = make(desc=what, total=total, unit=f" {unit}")  # which tqdm writes behind a number
        if not _is_bar(bar):
            raise _unknown(progress)
        return _Shown(bar.update, bar.close)
    if not _takes(make, 0, total):
        raise _unknown(progress)
    return _Shown(_counting(make, total))


def _drawn() -> Callable[..., Any]:
    """The bar of text: the others of tqdm want ipywidgets, warn without them, and are not seen where code is hosted."""
    try:
        return importlib.import_module("tqdm.std").tqdm  # type: ignore[no-any-return]
    except ImportError as error:
        raise MissingDependency("tqdm", "notebook") from error


def _is_bar(thing: Any) -> bool:
    return callable(getattr(thing, "update", None)) and callable(getattr(thing, "close", None))


def _takes(call: Callable[..., Any], *args: Any, **kwargs: Any) -> bool:
    try:
        signature_of(call).bind(*args, **kwargs)
    except TypeError:
        return False
    except ValueError:  # one of C, which does not tell its arguments
        return not kwargs
    return True


def _counting(tell: Callable[[int, int | None], object], total: int | None) -> Callable[[int], None]:
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        tell(done, total)

    return advance


def _unknown(progress: object) -> ConfigurationError:
    return ConfigurationError(
        "progress is True or False, a bar as tqdm's, what makes one, or a function of what is done and of the total,"
        f" not {type(progress).__name__}"
    )
