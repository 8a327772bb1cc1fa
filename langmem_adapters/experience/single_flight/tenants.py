"""Whose answers a cache of models is asked for: those of one tenant, or of whoever is being served."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Generic, TypeAlias, TypeVar

from langmem_adapters.concurrency.counts import Counts
from langmem_adapters.concurrency.forks import no_fork
from langmem_adapters.concurrency.locks import ForkSafeLock
from langmem_adapters.errors import ConfigurationError
from langmem_adapters.lru import LRU
from langmem_adapters.sharing import Shared
from langmem_adapters.validation import check_plain, id_of

__all__ = ["Tenant", "Tenants"]

Tenant: TypeAlias = str | ContextVar[Any] | Callable[[], object]
"""An id; or what gives that of whoever is being served: a context variable, or a function.

A function that raises a LookupError has found none.
"""

K = TypeVar("K")
L = TypeVar("L")

_LATEST = 256  # tenants, whose calls in the air are kept


class Tenants(Shared, Generic[K]):
    """What is kept of each tenant.

    Args:
        tenant: Whose.
        make: Gives what is kept of a tenant.
        counts: Where it is counted which calls were "bypassed".
        strict: Whether there is nothing where none is found; else what all such calls share.
    """

    def __init__(self, tenant: Tenant, make: Callable[[str], K], *, counts: Counts, strict: bool = True) -> None:
        if not isinstance(tenant, str | ContextVar):
            if not callable(tenant):
                kind = type(tenant).__name__
                raise ConfigurationError(
                    f"a tenant is a text, a context variable or a function without arguments, not {kind}"
                )
            check_plain("tenant", tenant)
        self._tenant = tenant
        self._make = make
        self._counts = counts
        self._strict = strict
        self._lock = ForkSafeLock()
        self._latest: LRU[str, K] = LRU(_LATEST)
        self._id = tenant if isinstance(tenant, str) else ""
        self.nobody = make(self._id)
        """That of the only tenant, or of no tenant."""
        self._only = self.nobody if isinstance(tenant, str) else None

    def here(self) -> K | None:
        """What is kept of who is being served; None, where a strict cache has nothing for nobody."""
        return self._found() if self._only is None else self._only

    def served(self) -> K | None:
        """:meth:`here`, for a call, which is counted where it goes past the cache."""
        found = self.here()
        if found is None:
            self._counts.add("bypassed")
        return found

    def named(self) -> K:
        """:meth:`here`. Raises ConfigurationError, where there is nothing."""
        found = self.here()
        if found is None:
            raise ConfigurationError("whose answers? No tenant is being served here, and the cache is strict")
        return found

    def of(self, tenant: str) -> K:
        """What is kept of this tenant."""
        if tenant == self._id:
            return self.nobody
        with no_fork, self._lock.held():
            return self._latest.get_or_make(tenant, lambda: self._make(tenant))

    def with_same(self, make: Callable[[str], L]) -> Tenants[L]:
        """Something else of the same tenants."""
        return Tenants(self._tenant, make, counts=self._counts, strict=self._strict)

    def _found(self) -> K | None:
        given: object = self._tenant
        if isinstance(given, ContextVar):
            given = given.get(None)
        elif callable(given):
            try:
                given = given()
            except LookupError:  # of a context variable that was not set, of a configuration without this
                given = None
        tenant = id_of("tenant", given)
        return None if self._strict and not tenant else self.of(tenant)
