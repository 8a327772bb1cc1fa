"""Runs notebooks and keeps what they show: ``python -m tests.notebooks`` for all, or with paths for some.

Each runs in an empty folder, in a kernel of this interpreter, without any setting of the person who runs it.
"""

from __future__ import annotations

import argparse
import copy
import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbclient
import nbformat
from traitlets.config import Config

__all__ = ["FOLDER", "executed", "main", "read", "shown", "store"]

FOLDER = Path(__file__).parent.parent / "notebooks"
_FOREIGN = ("LANGCHAIN_", "LANGGRAPH_", "LANGMEM_", "LANGSMITH_", "OPENAI_", "REDIS_URL", "JUPYTER", "IPYTHON")
_SETTINGS = {
    "PYDEVD_DISABLE_FILE_VALIDATION": "1",  # a kernel's debugger speaks of itself otherwise
    "PYTHONHASHSEED": "0",
    "MPLBACKEND": "module://matplotlib_inline.backend_inline",
}
_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
_CHANCE = [  # what differs between two runs, in the order of looking for it
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "<id>"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "<id>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d)?)?"), "<time>"),
    (re.compile(r"\b(127\.0\.0\.1|localhost):\d+"), r"\1:<port>"),
    (re.compile(r"\b0x[0-9a-f]+\b"), "<address>"),
    (re.compile(r"\bIn \[\d+\]"), "In [<number>]"),
    (re.compile(r"The \w+ extension is already loaded\. To reload it, use:\n.*\n"), ""),
]


def read(path: Path) -> Any:
    """A notebook, checked."""
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    nbformat.validate(notebook)
    return notebook


def executed(path: Path, *, times: int = 1) -> list[list[Any]]:
    """Run a notebook from its first cell to its last, ``times`` times in one kernel; its code cells of each time."""
    notebook = read(path)
    notebook.cells = [copy.deepcopy(cell) for _ in range(times) for cell in notebook.cells]
    for number, cell in enumerate(notebook.cells):
        cell.id = f"{number}"
    with tempfile.TemporaryDirectory(prefix="langmem-notebook-") as folder:
        work = Path(folder, "work")
        work.mkdir()
        inherited = {name: value for name, value in os.environ.items() if not name.upper().startswith(_FOREIGN)}
        places = {"IPYTHONDIR": f"{folder}/ipython", "MPLCONFIGDIR": f"{folder}/matplotlib"}
        # Sockets of files: no port that others could reach.
        sockets = {"transport": "ipc", "ip": f"{folder}/kernel", "connection_file": f"{folder}/kernel.json"}
        nbclient.NotebookClient(
            notebook,
            timeout=120,
            kernel_name="python3",
            record_timing=False,
            coalesce_streams=True,
            config=Config(KernelManager=sockets),
            resources={"metadata": {"path": str(work)}},
        ).execute(env=inherited | _SETTINGS | places)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    length = len(code) // times
    return [code[start : start + length] for start in range(0, len(code), length)]


def shown(cell: Any) -> list[str]:
    """What a cell shows: kinds of output and their text, without what differs between two runs."""
    told = [(kinds, _settled(text)) for kinds, text in map(_kinds_and_text, cell.outputs)]
    return [f"{kinds}: {text}" for kinds, text in told if text]


def _kinds_and_text(output: Any) -> tuple[str, str]:
    if output.output_type == "stream":
        return output.name, output.text
    if output.output_type == "error":
        return "error", f"{output.ename}: {output.evalue}"
    return ", ".join(sorted(output.data)), output.data.get("text/plain", "")


def _settled(text: str) -> str:
    for pattern, name in _CHANCE:
        text = pattern.sub(name, text)
    return text


def store(path: Path) -> None:
    """Run a notebook and write what it shows into it, and nothing of the machine it ran on."""
    notebook = read(path)
    (code,) = executed(path)
    fresh = iter(code)
    for number, cell in enumerate(notebook.cells, start=1):
        cell.id = f"cell-{number}"
        cell.metadata = {}
        if cell.cell_type == "code":
            ran = next(fresh)
            cell.outputs, cell.execution_count = ran.outputs, ran.execution_count
    notebook.metadata = _METADATA
    nbformat.write(notebook, path)  # type: ignore[no-untyped-call]


def main(arguments: Sequence[str] | None = None) -> None:
    """The command: store what the notebooks show."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("notebooks", nargs="*", type=Path, default=sorted(FOLDER.glob("*.ipynb")))
    for path in parser.parse_args(arguments).notebooks:
        store(path)


if __name__ == "__main__":
    main()
