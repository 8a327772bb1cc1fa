"""The lexical index: what it finds, that it mixes nothing up, and that a crash leaves whole changes only."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langmem_adapters.errors import ConfigurationError, Conflict, SearchError
from langmem_adapters.indexes import lexical, lexical_rows
from langmem_adapters.indexes.lexical import LexicalIndex
from langmem_adapters.indexes.lexical_keyed import KeyedLexicalIndex
from langmem_adapters.indexes.lexical_scores import idf
from langmem_adapters.keys import Namespace
from langmem_adapters.language.analysis import analyze
from langmem_adapters.language.english import STOP_WORDS
from langmem_adapters.model import Hit
from langmem_adapters.protocols import START, Document, Index
from langmem_adapters.stores.sqlite import SQLiteStore
from tests.interpreters import processes

NOTES = ("notes",)


@pytest.fixture
def index(tmp_path: Path) -> Iterator[LexicalIndex]:
    with contextlib.closing(LexicalIndex(tmp_path / "index.db")) as opened:
        yield opened


def documents(**texts: str) -> list[Document]:
    return [Document(id_, text) for id_, text in texts.items()]


def found(index: LexicalIndex, query: str, namespace: Namespace = NOTES, k: int = 10) -> list[str]:
    return [hit.id for hit in index.search(namespace, query, k)]


# ---- what is found


def test_is_an_index(index: LexicalIndex) -> None:
    assert isinstance(index, Index)


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("故乡", "homesick"),
        ("ﾗｰﾒﾝ", "ramen"),
        ("велосипед", "bike"),
        ("running shoes", "shoe"),
        ("to be", "hamlet"),
        ("who are you", "who"),
        ("कहाँ", "hindi"),
        ("CRÈME", "cream"),
        ("the bike shed", "shed"),
    ],
)
def test_finds_words_of_many_scripts(index: LexicalIndex, query: str, first: str) -> None:
    texts = documents(
        homesick="低头思故乡",
        moon="举头望明月",
        village="乡下的故事",
        ramen="昨日はラーメンを食べた",
        bike="Где мой ВЕЛОСИПЕД?",
        shoe="run shoe",
        hamlet="To be or not to be",
        who="Who are you?",
        hindi="मेरी साइकिल कहाँ है",
        cream="crème brûlée",
        shed="A shed for bikes",
        filler="Nothing of that kind was ever said in here.",
    )
    index.apply(NOTES, upsert=texts)
    assert found(index, query)[0] == first


@pytest.mark.parametrize(("query", "k"), [("bike", 3), ("bike", 0), ("?", 3)])
def test_what_is_no_namespace_is_refused_also_where_nothing_is_looked_for(
    index: LexicalIndex, query: str, k: int
) -> None:
    with pytest.raises(ConfigurationError, match="a namespace is a tuple of strings"):
        found(index, query, "notes", k)  # type: ignore[arg-type]


def test_stop_words_count_only_when_a_query_has_nothing_else(index: LexicalIndex) -> None:
    index.apply(NOTES, upsert=documents(a="the cat", b="the dog", c="the the the"))
    assert found(index, "the cat") == ["a"]
    assert found(index, "the") == ["c", "b", "a"]


def test_rare_words_weigh_more_and_long_documents_less(index: LexicalIndex) -> None:
    texts = documents(both="apple pear", common="apple apple", long="apple plum fig date lime", rare="pear")
    index.apply(NOTES, upsert=texts)
    assert found(index, "apple pear") == ["both", "rare", "common", "long"]


def test_a_word_given_twice_counts_twice(index: LexicalIndex) -> None:
    index.apply(NOTES, upsert=documents(a="apple", b="pear", c="fig"))
    assert found(index, "apple pear") == ["b", "a"]
    assert found(index, "apple apple pear") == ["a", "b"]


def test_equal_documents_come_latest_first(index: LexicalIndex) -> None:
    index.apply(NOTES, upsert=[Document(f"d{n}", "same words") for n in range(5)])
    assert found(index, "words", k=3) == ["d4", "d3", "d2"]
    index.apply(NOTES, upsert=documents(d1="same words"))
    assert found(index, "words", k=3) == ["d1", "d4", "d3"]


def test_scores_descend_within_zero_and_one(index: LexicalIndex) -> None:
    index.apply(NOTES, upsert=documents(a="bike", b="bike shed", c="bike " * 10_000, d="shed of the bikes", e=""))
    for query in ("bike", "bike shed", "bike bike nowhere", "shed " * 100):
        scores = [hit.score for hit in index.search(NOTES, query, 10)]
        assert scores
        assert scores == sorted(scores, reverse=True)
        assert all(0 < score <= 1 for score in scores)


@pytest.mark.parametrize("query", ["", "   ", "?!", "unheard", "\ud800"])
def test_nothing_in_common_is_no_hit(index: LexicalIndex, query: str) -> None:
    index.apply(NOTES, upsert=documents(a="some words", b=""))
    assert index.search(NOTES, query, 10) == []


def test_no_results_are_asked_for_or_there_is_nothing_to_search(index: LexicalIndex) -> None:
    assert index.search(NOTES, "words", 10) == []
    index.apply(NOTES, upsert=documents(empty=""))
    assert index.search(NOTES, "words", 10) == []
    index.apply(NOTES, upsert=documents(a="some words"))
    assert index.search(NOTES, "words", 0) == []
    assert index.search(NOTES, "words", -1) == []


def test_ids_may_hold_any_characters(index: LexicalIndex) -> None:
    odd = ["", "a/b", "nul\x00byte", "\ud800", "É", "é", "e\u0301", "x" * 10_000]
    index.apply(NOTES, upsert=[Document(id_, "words") for id_ in odd])
    assert found(index, "words") == odd[::-1]
    index.apply(NOTES, delete=odd[1:])
    assert found(index, "words") == [""]


def test_a_very_long_query_is_read_at_its_beginning_and_its_end(index: LexicalIndex) -> None:
    index.apply(NOTES, upsert=documents(a="start", b="middle", c="end"))
    unheard = "unheard " * 50_000
    assert set(found(index, f"start {unheard} middle {unheard} end")) == {"a", "c"}


def test_of_very_many_words_the_rarest_are_searched_for(index: LexicalIndex) -> None:
    rare = [f"rare{n}" for n in range(64)]
    index.apply(NOTES, upsert=[Document(word, f"{word} common") for word in rare])
    index.apply(NOTES, upsert=documents(a="common"))
    query = " ".join(["common", "unheard", *rare])
    assert set(found(index, query, k=100)) == set(rare)
    assert "a" in found(index, query.removesuffix(rare[-1]), k=100)


def test_parts_of_words_in_very_many_documents_are_searched_for_only_where_nothing_else_is_known(
    index: LexicalIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lexical, "_MAX_PART_FREQUENCY", 2)
    index.apply(NOTES, upsert=documents(t="кот трамвая", a="кот велосипед", b="кот велосипеды", c="кот велосипеду"))
    assert found(index, "велосипеды") == ["b"]
    assert set(found(index, "велосипедами")) == {"a", "b", "c"}
    assert found(index, "кот велосипеды") == ["b", "c", "a", "t"]  # a whole word counts, however frequent
    assert found(index, "кот трамваем")[0] == "t"  # and so do other parts


# ---- what changes


def test_replacing_and_deleting_change_what_is_found(index: LexicalIndex) -> None:
    index.apply(NOTES, upsert=documents(a="red bike", b="blue car"))
    index.apply(NOTES, upsert=documents(a="green boat"))
    assert found(index, "bike") == []
    assert found(index, "boat") == ["a"]
    index.apply(NOTES, delete=["a", "never there"])
    assert found(index, "boat") == []
    assert found(index, "car") == ["b"]


def test_within_one_change_deletions_come_first_and_the_last_text_of_an_id_stays(index: LexicalIndex) -> None:
    index.apply(NOTES, upsert=[Document("a", "old"), Document("a", "new")], delete=["a"])
    assert (found(index, "old"), found(index, "new")) == ([], ["a"])


def test_scores_do_not_remember_what_was_replaced(index: LexicalIndex) -> None:
    index.apply(("detour",), upsert=documents(a="one two three", b="two", c="three four", d="six"))
    index.apply(("detour",), upsert=documents(a="one", b="two two"), delete=["c", "d"])
    index.apply(("straight",), upsert=documents(a="one", b="two two"))
    assert index.search(("detour",), "one two", 10) == index.search(("straight",), "one two", 10)


def test_clearing_forgets_one_namespace(index: LexicalIndex) -> None:
    for namespace in (NOTES, ("notes", "sub")):
        index.apply(namespace, upsert=documents(a="bike"), position=(1, "m1"))
    index.clear(NOTES)
    index.clear(("never there",))
    assert (index.position(NOTES), found(index, "bike")) == (None, [])
    assert (index.position(("notes", "sub")), found(index, "bike", ("notes", "sub"))) == ((1, "m1"), ["a"])


def test_a_change_is_made_only_where_it_begins(index: LexicalIndex, tmp_path: Path) -> None:
    index.apply(NOTES, position=(0, "begun"), since=START)
    index.apply(NOTES, upsert=documents(a="bike"), position=(7, "seven"), since=(0, "begun"))
    for since in (START, (0, "begun"), (7, "other"), (8, "seven")):
        with pytest.raises(Conflict):
            index.apply(NOTES, upsert=documents(b="bike"), delete=["a"], position=(9, "nine"), since=since)
    assert (index.position(NOTES), found(index, "bike")) == ((7, "seven"), ["a"])
    keyed = KeyedLexicalIndex(tmp_path / "index.db", key=bytes(16))  # another analyzer: for it, nothing was begun
    with pytest.raises(Conflict):
        keyed.apply(NOTES, upsert=documents(b="bike"), position=(9, "nine"), since=(7, "seven"))
    assert (index.position(NOTES), found(index, "bike")) == ((7, "seven"), ["a"])
    keyed.apply(NOTES, upsert=documents(b="bike"), position=(9, "nine"), since=START)
    assert (keyed.position(NOTES), found(keyed, "bike")) == ((9, "nine"), ["b"])
    keyed.clear(NOTES)
    with pytest.raises(Conflict):
        keyed.apply(NOTES, position=(10, "ten"), since=(9, "nine"))
    keyed.close()


def test_the_position_is_kept_with_the_documents(index: LexicalIndex, tmp_path: Path) -> None:
    assert index.position(NOTES) is None
    index.apply(NOTES, upsert=documents(a="bike"))
    assert index.position(NOTES) is None
    index.apply(NOTES, position=(7, "id \ud800"))
    index.apply(NOTES, upsert=documents(b="bike"))
    index.close()
    assert index.position(NOTES) == (7, "id \ud800")
    with contextlib.closing(LexicalIndex(tmp_path / "index.db")) as another:
        assert another.position(NOTES) == (7, "id \ud800")
        assert found(another, "bike") == ["b", "a"]


def test_until_a_change_is_whole_nobody_sees_any_of_it(index: LexicalIndex, tmp_path: Path) -> None:
    index.apply(NOTES, upsert=documents(a="red bike", b="blue bike"), position=(2, "b"))
    seen = []
    with contextlib.closing(LexicalIndex(tmp_path / "index.db")) as another:
        with index._database.writing() as connection:
            connection.set_trace_callback(lambda _: seen.append((another.position(NOTES), found(another, "bike"))))
        index.apply(NOTES, upsert=documents(c="green bike", b="car"), delete=["a"], position=(4, "b"))
        connection.set_trace_callback(None)
        assert (another.position(NOTES), found(another, "bike")) == ((4, "b"), ["c"])
    assert len(seen) > 10
    assert set(map(repr, seen)) == {repr(((2, "b"), ["b", "a"]))}


def test_a_failing_analyzer_leaves_everything_as_it_was(tmp_path: Path) -> None:
    def brittle(text: str) -> list[str]:
        if text == "bad":
            raise RuntimeError(text)
        return text.split()

    with contextlib.closing(LexicalIndex(tmp_path / "index.db", analyzer=brittle, analyzer_id="x")) as index:
        index.apply(NOTES, upsert=documents(a="one"), position=(1, "a"))
        with pytest.raises(SearchError, match="the analyzer failed: RuntimeError"):
            index.apply(NOTES, upsert=documents(b="two", c="bad"), delete=["a"], position=(3, "c"))
        assert (index.position(NOTES), found(index, "one two")) == ((1, "a"), ["a"])


def test_adding_analyses_only_what_is_added(tmp_path: Path) -> None:
    seen: list[str] = []

    def watched(text: str) -> list[str]:
        seen.append(text)
        return text.split()

    path = tmp_path / "index.db"
    with contextlib.closing(LexicalIndex(path, analyzer=watched, analyzer_id="watched")) as index:
        index.apply(NOTES, upsert=[Document(str(n), f"word{n}") for n in range(100)])
    seen.clear()
    with contextlib.closing(LexicalIndex(path, analyzer=watched, analyzer_id="watched")) as index:
        index.apply(NOTES, upsert=documents(new="another word"))
        assert found(index, "word7") == ["7"]
    assert seen == ["another word", "word7"]


def test_another_analyzer_starts_anew(index: LexicalIndex, tmp_path: Path) -> None:
    for namespace in (NOTES, ("other",)):
        index.apply(namespace, upsert=documents(a="bike"), position=(1, "a"))
    path = tmp_path / "index.db"
    with contextlib.closing(LexicalIndex(path, analyzer=str.split, analyzer_id="split-1")) as newer:
        assert (newer.position(NOTES), found(newer, "bike")) == (None, [])
        newer.apply(NOTES, upsert=documents(b="bike"), position=(2, "b"))
        assert (newer.position(NOTES), found(newer, "bike")) == ((2, "b"), ["b"])
    assert (index.position(NOTES), found(index, "bike")) == (None, [])
    assert found(index, "bike", ("other",)) == ["a"]


def test_a_file_of_an_older_version_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    with contextlib.closing(LexicalIndex(path)) as index:
        index.apply(NOTES, upsert=documents(old="bike"), position=(9, "o"))
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as old:
        old.execute("UPDATE langmem_schema SET name = 'lexical'")
        old.execute("DROP TABLE langmem_lexical_again")
        old.execute("ALTER TABLE langmem_lexical_terms DROP COLUMN changed")
    with contextlib.closing(LexicalIndex(path)) as index:
        assert (index.position(NOTES), found(index, "bike")) == (None, [])
        index.apply(NOTES, upsert=documents(a="bike"), position=(1, "a"))
        assert found(index, "bike") == ["a"]


def test_irregular_forms_find_each_other(index: LexicalIndex) -> None:
    index.apply(NOTES, upsert=documents(a="We went home", b="She bought shoes", c="rose garden"))
    assert [found(index, query) for query in ("going", "buy", "child", "rise")] == [["a"], ["b"], [], []]


# ---- what a document is told of its conversation


def test_a_document_is_found_by_its_speaker_and_its_date(index: LexicalIndex) -> None:
    index.apply(NOTES, upsert=[Document("a", "hello", "Anna Smith", "t", 1683547200.0), Document("b", "hello")])
    assert [found(index, query) for query in ("Smith", "May 2023", "monday")] == [["a"]] * 3
    evidence = index.gather(NOTES, "Anna's hello", 5)
    assert evidence is not None
    assert (evidence.named, evidence.query.split()) == (frozenset({"Anna Smith"}), ["hello"])
    assert index.nameless(NOTES, "Anna") == "Anna"
    index.apply(NOTES, delete=["a"])
    assert index.nameless(NOTES, "Anna's hello") == "Anna's hello"
    assert index.gather(NOTES, "Smith", 5) is None


def test_neighbours_are_those_of_the_thread_in_the_order_of_their_adding(index: LexicalIndex) -> None:
    threads = "xyxxyxx"
    index.apply(NOTES, upsert=[Document(str(n), f"word{n}", thread=t) for n, t in enumerate(threads)])
    index.apply(NOTES, upsert=[Document("2", "word2 again", thread="x")])
    index.apply(NOTES, delete=["5"])
    evidence = index.gather(NOTES, "word2", 5)
    assert evidence is not None
    assert [evidence.turns[place].id for place in evidence.candidates] == ["0", "2", "3", "6"]
    assert [turn.id for _, turn in sorted(evidence.turns.items())] == ["0", "2", "3", "6"]
    (stretch,) = evidence.stretches.values()
    assert (stretch.documents, stretch.ordered) == (4, True)


@pytest.mark.parametrize("gone", [[0], [9], [4], [0, 1, 5], [3, 4, 5, 6], [8, 9, 0], [*range(1, 9)]])
def test_what_was_removed_leaves_no_gap_between_those_that_stay(index: LexicalIndex, gone: list[int]) -> None:
    said = {str(n): Document(str(n), f"word{n} bike", thread="x", at=n) for n in range(10)}
    index.apply(NOTES, upsert=[*said.values()])
    anew = LexicalIndex(":memory:")
    anew.apply(NOTES, upsert=[document for id_, document in said.items() if int(id_) not in gone])
    index.gather(NOTES, "bike", 5)
    index.apply(NOTES, delete=[str(n) for n in gone])
    queries = [*(f"word{n}" for n in range(10)), "bike", "bike"]  # the last one from what the one before has read
    assert [index.gather(NOTES, query, 2) for query in queries] == [anew.gather(NOTES, query, 2) for query in queries]
    index.apply(NOTES, upsert=[Document("late", "late bike", thread="x")], delete=["2", "7"])
    anew.apply(NOTES, upsert=[Document("late", "late bike", thread="x")], delete=["2", "7"])
    queries.append("late")
    assert [index.gather(NOTES, query, 2) for query in queries] == [anew.gather(NOTES, query, 2) for query in queries]


def test_nothing_stands_beside_what_was_said_in_no_thread(index: LexicalIndex) -> None:
    index.apply(NOTES, upsert=[Document(str(n), f"word{n}") for n in range(5)])
    evidence = index.gather(NOTES, "word2", 5)
    assert evidence is not None
    assert [turn.id for turn in evidence.turns.values()] == ["2"]
    assert [evidence.turns[place].id for place in evidence.candidates] == ["2"]


def test_what_a_query_finds_is_told_with_what_it_is_measured_by(index: LexicalIndex) -> None:
    said = {"1": ("red bike", "x"), "2": ("red red soup bowl", "x"), "3": ("blue bike", "y")}
    index.apply(NOTES, upsert=[Document(id_, text, thread=thread) for id_, (text, thread) in said.items()])
    evidence = index.gather(NOTES, "red bike zebra", 5)
    assert evidence is not None
    assert [evidence.average, evidence.average_stretch] == pytest.approx([8 / 3, 8 / 2])
    known, unknown = idf(2, 3), idf(0, 3)
    assert evidence.idf == pytest.approx([known, known])
    assert evidence.found == pytest.approx(2 * known / (2 * known + unknown))
    in_stretches = 2 * (1 - (1 - 2 / 3) ** (3 / 2))  # were the documents spread at random
    assert evidence.stretch_idf == pytest.approx([idf(in_stretches, 2)] * 2)
    index.apply(NOTES, delete=["3"])
    evidence = index.gather(NOTES, "red bike zebra", 5)
    assert evidence is not None
    assert [evidence.average, evidence.average_stretch] == pytest.approx([6 / 2, 6])


def test_the_statistics_of_a_namespace_are_those_of_its_documents(index: LexicalIndex) -> None:
    chance = random.Random(3)
    for n in range(300):
        thread = chance.choice(["", "a", "b"])
        index.apply(NOTES, upsert=[Document(str(chance.randrange(40)), f"w w{n}", chance.choice(["", "Al"]), thread)])
        index.apply(NOTES, delete=[str(chance.randrange(40))])
    with index._database.reading() as connection:
        kept = connection.execute("SELECT documents, length, stretches FROM langmem_lexical_namespaces").fetchall()
        per = connection.execute(
            "SELECT number / 256, COUNT(*), SUM(length) FROM langmem_lexical_documents GROUP BY 1 ORDER BY 1"
        ).fetchall()
        stretches = connection.execute(
            "SELECT number, documents, length FROM langmem_lexical_stretches WHERE documents > 0 ORDER BY number"
        ).fetchall()
        speakers = connection.execute("SELECT name, documents FROM langmem_lexical_speakers").fetchall()
        named = connection.execute("SELECT COUNT(*) FROM langmem_lexical_documents WHERE speaker != x''").fetchone()[0]
    assert per == stretches
    assert kept == [(sum(p[1] for p in per), sum(p[2] for p in per), len(per))]
    assert speakers == [(b"Al", named)]
    for n in range(40):
        index.apply(NOTES, delete=[str(n)])
    assert index.gather(NOTES, "w", 5) is None
    index.clear(NOTES)
    with index._database.reading() as connection:
        for table in ("namespaces", "documents", "postings", "stretches", "speakers"):
            assert connection.execute(f"SELECT COUNT(*) FROM langmem_lexical_{table}").fetchone() == (0,)


def test_an_own_analyzer_needs_an_own_name() -> None:
    with pytest.raises(ConfigurationError, match="analyzer_id"):
        LexicalIndex(":memory:", analyzer=str.split)


@pytest.mark.parametrize("terms", [None, "a text", [b"bytes"], [1]])
def test_what_an_analyzer_gives_is_a_list_of_texts(terms: Any) -> None:
    index = LexicalIndex(":memory:", analyzer=lambda _: terms, analyzer_id="x")
    with pytest.raises(ConfigurationError, match="an analyzer gives a list of texts, not "):
        index.apply(NOTES, upsert=documents(a="one"))


def test_an_analyzer_may_be_a_generator_of_which_a_query_has_only_stop_words() -> None:
    def words(text: str) -> Any:
        yield from text.split()

    index = LexicalIndex(":memory:", analyzer=words, analyzer_id="x", stop_words={"the"})
    index.apply(NOTES, upsert=documents(a="the bike"))
    assert found(index, "the") == ["a"]


@pytest.mark.parametrize("analyzer", [5, asyncio.sleep])
def test_an_analyzer_is_a_plain_function(analyzer: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^analyzer is a (coroutine )?function"):
        LexicalIndex(":memory:", analyzer=analyzer, analyzer_id="x")


def test_constructing_opens_nothing(tmp_path: Path) -> None:
    LexicalIndex(tmp_path / "index.db")
    assert list(tmp_path.iterdir()) == []


def test_a_broken_file_is_a_search_error(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    path.write_bytes(b"not a database" * 1000)
    index = LexicalIndex(path)
    for call in (
        lambda: index.search(NOTES, "words", 1),
        lambda: index.apply(NOTES),
        lambda: index.position(NOTES),
        lambda: index.clear(NOTES),
    ):
        with pytest.raises(SearchError, match="database") as caught:
            call()
        assert caught.value.__cause__ is not None


def test_the_index_may_live_in_the_store_s_file(index: LexicalIndex, tmp_path: Path) -> None:
    with contextlib.closing(SQLiteStore(tmp_path / "index.db")) as store:
        store.append(NOTES, [("a", b"bike")])
        index.apply(NOTES, upsert=documents(a="bike"), position=(1, "a"))
        index.clear(NOTES)
        assert [item.data for item in store.scan(NOTES).items] == [b"bike"]


# ---- against an oracle


@lru_cache(1_000)  # the same texts are searched many times
def counted(text: str) -> Counter[str]:
    return Counter(analyze(text))


def bm25(texts: dict[str, str], query: str) -> dict[str, float]:
    """Score every document as the textbook does, divided by the query's ideal."""
    counts = {id_: counted(text) for id_, text in texts.items()}
    average = sum(c.total() for c in counts.values()) / len(counts) if counts else 0
    terms = analyze(query)
    terms = [term for term in terms if term not in STOP_WORDS] or terms
    scores = dict.fromkeys(texts, 0.0)
    ideal = 0.0
    for term in terms:
        df = sum(term in c for c in counts.values())
        idf = math.log(1 + (len(counts) - df + 0.5) / (df + 0.5))
        ideal += idf * 2.2
        for id_, c in counts.items():
            if c[term]:
                scores[id_] += idf * c[term] * 2.2 / (c[term] + 1.2 * (0.6 + 0.4 * c.total() / average))
    return {id_: score / ideal for id_, score in scores.items() if score > 0}


