"""Ours, the peers and the bare limit side by side: ``python -m tests.benchmarks``, with the extra ``bench``.

--short          fewer sizes and rounds
--only ROW       this row alone; may be repeated
--no-peers       ours and the limit alone
--json FILE      write all figures; rows that are not measured now stay as the file has them
--read FILE      measure nothing, take the figures of a file
--docs           renew docs/benchmarks.md and its plots
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.benchmarks import cache_rows, chain_rows, codec_rows, history_rows, process_rows, report, search_rows
from tests.benchmarks.bench import Bench
from tests.benchmarks.harness import Row

ROWS: dict[str, Row] = {
    row.key: row
    for module in (history_rows, codec_rows, cache_rows, search_rows, chain_rows, process_rows)
    for row in module.ROWS
}
_DOCS = Path(__file__).parents[2] / "docs"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--short", action="store_true", help="fewer sizes and rounds")
    parser.add_argument("--only", action="append", choices=list(ROWS), metavar="ROW", help=f"one of {', '.join(ROWS)}")
    parser.add_argument("--no-peers", action="store_true", help="ours and the limit alone")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write all figures; other rows stay as they are there"
    )
    parser.add_argument("--read", type=Path, metavar="FILE", help="measure nothing, take the figures of a file")
    parser.add_argument("--docs", action="store_true", help="renew docs/benchmarks.md and its plots")
    given = parser.parse_args(arguments)
    record = report.read(given.read) if given.read else measure(given)
    sys.stdout.write(report.tables(record) + "\n")
    if given.docs:
        report.write_docs(record, _DOCS)


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """Go through the rows. What is measured is written after each, so that nothing is lost on the way."""
    with closing(Bench(short=given.short, peers=not given.no_peers)) as bench, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # peers and hosts tell of their own deprecations
        record = report.begin(bench)
        if given.json and given.json.exists():
            record["rows"] = report.read(given.json)["rows"]
        for key in given.only or ROWS:
            start = time.monotonic()
            report.add(record, ROWS[key], list(ROWS[key].measure(bench)))
            sys.stderr.write(f"{key}: {time.monotonic() - start:.0f} s\n")
            record["rows"] = {name: record["rows"][name] for name in ROWS if name in record["rows"]}
            if given.json:
                given.json.write_text(json.dumps(record, indent=1, ensure_ascii=False), encoding="utf-8")
    return record


if __name__ == "__main__":
    main()
