"""The command line, as a person meets it: real stores, real files, real processes."""

from __future__ import annotations

import contextlib
import errno
import gzip
import io
import json
import os
import pty
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

import pytest
import redis
from rich.console import Console
from typer.main import get_command
from typer.testing import CliRunner, Result

from langmem_adapters import LongTermMemory, Message, Settings, cached, open_index, open_store
from langmem_adapters.brain import BrainMemory
from langmem_adapters.cli.app import app
from langmem_adapters.cli.output import replace_file
from langmem_adapters.cli.terminal import format_findings, format_hits, format_message, progress
from langmem_adapters.encryption import AESGCMCodec, EnvelopeCodec, new_key
from langmem_adapters.experience import ExperiencePool
from langmem_adapters.importing import FileFormat
from langmem_adapters.inspection import Dates, Finding
from langmem_adapters.model import Experience, Memory, Recalled, ToolCall
from langmem_adapters.operations import Migration
from langmem_adapters.views.plain import escape_control_chars
from tests.benchmarks import recall as benchmark
from tests.interpreters import STRICT
from tests.servers import RedisServer
from tests.waiting import until

ROOT = Path(__file__).parent.parent
REFUSED = "redis://:hidden-password@127.0.0.1:1/0"
LOCOMO = {
    "conversations": [
        {
            "id": "talk-1",
            "speakers": ["Nora", "Emil"],
            "turns": [
                {"id": "D1:1", "s": 1, "sp": "Nora", "t": "I adopted a tortoise.", "d": "2024-03-01T10:00"},
                {"id": "D1:2", "s": 1, "sp": "Emil", "t": "Lovely!", "d": "2024-03-01T10:00", "cap": "a heart"},
                {"id": "D2:1", "s": 2, "sp": "Emil", "t": "I repaired my telescope.", "d": "2024-04-02T20:30"},
            ],
            "qa": [
                {"q": "Which animal did Nora adopt?", "a": "a tortoise", "cat": 4, "ev": ["D1:1"]},
                {"q": "Which instrument was repaired?", "a": "a telescope", "cat": 4, "ev": ["D2:1", "D1:2"]},
                {"q": "Which car do they have?", "a": "none", "cat": 5, "ev": []},
            ],
        },
        {
            "id": "talk-2",
            "speakers": ["Ines", "Otto"],
            "turns": [{"id": "D1:1", "s": 1, "sp": "Otto", "t": "The tortoise is slow.", "d": "2024-05-01T09:00"}],
            "qa": [],
        },
    ]
}
CHAT: list[dict[str, Any]] = [
    {"role": "user", "content": "Which weather is it in Paris?", "mood": "curious"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Paris"}'}},
            {"id": "c2", "type": "function", "function": {"name": "weather", "arguments": {"city": "Rome"}}},
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "rain"},
    {"role": "assistant", "content": "It rains.\u2028Take an umbrella.", "id": "a4", "created_at": 5, "refusal": None},
]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/memory.db"


@pytest.fixture
def ada(url: str) -> BrainMemory:
    brain = BrainMemory(open_store(url), "monday", user="ada")
    brain.add_messages([Message(role="user", content="My bike is in the shed.", id="m1", created_at=1_700_000_000.0)])
    brain.add_answer("Noted.", tool_calls=[ToolCall(id="c", name="note", args={"text": "bike"})])
    brain.set_title("The bike")
    brain.set_summary("They spoke of a bike.")
    brain.add_knowledge(["Ada has a bike."])
    return brain


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def fails(*arguments: str | Path) -> str:
    """The one sentence with which a command fails."""
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert result.stderr.endswith("\n")
    return result.stderr.strip()


def script(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *STRICT, "-m", "langmem_adapters", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment, **options)


def messages(url: str, session: str, user: str = "", tenant: str = "") -> list[Message]:
    return BrainMemory(open_store(url), session, user=user, tenant=tenant).messages()


def written(path: Path, value: object) -> Path:
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


# --- looking at what is there


def test_version() -> None:
    result = run("--version")
    assert (result.exit_code, result.stdout) == (0, "langmem_adapters 0.1.0\n")


def test_sessions(url: str, ada: BrainMemory) -> None:
    BrainMemory(ada.store, "tuesday", user="ada").add_talk("Hello.")
    BrainMemory(ada.store, "of-bo", user="bo").add_talk("Hello.")
    lines = run("sessions", "--url", url, "--user", "ada").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["session", "tuesday", "monday"]
    assert re.search(r"monday +The bike +2 +\d{4}-\d\d-\d\d \d\d:\d\d", lines[2])
    assert "monday" not in run("sessions", "--url", url, "--user", "ada", "--limit", "1").stdout
    assert run("sessions", "--url", url).stdout.startswith("There are no sessions without a user")
    of_other = run("sessions", "--url", url, "--user", "ada", "--tenant", "other").stdout
    assert of_other == "There are no sessions of user 'ada' of tenant 'other'.\n"  # which LANGMEM_TENANT may have said


