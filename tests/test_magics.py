"""The magic of a notebook: a cache that can be switched on and off again, and says what it did in a cell."""

from __future__ import annotations

import asyncio
import atexit
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from IPython.core.interactiveshell import InteractiveShell
from langchain_core.caches import InMemoryCache
from langchain_core.globals import get_llm_cache, set_llm_cache
from langchain_core.language_models import FakeListChatModel, FakeListLLM, SimpleChatModel
from langchain_core.outputs import LLMResult
from nbclient import NotebookClient
from pydantic import create_model
from traitlets.config import Config

import langmem_adapters
from langmem_adapters import magics, views
from langmem_adapters.langchain import ExperienceCache
from langmem_adapters.protocols import Appended

ROOT = Path(__file__).parent.parent


class Notebook:
    """A shell in this process, whose cells run as those of a notebook do."""

    def __init__(self) -> None:
        config = Config()
        config.HistoryManager.enabled = False
        self.shell: Any = InteractiveShell(config=config)  # type: ignore[no-untyped-call]
        self.count = 0
        self.shell.user_ns["FakeListChatModel"] = FakeListChatModel
        self.shown: list[Any] = []

    def publish(self, data: dict[str, Any], *_: Any, **__: Any) -> None:
        self.shown.append(data)

    def run(self, cell: str) -> Any:
        done = self.shell.run_cell(cell, store_history=True)
        done.raise_error()
        self.count = done.execution_count
        return done.result

    def refuses(self, cell: str, capsys: pytest.CaptureFixture[str]) -> str:
        capsys.readouterr()
        assert not self.shell.run_cell(cell, store_history=True).success
        said = capsys.readouterr()
        assert said.err.startswith("UsageError: ")
        assert said.err.count("\n") == 1  # no traceback
        return said.err


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Notebook]:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])  # a shell puts its own in the place
    before = get_llm_cache()
    hooks = sys.excepthook, sys.displayhook
    notebook = Notebook()
    monkeypatch.setattr(notebook.shell.display_pub, "publish", notebook.publish)
    notebook.run("%load_ext langmem_adapters")
    notebook.run("model = FakeListChatModel(responses=[f'answer {n}' for n in range(100)])")
    yield notebook
    set_llm_cache(before)
    notebook.shell.atexit_operations()
    atexit.unregister(notebook.shell.atexit_operations)  # once is enough
    sys.excepthook, sys.displayhook = hooks


@pytest.fixture
def url(tmp_path: Path) -> str:
    """As it is written in a cell: the folders of this machine may have names with blanks."""
    return f'"sqlite:///{tmp_path / "cache.db"}"'


def html(shown: Any) -> str:
    return str(shown._repr_html_())


# --- on and off


def test_a_cell_that_is_run_twice_is_served_the_second_time(notebook: Notebook, url: str) -> None:
    assert "is on, in SQLiteStore(" in repr(notebook.run(f"%langmem on {url}"))
    for _ in range(2):
        assert notebook.run("model.invoke('Where is it?').content") == "answer 0"
    assert notebook.run("%langmem stats")["hits"] == 1
    notebook.run("%langmem off")
    assert notebook.run("model.invoke('Where is it?').content") == "answer 1"


def test_on_again_keeps_the_cache_and_what_was_there_before_it(notebook: Notebook, url: str) -> None:
    theirs = InMemoryCache()
    set_llm_cache(theirs)
    for cell in (f"%langmem on {url}", f"%langmem on {url}", "%langmem on"):
        notebook.run(cell)
        mine = get_llm_cache()
        notebook.run("model.invoke('Where?')")
    assert isinstance(mine, ExperienceCache)
    assert mine.stats()["hits"] == 2
    notebook.run("%langmem on sqlite:///other.db")
    assert get_llm_cache() is not mine
    notebook.run("model.invoke('Where?')")
    assert Path("other.db").is_file()
    for _ in range(2):
        assert repr(notebook.run("%langmem off")) == "The cache of this notebook is off."
        assert get_llm_cache() is theirs


def test_a_cache_that_was_set_meanwhile_stays(notebook: Notebook, url: str) -> None:
    notebook.run(f"%langmem on {url}")
    later = InMemoryCache()
    set_llm_cache(later)
    assert "Another cache was set after that of this notebook" in repr(notebook.run("%langmem"))
    assert "another one, set after it, stays on" in repr(notebook.run("%langmem off"))
    assert get_llm_cache() is later
    notebook.run(f"%langmem on {url}")
    assert get_llm_cache() is not later
    notebook.run("%langmem off")
    assert get_llm_cache() is later


