"""BrainMemoryMiddleware and time travel: what a thread no longer has is not shown from the session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage
from langgraph.checkpoint.memory import InMemorySaver
from llama_index.core.storage.chat_store.base_db import MessageStatus

from langmem_adapters.errors import StoreUnavailable
from langmem_adapters.langchain import BrainMemoryMiddleware, thread_to_history
from langmem_adapters.llamaindex import BrainChatStore, SyncBrainChatStore
from langmem_adapters.protocols import Store
from langmem_adapters.sealing import SealedStore
from langmem_adapters.stores.memory import MemoryStore
from tests.agents import Scripted, aask, ask, invalid, look, of, system, texts

CONFIG: Any = {"configurable": {"thread_id": "s"}}


def counting() -> Callable[[list[BaseMessage]], AIMessage]:
    count = iter(range(1, 99))
    return lambda _: AIMessage(f"answer {next(count)}")


class Chat:
    """An agent with a saved thread, and its ways back."""

    def __init__(self, store: Store | None = None, **options: Any) -> None:
        self.memory = BrainMemoryMiddleware(store=store or MemoryStore(), **options)
        self.model = Scripted(answer=counting())
        self.agent: Any = create_agent(self.model, [look], middleware=[self.memory], checkpointer=InMemorySaver())

    @property
    def shown(self) -> list[str]:
        return texts(self.model.seen[-1])

    @property
    def stored(self) -> list[str]:
        return texts(self.memory.brain("s", user="ada").messages())

    @property
    def thread(self) -> list[str]:
        return texts(self.agent.get_state(CONFIG).values["messages"])

    def ask(self, question: str, id_: str | None = None) -> None:
        ask(self.agent, HumanMessage(question, id=id_))

    def before(self, node: str, messages: int) -> Any:
        """The newest checkpoint with so many messages before a node; "" is the end of a run."""
        for checkpoint in self.agent.get_state_history(CONFIG):
            found = checkpoint.values.get("messages", [])
            if (
                len(found) == messages
                and "".join(checkpoint.next).startswith(node)
                and bool(checkpoint.next) == bool(node)
            ):
                return checkpoint.config
        raise AssertionError("no such checkpoint")

    def copy(self, session: str, source: str = "s") -> None:
        """Copy a thread, as LangGraph's servers do."""
        newest = self.agent.checkpointer.get_tuple({"configurable": {"thread_id": source}})
        to: Any = {"configurable": {"thread_id": session, "checkpoint_ns": ""}}
        self.agent.checkpointer.put(to, newest.checkpoint, newest.metadata, newest.checkpoint["channel_versions"])

    def regenerate(self, messages: int) -> None:
        self.agent.invoke(None, self.before("model", messages), context={"user_id": "ada"})

    def edit(self, question: str, messages: int, id_: str | None = None) -> None:
        turn: Any = {"messages": [HumanMessage(question, id=id_)]}
        self.agent.invoke(turn, self.before("", messages), context={"user_id": "ada"})


def test_an_answer_that_is_asked_for_again_is_not_shown(any_store: Store) -> None:
    chat = Chat(any_store)
    chat.ask("q1")
    for _ in range(2):
        chat.regenerate(1)
        assert chat.shown == ["q1"]
    chat.ask("q2")
    assert chat.shown == ["q1", "answer 3", "q2"]
    assert chat.stored == ["q1", "answer 1", "answer 2", "answer 3", "q2", "answer 4"]


@pytest.mark.parametrize("id_", [None, "2"])
def test_a_question_that_was_edited_is_shown_as_it_is_now(id_: str | None) -> None:
    chat = Chat()
    chat.ask("q1", "1")
    chat.ask("my card is 4111", "2")
    chat.ask("thanks", "3")
    chat.edit("my card is secret", 2, id_)
    assert chat.shown == ["q1", "answer 1", "my card is secret"]
    chat.regenerate(3)
    assert chat.shown == ["q1", "answer 1", "my card is secret"]
    chat.ask("q3")
    assert chat.shown == ["q1", "answer 1", "my card is secret", "answer 5", "q3"]
    assert chat.stored.count("my card is secret") == 1
    assert chat.shown[:-1] == chat.thread[:-2]


