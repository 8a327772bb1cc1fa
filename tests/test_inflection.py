"""Words of languages that are not English are found by their other forms."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_adapters import LongTermMemory, Message
from langmem_adapters.flow import run
from langmem_adapters.indexes.lexical import LexicalIndex
from langmem_adapters.indexes.lexical_keyed import KeyedLexicalIndex
from langmem_adapters.language.analysis import analyze, matching
from langmem_adapters.language.inflection import is_inflected, word_parts
from langmem_adapters.protocols import Document
from langmem_adapters.recall.novelty import find_news
from langmem_adapters.stores.memory import MemoryStore

FORMS = [
    ("Вчера я купила синий велосипед.", "Где цена велосипеда?", "велосипед"),
    ("Моя кошка спит на диване.", "Что делают кошки?", "кошка"),
    ("Wczoraj kupiłam używany rower.", "Ile kosztowały nasze rowery?", "rower"),
    ("Bisikletimi dün tamire götürdüm.", "Hangi bisiklet bozuldu, söyle?", "Bisikletimi"),
    ("Ostin eilen vihreän polkupyörän.", "Missä ovat äidin polkupyörät?", "polkupyörän"),
    ("Αγόρασα ένα ποδήλατο χθες.", "Πού είναι τα ποδήλατα;", "ποδήλατο"),
    ("اشتريت الدراجة أمس.", "أين دراجتي؟", "الدراجة"),
    ("קניתי אופניים אתמול.", "איפה האופניים שלי?", "אופניים"),
    ("मैंने कल साइकिल ली।", "साइकिलें कहाँ हैं?", "साइकिल"),
    ("Mein Fahrrad steht nicht mehr im Keller.", "Wo sind die Fahrräder?", "Fahrrad"),
    ("Ayer compré una bicicleta azul.", "¿De quién son las bicicletas?", "bicicleta"),
]


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize(("text", "query", "shown"), FORMS)
def test_a_word_finds_its_other_forms_and_shows_them(text: str, query: str, shown: str, keyed: bool) -> None:
    index = KeyedLexicalIndex(":memory:", key=bytes(16)) if keyed else LexicalIndex(":memory:")
    memory = LongTermMemory(MemoryStore(), index, user="ada")
    memory.add([Message(role="user", content=said) for said in (text, "Hm!", "The sea was cold.", "海は寒かった。")])
    assert memory.search(query)[0].text == text
    assert shown in [text[start:end] for start, end in matching(query, text)]
    index.close()


def test_a_word_that_is_there_to_the_letter_counts_for_more() -> None:
    with contextlib.closing(LexicalIndex(":memory:")) as index:
        texts = {"plural": "Вижу велосипеды.", "same": "Вижу велосипед.", "other": "Вижу велотрек."}
        index.apply(("n",), upsert=[Document(id_, text) for id_, text in texts.items()])
        hits = index.search(("n",), "велосипед", 3)
        assert [hit.id for hit in hits] == ["same", "plural", "other"]


@pytest.mark.parametrize(
    "text",
    [
        "see you soon!",
        "my bike is in the shed.",
        "we met zoë at the café.",
        "the façade of the château was naïve, so i left.",
        "is that a jalapeño?",
        "josé\nmonday day8 may 2023",
        "anna sprach",
        "tôi mới mua một chiếc xe đạp màu trắng.",
        "我上周买了一辆自行车",
        "я купила велосипед",
        "",
    ],
)
def test_english_and_what_is_told_by_its_letters_is_no_other_language(text: str) -> None:
    assert not is_inflected(text)


@pytest.mark.parametrize("text", ["mein fahrrad steht nicht mehr im keller.", "¿dónde está la bici?", "pyörä", "łódź"])
def test_other_languages_are_told_by_their_letters_or_their_little_words(text: str) -> None:
    assert is_inflected(text)


def test_english_words_have_no_parts() -> None:
    text = "We met Zoë, who repairs bicycles, at the café in Łódź."
    assert analyze(text) == ["we", "meet", "zoe", "who", "repair", "bicycl", "at", "the", "cafe", "in", "lodz"]
    assert analyze("The Russian word велосипед") == ["the", "russian", "word", "велосипед", "вел", "велос"]


@pytest.mark.parametrize("at", [None, 1683547200.0])
def test_a_foreign_name_or_an_english_date_tells_nothing_of_what_was_said(at: float | None) -> None:
    with contextlib.closing(LexicalIndex(":memory:")) as index:
        said = {"a": "Wow, great news!", "b": "Wir waren mit dem Fahrrad am See."}
        index.apply(("n",), upsert=[Document(id_, text, "José", "", at) for id_, text in said.items()])
        assert index.search(("n",), "Über Grenzen?", 2) == []  # "great" is English, and has no parts
        assert [hit.id for hit in index.search(("n",), "Über Fahrräder?", 2)] == ["b"]


@pytest.mark.parametrize("keyed", [False, True])
def test_a_part_that_is_everywhere_is_not_searched_for_beside_a_word(keyed: bool) -> None:
    index = KeyedLexicalIndex(":memory:", key=bytes(16)) if keyed else LexicalIndex(":memory:")
    with contextlib.closing(index):
        texts = [f"прогулка {n}" for n in range(1001)] + ["пробка"]
        index.apply(("n",), upsert=[Document(str(n), text) for n, text in enumerate(texts)])

        def looked_at(query: str) -> list[str]:
            evidence = index.gather(("n",), query, 2000)
            return [turn.id for turn in evidence.turns.values()] if evidence else []

        def found(query: str) -> list[str]:
            return [hit.id for hit in index.search(("n",), query, 2000)]

        for ids_of in (found, looked_at):
            assert ids_of("пробки") == ["1001"]  # by its five letters, and not by three
            assert len(ids_of("прогулка")) == 1001  # a whole word is searched for however often it is there
            assert len(ids_of("проза")) == 1002  # three letters are better than nothing


def test_another_form_is_news() -> None:
    memory = LongTermMemory(MemoryStore(), LexicalIndex(":memory:"), user="ada")
    memory.add([Message(role="user", content="Вижу велосипед.")])
    other = [Message(role="user", content="Вижу велосипеды."), Message(role="user", content="ВИЖУ велосипед!")]
    assert run(find_news(other, [], memory)) == other[:1]


@pytest.mark.parametrize(
    ("written", "digits"), [("٢٠٢٤", "2024"), ("۲۰", "20"), ("२० रुपये", "20"), ("ห้อง๕", "5"), ("\uff12\uff10", "20")]
)
def test_digits_are_the_same_in_every_script(written: str, digits: str) -> None:
    assert digits in analyze(written)


def test_what_has_digits_and_what_says_little_in_english_has_no_parts() -> None:
    assert analyze("дом123 gpt4oß") == ["дом123", "gpt4oss"]  # noqa: RUF001 - Russian
    assert analyze("Über alles above") == ["uber", "ube", "alles", "all", "above"]


MIXED = st.text(
    st.one_of(
        st.characters(exclude_categories=()),
        st.sampled_from("aeß ıçéłōơạ яёъ ά ς שׁמּ ־ ةأًٱ ़ािक्ष ๕ก 漢字かｶﾞ 한 '\u2019-\u0301\u200d\u200c\ud800\udc00"),
    )
)


@given(MIXED)
def test_any_mixture_of_scripts_gives_the_same_terms_again(text: str) -> None:
    terms = analyze(text)
    assert terms == analyze(text)
    assert sorted(analyze(f"{text}\n{text}")) == sorted(terms * 2)
    assert all(term and len(term) <= 64 and not any(map(str.isspace, term)) for term in terms)


@given(MIXED, MIXED)
def test_what_is_shown_lies_in_the_text(query: str, text: str) -> None:
    spans = matching(query, text)
    assert all(0 <= start < end <= len(text) for start, end in spans)
    assert spans == sorted(spans)


@given(st.text(min_size=1), st.booleans())
def test_parts_are_shorter_pieces_of_a_word(word: str, inflected: bool) -> None:
    assert all(part in word and len(part) < max(4, len(word)) for part in word_parts(word, inflected=inflected))
