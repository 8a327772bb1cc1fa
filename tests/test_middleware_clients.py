"""BrainMemoryMiddleware and clients that send the whole conversation: LG a, without loss and without doubling."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain.agents.middleware import PIIMiddleware
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langgraph.checkpoint.memory import InMemorySaver

from langmem_adapters import BrainMemory, Message
from langmem_adapters.langchain import BrainMemoryMiddleware, thread_to_history
from langmem_adapters.protocols import Store
from langmem_adapters.sealing import SealedStore
from langmem_adapters.stores.memory import MemoryStore
from tests.agents import Answer, Scripted, ask, invalid, look, of, ok, texts
from tests.faults import Refusing

Shown = Callable[[BaseMessage], dict[str, Any]]


def uses_a_tool(messages: list[BaseMessage]) -> AIMessage:
    if isinstance(messages[-1], HumanMessage):
        call = {"name": "look", "args": {"place": "shed"}, "id": uuid.uuid4().hex, "type": "tool_call"}
        return AIMessage("Let me look." if len(messages) % 3 == 1 else "", tool_calls=[call])
    return AIMessage("In the shed.")


def plainly(message: BaseMessage) -> dict[str, Any]:
    return {"role": "assistant", "content": message.text}


def stripped(message: BaseMessage) -> dict[str, Any]:
    return {"role": "assistant", "content": message.text.strip()}


def marked_up(message: BaseMessage) -> dict[str, Any]:
    return {"role": "assistant", "content": f"**{message.text}** [1]"}


def cut_off(message: BaseMessage) -> dict[str, Any]:
    return {"role": "assistant", "content": message.text[:4]}


def nameless(_: list[BaseMessage]) -> AIMessage:
    return AIMessage("In the shed.", name="bot")


def spaced(_: list[BaseMessage]) -> AIMessage:
    return AIMessage("In  the shed. \n")


def in_blocks(_: list[BaseMessage]) -> AIMessage:
    return AIMessage([{"type": "text", "text": "In the "}, {"type": "text", "text": "shed."}])


def thinking(_: list[BaseMessage]) -> AIMessage:
    return AIMessage([{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "ok"}])


class Client:
    """A client that has the conversation and sends it, or its newest messages, with each question."""

    def __init__(self, agent: Any, shown: Shown, *, ids: str = "", keep: int = 0) -> None:
        self.agent = agent
        self.shown = shown
        self.ids = ids  # of which messages it gives ids
        self.keep = keep
        self.conversation: list[dict[str, Any]] = []

    def _add(self, message: dict[str, Any]) -> None:
        own = {"id": uuid.uuid4().hex} if message["role"] in self.ids else {}
        self.conversation.append(message | own)

    def ask(self, question: str, content: Any = None) -> None:
        self._add({"role": "user", "content": content or question})
        turn: Any = {"messages": self.conversation[-self.keep :]}
        found = self.agent.invoke(turn, context={"user_id": "ada", "session_id": "s"})
        self._add(self.shown(found["messages"][-1]))


def memory(store: Store | None = None, **options: Any) -> BrainMemoryMiddleware:
    return BrainMemoryMiddleware(store=store or MemoryStore(), **options)


def stored(ours: BrainMemoryMiddleware) -> list[str]:
    return texts(ours.brain("s", user="ada").messages())


def agent_of(ours: BrainMemoryMiddleware, answer: Answer = ok) -> tuple[Any, Scripted]:
    model = Scripted(answer=answer)
    return create_agent(model, [look], middleware=[ours]), model


@pytest.mark.parametrize("ids", ["", "user", "assistant", "user assistant"])
@pytest.mark.parametrize(
    ("answer", "shown", "each"),
    [
        (ok, plainly, 2),
        (uses_a_tool, plainly, 4),
        (uses_a_tool, marked_up, 4),
        (in_blocks, plainly, 2),
        (thinking, plainly, 2),
        (spaced, stripped, 2),
        (nameless, plainly, 2),
        (ok, marked_up, 2),
        (ok, cut_off, 2),
    ],
)
def test_a_whole_conversation_is_recorded_once(answer: Answer, shown: Shown, each: int, ids: str) -> None:
    ours = memory()
    agent, model = agent_of(ours, answer)
    client = Client(agent, shown, ids=ids)
    counts = []
    for n in range(4):
        client.ask(f"question {n}")
        counts.append(len(stored(ours)))
    assert counts == [each, 2 * each, 3 * each, 4 * each]
    questions = [message.text for message in model.seen[-1] if isinstance(message, HumanMessage)]
    assert questions == [f"question {n}" for n in range(4)]
    assert [invalid(shown) for shown in model.seen if invalid(shown)] == []


def test_questions_in_blocks_and_images_without_words() -> None:
    ours = memory()
    client = Client(agent_of(ours)[0], plainly)
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}
    for _ in range(3):
        client.ask("", [image])
        client.ask("Where?", [{"type": "text", "text": "Where?"}])
        client.ask("Where?")
    assert len(stored(ours)) == 18


def test_what_the_client_does_not_show_is_still_shown_to_the_model(any_store: Store) -> None:
    ours = memory(any_store)
    agent, model = agent_of(ours, uses_a_tool)
    client = Client(agent, plainly)
    client.ask("Where is the bike?")
    client.ask("And the car?")
    assert [message.type for message in model.seen[2]] == ["human", "ai", "tool", "ai", "human"]


def announces(messages: list[BaseMessage]) -> AIMessage:
    called = uses_a_tool(messages)
    return called.model_copy(update={"content": "Let me look."}) if called.tool_calls else called


@pytest.mark.parametrize("ids", [False, True])
def test_what_was_said_beside_a_call_that_the_client_does_not_show_is_shown_once(
    any_store: Store, *, ids: bool
) -> None:
    ours = memory(any_store)
    agent, model = agent_of(ours, announces)
    conversation: list[Any] = []
    for question in ("q1", "q2", "q3"):
        asked = {"messages": [*conversation, ("user", question)]}
        found = agent.invoke(asked, context={"user_id": "ada", "session_id": "s"})["messages"]
        conversation = [
            {"role": message.type, "content": message.text} | ({"id": message.id} if ids else {})
            for message in found
            if message.text and message.type != "tool"
        ]
    assert texts(model.seen[-1]) == stored(ours)[:-1]
    assert [message.type for message in model.seen[-1]] == [*["human", "ai", "tool", "ai"] * 2, "human", "ai", "tool"]
    assert [invalid(shown) for shown in model.seen if invalid(shown)] == []


def test_an_answer_that_the_client_has_changed_is_shown_as_it_has_it_and_once() -> None:
    ours = memory()
    agent, model = agent_of(ours)
    client = Client(agent, marked_up)
    client.ask("one")
    client.ask("two")
    assert texts(model.seen[-1]) == ["one", "**ok: one** [1]", "two"]
    assert stored(ours) == ["one", "ok: one", "two", "ok: two"]


@given(seed=st.integers(0, 10_000))
@settings(max_examples=60)
def test_who_says_the_same_again_is_heard_each_time(seed: int) -> None:
    """Any client, whatever it repeats, whole exchanges too; beside another one, or with only its newest messages."""
    chance = random.Random(seed)
    others, k = chance.choice([(1, 200), (1, 4), (1, 10), (2, 200)])
    ours = memory(memory_k=k)
    agent, model = agent_of(ours, chance.choice([ok, uses_a_tool, in_blocks]))
    shown = chance.choice([plainly, cut_off, marked_up])
    keep, ids = chance.choice([0, 0, 3, 5]), chance.choice(["", "", "user", "user assistant"])
    clients = [Client(agent, shown, ids=ids, keep=keep) for _ in range(others)]
    words = chance.choice([["yes"], ["yes", "no"], ["a", "b", "c"]])
    questions = [chance.choice(words) for _ in range(chance.randrange(2, 8))]
    for question in questions:
        chance.choice(clients).ask(question)
        assert model.seen[-1][-1].text in {question, "nothing in the shed"}
    brain = ours.brain("s", user="ada")
    assert brain.long_term is not None
    said = [message.text for message in brain.messages() if message.role == "user"]
    for found in brain.long_term.all():
        said += [found.message.text] * len(found.occurrences) if found.message.role == "user" else []
    assert sorted(said) == sorted(questions)
    assert [invalid(shown) for shown in model.seen if invalid(shown)] == []


@pytest.mark.parametrize("words", [["yes", "yes"], ["yes", "no", "yes", "no"]])
def test_a_client_that_sends_new_questions_only(words: list[str]) -> None:
    ours = memory()
    agent, model = agent_of(ours)
    for word in words:
        ask(agent, word)
    assert stored(ours) == [text for word in words for text in (word, f"ok: {word}")]
    assert texts(model.seen[-1])[-1] == words[-1]


def test_instructions_that_a_client_sends_with_each_question_are_shown_first() -> None:
    """Some clients of models refuse a system message behind others, and a small window would leave it out."""
    ours = memory()
    agent, model = agent_of(ours)
    for question in ("one", "two"):
        agent.invoke({"messages": [SystemMessage("Speak French."), HumanMessage(question)]}, **of("ada", "s"))
    assert [message.text for message in model.seen[-1]] == ["Speak French.", "one", "ok: one", "two"]
    assert stored(ours) == ["one", "ok: one", "two", "ok: two"]


def test_a_question_after_an_answer_that_shows_nothing() -> None:
    def only_calls(messages: list[BaseMessage]) -> AIMessage:
        return uses_a_tool(messages) if isinstance(messages[-1], HumanMessage) else AIMessage("")

    ours = memory()
    agent, model = agent_of(ours, only_calls)
    ask(agent, "yes")
    ask(agent, "yes")
    assert stored(ours).count("yes") == 2
    turn: Any = {"messages": [("user", "yes"), ("user", "yes"), ("user", "no")]}
    agent.invoke(turn, **of("ada", "s"))
    said = [text for text in stored(ours) if text in {"yes", "no"}]
    assert said == ["yes", "yes", "no"]
    assert model.seen[-2][-1].text == "no"


def test_a_turn_that_the_store_has_missed_is_made_up_for_though_it_says_what_was_said() -> None:
    store, count = Refusing(), iter(range(9))
    ours = memory(store)
    client = Client(agent_of(ours, lambda _: AIMessage(f"answer {next(count)}"))[0], plainly)
    client.ask("yes")
    store.reason = "the store is away"
    client.ask("yes")
    store.reason = ""
    client.ask("no")
    assert stored(ours) == ["yes", "answer 0", "yes", "answer 1", "no", "answer 2"]


def test_a_client_that_edits_what_was_said_adds_only_what_is_new() -> None:
    ours = memory()
    agent, model = agent_of(ours)
    client = Client(agent, plainly)
    for word in ("one", "two", "three"):
        client.ask(word)
    del client.conversation[2:]  # edits its second question
    client.ask("another")
    assert stored(ours)[6:] == ["another", "ok: another"]
    client.conversation[0]["content"] = "ONE, or so"
    client.ask("four")
    assert stored(ours)[8:] == ["four", "ok: four"]
    assert texts(model.seen[-1])[-3:] == ["another", "ok: another", "four"]


def test_failed_turns_and_what_the_client_says_about_them() -> None:
    failing = [False, True, False, False]

    def fails(messages: list[BaseMessage]) -> AIMessage:
        if failing.pop(0):
            raise RuntimeError("the model is away")
        return ok(messages)

    ours = memory()
    client = Client(agent_of(ours, fails)[0], plainly)
    client.ask("one")
    with pytest.raises(RuntimeError, match="away"):
        client.ask("two")
    client.conversation.append({"role": "assistant", "content": "Something went wrong."})
    client.ask("two")
    client.ask("three")
    said = ["one", "ok: one", "two", "Something went wrong.", "two", "ok: two", "three", "ok: three"]
    assert stored(ours) == said


def test_a_greeting_and_examples_in_front() -> None:
    ours = memory()
    client = Client(agent_of(ours)[0], plainly)
    client.conversation.append({"role": "assistant", "content": "How can I help?"})
    for n in range(3):
        client.ask(f"question {n}")
    assert len(stored(ours)) == 7
    first: list[Any] = [("user", "example"), ("assistant", "like this")]
    for n in range(3):
        client.agent.invoke({"messages": [*first, ("user", f"new {n}")]}, **of("bob", "s"))
    assert ours.brain("s", user="bob").count() == 8


def test_what_a_redactor_takes_out_does_not_make_a_message_another() -> None:
    ours = memory(SealedStore(MemoryStore(), redactor=lambda text: text.replace("4111", "[card]")))
    client = Client(agent_of(ours)[0], plainly, ids="user")
    plain = Client(client.agent, plainly)
    for one, session in ((client, "s"), (plain, "s")):
        before = len(stored(ours))
        for n in range(4):
            one.ask(f"my card is 4111, {session} {n} {one is client}")
        assert len(stored(ours)) == before + 8
    assert "4111" not in "".join(stored(ours))


@pytest.mark.parametrize("ids", ["", "user", "assistant"])
@pytest.mark.parametrize("answer", [ok, uses_a_tool])
@pytest.mark.parametrize("first", [True, False])
def test_what_a_filter_takes_out_of_a_question_does_not_come_back_with_what_the_client_sends(
    answer: Answer, ids: str, *, first: bool
) -> None:
    ours, model = memory(), Scripted(answer=answer)
    both = [ours, PIIMiddleware("email")] if first else [PIIMiddleware("email"), ours]
    client = Client(create_agent(model, [look], middleware=both), plainly, ids=ids)
    questions = ["hello", "I am ada@example.com", "I am bob@example.com", "bye"]
    for question in questions:
        client.ask(question)
    asked = [message.text for message in ours.brain("s", user="ada").messages() if message.role == "user"]
    assert asked == ["hello", *["I am [REDACTED_EMAIL]"] * 2, "bye"]
    assert [message.text for message in model.seen[-1] if isinstance(message, HumanMessage)] == questions


def agrees(_: list[BaseMessage]) -> AIMessage:
    return AIMessage("Yes.")


@pytest.mark.parametrize("ids", ["", "user assistant"])
def test_what_others_asked_is_shown_though_the_answer_is_one_that_the_client_has_too(ids: str) -> None:
    agent, model = agent_of(memory(memory_k=5), agrees)
    client, other = Client(agent, plainly, ids=ids), Client(agent, plainly, ids=ids)
    for one, question in [(client, "one"), (client, "two"), (other, "elsewhere"), (client, "three"), (client, "four")]:
        one.ask(question)
    assert texts(model.seen[-1]) == ["elsewhere", "Yes.", "three", "Yes.", "four"]


def test_what_was_deleted_takes_nothing_else_of_the_same_words_with_it() -> None:
    ours = memory()
    agent, model = agent_of(ours, agrees)
    thread: list[BaseMessage] = []
    for question in ["hello", "go on", "go on"]:
        thread = agent.invoke({"messages": [*thread, HumanMessage(question)]}, **of("ada", "s"))["messages"]
    ours.brain("s", user="ada").delete([str(thread[-2].id)])
    agent.invoke({"messages": [*thread[:2], *thread[4:], HumanMessage("bye")]}, **of("ada", "s"))
    assert texts(model.seen[-1]) == ["hello", "Yes.", "go on", "Yes.", "Yes.", "bye"]


@pytest.mark.parametrize("deleted", [(0, 1), (2, 3), (4, 5), (2, 3, 4, 5), range(6)])
def test_what_was_deleted_from_a_session_is_not_shown_of_what_a_client_sends(
    any_store: Store, deleted: tuple[int, ...]
) -> None:
    ours = memory(any_store)
    agent, model = agent_of(ours)
    thread: list[BaseMessage] = []
    for question in ["one", "two", "three"]:
        thread = agent.invoke({"messages": [*thread, HumanMessage(question)]}, **of("ada", "s"))["messages"]
    left = texts([message for n, message in enumerate(thread) if n not in deleted])
    assert ours.brain("s", user="ada").delete([str(thread[n].id) for n in deleted]) == len(deleted)
    for question in ["four", "five"]:
        left.append(question)
        thread = agent.invoke({"messages": [*thread, HumanMessage(question)]}, **of("ada", "s"))["messages"]
        assert texts(model.seen[-1]) == left
        left.append(thread[-1].text)
    assert stored(ours) == left


@pytest.mark.parametrize("deleted", [[2], [3], [2, 3]])
def test_what_was_deleted_is_not_stored_again_in_a_session_without_a_long_term_memory(deleted: list[int]) -> None:
    ours = memory(long_term=False)
    agent, _ = agent_of(ours)
    thread: list[BaseMessage] = []
    for question in ["one", "two"]:
        thread = agent.invoke({"messages": [*thread, HumanMessage(question)]}, **of("ada", "s"))["messages"]
    left = texts([message for n, message in enumerate(thread) if n not in deleted])
    ours.brain("s", user="ada").delete([str(thread[n].id) for n in deleted])
    agent.invoke({"messages": [*thread, HumanMessage("three")]}, **of("ada", "s"))
    assert stored(ours) == [*left, "three", "ok: three"]


def test_a_question_with_which_the_client_sent_more_than_it_keeps_is_kept_once() -> None:
    ours = memory()
    agent, model = agent_of(ours, uses_a_tool)
    client = Client(agent, plainly)
    for n in range(3):
        client.ask("", f"Context: a page. Question {n}")
        client.conversation[-2]["content"] = f"Question {n}"
    asked = [message.text for message in ours.brain("s", user="ada").messages() if message.role == "user"]
    assert asked == [f"Context: a page. Question {n}" for n in range(3)]
    asked = [message.text for message in model.seen[-1] if isinstance(message, HumanMessage)]
    assert asked == ["Question 0", "Question 1", "Context: a page. Question 2"]


def test_a_second_conversation_in_another_session_begins_anew() -> None:
    ours = memory()
    agent, model = agent_of(ours)
    ask(agent, "yes", session="s")
    ask(agent, "yes", session="t")
    assert texts(model.seen[-1]) == ["yes"]
    assert ours.brain("t", user="ada").count() == 2


# --- ids ----------------------------------------------------------------------------------------------------


def test_ids_that_each_request_gives_anew() -> None:
    ours = memory()
    agent, model = agent_of(ours)
    for question in ("first", "second", "third", "third", "second"):
        ask(agent, HumanMessage(question, id="msg-0"))
        assert texts(model.seen[-1]) == stored(ours)[:-1]
        assert stored(ours)[-2:] == [question, f"ok: {question}"]
    ids = [message.id for message in ours.brain("s", user="ada").messages()]
    assert len(set(ids)) == len(ids)


def test_ids_that_number_what_is_sent() -> None:
    ours = memory()
    agent, model = agent_of(ours)
    conversation: list[BaseMessage] = []
    for n in range(5):
        conversation.append(HumanMessage(f"question {n}"))
        sent = [m.model_copy(update={"id": f"msg-{at}"}) for at, m in enumerate(conversation[-3:])]
        found = agent.invoke({"messages": sent}, **of("ada", "s"))
        conversation.append(found["messages"][-1])
    assert stored(ours) == [text for n in range(5) for text in (f"question {n}", f"ok: question {n}")]
    assert texts(model.seen[-1]) == stored(ours)[:-1]


def test_a_question_that_is_delivered_again_is_answered_again() -> None:
    ours = memory()
    agent, model = agent_of(ours)
    for _ in range(2):
        ask(agent, HumanMessage("yes", id="q1"))
        assert isinstance(model.seen[-1][-1], HumanMessage)
    assert stored(ours) == ["yes", "ok: yes", "ok: yes"]


def test_a_question_that_waits_in_the_session_is_not_stored_again() -> None:
    ours = memory()
    ours.brain("s", user="ada").add_talk("one")
    agent, model = agent_of(ours)
    ask(agent, "one")
    assert stored(ours) == ["one", "ok: one"]
    assert texts(model.seen[-1]) == ["one"]


def test_another_thread_with_the_same_ids_or_the_same_beginning_is_another() -> None:
    brain = BrainMemory(MemoryStore(), "s")
    for said in (["one", "A"], ["two", "B"], ["one", "C"]):
        thread = [HumanMessage(said[0], id="m1"), AIMessage(said[1], id="m2")]
        thread_to_history(thread, brain)
    assert texts(brain.messages())[:4] == ["one", "A", "two", "B"]
    assert "C" in texts(brain.messages())


def test_a_saved_thread_whose_messages_have_other_ids_than_the_session() -> None:
    ours = memory()
    brain = ours.brain("s", user="ada")
    brain.add_messages([Message(role="user", content="zero"), Message(role="assistant", content="ok: zero")])
    model = Scripted()
    agent = create_agent(model, middleware=[ours], checkpointer=InMemorySaver())
    turn: Any = {"messages": [("user", "zero"), ("assistant", "ok: zero"), ("user", "one")]}
    agent.invoke(turn, **of("ada", "s"))
    ask(agent, "two")
    assert stored(ours) == ["zero", "ok: zero", "one", "ok: one", "two", "ok: two"]
    assert texts(model.seen[-1]) == ["zero", "ok: zero", "one", "ok: one", "two"]


class KeepsAnswers:
    """A client whose questions are texts, and which keeps what it was answered as it came, with the agent's ids."""

    def __init__(self, agent: Any, *, whole: bool, ids: bool) -> None:
        self.agent, self.whole, self.ids = agent, whole, ids
        self.conversation: list[Any] = []

    def ask(self, question: str) -> None:
        turn = [*self.conversation, {"role": "user", "content": question}]
        found = self.agent.invoke({"messages": turn}, **of("ada", "s"))["messages"]
        own = {"role": "user", "content": question, **({"id": uuid.uuid4().hex} if self.ids else {})}
        self.conversation += [own, *found[len(turn) if self.whole else -1 :]]


