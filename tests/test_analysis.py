"""Terms of texts in many scripts, and Porter's stems."""

from __future__ import annotations

from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_adapters.language.analysis import ANALYZER_ID, analyze, stem
from langmem_adapters.language.english import STOP_WORDS

# The examples of Porter's article, step by step, as the whole algorithm leaves them.
PUBLISHED = """
    caresses caress, ponies poni, ties ti, caress caress, cats cat, feed feed, agreed agre, plastered plaster,
    bled bled, motoring motor, sing sing, conflated conflat, troubled troubl, sized size, hopping hop,
    tanned tan, falling fall, hissing hiss, fizzed fizz, failing fail, filing file, happy happi, sky sky,
    relational relat, conditional condit, rational ration, valenci valenc, hesitanci hesit, digitizer digit,
    conformabli conform, radicalli radic, differentli differ, vileli vile, analogousli analog,
    vietnamization vietnam, predication predic, operator oper, feudalism feudal, decisiveness decis,
    hopefulness hope, callousness callous, formaliti formal, sensitiviti sensit, sensibiliti sensibl,
    triplicate triplic, formative form, formalize formal, electriciti electr, electrical electr, hopeful hope,
    goodness good, revival reviv, allowance allow, inference infer, airliner airlin, gyroscopic gyroscop,
    adjustable adjust, defensible defens, irritant irrit, replacement replac, adjustment adjust,
    dependent depend, adoption adopt, homologou homolog, communism commun, activate activ,
    angulariti angular, homologous homolog, effective effect, bowdlerize bowdler, probate probat, rate rate,
    cease ceas, controll control, roll roll, generalizations gener, oscillators oscil
"""

# What his program does beyond the article, and the corners: y, short words, rules that must not fire.
CORNERS = """
    possibly possibl, archaeology archaeolog, is is, as as, by by, say sai, toying toi, syzygy syzygi, yes ye,
    opinion opinion, onion onion, cement cement, news new, need need, fed fed, king king, bing bing, see see,
    boxed box, snowed snow, played plai, seize seiz, ionization ioniz, abilities abil, eed eed, ing ing
"""


def _pairs(table: str) -> list[tuple[str, str]]:
    return [(word, expected) for word, expected in (line.split() for line in table.split(","))]


@pytest.mark.parametrize(("word", "expected"), _pairs(PUBLISHED) + _pairs(CORNERS))
def test_stems_as_porter_published_them(word: str, expected: str) -> None:
    assert stem(word) == expected


def _beginnings(word: str) -> list[str]:
    """A word of another alphabet, with its beginnings."""
    return [word, *(word[:size] for size in (3, 5) if size < len(word))]


