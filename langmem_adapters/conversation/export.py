"""Read sessions as the lines of an export: nothing that moves meanwhile is missing, or there twice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from langmem_adapters.conversation.export_lines import VERSION, Line, is_valid_value, load
from langmem_adapters.conversation.log import GENERATION
from langmem_adapters.errors import NotSealed
from langmem_adapters.expiry import EXPIRES
from langmem_adapters.flow import Flow, run, step
from langmem_adapters.keys import Namespace
from langmem_adapters.model import salvage
from langmem_adapters.protocols import Item, Store
from langmem_adapters.records.paging import FIRST_PAGE_SIZE, pages, side_by_side
from langmem_adapters.warn_once import warn_of_damage


class _Begun(NamedTuple):
    """A session's values, its log, and the values as they were after that; None, if the log has more than a page."""

    values: dict[str, bytes]
    log: Iterator[list[Item]]
    values_after: dict[str, bytes] | None


def exported_lines(store: Store, namespaces: Iterable[Namespace]) -> Iterator[Line]:
    """Yield the lines of these sessions, in their order."""
    for namespace, (values, log, values_after) in side_by_side(store, partial(_begin, store), namespaces):
        session = namespace[-1]
        yield _session_line(session, values)
        for items in log:
            for item in items:
                message = salvage(item.data, f"log entry {item.seq}")
                if message is not None:
                    message_data = load(message.to_bytes())
                    yield {"v": VERSION, "type": "message", "session": session, "message": message_data}
        values_now = run(_read_values(store, namespace)) if values_after is None else values_after
        if values_now != values:  # what left the log meanwhile is in its archive or summary
            yield _session_line(session, values_now)


def _begin(store: Store, namespace: Namespace) -> Flow[tuple[_Begun, int]]:
    """Read the beginning of a session, all of it if it is short; also returns how many bytes that are."""
    values = yield from _read_values(store, namespace)
    items = (yield from step(store.scan, namespace, limit=FIRST_PAGE_SIZE)).items
    size = sum(map(len, values.values())) + sum(len(item.data) for item in items)
    values_after = (yield from _read_values(store, namespace)) if len(items) < FIRST_PAGE_SIZE else None
    return _Begun(values, pages(store, namespace, items=items), values_after), size


def _read_values(store: Store, namespace: Namespace) -> Flow[dict[str, bytes]]:
    try:
        values = yield from step(store.get, namespace)
    except NotSealed as damage:  # one damaged session must not fail the others
        warn_of_damage(namespace, f"title, summary and knowledge of a session are left out: {damage}")
        return {}
    return {key: data for key, data in sorted(values.items()) if key not in {GENERATION, EXPIRES}}


def _session_line(session: str, values: Mapping[str, bytes]) -> Line:
    valid_values = {key: load(data) for key, data in values.items() if is_valid_value(key, data)}
    return {"v": VERSION, "type": "session", "session": session, "values": valid_values}