def assert_as_the_oracle(hits: Sequence[Hit], texts: dict[str, str], query: str, k: int) -> None:
    expected = bm25(texts, query)
    assert len({hit.id for hit in hits}) == len(hits)
    assert [hit.score for hit in hits] == pytest.approx(sorted(expected.values(), reverse=True)[:k])
    assert [hit.score for hit in hits] == pytest.approx([expected[hit.id] for hit in hits])


WORDS = ["bike", "Bikes", "shed", "the", "to", "be", "故乡", "低头思故乡", "дом", "x1", "\ud800", "naïve"]
TEXTS = st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join)
PARTS = st.text(alphabet=st.sampled_from("a/%:\x00\ud800é "), max_size=3)
CHANGES = st.lists(
    st.tuples(
        st.lists(PARTS, max_size=2).map(tuple),
        st.dictionaries(st.sampled_from(["a", "b", "c", "d", "é", ""]), TEXTS, max_size=4),
        st.sets(st.sampled_from(["a", "b", "é"]), max_size=1),
    ),
    max_size=12,
)


@settings(deadline=None)
@given(CHANGES, TEXTS, st.integers(1, 4))
def test_every_namespace_is_a_world_of_its_own(
    changes: list[tuple[Namespace, dict[str, str], set[str]]], query: str, k: int
) -> None:
    worlds: dict[Namespace, dict[str, str]] = {("never",): {}}
    with contextlib.closing(LexicalIndex(":memory:")) as index:
        for namespace, upsert, delete in changes:
            # An id that names its namespace shows where a hit comes from.
            mark = repr(namespace)
            world = worlds.setdefault(namespace, {})
            for id_ in delete:
                world.pop(mark + id_, None)
            world.update({mark + id_: text for id_, text in upsert.items()})
            index.apply(
                namespace,
                upsert=[Document(mark + id_, text) for id_, text in upsert.items()],
                delete=[mark + id_ for id_ in delete],
            )
        for namespace, world in worlds.items():
            hits = index.search(namespace, query, k)
            assert {hit.id for hit in hits} <= set(world)
            assert_as_the_oracle(hits, world, query, k)


