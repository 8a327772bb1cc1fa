"""Every Python block of README and docs runs, in its order, in an empty folder."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python")], ids=lambda p: p.name)
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    script = tmp_path / "page.py"
    script.write_text("\n".join(blocks(page, "python")))
    done = subprocess.run(
        [sys.executable, "-W", "error", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_readme_prints_what_it_promises(tmp_path: Path) -> None:
    (tmp_path / "first.py").write_text(blocks(ROOT / "README.md", "python")[0])
    done = subprocess.run([sys.executable, "first.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "user: My bike is in the shed.",
        "assistant: Noted!",
        "user: Where is the shed?",
        "assistant: Behind the house.",
        "My bike is in the shed.",
    ]
    assert (tmp_path / "langmem.db").is_file()
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