@pytest.mark.parametrize("redactor", [None, lambda text: text.replace("shed", "[place]")])
def test_a_question_that_was_edited_in_the_midst_of_its_run_has_no_calls_of_that_run(
    any_store: Store, redactor: Callable[[str], str] | None
) -> None:
    def look_twice(messages: list[BaseMessage]) -> AIMessage:
        step = len(messages)
        if step < 5 and "shed" in messages[0].text:
            return AIMessage("", tool_calls=[{"name": "look", "args": {"place": f"shed {step}"}, "id": f"call {step}"}])
        return AIMessage("done")

    chat = Chat(any_store if redactor is None else SealedStore(any_store, redactor=redactor))
    chat.model.answer = look_twice
    chat.ask("Is it in the shed?", "q")
    middle = chat.before("model", 5)
    ids = [message.id for message in chat.agent.get_state(middle).values["messages"][1:]]
    edited = [*(RemoveMessage(id=id_) for id_ in ids), HumanMessage("Is it here?", id="q")]
    fork = chat.agent.update_state(middle, {"messages": edited}, as_node="__start__")
    before = chat.stored
    chat.agent.invoke(None, fork, context={"user_id": "ada"})
    assert chat.shown == ["Is it here?"]
    assert chat.stored == [*before, "Is it here?", "done"]


def test_a_message_that_was_removed_from_the_thread() -> None:
    chat = Chat()
    chat.ask("my card is 4111", "c")
    chat.ask("q2")
    chat.agent.update_state(CONFIG, {"messages": [RemoveMessage(id="c")]})
    chat.ask("q3")
    assert chat.shown[-3:] == ["q2", "answer 2", "q3"]
    assert "my card is 4111" not in chat.shown


def test_turns_that_were_deleted_from_the_beginning_of_a_session_alone() -> None:
    chat = Chat()
    for n in range(3):
        chat.ask(f"q{n}")
    brain = chat.memory.brain("s", user="ada")
    assert brain.delete([message.id for message in brain.messages()[:2]]) == 2
    for n in (3, 4):
        chat.ask(f"q{n}")
    assert chat.shown == ["q1", "answer 2", "q2", "answer 3", "q3", "answer 4", "q4"]
    assert chat.thread[:2] == ["q0", "answer 1"]


@pytest.mark.parametrize("long_term", [True, False])
@pytest.mark.parametrize(
    ("deleted", "left"),
    [
        ((2, 3), ["q0", "answer 1", "q2", "answer 3"]),
        ((1, 5), ["q0", "q1", "answer 2", "q2"]),
        (range(6), []),
    ],
)
def test_what_was_deleted_from_a_session_is_not_shown_from_the_thread(
    any_store: Store, deleted: Sequence[int], left: list[str], *, long_term: bool
) -> None:
    chat = Chat(any_store, long_term=long_term)
    for n in range(3):
        chat.ask(f"q{n}")
    brain = chat.memory.brain("s", user="ada")
    ids = [message.id for message in brain.messages()]
    assert brain.delete([ids[n] for n in deleted]) == len(deleted)
    for shown in (["next"], ["next", "answer 4", "more"]):
        chat.ask(shown[-1])
        assert chat.shown == left + shown
    assert chat.stored == [*left, "next", "answer 4", "more", "answer 5"]
    thread_to_history(chat.agent.get_state(CONFIG).values, brain)
    assert len(chat.stored) == len(left) + 4


@pytest.mark.parametrize("way", ["one", "last", "oldest", "all", "active", "replaced"])
def test_what_llamaindex_deleted_from_a_session_is_not_shown_from_the_thread(any_store: Store, way: str) -> None:
    chat = Chat(any_store)
    for n in range(3):
        chat.ask(f"q{n}")
    store = SyncBrainChatStore(store=any_store, user="ada")
    if way == "one":
        gone = [store.delete_message("s", 3), store.delete_message("s", 2)]
    elif way == "last":
        gone = [store.delete_last_message("s"), store.delete_last_message("s")]
    elif way in {"active", "replaced"}:
        ours, gone = BrainChatStore(store=any_store, user="ada"), [*store.get_messages("s")]
        asyncio.run(ours.delete_messages("s", MessageStatus.ACTIVE) if way == "active" else ours.set_messages("s", []))
    else:
        ours, count = BrainChatStore(store=any_store, user="ada"), 2 if way == "oldest" else 6
        gone = [*asyncio.run(ours.delete_oldest_messages("s", count))]
    texts_gone = [message and message.content for message in gone]
    left = [text for text in ("q0", "answer 1", "q1", "answer 2", "q2", "answer 3") if text not in texts_gone]
    assert len(left) == (4 if way in {"one", "last", "oldest"} else 0)
    for shown in (["next"], ["next", "answer 4", "more"]):
        chat.ask(shown[-1])
        assert chat.shown == left + shown
    assert chat.stored == [*left, "next", "answer 4", "more", "answer 5"]