@pytest.mark.parametrize("seed", range(4))
def test_leaving_work_out_changes_no_result(index: LexicalIndex, seed: int) -> None:
    chance = random.Random(seed)
    vocabulary = [f"w{n}" for n in range(400)]
    weights = [1 / (n + 1) for n in range(400)]  # as words are in real text (Zipf)

    def text(longest: int) -> str:
        return " ".join(chance.choices(vocabulary, weights, k=chance.randint(1, longest)))

    texts = {f"d{n}": text(40) for n in range(800)}
    index.apply(NOTES, upsert=[Document(id_, t) for id_, t in texts.items()])
    for _ in range(60):
        query, k = text(10), chance.choice([1, 2, 10, 1000])
        hits = index.search(NOTES, query, k)
        assert_as_the_oracle(hits, texts, query, k)
        places = [(-hit.score, -int(hit.id[1:])) for hit in hits]
        assert places == sorted(places)


# ---- processes


BATCH = 5


def _batch(n: int) -> dict[str, Any]:
    """Build the n-th change of a writer: five new documents, and the last one's first goes."""
    return {
        "upsert": [Document(f"{n}-{i}", f"common word{n} item{i}") for i in range(BATCH)],
        "delete": [f"{n - 1}-0"],
        "position": (n, f"m{n}"),
    }


