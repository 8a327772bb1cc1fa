"""The commands that the Redis store sends: what a user of the server must be allowed, and no more."""

from __future__ import annotations

__all__ = ["CLUSTER_COMMANDS", "COMMANDS"]

COMMANDS = (
    *("ping", "select", "multi", "exec", "watch", "unwatch"),
    *("scan", "exists", "unlink", "persist", "pexpire", "pttl"),
    *("xadd", "xdel", "xlen", "xrange", "xrevrange", "xgroup|create", "xgroup|destroy"),
    *("sadd", "srem", "scard", "smembers", "smismember"),
    *("hset", "hdel", "hmget", "hgetall"),
    *("zadd", "zrem", "zcard", "zrange", "zmscore"),
)
"""On one server, or behind sentinels."""

CLUSTER_COMMANDS = (*COMMANDS, "cluster|slots", "command")
"""On each node of a cluster."""