def test_on_puts_it_back_where_another_took_its_place(notebook: Notebook, url: str) -> None:
    notebook.run(f"%langmem on {url}")
    mine = get_llm_cache()
    set_llm_cache(None)
    notebook.run("%langmem on")
    assert get_llm_cache() is mine
    notebook.run("%langmem off")
    assert get_llm_cache() is None


def test_without_a_url_it_is_where_every_cache_is(notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANGMEM_STORE_URL", "sqlite:///named.db")
    assert "named.db" in repr(notebook.run("%langmem on"))
    notebook.run("model.invoke('Where?')")
    assert Path("named.db").is_file()


def test_a_url_may_be_a_variable_and_may_have_spaces(notebook: Notebook, tmp_path: Path) -> None:
    notebook.run("url = 'sqlite:///variable.db'")
    assert "variable.db" in repr(notebook.run("%langmem on $url"))
    assert "two words.db" in repr(notebook.run(f"%langmem on 'sqlite:///{tmp_path}/two words.db'"))


@pytest.mark.parametrize("quoted", [False, True])
def test_a_url_may_have_backslashes_as_paths_of_windows_have_them(
    notebook: Notebook, tmp_path: Path, quoted: bool
) -> None:
    url = rf"sqlite:///Users\ada\#{quoted:d}.db"
    notebook.run(f'%langmem on "{url}"' if quoted else f"%langmem on {url}")
    notebook.run("model.invoke('Where?')")
    assert [path.name for path in tmp_path.glob("*.db")] == [rf"Users\ada\#{quoted:d}.db"]


def test_loading_again_and_unloading(notebook: Notebook, url: str) -> None:
    langmem_adapters.load_ipython_extension(notebook.shell)
    notebook.run("%load_ext langmem_adapters")
    notebook.run(f"%langmem on {url} --watch")
    langmem_adapters.load_ipython_extension(notebook.shell)
    assert "is on" in repr(notebook.run("%langmem"))
    notebook.run("model.invoke('Where?')")
    assert len(notebook.shown) == 1
    notebook.run("%unload_ext langmem_adapters")
    for event in ("pre_run_cell", "post_run_cell"):
        left = notebook.shell.events.callbacks[event]
        assert not any(isinstance(getattr(callback, "__self__", None), magics.Notebook) for callback in left)
    assert get_llm_cache() is None
    assert not notebook.shell.run_cell("%langmem").success
    for callback in (notebook.publish, lambda _cell: None):  # of other extensions
        notebook.shell.events.register("pre_run_cell", callback)
    notebook.run("%load_ext langmem_adapters")
    assert "is off" in repr(notebook.run("%langmem"))
    notebook.run("%reload_ext langmem_adapters")
    assert "is off" in repr(notebook.run("%langmem"))
    langmem_adapters.unload_ipython_extension(notebook.shell)
    langmem_adapters.unload_ipython_extension(notebook.shell)


def test_another_magic_of_that_name_gives_way_and_is_not_removed(notebook: Notebook, url: str) -> None:
    another = notebook.shell.register_magic_function
    langmem_adapters.unload_ipython_extension(notebook.shell)
    another(lambda _: "another", "line", "langmem")
    langmem_adapters.load_ipython_extension(notebook.shell)
    assert "is on" in repr(notebook.run(f"%langmem on {url}"))
    another(lambda _: "another", "line", "langmem")
    langmem_adapters.unload_ipython_extension(notebook.shell)
    assert notebook.run("%langmem") == "another"
    assert get_llm_cache() is None
    langmem_adapters.unload_ipython_extension(notebook.shell)
    assert notebook.run("%langmem") == "another"


# --- what was done in a cell


def test_last_tells_what_was_served_and_cached_in_the_last_cell(notebook: Notebook, url: str) -> None:
    assert repr(notebook.run("%langmem last")) == "No cell has asked a model since the cache was on."
    notebook.run(f"%langmem on {url}")
    notebook.run("model.invoke('Where?'); model.invoke('When?')")
    number = notebook.count
    told = repr(notebook.run("%langmem last"))
    assert told.splitlines() == [
        f"In [{number}]: 2 cached",
        "  cached: Where? -> answer 0",
        "  cached: When? -> answer 1",
    ]
    notebook.run("x = 1")
    assert repr(notebook.run("%langmem last")) == told
    notebook.run("model.invoke('Where?'); model.invoke('Who?')")
    shown = notebook.run("%langmem last")
    assert f"In [{number + 4}]: 1 served, 1 cached" in repr(shown)
    assert "  served: Where? -> answer 0" in repr(shown)
    assert "When?" not in repr(shown)
    for said in ("<td", "Where?", "answer 0", "served", "0 s"):
        assert said in html(shown)
    assert repr(notebook.run("model.invoke('Where?')\n%langmem last")).startswith("This cell: 1 served")
    assert repr(notebook.run("%langmem last")).startswith(f"In [{number + 6}]: 1 served")


def test_a_cell_is_told_apart_from_the_one_of_the_same_number(notebook: Notebook, url: str) -> None:
    notebook.run(f"%langmem on {url}")
    notebook.shell.run_cell("model.invoke('Where?')", store_history=False)
    notebook.shell.run_cell("model.invoke('When?')", store_history=False)
    assert "Where?" not in repr(notebook.run("%langmem last"))
    notebook.shell.run_cell("model.invoke('Who?')", store_history=False)
    notebook.shell.run_cell("x = 1", silent=True)
    assert "Who?" in repr(notebook.run("%langmem last"))


def test_what_is_not_kept_is_not_said_to_be(notebook: Notebook, url: str) -> None:
    notebook.run(f"%langmem on {url}")
    for call in ("silent.invoke('Where?')", "await silent.ainvoke('Where?')"):
        notebook.run(f"silent = FakeListChatModel(responses=[''])\n{call}")
        assert "]: 1 not kept" in repr(notebook.run("%langmem last"))
    notebook.run("from langmem_adapters.experience import bypass\nwith bypass():\n    model.invoke('When?')")
    assert "When?" not in repr(notebook.run("%langmem last"))


def test_what_is_refused_meanwhile_is_not_said_of_another_answer(
    notebook: Notebook, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook.run(f"%langmem on {url}\nsilent = FakeListChatModel(responses=[''])")
    cache = get_llm_cache()
    assert isinstance(cache, ExperienceCache)
    store = cache.pool.store
    append = store.append

    def meanwhile(*args: Any, **kwargs: Any) -> Appended:
        monkeypatch.setattr(store, "append", append)
        notebook.shell.user_ns["silent"].invoke("When?")
        return append(*args, **kwargs)

    monkeypatch.setattr(store, "append", meanwhile)
    notebook.run("model.invoke('Where?')")
    assert repr(notebook.run("%langmem last")).splitlines()[0].endswith("1 cached, 1 not kept")
    assert repr(notebook.run("%langmem clear last")) == "1 answer forgotten."


def test_a_model_that_gives_no_answer_at_all_is_told_of(notebook: Notebook, url: str) -> None:
    class Silent(FakeListLLM):
        def _generate(self, prompts: list[str], *_: Any, **__: Any) -> LLMResult:
            return LLMResult(generations=[[] for _ in prompts])

    notebook.run(f"%langmem on {url}")
    notebook.shell.user_ns["silent"] = Silent(responses=[])
    assert notebook.run("silent.generate(['Hello?']).generations") == [[]]
    assert "1 not kept" in repr(notebook.run("%langmem last"))


def test_an_outage_is_not_said_to_be_a_success(notebook: Notebook, tmp_path: Path, url: str) -> None:
    (tmp_path / "cache.db").write_bytes(b"not a database" * 1_000)
    notebook.run(f"%langmem on {url}")
    assert notebook.run("model.invoke('Where?').content") == "answer 0"
    assert "1 not kept" in repr(notebook.run("%langmem last"))
    assert notebook.run("%langmem stats")["errors"] == 2


def test_tools_completions_and_other_models_are_told_of(notebook: Notebook, url: str) -> None:
    notebook.run(f"%langmem on {url}")
    notebook.shell.user_ns["llm"] = FakeListLLM(responses=["in the shed"])
    notebook.run("for _ in range(2): llm.invoke('Where is my bike?')")
    told = repr(notebook.run("%langmem last"))
    assert "cached: Where is my bike? -> in the shed" in told
    assert "served: Where is my bike? -> in the shed" in told
    notebook.run(
        "from langchain_core.language_models import FakeMessagesListChatModel as Fake\n"
        "from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage\n"
        "call = AIMessage('', tool_calls=[{'id': '1', 'name': 'look', 'args': {}}])\n"
        "_ = Fake(responses=[call]).invoke([SystemMessage('Be kind.'), HumanMessage('Hello.'),"
        " HumanMessage('Find it.'),"
        " AIMessage('', tool_calls=[{'id': '0', 'name': 'wait', 'args': {}}]), ToolMessage('ok', tool_call_id='0')])"
    )
    assert "cached: Find it. -> → look" in repr(notebook.run("%langmem last"))


def test_what_is_told_is_escaped_masked_and_cut(notebook: Notebook, url: str) -> None:
    notebook.run(f"%langmem on {url}")
    notebook.run("for n in range(30): model.invoke(f'{n} <script>x</script> sk-abcdefgh1234567890abcd ' + 'y' * 5000)")
    shown = notebook.run("%langmem last")
    assert "<script>" not in html(shown)
    assert "&lt;script&gt;" in html(shown)
    assert "abcdefgh1234567890" not in html(shown) + repr(shown)
    assert "10 more" in repr(shown)
    assert "10 more are not shown" in html(shown)
    assert len(html(shown)) < 40_000
    assert max(map(len, repr(shown).splitlines())) < 160


def test_only_the_answers_that_are_shown_are_shortened(
    notebook: Notebook, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shortened: list[object] = []
    shorten = views.one_line
    monkeypatch.setattr(views, "one_line", lambda text: shortened.append(text) or shorten(text))  # type: ignore[func-returns-value]
    notebook.run(f"%langmem on {url}")
    for count in (20, 30):
        shortened.clear()
        notebook.run(f"for n in range({count}): model.invoke(str(({count}, n)))")
        shown = repr(notebook.run("%langmem last"))
        assert f"{count} cached" in shown
        assert ("more" in shown) == (count > 20)
        assert len(shortened) == 2 * 20


def test_watching_shows_each_cell_that_asked_and_no_other(notebook: Notebook, url: str) -> None:
    notebook.run(f"%langmem on {url}\nmodel.invoke('Where?')")
    assert notebook.shown == []
    notebook.run("%langmem on --watch")
    notebook.run("x = 1")
    assert notebook.shown == []
    notebook.run("model.invoke('Where?')")
    (shown,) = notebook.shown
    assert "]: 1 served" in shown["text/plain"]
    assert "langmem-view" in shown["text/html"]
    notebook.run("""_ = get_ipython().run_cell("model.invoke('Where?')")""")
    assert len(notebook.shown) == 2
    notebook.run("%langmem on")
    notebook.run("model.invoke('Where?')")
    assert len(notebook.shown) == 2


# --- clearing


def test_clear_forgets_all_and_clear_last_what_the_last_cell_used(
    notebook: Notebook, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook.run(f"%langmem on {url}")
    notebook.run("for q in 'abc': model.invoke(q)")
    notebook.run("for q in 'ab': model.invoke(q)")
    assert repr(notebook.run("%langmem clear last")) == "2 answers forgotten."
    assert repr(notebook.run("%langmem clear last")) == "0 answers forgotten."
    cache = get_llm_cache()
    assert isinstance(cache, ExperienceCache)
    assert cache.pool.count() == 1
    assert "%langmem clear takes last, or nothing" in notebook.refuses("%langmem clear lst", capsys)
    assert repr(notebook.run("%langmem clear")) == "All answers are forgotten."
    assert cache.pool.count() == 0


def test_clear_last_forgets_what_a_model_said_that_tells_langchain_little(notebook: Notebook, url: str) -> None:
    class Quiet(SimpleChatModel):
        base_url: str = "http://127.0.0.1:1"

        @property
        def _llm_type(self) -> str:
            return "quiet"

        def _call(self, *_: Any, **__: Any) -> str:
            return "Yes."

    notebook.shell.user_ns["quiet"] = Quiet()
    notebook.run(f"%langmem on {url}")
    notebook.run("for _ in range(2): quiet.invoke('Where?')")
    assert repr(notebook.run("%langmem last")).splitlines()[0].endswith("1 served, 1 cached")
    assert repr(notebook.run("%langmem clear last")) == "1 answer forgotten."


def test_a_model_that_notes_what_it_did_is_served(notebook: Notebook, url: str) -> None:
    class Counting(SimpleChatModel):
        calls: int = 0

        @property
        def _llm_type(self) -> str:
            return "counting"

        def _call(self, *_: Any, **__: Any) -> str:
            self.calls += 1
            return f"answer {self.calls}"

    notebook.shell.user_ns["counting"] = Counting()
    notebook.run(f"%langmem on {url}")
    said = notebook.run("[counting.invoke(asked).content for asked in ('Where?', 'When?', 'Where?')]")
    assert said == ["answer 1", "answer 2", "answer 1"]


def test_what_had_no_key_is_not_told_as_cached(notebook: Notebook, url: str) -> None:
    notebook.shell.user_ns["one"] = create_model("Answer", yes=(bool, ...))
    notebook.shell.user_ns["other"] = create_model("Answer", no=(bool, ...))  # LangChain tells them by their name
    notebook.run(f"%langmem on {url}")
    notebook.run("model.invoke('Where?', response_format=one)")
    cache = get_llm_cache()
    assert isinstance(cache, ExperienceCache)
    assert (cache.stats()["unkeyed"], cache.pool.count()) == (1, 0)
    assert repr(notebook.run("%langmem last")).splitlines()[0].endswith("1 not kept")
    assert repr(notebook.run("%langmem clear last")) == "0 answers forgotten."


# --- what goes wrong


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("%langmem fly", "on, off, last, stats, clear, status, not 'fly'"),
        ("%langmem on ftp://x", "a store's URL is"),
        ("%langmem on memory: memory:", "%langmem on takes [url] [--watch]"),
        ("%langmem on --loud", "%langmem on takes [url] [--watch]"),
        ("%langmem on 'unclosed", "a quotation mark is not closed"),
        ("%langmem stats", "is off: turn it on with %langmem on"),
        ("%langmem clear", "is off: turn it on with %langmem on"),
        ("%langmem off now", "%langmem off takes nothing more"),
        ("%langmem last 3", "%langmem last takes nothing more"),
        ("%langmem on redis://app:hunter2@127.0.0.1:notaport/0", "redis://app:***@127.0.0.1"),
    ],
)
def test_mistakes_are_one_sentence(
    notebook: Notebook, capsys: pytest.CaptureFixture[str], line: str, said: str
) -> None:
    told = notebook.refuses(line, capsys)
    assert said in told
    assert "hunter2" not in told
    assert get_llm_cache() is None
    assert "is off" in repr(notebook.run("%langmem"))


def test_an_outage_is_one_sentence(
    notebook: Notebook, capsys: pytest.CaptureFixture[str], tmp_path: Path, url: str
) -> None:
    (tmp_path / "cache.db").write_bytes(b"not a database" * 1_000)
    notebook.run(f"%langmem on {url}")
    assert "cache.db" in notebook.refuses("%langmem clear", capsys)


def test_nothing_is_printed_unless_asked(notebook: Notebook, url: str, capfd: pytest.CaptureFixture[str]) -> None:
    capfd.readouterr()
    notebook.run(f"status = %langmem on {url}")
    notebook.run("_ = model.invoke('Where?');")
    notebook.run("_ = model.invoke('Where?');")
    notebook.run("%langmem off\nNone")
    assert capfd.readouterr() == ("", "")
    assert notebook.shown == []


# --- loops


def test_cells_that_await_are_served_and_told_of(notebook: Notebook, url: str) -> None:
    notebook.run(f"%langmem on {url}")
    for _ in range(2):
        notebook.run("import asyncio\n_ = await asyncio.gather(*[model.ainvoke(q) for q in 'ab'])")
    assert ": 2 served" in repr(notebook.run("%langmem last"))


async def test_commands_and_calls_work_inside_of_a_running_loop(notebook: Notebook, url: str) -> None:
    """As in a kernel: the shell itself runs in a loop, and both kinds of calls are made in it."""

    async def run(cell: str) -> Any:
        transformed = notebook.shell.transform_cell(cell)
        done = await notebook.shell.run_cell_async(cell, store_history=True, transformed_cell=transformed)
        done.raise_error()
        return done.result

    assert asyncio.get_running_loop().is_running()
    await run(f"%langmem on {url}")
    await run("model.invoke('Where?')")
    await run("_ = await model.ainvoke('Where?')")
    assert "1 served" in repr(await run("%langmem last"))
    assert (await run("%langmem stats"))["hits"] == 1
    await run("%langmem clear")
    assert (await run("(await model.ainvoke('Where?')).content")) == "answer 1"
    await run("%langmem off")


# --- a notebook


CELLS = (
    "%langmem on sqlite:///cache.db",
    (
        "from langchain_core.language_models import FakeListChatModel\n"
        "from langmem_adapters import BrainMemory, LongTermMemory, Message, open_index, open_store\n"
        "model = FakeListChatModel(responses=['In the shed.', 'Elsewhere.'])\n"
        "model.invoke('Where is my bike?').content"
    ),
    "(await model.ainvoke('Where is my bike?')).content",
    "%langmem last",
    (
        "brain = BrainMemory(open_store('sqlite:///memory.db'), 'session-1', user='ada')\n"
        "brain.add_messages([Message(id='1', role='user', content='Where is my bike?')])\n"
        "brain"
    ),
    (
        "memory = LongTermMemory(open_store('sqlite:///memory.db'), open_index('sqlite:///memory.db'), user='ada')\n"
        "await memory.aadd(brain.messages())\n"
        "memory.search('bike')"
    ),
    "%langmem stats",
    "print('quiet')",
)


def outputs(cell: Any) -> list[dict[str, Any]]:
    return [dict(output) for output in cell.outputs]


def test_a_notebook_can_be_run_and_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kernel_environment: Callable[[], None]
) -> None:
    kernel_environment()
    monkeypatch.chdir(tmp_path)
    loading = nbformat.v4.new_code_cell("%load_ext langmem_adapters")  # type: ignore[no-untyped-call]
    made = nbformat.v4.new_notebook(cells=[loading, *map(nbformat.v4.new_code_cell, CELLS)])  # type: ignore[no-untyped-call]
    client = NotebookClient(
        made,
        timeout=120,
        kernel_name="python3",
        coalesce_streams=True,  # a busy kernel may send a line's end by itself
        resources={"metadata": {"path": str(tmp_path)}},
    )
    with client.setup_kernel():
        for again in range(2):
            for n, cell in enumerate(made.cells):
                client.execute_cell(cell, n)
            assert bool(loading.outputs) == again  # IPython says that it is loaded already
            shown = [outputs(cell) for cell in made.cells[1:]]
            assert [len(one) for one in shown] == [1] * len(CELLS)
            assert shown[0][0]["data"]["text/plain"].startswith("The cache of this notebook is on")
            assert shown[1][0]["data"]["text/plain"] == shown[2][0]["data"]["text/plain"] == "'In the shed.'"
            assert "1 served" in shown[3][0]["data"]["text/plain"]
            assert "1 message" in shown[4][0]["data"]["text/html"]
            assert "<mark>bike</mark>" in shown[5][0]["data"]["text/html"]
            assert "Where is my bike?" in shown[5][0]["data"]["text/plain"]
            assert f"hit rate {(50, 75)[again]} %" in shown[6][0]["data"]["text/html"]
            assert shown[7][0]["text"] == "quiet\n"
            assert "stderr" not in json.dumps(shown)


@pytest.fixture
def kernel_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """A kernel of this Python, whatever kernels the person who runs the tests has installed."""

    def prepare() -> None:
        spec = tmp_path / "jupyter" / "kernels" / "python3"
        spec.mkdir(parents=True)
        arguments = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        described = {"argv": arguments, "display_name": "Python 3", "language": "python"}
        (spec / "kernel.json").write_text(json.dumps(described))
        for name in ("JUPYTER_DATA_DIR", "JUPYTER_PATH"):
            monkeypatch.setenv(name, str(tmp_path / "jupyter"))
        monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
        monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path / "config"))
        monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
        monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
        monkeypatch.setenv("PYTHONPATH", str(ROOT))

    return prepare


# --- small things


@pytest.mark.parametrize(
    ("age", "said"),
    [(None, ""), (0.0, "0 s"), (59.0, "59 s"), (60.0, "1 min"), (7_200.0, "2 h"), (172_800.0, "2 d")],
)
def test_ages_are_said_as_people_say_them(age: float | None, said: str) -> None:
    assert magics._format_age(age) == said