def _write(path: Path, namespace: Namespace, first: int, last: int, progress: Connection) -> None:
    index = LexicalIndex(path)
    for n in range(first, last):
        index.apply(namespace, **_batch(n))
        progress.send(n)


def _writer(path: Path, namespace: Namespace, first: int, last: int) -> tuple[BaseProcess, Connection]:
    context = processes()
    progress, child_end = context.Pipe(duplex=False)
    process = context.Process(target=_write, args=(path, namespace, first, last, child_end), daemon=True)
    process.start()
    child_end.close()
    return process, progress


def test_a_killed_writer_leaves_whole_changes_only(index: LexicalIndex, tmp_path: Path) -> None:
    done = 0
    for round_ in range(3):
        process, progress = _writer(tmp_path / "index.db", NOTES, done + 1, 1_000_000)
        for _ in range(20 + 7 * round_):
            told = progress.recv()
        process.kill()
        process.join()
        progress.close()
        position = index.position(NOTES)
        assert position is not None
        done, id_ = position
        assert done >= told
        assert id_ == f"m{done}"
        expected = {f"{n}-{i}" for n in range(1, done + 1) for i in range(BATCH) if i or n == done}
        assert set(found(index, "common", k=10_000)) == expected
        texts = {name: "common word{} item{}".format(*name.split("-")) for name in expected}
        assert_as_the_oracle(index.search(NOTES, f"word{done} item3", 10), texts, f"word{done} item3", 10)


