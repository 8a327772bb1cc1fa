"""The floors hold: imports go downwards, rules stay pure, and every module has its place in the table."""

from __future__ import annotations

import ast
import gc
import re
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "langmem_adapters"
MAX_LINES = 350

# Top-level module or package: its floor. A new module fails until it is placed here.
FLOORS = {
    **dict.fromkeys(("errors", "model", "protocols", "inspection", "flow", "concurrency", "outages", "warn_once"), 0),
    "clocks": 0,
    **dict.fromkeys(
        ("annotations", "codec", "keys", "lazy_names", "lru", "views", "progress", "validation", "sharing"), 0
    ),
    **dict.fromkeys(("text", "tokens", "prompts", "providers", "language", "embedding", "embedding_calls"), 1),
    **dict.fromkeys(("signals", "signal_values", "fitting", "json_files", "redaction", "run_callbacks"), 1),
    **dict.fromkeys(("stores", "indexes", "files", "sealing", "encryption", "telemetry"), 2),
    **dict.fromkeys(("brain", "sessions", "conversation", "longterm", "recall", "records", "experience"), 3),
    **dict.fromkeys(("working", "working_items", "completion", "understanding", "expiry", "metagpt"), 3),
    **dict.fromkeys(("operations", "evaluation"), 3),
    **dict.fromkeys(("langchain", "langgraph", "llamaindex", "arshai"), 4),
    **dict.fromkeys(("settings", "settings_file", "decorator", "erasure", "erasure_counts"), 5),
    **dict.fromkeys(("protection", "importing"), 5),
    **dict.fromkeys(("cli", "magics", "plots", "replay", "testing", "__init__", "__main__"), 5),
}
BELOW = {0: {0}, 1: {0, 1}, 2: {0, 1, 2}, 3: {0, 1, 3}, 4: {0, 1, 2, 3, 4}, 5: {0, 1, 2, 3, 4, 5}}
HOSTS = {
    "langchain": {"langchain", "langchain_core", "langgraph"},  # its agents and middleware run on langgraph
    "langgraph": {"langgraph", "langchain_core"},
    "llamaindex": {"llama_index"},
}
VOCABULARY = sys.stdlib_module_names | {"annotationlib", "pydantic", "pydantic_core", "typing_extensions"}
IMPURE = {"io", "os", "random", "secrets", "socket", "sqlite3", "subprocess", "time"}
CLOCKS = {"now", "today", "utcnow"}
BANNED_NAMES = {"base", "common", "core", "helpers", "manager", "utils"}
BANNED_IMPORTS = {"dill", "marshal", "nest_asyncio", "pickle", "shelve"}
BANNED_CALLS = {"asyncio.iscoroutinefunction", "asyncio.run", "eval", "exec"}

SOURCES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts): path.read_text(encoding="utf-8")
    for path in sorted(ROOT.rglob("*.py"))
}


@pytest.fixture(scope="module", autouse=True)
def _parse_without_collections() -> Iterator[None]:
    """CPython's parser fails where Hypothesis' callback of the collector lets another thread format a traceback."""
    gc.disable()
    yield
    gc.enable()


def imports(module: str, source: str) -> Iterator[str]:
    """Absolute names of all that is imported: also inside functions, and for types only."""
    package = ["langmem_adapters", *module.split(".")][:-1]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            name = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{name}.{alias.name}" for alias in node.names)


def ours(name: str) -> str:
    """Module of the package that an absolute name lies in, as SOURCES names it."""
    parts = name.split(".")[1:]
    while parts:
        for module in (".".join(parts), ".".join([*parts, "__init__"])):
            if module in SOURCES:
                return module
        if len(parts) == 1 and parts[0] in FLOORS:
            return parts[0]  # placed, though not written yet
        parts.pop()
    return "__init__"


def calls(source: str) -> set[str]:
    """What is called, as written: ``eval``, ``asyncio.run``, ``datetime.now``."""
    return {ast.unparse(node.func) for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)}


def violations(module: str, source: str) -> list[str]:
    place = module.split(".", maxsplit=1)[0]
    floor = FLOORS[place]
    names = set(imports(module, source))
    inside = {ours(name) for name in names if name.split(".")[0] == "langmem_adapters"}
    outside = {name.split(".")[0] for name in names} - {"langmem_adapters"}
    called = calls(source)
    found = [f"imports {other}, which lies above" for other in inside if _floor(other) not in BELOW[floor]]
    if floor == 2:
        found += [f"imports its sibling {other}" for other in inside if _is_sibling(module, other)]
    if floor == 4:
        found += [f"imports the adapter {other}" for other in inside if _is_other_adapter(place, other)]
    if floor in {0, 1, 3}:
        found += [f"imports {name}, which is neither Python's nor pydantic" for name in outside - VOCABULARY]
    if floor == 1:
        found += [f"imports {name}: not pure" for name in outside & IMPURE]
        found += [f"reads a clock: {name}" for name in called if name.split(".")[-1] in CLOCKS]
    if floor < 5:
        foreign = set().union(*HOSTS.values()) - HOSTS.get(place, set())
        found += [f"imports the host {name}" for name in outside & foreign]
    found += [f"imports {name}, which is banned" for name in outside & BANNED_IMPORTS]
    found += [f"imports {name}, which is banned" for name in names & BANNED_CALLS]
    found += [f"calls {name}" for name in called & BANNED_CALLS]
    return found


def _floor(module: str) -> int:
    return FLOORS[module.split(".", maxsplit=1)[0]]


def _is_sibling(module: str, other: str) -> bool:
    own = module.endswith(".__init__") and other.split(".", maxsplit=1)[0] == module.split(".", maxsplit=1)[0]
    family = module.partition("_")[0] == other.partition("_")[0]  # a store in several modules: redis, redis_log, …
    return (
        _floor(other) == 2 and other.split(".", maxsplit=1)[0] not in {"files", "telemetry"} and not own and not family
    )


