"""MetaGPT's BrainMemory, in and out: nothing lost, nothing twice, no secret taken along."""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import BaseModel, Field, field_validator

from langmem_adapters import BrainMemory, LongTermMemory, Sessions, open_index, open_store
from langmem_adapters.codec import encode
from langmem_adapters.errors import SerializationError, StoreError
from langmem_adapters.metagpt import METAGPT, ato_metagpt, to_metagpt
from langmem_adapters.model import Message, Summary
from langmem_adapters.protocols import Page, Store
from langmem_adapters.sealing import SealedStore
from langmem_adapters.stores.memory import MemoryStore
from tests.faults import Overtaken

SECRETS = ["sk-live-4711", "redis-pass-0815", "bearer-0042"]
ROUTES = {"cause_by": "metagpt.actions.add_requirement.UserRequirement", "sent_from": "", "send_to": ["<all>"]}


def said(id_: Any, content: Any, role: str = "user", **fields: Any) -> dict[str, Any]:
    return {"id": id_, "content": content, "instruct_content": None, "role": role, **ROUTES, "metadata": {}} | fields


def dump(*history: dict[str, Any], **fields: Any) -> str:
    """As the version of 2025 writes it, with the configuration that it takes along."""
    memory = {
        "history": list(history),
        "knowledge": [],
        "historical_summary": "",
        "last_history_id": str(history[-1].get("id", "")) if history else "",
        "is_dirty": True,
        "last_talk": None,
        "cacheable": True,
        "config": {"llm": {"api_key": SECRETS[0]}, "redis": {"password": SECRETS[1]}},
    }
    return json.dumps(memory | fields)


TALK = dump(
    said("1", "Where is my bike?"),
    said("2", "In the shed.", "assistant", sent_from="Alice", metadata={"agent": "Alice"}),
    knowledge=[said("k1", "Ada has a bike.")],
    historical_summary="They spoke of the weather.",
    last_talk="And the key?",
)


def texts(brain: BrainMemory) -> list[str]:
    return [message.text for message in brain.messages()]


def state(store: Store, session: str = "s") -> object:
    namespace = ("brain", "", "", session)
    return store.get(namespace), [(item.id, item.data) for item in store.scan(namespace).items]


# --- in


def test_a_memory_comes_in_whole(any_store: Store) -> None:
    brain = BrainMemory.from_metagpt(TALK.encode(), any_store, "s", user="ada")
    question, answer = brain.messages()
    assert (question.id, question.role, question.text) == ("1", "user", "Where is my bike?")
    assert (answer.id, answer.role, answer.text) == ("2", "assistant", "In the shed.")
    assert question.metadata == {METAGPT: {"cause_by": ROUTES["cause_by"], "send_to": ["<all>"]}}
    assert answer.metadata["agent"] == "Alice"
    assert answer.metadata[METAGPT]["sent_from"] == "Alice"
    assert [fact.text for fact in brain.get_knowledge()] == ["Ada has a bike."]
    assert brain.context().summary == Summary(text="They spoke of the weather.")
    assert texts(BrainMemory(any_store, "s", user="ada")) == texts(brain)
    assert brain.context().messages == [question, answer]


async def test_a5_an_import_does_not_block_the_loop(any_store: Store) -> None:
    brain = await BrainMemory.afrom_metagpt(TALK, any_store, "a", user="ada")
    assert await brain.amessages() == BrainMemory.from_metagpt(TALK, any_store, "b", user="ada").messages()
    await BrainMemory.afrom_metagpt(TALK, any_store, "a", user="ada")
    assert BrainMemory(any_store, "a", user="ada").count() == BrainMemory(any_store, "b", user="ada").count() == 2


def test_the_arguments_reach_the_session() -> None:
    brain = BrainMemory.from_metagpt(TALK, MemoryStore(), "s", user="ada", tenant="acme", memory_k=3, ttl=60)
    assert (brain.memory_k, brain.ttl) == (3, 60)
    assert (brain.scope.tenant, brain.scope.user, brain.scope.session) == ("acme", "ada", "s")