def test_environment_names_the_store(url: str, ada: BrainMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ada.count() == 2
    monkeypatch.setenv("LANGMEM_STORE_URL", url)
    assert "monday" in run("sessions", "--user", "ada").stdout


def test_a_message_without_text_has_no_empty_line() -> None:
    message = Message(role="assistant", content="", tool_calls=[ToolCall(id="1", name="look", args={})])
    assert format_message(message).plain == "assistant\n→ look()"


def test_show(url: str, ada: BrainMemory) -> None:
    ada.add_messages(
        [
            Message(role="tool", content="done", tool_call_id="c", name="note"),
            Message(role="user", content=["Look:", {"type": "image", "url": "https://example.org/cat.png"}]),
        ]
    )
    shown = run("show", "monday", "--url", url, "--user", "ada").stdout
    for part in ("The bike", "Summary: They spoke of a bike.", "Known: Ada has a bike.", "→ note(text='bike')"):
        assert part in shown
    assert re.search(r"user · 2023-11-1\d \d\d:\d\d\nMy bike is in the shed\.\nassistant", shown)
    assert re.search(r"tool · note · c · .*\ndone\n", shown)
    assert shown.endswith("Look:\n[image]\n")
    assert "My bike is in the shed" not in run("show", "monday", "--last", "1", "--url", url, "--user", "ada").stdout


def test_recall(url: str, ada: BrainMemory) -> None:
    memory = LongTermMemory(ada.store, open_index(url), user="ada")
    memory.add([*ada.messages(), Message(role="user", content="The car is at the garage.")], session="monday")
    memory.add([Message(role="user", content="My bike is in the shed.", id="m9")], session="tuesday")
    found = run("recall", "Where is the bike?", "--url", url, "--user", "ada", "-k", "1").stdout
    line = r"0\.\d\d · \d{4}-\d\d-\d\d \d\d:\d\d · session tuesday · user · said 2 times"
    assert re.fullmatch(line + r"\nMy bike is in the shed\.\n", found)
    assert run("recall", "zebra", "--url", url, "--user", "ada").stdout == "Nothing was found.\n"
    nothing = run("recall", "bike", "--url", url, "--user", "bo").stdout
    assert nothing.startswith("There are no memories of 'bo': ")
    assert nothing.endswith(" with --long-term.\n")
    assert "--user" in fails("recall", "bike", "--url", url)


def test_eval(url: str, ada: BrainMemory, tmp_path: Path) -> None:
    memory = LongTermMemory(ada.store, open_index(url), user="ada")
    for n in range(12):
        memory.add([Message(role="user", content=f"Key number {n} hangs on hook {n}.", id=f"m{n}")], session=f"s{n}")
    questions = [{"question": f"Where is key number {n}?", "evidence": [f"m{n}"]} for n in range(12)]
    questions[-1]["evidence"] = ["nowhere"]
    file, weights = tmp_path / "questions.jsonl", tmp_path / "weights.json"
    file.write_text("\n".join(map(json.dumps, questions)))
    found = run("eval", file, "--url", url, "--user", "ada").stdout
    assert re.match(
        r"12 questions: recall@5 91\.7 %, .*MRR 0\.\d{3}, [\d.]+ ms each\n1 answers are in no memory", found
    )
    weights.write_text("earlier")
    (tmp_path / "open.json").hardlink_to(weights)  # as a reader has it, or an interrupt leaves it
    fitted = run("eval", file, "--url", url, "--user", "ada", "--fit", "--save", weights).stdout
    assert (tmp_path / "open.json").read_text() == "earlier"  # replaced as a whole, and not written over
    assert re.search(r"becomes [\d.]+: (better|no clear difference|worse)\n", fitted)
    LongTermMemory(ada.store, open_index(url), user="ada", weights=json.loads(weights.read_text()))
    assert "line 1" in fails("eval", written(tmp_path / "wrong.jsonl", "{"), "--url", url, "--user", "ada")
    assert "--fit" in fails("eval", file, "--url", url, "--user", "ada", "--save", tmp_path / "none.json")
    own, name = tmp_path / "memory.db", tmp_path / "name.db"
    name.hardlink_to(own)
    for path in (own, name):
        said = fails("eval", file, "--url", url, "--user", "ada", "--fit", "--save", path)
        assert said == f"{path} is the store itself: give the weights a file of its own"
    said = fails("eval", file, "--url", url, "--user", "ada", "--fit", "--save", file)
    assert said == f"{file} is the file that is read: give the weights a file of its own"
    missing = tmp_path / "no"  # which is said before anything is measured
    said = fails("eval", file, "--url", url, "--user", "ada", "--fit", "--save", missing / "weights.json")
    assert said == f"{missing} is no folder: make it first"
    of_ada = written(tmp_path / "named.json", [{**questions[0], "user": "ada"}])
    found = run("eval", of_ada, "--url", url, "--user", "bo").stdout
    assert "recall@5 100.0 %" in found
    assert "in no memory" not in found
    assert ada.count() == 2


def test_recall_of_a_session_without_a_user(url: str) -> None:
    store = open_store(url)
    LongTermMemory(store, open_index(url), session="s").add([Message(role="user", content="A red kite.")])
    assert "A red kite." in run("recall", "kite", "--session", "s", "--url", url).stdout


def test_stats(url: str, ada: BrainMemory, tmp_path: Path) -> None:
    LongTermMemory(ada.store, open_index(url), user="ada").add(ada.messages())
    pool = ExperiencePool(ada.store, tag="capitals", user="ada")
    assert cached(pool=pool)(lambda country: f"of {country}")("France") == "of France"  # with its lease below
    LongTermMemory(ada.store, open_index(url), session="s").add([Message(role="user", content="A red kite.")])
    for n in range(20):
        BrainMemory(ada.store, f"s{n}", user="ada").set_title("Another")  # more sessions than a page of them
    counted = dict(
        re.findall(r"^(.+?) {2,}([\d,]+)$", run("stats", "--url", url, "--user", "ada").stdout, re.MULTILINE)
    )
    size = int(counted.pop("bytes on disk").replace(",", ""))
    assert size >= (tmp_path / "memory.db").stat().st_size > 0
    assert counted == {"sessions": "21", "messages": "2", "memories": "2", "experiences of 'capitals'": "1"}
    assert re.search(r"^memories +1$", run("stats", "--url", url).stdout, re.MULTILINE)


@pytest.mark.parametrize("of", [{"user": "bob"}, {"user": "ada", "tenant": "acme"}], ids=["memories", "another tenant"])
def test_nothing_is_imported_as_plain_text_beside_what_is_encrypted(url: str, tmp_path: Path, of: Any) -> None:
    encrypted = Settings(url=url, codec=AESGCMCodec({"2026": new_key()}), tenant=of.get("tenant", ""))
    encrypted.long_term(user="ada").add([Message(role="user", content="A red kite.")])
    chat = written(tmp_path / "chat.json", CHAT)
    assert "is encrypted" in fails("import", chat, "--long-term", "--url", url, "--user", of["user"])
    assert not messages(url, "chat", user=of["user"])
    encrypted.brain("sealed").add_talk("Hello.")
    Settings(url=url, tenant="zoo").brain("plain").add_talk("Hello.")  # who keeps both knows what he does
    arguments = ["import", chat, "--url", url, "--user", of["user"], "--tenant", "zoo"]
    assert run(*arguments).exit_code == 0
    Settings(url=url, tenant="zoo", codec=encrypted.codec).brain("plain").add_talk("Hello.")  # the newest decides
    assert "is encrypted" in fails(*arguments)
    Settings(url=url, tenant="zoo").brain("plain").set_title("Hello")  # is no message
    assert "is encrypted" in fails(*arguments)
    Settings(url=url, tenant="zoo").brain("plain").add_talk("Hello.")
    assert run(*arguments).exit_code == 0
    Settings(url=f"{url}2", codec=encrypted.codec).brain("titled").set_title("A kite.")  # and no message yet
    assert "is encrypted" in fails("import", chat, "--url", f"{url}2")


@pytest.mark.parametrize("kind", ["plain keys", "an envelope"])
def test_what_is_encrypted_is_refused_and_not_taken_for_damaged(kind: str, url: str, tmp_path: Path) -> None:
    keys = AESGCMCodec({"2026": new_key()})
    codec = keys if kind == "plain keys" else EnvelopeCodec(open_store(url), keys)
    settings = Settings(url=url, codec=codec)
    settings.brain("monday", user="ada").add_talk("My bike is in the shed.")
    settings.brain("titled", user="bob").set_title("The bike")
    settings.long_term(user="ada").add([Message(role="user", content="A red kite.")])
    backup = written(tmp_path / "backup.jsonl", "a good one")
    chat = written(tmp_path / "chat.json", CHAT)
    questions = written(tmp_path / "questions.json", [{"question": "Which kite?", "evidence": ["A red kite."]}])
    commands: list[tuple[str | Path, ...]] = [
        ("show", "monday", "ada"),
        ("show", "titled", "bob"),
        ("recall", "kite", "ada"),
        ("eval", questions, "ada"),
        ("export", "--output", backup, "ada"),
        ("export", "monday", "--output", backup, "ada"),
        ("import", chat, "eve"),
    ]
    for *command, user in commands:
        said = fails(*command, "--url", url, "--user", user)
        assert said.endswith(" is encrypted, and there is no codec: use Settings(codec=…); the command line has none")
    assert backup.read_text() == "a good one"
    assert run("export", "--url", url, "--user", "ada").exit_code == 2
    assert not messages(url, "chat", user="eve")
    assert "monday" in run("sessions", "--url", url, "--user", "ada").stdout
    assert run("doctor", "--url", url).exit_code == 0


@pytest.mark.parametrize("harm", ["[red]stop[/red]", "\x1b[2J", "\x9b2J", "\u202eabc", "[link=x]", ":boom:", "\ud800"])
def test_stored_text_is_harmless(url: str, harm: str) -> None:
    store = open_store(url)
    brain = BrainMemory(store, f"s{harm}", user=f"u{harm}")
    message = Message(
        role=f"r{harm}", content=f"bike {harm}", name=f"n{harm}", tool_calls=[ToolCall(name=harm, args={harm: harm})]
    )
    brain.add_messages([message])
    brain.set_title(f"t{harm}")
    LongTermMemory(store, open_index(url), user=f"u{harm}").add([message.model_copy(update={"role": "user"})])
    for command in (["sessions"], ["show", f"s{harm}"], ["recall", "bike"], ["show", f"no{harm}"]):
        result = run(*command, "--url", url, "--user", f"u{harm}")
        assert result.exit_code == (2 if command[-1].startswith("no") else 0)
        output = result.output.replace("\n", "")
        assert escape_control_chars(output) == output
        assert escape_control_chars(harm) in output


def test_output_to_a_closed_pipe(url: str) -> None:
    brain = BrainMemory(open_store(url), "long")
    brain.add_messages([Message(role="user", content="x" * 1000) for _ in range(300)])
    for command in (["show", "long"], ["export", "long"]):
        arguments = [sys.executable, "-m", "langmem_adapters", *command, "--url", url]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.readline()
            process.stdout.close()
            assert process.stderr.read() == b""


def test_progress_is_for_terminals(tmp_path: Path) -> None:
    for is_coloured in (True, False):  # as FORCE_COLOR makes it, also in a pipe
        pipe = io.StringIO()
        with progress(Console(file=pipe, force_terminal=is_coloured, width=80)) as bar:
            bar.update(bar.add_task("importing", total=3), advance=3)
        assert pipe.getvalue() == ""
    ours, theirs = pty.openpty()
    file = written(tmp_path / "chat.json", CHAT)
    command = [sys.executable, "-m", "langmem_adapters", "import", str(file), "--url", f"sqlite:///{tmp_path}/m.db"]
    environment = {**os.environ, "TERM": "xterm"}
    subprocess.run(command, stderr=theirs, stdout=subprocess.PIPE, cwd=ROOT, check=True, timeout=60, env=environment)
    assert b"importing" in os.read(ours, 65536)
    os.close(ours)
    os.close(theirs)


# --- export and import


@pytest.mark.skipif(os.name == "nt", reason="Windows ends a process without a signal")
def test_an_export_that_is_told_to_end_leaves_no_file(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/m.db"
    brain = BrainMemory(open_store(url), "long")
    brain.add_messages([Message(role="user", content="x" * 1000) for _ in range(20_000)])
    folder = tmp_path / "exports"
    folder.mkdir()
    command = [sys.executable, "-m", "langmem_adapters", "export", "--url", url, "--output", str(folder / "all.jsonl")]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE) as process:
        until(lambda: any(file.stat().st_size for file in folder.iterdir()))
        process.terminate()
        assert process.communicate(timeout=60)[1] == b""
    assert process.returncode == 143
    assert list(folder.iterdir()) == []


def test_what_was_said_has_no_colour_of_its_speaker() -> None:
    memory = Recalled(Memory(message=Message(role="user", content="A bike.")), 0.5)
    finding = Finding("problem", "disk", "it is full", "make room")
    shown = [format_message(Message(role="user", content="A bike.")), format_hits([memory]), format_findings([finding])]
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, color_system="standard", no_color=False, width=80)
    for each in shown:
        console.print(each)
    assert stream.getvalue() == (
        "\x1b[1;36muser\x1b[0m\nA bike.\n"
        "\x1b[1;32m0.50\x1b[0m\x1b[2m · user\x1b[0m\nA bike.\n"
        "\x1b[1;31mproblem\x1b[0m  disk: it is full\n\x1b[2m         → make room\x1b[0m\n"
    )