def _is_other_adapter(place: str, other: str) -> bool:
    return _floor(other) == 4 and other.split(".", maxsplit=1)[0] != place


def test_every_module_is_placed() -> None:
    assert {module.split(".")[0] for module in SOURCES} <= set(FLOORS)


def test_floors() -> None:
    assert {module: found for module, source in SOURCES.items() if (found := violations(module, source))} == {}


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("codec", "from langmem_adapters.text import window"),
        ("codec", "import orjson"),
        ("codec", "def load():\n    import pickle"),
        ("text", "import time"),
        ("text", "import datetime as dt\ndt.datetime.now()"),
        ("stores.sqlite", "from langmem_adapters.stores import memory"),
        ("stores.sqlite", "from .redis import RedisStore"),
        ("stores.sqlite", "from ..indexes import lexical"),
        ("stores.__init__", "from langmem_adapters.indexes import lexical"),
        ("files.database", "from langmem_adapters.stores import open_store"),
        ("indexes.vector", "from llama_index.core import VectorStoreIndex"),
        ("brain", "from langmem_adapters.files.database import Database"),
        ("brain", "from langmem_adapters.stores import open_store"),
        ("brain", "import langchain_core"),
        ("brain", "import asyncio\nasyncio.run(work())"),
        ("brain", "from asyncio import run"),
        ("experience.pool", "from langmem_adapters import settings"),
        ("experience.pool", "from langmem_adapters import BrainMemory"),
        ("langchain.history", "from langmem_adapters.llamaindex.convert import to_host"),
        ("langchain.history", "from llama_index.core import Document"),
        ("llamaindex.memory", "import langmem_adapters.settings"),
        ("cli", "eval('1')"),
    ],
)
def test_rules_see_a_violation(module: str, source: str) -> None:
    assert violations(module, source)


def test_no_import_cycle() -> None:
    graph = {
        module: {ours(name) for name in imports(module, source) if name.split(".")[0] == "langmem_adapters"} - {module}
        for module, source in SOURCES.items()
    }
    TopologicalSorter(graph).prepare()  # raises CycleError, which shows the cycle


def test_size_and_name() -> None:
    assert [module for module, source in SOURCES.items() if len(source.splitlines()) > MAX_LINES] == []
    assert [module for module in SOURCES if BANNED_NAMES & set(module.split("."))] == []


def test_a_transaction_ends_by_its_connection_too() -> None:
    """Else an interrupt may leave it begun, see Database."""
    begun = re.findall(r"\n +with .*\.(?:reading|writing)\(\)(.*)", "".join(SOURCES.values()))
    assert set(begun) == {" as connection, connection:"}


def test_what_threads_count_together_is_in_counts() -> None:
    """Two threads that add to a number in a dictionary may undo each other, see Counts."""
    added = re.compile(r"\b_?(?:counts|stats)\[[^\]]+\] [+-]=|Counter\[str\] = PrivateAttr")
    assert [module for module, source in SOURCES.items() if added.search(source)] == []


class Blocking(ast.NodeTransformer):
    """What an async face would be, if it blocked."""

    def visit_Await(self, node: ast.Await) -> ast.AST:
        self.generic_visit(node)
        return node.value

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name("run") if node.id == "arun" else node


def faces(source: str) -> Iterator[tuple[str, str, str]]:
    """Of each method that only runs a flow, and has an async twin: its name, and what the two do."""
    for place in ast.walk(ast.parse(source)):
        if isinstance(place, ast.ClassDef):
            functions = [node for node in place.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
            does = {node.name: "\n".join(map(ast.unparse, map(Blocking().visit, node.body[1:]))) for node in functions}
            for name, ours in does.items():
                twin = does.get(f"a{name.rstrip('_')}", "")
                if all(re.search(r"\brun\(", each) for each in (ours, twin)) and "\n" not in ours:
                    yield f"{place.name}.{name}", ours, twin


def test_both_faces_of_a_method_ask_the_same() -> None:
    found = [face for source in SOURCES.values() for face in faces(source)]
    assert len(found) > 70
    # Where an embedder is awaited, only who does not block has it embed what is asked beforehand.
    assert [name for name, ours, twin in found if ours != twin] == ["LongTermStore.batch"]


def test_no_folder_for_a_single_file() -> None:
    folders = {path.parent for path in ROOT.rglob("*.py")}
    assert [folder.name for folder in folders if len(list(folder.glob("*.py"))) < 2] == []


# By what came to SQLite after 3.24, the oldest version that files.locations lets through.
NEWER_SQL = re.compile(
    r"OVER \(|FILTER \(|NULLS (?:FIRST|LAST)|RENAME COLUMN|VACUUM INTO|GENERATED|MATERIALIZED|RETURNING|DROP COLUMN"
    r"|UPDATE \w+ SET .* FROM langmem|STRICT|->|unixepoch|(?:RIGHT|FULL) (?:OUTER )?JOIN|DISTINCT FROM|jsonb"
    r"|string_agg|\bconcat\("
)


def statements(source: str) -> list[str]:
    """The parts of texts that are SQL."""
    texts = [node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)]
    return [text for text in texts if isinstance(text, str) and re.search(r"\b[A-Z]{3,} .*langmem_[a-z]", text)]


def test_every_statement_is_one_of_the_oldest_sqlite() -> None:
    found = [text for source in SOURCES.values() for text in statements(source)]
    assert len(found) > 100
    assert [text for text in found if NEWER_SQL.search(text)] == []
    assert NEWER_SQL.search("DELETE FROM langmem_log RETURNING seq")
