"""Every Python block of README and docs runs, every command is one that there is, and the site is built from them."""

from __future__ import annotations

import asyncio
import doctest
import importlib
import os
import re
import shlex
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import cache, partial
from importlib.metadata import metadata
from pathlib import Path
from subprocess import PIPE

import pytest
from typer.main import get_command

from langmem_adapters.cli.app import app
from tests.interpreters import STRICT

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def files(page: Path) -> dict[str, str]:
    """Python blocks that are a file of their own: those with a title."""
    return dict(re.findall(r'^```python title="([\w.]+)"\n(.*?)^```', page.read_text(), re.MULTILINE | re.DOTALL))


# Programs that find imported what takes long: each is a fork of this one, ends as a program does, and says so.
PROGRAMS = """
import gc, importlib, os, sys, warnings
from pathlib import Path
for part in ("langchain", "langgraph", "llamaindex"):
    adapter = importlib.import_module("langmem_adapters." + part)
    [getattr(adapter, name) for name in adapter.__all__]
gc.freeze()  # else the end of each would look through all of it
for folder in sys.stdin:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the threads that wait in numpy
        child = os.fork()
    if not child:
        break
    print(os.waitpid(child, 0)[1], flush=True)
else:
    sys.exit()
os.chdir(folder.strip())
os.dup2(os.open("printed", os.O_WRONLY | os.O_CREAT), 1)
os.dup2(os.open("errors", os.O_WRONLY | os.O_CREAT), 2)
sys.path[0], sys.argv, __file__ = folder.strip(), ["page.py"], "page.py"
exec(compile(Path(__file__).read_text(), __file__, "exec"))
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Path], tuple[str, Path]]]:
    """Run the blocks of a page as one program, beside the files that it shows, once: what it printed, and where."""
    # LlamaIndex's own calls ask for a loop where there is none, of which Python warns since 3.12.
    quiet = [*STRICT, "-W", "ignore:There is no current event loop:DeprecationWarning"]

    @cache
    def run(page: Path) -> tuple[str, Path]:
        folder = tmp_path_factory.mktemp(page.stem)
        for name, text in files(page).items():
            (folder / name).write_text(text)
        (folder / "page.py").write_text("\n".join(blocks(page, "python")))
        assert programs.stdin is not None
        assert programs.stdout is not None
        print(folder, file=programs.stdin, flush=True)
        status = programs.stdout.readline()
        assert status == "0\n", (folder / "errors").read_text()
        return (folder / "printed").read_text(), folder

    with subprocess.Popen([sys.executable, *quiet, "-c", PROGRAMS], stdin=PIPE, stdout=PIPE, text=True) as programs:
        yield run


def python(arguments: Sequence[str], folder: Path, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def commands(page: Path) -> list[list[str]]:
    """The arguments of each command line that a page shows, up to a pipe."""
    lines = [line for block in blocks(page, "console") + blocks(page, "bash") for line in block.splitlines()]
    found = [re.split(r" [|>] ", line.partition("langmem-adapters ")[2])[0] for line in lines]
    return [shlex.split(arguments, comments=True) for arguments in found if arguments]


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python")], ids=lambda p: p.name)
def test_the_code_of_a_page_runs(page: Path, ran: Callable[[Path], tuple[str, Path]]) -> None:
    """And prints what the page says it does, where it says so."""
    printed, _ = ran(page)
    if told := "".join(blocks(page, "text")):
        assert printed == told


@pytest.mark.parametrize("page", [p for p in PAGES if commands(p)], ids=lambda p: p.name)
def test_the_commands_of_a_page_are_those_of_the_program(page: Path) -> None:
    for name, *arguments in commands(page):
        command = get_command(app).commands[name]  # type: ignore[attr-defined]
        command.make_context(name, arguments)  # an option that there is not, or one argument too many, raises


def test_the_commands_of_the_tutorial_work_in_its_file(ran: Callable[[Path], tuple[str, Path]]) -> None:
    page = ROOT / "docs" / "tutorial.md"
    _, folder = ran(page)
    shown = [python([*STRICT, "-m", "langmem_adapters", *line], folder) for line in commands(page)]
    sessions, show, recall, deleted = shown
    assert {"monday", "tuesday"} < set(sessions.split())
    assert "On Friday I see the dentist." in show
    assert recall.splitlines()[1] == "My key is under the blue flower pot."
    assert re.search(r"^sessions +3$", deleted, re.MULTILINE)


@pytest.mark.own
def test_the_store_of_the_contributing_page_passes_the_kit_and_one_that_errs_does_not(tmp_path: Path) -> None:
    shown = files(ROOT / "docs" / "contributing.md")
    kit = shown["test_shelf_store.py"]
    assert len([line for line in kit.split("class ")[1].splitlines() if line.strip()]) <= 10
    for name, text in shown.items():
        (tmp_path / name).write_text(text)
    pytest_ = ["-m", "pytest", "-q", "-c", os.devnull, "-p", "no:cacheprovider", "--rootdir", ".", *list(shown)[1:]]
    run = partial(python, folder=tmp_path, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")  # the kit needs none of ours
    assert " passed" in run(pytest_)
    store = tmp_path / "shelf_store.py"
    store.write_text(store.read_text().replace("self._seq += 1", "self._seq = len(log) + 1"))
    with pytest.raises(AssertionError, match="test_numbers_rise_after_the_newest_was_removed"):
        run([*pytest_, "-k", "numbers"])  # without the walk, which would look long for its shortest way


def test_the_readme_prints_what_it_promises(ran: Callable[[Path], tuple[str, Path]]) -> None:
    printed, folder = ran(ROOT / "README.md")
    assert printed.splitlines()[:5] == [
        "user: My bike is in the shed.",
        "assistant: Noted!",
        "user: Where is the shed?",
        "assistant: Behind the house.",
        "My bike is in the shed.",
    ]
    assert (folder / "langmem.db").is_file()
    code = [line for line in blocks(ROOT / "README.md", "python")[0].splitlines() if line.strip()]
    assert len(code) <= 12


def test_the_readme_says_at_once_that_this_is_not_langmem() -> None:
    first = (ROOT / "README.md").read_text().splitlines()[:6]
    assert "not LangChain's own" in " ".join(first)


def test_the_readmes_extras_are_those_of_the_package() -> None:
    extras = metadata("langmem_adapters").get_all("Provides-Extra") or []
    table = (ROOT / "README.md").read_text().partition("## Install by extra")[2].partition("##")[0]
    assert set(re.findall(r"`([a-z-]+)`", " ".join(re.findall(r"^\| (.*?) \|", table, re.MULTILINE)))) == set(extras)


def test_links_between_the_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


SOURCES = ROOT / "langmem_adapters"
WITH_EXAMPLES = [path for path in sorted(SOURCES.rglob("*.py")) if ">>> " in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=lambda path: path.relative_to(SOURCES).with_suffix("").as_posix())
def test_the_examples_of_a_module_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each module's by themselves: no other has been at what is shared for "memory:"."""
    monkeypatch.chdir(tmp_path)
    for shared in ("langmem_adapters.stores._shared", "langmem_adapters.indexes._shared"):
        monkeypatch.setattr(shared, {})
    parts = path.relative_to(ROOT).with_suffix("").parts
    module = importlib.import_module(".".join(part for part in parts if part != "__init__"))
    with closing(asyncio.new_event_loop()) as loop:  # LlamaIndex would make one and leave it open
        asyncio.set_event_loop(loop)
        found = doctest.testmod(module)
        asyncio.set_event_loop(None)
    assert found.failed == 0 < found.attempted


