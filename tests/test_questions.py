"""A message is searched for each of its questions: greetings count little, what is said beside a question half (E1)."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
from datetime import datetime, timezone
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_adapters import BrainMemory, LongTermMemory, Message, open_index
from langmem_adapters.embedding import Embedder
from langmem_adapters.errors import ModelError
from langmem_adapters.indexes import open_vectors
from langmem_adapters.indexes.lexical import LexicalIndex
from langmem_adapters.indexes.lexical_keyed import KeyedLexicalIndex
from langmem_adapters.indexes.lexical_query import query_terms
from langmem_adapters.language.analysis import analyze
from langmem_adapters.language.english import STOP_WORDS
from langmem_adapters.language.features import query_features
from langmem_adapters.language.query_dates import with_dates
from langmem_adapters.language.questions import asked_part, may_go_on, separate_questions, subject_of
from langmem_adapters.protocols import Document
from langmem_adapters.recall.memories import RECALLED
from langmem_adapters.stores.memory import MemoryStore

NOTES = ("notes",)
AROUND = "We had coffee, cake and a biscuit. {} Thanks a lot!"


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("Hi! Where is my bike? Thanks!", "Where is my bike?"),
        ("We met. Where is my bike?", "Where is my bike?"),
        ("Was Prof. Ada or Mrs. Ada there? Tell me.", "Was Prof. Ada or Mrs. Ada there?"),
        ("I lost a key. Where is it? Who has the other one?", "Where is it?  Who has the other one?"),
        ("Where is my bike?", "Where is my bike?"),
        ("Tell me where my bike is. Thanks.", "Tell me where my bike is. Thanks."),
        ("When did Dr. Smith and Mr. Jones visit St. Louis?", "When did Dr. Smith and Mr. Jones visit St. Louis?"),
        ("What is new in v2.5.1? I use 2.4.", "What is new in v2.5.1?"),
        ("See https://example.org/?q=bikes for more", "See https://example.org/?q=bikes for more"),
        ("Ben sold his bike. Why did he do that?", "Why did he do that?"),
        ("\u4f60\u597d\uff01\u8f66\u5728\u54ea\u91cc\uff1f\u8c22\u8c22", "\u8f66\u5728\u54ea\u91cc\uff1f"),
        ("> quoted line\n\nWho said \u201cI am late?\u201d\nBest, Ada", "Who said \u201cI am late?\u201d"),
        ("Really?! You know. Which shed?", "Really?!  Which shed?"),
        ("We met. Where is my bike now. Thanks!", "Where is my bike now."),
        ("We met. who painted the shed\nThanks", "who painted the shed"),
        (
            "i met ben at the lake and we ate a lot of cake so tell me where my red bike is",
            "where my red bike is",
        ),
        (
            "i met ben at the lake and we ate cake so where did i leave my old red bike last week as i need it soon",
            "where did i leave my old red bike last week as i",
        ),
        ("We met at the lake and ate a lot of cake with Ben and Ada, so where is my bike?", "where is my bike?"),
        ("ich war den ganzen tag am see und wir haben kuchen gegessen also wo ist mein fahrrad", "wo ist mein fahrrad"),
        (
            "ich war am see und wir haben da viel kuchen gegessen also sag mir wo mein fahrrad steht",
            "wo mein fahrrad steht",
        ),
        (
            "my trip to the lake with ben and ada is over and i am home so what about my bike",
            "what about my bike",
        ),
        ("> Who comes to the party?\n\nWhere is my bike?", "Where is my bike?"),
        ("```js\nlet bike = shed ?? none;\n```\nWhere is my bike?", "Where is my bike?"),
        ("> Who comes to the party?", "> Who comes to the party?"),
        ("Ada, who met us. " * 5 + "Bye.", "Ada, who met us. " * 5 + "Bye."),
        ("", ""),
        ("?", "?"),
    ],
)
def test_what_a_message_asks(text: str, asked: str) -> None:
    assert asked_part(text).strip() == asked


@pytest.mark.parametrize(
    "text",
    [
        "I moved to Lisbon. My sister Ana is the one who told me. It was nice.",
        "the man who sold me the car last week in the old town said something about the red bike and the shed",
        "When I came home from the shop yesterday I was so tired and then I thought about my red bike.",
        "My bike is red. I know what I need to do now.",
        "WHO says it helps. Ben, who painted the shed, does too.",
        "Write a letter about the red bike for the school and explain how it all began and why people should care.",
        "My bike is red. Remind me about it when I am home.",
        "Did the man who sold me the car last week in the old town tell you about the red bike in my shed?",
        "On a parl\u00e9 de la maison. Mon fr\u00e8re qui est \u00e0 Lyon aime cela. Puis nous avons dormi.",
        "Ich wohne in Bonn. Die Stadt ist so, wie ich sie mag. Mein Fahrrad ist rot.",
        "The hoe is in the shed. Tomatoes grow in the garden.",
    ],
)
def test_what_tells_is_no_question_though_it_has_words_of_questions(text: str) -> None:
    assert asked_part(text) == text


@given(st.text(alphabet="abcD .?!\n\u3002\uff1f\u061f'\""))
def test_it_is_the_text_or_sentences_of_it_in_their_order(text: str) -> None:
    asked = asked_part(text)
    characters = iter(text)
    assert asked == text or all(character in characters for character in asked if character != " ")
    assert not asked or ("?" in asked or "\uff1f" in asked or "\u061f" in asked) or asked == text


ROOF = "What does a new roof cost?"


@pytest.mark.parametrize(
    ("text", "subject", "separate"),
    [
        (f"Where is my red bike? {ROOF}", "", ["Where is my red bike?", ROOF]),
        (f"I am home. Where is my red bike? {ROOF}", "", ["I am home.\nWhere is my red bike?", f"I am home.\n{ROOF}"]),
        (f"{ROOF} Who made it for Ben?", "", [ROOF, "What does a new roof cost.\nWho made it for Ben?"]),
        (
            f"{ROOF} And in Rome? And Oslo?",
            "",
            [ROOF, *(f"{ROOF[:-1]}.\nAnd {place}?" for place in ("in Rome", "Oslo"))],
        ),
        (f"{ROOF} Do you know?", "", [f"{ROOF} Do you know?"]),
        *[
            (text, ROOF, [text])  # an English name, whatever it means elsewhere, and whatever else is written
            for text in (
                "Where does Ella\u2019s sister live?",
                "Which r\u00e9sum\u00e9 did Ela send to Bosch?",
                "Where is the Haar river \u2013 in Bavaria?",
                "When is Dat's birthday party \U0001f389?",
            )
        ],
        (f"How are you? {ROOF}", "", [f"How are you.\n{ROOF}"]),
        (f"I sold it there. Why? {ROOF}", "", [f"I sold it there.\nWhy.\n{ROOF}"]),
        (f"I met somebody. Where is he? {ROOF}", "", ["I met somebody.\nWhere is he?", f"I met somebody.\n{ROOF}"]),
        (f"{ROOF} {ROOF}", "", [ROOF]),
        (
            " ".join(f"What does roof {n} cost?" for n in range(5)),
            "",
            [" ".join(f"What does roof {n} cost?" for n in range(5))],
        ),
        ("Who made it for Ben?", ROOF, ["What does a new roof cost.\nWho made it for Ben?"]),
        ("who made it for ben", ROOF, ["What does a new roof cost.\nwho made it for ben?"]),
        ("Who made it for Ben?", "", ["Who made it for Ben?"]),
        ("Who made the bike for Ben?", ROOF, ["Who made the bike for Ben?"]),
        ("I have a bike. Who made it for Ben?", ROOF, ["I have a bike.\nWho made it for Ben?"]),
        ("It is old. I like it.", ROOF, ["It is old. I like it."]),
        (
            "\u8f66\u5728\u54ea\u91cc\uff1f\u8c01\u6709\u94a5\u5319\uff1f",
            "",
            ["\u8f66\u5728\u54ea\u91cc\uff1f", "\u8f66\u5728\u54ea\u91cc.\n\u8c01\u6709\u94a5\u5319\uff1f"],
        ),
        ("", "", [""]),
        ("?", "", ["?"]),
        ("", ROOF, [""]),
    ],
)
def test_the_questions_of_a_message_one_by_one(text: str, subject: str, separate: list[str]) -> None:
    assert separate_questions(text, subject) == separate


@pytest.mark.parametrize(
    ("latest_first", "subject"),
    [
        (["Thanks!", "Is it red?", f"Hi! {ROOF}"], ROOF),
        ([f"{ROOF} Is it red?"], ROOF),
        (["My shed needs a roof."], "My shed needs a roof."),
        (["Where does Ella live?"], "Where does Ella live?"),
        (["Wo wohnt sie?", "Wohin ist Anna gezogen?"], "Wohin ist Anna gezogen?"),
        (["为什么\uff1f", "他住哪里\uff1f", "王芳搬到哪里了\uff1f"], "王芳搬到哪里了\uff1f"),
        (["ok", "Is it red?"], ""),
        ([*["ok"] * 5, ROOF], ""),
        ([], ""),
    ],
)
def test_what_a_conversation_is_about(latest_first: list[str], subject: str) -> None:
    assert subject_of(latest_first) == subject


@pytest.mark.parametrize(
    ("text", "goes_on"),
    [
        ("Wissen Sie noch, wo mein rotes Fahrrad steht?", False),
        ("Könnten Sie mir bitte sagen, wo mein rotes Fahrrad steht?", False),
        ("Was hat sie dem Arzt in Bonn gesagt?", True),
        ("それでは、赤い自転車の鍵はどこですか", False),
        ("その、赤い自転車の鍵はどこですか", False),
        ("その赤い自転車の鍵はどこですか", True),
        ("それは赤い自転車の鍵ですか", True),
        ("اين مفتاح المدرسه الجديده؟", False),  # "the new school", as many write it
        ("أين مفتاح سيارته الجديدة؟", True),
    ],
)
def test_a_polite_you_and_what_one_says_first_refer_to_nothing(text: str, goes_on: bool) -> None:
    assert may_go_on(text) == goes_on


@pytest.fixture
def memory(tmp_path: Path) -> LongTermMemory:
    memory = LongTermMemory(MemoryStore(), LexicalIndex(tmp_path / "words.db"), user="ada")
    texts = {
        "bike": "The red bike is in the shed now.",
        "chat": "Coffee, a cake and a biscuit!",
        "hello": "Hello there, please remember to tell Ben.",
        "shed": "The shed has a new roof.",
        "roof": "A roof costs two thousand.",
    }
    for name, text in texts.items():
        memory.add([Message(role="user", content=text, id=name)], session=name)
    return memory


def found(memory: LongTermMemory, query: str) -> list[str]:
    return [hit.memory.message.id for hit in memory.search(query, 5)]


def test_small_talk_around_a_question_does_not_lead_away_from_it(memory: LongTermMemory) -> None:
    assert found(memory, AROUND.format("Where is the red bike?"))[0] == "bike"
    assert found(memory, AROUND.format("The red bike, I mean."))[0] == "chat"


@pytest.mark.parametrize("query", ["Where is the red bike?{}", "{}Where is the red bike?"])
def test_a_question_is_read_on_either_side_of_a_long_text(memory: LongTermMemory, query: str) -> None:
    assert found(memory, query.format("\nLorem ipsum.\n" * 2_000))[0] == "bike"


def test_a_text_beside_a_question_counts_less_the_longer_it_is() -> None:
    asides = [f"widget{n}" for n in range(240)]

    def total(count: int, *, of_message: bool) -> float:
        query = f"{' '.join(asides[:count])}.\nWhere is my bike?"
        counts = query_terms(query, analyze, STOP_WORDS, of_message=of_message)
        assert counts[analyze("bike")[0]] == 1
        return sum(counts[analyze(word)[0]] for word in asides[:count])

    assert total(24, of_message=True) == total(24, of_message=False) == pytest.approx(12)
    assert total(240, of_message=True) == pytest.approx(1.2)
    assert total(240, of_message=False) == pytest.approx(12)


def test_a_long_prompt_with_a_question_finds_itself_before_the_question_alone(tmp_path: Path) -> None:
    """An experience is looked for by its whole request, in which the context is as long as this."""
    random = Random(1)
    words = ["".join(letters) for letters in itertools.product("bdfgk", "aiou", "lmnrst", "ou", "dkn")]
    questions = [f"Where is {word} kept?" for word in words[:20]]
    prompts = [f"{' '.join(random.sample(words[20:370], 300))}.\n{question}" for question in questions]
    with contextlib.closing(LexicalIndex(tmp_path / "words.db")) as index:
        index.apply(NOTES, upsert=[Document(str(n), text) for n, text in enumerate((*prompts, *questions))])
        best = [index.search(NOTES, prompt, 1)[0].id for prompt in prompts]
    assert best == [str(n) for n in range(len(prompts))]


def test_a_word_of_a_question_counts_less_where_it_stands_beside_it() -> None:
    assert query_terms("Bike, bike. Where is my bike?", analyze, STOP_WORDS) == {analyze("bike")[0]: 2}


def test_a_question_that_was_spoken_is_told_from_small_talk(memory: LongTermMemory) -> None:
    spoken = (
        "hey we had coffee and a cake and a biscuit this morning with ben so tell me where is the red bike thanks a lot"
    )
    assert found(memory, spoken)[0] == "bike"


LOG = "2023-05-08 10:11 reading the first of the pages\n2023-06-09 11:12 reading the last one of the many pages\n" * 4


def test_dates_of_a_text_pasted_beside_a_question_are_not_looked_for() -> None:
    question = "Who painted the shed?"
    assert not query_features(f"{LOG}{question}").date
    assert not {"mai", "june", "2023", "day8", "day9"} & query_terms(f"{LOG}{question}", analyze, STOP_WORDS).keys()
    dated = query_terms(f"{LOG}Who painted the shed on 5 July 2022?", analyze, STOP_WORDS)
    assert {"juli", "2022", "day5"} <= dated.keys()
    assert "day8" not in dated
    short = query_terms(f"We met on 2023-05-08. {question}", analyze, STOP_WORDS)
    assert short["day8"] == 1


def test_the_month_of_a_date_in_digits_is_no_day() -> None:
    assert "day11" not in query_terms("What did I do last week? 2026-11-23/2026-11-29", analyze, STOP_WORDS)


def test_a_day_named_in_a_question_counts_up_to_the_longest_text() -> None:
    now = datetime(2023, 5, 8, 12, tzinfo=timezone.utc).timestamp()
    question = "What did I do last week?"
    text = f"{'We met. ' * 40}"[: 300 - len(question)] + question
    assert query_features(with_dates(text, now)).date == query_features("2023-05-01/2023-05-07").date


def test_what_stands_beside_a_question_is_searched_for_too(memory: LongTermMemory) -> None:
    assert found(memory, "I need a roof for the shed. What does one cost?")[0] == "roof"
    assert found(memory, "My shed. Which colour?")[0] == "shed"
    assert found(memory, "The bike in the shed. Where is it?")[0] == "bike"


def test_each_question_of_a_message_finds_as_much(memory: LongTermMemory) -> None:
    results = memory.search("Where is the red bike in the shed? Who ate a biscuit?", 5, explain=True)
    assert [hit.memory.message.id for hit in results[:2]] == ["bike", "chat"]
    assert results[0].score == pytest.approx(results[1].score)
    assert all(sum(hit.signals.values()) == pytest.approx(hit.score) for hit in results)
    assert [hit.score for hit in results] == sorted((hit.score for hit in results), reverse=True)
    alone = [memory.search(text, 1)[0].score for text in ("Where is the red bike in the shed?", "Who ate a biscuit?")]
    assert results[0].score == pytest.approx(sum(alone) / 2)
    assert len({hit.memory.id for hit in results}) == len(results)


def test_questions_that_find_nothing_take_nothing_away(memory: LongTermMemory) -> None:
    assert found(memory, "Where is the red bike? Which xylophone sounds zany?")[0] == "bike"
    assert found(memory, "Which zebra sounds zany? Which xylophone is quick?") == []


@pytest.mark.parametrize("query", ["What would that cost?", "and what would that cost"])
def test_a_question_refers_to_the_users_question_before_it(memory: LongTermMemory, query: str) -> None:
    memory.add([Message(role="user", content="A car costs ten thousand.", id="car")], session="car")
    before = [Message(role="user", content="Do we need another roof?"), Message(role="assistant", content="A car!")]
    said = [*before, Message(role="user", content=query)]
    assert found(memory, query)[0] == "car"
    assert memory.search(query, 1, exclude=said)[0].memory.message.id == "roof"
    brain = BrainMemory(MemoryStore(), "monday", user="ada", long_term=memory)
    brain.add_messages(before)
    assert brain.recall(query, 1)[0].memory.message.id == "roof"


@pytest.mark.parametrize(
    ("asked", "goes_on", "told"),
    [
        ("¿Qué compró {}?", "¿En qué ciudad vive ella ahora?", "{} vive en la ciudad de {} ahora."),
        ("Was hat {} gekauft?", "In welcher Stadt wohnt sie jetzt?", "{} wohnt in der Stadt {}."),
        ("Qu'a acheté {} ?", "Dans quelle ville habite-t-elle ?", "{} habite dans la ville de {}."),
        ("Что купила {}?", "Где она живёт, в каком городе?", "{} живёт в городе {}."),
        ("{} ne bekliyor?", "Onun kardeşi hangi şehirde?", "{} ve kardeşi {} gibi bir şehirde."),
        ("{}买了什么\uff1f", "她住在哪个城市\uff1f", "{}住的城市是{}。"),
        ("{}さんは何を買った\uff1f", "彼女の町は\uff1f", "{}さんの町は{}です。"),
        ("{}ซื้ออะไร", "แล้วเธออยู่เมืองไหน", "{}อยู่เมือง{}"),
        ("{} 씨는 무엇을 샀어요?", "그녀는 지금 어느 도시에 살아요?", "{} 씨는 {} 도시에 살아요."),
        ("ما هي مشتريات {}\u061f", "ما هو عنوان مدينتها الآن\u061f", "عنوان مدينة {} هو {}."),
        ("{} ने क्या खरीदा?", "अब वह किस शहर में रहती है?", "{} {} शहर में रहती है।"),
    ],
)
def test_a_question_goes_on_with_the_one_before_it_in_other_languages(asked: str, goes_on: str, told: str) -> None:
    memory = LongTermMemory(MemoryStore(), open_index("memory:"), user="ada")
    for n, (name, city) in enumerate([("Ana", "Roma"), ("Petra", "Oslo")]):
        memory.add([Message(role="user", content=told.format(name, city), id=name, created_at=n)], session=name)
    assert memory.search(goes_on, 1)[0].memory.message.id == "Petra"
    before = [Message(role="user", content=asked.format("Ana"))]
    assert memory.search(goes_on, 1, exclude=before)[0].memory.message.id == "Ana"


def test_a_whole_question_without_spaces_needs_none_before_it() -> None:
    assert separate_questions("王伟在公司做什么工作\uff1f", ROOF) == ["王伟在公司做什么工作\uff1f"]
    assert separate_questions("为什么\uff1f", ROOF) == [f"{ROOF[:-1]}.\n为什么\uff1f"]


def test_a_failing_embedder_is_counted_once_for_all_questions_of_a_message(tmp_path: Path) -> None:
    def embed(texts: list[str]) -> list[list[float]]:
        raise ModelError(f"no answer to {len(texts)} texts")

    vectors = open_vectors("memory:", Embedder(embed, name="none"))
    with contextlib.closing(LexicalIndex(tmp_path / "words.db")) as index:
        memory = LongTermMemory(MemoryStore(), index, vectors=vectors, user="ada", clock=lambda: 0.0)
        memory.add([Message(role="user", content="The red bike is in the shed.", id="bike")])
        for count in (1, 2):
            assert found(memory, "Where is the red bike? Who ate a biscuit?") == ["bike"]
            assert memory.stats()["degraded"] == count


def test_what_was_recalled_into_a_conversation_is_no_question_before_it(memory: LongTermMemory) -> None:
    memory.add([Message(role="user", content="A car costs ten thousand.", id="car")], session="car")
    recalled = Message(role="user", content="Do we need another roof?", metadata={RECALLED: True})
    assert memory.search("What would that cost?", 1, exclude=[recalled])[0].memory.message.id == "car"


@pytest.mark.parametrize(
    ("text", "embedded_before"),
    [
        (
            "We had coffee, cake and a biscuit at the lake. Where is the red bike? Thanks a lot!",
            "Where is the red bike? ",
        ),
        (f"{'We ate. ' * 1_000}Where is the red bike?", "Where is the red bike? "),
        ("We had coffee. Where is the red bike?", ""),
        ("I sold the red bike with the blue bell to Ben at the lake. Where is it?", ""),
        ("Where is the red bike?", ""),
    ],
)
def test_a_question_in_a_message_is_embedded_once_more_before_it(
    tmp_path: Path, text: str, embedded_before: str
) -> None:
    embedded: list[str] = []

    def embed(texts: list[str]) -> list[list[float]]:
        embedded.extend(texts)
        return by_letters(texts)

    with contextlib.closing(LexicalIndex(tmp_path / "words.db")) as index:
        vectors = open_vectors("memory:", Embedder(embed, name="letters", longest=100_000))
        memory = LongTermMemory(MemoryStore(), index, vectors=vectors, user="ada")
        memory.add([Message(role="user", content="The red bike is in the shed.")])
        memory.flush()
        embedded.clear()
        memory.search(text, 1)
    assert embedded == [embedded_before + text]


TWO_QUESTIONS = "Where is the red bike? Who ate a biscuit?"


def by_letters(texts: list[str]) -> list[list[float]]:
    return [[float(text.count(letter)) for letter in "abcdefgh"] for text in texts]


class WaitingEmbeddings:
    """Answers no query before all of ``together`` are asked."""

    model = "waiting"

    def __init__(self, together: int) -> None:
        self.asked, self.together, self.all_asked = list[str](), together, asyncio.Event()

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return by_letters(texts)

    def embed_query(self, text: str) -> list[float]:
        raise ConnectionError(f"to be awaited: {text}")

    async def aembed_query(self, text: str) -> list[float]:
        self.asked.append(text)
        if len(self.asked) == self.together:
            self.all_asked.set()
        await self.all_asked.wait()
        return by_letters([text])[0]


def searched_memory(embedder: object) -> LongTermMemory:
    vectors = open_vectors("memory:", embedder)
    memory = LongTermMemory(MemoryStore(), open_index("memory:"), vectors=vectors, user="ada", strict=True)
    memory.add([Message(role="user", content="My bike is red.", id="bike")])
    memory.flush()
    return memory


async def test_an_embedder_that_is_awaited_works_on_all_questions_at_once() -> None:
    embedder = WaitingEmbeddings(together=2)
    memory = searched_memory(Embedder(embedder, name="waiting", remembered=2))  # just enough for both
    hits = await asyncio.wait_for(memory.asearch(TWO_QUESTIONS, 1), 30)
    assert [hit.memory.message.id for hit in hits] == ["bike"]
    assert embedder.asked == TWO_QUESTIONS.replace("? ", "?\n").splitlines()


@pytest.mark.parametrize("remembered", [2, 1], ids=["together", "one by one, as both are not remembered"])
def test_a_function_that_embeds_is_called_once_for_all_questions(remembered: int) -> None:
    calls: list[list[str]] = []

    def embed(texts: list[str]) -> list[list[float]]:
        calls.append(texts)
        return by_letters(texts)

    memory = searched_memory(Embedder(embed, name="letters", remembered=remembered))
    calls.clear()
    assert found(memory, TWO_QUESTIONS) == ["bike"]
    assert len(calls) == 3 - remembered
    assert [text for texts in calls for text in texts] == TWO_QUESTIONS.replace("? ", "?\n").splitlines()


def test_one_question_that_an_embedder_refuses_is_embedded_in_parts_beside_others() -> None:
    def embed(texts: list[str]) -> list[list[float]]:
        if any(len(text) > 300 for text in texts):
            raise ValueError("too long")
        return by_letters(texts)

    memory = searched_memory(Embedder(embed, name="letters"))
    assert found(memory, f"Is {'the shed or ' * 40} the garden far? Where is the red bike?") == ["bike"]
    assert memory.stats()["degraded"] == 0


def test_how_one_asks_counts_little_but_is_found_where_nothing_else_is_asked(memory: LongTermMemory) -> None:
    assert found(memory, "Hello, please tell me, do you remember the shed roof?")[0] == "shed"
    assert found(memory, "Hello, please remember to tell me!") == ["hello"]
    assert "hello" in found(memory, "Who said hello to the bike?")


@pytest.mark.parametrize(
    "query",
    [
        "Hallo, kannst du mir bitte sagen, wo das Fahrrad ist? Danke!",
        "Hola, por favor: \u00bfd\u00f3nde est\u00e1 Fahrrad?",
    ],
)
def test_other_languages_greet_too(tmp_path: Path, query: str) -> None:
    with contextlib.closing(LexicalIndex(tmp_path / "words.db")) as index:
        texts = {"bike": "Das Fahrrad steht im Schuppen.", "hello": "Hallo! Hola! Bitte, danke, por favor."}
        index.apply(NOTES, upsert=[Document(id_, text) for id_, text in texts.items()])
        assert index.search(NOTES, query, 1)[0].id == "bike"


def test_an_index_of_digests_ranks_a_message_as_one_of_words_does(tmp_path: Path) -> None:
    texts = {"bike": "a red bike", "chat": "coffee, cake, biscuit", "hello": "hello, thanks a lot", "other": "a lot"}
    results = []
    for index in (LexicalIndex(tmp_path / "words.db"), KeyedLexicalIndex(tmp_path / "keyed.db", key=bytes(32))):
        with contextlib.closing(index):
            index.apply(NOTES, upsert=[Document(id_, text) for id_, text in texts.items()])
            results.append(index.search(NOTES, AROUND.format("Where is the red bike?"), 4))
    words, digests = results
    assert words[0].id == "bike"
    assert digests == words


def test_typing_errors_beside_a_question_are_corrected_if_nothing_else_is_found(tmp_path: Path) -> None:
    with contextlib.closing(LexicalIndex(tmp_path / "words.db")) as index:
        index.apply(NOTES, upsert=[Document("bike", "My bicycle is red."), Document("car", "I parked.")])
        assert [hit.id for hit in index.search(NOTES, "My bicylce is gone. Where did we go?", 5)] == ["bike"]
        assert [hit.id for hit in index.search(NOTES, "I have a bicylce. Who parked?", 5)] == ["car"]


@pytest.mark.parametrize(
    ("text", "word"), [("Where is Ben\u2019s bike", "Ben\u2019s"), ("Thanks! Ben\u2019s?", "Ben\u2019s?")]
)
def test_an_apostrophe_counts_for_any_analyzer(text: str, word: str) -> None:
    assert query_terms(text, lambda text: re.findall(r"[\w\u2019?]+", text), frozenset())[word] == 1


def test_an_analyzer_is_not_asked_for_what_is_left_without_greetings_if_nothing_is() -> None:
    def analyze_words(text: str) -> list[str]:
        return [text.split(maxsplit=1)[0].lower()]

    assert query_terms("hello", analyze_words, frozenset()) == {"hello": 1}


def test_parts_of_words_count_also_if_only_greetings_tell_the_language() -> None:
    counts = query_terms("Kannst du mir bitte sagen: Wochenendeinkauf Supermarkt?", analyze, STOP_WORDS)
    assert counts["woche"] == counts["super"] == counts["supermarkt"] == 1
    assert max(counts[term] for term in analyze("bitte sagen")) < 1


def test_what_a_message_asks_for_is_told_by_its_questions_and_the_date_by_all_of_it() -> None:
    features = query_features("I could not sleep when I came home on 5 May 2023. Who painted the shed?")
    assert (features.when, features.who, features.speaker_role) == (False, True, "")
    assert features.date == query_features("What happened on 5 May 2023?").date
    assert query_features("On 5 May 2023 we met. What was on 6 May 2023?").date == query_features("6 May 2023").date
    assert query_features("What did I paint? You said you know.").speaker_role == "user"
