"""What the Redis store can report of its server: figures, and settings that lose data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

from langmem_adapters.errors import StoreError, StoreUnavailable
from langmem_adapters.inspection import Finding, KindStats, StoreStats
from langmem_adapters.keys import Namespace
from langmem_adapters.stores.redis_keys import NO_KEY, Keys
from langmem_adapters.stores.redis_packing import pack
from langmem_adapters.stores.redis_wire import Wire

_PAGE_SIZE = 1000  # keys checked in one round trip
_MIN_VERSION = (6, 2)
_MAX_MEMORY_SHARE = 0.9  # of maxmemory
_SAFE_POLICY = "noeviction"


def stats(wire: Wire, keys: Keys) -> StoreStats:
    """Scan the store's keys and count them; used memory, if INFO is allowed."""
    seen: set[bytes] = set()
    entries: Counter[str] = Counter()
    expires: dict[Namespace, bool] = {}
    key_names = wire.scan_keys(keys.pattern(()))  # in any order, and some of them twice
    while page := {*islice(key_names, _PAGE_SIZE)}:
        own_keys = [(key, name) for key in page - seen if (name := keys.namespace(key)) is not None]
        seen |= page
        logs = [(key, name) for key, name in own_keys if key == keys.data_keys(name)[0]]
        replies = wire.send(
            *((key, pack("PTTL", key)) for key, _ in own_keys), *((key, pack("XLEN", key)) for key, _ in logs)
        )
        for (_, name), ttl in zip(own_keys, replies, strict=False):
            if ttl != NO_KEY:
                expires[name] = ttl >= 0  # as all keys of a namespace expire together
        for (_, name), length in zip(logs, replies[len(own_keys) :], strict=True):
            entries[_kind(name)] += length
    total = Counter(map(_kind, expires))
    expiring = Counter(_kind(name) for name, is_expiring in expires.items() if is_expiring)
    kinds = {kind: KindStats(total[kind], expiring[kind], entries[kind]) for kind in sorted(total)}
    return StoreStats(wire.address, kinds, len(seen), *_memory_bytes(wire))


def _memory_bytes(wire: Wire) -> tuple[int | None, int | None]:
    """How many bytes are used, and how many may be: figures of the server, which many users may not see."""
    with suppress(StoreError):
        infos = [_parse_info(reply) for reply in wire.send_to_all(pack("INFO", "memory"))]
        size = sum(int(info["used_memory"]) for info in infos if "used_memory" in info) or None
        return size, sum(int(info.get("maxmemory", 0)) for info in infos) or None
    return None, None


def _kind(namespace: Namespace) -> str:
    return namespace[0] if namespace else ""


def findings(wire: Wire) -> Iterator[Finding]:
    """Examine the servers' version, memory and persistence, as far as the user may."""
    try:
        servers = [_parse_info(reply) for reply in wire.send_to_all(pack("INFO"))]
    except StoreUnavailable as error:
        yield Finding("problem", "server", str(error))
        return
    except StoreError:
        message = "INFO is forbidden: version, memory and persistence were not looked at"
        yield Finding("note", "server", message, "nothing, if you know them; else grant the user +info")
        return
    for info in servers:
        name = f"server {info.get('tcp_port', '')}".strip() if len(servers) > 1 else "server"
        if wire.one_slot and info.get("cluster_enabled") == "1":
            yield Finding("problem", name, "it is a node of a cluster: writes fail", "use a redis+cluster:// URL")
        yield from (finding_of(name, info) for field, finding_of in _FINDINGS.items() if field in info)
        if "aof_enabled" in info:
            yield from _persistence_findings(name, info, wire)
        missing_fields = [field for field in (*_FINDINGS, "aof_enabled") if field not in info]
        if missing_fields:  # as on some services and proxies
            message = f"INFO says nothing of {', '.join(missing_fields)}: that was not looked at"
            yield Finding("note", name, message, "nothing, if you know it; else ask whoever runs the server")


def _version_finding(name: str, info: dict[str, str]) -> Finding:
    version = info["redis_version"]
    if tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) < _MIN_VERSION:
        return Finding("problem", name, f"version {version} is too old", "upgrade to Redis 6.2 or later, or to Valkey")
    return Finding("ok", name, f"version {version}")


def _eviction_finding(name: str, info: dict[str, str]) -> Finding:
    policy = info["maxmemory_policy"]
    if policy == _SAFE_POLICY:
        return Finding("ok", name, "nothing is evicted")
    if policy.startswith("allkeys"):
        message = f"maxmemory-policy {policy} may remove any conversation when memory is short"
        return Finding("problem", name, message, f"set maxmemory-policy {_SAFE_POLICY}, and a ttl on what may go")
    message = f"maxmemory-policy {policy} may remove sessions that have a ttl before their time, and parts of them"
    return Finding("note", name, message, f"set maxmemory-policy {_SAFE_POLICY}, unless the server is a cache only")


def _memory_finding(name: str, info: dict[str, str]) -> Finding:
    used, limit = int(info["used_memory"]), int(info.get("maxmemory", 0))
    if limit and used > _MAX_MEMORY_SHARE * limit:
        message = f"{used:,} of {limit:,} bytes are used"
        return Finding("problem", name, message, "raise maxmemory, set a shorter ttl, or prune")
    return Finding("ok", name, f"{used:,} bytes are used" + (f" of {limit:,}" if limit else ", without a limit"))


_FINDINGS = {"redis_version": _version_finding, "maxmemory_policy": _eviction_finding, "used_memory": _memory_finding}


def _persistence_findings(name: str, info: dict[str, str], wire: Wire) -> Iterator[Finding]:
    for field, file in (("rdb_last_bgsave_status", "snapshot"), ("aof_last_write_status", "append-only file")):
        if info.get(field, "ok") != "ok":
            yield Finding("problem", name, f"the last write of the {file} failed", "look at the server's log and disk")
    if info["aof_enabled"] == "1":
        yield Finding("ok", name, "an append-only file is kept")
        return
    schedule = _snapshot_schedule(wire)
    remedy = "set appendonly yes, with appendfsync everysec (or always, to lose nothing that was acknowledged)"
    if schedule == "":
        yield Finding("problem", name, "nothing is kept on disk: a restart loses everything", remedy)
    elif schedule is None:
        message = (
            "no append-only file is kept, nor are snapshots reported: if there are none, a restart loses everything"
        )
        yield Finding("note", name, message, remedy)
    else:
        yield Finding("note", name, "only snapshots are kept: a crash loses what was written since the last", remedy)


def _snapshot_schedule(wire: Wire) -> str | None:
    """The snapshot schedule; None if it is not told, as by many services."""
    with suppress(StoreError):
        reply = next(iter(wire.send_to_all(pack("CONFIG", "GET", "save"))))
        pairs: Any = reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))
        return str(pairs[b"save"].decode()) if b"save" in pairs else None
    return None


def _parse_info(reply: bytes) -> dict[str, str]:
    lines = reply.decode(errors="replace").splitlines()
    return {name: value for name, colon, value in (line.partition(":") for line in lines) if colon}