def test_the_session_gets_its_time_to_live() -> None:
    now = [1000.0]
    store = MemoryStore(clock=lambda: now[0])
    brain = BrainMemory.from_metagpt(TALK, store, "s", ttl=60, clock=lambda: now[0])
    now[0] = 1059.0
    assert brain.count() == 2
    now[0] = 1061.0
    assert brain.count() == 0


def test_again_it_adds_nothing(any_store: Store) -> None:
    BrainMemory.from_metagpt(TALK, any_store, "s")
    before = state(any_store)
    for _ in range(3):
        BrainMemory.from_metagpt(TALK, any_store, "s")
    assert state(any_store) == before


def test_a_later_state_adds_what_is_new(any_store: Store) -> None:
    first = [said("1", "One?"), said("2", "One.", "assistant")]
    BrainMemory.from_metagpt(dump(*first), any_store, "s")
    later = [*first, said("3", "Two?"), said("4", "Two.", "assistant")]
    brain = BrainMemory.from_metagpt(dump(*later, knowledge=[said("k", "A fact.")]), any_store, "s")
    assert texts(brain) == ["One?", "One.", "Two?", "Two."]
    assert [fact.text for fact in brain.get_knowledge()] == ["A fact."]
    brain = BrainMemory.from_metagpt(
        dump(*later, knowledge=[said("k", "A fact."), said("l", "Another.")]), any_store, "s"
    )
    assert [fact.text for fact in brain.get_knowledge()] == ["A fact.", "Another."]


def test_what_metagpt_has_summarised_since_goes_behind_the_window(any_store: Store) -> None:
    BrainMemory.from_metagpt(dump(said("1", "One?"), said("2", "One.", "assistant")), any_store, "s")
    summarised = dump(said("3", "Two?"), historical_summary="They counted to one.")
    brain = BrainMemory.from_metagpt(summarised, any_store, "s")
    assert texts(brain) == ["One?", "One.", "Two?"]
    summary, shown = brain.context()
    assert summary is not None
    assert (summary.text, summary.covers) == ("They counted to one.", "2")
    assert [message.text for message in shown] == ["Two?"]
    again = BrainMemory.from_metagpt(dump(said("4", "Three?"), historical_summary="To two."), any_store, "s")
    summary, shown = again.context()
    assert summary is not None
    assert (summary.text, summary.covers) == ("To two.", "3")
    assert [message.text for message in shown] == ["Three?"]


@pytest.mark.parametrize("later", ["", "They counted to one."])
def test_a_later_state_without_a_newer_summary_leaves_it_as_it_is(any_store: Store, later: str) -> None:
    BrainMemory.from_metagpt(dump(said("1", "One."), said("2", "Two?")), any_store, "s")
    BrainMemory.from_metagpt(dump(said("2", "Two?"), historical_summary="They counted to one."), any_store, "s")
    brain = BrainMemory(any_store, "s")
    brain.delete(["1"])  # what the summary stands for has left the log since
    kept = brain.context().summary
    assert kept is not None
    blob = dump(said("2", "Two?"), said("3", "Three."), historical_summary=later)
    assert texts(BrainMemory.from_metagpt(blob, any_store, "s")) == ["Two?", "Three."]
    assert brain.context().summary == kept


def test_a_summary_of_the_session_s_own_stays(any_store: Store, caplog: pytest.LogCaptureFixture) -> None:
    brain = BrainMemory(any_store, "s")
    brain.set_summary("Ours.")
    with caplog.at_level(logging.INFO, "langmem_adapters"):
        BrainMemory.from_metagpt(TALK, any_store, "s")
    summary = brain.get_summary()
    assert summary is not None
    assert summary.text == "Ours."
    assert "one of its own" in caplog.text