def without_last_exchange(chat: Chat, question: str) -> BaseMessage:
    """Delete the last question from the session, and take its answer out of the thread."""
    brain = chat.memory.brain("s", user="ada")
    thread: list[BaseMessage] = chat.agent.get_state(CONFIG).values["messages"]
    asked, answer = thread[-2:]
    assert asked.text == question
    assert brain.delete([str(asked.id)]) == 1
    chat.agent.update_state(CONFIG, {"messages": [RemoveMessage(id=str(answer.id))]})
    return asked


def test_a_deleted_question_whose_answer_was_removed_from_the_thread_stays_away(any_store: Store) -> None:
    chat = Chat(any_store)
    chat.ask("q1")
    chat.ask("my card is 4111")
    without_last_exchange(chat, "my card is 4111")
    for question in ("q2", "q3"):
        chat.ask(question)
        assert "my card is 4111" not in [*chat.shown, *chat.stored]
    assert chat.shown == ["q1", "answer 1", "q2", "answer 3", "q3"]


def test_a_deleted_question_that_is_asked_again_is_shown() -> None:
    chat = Chat()
    chat.ask("q1")
    chat.ask("q2")
    asked = without_last_exchange(chat, "q2")
    chat.ask("q2, in other words", asked.id)
    assert chat.shown == ["q1", "answer 1", "q2, in other words"]


@pytest.mark.parametrize("on_error", ["degrade", "raise"])
@pytest.mark.parametrize("failing", [range(1, 3), range(3), [1], [2], [3]])
def test_where_it_cannot_be_told_what_was_deleted_the_run_goes_on(failing: Sequence[int], on_error: str) -> None:
    class Away(MemoryStore):
        reads = 9

        def _is_read(self) -> None:
            self.reads += 1
            if self.reads in failing:
                raise StoreUnavailable("the store is away")

        def get(self, *args: Any, **kwargs: Any) -> Any:
            self._is_read()
            return super().get(*args, **kwargs)

        def scan(self, *args: Any, **kwargs: Any) -> Any:
            self._is_read()
            return super().scan(*args, **kwargs)

    store = Away()
    chat = Chat(store, on_error=on_error, recall_k=0)
    chat.ask("q1")
    chat.ask("q2")
    without_last_exchange(chat, "q2")
    store.reads = -1
    if on_error == "raise":
        with pytest.raises(StoreUnavailable):
            chat.ask("q3")
    else:
        chat.ask("q3")
        assert chat.shown[-1] == "q3"
        assert chat.memory.stats()["errors"] >= 1
        chat.ask("q4")
        assert chat.stored[-4:] == ["q3", "answer 3", "q4", "answer 4"]


def test_a_thread_that_had_no_memory_until_now() -> None:
    chat = Chat()
    chat.agent = create_agent(chat.model, [look], checkpointer=(saver := InMemorySaver()))
    for n in range(2):
        chat.ask(f"q{n}")
    chat.agent = create_agent(chat.model, [look], middleware=[chat.memory], checkpointer=saver)
    for n in (2, 3):
        chat.ask(f"q{n}")
    assert chat.shown == ["q0", "answer 1", "q1", "answer 2", "q2", "answer 3", "q3"]
    assert chat.stored == [*chat.shown, "answer 4"]


def test_an_edited_message_in_the_thread_itself() -> None:
    chat = Chat()
    chat.ask("my card is 4111", "c")
    chat.agent.update_state(CONFIG, {"messages": [HumanMessage("my card is secret", id="c")]})
    chat.ask("q2")
    assert chat.shown == ["my card is secret", "answer 1", "q2"]


@pytest.mark.parametrize("answer", [AIMessage("I noted [card]", id="a1"), RemoveMessage(id="a1")])
def test_a_first_exchange_that_was_edited_as_a_whole_in_the_thread_itself(answer: BaseMessage) -> None:
    chat = Chat()
    chat.model.answer = lambda shown: AIMessage(f"I noted {shown[-1].text}", id=f"a{len(shown)}")
    chat.ask("4111", "1")
    chat.ask("q2")
    chat.agent.update_state(CONFIG, {"messages": [HumanMessage("[card]", id="1"), answer]})
    for question in ("q3", "q4"):
        chat.ask(question)
        assert chat.shown == chat.thread[:-1]
    assert chat.shown[0] == "[card]"


