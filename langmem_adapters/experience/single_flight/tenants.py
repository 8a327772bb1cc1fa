"""The tenants of a model cache: a fixed one, or the one that is being served."""

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
from langmem_adapters.validation import check_sync_function, id_text

Tenant: TypeAlias = str | ContextVar[Any] | Callable[[], object]
"""An id; or a context variable or function that returns the id of the tenant that is being served.

A function may raise LookupError if there is none.
"""

K = TypeVar("K")
L = TypeVar("L")

_MAX_TENANTS = 256  # most recent tenants whose objects, with their calls under way, are kept


class Tenants(Shared, Generic[K]):
    """One object for each tenant, such as its cached answers.

    Args:
        tenant: The tenant, or how to find it.
        make: Makes the object of a tenant.
        counts: Where calls that "bypassed" the cache are counted.
        strict: Whether calls without a tenant have no object; False: they share one.
    """

    def __init__(self, tenant: Tenant, make: Callable[[str], K], *, counts: Counts, strict: bool = True) -> None:
        if not isinstance(tenant, str | ContextVar):
            if not callable(tenant):
                kind = type(tenant).__name__
                raise ConfigurationError(
                    f"a tenant is a text, a context variable or a function without arguments, not {kind}"
                )
            check_sync_function("tenant", tenant)
        self._tenant = tenant
        self._make = make
        self._counts = counts
        self._strict = strict
        self._lock = ForkSafeLock()
        self._objects_by_tenant: LRU[str, K] = LRU(_MAX_TENANTS)
        self._fixed_id = tenant if isinstance(tenant, str) else ""
        self.default = make(self._fixed_id)
        """The object of the only tenant, or of calls without a tenant."""
        self._fixed_object = self.default if isinstance(tenant, str) else None

    def current(self) -> K | None:
        """The object of the tenant that is being served; None, if there is no tenant and the cache is strict."""
        if self._fixed_object is not None:
            return self._fixed_object
        source: object = self._tenant
        if isinstance(source, ContextVar):
            source = source.get(None)
        elif callable(source):
            try:
                source = source()
            except LookupError:  # as from a context variable that is not set, or a configuration without the key
                source = None
        tenant = id_text("tenant", source)
        return None if self._strict and not tenant else self.get(tenant)

    def current_for_call(self) -> K | None:
        """:meth:`current` for a call; counts it as bypassed if there is no object."""
        if self._fixed_object is not None:  # here too, as a repeated hit is that short
            return self._fixed_object
        if (current := self.current()) is None:
            self._counts.add("bypassed")
        return current

    def require_current(self) -> K:
        """:meth:`current`. Raises ConfigurationError if there is no object."""
        current = self.current()
        if current is None:
            raise ConfigurationError("no tenant is set, and the cache is strict: set the tenant before you use it")
        return current

    def get(self, tenant: str) -> K:
        """The object of this tenant."""
        if tenant == self._fixed_id:
            return self.default
        with no_fork, self._lock.held():
            return self._objects_by_tenant.get_or_make(tenant, lambda: self._make(tenant))

    def with_same(self, make: Callable[[str], L]) -> Tenants[L]:
        """Tenants that are found in the same way, with other objects."""
        return Tenants(self._tenant, make, counts=self._counts, strict=self._strict)