def test_export_and_import_give_the_same(url: str, ada: BrainMemory, tmp_path: Path) -> None:
    ada.add_messages([Message(role="user", content=[{"type": "image", "data": b"\0\xff"}], metadata={"t": (1, 2)})])
    BrainMemory(ada.store, "tuesday", user="ada").add_talk("Hello.\u2028\x85 Still the same line.")
    file, other = tmp_path / "out.jsonl", f"sqlite:///{tmp_path}/other.db"
    result = run("export", "--url", url, "--user", "ada", "--output", file)
    assert (result.exit_code, result.output) == (0, "")
    assert run("export", "--url", url, "--user", "ada").stdout_bytes == file.read_bytes()
    imported = run("import", file, "--url", other, "--user", "bo", "--tenant", "t")
    assert imported.stdout == "4 of 4 messages were new, in 2 sessions.\n"
    for session in ("monday", "tuesday"):
        assert messages(other, session, "bo", "t") == messages(url, session, "ada")
    copy = BrainMemory(open_store(other), "monday", user="bo", tenant="t")
    assert copy.get_title() == "The bike"
    assert copy.get_summary() == ada.get_summary()
    assert copy.get_knowledge() == ada.get_knowledge()
    assert run("import", file, "--url", other, "--user", "bo", "--tenant", "t").stdout.startswith("0 of 4 messages")


def test_export_of_one_session(url: str, ada: BrainMemory) -> None:
    BrainMemory(ada.store, "tuesday", user="ada").add_talk("Hello.")
    lines = run("export", "tuesday", "--url", url, "--user", "ada").stdout.splitlines()
    assert {json.loads(line)["session"] for line in lines} == {"tuesday"}
    assert "no session 'friday' of user 'ada'" in fails("export", "friday", "--url", url, "--user", "ada")
    BrainMemory(ada.store, "friday", user="ada").set_title("Nothing said yet")
    assert run("export", "friday", "--url", url, "--user", "ada").stdout.count("Nothing said yet") == 1


@pytest.mark.usefixtures("ada")
def test_an_export_has_any_name_that_a_file_can_have(url: str, tmp_path: Path) -> None:
    for name in ("é" * 127, "a" * 255, "#%41", "[bold]"):
        run("export", "--output", tmp_path / name, "--url", url, "--user", "ada")
        assert (tmp_path / name).read_text().count("\n") == 3
    assert "File name too long" in fails("export", "--output", tmp_path / ("a" * 256), "--url", url, "--user", "ada")


def test_an_export_does_not_take_the_place_of_its_store(
    url: str, ada: BrainMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "memory.db")
    (tmp_path / "name.db").hardlink_to(tmp_path / "memory.db")  # as MEMORY.DB is one, where case makes no difference
    log = Path(f"{tmp_path}/memory.db-wal")
    log.touch()  # if it is not there just now; memory.db-shm may not be
    (tmp_path / "log").hardlink_to(log)
    own = ("memory.db", "link.db", "name.db", "none/../memory.db", "memory.db-wal", "memory.db-shm", "log")
    for name in own:
        said = fails("export", "--output", tmp_path / name, "--url", url, "--user", "ada")
        assert said == f"{tmp_path / name} is the store itself: give the export a file of its own"
    monkeypatch.setenv("LANGMEM_STORE_URL", url)
    assert "is the store itself" in fails("export", "--output", tmp_path / "memory.db", "--url", "", "--user", "ada")
    assert ada.count() == 2


def test_export_replaces_a_file_as_a_whole(url: str, ada: BrainMemory, tmp_path: Path) -> None:
    file = written(tmp_path / "out.jsonl", "old")
    assert run("export", "--url", url, "--user", "ada", "--output", file).exit_code == 0
    assert [json.loads(line)["type"] for line in file.read_text().splitlines()] == ["session", "message", "message"]
    assert ada.count() == 2
    assert "not a file" in fails("export", "--url", url, "--user", "ada", "--output", tmp_path)
    missing = tmp_path / "no"
    said = fails("export", "--url", url, "--user", "ada", "--output", missing / "out.jsonl")
    assert said == f"{missing} is no folder: make it first"


def test_a_file_that_windows_does_not_replace_as_it_is_open_is_named(
    url: str, ada: BrainMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, target: Path) -> None:
        raise PermissionError(errno.EACCES, "Access is denied", str(path), None, str(target))

    file = written(tmp_path / "out.jsonl", "old")
    monkeypatch.setattr(Path, "replace", refuse)
    assert fails("export", "--url", url, "--user", "ada", "--output", file) == f"{file}: Access is denied"
    assert file.read_text() == "old"
    assert [path.name for path in tmp_path.glob("*out*")] == ["out.jsonl"]
    assert ada.count() == 2


