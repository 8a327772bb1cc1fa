"""Queries in large languages beside English: what says little in them, and whom, when and how many they ask for."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import pytest

from langmem_adapters import LongTermMemory, Message, open_index
from langmem_adapters.embedding import Embedder
from langmem_adapters.indexes import open_vectors
from langmem_adapters.language.features import named_speakers, query_features
from langmem_adapters.language.foreign_stop_words import foreign_stop_words
from langmem_adapters.stores.memory import MemoryStore
from tests.benchmarks import languages


@pytest.mark.parametrize(
    ("query", "little"),
    [
        ("Wie teuer war der Tierarzt?", "wie war der"),
        ("Welches Instrument lernt Lena?", "welches"),
        ("Combien coûte la sonde ?", "combien la"),
        ("¿Por qué no podemos subir?", "por qué no"),
        ("Perché la banca ha detto di no?", "perché la ha di"),
        ("Onde fica o museu?", "onde o"),
        ("Waar is de sleutel van de schuur?", "waar is de van"),
        ("What was the man in the war?", ""),
        ("Where did she die in the end?", ""),
        ("war hat", "war hat"),
        ("war", ""),
        ("Bello Schokolade", ""),
        ("猫が好きです", ""),
        ("", ""),
    ],
)
def test_words_that_say_little_are_told_by_the_language_of_a_query(query: str, little: str) -> None:
    assert foreign_stop_words(query) == frozenset(little.split())


CHAT = (
    "Welche hat der denn?",
    "Wer hat das alles wieder hier liegen lassen?",
    "Gestern fuhren wir mit dem alten Auto noch einmal zum Tierarzt nach Jena.",
)


@pytest.mark.parametrize("by_meaning", [False, True])
def test_a_little_word_finds_less_than_any_other(by_meaning: bool) -> None:
    def nothing(texts: Sequence[str]) -> list[list[float]]:
        return [[1.0, 0.0] for _ in texts]

    vectors = open_vectors("memory:", Embedder(nothing, name="nothing")) if by_meaning else None
    memory = LongTermMemory(MemoryStore(), open_index("memory:"), vectors=vectors, user="ada")
    for session, text in enumerate(CHAT):
        memory.add([Message(role="user", content=text)], session=str(session))
    memory.flush()
    assert memory.search("Welche Farbe hat der Tierarzt?")[0].text == CHAT[2]
    assert memory.search("Wer hat das?", k=1)[0].text == CHAT[1]


def test_who_is_named_in_a_genitive_without_an_apostrophe() -> None:
    assert named_speakers("Wann war Lenas Auftritt?", {"Lena", "Paul"}) == (frozenset({"Lena"}), "Wann war   Auftritt?")
    assert named_speakers("Was sagt Thomas?", {"Thomas", "Lena"})[0] == {"Thomas"}
    assert named_speakers("What does Los Angeles offer?", {"Lena"})[0] == frozenset()


@pytest.mark.parametrize("query", ["Wann kam Oma?", "Quand part le train ?", "¿Cuándo empieza?", "Quando parte?"])
def test_other_languages_ask_when(query: str) -> None:
    assert query_features(query).when


@pytest.mark.parametrize("query", ["Wie viele Hunde?", "Combien de chats ?", "¿Cuántos gatos?", "Hoeveel katten?"])
def test_other_languages_ask_how_many(query: str) -> None:
    assert query_features(query).how_many


@pytest.mark.parametrize("query", ["Wer war das?", "Où est-il ?", "¿Quién es?", "Chi è?", "Waar is het?", "Кто там?"])
def test_other_languages_ask_who_and_where(query: str) -> None:
    assert query_features(query).who


@pytest.mark.parametrize("group", [languages.CHOSEN_BY, languages.HELD_BACK], ids=["chosen by", "held back"])
def test_words_are_found_by_their_other_forms(group: dict[str, str]) -> None:
    chats = list(map(languages.read, group))
    found, whole = (fmean(languages.measure(chat, parts=p).recall[10] for chat in chats) for p in (True, False))
    assert found > 0.92
    assert whole < 0.82
