"""Views in a real browser: what is in them is there, nothing in them acts, and each theme has its own colours."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from langmem_adapters import (
    BrainMemory,
    Experience,
    ExperiencePool,
    LongTermMemory,
    Message,
    Sessions,
    WorkingMemory,
    open_index,
    open_store,
)
from langmem_adapters.experience import Verifier
from langmem_adapters.model import Metric, Score, ToolCall
from langmem_adapters.testing import FakeClock

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
HOSTILE = """</style></div><script>document.title='taken'</script><img src=x onerror="document.title='taken'">"""
HEBREW = "אני רוצה לראות את הפנתיאון."
HOSTS = {
    "plain": "",
    "jupyter-light": 'data-jp-theme-light="true"',
    "jupyter-dark": 'data-jp-theme-light="false"',
    "vscode-light": 'data-vscode-theme-kind="vscode-light"',
    "vscode-contrast-light": 'data-vscode-theme-kind="vscode-high-contrast-light"',
    "vscode-contrast-dark": 'data-vscode-theme-kind="vscode-high-contrast"',
    "vscode-dark": 'data-vscode-theme-kind="vscode-dark"',
    "site-light": 'data-md-color-scheme="default"',
    "site-dark": 'data-md-color-scheme="slate"',
}
# A page's own script runs (which shows that one in a view would), and says what the browser made of the views.
PAGE = """<!doctype html><html><head><meta charset="utf-8"><title>untouched</title>
<style>body{{margin:0}}p,td,b{{color:rgb(1,2,3)}}</style></head>
<body><p id="outside">outside</p><img src="data:," onerror="window.handlers = true">{hosts}<pre id="found"></pre>
<script>
addEventListener("load", () => setTimeout(() => {{
  const found = {{title: document.title, handlers: Boolean(window.handlers), hosts: {{}}}};
  for (const host of document.querySelectorAll(".host")) {{
    const view = host.querySelector(".langmem-view"), colours = getComputedStyle(view);
    const cells = [...host.querySelectorAll(".lm-score b, td")].map(cell => getComputedStyle(cell).color);
    const strange = cells.filter(colour => colour !== colours.color).length;
    found.hosts[host.id] = {{background: colours.backgroundColor, colour: colours.color, strange}};
  }}
  const first = document.querySelector(".host");
  found.text = first.innerText;
  found.acting = first.querySelectorAll("script, img, iframe, object, embed, link, a, form, [onerror]").length;
  found.views = first.querySelectorAll(".langmem-view").length;
  found.children = first.children.length;
  found.loaded = performance.getEntriesByType("resource").map(entry => entry.name);
  found.overflow = document.documentElement.scrollWidth - innerWidth;
  found.outside = getComputedStyle(document.getElementById("outside")).color;
  const texts = [...first.querySelectorAll("[dir=auto]")];
  found.aligned = Object.fromEntries(texts.map(text => [text.innerText, getComputedStyle(text).textAlign]));
  found.bars = [...first.querySelectorAll(".lm-score .lm-bar")].map(
    bar => bar.firstChild.getBoundingClientRect().width / bar.getBoundingClientRect().width);
  document.getElementById("found").textContent = JSON.stringify(found);
}}, 100));
</script></body></html>"""


def views() -> Iterator[Any]:
    """One of each, with what should not act in every place that holds a text."""
    store, clock = open_store("memory:"), FakeClock(1_763_712_000.0)
    brain = BrainMemory(store, f"rome {HOSTILE}", user="ada", memory_k=6, clock=clock)
    for said in [*(f"Note {n}: I would like to see the Pantheon." for n in range(4)), HEBREW]:
        brain.add_talk(said)
        clock.advance(61)
    call = ToolCall(id="1", name="search_trains", args={"from": "Florence", "to": HOSTILE})
    brain.add_messages(
        [
            Message(role="user", name="Ada", content="Find me a train to Rome, please."),
            Message(role="assistant", content="Let me look.", tool_calls=[call]),
            Message(role="tool", tool_call_id="1", content=f"IC 583, 08:14 {HOSTILE}"),
            Message(role="assistant", content=f"The IC 583 takes bikes. {HOSTILE} {'unbroken' * 40}"),
        ]
    )
    brain.set_title(f"A weekend in Rome {HOSTILE}")
    brain.set_summary(f"Ada plans a weekend. {HOSTILE}")
    yield brain
    memory = LongTermMemory(store, open_index("memory:"), user="ada")
    memory.add([Message(role="user", name=f"Ada {HOSTILE}", content=f"My bikes are in the shed. {HOSTILE}")])
    yield memory.search("Where is the bike?", explain=True)
    pool = ExperiencePool(store, tag=f"capitals {HOSTILE}", index=open_index("memory:"), clock=clock)
    metric = Metric(score=Score(val=9, reason=HOSTILE), model=HOSTILE)
    pool.create(Experience(req=f"the capital of France {HOSTILE}", resp=f"Paris {HOSTILE}", metric=metric))
    pool.lookup("Spain")
    yield pool.query("capital of France")
    yield pool
    yield Verifier()(
        f"Which phone is best under 15k? {HOSTILE}", f"Which phone is best under 20k? {HOSTILE}", cosine=0.97
    )
    items = WorkingMemory(store, clock=clock)
    items.store("c", {"goal": f"find the bike {HOSTILE}"}, metadata={HOSTILE: HOSTILE})
    yield items.retrieve("c")
    yield Sessions(store, user="ada").list_sessions()


def page() -> str:
    shown = "".join(view._repr_html_() for view in views())
    hosts = "".join(f'<div class="host" id="{name}" {attribute}>{shown}</div>' for name, attribute in HOSTS.items())
    return PAGE.format(hosts=hosts)


def browse(path: Path, scheme: str) -> dict[str, Any]:
    """What a browser 600 pixels wide makes of a page; ``scheme`` is what the system prefers."""
    assert CHROMIUM
    dark = 0 if scheme == "dark" else 1
    command = [
        CHROMIUM,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-extensions",
        "--disable-background-networking",
        "--disable-component-update",
        "--no-first-run",
        "--hide-scrollbars",
        "--host-resolver-rules=MAP * ~NOTFOUND",
        "--window-size=600,900",
        f"--blink-settings=preferredColorScheme={dark}",
        "--virtual-time-budget=3000",
        "--dump-dom",
        path.as_uri(),
    ]
    with tempfile.TemporaryDirectory() as profile:
        command.insert(1, f"--user-data-dir={profile}")
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    found = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, done.stderr[-2_000:]
    assert found[1], "the page's own script did not run"
    read: dict[str, Any] = json.loads(html.unescape(found[1]))
    return read


@pytest.fixture(scope="module")
def browsed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The same page where the system prefers light, and where it prefers dark."""
    if CHROMIUM is None:
        pytest.skip("no Chromium here: install the package chromium to see the views in a browser")
    path = tmp_path_factory.mktemp("views") / "page.html"
    path.write_text(page(), encoding="utf-8")
    return {scheme: browse(path, scheme) for scheme in ("light", "dark")}