@pytest.mark.parametrize("user", ["adda", ""])
def test_an_export_of_nobody_leaves_a_backup_alone(url: str, ada: BrainMemory, tmp_path: Path, user: str) -> None:
    file = written(tmp_path / "backup.jsonl", "old")
    before = file.read_text()
    said = fails("export", "--url", url, "--user", user, "--output", file)
    assert f"there are no sessions {f'of user {user!r}' if user else 'without a user'}" in said
    assert file.read_text() == before
    assert "there are no sessions" in fails("export", "--url", url, "--user", user)
    assert ada.count() == 2


def test_an_interrupt_just_after_an_export_took_its_place_is_one(tmp_path: Path) -> None:
    backup = tmp_path / "backup.jsonl"

    def interrupt(_frame: object, event: str, called: object) -> None:
        if event == "c_return" and called is os.replace:
            sys.setprofile(None)
            raise KeyboardInterrupt

    sys.setprofile(interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            replace_file(backup, [b"a line\n"])
    finally:
        sys.setprofile(None)
    assert backup.read_bytes() == b"a line\n"
    assert list(tmp_path.iterdir()) == [backup]


@pytest.mark.parametrize("name", get_args(FileFormat)[2:])
def test_the_help_of_import_names_what_it_reads(name: str) -> None:
    described = run("import", "--help").stdout.lower().replace("\n", " ")
    assert name.replace("-", "") in described.partition("╭")[0].partition("usage")[2]


@pytest.mark.own
def test_help_describes_each_command_also_without_docstrings() -> None:
    code = (
        "import typer; from langmem_adapters.cli.app import app; root = typer.main.get_command(app);"
        "print([command.name for command in (root, *root.commands.values()) if not command.help])"
    )
    done = subprocess.run(
        [sys.executable, "-OO", "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("earlier", [None, "old"])
def test_an_interrupted_export_leaves_no_file(url: str, tmp_path: Path, earlier: str | None) -> None:
    store = open_store(url)
    BrainMemory(store, "long").add_messages([Message(role="user", content="x" * 1000) for _ in range(600)])
    store.close()
    folder = tmp_path / "out"
    folder.mkdir()
    if earlier:
        written(folder / "out.jsonl", earlier)

    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))

    done = script("export", "--url", url, "--output", str(folder / "out.jsonl"), preexec_fn=small_files)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "File too large" in done.stderr
    assert [path.read_text() for path in folder.iterdir()] == ([earlier] if earlier else [])


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize(
    "shape",
    [
        json.dumps,
        lambda chat: json.dumps(chat, indent=2),
        lambda chat: json.dumps({"messages": chat}),
        lambda chat: "\ufeff" + "\n".join(json.dumps(message, ensure_ascii=False) for message in chat),
    ],
    ids=["list", "indented", "object", "lines"],
)
def test_import_openai(url: str, tmp_path: Path, shape: Callable[[Any], str], compress: bool) -> None:
    file = tmp_path / ("weather.json.gz" if compress else "weather.json")
    data = shape(CHAT).encode()
    file.write_bytes(gzip.compress(data) if compress else data)
    assert run("import", file, "--url", url, "--user", "ada").stdout == "4 of 4 messages were new, in 1 sessions.\n"
    kept = messages(url, "weather", "ada")
    assert [message.role for message in kept] == ["user", "assistant", "tool", "assistant"]
    assert kept[0].metadata == {"mood": "curious"}
    calls = [ToolCall(id=f"c{n}", name="weather", args={"city": city}) for n, city in ((1, "Paris"), (2, "Rome"))]
    assert (kept[1].content, kept[1].tool_calls) == ("", calls)
    assert kept[2].tool_call_id == "c1"
    assert kept[3] == Message(role="assistant", content="It rains.\u2028Take an umbrella.", id="a4", created_at=5.0)
    assert run("import", file, "--url", url, "--user", "ada").stdout.startswith("0 of 4 messages were new")
    written(tmp_path / "weather.json", shape([{**CHAT[0], "content": "And in Rome?"}, *CHAT[1:]]))
    assert run("import", tmp_path / "weather.json", "--url", url, "--user", "ada").stdout.startswith("1 of 4 messages")
    assert run("recall", "weather in Paris", "--url", url, "--user", "ada").stdout.startswith("There are no memories")


def test_import_openai_conversations_into_the_long_term_memory(url: str, tmp_path: Path) -> None:
    lines = [json.dumps({"messages": [{"role": "user", "content": text}] * 2}) for text in ("red kite", "blue whale")]
    file = written(tmp_path / "tuning.jsonl", "\n".join([*lines, lines[1]]))
    arguments: list[str | Path] = ["import", file, "--long-term", "--session", "talk", "--url", url, "--user", "ada"]
    assert run(*arguments).stdout == "6 of 6 messages were new, in 3 sessions.\n"
    assert run(*arguments).stdout.startswith("0 of 6")
    assert [message.content for message in messages(url, "talk-2", "ada")] == ["blue whale", "blue whale"]
    found = run("recall", "whale", "--url", url, "--user", "ada").stdout
    assert "session talk-3 · user · said 4 times\nblue whale" in found


def test_what_was_deleted_does_not_come_back_into_the_long_term_memory_with_its_file(url: str, tmp_path: Path) -> None:
    said = [{"role": "user", "content": text, "id": text} for text in ("red kite", "blue whale")]
    file = written(tmp_path / "talk.json", said)
    arguments: list[str | Path] = ["import", file, "--long-term", "--url", url, "--user", "ada"]
    run(*arguments)
    store, index = open_store(url), open_index(url)
    memory = LongTermMemory(store, index, user="ada")
    BrainMemory(store, "talk", user="ada", long_term=memory).delete(["red kite"])
    assert run(*arguments).stdout.startswith("0 of 2 messages were new")
    assert [each.message.text for each in memory.all()] == ["blue whale"]


def test_a_memory_has_the_id_that_its_message_got_in_the_session(url: str, tmp_path: Path) -> None:
    for text in ("red kite", "blue whale"):
        file = written(tmp_path / "talk.json", [{"role": "user", "content": text, "id": "m1"}])
        assert run("import", file, "--long-term", "--url", url, "--user", "ada").stdout.startswith("1 of 1")
    settings = Settings(url=url, enable_longterm_memory=True)
    brain, memory = settings.brain("talk", user="ada"), settings.long_term(user="ada")
    brain.delete([brain.messages()[1].id])
    assert [kept.message.content for kept in memory.all()] == ["red kite"]


def test_each_memory_has_the_id_of_its_own_message_where_two_messages_of_a_file_have_one(
    url: str, tmp_path: Path
) -> None:
    said = [{"v": 1, "id": "m1", "role": "user", "content": text} for text in ("red kite", "blue whale", "grey heron")]
    lines = [json.dumps({"v": 1, "type": "message", "session": "talk", "message": message}) for message in said]
    settings = Settings(url=url)
    brain, memory = settings.brain("talk", user="ada", long_term=True), settings.long_term(user="ada")

    def import_lines() -> dict[str, list[str]]:
        file = written(tmp_path / "two-exports.jsonl", "\n".join(lines))
        run("import", file, "--long-term", "--url", url, "--user", "ada")
        return {each.message.text: [said.message_id for said in each.occurrences] for each in memory.all()}

    assert import_lines() == {message.text: [message.id] for message in brain.messages()}
    brain.delete([brain.messages()[1].id])
    assert import_lines() == {message.text: [message.id] for message in brain.messages()}
    assert [message.text for message in brain.messages()] == ["red kite", "grey heron"]


def test_import_locomo(url: str, tmp_path: Path) -> None:
    file = tmp_path / "talks.json.gz"
    file.write_bytes(gzip.compress(json.dumps(LOCOMO).encode()))
    for new in (4, 0):
        said = run("import", file, "--url", url, "--tenant", "t").stdout
        assert said == f"{new} of 4 messages were new, in 3 sessions of 2 users (talk-1, talk-2).\n"
    first, second = messages(url, "1", "talk-1", "t")
    assert first == Message(
        id="D1:1", role="user", name="Nora", content="I adopted a tortoise.", created_at=1_709_287_200.0
    )
    assert (second.role, second.name, second.content) == ("assistant", "Emil", "Lovely! [a heart]")
    assert [message.id for message in messages(url, "2", "talk-1", "t")] == ["D2:1"]
    store, tenant = open_store(url), "t"
    assert LongTermMemory(store, open_index(url), user="talk-1", tenant=tenant).count() == 3
    found = run("recall", "Who has a tortoise?", "--user", "talk-1", "--tenant", tenant, "--url", url).stdout
    assert "session 1 · Nora\nI adopted a tortoise." in found
    assert "slow" not in found
    assert "leave --user out" in fails("import", file, "--url", url, "--user", "ada")
    assert "leave --session out" in fails("import", file, "--url", url, "--session", "s")
    other = f"sqlite:///{tmp_path}/other.db"
    assert run("import", file, "--url", other, "--no-long-term").exit_code == 0
    assert run("recall", "tortoise", "--user", "talk-1", "--url", other).stdout.startswith("There are no memories")


def test_a_time_without_a_zone_is_of_this_machine(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "JST-9")
    assert script("import", str(written(tmp_path / "talks.json", LOCOMO)), "--url", url).returncode == 0
    assert messages(url, "1", "talk-1")[0].created_at == 1_709_287_200.0 - 9 * 3600
    assert "2024-03-01 10:00" in script("show", "1", "--user", "talk-1", "--url", url).stdout


def test_import_of_more_than_a_page(url: str, tmp_path: Path) -> None:
    file = written(tmp_path / "long.json", [{"role": "user", "content": f"note {n}"} for n in range(1201)])
    arguments: list[str | Path] = ["import", file, "--long-term", "--url", url, "--user", "ada"]
    assert run(*arguments).stdout == "1,201 of 1,201 messages were new, in 1 sessions.\n"
    assert [message.content for message in messages(url, "long", "ada")] == [f"note {n}" for n in range(1201)]
    assert LongTermMemory(open_store(url), open_index(url), user="ada").count() == 1201
    assert "ok       index: it is up to date" in run("doctor", "--url", url).stdout


GOOD = '{"role": "user", "content": "Hi"}'
LINE = '{"v": 1, "type": "message", "session": "s", "message": {"v": 1, "role": "user"}}'


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "it is empty"),
        ("[]", "it is empty"),
        ("hello", "line 1 is not JSON"),
        ("42", "line 1 is neither an export, nor a list of chat messages, nor a LoCoMo file"),
        ('{"session": "s", "type": []}', "line 1 is neither an export"),
        (f'"[]"\n{GOOD}', "line 1 is neither an export"),
        ('[\n  {"role": "user",\n  oops}]', "line 3 is not JSON"),
        (f"{GOOD}\n{GOOD}\n{{oops\n", "line 3 is not JSON"),
        (f'{GOOD}\n\n{{"content": "Hi"}}', "line 3 is not a chat message: it has no role"),
        (f'[{GOOD}, {{"role": "user", "content": 5}}]', "item 2 is not a chat message: content"),
        (f"[{GOOD}, 7]", "item 2 is not a chat message: it has no role"),
        (f'[{GOOD}, {{"messages": []}}]', 'item 1 has no list of "messages"'),
        ('{"messages": [{"role": 1}]}', "message 1 is not a chat message: role"),
        ('{"messages": 5}', 'line 1 has no list of "messages"'),
        ('{"role": "assistant", "tool_calls": [{"id": "x"}]}', "a tool call has no function"),
        ('{"role": "assistant", "tool_calls": ["x"]}', "a tool call has no function"),
        ('{"role": "assistant", "tool_calls": 1}', "its tool_calls are not a list"),
        ('{"role": "assistant", "tool_calls": [{"function": {"arguments": [1]}}]}', "tool_calls.0.args"),
        (f"{LINE}\n{LINE}\n{GOOD}", "line 3 is not a session or a message"),
        (LINE + "\n" + LINE.replace("role", "rule"), "line 2 is not a session or a message"),
        ('{"conversations": 1}', 'its "conversations" are not a list'),
        ('[{"id": "x", "speakers": ["a"], "turns": []}]', "item 1 is not a LoCoMo conversation: speakers"),
        (
            json.dumps(LOCOMO).replace("2024-05-01T09:00", "May"),
            "conversation 2 is not a LoCoMo conversation: turns.0.d",
        ),
        (json.dumps(LOCOMO).replace("2024-05", "0001-01"), "turns.0.d: Value error, no clock of this system tells it"),
        (json.dumps(LOCOMO).replace('"sp": "Otto"', '"sp": "Max"'), "turn D1:1 is said by 'Max'"),
        (json.dumps(LOCOMO).replace("D1:2", "D1:1"), "conversation 1: there are two turns D1:1"),
        (b'{"role": "user"}\n"\xff"', "line 2 is not UTF-8 text"),
        (b"\x1f\x8bnot gzip", "it is gzipped, but damaged"),
        (b"PK\x03\x04\x14\x00", "it is a zip archive: unpack it"),
        (b"SQLite format 3\0\x10", "it is an SQLite database: copy one of this library with migrate"),
        (gzip.compress(GOOD.encode(), mtime=0)[:-9], "it is gzipped, but damaged"),
    ],
)
def test_a_malformed_file_changes_nothing(tmp_path: Path, url: str, content: str | bytes, sentence: str) -> None:
    file = tmp_path / "chat.json"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    said = fails("import", file, "--url", url)
    assert sentence in said
    assert said.startswith(str(file))
    assert not (tmp_path / "memory.db").exists()


