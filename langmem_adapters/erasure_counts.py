"""Count what a namespace holds of a user who is deleted."""

from __future__ import annotations

from collections import Counter

from langmem_adapters.conversation.log import ARCHIVE
from langmem_adapters.conversation.session import KNOWLEDGE
from langmem_adapters.conversation.stored_summary import SUMMARY
from langmem_adapters.flow import Flow, step
from langmem_adapters.keys import Namespace
from langmem_adapters.protocols import Store

_POOL_LENGTH = 4  # parts of a pool's namespace


def count_entries(store: Store, namespace: Namespace) -> Flow[Counter[str]]:
    """Count what a namespace of the store holds, by keys alone, since values may be encrypted."""
    kind = namespace[0]
    if kind == "working":
        return Counter(working=(yield from step(store.scan, namespace, limit=0)).total)
    keys = [*(yield from step(store.get, namespace))]  # without the values, as several namespaces are read at once
    if kind == "longterm":
        return Counter(memories=sum("\0" not in key for key in keys))  # keys with a NUL are marks
    if kind == "experience":
        # Keys with a NUL are a pool's marks; the namespaces below a pool's serve its entries.
        entries = sum("\0" not in key for key in keys)
        if len(namespace) == _POOL_LENGTH:
            return Counter(experiences=entries)
        return Counter(leases=entries) if namespace[_POOL_LENGTH:] == ("leases",) else Counter()
    if kind == "langgraph":
        # The keys of items are encoded names, which end in a slash; beside them is a census. The tree has no items.
        return Counter(items=sum(namespace[2] == "items" and key.endswith("/") for key in keys))
    total = (yield from step(store.scan, namespace, limit=0)).total
    return Counter(
        sessions=int(bool(total or keys)),
        messages=total + sum(key.startswith(ARCHIVE) for key in keys),
        knowledge=sum(key.startswith(KNOWLEDGE) for key in keys),
        summaries=int(SUMMARY in keys),
    )