def test_back_to_long_ago_behind_the_window() -> None:
    chat = Chat(memory_k=4)
    for n in range(8):
        chat.ask(f"q{n}")
    chat.edit("another", 2)
    assert chat.shown == ["q0", "answer 1", "another"]
    assert invalid(chat.model.seen[-1]) == ""


def test_a_thread_that_begins_anew_is_shown_what_the_session_has() -> None:
    store = MemoryStore()
    for n in range(3):  # the saver is lost each time
        chat = Chat(store)
        chat.ask(f"q{n}")
    assert chat.shown == ["q0", "answer 1", "q1", "answer 1", "q2"]
    chat.ask("q3")
    assert chat.shown == ["q0", "answer 1", "q1", "answer 1", "q2", "answer 1", "q3"]
    chat.regenerate(3)
    assert chat.shown == ["q0", "answer 1", "q1", "answer 1", "q2", "answer 1", "q3"]


@pytest.mark.parametrize(
    ("memory_k", "shown"),
    [
        (200, ["q0", "answer 1", "q1", "answer 2", "q2", "answer 3", "also", "answer 4", "more"]),
        (6, ["q2", "answer 3", "also", "answer 4", "more"]),
        (2, ["more"]),
    ],
)
def test_a_thread_that_was_copied_goes_on_with_all_of_it(memory_k: int, shown: list[str]) -> None:
    chat = Chat(memory_k=memory_k)
    for n in range(3):
        chat.ask(f"q{n}")
    chat.copy("copy")
    for question in ("also", "more"):
        ask(chat.agent, question, session="copy")
    assert chat.shown == shown
    assert texts(chat.memory.brain("copy", user="ada").messages())[-2:] == ["more", "answer 5"]
    assert chat.stored[-1] == "answer 3"


def test_a_copy_shows_what_is_older_beside_a_summary_of_its_own() -> None:
    told: list[str] = []

    def summarise(prompt: str) -> str:
        told.append(prompt)
        return "In short."

    chat = Chat(memory_k=12, model=summarise, summarize_in="inline", summarize_at=60)
    for n in range(3):
        chat.ask(f"q{n}")
    older = [*chat.shown, "answer 3"]
    chat.copy("copy")
    long = [f"a question of so many words that there will be a summary of it, and it is number {n}" for n in range(4)]
    for question in long:
        ask(chat.agent, question, session="copy")
    assert told
    assert all("q0" not in prompt for prompt in told)
    assert "In short." in system(chat.model.seen[-1])
    assert chat.shown == [*older, long[2], "answer 6", long[3]]
    chat.copy("again", source="copy")
    for question in ("also", "more"):
        ask(chat.agent, question, session="again")
    copied = [text for n, question in enumerate(long) for text in (question, f"answer {4 + n}")]
    assert chat.shown == [*copied, "also", "answer 8", "more"]  # 11, as they begin with a question


def test_what_others_said_stays_in_view() -> None:
    store = MemoryStore()
    mine, other = Chat(store), Chat(store)
    mine.ask("mine")
    other.ask("theirs")
    mine.ask("more")
    mine.regenerate(3)
    assert mine.shown == ["mine", "answer 1", "theirs", "answer 1", "more"]
    other.ask("theirs again")
    assert other.shown[-1] == "theirs again"
    assert "mine" in other.shown


async def test_the_same_without_blocking() -> None:
    chat = Chat()
    await aask(chat.agent, "q1")
    await chat.agent.ainvoke(None, chat.before("model", 1), context={"user_id": "ada"})
    assert chat.shown == ["q1"]
    await aask(chat.agent, "q2")
    assert chat.shown == ["q1", "answer 2", "q2"]


def test_an_old_thread_from_before_the_marks_is_shown_as_ever() -> None:
    chat = Chat()
    chat.ask("q1")
    values = chat.agent.get_state(CONFIG).values
    old = create_agent(chat.model, [look], middleware=[chat.memory], checkpointer=InMemorySaver())
    plain = {"messages": values["messages"], "brain_recorded": values["brain_recorded"]}
    old.update_state(CONFIG, plain)
    old.invoke({"messages": [HumanMessage("q2")]}, **of("ada", "s"))
    assert chat.shown == ["q1", "answer 1", "q2"]
    assert chat.stored == ["q1", "answer 1", "q2", "answer 2"]
