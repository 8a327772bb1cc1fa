"""FunctionCache: the cache of a decorated function, to look up, invalidate and count."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, NoReturn, ParamSpec, Protocol, TypeVar, overload, runtime_checkable

from langmem_adapters import views
from langmem_adapters.errors import ConfigurationError
from langmem_adapters.experience.functions.calls import Calls
from langmem_adapters.experience.pool import ExperiencePool
from langmem_adapters.experience.savings import Saved
from langmem_adapters.flow import arun, run
from langmem_adapters.model import Experience
from langmem_adapters.sharing import Shared

P = ParamSpec("P")
Q = ParamSpec("Q")
S = TypeVar("S")
S_contra = TypeVar("S_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)

if TYPE_CHECKING:  # older versions of typing_extensions take no such default
    import typing_extensions

    A = typing_extensions.ParamSpec("A", default=...)
else:
    A = ParamSpec("A")

_COUNT_NAMES = ("hits", "misses", "shared", "rejected", "stored", "refused", "errors")


class FunctionCache(Shared, Generic[A]):
    """The cache of one function, its attribute ``cache``. Made by :func:`langmem_adapters.cached`."""

    def __init__(self, calls: Calls) -> None:
        self.calls: Calls = calls
        self._name = calls.arguments.name

    @property
    def pool(self) -> ExperiencePool:
        """The pool with the results: to clear and export it, and to see what its hits have saved."""
        return self.calls.pool

    def lookup(self, *args: A.args, **kwargs: A.kwargs) -> Experience | None:
        """The experience of a call with these arguments; None, if there is none.

        The ``self`` of a method is left out, unless the ``key`` of :func:`~langmem_adapters.cached` reads it.
        """
        return run(self.pool.lookup_flow(self.calls.arguments.call_key(args, kwargs)))

    async def alookup(self, *args: A.args, **kwargs: A.kwargs) -> Experience | None:
        """:meth:`lookup`, without blocking the event loop."""
        return await arun(self.pool.lookup_flow(self.calls.arguments.call_key(args, kwargs)))

    def invalidate(self, *args: A.args, **kwargs: A.kwargs) -> bool:
        """Delete the result of a call with these arguments, given as for :meth:`lookup`; False, if none is kept."""
        return self.pool.delete(key=self.calls.arguments.call_key(args, kwargs))

    async def ainvalidate(self, *args: A.args, **kwargs: A.kwargs) -> bool:
        """:meth:`invalidate`, without blocking the event loop."""
        return await self.pool.adelete(key=self.calls.arguments.call_key(args, kwargs))

    def stats(self) -> dict[str, Any]:
        """Counts of this object.

        hits; misses; shared: hits from a concurrent call; rejected: by the judge; stored; refused: results not kept, as
        they would not come back equal or should_store said no; errors: of the store or of a policy; scored; unscored:
        the scorer failed or was too slow; saved_seconds, saved_tokens, saved_money: what the hits have saved.
        """
        calls = self.calls
        was_asked = calls.counts["hits"] or calls.counts["misses"]
        saved = calls.pool.saved() if was_asked else Saved()
        counts: dict[str, Any] = {name: calls.counts[name] for name in _COUNT_NAMES}
        return views.Figures(counts | calls.scoring.stats() | saved.as_stats(), title=f"Cache of {self._name}")

    def flush(self) -> None:
        """Wait for the scores that are being made in the background."""
        self.calls.scoring.flush()

    async def aflush(self) -> None:
        """:meth:`flush`, without blocking the event loop; also waits for scores that are made on it."""
        await self.calls.scoring.aflush()

    def __reduce__(self) -> NoReturn:
        raise ConfigurationError(
            f"{self._name} is decorated by @cached and cannot be pickled with its cache:"
            " define it in a module that the other process imports"
        )

    def __repr__(self) -> str:
        return f"FunctionCache({self._name})"

    def _repr_html_(self) -> str:
        return views.render_safely(self, lambda: views.statistics(self.stats(), title=f"Cache of {self._name}"))


class _Method(Protocol[S_contra, Q, R_co]):
    def __call__(self, instance: S_contra, /, *args: Q.args, **kwargs: Q.kwargs) -> R_co: ...


@runtime_checkable
class CachedFunction(Protocol[P, R_co]):
    """A decorated function, for type checkers; at run time it is a plain function or a coroutine function."""

    __name__: str
    __qualname__: str

    @property
    def __wrapped__(self) -> Callable[..., R_co]: ...
    @property
    def cache(self) -> FunctionCache[P]:
        """The cache of the function."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Serve a cached result, or call the function."""

    # Accessed on the class, a class method looks like a plain one to type checkers: so parameters stay open there.
    @overload
    def __get__(self, instance: None, owner: type, /) -> CachedFunction[..., R_co]: ...
    @overload
    def __get__(self: _Method[S, Q, R_co], instance: S, owner: type | None = None, /) -> CachedFunction[Q, R_co]: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None, /) -> CachedFunction[..., R_co]: ...