@pytest.mark.parametrize("answer", [ok, uses_a_tool])
@pytest.mark.parametrize("ids", [True, False])
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("memory_k", [200, 2])
def test_a_question_is_kept_once_though_only_its_answer_keeps_its_id(
    any_store: Store, answer: Answer, memory_k: int, *, whole: bool, ids: bool
) -> None:
    model = Scripted(answer=answer)
    ours = BrainMemoryMiddleware(store=any_store, memory_k=memory_k, long_term=False)
    client = KeepsAnswers(create_agent(model, [look], middleware=[ours]), whole=whole, ids=ids)
    questions = ["Where is it?", "Sure?", "And the key?", "Sure?"]
    for question in questions:
        client.ask(question)
    every = BrainMemory(any_store, "s", user="ada", memory_k=200).messages()
    assert [message.text for message in every if message.role == "user"] == questions
    if memory_k > len(every):
        assert texts(model.seen[-1]) == texts(every)[:-1]


def test_what_was_passed_over_is_kept_and_no_question_before_it_that_has_a_new_id(any_store: Store) -> None:
    ours = BrainMemoryMiddleware(store=any_store)
    agent: Any = create_agent(Scripted(answer=uses_a_tool), [look], middleware=[ours])
    first = agent.invoke({"messages": [("user", "one")]}, **of("ada", "s"))["messages"][-1]
    *task, done = agent.invoke({"messages": [("user", "a part")]}, **of("ada", "s"))["messages"][1:]
    copied = ("assistant", done.text)
    turn = [("user", "one"), first, ("user", "two"), *task, copied, ("user", "three")]
    agent.invoke({"messages": turn}, **of("ada", "s"))
    asked = [m.text for m in ours.brain("s", user="ada").messages() if m.role == "user"]
    assert asked == ["one", "a part", "two", "three"]


@pytest.mark.parametrize("ids", [True, False])
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("answer", [ok, uses_a_tool])
def test_what_a_filter_takes_out_does_not_come_back_with_answers_that_keep_their_ids(
    any_store: Store, answer: Answer, *, whole: bool, ids: bool
) -> None:
    ours, model = memory(any_store), Scripted(answer=answer)
    client = KeepsAnswers(create_agent(model, [look], middleware=[ours, PIIMiddleware("email")]), whole=whole, ids=ids)
    for question in ["I am ada@example.com", "I am bob@example.com", "bye"]:
        client.ask(question)
    asked = [message.text for message in ours.brain("s", user="ada").messages() if message.role == "user"]
    assert asked == ["I am [REDACTED_EMAIL]", "I am [REDACTED_EMAIL]", "bye"]
    assert len([message for message in model.seen[-1] if isinstance(message, HumanMessage)]) == 3