def test_processes_write_and_read_at_the_same_time(index: LexicalIndex, tmp_path: Path) -> None:
    batches = 150
    process, progress = _writer(tmp_path / "index.db", ("theirs",), 1, batches + 1)
    seen = 0
    progress.recv()  # it has begun
    for n in range(1, batches + 1):
        index.apply(("ours",), **_batch(n))
        count = len(found(index, "common", ("theirs",), k=10_000))
        assert count == 0 or (count - 1) % (BATCH - 1) == 0  # whole changes only
        assert count >= seen
        seen = count
    while index.position(("theirs",)) != (batches, f"m{batches}"):
        progress.recv()
    process.join()
    progress.close()
    assert process.exitcode == 0
    total = batches * (BATCH - 1) + 1
    for namespace in (("ours",), ("theirs",)):
        assert len(found(index, "common", namespace, k=10_000)) == total
    assert found(index, f"word{batches}", ("ours",)) == found(index, f"word{batches}", ("theirs",))


# --- how often a term is there


def test_the_counts_of_terms_follow_every_change(tmp_path: Path) -> None:
    index, chance = LexicalIndex(tmp_path / "index.db"), random.Random(5)
    words = [f"word{number}" for number in range(12)]
    for _ in range(60):
        texts = [" ".join(chance.choices(words, k=chance.randint(0, 9))) for _ in range(3)]
        ids = [str(chance.randrange(20)) for _ in range(5)]
        index.apply(NOTES, upsert=[Document(*one) for one in zip(ids, texts, strict=False)], delete=ids[3:])
    index.apply(("others",), upsert=[Document("1", "word1 word1")])
    with sqlite3.connect(tmp_path / "index.db") as connection:
        kept = connection.execute("SELECT * FROM langmem_lexical_terms ORDER BY 1, 2").fetchall()
        there = connection.execute(
            "SELECT namespace, term, COUNT(*), MAX(tf), MIN(length) FROM langmem_lexical_postings"
            " GROUP BY 1, 2 ORDER BY 1, 2"
        ).fetchall()
    connection.close()
    assert [row[:3] for row in kept] == [row[:3] for row in there]
    assert all(mine[3] >= real[3] and mine[4] <= real[4] for mine, real in zip(kept, there, strict=True))
    index.clear(NOTES)
    with sqlite3.connect(tmp_path / "index.db") as connection:
        assert connection.execute("SELECT documents, tf, length FROM langmem_lexical_terms").fetchall() == [(1, 2, 2)]
    connection.close()


