"""English words that suffixes do not bring together are found by each other."""

from __future__ import annotations

import contextlib
from collections import Counter
from itertools import chain
from pathlib import Path

import pytest

from langmem_adapters import LongTermMemory, Message
from langmem_adapters.indexes.lexical import LexicalIndex
from langmem_adapters.language import english
from langmem_adapters.language.analysis import analyze, stem
from langmem_adapters.language.english import BASES, SPELLINGS, STOP_WORDS
from langmem_adapters.stores.memory import MemoryStore

TABLES = (
    english._PAST_FORMS,
    english._IRREGULAR_FORMS,
    english._SHORT_FORMS,
    english._BRITISH_SPELLINGS,
    english._RELATED_WORDS,
)
FAMILIES = [family.split() for table in TABLES for family in table.split(",")]


def test_every_form_gives_the_term_of_its_base() -> None:
    assert [form for form, base in (BASES | SPELLINGS).items() if analyze(form) != analyze(base)] == []


def test_no_entry_is_needless_or_in_vain() -> None:
    """Porter's stems bring a form that he knows to its base; a stop word is looked up nowhere."""
    assert [form for base, *forms in FAMILIES for form in forms if stem(form) == stem(base)] == []
    assert [form for form in chain(BASES, BASES.values()) if form in STOP_WORDS] == []
    assert [base for base in BASES.values() if base in BASES] == []


def test_no_form_is_of_two_families() -> None:
    times = Counter(chain.from_iterable(forms for _, *forms in FAMILIES))
    assert [form for form, number in times.items() if number > 1] == []


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("my mum's bikes", "my mother's bicycle"),
        ("grannies", "grandmother"),
        ("two", "2"),
        ("on Tues", "on Tuesday"),
        ("organising colours", "organize color"),
        ("his decisions", "he decided"),
        ("children's children", "kids of a child"),
        ("the best", "good"),
    ],
)
def test_families_plurals_and_possessives(text: str, same: str) -> None:
    assert set(analyze(text)) - STOP_WORDS == set(analyze(same)) - STOP_WORDS


def test_what_is_as_often_another_word_stays_what_it_is() -> None:
    assert analyze("left rose vet lab kidding may sun") == ["left", "rose", "vet", "lab", "kid", "mai", "sun"]


def test_a_memory_is_found_by_another_form_of_its_words() -> None:
    memory = LongTermMemory(MemoryStore(), LexicalIndex(":memory:"), user="ada")
    memory.add([Message(role="user", content=text) for text in ("Mum bought me a bike.", "Dad sells his boat.")])
    (first, *_) = memory.search("What did the mother buy?")
    assert first.text == "Mum bought me a bike."


def test_an_index_file_that_did_not_know_the_families_is_made_anew(tmp_path: Path) -> None:
    def before(text: str) -> list[str]:
        return [word if word in STOP_WORDS else stem(word) for word in text.lower().split()]

    store = MemoryStore()
    path = tmp_path / "index.db"
    with contextlib.closing(LexicalIndex(path, analyzer=before, analyzer_id="langmem-3")) as older:
        memory = LongTermMemory(store, older, user="ada")
        memory.add([Message(role="user", content="Mum sold it")])
        assert memory.search("mother") == []
    with contextlib.closing(LexicalIndex(path)) as newer:
        assert [hit.text for hit in LongTermMemory(store, newer, user="ada").search("mother")] == ["Mum sold it"]