def _threes(word: str) -> list[str]:
    """A word of Hebrew or Arabic letters, with every three neighbours."""
    return [word, *(word[n : n + 3] for n in range(len(word) - 2))]


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("Running shoes", ["run", "shoe"]),
        ("RUN, Shoe!", ["run", "shoe"]),
        ("ﬁle № ①", ["file", "no", "1"]),
        ("Straße STRASSE", ["strass", "strass"]),
        ("snake_case gpt4o 4th 3.14", ["snake", "case", "gpt4o", "4th", "3", "14", "4"]),
        ("parseHTTPDate loadSettings", ["parsehttpd", "loadset", "pars", "http", "date", "load", "set"]),
        ("1,250 and 1.250,00", ["1", "250", "and", "1", "250", "00", "1250", "1250"]),
        ("LH 1234, A-1234 of 555-1234", ["lh", "1234", "a", "1234", "of", "555", "1234", "lh1234", "a1234", "5551234"]),
        ("+49 170 1234567", ["49", "170", "1234567", "491701234567"]),
        ("DE89 3704 0044 53", ["de89", "3704", "0044", "53", "de893704004453"]),
        ("12-14 and a12-345-67b in 2023", ["12", "14", "and", "a12", "345", "67b", "in", "2023"]),
        ("a 1.250 b 10,20 c 1,2345", ["a", "1", "250", "b", "10", "20", "c", "1", "2345"]),
        ("the café was naïve", ["the", "cafe", "was", "naiv"]),
        ("the cafe\u0301", ["the", "cafe"]),
        ("İstanbul ISTANBUL istanbul", ["istanbul"] * 3),
        ("the ışık Łódź Sørensen cœur", ["the", "isik", "lodz", "sorensen", "coeur"]),  # noqa: RUF001 - Turkish
        ("résumés the thé, à où", ["resum", "the", "thé", "à", "ou"]),
        ("Việt Nam", ["viet", "nam"]),
        ("йод Ёлка за\u0301мок", ["йод", *_beginnings("елка"), *_beginnings("замок")]),  # noqa: RUF001 - Russian
        ("їжак", _beginnings("їжак")),  # a letter of its own keeps its mark
        ("Καλημέρα ΚΑΛΗΜΕΡΑ προϊόν", [*_beginnings("καλημερα"), *_beginnings("καλημερα"), *_beginnings("προιον")]),
        ("שָׁלוֹם שלום مَرْحَبًا مرحبا \u05b0", [*_threes("שלום") * 2, *_threes("مرحبا") * 2, "\u05b0"]),
        ("Где мой ВЕЛОСИПЕД?", ["где", "мой", "велосипед", "вел", "велос"]),
        ("Ο ΣΊΣΥΦΟΣ Σίσυφος", ["ο", *_beginnings("σισυφοσ"), *_beginnings("σισυφοσ")]),  # noqa: RUF001 - Greek
        ("مرحبا بالعالم", [*_threes("مرحبا"), *_threes("بالعالم")]),
        ("हिन्दी में", [*_beginnings("हिन्दी"), "में"]),
        ("故乡", ["故", "乡", "故乡"]),
        ("カタカナ", ["カ", "タ", "カ", "ナ", "カタ", "タカ", "カナ"]),
        ("ｶﾞｽ", ["ガ", "ス", "ガス"]),
        ("한국", ["한", "국", "한국"]),
        ("ราคา", ["รา", "าค", "คา"]),
        ("iPhone手机15", ["iphon", "手", "机", "手机", "15", "telephon"]),
        ("co\u00adoperate", ["cooper"]),
        ("ab\u200bcd", ["ab", "cd"]),
        ("love ❤\ufe0f 1\ufe0f\u20e3", ["love", "1"]),
        ("a\ud800b \udfff", ["a", "b"]),
        ("", []),
        (" \t\n.,!?\x00", []),
    ],
)
def test_splits_every_script_into_its_terms(text: str, terms: list[str]) -> None:
    assert analyze(text) == terms


def test_apostrophes_leave_the_word_they_are_joined_to() -> None:
    assert analyze("John's, we'll, don\u2019t, can't, ain't") == ["john", "we", "do", "can", "ain"]
    assert analyze("vitamin D") == ["vitamin", "d"]


def test_stop_words_are_kept_and_no_stem_becomes_one() -> None:
    assert analyze("To be or not to be") == ["to", "be", "or", "not", "to", "be"]
    assert analyze("willing doings cans") == ["willing", "doings", "cans"]
    assert all(analyze(word) == [word] for word in STOP_WORDS)


def test_a_word_of_any_length_gives_a_short_term() -> None:
    terms = analyze(" ".join(letter * 1_000_000 for letter in "xяæש"))
    assert [len(term) for term in terms] == [64, 3, 5, 64, 3, 5, 64, 3, 5, 64, 3]
    assert len(analyze("someName" * 1_000)) == 1  # no thousand words of a name in inner capitals


def test_other_terms_have_another_name() -> None:
    """Where this fails, ANALYZER_ID must rise, so that indexes are built anew."""
    text = "Running shoes of Zoë, велосипеды ٢٠ دراجتي हिन्दी 故乡 한국 ราคา 1,250 YouTube\nBisikletimi dün götürdüm."
    terms = " ".join([*analyze(text), *analyze(text.splitlines()[1])])
    assert (ANALYZER_ID, f"{crc32(terms.encode()):x}") == ("langmem-13", "11f1e958")


@given(st.text())
def test_any_text_can_be_analysed_and_twice_the_text_has_each_term_twice(text: str) -> None:
    terms = analyze(text)
    assert all(terms)
    assert not any(character.isspace() for term in terms for character in term)
    assert sorted(analyze(f"{text}\n{text}")) == sorted(terms * 2)


@given(st.from_regex(r"[a-z]{1,20}", fullmatch=True))
def test_stems_are_words_and_not_longer(word: str) -> None:
    assert stem(word)
    assert len(stem(word)) <= len(word) + 1
