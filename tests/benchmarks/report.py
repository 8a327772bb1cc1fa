"""Figures as JSON, as Markdown tables and as the page of the docs."""

from __future__ import annotations

import datetime as dt
import json
import os
import platform
import sqlite3
import subprocess
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tests.benchmarks.bench import Bench
from tests.benchmarks.harness import Line, Row
from tests.benchmarks.plots import plot

__all__ = ["add", "begin", "page", "read", "tables", "write_docs"]

_PACKAGES = (
    *("langmem_adapters", "pydantic", "langchain-core", "langchain-community", "langgraph"),
    *("langgraph-checkpoint-sqlite", "llama-index-core", "llama-index-storage-chat-store-redis"),
    *("llama-index-retrievers-bm25", "llama-index-vector-stores-chroma", "chromadb", "gptcache"),
    *("redis", "hiredis", "orjson", "tantivy", "hnswlib", "simsimd"),
)
_BEGIN, _END = "<!-- figures: begin -->", "<!-- figures: end -->"


def begin(bench: Bench) -> dict[str, Any]:
    """An empty record: where, when and with what it was measured."""
    return {
        "date": dt.datetime.now(dt.timezone.utc).date().isoformat(),
        "form": "short" if bench.short else "long",
        "machine": _machine(),
        "versions": _versions(bench),
        "left out": bench.absent,
        "rows": {},
    }


def _machine() -> str:
    information = Path("/proc/cpuinfo")
    models = [
        line.partition(":")[2].strip()
        for line in (information.read_text().splitlines() if information.exists() else ())
        if line.startswith("model name")
    ]
    model = models[0] if models else platform.processor() or platform.machine()
    return f"{os.cpu_count()} cores ({model}), {platform.system()}"


def _versions(bench: Bench) -> dict[str, str]:
    found = {"Python": platform.python_version(), "SQLite": sqlite3.sqlite_version, "Redis": _redis(bench)}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:  # noqa: PERF203 - a peer that is not here is named elsewhere
            continue
    return found


def _redis(bench: Bench) -> str:
    said = subprocess.run([bench.redis_path, "--version"], capture_output=True, text=True, check=True).stdout
    return next((word[2:] for word in said.split() if word.startswith("v=")), said.strip())


def add(record: dict[str, Any], row: Row, lines: Sequence[Line]) -> None:
    """Put a row's figures in, in place of earlier ones."""
    record["rows"][row.key] = {
        "title": row.title,
        "limit": row.limit,
        "gate": row.gate,
        "lines": [{**line._asdict(), "peers": dict(line.peers)} for line in lines],
        "goals": [goal.verdict(lines)._asdict() for goal in row.goals],
    }


def tables(record: Mapping[str, Any]) -> str:
    """Everything as Markdown: the goals first, then a table for each row."""
    parts = [_goals(record["rows"])]
    parts += [_table(row) for row in record["rows"].values()]
    return "\n\n".join(parts)


def _goals(rows: Mapping[str, Any]) -> str:
    found = ["| what | goal | measured | met |", "| --- | --- | --- | --- |"]
    for row in rows.values():
        for number, goal in enumerate(row["goals"]):
            met = {True: "yes", False: "**no**", None: "-"}[goal["met"]]
            gate = f" (gate: {row['gate']:g} x)" if row["gate"] and number == 0 else ""
            found.append(f"| {row['title']} | {goal['goal']}{gate} | {goal['measured']} | {met} |")
    return "\n".join(found)


def _table(row: Mapping[str, Any]) -> str:
    peers = list(dict.fromkeys(name for line in row["lines"] for name in line["peers"]))
    head = ["size", "limit", "ours", "ours ÷ limit", *peers]
    found = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    for line in row["lines"]:
        unit, limit, ours = line["unit"], line["limit"], line["ours"]
        cells = [line["size"], _figure(limit, unit), _figure(ours, unit), f"{ours / limit:.2f}" if limit else "-"]
        cells += [_figure(line["peers"].get(name), unit) for name in peers]
        found.append(f"| {' | '.join(cells)} |")
    return f"### {row['title']}\n\nLimit: {row['limit']}.\n\n" + "\n".join(found)


def _figure(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    digits = 0 if value >= 100 or value == int(value) else 2 if value >= 1 else 3
    return f"{value:,.{digits}f} {unit}"


def page(record: Mapping[str, Any]) -> str:
    """What stands between the markers of the docs' page."""
    versions = ", ".join(f"{name} {number}" for name, number in record["versions"].items())
    left_out = [f"{name}: {why}" for name, why in record["left out"].items()]
    about = [
        f"Measured on {record['date']}, in the {record['form']} form, on {record['machine']}.",
        f"Versions: {versions}.",
        *([f"Left out: {'; '.join(left_out)}."] if left_out else []),
    ]
    goals, *rows = tables(record).split("\n\n### ")
    keys = list(record["rows"])
    shown = [
        f"### {text}"
        + (f"\n\n![{record['rows'][key]['title']}](benchmarks/{key}.svg)" if _plotted(record, key) else "")
        for key, text in zip(keys, rows, strict=True)
    ]
    return "\n\n".join([*about, "## Goals", goals, "## Figures", *shown])


def _plotted(record: Mapping[str, Any], key: str) -> bool:
    return any(line["peers"] for line in record["rows"][key]["lines"])


def write_docs(record: Mapping[str, Any], docs: Path) -> None:
    """Renew the page's figures and its plots."""
    target = docs / "benchmarks.md"
    before, _, rest = target.read_text(encoding="utf-8").partition(_BEGIN)
    _, _, after = rest.partition(_END)
    target.write_text(f"{before}{_BEGIN}\n\n{page(record)}\n\n{_END}{after}", encoding="utf-8")
    folder = docs / "benchmarks"
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.svg"):
        old.unlink()
    for key, row in record["rows"].items():
        if _plotted(record, key):
            (folder / f"{key}.svg").write_text(plot(row), encoding="utf-8")


def read(path: Path) -> dict[str, Any]:
    """A record that was written as JSON."""
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return record