def test_a_malformed_first_line_is_named_where_lines_are_expected(tmp_path: Path, url: str) -> None:
    content = f'{{"v": 1,\n{LINE}'
    assert "line 1 is not JSON" in fails("import", written(tmp_path / "chat.jsonl", content), "--url", url)
    file = written(tmp_path / "chat.txt", content)
    assert "line 1 is not JSON" in fails("import", file, "--format", "jsonl", "--url", url)


# --- what goes wrong


@pytest.mark.parametrize(
    "command",
    [["sessions"], ["show", "s"], ["recall", "bike", "--user", "ada"], ["export"], ["stats"]],
    ids=lambda command: str(command[0]),
)
def test_reading_commands_do_not_make_a_file(tmp_path: Path, command: Sequence[str]) -> None:
    said = fails(*command, "--url", f"sqlite:///{tmp_path}/absent.db")
    assert f"there is no file {tmp_path}/absent.db" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        (REFUSED, "cannot be reached"),
        ("mysql://root:hidden-password@localhost/x", "'mysql' is none of them"),
        ("redis://user:hidden-password@localhost/notanumber", "is not a Redis URL"),
        ("sqlite://hidden-password@host/file.db", 'a file\'s URL is "sqlite:///relative.db"'),
        ("memory:", "is lost when the command ends"),
    ],
)
@pytest.mark.parametrize("command", ["import", "sessions", "recall"])
@pytest.mark.usefixtures("no_retries")
def test_a_store_that_cannot_be_used(
    tmp_path: Path, command: str, url: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = written(tmp_path / "chat.json", CHAT)
    said = fails(command, file if command == "import" else "--user=ada", *(["x"] * (command == "recall")), "--url", url)
    assert sentence in said
    assert "hidden-password" not in said
    assert list(tmp_path.iterdir()) == [file]


def test_other_errors(tmp_path: Path, url: str, ada: BrainMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ada.count() == 2
    assert fails("import", tmp_path / "absent.json", "--url", url).endswith("absent.json: No such file or directory")
    assert "Is a directory" in fails("import", tmp_path, "--url", url)
    assert "no session 'friday' of user 'ada'" in fails("show", "friday", "--url", url, "--user", "ada")
    assert "no session 'friday' without a user" in fails("show", "friday", "--url", url)
    no_database = written(tmp_path / "text.db", "this is a text, and long enough to be no header of a file" * 20)
    for command in (["sessions"], ["prune", "--older-than", "1d"], ["delete-user", "ada", "--yes"]):
        said = fails(*command, "--url", f"sqlite:///{no_database}")
        assert said == f"{no_database} is not an SQLite database"
    monkeypatch.setenv("LANGMEM_MEMORY_K", "many")
    assert "the setting LANGMEM_MEMORY_K is wrong" in fails("sessions", "--url", url)


@pytest.mark.own
def test_errors_of_the_script(tmp_path: Path) -> None:
    done = script("sessions", "--url", REFUSED)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "cannot be reached" in done.stderr
    assert "hidden-password" not in done.stderr
    done = script("show", "s", "--url", "sqlite:///absent.db", cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("encoding", ["cp1252", "ascii"])  # of a pipe on Windows; of a terminal that says no other
def test_stored_text_that_the_output_cannot_show_is_shown_in_signs_that_it_can(
    url: str, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    BrainMemory(open_store(url), "s").add_talk("\N{BICYCLE} is a bike.")
    monkeypatch.setenv("PYTHONIOENCODING", encoding)
    done = script("show", "s", "--url", url, encoding=encoding)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\\U0001f6b2 is a bike." in done.stdout


def test_names_are_what_was_typed_also_in_a_locale_that_has_no_such_letters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/größe.db"
    written(tmp_path / "räder.json", [{"role": "user", "content": "My bike is grün."}])
    for name, value in {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LANGMEM_TENANT": "Æ"}.items():
        monkeypatch.setenv(name, value)
    arguments = ("--user", "Zoë", "--long-term", "--url", url)
    assert script("import", str(tmp_path / "räder.json"), *arguments).stderr == ""
    assert [message.text for message in messages(url, "räder", "Zoë", "Æ")] == ["My bike is grün."]

    def read_as_ascii(*arguments: str) -> str:  # as such a process would
        arguments = (*arguments, "--tenant", "Æ")
        return run(
            *(argument.encode().decode("ascii", "surrogateescape") for argument in arguments), "--url", url
        ).output

    for command in (["show", "räder"], ["recall", "grün"]):
        assert "My bike is grün." in read_as_ascii(*command, "--user", "Zoë")
    assert '"räder"' in read_as_ascii("export", "räder", "--user", "Zoë")
    assert '"sessions": 1' in read_as_ascii("prune", "--user", "Zoë", "--older-than", "0.001s", "--dry-run", "--json")
    assert json.loads(read_as_ascii("delete-user", "Zoë", "--yes", "--json"))["messages"] == 1
    assert messages(url, "räder", "Zoë", "Æ") == []


def test_a_file_is_the_one_that_a_url_names_also_in_a_locale_that_has_no_such_letters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path / "räder.json", [{"role": "user", "content": "My bike is grün."}])
    for name, value in {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}.items():
        monkeypatch.setenv(name, value)
    for new, name in enumerate(["gr%C3%B6%C3%9Fe.db", "größe.db"]):
        done = script("import", "räder.json", "--url", f"sqlite:///{name}", cwd=tmp_path)
        assert (done.stderr, done.stdout) == ("", f"{1 - new} of 1 messages were new, in 1 sessions.\n")
    assert [message.text for message in messages(f"sqlite:///{tmp_path}/größe.db", "räder")] == ["My bike is grün."]


@pytest.mark.own
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no disk that is always full")
@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["sessions", "--help"], ["health"]])
def test_an_output_for_which_there_is_no_room_is_one_sentence(
    url: str, ada: BrainMemory, arguments: Sequence[str]
) -> None:
    command = [sys.executable, *STRICT, "-m", "langmem_adapters", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "LANGMEM_STORE_URL": url}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120, check=False, env=environment
        )
    assert (done.returncode, done.stderr) == (2, "No space left on device\n")
    assert ada.count() == 2


def test_unexpected_errors_show_no_local_variables() -> None:
    assert not app.pretty_exceptions_enable


BLOCK = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocker())
sys.argv = [{command!r}, *{arguments!r}]
if sys.argv[0] == "-m":
    import runpy
    runpy.run_module("langmem_adapters", run_name="__main__", alter_sys=True)