def test_what_left_the_session_does_not_come_back(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/m.db"
    store = open_store(url)
    memory = LongTermMemory(store, open_index(url), user="ada")
    blob = dump(*[said(str(n), f"Note {n}") for n in range(1, 11)])
    brain = BrainMemory.from_metagpt(blob, store, "s", user="ada", memory_k=4, long_term=memory)
    brain.add_talk("Note 11")
    assert texts(brain) == ["Note 8", "Note 9", "Note 10", "Note 11"]
    assert memory.count() == 7
    BrainMemory.from_metagpt(blob, store, "s", user="ada", memory_k=4, long_term=memory)
    assert texts(brain) == ["Note 8", "Note 9", "Note 10", "Note 11"]
    later = dump(*json.loads(blob)["history"], said("12", "Note 12"))
    assert texts(BrainMemory.from_metagpt(later, store, "s", user="ada"))[4:] == ["Note 12"]
    brain.clear()
    assert BrainMemory.from_metagpt(blob, store, "s", user="ada").count() == 10  # a cleared session remembers nothing


def test_ids_as_metagpt_has_them(any_store: Store) -> None:
    blob = dump(
        said(7, "An integer."),
        said("0", "The first of two."),
        said("0", "The second of two."),
        said("", "None."),
        {"content": "None, and no role."},
        said("", "None."),
        said("same", "Twice."),
        said("same", "Twice."),
        said("9", "Yes"),
        said("3", "A smaller integer."),
        said("x" * 500, "Long."),
    )
    brain = BrainMemory.from_metagpt(blob, any_store, "s")
    found = brain.messages()
    assert [message.text for message in found] == [record["content"] for record in json.loads(blob)["history"]]
    assert [found[n].id for n in (0, 1, 6, 8, 9, 10)] == ["7", "0", "same", "9", "3", "x" * 500]
    assert {len(found[n].id) for n in (3, 4, 5)} == {32}  # what identifies a message without an id
    assert found[2].metadata[METAGPT]["id"] == "0"
    assert len({message.id for message in found}) == len(found)
    before = state(any_store)
    BrainMemory.from_metagpt(blob, any_store, "s")
    assert state(any_store) == before


def test_into_a_session_that_is_in_use(any_store: Store) -> None:
    brain = BrainMemory(any_store, "s")
    brain.add_talk("Something else.", id="1")
    brain.add_answer("In the shed.", id="2")
    brain.add_knowledge(["A fact."])
    BrainMemory.from_metagpt(TALK, any_store, "s")
    assert texts(brain) == ["Something else.", "In the shed.", "Where is my bike?"]  # "2" says the same: the same
    assert brain.messages()[2].metadata[METAGPT]["id"] == "1"
    assert [fact.text for fact in brain.get_knowledge()] == ["A fact.", "Ada has a bike."]
    before = state(any_store)
    BrainMemory.from_metagpt(TALK, any_store, "s")
    assert state(any_store) == before


def test_beside_a_message_of_the_same_id_that_comes_in_the_same_moment(any_store: Store) -> None:
    brain = BrainMemory(any_store, "s")
    overtaken = Overtaken(any_store, lambda: brain.add_talk("Something else.", id="1"))
    BrainMemory.from_metagpt(TALK, cast("Store", overtaken), "s")
    assert texts(brain) == ["Something else.", "In the shed.", "Where is my bike?"]
    assert brain.messages()[2].metadata[METAGPT]["id"] == "1"
    before = state(any_store)
    BrainMemory.from_metagpt(TALK, any_store, "s")
    assert state(any_store) == before


def test_a_redactor_makes_no_message_another_one(any_store: Store) -> None:
    redacting = SealedStore(any_store, redactor=lambda text: text.replace("bike", "[it]"))
    assert texts(BrainMemory.from_metagpt(TALK, redacting, "s")) == ["Where is my [it]?", "In the shed."]
    BrainMemory(redacting, "t").add_talk("Where is my bike?", id="1")
    assert texts(BrainMemory.from_metagpt(TALK, redacting, "t")) == ["Where is my [it]?", "In the shed."]


def test_what_a_redactor_of_digits_sees_is_imported_once(any_store: Store) -> None:
    store = SealedStore(any_store, redactor=lambda text: re.sub(r"\d", "#", text))
    blob = dump(
        *(said(f"id-{n}", f"Talk {n}.") for n in range(5)),
        knowledge=[said("", f"Fact {n}.") for n in range(5)],
        historical_summary="Summary 42.",
        last_talk="Question 42?",
    )
    brain = BrainMemory.from_metagpt(blob, store, "s")
    brain.delete(["id-1"])
    before = state(any_store)
    assert " 42" not in repr(before)
    BrainMemory.from_metagpt(blob, store, "s")
    assert state(any_store) == before
    assert texts(brain) == [message.text for message in brain.context().messages] == ["Talk #."] * 4


def test_another_import_at_the_same_time(any_store: Store) -> None:
    blobs = [dump(*[said(f"{n}-{m}", f"{n}.{m}") for m in range(5)]) for n in range(4)]
    threads = [threading.Thread(target=BrainMemory.from_metagpt, args=(blob, any_store, "s")) for blob in blobs * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = texts(BrainMemory(any_store, "s"))
    assert sorted(found) == sorted(f"{n}.{m}" for n in range(4) for m in range(5))
    assert [text for text in found if text.startswith("0.")] == [f"0.{m}" for m in range(5)]


def test_an_import_in_the_middle_of_another(any_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    other = dump(said("1", "Of the other."), knowledge=[said("k2", "The other's.")], historical_summary="The other's.")
    scan = any_store.scan

    def overtaken(*args: Any, **kwargs: Any) -> Page:
        page = scan(*args, **kwargs)
        monkeypatch.undo()
        BrainMemory.from_metagpt(other, any_store, "s")
        return page

    monkeypatch.setattr(any_store, "scan", overtaken)
    brain = BrainMemory.from_metagpt(TALK, any_store, "s")
    assert texts(brain) == ["Of the other.", "Where is my bike?", "In the shed."]
    assert [fact.text for fact in brain.get_knowledge()] == ["The other's.", "Ada has a bike."]
    before = state(any_store)
    for _ in range(2):
        BrainMemory.from_metagpt(TALK, any_store, "s")
    assert texts(brain) == ["Of the other.", "Where is my bike?", "In the shed."]
    assert state(any_store) == before


@pytest.mark.parametrize("method", ["get", "scan", "write"])
def test_a_failure_leaves_nothing_half_written(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    store = MemoryStore()
    BrainMemory(store, "s").add_talk("Before.", id="b", created_at=1.0)
    before = state(store)

    def fail(*_: Any, **__: Any) -> None:
        raise StoreError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(store, method, fail)
        with pytest.raises(StoreError, match="disk is full"):
            BrainMemory.from_metagpt(TALK, store, "s")
    assert state(store) == before
    assert texts(BrainMemory.from_metagpt(TALK, store, "s")) == ["Before.", "Where is my bike?", "In the shed."]


def test_it_is_one_write_and_again_none(monkeypatch: pytest.MonkeyPatch) -> None:
    store, writes = MemoryStore(), []
    write: Callable[..., None] = store.write

    def counted(*args: Any, **kwargs: Any) -> None:
        writes.append(kwargs)
        write(*args, **kwargs)

    monkeypatch.setattr(store, "write", counted)
    monkeypatch.setattr(store, "append", None)
    BrainMemory.from_metagpt(TALK, store, "s")
    assert len(writes) == 1
    BrainMemory.from_metagpt(TALK, store, "s")
    assert len(writes) == 1


# --- other versions


def test_a_dump_of_2023() -> None:
    """No config, no knowledge; roles as tags; what was dealt with in a list of its own."""
    blob = json.dumps(
        {
            "solution": [{"content": "Hello.", "tags": ["TALK"]}],
            "history": [
                {"content": "Hi.", "role": "user", "tags": ["ANSWER"]},
                {"content": "Be kind.", "role": "system", "tags": ["ANSWER"]},
                {"id": "2", "content": "Bye.", "role": "user", "cause_by": "", "tags": ["TALK"]},
            ],
            "stack": [],
            "historical_summary": "",
            "llm_type": "openai",
        }
    )
    found = BrainMemory.from_metagpt(blob, MemoryStore(), "s").messages()
    assert [(m.role, m.text) for m in found] == [
        ("user", "Hello."),
        ("assistant", "Hi."),
        ("system", "Be kind."),
        ("user", "Bye."),
    ]


def test_what_a_version_of_2023_has_dealt_with_meanwhile_is_not_taken_in_again() -> None:
    said = [{"content": text, "tags": ["TALK"]} for text in ("Yes.", "Where is my bike?", "Yes.")]
    store = MemoryStore()
    for dealt_with in range(4):
        blob = json.dumps({"solution": said[:dealt_with], "history": said[dealt_with:]})
        brain = BrainMemory.from_metagpt(blob, store, "s")
        assert texts(brain) == ["Yes.", "Where is my bike?", "Yes."]
    blob = json.dumps({"solution": said, "history": [{"content": "Yes.", "tags": ["TALK"]}]})
    assert texts(BrainMemory.from_metagpt(blob, store, "s")) == ["Yes.", "Where is my bike?", "Yes.", "Yes."]


def test_fields_of_newer_messages() -> None:
    instruct = {"class": "Plan", "module": "metagpt.schema", "value": {"goal": "A bike."}}
    record = said("1", "Go.", "Engineer", instruct_content=instruct, created_at=1_700_000_000.5, ttl=-1, colour="red")
    (message,) = BrainMemory.from_metagpt(dump(record), MemoryStore(), "s").messages()
    assert (message.role, message.created_at) == ("Engineer", 1_700_000_000.5)
    assert message.metadata[METAGPT]["instruct_content"] == instruct
    assert message.metadata[METAGPT]["ttl"] == -1


@pytest.mark.parametrize("text", ["", "\ud800 lone", "🚲\u2028\x00", "长" * 1000, '{"$type": "dict"}'])
def test_any_text_comes_in_and_goes_out(text: str) -> None:
    store = MemoryStore()
    record = said("1", text, metadata={"$type": text, "n": 1})
    brain = BrainMemory.from_metagpt(dump(record, historical_summary=text), store, "s")
    (message,) = brain.messages()
    assert message.text == text
    assert message.metadata["$type"] == text
    clean = text.replace("\ud800", "?")
    exported = json.loads(to_metagpt(brain))["history"][0]
    assert (exported["content"], exported["metadata"]) == (clean, {"$type": clean, "n": 1})
    _TheirMemory.model_validate(json.loads(to_metagpt(brain)))


def test_what_metagpt_reads_is_what_it_gave_however_often_it_goes_in_and_out() -> None:
    odd: dict[str, Any] = {"$type": "bytes", "$value": "AA=="}
    deep = json.loads("[" * 198 + "]" * 198)
    brain = BrainMemory.from_metagpt(dump(said("1", "Go.", metadata={"a": [odd], "deep": deep})), MemoryStore(), "s")
    brain.add_messages([Message(role="user", content="Look.", id="2", metadata={"data": b"\x00"})])
    exported = to_metagpt(brain)
    assert json.loads(exported)["history"][0]["metadata"] == {"a": [odd], "deep": deep}
    again = to_metagpt(BrainMemory.from_metagpt(exported, MemoryStore(), "s"))
    assert json.loads(again)["history"] == json.loads(exported)["history"]


@pytest.mark.parametrize(
    ("blob", "sentence"),
    [
        (None, "not NoneType"),
        (7, "not int"),
        (b"", "not a memory of MetaGPT"),
        ("SECRET{", "not a memory of MetaGPT"),
        (b"\xffSECRET", "not a memory of MetaGPT"),
        ("[" * 100_000, "not a memory of MetaGPT"),
        ('["SECRET"]', "not a memory of MetaGPT"),
        ('{"SECRET": 1}', "not a memory of MetaGPT"),
        ('{"history": "SECRET"}', "the field history of this memory of MetaGPT is not a list"),
        (
            '{"history": [{"content": "a"}, "SECRET"]}',
            "message 2 in the history of this memory of MetaGPT is not an obj",
        ),
        ('{"history": [{"content": {"SECRET": 1}}]}', "the field content of message 1 in the history"),
        ('{"history": [{"content": "a", "role": ["SECRET"]}]}', "the field role of message 1"),
        ('{"history": [], "knowledge": [3]}', "message 1 in the knowledge"),
        ('{"history": [], "historical_summary": ["SECRET"]}', "the field historical_summary"),
        ('{"history": [], "last_talk": {"SECRET": 1}}', "the field last_talk"),
        (dump(said("1", "a", metadata={"SECRET": 10**4200})), "message 1 in the history"),
        (dump(said("1", "a", metadata={"SECRET": json.loads("[" * 300 + "]" * 300)})), "message 1 in the history"),
    ],
)
def test_what_is_no_memory_is_refused_in_one_sentence(blob: Any, sentence: str) -> None:
    store = MemoryStore()
    with pytest.raises(SerializationError) as refusal:
        BrainMemory.from_metagpt(blob, store, "s")
    assert sentence in str(refusal.value)
    assert "SECRET" not in str(refusal.value)
    assert refusal.value.__context__ is None  # JSON's own error holds the whole text
    assert "\n" not in str(refusal.value)
    assert list(store.namespaces()) == []


@pytest.mark.parametrize("key", [METAGPT, "imported"])
@pytest.mark.parametrize("damage", [encode({"last_talk": ["SECRET"]}), b'{"SECRET":', encode(["SECRET"]), encode(1)])
def test_damage_to_what_is_remembered_of_imports_is_said_without_what_it_holds(key: str, damage: bytes) -> None:
    store = MemoryStore()
    brain = BrainMemory.from_metagpt(dump(said("1", "Where is my bike?"), said("2", "In the shed.")), store, "s")
    store.write(("brain", "", "", "s"), put={key: damage}, delete=[METAGPT] if key != METAGPT else [])
    for call in (lambda: to_metagpt(brain), lambda: BrainMemory.from_metagpt(TALK, store, "s")):
        with pytest.raises(SerializationError, match=r"^the record of the imports .* is damaged$") as refusal:
            call()
        assert refusal.value.__context__ is None  # pydantic's own error quotes what was said
    assert len(brain.messages()) == 2


def test_f2a_no_secret_is_kept_or_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    store = open_store(f"sqlite:///{tmp_path}/m.db")
    blob = json.loads(TALK) | {"llm": {"config": {"api_key": SECRETS[2]}}}
    brain = BrainMemory.from_metagpt(json.dumps(blob), store, "s")
    out = to_metagpt(brain) + "".join(line.decode() for line in Sessions(store).export())
    blob["history"].append(7)
    with pytest.raises(SerializationError) as refusal:
        BrainMemory.from_metagpt(json.dumps(blob), store, "t")
    store.close()
    data = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"Where is my bike?" in data
    for secret in SECRETS:
        assert secret.encode() not in data
        assert secret not in out + caplog.text + str(refusal.value) + repr(brain)


def test_a_damaged_message_of_the_same_id_does_not_stop_an_import() -> None:
    store = open_store("memory:")
    store.append(("brain", "", "", "s"), [("1", b"{damaged")])
    brain = BrainMemory.from_metagpt(dump(said("1", "Where is my bike?")), store, "s")
    assert texts(brain) == ["Where is my bike?"]


# --- out


class _TheirMessage(BaseModel):
    """What the other side takes, by name and type."""

    id: str = Field(min_length=1)
    content: str
    instruct_content: dict[str, Any] | None = None
    role: str = "user"
    cause_by: str = ""
    sent_from: str = ""
    send_to: set[str]
    metadata: dict[str, Any]


class _TheirMemory(BaseModel):
    history: list[_TheirMessage]
    knowledge: list[_TheirMessage]
    historical_summary: str
    last_history_id: str
    is_dirty: bool
    last_talk: str | None
    cacheable: bool
    config: str | None = None

    @field_validator("config")
    @classmethod
    def _default(cls, config: str | None) -> str:
        return config or "their own"


def test_out_goes_what_is_summarised_at_this_moment() -> None:
    store = MemoryStore()
    brain = BrainMemory(store, "s", model=lambda _: "They spoke of a bike.", archive=False)
    for n in range(3):
        brain.add_talk(f"number {n}")

    class Overtaken:
        """The store, in which the summary is made behind the first read."""

        done = False

        def __getattr__(self, name: str) -> Any:
            def call(*args: Any, **kwargs: Any) -> Any:
                answer = getattr(store, name)(*args, **kwargs)
                if not self.done:
                    self.done = True
                    brain.summarize(keep=1)
                return answer

            return call

    overtaken: Any = Overtaken()
    out = json.loads(to_metagpt(BrainMemory(overtaken, "s")))
    assert out["historical_summary"] == "They spoke of a bike."
    assert out["history"][-1]["content"] == "number 2"


def test_out_it_is_what_came_in() -> None:
    records = [
        said("1", "Where?", created_at=5.0, ttl=-1),
        said("2", "There.", "assistant", sent_from="Alice", send_to=["a", "b"], metadata={"agent": "Alice"}),
        said("2", "Or there.", "assistant", instruct_content={"class": "A", "module": "b", "value": {}}),
    ]
    blob = dump(*records, knowledge=[said("k", "A fact.")], historical_summary="Before.", last_talk="And now?")
    brain = BrainMemory.from_metagpt(blob, MemoryStore(), "s")
    expected = json.loads(blob) | {"config": None, "is_dirty": False}
    assert json.loads(to_metagpt(brain)) == expected


def test_a_session_of_ours_goes_out(any_store: Store) -> None:
    brain = BrainMemory(any_store, "s")
    assert _TheirMemory.model_validate_json(to_metagpt(brain)).history == []
    brain.add_talk("One?", id="1")
    brain.add_answer("One.", id="2")
    brain.add_messages([Message(role="user", content=["Two?", {"type": "image", "data": b"\xff"}], id="3")])
    brain.add_answer("Two.", id="4", metadata={"when": (1, 2), METAGPT: "not of theirs"})
    brain.add_knowledge(["A fact."])
    theirs = _TheirMemory.model_validate_json(to_metagpt(brain))
    assert [(m.id, m.role, m.content) for m in theirs.history[1:3]] == [
        ("2", "assistant", "One."),
        ("3", "user", "Two?"),
    ]
    assert theirs.last_history_id == "4"
    assert [fact.content for fact in theirs.knowledge] == ["A fact."]
    assert theirs.config == "their own"


async def test_what_the_summary_stands_for_stays_here(any_store: Store) -> None:
    brain = BrainMemory(any_store, "s", model=lambda _: "They counted.")
    for n in range(3):
        brain.add_talk(f"{n}?")
        brain.add_answer(f"{n}.")
    brain.summarize(keep=2)
    assert brain.count() == 6
    theirs = _TheirMemory.model_validate_json(await ato_metagpt(brain))
    assert theirs.historical_summary == "They counted."
    assert [message.content for message in theirs.history] == ["2?", "2."]


def test_there_and_back_in_the_same_session_adds_nothing() -> None:
    store = MemoryStore()
    brain = BrainMemory(store, "s")
    brain.add_talk("One?")
    brain.add_answer("One.")
    BrainMemory.from_metagpt(to_metagpt(brain), store, "s")
    assert texts(brain) == ["One?", "One."]


def test_a_damaged_message_does_not_keep_the_others_here(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    brain = BrainMemory(store, "s")
    brain.add_talk("One?")
    store.append(brain._flows.namespace, [("x", b"damage")])
    assert [record["content"] for record in json.loads(to_metagpt(brain))["history"]] == ["One?"]
    assert "damaged" in caplog.text


def test_what_is_known_is_all_that_goes_out_as_knowledge(caplog: pytest.LogCaptureFixture) -> None:
    brain = BrainMemory(open_store("memory:"), "s")
    brain.add_talk("hi")
    brain.set_title("A title")
    brain.add_knowledge(["Ada has a bike."])
    assert [fact["content"] for fact in json.loads(to_metagpt(brain))["knowledge"]] == ["Ada has a bike."]
    assert caplog.records == []


def test_keys_that_json_does_not_know_go_out_as_they_are_stored() -> None:
    brain = BrainMemory(open_store("memory:"), "s")
    brain.add_messages([Message(role="user", content="hi", metadata={"scores": {1: "x"}})])
    (message,) = json.loads(to_metagpt(brain))["history"]
    assert message["metadata"] == {"scores": {"$type": "dict", "$value": [[1, "x"]]}}
