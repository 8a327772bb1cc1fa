"""The package as a whole: what importing it loads, what it exports, and what a missing extra says."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import langmem_adapters
from langmem_adapters import MissingDependency, errors

ROOT = Path(__file__).parent.parent
HOSTS = ("chromadb", "langchain", "langchain_core", "langgraph", "llama_index", "redis", "rich", "typer")

LOADED = "import json, sys; print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"
BLOCK = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocker())
"""
VECTORS = "from langmem_adapters import Embedder, open_vectors; open_vectors"
MISSING = """
try:
    {code}
except ImportError as error:
    print(error)
"""


def python(code: str, *options: str) -> str:
    """Run code in a fresh interpreter that has no setting of ours; return what it prints."""
    command = [sys.executable, "-W", "error", *options, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def _import(name: str) -> None:
    raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@contextlib.contextmanager
def _asked_for() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise MissingDependency("langchain", "langgraph") from error


def test_a_package_of_which_a_part_is_missing_is_not_said_to_be_missing() -> None:
    """pip would say that it is there already."""

    def told(name: str) -> str:
        with pytest.raises(MissingDependency) as missing, _asked_for():
            _import(name)
        with pytest.raises(MissingDependency) as again, _asked_for():
            raise missing.value
        assert str(again.value) == str(missing.value)
        return str(missing.value)

    assert told("langchain") == 'langchain is not installed. Install it with: pip install "langmem_adapters[langgraph]"'
    assert told("pydantic.decisions") == (
        "langchain cannot be imported: No module named 'pydantic.decisions'."
        ' Bring it up to date with: pip install --upgrade "langmem_adapters[langgraph]"'
    )


@pytest.mark.parametrize("name", errors.__all__)
def test_an_error_comes_back_from_another_process_as_it_was_raised(name: str) -> None:
    """A pool of processes breaks, or waits for ever, where it cannot read the error of a task; Celery has the words."""
    kind = getattr(errors, name)
    raised = MissingDependency("redis", "redis") if kind is MissingDependency else kind("what is wrong")
    back = pickle.loads(pickle.dumps(raised))
    assert type(back) is kind
    assert (str(back), back.args, vars(back)) == (str(raised), raised.args, vars(raised))
    assert str(kind(*raised.args)) == str(raised)


def test_k1_import_loads_nothing_but_pydantic() -> None:
    model = "import pydantic\nclass Model(pydantic.BaseModel):\n    field: int"
    before = set(json.loads(python(f"{model}\n{LOADED}")))
    after = set(json.loads(python(f"import langmem_adapters\n{LOADED}")))
    assert after - before - set(sys.stdlib_module_names) == {"langmem_adapters"}


@pytest.mark.parametrize("code", ["plots, langmem_adapters.replay", "embedding, langmem_adapters.indexes.vector"])
def test_k1_nothing_heavy_is_loaded_before_it_is_asked_for(code: str) -> None:
    notebooks = "assert callable(langmem_adapters.load_ipython_extension)"
    loaded = set(json.loads(python(f"import langmem_adapters.{code}\n{notebooks}\n{LOADED}")))
    assert not loaded & {*HOSTS, "IPython", "matplotlib", "numpy", "pandas", "tqdm"}


def test_the_verifier_is_loaded_by_those_alone_who_serve_by_meaning() -> None:
    """It takes longer to load than the rest of the cache; and with it the command line, which never asks it."""
    verifier = "langmem_adapters.experience.verifier.verifier"
    loaded = (
        f"import sys, langmem_adapters.settings, langmem_adapters.langchain.cache\nprint({verifier!r} in sys.modules)"
    )
    assert python(loaded, "-W", "ignore:'asyncio.iscoroutinefunction' is deprecated:DeprecationWarning") == "False"


@pytest.mark.parametrize("part", ["brain", "experience", "settings", "replay"])
def test_an_interpreter_in_dev_mode_ends_well(part: str) -> None:
    """What a module keeps is let go of at last, in an order in which objects of pydantic's own have crashed."""
    python(f"import langmem_adapters.{part}", "-X", "dev")


def test_every_export_exists_and_is_listed() -> None:
    assert len(set(langmem_adapters.__all__)) == len(langmem_adapters.__all__) > 0
    for name in langmem_adapters.__all__:
        assert getattr(langmem_adapters, name) is not None
        assert name in dir(langmem_adapters)
    with pytest.raises(AttributeError, match="no_such_name"):
        getattr(langmem_adapters, "no_such_name")  # noqa: B009 - mypy knows that it does not exist


def test_async_twins_take_the_same_arguments() -> None:
    twins = [
        (one, twin)
        for exported in (getattr(langmem_adapters, name) for name in langmem_adapters.__all__)
        for name in dir(exported)
        if not name.startswith("_")
        and inspect.isfunction(one := getattr(exported, name))
        and inspect.isfunction(twin := getattr(exported, f"a{name.rstrip('_')}", None))
    ]
    assert len(twins) > 50
    for one, twin in twins:
        assert inspect.signature(one).parameters == inspect.signature(twin).parameters, one.__qualname__


@pytest.mark.parametrize("adapter", ["langchain", "langgraph", "llamaindex", "stores", "indexes", "experience"])
def test_every_export_of_a_part_exists(adapter: str) -> None:
    module = importlib.import_module(f"langmem_adapters.{adapter}")
    assert module.__all__
    assert all(hasattr(module, name) for name in module.__all__)


def test_f1_root_works_without_any_extra() -> None:
    """Every name of the root is there, and the embedded store works; where all is installed, none of it is loaded."""
    use = (
        "import langmem_adapters as package\n"
        "names = [getattr(package, name) for name in package.__all__]\n"
        "store = package.open_store('memory:')\n"
        "store.append(('a',), [('1', b'x')])\n"
        "print(store.scan(('a',)).total)"
    )
    assert python(BLOCK.format(blocked=HOSTS) + use) == "1"
    total, loaded = python(f"{use}\n{LOADED}").splitlines()
    assert (total, {*json.loads(loaded)} & {*HOSTS}) == ("1", set())


@pytest.mark.parametrize(
    ("blocked", "code", "extra"),
    [
        ("langchain_core", "import langmem_adapters.langchain", "langchain"),
        ("langgraph", "import langmem_adapters.langgraph", "langgraph"),
        ("llama_index", "import langmem_adapters.llamaindex", "llama-index"),
        (
            "redis",
            "import langmem_adapters; langmem_adapters.open_store('redis://127.0.0.1:9/0').get(('a',))",
            "redis",
        ),
        (
            "redis",
            "from langmem_adapters.llamaindex import LongTermMemoryBlock as B; B(url='redis://h:9/0', user='a')",
            "redis",
        ),
        ("numpy", f"{VECTORS}('chroma:///x', Embedder(len, name='a'))", "chroma"),
        ("chromadb", f"{VECTORS}('chroma:///x', Embedder(len, name='a'))", "chroma"),
        ("numpy", f"{VECTORS}('memory:', Embedder(len, name='a'))", "vectors"),
        ("langchain_core", "import langmem_adapters; langmem_adapters.load_ipython_extension(None)", "langchain"),
        (
            "matplotlib",
            "from langmem_adapters.plots import Snapshot as S, hit_rate as r; r([S(0, 0, 0), S(1, 1, 1)])",
            "notebook",
        ),
        ("pytest", "import langmem_adapters.testing", "test"),
        ("hypothesis", "import langmem_adapters.testing", "test"),
        ("typer", "import langmem_adapters.cli", "cli"),
        ("rich", "import langmem_adapters.cli", "cli"),
    ],
)
def test_f1_missing_extra_is_named(blocked: str, code: str, extra: str) -> None:
    said = python(BLOCK.format(blocked=[blocked]) + MISSING.format(code=code))
    assert f'pip install "langmem_adapters[{extra}]"' in said
    assert "\n" not in said


def test_f1_settings_are_dumped_without_the_driver_of_their_url() -> None:
    dump = "from langmem_adapters import Settings; print(Settings(url='redis://ada:secret@h/0').model_dump_json())"
    assert json.loads(python(BLOCK.format(blocked=["redis"]) + dump))["url"] == "redis://ada:***@h/0"


def test_f1_a_store_that_only_the_environment_asks_for_is_told_with_the_variable() -> None:
    code = "import os; os.environ['REDIS_URL'] = 'redis://127.0.0.1:9/0'; import langmem_adapters.stores as s; "
    told = {
        url: python(BLOCK.format(blocked=["redis"]) + MISSING.format(code=f"{code}s.shared_store({url})"))
        for url in ("", "'redis://127.0.0.1:9/1'")
    }
    assert told[""].startswith("redis is not installed, and REDIS_URL asks for it. Install it with: pip install")
    assert told["'redis://127.0.0.1:9/1'"].startswith("redis is not installed. Install it with: pip install")


def test_types_are_shipped() -> None:
    assert (Path(langmem_adapters.__file__).parent / "py.typed").is_file()


def pyproject() -> dict[str, Any]:
    toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    loaded: dict[str, Any] = toml.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return loaded


def test_f1_base_install_needs_pydantic_alone() -> None:
    project = pyproject()["project"]
    assert project["dependencies"] == ["pydantic>=2.5,<3"]
    assert project["requires-python"] == ">=3.10"
    hosts, places = {"langchain", "langgraph", "llama-index", "llamaindex"}, {"chroma", "redis", "vectors"}
    extras = {"all", "bench", "cli", "crypto", "docs", "notebook", "otel", "test", "yaml", *hosts, *places}
    assert set(project["optional-dependencies"]) == extras
    assert project["scripts"] == {"langmem-adapters": "langmem_adapters.cli:main"}


def test_f1_metagpt_is_nowhere() -> None:
    required = [line for lines in pyproject()["project"]["optional-dependencies"].values() for line in lines]
    assert not [line for line in required if "metagpt" in line.lower()]