else:
    from langmem_adapters.cli import main
    main()
"""


@pytest.mark.own
@pytest.mark.parametrize(
    ("command", "blocked", "arguments", "extra"),
    [
        ("langmem-adapters", "typer", ["sessions"], "cli"),
        ("-m", "rich", ["sessions"], "cli"),
        ("langmem-adapters", "langchain_core", ["demo"], "langchain"),
        ("langmem-adapters", "redis", ["sessions", "--url", REFUSED], "redis"),
    ],
)
def test_a_missing_extra_is_one_sentence(command: str, blocked: str, arguments: list[str], extra: str) -> None:
    code = BLOCK.format(blocked=blocked, arguments=arguments, command=command)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert f'pip install "langmem_adapters[{extra}]"' in done.stderr


@pytest.mark.own
@pytest.mark.parametrize("command", ["langmem-adapters", "-m"])
def test_ctrl_c_while_it_starts_ends_it_without_a_traceback(command: str) -> None:
    code = BLOCK.format(blocked="rich", arguments=["sessions"], command=command)
    code = code.replace("raise ModuleNotFoundError", "raise KeyboardInterrupt #")
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


# --- the demo


def test_demo_shows_all_four(tmp_path: Path) -> None:
    done = script("demo", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    shown = done.stdout
    assert "The model is scripted" in shown
    chat, overflow, found, cache = re.findall(r"╭─ \d\. (.*?)╰", shown, re.DOTALL)
    assert "My bike is in the shed behind the house." in chat
    assert re.search(r"10 messages were written\. The window keeps the newest 4; 6 moved", overflow)
    assert re.search(r"│ 0\.\d\d · .* · session demo · user +│\n│ My bike is in the shed behind the house\.", found)
    miss, hit = (float(re.search(rf"{word} +([\d.]+) ms  Paris", cache)[1]) for word in ("miss", "hit"))  # type: ignore[index]
    assert hit < 100
    assert miss >= 400
    assert list(tmp_path.iterdir()) == []


def test_demo_in_a_store_of_ones_own_starts_anew_and_leaves_the_rest_alone(url: str, ada: BrainMemory) -> None:
    for _ in range(2):
        shown = run("demo", "--url", url).stdout
        assert shown.count("6 moved to the") == 1
        assert "miss" in shown
        assert "hit" in shown
    assert len(messages(url, "demo", "ada", "langmem-demo")) == 4
    assert ada.count() == 2


# --- the rest


def test_redis(redis_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where a server's index is kept
    file = written(tmp_path / "talks.json", LOCOMO)
    where: list[str | Path] = ["--url", redis_server.url(), "--tenant", f"cli-{os.getpid()}"]
    assert run("import", file, *where).stdout.startswith("4 of 4 messages were new, in 3 sessions of 2 users")
    assert "I adopted a tortoise." in run("recall", "tortoise", "--user", "talk-1", *where).stdout
    assert re.search(r"^messages +3\nmemories +3\n", run("stats", "--user", "talk-1", *where).stdout, re.MULTILINE)
    assert run("export", "--user", "talk-1", "--output", file, *where).exit_code == 0
    assert file.read_text().count("I adopted a tortoise.") == 1


def test_benchmark_of_recall(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "talks.json.gz"
    file.write_bytes(gzip.compress(json.dumps(LOCOMO).encode()))
    benchmark.main([str(file)])
    turns, figures = capsys.readouterr().out.splitlines()
    assert turns.startswith("4 turns of 2 users")
    assert figures.startswith("2 questions  R@5 75.0  R@10 75.0  R@20 75.0  MRR 1.000  p50 ")


def test_every_command_and_option_is_documented() -> None:
    documented = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    commands = get_command(app).commands  # type: ignore[attr-defined]
    assert re.findall(r"^## (.+)$", documented, re.MULTILINE) == list(commands)
    for name, command in commands.items():
        section = documented.split(f"\n## {name}\n")[1].split("\n## ")[0]
        assert f"langmem-adapters {name}" in section
        for option in (option for parameter in command.params for option in parameter.opts if option.startswith("-")):
            assert f"`{option}`" in documented, f"{name} {option}"


# --- upkeep


def test_health(url: str, ada: BrainMemory, tmp_path: Path) -> None:
    assert ada.count() == 2
    assert re.fullmatch(r"sqlite:///.*memory\.db answers in \d+\.\d ms\n", run("health", "--url", url).stdout)
    told = json.loads(run("health", "--json", "--url", url).stdout)
    assert (told["ok"], told["problem"]) == (True, "")
    assert "there is no file" in fails("health", "--url", f"sqlite:///{tmp_path}/absent.db")
    assert not (tmp_path / "absent.db").exists()
    said = fails("health", "--url", REFUSED)
    assert "cannot be reached" in said
    assert "hidden-password" not in said
    result = run("health", "--json", "--url", REFUSED)
    assert (result.exit_code, json.loads(result.stdout)["ok"]) == (2, False)
    assert "hidden-password" not in result.output


def test_stats_of_all(url: str, ada: BrainMemory) -> None:
    ExperiencePool(ada.store, tag="capitals").create(Experience(req="France", resp="Paris"))
    told = json.loads(run("stats", "--all", "--json", "--url", url).stdout)
    assert told.pop("bytes") > 0
    assert told == {
        "namespaces of 'brain'": 1, "entries of 'brain'": 2, "expiring of 'brain'": 0,
        "namespaces of 'experience'": 1, "entries of 'experience'": 1, "expiring of 'experience'": 0,
    }  # fmt: skip
    shown = run("stats", "--all", "--url", url).stdout
    assert re.search(r"^entries of 'brain' +2$", shown, re.MULTILINE)


def test_doctor(url: str, ada: BrainMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run("doctor", "--url", url)
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert {line.split()[0] for line in lines} == {"ok"}
    assert "ok       entries: 5 were checked" in lines
    assert "ok       index: it is up to date" in lines
    monkeypatch.setenv("LANGMEM_TTL", "60")
    result = run("doctor", "--url", url)
    assert result.exit_code == 1
    assert "problem  expiry: 1 of 1 sessions have no expiry, though a ttl is set\n         → " in result.stdout
    found = json.loads(run("doctor", "--json", "--url", url).stdout)
    assert {finding["subject"] for finding in found} >= {"connection", "rights", "file", "disk", "expiry", "entries"}
    ada.store.append(("brain", "", "", "\x1b[2J"), [("x", b'{"v": 1, "role"')])
    assert "\\x1b[2J" in run("doctor", "--url", url).stdout


def test_doctor_out_of_reach(tmp_path: Path) -> None:
    result = run("doctor", "--url", REFUSED)
    assert result.exit_code == 1
    assert "problem  connection: Redis at redis://:***@127.0.0.1:1/0 cannot be reached" in result.stdout
    assert "hidden-password" not in result.output
    assert "there is no file" in fails("doctor", "--url", f"sqlite:///{tmp_path}/absent.db")


def test_looking_at_a_server_makes_no_file(
    redis_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store(redis_server.url(5))
    LongTermMemory(store, open_index("memory:"), session="s").add([Message(role="user", content="A red kite.")])
    for command in (["doctor"], ["watch"], ["stats", "--all"], ["health"], ["prune", "--older-than", "9999w"]):
        assert run(*command, "--url", redis_server.url(5)).exit_code in {0, 1}
    store.clear(("longterm", "", "", "s"))
    store.close()
    assert list(tmp_path.iterdir()) == []


def test_watch_once(url: str, ada: BrainMemory) -> None:
    assert ada.count() == 2
    shown = run("watch", "--url", url, "--user", "ada").stdout  # no terminal
    assert re.search(r"^sqlite:///.*memory\.db · \d+\.\d ms · [\d,]+ bytes\nbrain 1\nsession ", shown)
    assert re.search(r"^monday +The bike +2 ", shown, re.MULTILINE)
    once = run("watch", "--once", "--url", url)
    assert (once.stdout.count("\n"), once.exit_code) == (3, 0)
    for arguments in (["--once"], []):
        result = run("watch", *arguments, "--url", REFUSED)
        assert result.stdout.count("cannot be reached") == 1
        assert result.exit_code == 1


def test_watch_shows_what_a_server_lets_it_read(redis_server: RedisServer) -> None:
    url = redis_server.url(5).replace("//", "//watcher:a-password@")
    with redis.Redis(port=redis_server.port) as raw:
        user = ("ACL", "SETUSER", "watcher", "reset", "on", ">a-password", "~*", "+ping", "+select")
        raw.execute_command(*user)
        shown = run("watch", "--url", url).stdout
        assert "no permissions" in shown
        assert shown.count("\n") == 1
        raw.execute_command(*user, "+@read", "+@transaction")  # figures of the server's memory are not among these
        assert re.search(r"^redis://.*127.0.0.1:\d+/5 · \d+\.\d ms\n", run("watch", "--url", url).stdout)
        raw.execute_command("ACL", "DELUSER", "watcher")


def test_watch_on_a_terminal_until_ctrl_c(url: str, ada: BrainMemory) -> None:
    ours, theirs = pty.openpty()
    # What runs in the background of a shell ignores Ctrl-C, and so do its children.
    start = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    start += "from langmem_adapters.cli import main; main()"
    command = [sys.executable, "-c", start, "watch", "--every", "0.1", "--url", url, "--user", "ada"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "40"}
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, cwd=ROOT, env=environment) as process:
        os.close(theirs)
        seen = b""
        while b"monday" not in seen:
            seen += os.read(ours, 65536)
        ada.add_talk("Is it a new frame?")
        BrainMemory(ada.store, "tuesday", user="ada").add_talk("Hello.")
        while b"tuesday" not in seen:
            seen += os.read(ours, 65536)
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(OSError):  # the other side is closed
            while True:
                os.read(ours, 65536)
        assert process.wait(30) == 0
    os.close(ours)
    assert b"Traceback" not in seen


@pytest.mark.parametrize("seconds", ["0", "inf", "1e300", "nan"])
def test_watch_refuses_what_no_clock_can_wait(url: str, seconds: str) -> None:
    result = run("watch", "--url", url, "--every", seconds)
    assert result.exit_code == 2
    assert "--every" in result.stderr


def test_watch_shows_the_store_once_on_a_terminal_that_overwrites_nothing(url: str, ada: BrainMemory) -> None:
    assert ada.count() == 2
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "langmem_adapters", "watch", "--url", url, "--user", "ada"]
    subprocess.run(
        command, stdout=theirs, stderr=theirs, cwd=ROOT, check=True, timeout=30, env={**os.environ, "TERM": "dumb"}
    )
    assert b"monday" in os.read(ours, 65536)
    os.close(ours)
    os.close(theirs)


def test_prune(url: str, ada: BrainMemory) -> None:
    store: Any = ada.store
    memory = LongTermMemory(store, open_index(url), session="s")
    memory.add([Message(role="user", content="A red kite.")])
    assert memory.search("kite")
    ExperiencePool(store, tag="t").create(Experience(req="France", resp="Paris", expires_at=1_700_000_001.0))
    for namespace in list(store.namespaces()):
        store.set_dates(namespace, Dates(1_700_000_000.0, None))
    BrainMemory(store, "new", user="ada").add_talk("Hello.")
    arguments = ["prune", "--url", url, "--older-than"]
    assert json.loads(run(*arguments, "30d", "--dry-run", "--json").stdout) == {
        "sessions": 1, "pools of expired experiences": 1, "their long-term memories": 1,
    }  # fmt: skip
    assert run(*arguments, "2000w").stdout == "Nothing is that old.\n"
    assert run(*arguments, "30d", "--user", "bo").stdout == "Nothing is that old.\n"
    assert re.search(r"^sessions +1$", run(*arguments, "30d", "--user", "ada").stdout, re.MULTILINE)
    assert {"/".join(namespace) for namespace in store.namespaces()} == {
        "brain//ada/new",
        "longterm///s",
        "experience///t",
    }
    store.clear(("longterm", "", "", "s"))
    assert re.search(r"^expired memories, from indexes +1$", run(*arguments, "30d").stdout, re.MULTILINE)
    assert "such as 30d; not '30'" in fails(*arguments, "30")
    assert "--older-than is a number of seconds above 0" in fails(*arguments, "0d")


def test_delete_user(url: str, ada: BrainMemory) -> None:
    BrainMemory(ada.store, "s", user="bo").add_talk("Hello.")
    assert "nobody can answer here: add --yes" in fails("delete-user", "ada", "--url", url)
    assert ada.count() == 2
    told = json.loads(run("delete-user", "ada", "--yes", "--json", "--url", url).stdout)
    assert (told["sessions"], told["messages"]) == (1, 2)
    assert run("delete-user", "ada", "--yes", "--url", url).stdout == "Nothing was kept for them.\n"
    assert {namespace[2] for namespace in open_store(url).namespaces(("brain",))} == {"bo"}
    assert "needs a user" in fails("delete-user", "", "--yes", "--url", url)


def test_delete_user_of_a_server_says_when_its_index_lies_elsewhere(
    redis_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, tenant = redis_server.url(6), f"cli-{os.getpid()}"
    (tmp_path / "elsewhere").mkdir()
    for folder, warned in ((tmp_path / "elsewhere", True), (tmp_path, False)):
        monkeypatch.chdir(tmp_path)
        memory = LongTermMemory(open_store(url), open_index(url), user="ada", tenant=tenant)
        memory.add([Message(role="user", content="My bike is in the shed.")])
        assert memory.search("bike")
        result = script("delete-user", "ada", "--yes", "--url", url, "--tenant", tenant, cwd=folder)
        assert "memories" in result.stdout
        assert ("This directory has no index of this server" in result.stderr) is warned
        assert (b"shed" in b"".join(path.read_bytes() for path in tmp_path.glob("langmem-*"))) is warned


def test_delete_user_asks_on_a_terminal(url: str, ada: BrainMemory) -> None:
    assert ada.count() == 2
    for answer, left in ((b"n\n", 2), (b"y\n", 0)):
        ours, theirs = pty.openpty()
        command = [sys.executable, "-m", "langmem_adapters", "delete-user", "ada", "--url", url]
        with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=ROOT) as process:
            seen = b""
            while b"[y/N]" not in seen:
                seen += os.read(ours, 65536)
            os.write(ours, answer)
            assert process.wait(60) == (1 if left else 0)
        os.close(ours)
        os.close(theirs)
        assert BrainMemory(open_store(url), "monday", user="ada").count() == left


def test_migrate(url: str, ada: BrainMemory, redis_server: RedisServer, tmp_path: Path) -> None:
    with redis.Redis.from_url(redis_server.url(7)) as raw:
        raw.flushdb()
    server = redis_server.url(7)
    assert (
        run("migrate", url, server).stdout == "1 namespaces with 2 entries are the same in both; 1 were copied now.\n"
    )
    told = json.loads(run("migrate", server, f"sqlite:///{tmp_path}/back.db", "--json").stdout)
    assert told == {"namespaces": 1, "entries": 2, "copied": 1, "removed": 0, "differing": []}
    back = BrainMemory(open_store(f"sqlite:///{tmp_path}/back.db"), "monday", user="ada")
    assert (back.messages(), back.get_title(), back.get_summary()) == (
        ada.messages(), ada.get_title(), ada.get_summary(),
    )  # fmt: skip
    ada.add_talk("More.")
    BrainMemory(open_store(server), "monday", user="ada").add_talk("Something else.")
    assert "the target holds something else under 'brain//ada/monday'" in fails("migrate", url, server)
    with redis.Redis.from_url(server) as raw:
        raw.flushdb()


def test_migrate_refuses(url: str, ada: BrainMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ada.count() == 2
    monkeypatch.chdir(tmp_path)
    (tmp_path / "name.db").hardlink_to(tmp_path / "memory.db")
    for name in ("memory.db", "name.db"):
        assert "into itself" in fails("migrate", url, f"sqlite:///{name}")
    assert "there is no file" in fails("migrate", "sqlite:///absent.db", url)
    assert "hidden-password" not in fails("migrate", url, REFUSED)
    assert "is lost when the command ends" in fails("migrate", url, "memory:")


def test_what_was_copied_of_one_store_stays_when_another_one_is_migrated(url: str, ada: BrainMemory) -> None:
    second, target = open_store(f"{url}2"), f"{url}3"
    BrainMemory(ada.store, "other", user="bo").add_talk("Hello.")
    BrainMemory(second, "friday", user="eve").add_talk("Hello.")
    BrainMemory(open_store(target), "other", user="bo").add_talk("Something else.")
    assert "holds something else" in fails("migrate", url, target)  # what was copied before that is recorded
    assert len(messages(target, "monday", "ada")) == 2
    assert run("migrate", f"{url}2", target).exit_code == 0
    assert len(messages(target, "monday", "ada")) == 2


def test_a_source_that_never_rests_is_exit_code_1(url: str, ada: BrainMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    target = f"{url}2"
    migrate = Migration.run

    def busy(self: Migration) -> Any:
        self._progress = lambda *_: ada.add_talk("Again.")
        return migrate(self)

    monkeypatch.setattr(Migration, "run", busy)
    result = run("migrate", url, target)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "stop the writers and run again" in result.stderr
    assert json.loads(run("migrate", url, target, "--json").stdout)["differing"] == [["brain", "", "ada", "monday"]]


def test_vacuum(url: str, tmp_path: Path, redis_server: RedisServer) -> None:
    brain = BrainMemory(open_store(url), "s")
    brain.add_messages([Message(role="user", content="x" * 1000) for _ in range(2000)])
    brain.clear()
    before, after = (
        int(figure.replace(",", "")) for figure in re.findall(r"\d[\d,]*", run("vacuum", "--url", url).stdout)
    )
    assert after < before / 10
    assert "only a file can be vacuumed" in fails("vacuum", "--url", redis_server.url())
    assert "there is no file" in fails("vacuum", "--url", f"sqlite:///{tmp_path}/absent.db")