# --- the site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site. With ``strict`` in its settings, a warning ends the build with an error."""
    folder = tmp_path_factory.mktemp("site")
    arguments = ["-m", "mkdocs", "build", "--config-file", ".mkdocs/mkdocs.yml", "--site-dir", str(folder)]
    python(arguments, ROOT, NO_MKDOCS_2_WARNING="1")  # an advertisement
    return folder


def inventory(site: Path) -> set[str]:
    """Full names of all that the reference describes."""
    lines = zlib.decompress((site / "objects.inv").read_bytes().split(b"\n", 4)[4]).decode().splitlines()
    return {line.split()[0] for line in lines}


@pytest.mark.parametrize(
    "module",
    ["", ".langchain", ".langgraph", ".llamaindex", ".arshai", ".testing", ".experience", ".plots", ".replay"],
    ids=lambda name: name or "root",
)
def test_every_public_name_is_in_the_reference(site: Path, module: str) -> None:
    names = importlib.import_module(f"langmem_adapters{module}").__all__
    assert {f"langmem_adapters{module}.{name}" for name in names} - inventory(site) == set()


def test_what_the_pages_import_is_in_the_reference(site: Path) -> None:
    described = inventory(site)
    code = "\n".join(text for page in PAGES for text in blocks(page, "python"))
    imports = re.findall(r"^from (langmem_adapters[\w.]*) import ([\w, ]+)", code, re.MULTILINE)
    names = {f"{module}.{name.split(' as ')[0].strip()}" for module, names in imports for name in names.split(",")}
    assert names - described == set()


def test_the_docstrings_are_read_as_they_are_meant(site: Path) -> None:
    html = (site / "reference" / "langmem_adapters.html").read_text()
    assert not re.search(r":(attr|class|data|exc|func|meth|mod):", html)
    assert "&gt;&gt;&gt; " in html.replace('<span class="gp">', "")  # a doctest, as code and not as a quotation
    assert "<blockquote>" not in html
    assert not re.search(r"<code>\w+, \w+", html)  # parameters that share a description have types of their own
    assert re.search(r'class="autorefs[^>]* href="#langmem_adapters\.BrainMemory\.add_talk"><code>add_talk', html)
    assert "add_flow" not in html
    sealing = re.sub("<[^>]*>", "", (site / "reference" / "modules.html").read_text())
    assert "guard: " in sealing
    assert "Flow[Page]" not in sealing


def test_the_site_fetches_nothing(site: Path) -> None:
    for page in site.rglob("*.html"):
        fetched = re.findall(r"<(?:script|link|img|iframe)[^>]* (?:src|href)=\"(https?:[^\"]*)", page.read_text())
        assert not fetched, page.name