@given(
    st.lists(
        st.builds(
            Document,
            st.sampled_from("abcdef"),
            st.lists(st.sampled_from(["bike", "shed", "lamp", "boat"]), max_size=6).map(" ".join),
            thread=st.sampled_from(["", "monday", "tuesday"]),
            speaker=st.sampled_from(["", "Ada", "Bob"]),
            again=st.lists(st.sampled_from(["friday", "sunday"]), unique=True, max_size=2).map(tuple),
        ),
        max_size=12,
    ),
    st.integers(0, 12),
    st.sampled_from([0, 3, 100_000]),
)
@settings(deadline=None, max_examples=40)
def test_what_is_added_together_is_what_is_added_one_by_one(added: list[Document], before: int, at_once: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lexical_rows, "_MAX_BATCH_POSTINGS", at_once)
        with (
            contextlib.closing(LexicalIndex(":memory:")) as together,
            contextlib.closing(LexicalIndex(":memory:")) as alone,
        ):
            for index in (together, alone):
                index.apply(NOTES, upsert=added[:before])
            together.apply(NOTES, upsert=added[before:])
            for document in added[before:]:
                alone.apply(NOTES, upsert=[document])
            assert rows(together) == rows(alone)


def rows(index: LexicalIndex) -> dict[str, list[tuple[Any, ...]]]:
    """All that is in the tables, but for what marks a change, and the bounds of terms, which remember what is gone."""
    with index._database.reading() as connection, connection:
        found = {}
        for table in lexical_rows._TABLES:
            columns = [name for _, name, *_ in connection.execute(f"PRAGMA table_info(langmem_lexical_{table})")]
            left_out = {"changed", "tf", "length"} if table == "terms" else {"changed"}
            wanted = ", ".join(column for column in columns if column not in left_out)
            found[table] = sorted(connection.execute(f"SELECT {wanted} FROM langmem_lexical_{table}"), key=repr)
        return found