def test_the_content_is_there(browsed: dict[str, dict[str, Any]]) -> None:
    text = browsed["light"]["text"]
    for said in (
        "A weekend in Rome",
        "Ada plans a weekend.",
        "3 older messages are outside of the window",
        "search_trains(from='Florence'",
        "IC 583, 08:14",
        "My bikes are in the shed.",
        "the capital of France",
        "Paris",
        "0 of 1 requests",
        "numbers differ: 15000, 20000",
        "find the bike",
        "1 session",
    ):
        assert said in text, said
    assert text.count("<script>document.title='taken'</script>") > 10
    assert browsed["light"]["views"] == browsed["light"]["children"] == 7


def test_what_is_in_the_content_stays_inert(browsed: dict[str, dict[str, Any]]) -> None:
    for found in browsed.values():
        assert found["handlers"]  # those of the page itself do act
        assert found["title"] == "untouched"
        assert found["acting"] == 0
        assert [name for name in found["loaded"] if not name.startswith("data:")] == []


def test_each_theme_has_its_colours(browsed: dict[str, dict[str, Any]]) -> None:
    def brightness(colour: str) -> float:
        return sum(map(int, re.findall(r"\d+", colour)[:3])) / 3

    for scheme, found in browsed.items():
        for host, colours in found["hosts"].items():
            dark = scheme == "dark" if host == "plain" else host.endswith("dark")
            background, ink = brightness(colours["background"]), brightness(colours["colour"])
            assert colours["strange"] == 0  # the page's own colours for cells are not taken over
            assert (background < 60 and ink > 200) if dark else (background > 230 and ink < 60), (scheme, host, colours)


def test_the_page_around_stays_as_it_is_and_nothing_is_too_wide(browsed: dict[str, dict[str, Any]]) -> None:
    for found in browsed.values():
        assert found["outside"] == "rgb(1, 2, 3)"
        assert found["overflow"] <= 0


def test_a_text_begins_on_the_side_of_its_script(browsed: dict[str, dict[str, Any]]) -> None:
    assert browsed["light"]["aligned"][HEBREW] == "start"


def test_bars_are_as_long_as_the_scores(browsed: dict[str, dict[str, Any]]) -> None:
    found = browsed["light"]
    scores = [float(said) for said in re.findall(r"^(\d\.\d\d)$", found["text"], re.MULTILINE)]
    assert len(scores) == len(found["bars"]) == 3
    assert found["bars"] == pytest.approx(scores, abs=0.02)
