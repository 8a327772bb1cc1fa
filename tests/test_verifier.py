"""The verifier and its guards: D1, the adversarial set, and what may never be taken for the same."""

from __future__ import annotations

import json
import re
import time
from itertools import chain, permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from langmem_adapters.errors import ConfigurationError, ModelError
from langmem_adapters.experience.verifier import piece_cache, reading
from langmem_adapters.experience.verifier import spelling as module
from langmem_adapters.experience.verifier.alignment import align, edit_distance
from langmem_adapters.experience.verifier.features import FEATURE_NAMES, _count_ascending_pairs, features
from langmem_adapters.experience.verifier.guards import GUARDS
from langmem_adapters.experience.verifier.piece_cache import cached_per_piece
from langmem_adapters.experience.verifier.questions import QUESTION_FRAMES
from langmem_adapters.experience.verifier.reading import MAX_COMPARED_CHARS, read
from langmem_adapters.experience.verifier.spelling import REPLACEMENTS, normalize_spelling
from langmem_adapters.experience.verifier.swaps import swapped_words
from langmem_adapters.experience.verifier.tuning import choose_threshold
from langmem_adapters.experience.verifier.verifier import Verifier
from langmem_adapters.experience.verifier.weights import QUESTION_TREES, TREES

MONTHS = ("January", "February", "April", "June", "July", "August", "September", "October", "November", "December")
PAIRS = Path(__file__).parent / "semantic"
VERIFIER = Verifier()


def pairs(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (PAIRS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def refused_by(one: str, other: str) -> str:
    verdicts = {VERIFIER(one, other, cosine=0.999).guard, VERIFIER(other, one, cosine=0.999).guard}
    assert len(verdicts) == 1, f"it depends on the direction: {verdicts}"
    return verdicts.pop()


@pytest.mark.parametrize(
    "pair",
    [
        *("hotels hostel", "insects inspect", "planet plants", "patents patient", "neurons neutron", "studies studios"),
        *("lawyer layers", "trained trainee", "driven driver", "commando commands", "brain brian", "affect effect"),
        *("complaint compliant", "discreet discrete", "rooster roster", "scraped scrapped"),
    ],
)
def test_d1_a_word_is_no_slip_for_another_word(pair: str) -> None:
    one, other = (f"What is the meaning of {word}?" for word in pair.split())
    assert not VERIFIER(one, other, cosine=0.999).accepted
    assert not VERIFIER(other, one, cosine=0.999).accepted


@pytest.mark.parametrize(
    ("one", "other", "cosine"),
    [
        ("What does {} cost for a wedding?", "What does {} cost for a wedding?", "photo photographer 0.95"),
        ("How do I change my {}?", "How can I change my {}?", "insurance insurer 0.95"),
        ("Why is {} science important?", "Why's {} science so important?", "politics political 0.93"),
        ("What is an {} way to heat a house?", "What is the most {} way to heat a house?", "economical economic 0.966"),
        ("What is the role of {} in society?", "What's the role of the {} in society?", "teenage teenager 0.97"),
        ("What does an {} official do?", "What does an {} official do?", "elected election 0.97"),
        ("How do I pass an {}?", "How do I pass an {}?", "exam examiner 0.98"),
        ("How long does the {} take?", "How long will the {} take?", "process procession 0.98"),
        ("How do I delete a {}?", "How can I delete a {}?", "contact contract 0.98"),
        ("How do I move to {}?", "How do I move to {}?", "america use 0.97"),
        ("Is the {} over?", "Is the {} really over?", "career carer 0.98"),
    ],
)
def test_d1_what_derives_from_a_word_does_not_stand_for_it_where_small_words_differ(
    one: str, other: str, cosine: str
) -> None:
    *words, near = cosine.split()
    for first, second in permutations(words):
        request, stored = one.format(first), other.format(second)
        assert not VERIFIER(request, stored, cosine=float(near)).accepted
        assert not VERIFIER(stored, request, cosine=float(near)).accepted


@pytest.mark.parametrize(
    ("one", "other", "cosine"),
    [
        ("How do I treat acne?", "How do I treat severe acne?", 0.948),
        ("How do I get a loan?", "How do I get a personal loan?", 0.97),
    ],
)
def test_d1_a_word_of_weight_is_not_passed_over_for_one_of_its_stem_that_says_little(
    one: str, other: str, cosine: float
) -> None:
    assert not VERIFIER(one, other, cosine=cosine).accepted
    assert not VERIFIER(other, one, cosine=cosine).accepted


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("How many calories are in a banana?", "How much sugar is in a banana?"),
        ("How many rooms were in the old hotel?", "How much parking was in the old hotel?"),
    ],
)
def test_d1_a_verb_that_follows_the_number_of_a_replaced_word_does_not_hide_that_it_is_replaced(
    one: str, other: str
) -> None:
    assert not VERIFIER(one, other, cosine=0.99).accepted
    assert not VERIFIER(other, one, cosine=0.99).accepted


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("How do I avoid procrastination?", "How do you avoid procrastinating?"),
        ("Which is the best dance academy in Rome?", "What is the best dancing academy in Rome?"),
        ("Is the neighbourhood safe?", "Is the neighborhood really safe?"),
        ("How do I get candle wax out of a table cloth?", "How can I get candle wax out of a tablecloth?"),
    ],
)
def test_a_form_of_a_word_stands_for_it_where_small_words_differ(one: str, other: str) -> None:
    assert VERIFIER(one, other, cosine=0.97).accepted


def test_each_of_two_compounds_stands_for_its_two_words() -> None:
    one, other = (f"Does a {shop} have to accept a voucher of another {shop}?" for shop in ("bookshop", "book shop"))
    assert VERIFIER(one, other, cosine=0.97).accepted
    assert VERIFIER(other, one, cosine=0.97).accepted


def test_three_words_of_one_sentence_may_differ_that_are_no_details() -> None:
    one = "Should I learn to cook if I do not want to become a chef in a restaurant?"
    other = "Should I still learn to cook even if I don't want to be a chef in a restaurant?"
    assert VERIFIER(one, other, cosine=0.985).accepted
    assert VERIFIER(other, one, cosine=0.985).accepted


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            "My router blinks red. I restarted it. What now?",
            "My router blinks red. I have already restarted it. What now?",
        ),
        (
            "I returned the shoes on Monday. When will I get a refund?",
            "I returned the shoes on Monday. When do I get a refund?",
        ),
        ("My order is late. Can you help?", "My order is late. Can you please help me?"),
        ("I bought a plant. How often do I water it?", "I bought a plant. How often should I water it?"),
    ],
)
def test_a_short_message_may_ask_the_same_in_other_words_after_the_same_statement(one: str, other: str) -> None:
    assert VERIFIER(one, other, cosine=0.985).accepted
    assert VERIFIER(other, one, cosine=0.985).accepted


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("I need a plumber. What do I need to pay?", "I am a plumber. What do I need to pay?"),
        ("My boss is ill. Who signs?", "My boss is ill. Who signs for me?"),
        ("Tom has a car. Who drives it?", "Tom has a car. Who may drive it?"),
    ],
)
def test_d1_a_short_message_must_state_the_same_and_ask_about_the_same_persons(one: str, other: str) -> None:
    assert not VERIFIER(one, other, cosine=0.985).accepted
    assert not VERIFIER(other, one, cosine=0.985).accepted


@pytest.mark.parametrize("pair", ["accommodate accomodate", "receive recieve", "millennium millenium", "friend freind"])
def test_a_slip_stands_for_the_word(pair: str) -> None:
    one, other = (f"What is the best way to {word} the guests of a hotel?" for word in pair.split())
    assert VERIFIER(one, other, cosine=0.97).accepted


# --- D1: the sets -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cosine", [0.95, 0.98, 0.999])
def test_d1_of_the_adversarial_pairs_at_most_one_in_a_hundred_passes_however_near(cosine: float) -> None:
    adversarial = pairs("adversarial")
    assert len(adversarial) >= 300
    served = [p for p in adversarial if VERIFIER(p["asked"], p["stored"], cosine=cosine).accepted]
    turned = [p for p in adversarial if VERIFIER(p["stored"], p["asked"], cosine=cosine).accepted]
    assert len(served) <= len(adversarial) / 100, served
    assert len(turned) <= len(adversarial) / 100, turned


def test_d1_of_the_paraphrases_most_pass() -> None:
    paraphrases = pairs("paraphrases")
    assert len(paraphrases) >= 300
    served = [p for p in paraphrases if VERIFIER(p["asked"], p["stored"], cosine=0.98).accepted]
    assert len(served) >= 0.75 * len(paraphrases)


# Sets that are not of the guards' making, with the cosines of all-MiniLM-L6-v2; a pair counts as served where it is in
# either direction. They stand in the order of the table in tests/semantic/README.md, which says by whom they are, and
# how many were served before the rules that came of them; docs/semantic-cache.md has the sums.
@pytest.mark.parametrize(
    ("name", "pairs_in_it", "published"),
    [
        ("foreign-adversarial", 339, 1),
        ("foreign-long-adversarial", 65, 0),
        ("unseen-adversarial", 61, 0),
        ("fresh-adversarial", 317, 1),
        ("later-adversarial", 108, 0),
        ("asked-adversarial", 397, 0),
        ("asked-later-adversarial", 100, 0),
        ("everyday-adversarial", 283, 0),
        ("everyday-later-adversarial", 84, 0),
        ("varied-adversarial", 302, 0),
        ("varied-later-adversarial", 82, 1),
        ("plain-adversarial", 268, 1),
        ("prompts-adversarial", 290, 0),
        ("prompts-later-adversarial", 64, 0),
        ("tongues-adversarial", 127, 0),
        ("traffic-adversarial", 458, 6),
        ("traffic-later-adversarial", 88, 3),
        ("code-adversarial", 320, 0),
        ("code-later-adversarial", 100, 2),
        ("domains-adversarial", 260, 1),
        ("domains-later-adversarial", 110, 2),
        ("kinds-adversarial", 536, 4),
        ("kinds-later-adversarial", 509, 16),
        ("assistants-adversarial", 429, 4),
        ("assistants-later-adversarial", 107, 3),
        ("applications-adversarial", 795, 1),
        ("applications-later-adversarial", 159, 7),
        ("daily-adversarial", 314, 0),
        ("daily-later-adversarial", 604, 15),
        ("expert-adversarial", 502, 11),
        ("expert-later-adversarial", 288, 30),
        ("typed-adversarial", 462, 2),
        ("typed-later-adversarial", 216, 2),
        ("context-adversarial", 60, 0),
        ("context-later-adversarial", 107, 9),
        ("instructions-adversarial", 419, 7),
        ("instructions-later-adversarial", 100, 6),
    ],
)
def test_d1_near_misses_of_another_hand_are_served_as_often_as_published(
    name: str, pairs_in_it: int, published: int
) -> None:
    assert len(pairs(name)) == pairs_in_it
    served = [p for p in pairs(name) if _served_either_way(p)]
    assert len(served) == published, served


@pytest.mark.parametrize(
    ("name", "pairs_in_it", "published"),
    [
        ("foreign-paraphrases", 294, 226),
        ("unseen-paraphrases", 40, 37),
        ("fresh-paraphrases", 168, 78),
        ("later-paraphrases", 48, 28),
        ("asked-paraphrases", 301, 211),
        ("asked-later-paraphrases", 74, 66),
        ("everyday-paraphrases", 256, 171),
        ("everyday-later-paraphrases", 60, 57),
        ("varied-paraphrases", 192, 44),
        ("prompts-paraphrases", 40, 32),
        ("traffic-paraphrases", 204, 160),
        ("traffic-later-paraphrases", 52, 39),
        ("code-paraphrases", 150, 120),
        ("code-later-paraphrases", 50, 38),
        ("domains-paraphrases", 130, 9),
        ("domains-later-paraphrases", 60, 25),
        ("kinds-paraphrases", 307, 227),
        ("kinds-later-paraphrases", 69, 55),
        ("assistants-paraphrases", 182, 98),
        ("assistants-later-paraphrases", 56, 36),
        ("applications-paraphrases", 168, 138),
        ("daily-paraphrases", 152, 65),
        ("daily-later-paraphrases", 80, 61),
        ("expert-paraphrases", 234, 128),
        ("expert-later-paraphrases", 51, 38),
        ("typed-paraphrases", 262, 170),
        ("typed-later-paraphrases", 51, 40),
        ("context-paraphrases", 190, 115),
        ("context-later-paraphrases", 32, 18),
        ("instructions-paraphrases", 261, 188),
        ("instructions-later-paraphrases", 60, 48),
    ],
)
def test_d1_paraphrases_of_another_hand_are_served_as_often_as_published(
    name: str, pairs_in_it: int, published: int
) -> None:
    assert len(pairs(name)) == pairs_in_it
    assert sum(map(_served_either_way, pairs(name))) == published


def _served_either_way(pair: dict[str, Any]) -> bool:
    one, other, cosine = pair["stored"], pair["asked"], pair["cosine"]
    return VERIFIER(other, one, cosine=cosine).accepted or VERIFIER(one, other, cosine=cosine).accepted


def test_the_sets_have_every_kind_and_no_pair_twice() -> None:
    adversarial, paraphrases = pairs("adversarial"), pairs("paraphrases")
    both = [(p["stored"], p["asked"]) for p in (*adversarial, *paraphrases)]
    assert len(both) == len(set(both))
    assert {p["kind"] for p in adversarial} >= {
        *("negation", "numbers", "units", "dates", "names", "direction", "roles", "antonyms", "code", "languages"),
    }


CHORES = (
    "Our new plan for the old barn: {} paints the roof and {} the fence, a friend of ours brings sand, glue, nails, "
    "cups, plates and food, and all others come at noon with gloves, shoes, music, tools and ladders. Write a message."
)
MINUTES = "Write the minutes of this meeting{}: Ola wants a bigger budget, and Kim hires nobody until June."

# --- each guard ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("guard", "one", "other"),
    [
        ("language", "Is the museum open?", "Ist das Museum offen?"),
        ("numbers", "Plan a trip of 3 days", "Plan a trip of 13 days"),
        ("numbers", "What is new in Python 3.1?", "What is new in Python 3.10?"),
        ("numbers", "Where is order 12345678901234567?", "Where is order 12345678901234568?"),
        ("numbers", "Is it -5 outside?", "Is it 5 outside?"),
        ("numbers", "Is .5 l enough?", "Is 5 l enough?"),
        ("snippets", "Is $.50 enough?", "Is $50 enough?"),
        ("numbers", "Is 1,50 a fair price?", "Is 150 a fair price?"),
        ("numbers", "Give me three ideas", "Give me four ideas"),
        ("units", "How far is it in miles?", "How far is it in kilometres?"),
        ("units", "What is due in May?", "What is due in June?"),
        ("units", "What is due in May?", "What is due?"),
        ("units", "Wake me at 7 am", "Wake me at 7"),
        ("units", "What can I get for £5?", "What can I get for 5 lbs?"),
        ("units", "is it warm in may", "is it warm"),
        ("units", "Ferries departing from Hull on Friday", "Ferries leaving Hull on Friday morning"),
        ("negation", "Can I pay with cash?", "Can't I pay with cash?"),
        ("negation", "Which rows are empty?", "Which rows are not empty?"),
        ("negation", "Cake with eggs", "Cake without eggs"),
        ("negation", "Delete everything but the logs", "Delete everything and the logs"),
        ("negation", "Neither Al nor Bo paid; who did?", "Either Al or Bo paid; who did?"),
        ("negation", "What is the best time to visit Peru?", "What is the worst time to visit Peru?"),
        ("negation", "Is it better to rent or buy a barn?", "Is it worse to rent or buy a barn?"),
        ("negation", "Guests who have signed the form", "Guests who have yet to sign the form"),
        ("negation", "Which files are yet to be deleted?", "Which files are not to be deleted?"),
        ("opposites", "Is the current owner liable?", "Is the previous owner liable?"),
        ("opposites", "Is a cheaper oven good enough?", "Is a more expensive oven good enough?"),
        ("opposites", "How do I lock a cell?", "How do I unlock a cell?"),
        ("opposites", "How do I gain weight?", "How do I lose weight?"),
        ("opposites", "Is my employer insured?", "Is my employee insured?"),
        ("opposites", "How do I forget a guy I like?", "How do I forget a girl whom I really like?"),
        ("opposites", "Is a harmful dose possible?", "Is a harmless dose possible?"),
        ("opposites", "How do I stop locking my phone?", "How do I stop unlocking my phone?"),
        ("words", "How do I cancel my current plan?", "How do I cancel my existing plan?"),
        ("snippets", "What is 5 + 3?", "What is 5 * 3?"),
        ("symbols", "What is 8 - 2?", "What is 8 / 2?"),
        ("symbols", "Format the time as hh.mm", "Format the time as HH.mm"),  # no other sign beside the points
        ("snippets", "Is x > y?", "Is x < y?"),
        ("symbols", "What is b - a?", "What is a - b?"),
        ("snippets", "Is x > y?", "Is y > x?"),
        ("snippets", "What is a[1:] in Go?", "What is a[:1] in Go?"),
        ("snippets", "What is a[i][j]?", "What is a[j][i]?"),
        ("symbols", "Rate this: 😀", "Rate this: 😡"),
        ("symbols", "Which country is 🇦🇺?", "Which country is 🇺🇦?"),
        ("symbols", "What does \U0001fae9 mean?", "What does \U0001faea mean?"),  # known to Python 3.14, or none yet
        ("symbols", "How do I type § in Word?", "How do I type ¶ in Word?"),
        ("symbols", "What does † mean after a name?", "What does ‡ mean after a name?"),
        ("symbols", "What is \uf8ff Watch?", "What is \uf8fe Watch?"),  # private characters: Apple's logo is one
        ("symbols", "What is √16?", "What is 16?"),
        ("symbols", "What is 5 ± 3?", "What is 5, 3?"),
        ("symbols", "What is 3 · 5?", "What is 3, 5?"),
        ("symbols", "Is x ∈ A?", "Is x ∉ A?"),
        ("symbols", "What is p → q?", "What is p ↔ q?"),
        ("symbols", "What is x̄?", "What is x?"),
        ("symbols", "How much is 100 ₽?", "How much is 100 ₺?"),
        ("symbols", "What is 10! over 8!", "What is 10 over 8"),
        ("symbols", "What is n! in maths", "What is n in maths"),
        ("snippets", "What does a != b mean?", "What does a = b mean?"),
        ("snippets", "What does x := 5 do?", "What does x = 5 do?"),
        ("snippets", "What does => mean?", "What does >= mean?"),
        ("symbols", "What does !x do in C?", "What does x do in C?"),
        ("snippets", "What does a && b do?", "What does a & b do?"),
        ("symbols", "What does a?.b do?", "What does a.b do?"),
        ("symbols", "What does a ?? b do?", "What does a ? b do?"),
        ("snippets", "What does [] mean?", "What does () mean?"),
        ("code", "What does ; do in SQL?", "What does : do in SQL?"),
        ("code", "What is the meaning of #?", "What is the meaning of @?"),
        ("quotations", 'What does "?" mean?', 'What does "." mean?'),
        ("code", "How do I type \u2013 in Word?", "How do I type \u2014 in Word?"),
        ("code", "When should I use \u2013?", "When should I use \u2014?"),
        ("code", "how do I type \u2013", "how do I type \u2014"),
        ("quotations", "How do I type \u201c\u2013\u201d?", "How do I type \u201c\u2014\u201d?"),
        ("code", "How do I choose between \u2013 and \u2014?", "How do I choose between \u2013 and \u2015?"),
        ("code", "What does ' mean in SQL?", 'What does " mean in SQL?'),
        ("code", "What does ' do in Bash?", "What does ` do in Bash?"),
        ("code", "What is \u201c called?", "What is \u2018 called?"),
        ("code", "What's ( called?", "What's ) called?"),
        ("additions", "What does _ stand for?", "What does __ stand for?"),
        ("code", "What does $? mean in Bash?", "What does $! mean in Bash?"),
        ("code", "What does + match?", "What does +? match?"),
        ("code", "What does a text that ends with :) mean?", "What does a text that ends with :( mean?"),
        ("code", "Comment taper \u00ab sur un Mac ?", "Comment taper \u00bb sur un Mac ?"),
        ("code", "\u00bfQu\u00e9 significa \u00bf en un texto?", "\u00bfQu\u00e9 significa \u00a1 en un texto?"),
        ("symbols", "\u00bfPara qu\u00e9 sirve ; en C?", "\u00bfPara qu\u00e9 sirve : en C?"),
        ("code", "Что значит « в тексте?", "Что значит » в тексте?"),
        ("snippets", "What can *? match?", "What can * match?"),
        ("symbols", 'Is a 6" pipe enough?', "Is a 6' pipe enough?"),
        ("symbols", "Is a 6\u2033 pipe enough?", "Is a 6\u2032 pipe enough?"),
        ("symbols", "What is f'' of x?", "What is f' of x?"),
        ("symbols", "What does ls -l do?", "What does ls -L do?"),
        ("snippets", r"What does \d match?", r"What does \D match?"),
        ("symbols", "What does %s print?", "What does %S print?"),
        ("snippets", "What does [a-z] match?", "What does [A-Z] match?"),
        ("snippets", "What does a{2} match?", "What does a{2,} match?"),
        ("snippets", "What is (a, b]?", "What is [a, b)?"),
        ("symbols", "What does x-- do?", "What does --x do?"),
        ("symbols", "What does @x mean in Ruby?", "What does @@x mean in Ruby?"),
        ("symbols", "What does _x mean?", "What does x_ mean?"),
        ("symbols", "Who wrote https://a.org/b?", "Who wrote https://a.org/B?"),
        ("code", "Is aB3 a good password?", "Is Ab3 a good password?"),
        ("code", "What does UNION do in SQL?", "What does UNION ALL do in SQL?"),
        ("code", "Is `foo` set here?", "Is `FOO` set here?"),
        ("snippets", "What does the `-r` flag of cp do?", "What does the `-R` flag of cp do?"),
        ("opposites", "Yes, please delete it.", "No, please don't delete it."),
        ("order", "Is terminal A older than terminal B?", "Is terminal B older than terminal A?"),
        ("order",
         "The invoice is 240 euros including VAT. What is it excluding VAT, and what with a discount of a tenth?",
         "The invoice is 240 euros excluding VAT. What is it including VAT, and what with a discount of a tenth?"),
        ("question", "Who is Tom's father?", "Who is Tom the father of?"),
        ("snippets", "What is 10²?", "What is 102?"),
        ("numbers", "What is 10₂ in words?", "What is 102 in words?"),
        ("numbers", "Can I take one or two tablets?", "Can I take two tablets?"),
        ("numbers", "Can I take one and a half tablets?", "Can I take half a tablet?"),
        ("numbers", "How do I type ² in Word?", "How do I type 2 in Word?"),
        ("code", "How do I type ₂ in Word?", "How do I type ² in Word?"),
        ("symbols", "How do I pronounce the Hindi word की?", "How do I pronounce the Hindi word का?"),
        ("code", "What does \u211d mean in maths?", "What does R mean in maths?"),
        ("code", "How do I type ™ in Word?", "How do I type TM in Word?"),
        ("numbers", "Is it \u22125 outside?", "Is it 5 outside?"),
        ("numbers", "Wie viel kosten 1,250 kg?", "Wie viel kosten 1250 kg?"),
        ("numbers", "When did World War I begin?", "When did World War II begin?"),
        ("units", "Is 100 Mb/s fast?", "Is 100 MB/s fast?"),
        ("units", "Convert 5 Mg to kg", "Convert 5 mg to kg"),
        ("units", "How many Mb are in a MB?", "How many MB are in a Mb?"),
        ("units", "Is 1 Gbps fast?", "Is 1 GBps fast?"),
        ("units", "Is 5 mW a lot?", "Is 5 MW a lot?"),
        ("additions", "Is 5‰ a lot?", "Is 5 a lot?"),
        ("quotations", 'Who sang "Hello"?', 'Who sang "Help"?'),
        ("code", "What does json.load do?", "What does json.dump do?"),
        ("code", "Why is my_list empty?", "Why is my_dict empty?"),
        ("code", "How long does an iPhone 5 last?", "How long does an iPhone 5S last?"),
        ("code", "Is the OnePlus 3 any good?", "Is the OnePlus 3T any good?"),
        ("names", "How big is Sweden?", "How big is Norway?"),
        ("names", "How do I write to Anna?", "How do I write to her?"),
        ("words", "Draft a note to Mr Wu", "Draft a note to Mrs Wu"),
        ("order", "I am sure that they are not here", "I am not sure that they are here"),
        ("order", "How do I copy files from my laptop with my phone?",
         "How do I copy files with my laptop from my phone?"),
        ("order", "Play something by Adele", "Play something like Adele"),
        ("order", "How do I sing to a bird?", "How do I sing like a bird?"),
        ("order", "Songs from Madonna", "Songs like Madonna"),
        ("order", "Who gave Ann to Ben for Cid?", "Who gave Ben to Cid for Ann?"),
        ("order", "Convert a list to a tuple", "Convert a tuple to a list"),
        ("order", "Did Brutus kill Caesar?", "Did Caesar kill Brutus?"),
        ("order", "Is gold heavier than silver?", "Is silver heavier than gold?"),
        ("order", "Trains from New York to Boston", "Trains from Boston to New York"),
        ("order", "We read today that Oslo beat Bergen in the second game of a cold season before a small crowd",
         "Before a small crowd, we read, Bergen beat Oslo in the second game of a cold season"),
        ("order", "Convert my old blue notebook pages into small clean digital text files for a search engine tonight",
         "Tonight, for a search engine, convert my old blue text files into small clean digital notebook pages too"),
        ("order", "For a search engine, old blue notebook pages replace small clean digital text files tonight",
         "Tonight old blue text files replace small clean digital notebook pages for a search engine"),
        ("order", "Teachers judge pupils fairly each winter", "Each winter, they say, pupils judge teachers fairly"),
        ("order", "Why are cats so much calmer than dogs?", "Is there a reason why dogs are calmer than cats?"),
        ("order", "Cancel my order and keep my subscription", "Keep my order and cancel my subscription"),
        ("order", "Cancel my order, and then keep my plan.", "Keep my order, and then cancel my plan."),
        ("order", "Lock the door and open the window", "Open the door and lock the window"),
        ("order", "Delete the old file and keep the new file", "Delete the new file and keep the old file"),
        ("order", "Delete photo1 and keep photo2", "Delete photo2 and keep photo1"),
        ("order", "Block Alice and unblock Bob", "Block Bob and unblock Alice"),
        ("order", "How do I mute Ann and invite Tom?", "How do I invite Ann and mute Tom?"),
        ("order", "Paint the wall red and the door blue", "Paint the wall blue and the door red"),
        ("order", "Archive the old reports and burn the new bills", "Archive the new reports and burn the old bills"),
        ("order", "Send milk to Bob and take bread from Ann", "Take milk to Bob and send bread from Ann"),
        ("order", "Send milk to Bob and take bread from Ann", "Send bread to Bob and take milk from Ann"),
        ("order", "Send milk to Bob and take bread from Ann", "Send milk to Ann and take bread from Bob"),
        ("order", "Cancel the train, keep the hotel and move the flight",
         "Keep the train, move the hotel and cancel the flight"),
        ("order", "The tall nurse thanked a pilot", "A pilot thanked the tall nurse"),
        ("order",
         "A patient takes 5 mg of iron in the morning and 20 mg of zinc in the evening. Is taking ibuprofen safe?",
         "A patient is on 5 mg of iron in the evening and 20 mg of zinc in the morning. Is ibuprofen safe to take?"),
        ("order",
         "A patient takes 5 mg of iron in the morning and 20 mg of zinc in the evening. Is taking ibuprofen safe?",
         "A patient is on 20 mg of iron in the morning and 5 mg of zinc in the evening. Is ibuprofen safe to take?"),
        ("numbers", "Sum the amounts 3, 3, 7 for me, would you", "Please add up 3 and also 7, 7"),
        ("order", "Why do stray dogs fear wild horses?", "Why do wild horses fear stray dogs?"),
        ("question", "When was it built?", "Where was it built?"),
        ("question", "How did Mozart die?", "Where did Mozart die?"),
        ("question", "Do vaccines work?", "How do vaccines work?"),
        ("restrictions", "How do I make a pizza?", "How do I make a pizza for diabetics?"),
        ("words", "How do I paint a ceiling?", "How do I paint a radiator?"),
        ("additions", "How do I cook salmon?", "How do I cook frozen salmon?"),
        ("words", "Can I give a refund for a broken lamp?", "Can I get a refund for a broken lamp?"),
        ("words", "Why is a nigella seed bitter?", "Why is a nigel seed bitter?"),
        ("wording", "Translate to French: my dog", "Translate to French: my dogs"),
        ("wording", "Translate to French: the dog", "Translate to French: a dog"),
        ("wording", "Please fix this: he go home", "Please fix this: he goes home"),
        ("snippets", "Check the grammar:\nLet us eat, Ann", "Check the grammar:\nLet us eat Ann"),
        ("wording", "Rewrite this: it is late and dark", "Rewrite this: it is dark and late"),
        ("wording", "Spell colour", "Spell color"),
        ("wording", "What is the plural of mouse?", "What is the plural of mice?"),
        ("wording", "How do you say I eat in Welsh?", "How do you say I ate in Welsh?"),
        ("forms", "What is the policy there?", "What is the police there?"),
        ("forms", "Why is the organ so old?", "Why is the organization so old?"),
        ("words", "Where are the plans?", "Where are the planes?"),
        ("forms", "Tell me about the new media", "Tell me about the new median"),
        ("forms", "Is meditation any good at night?", "Is medication any good at night?"),
        ("words", "How do I find a good desert?", "How do I find a good dessert?"),
        ("words", "Was the trial long?", "Was the trail long?"),
        ("words", "Was the shot long?", "Was the shoot long?"),
        ("forms", "Where is the lost contact?", "Where is the lost contract?"),
        ("forms", "Where is the next refuge?", "Where is the next refugee?"),
        ("names", "Is the river in Niger long?", "Is the river in Nigeria long?"),
        ("additions", "Which nation won the world cup?", "Which nation won the cup?"),
        ("additions", "What is the mean rent in Oslo?", "What is the rent in Oslo?"),
        ("additions", "How do I sum even rows?", "How do I sum rows?"),
        ("words", "How do I add a payer?", "How do I add a payee?"),
        ("forms", "How do I return a charger?", "How do I return a charge?"),
        ("forms", "Who has a larger garden?", "Who has a large garden?"),
        ("forms", "What is a good sort of journalism?", "What is a good sort of journalist?"),
        ("symbols", "Compute x - y", "Compute x / y"),
        ("symbols", "What is a/b in Rust?", "What is a-b in Rust?"),
        ("code", "Is there a cafe in Hall A?", "Is there a cafe in Hall S?"),
        ("code", "Is there a cafe in Hall A?", "Is there a cafe in a hall?"),
        ("code", "What does an IF block look like?", "What does an AS block look like?"),
        ("order", "Is the gift for my brother taxed?", "Is the gift from my brother taxed?"),
        ("order", "Films with Tom Hanks", "Films by Tom Hanks"),
        ("order", "List the meetings on Monday", "List the meetings by Monday"),
        ("order", "How do I work for Google?", "How do I work with Google?"),
        ("question", "Explain how magnets work", "Explain why magnets work"),
        ("question", "What are crampons?", "What are crampons for?"),
        ("question", "Where is the next branch?", "What is the next branch?"),
        ("question", "The parcel arrived.", "The parcel arrived?"),
        ("question", "We go home.", "We go home?"),
        ("question", "Ho pagato il conto", "Ho pagato il conto?"),
        ("question", "Tu viens demain !", "Tu viens demain ?"),
        ("question", "دفعت الفاتورة", "دفعت الفاتورة؟"),
        ("question", "The card is blocked.", "The card is blocked?"),
        ("courtesies", "How do you say hello in Welsh?", "How do you say please in Welsh?"),
        ("words", "Do all ferries run at night?", "Do some ferries run at night?"),
        ("scope", "How can I rename all of the files?", "How do I rename several files?"),
        ("scope", "How do I archive all drafts?", "How do I archive a draft?"),
        ("scope", "Show me my orders", "Show me all orders"),
        ("scope", "List files changed within a day", "List files changed over a day ago"),
        ("scope", "Can I only swim in the lake at night?", "Can I swim in the lake only at night?"),
        ("scope", "I took five books out of the library this week. How can I return all of them?",
         "I took five books out of the library this week. How do I return some of them?"),
        ("order", "Which apps work but not offline?", "Which apps do not work offline?"),
        ("order", "Why are not all the tests passing?", "Why are all the tests not passing?"),
        ("scope", "Does the fee cover only the room?", "Does the fee also cover the room?"),
        ("scope", "Who logged in more than once?", "Who logged in exactly once?"),
        ("scope", "Which bags hold at least two balls?", "Which bags hold exactly two balls?"),
        ("additions", "Which bikes cost more than 300 francs?", "Which bikes cost 300 francs?"),
        ("links", "Do I need a key and a code?", "Do I need a key or a code?"),
        ("links", "Is the cave open with or without a guide?", "Is the cave open without a guide?"),
        ("links", "Who founded Oslo and when?", "Who founded Oslo?"),
        ("order", "Does tea and milk or juice come with it?", "Does milk and tea or juice come with it?"),
        ("order", "Which fish is raw tuna?", "Which raw fish is tuna?"),
        ("order", "What does a cake for 20 cost?", "What do 20 cakes cost?"),
        ("order", "Is a red wine bottle heavy?", "Is a bottle of red wine heavy?"),
        ("scope", "Can she only read Greek?", "Can only she read Greek?"),
        ("scope", "Is the jug half empty?", "Is half the jug empty?"),
        ("scope", "What is the sum of each list?", "What is the sum of all lists?"),
        ("voice", "Who painted Anna?", "Who was painted by Anna?"),
        ("tense", "Who is the captain of the team?", "Who was the captain of the team?"),
        ("tense", "How does the fire start?", "How did the fire start?"),
        ("tense", "Was I charged?", "Will I be charged?"),
        ("tense", "My train is cancelled. Can I claim?", "My train will be cancelled. Can I claim?"),
        ("tense", "Who hung the mirror?", "Who hangs the mirror?"),
        ("tense", "Who rents the hall?", "Who rented the hall?"),
        ("tense", "What happened to the harbour?", "What is happening to the harbour?"),
        ("tense", "I paid the toll", "I am paying the toll"),
        ("tense", "What have the voters decided?", "What will the voters decide?"),
        ("tense", "Where has the bus gone?", "Where is the bus going?"),
        ("tense", "If I cancelled, was I charged?", "If I cancel, am I charged?"),
        ("tense", "Tell me if the train is late", "Tell me if the train was late"),
        ("tense", "Can you confirm if the server was down?", "Can you confirm if the server is down?"),
        ("tense", "Please verify if the shop was open", "Please verify if the shop is open"),
        ("tense", "Has anyone checked if the server was down?", "Has anyone checked if the server is down?"),
        ("modality", "Do I water a cactus in winter?", "Should I water a cactus in winter?"),
        ("persons", "How do I change my password?", "How do I change your password?"),
        ("persons", "How much do I owe you?", "How much do you owe me?"),
        ("persons", "What does he eat at noon?", "What do I eat at noon?"),
        ("persons", "Haben Sie heute Hunger?", "Haben sie heute Hunger?"),
        ("persons", "Wo ist Ihr Hund?", "Wo ist ihr Hund?"),
        ("complements", "I stopped to smoke", "I stopped smoking"),
        ("complements", "I used to swim at night", "I am used to swimming at night"),
        ("complements", "What is the town where she lives?", "What is the town where she used to live?"),
        ("complements", "Who tries new dishes here?", "Who used to try new dishes here?"),
        ("manner", "Give a short guide to knots", "Give a step by step guide to knots"),
        ("degree", "What is a good lens for birds?", "What is a better lens for birds?"),
        ("plurals", "What is the highest peak in Togo?", "What are the highest peaks in Togo?"),
        ("plurals", "How do I draw a ruby?", "How do I draw in Ruby?"),
        ("plurals", "Where do I find a good date?", "Where do I find good dates?"),
        ("plurals", "What is the plot of Alien?", "What is the plot of Aliens?"),
        ("prepositions", "Who painted the fence?", "Who painted on the fence?"),
        ("prepositions", "How do I cook goose?", "How do I cook in Goose?"),
        ("prepositions", "What is south of the river?", "What is in the south of the river?"),
        ("prepositions", "How do I connect a printer?", "How do I connect to a printer?"),
        ("names", "How do I clean China?", "How do I clean china?"),
        ("names", "Where can I see polish flags?", "Where can I see Polish flags?"),
        ("names", "Is the US included?", "Is the us included?"),
        ("quotations", 'What does "No, stop" mean?', 'What does "No stop" mean?'),
        ("wording", "Is this sentence right: My son, who sings, is ill",
         "Is this sentence right: My son who sings is ill"),
        ("snippets", "Is [1, 2,] a list?", "Is [1, 2] a list?"),
        ("snippets", "Why does print(len(x) fail?", "Why does print(len(x)) fail?"),
        ("order", "You are the nurse and I am the patient", "You are the patient and I am the nurse"),
        ("order", "A wasp stung my son and my wife is upset", "A wasp stung my wife and my son is upset"),
        ("order", "Why should we write the tests before we refactor?",
         "Why should we refactor before we write the tests?"),
        ("order", "Do I pay because I left or leave because I paid?",
         "Do I leave because I paid or pay because I left?"),
        ("order", "My tall uncle sold my boss a boat. He is angry and wants his money. What now?",
         "My boss sold my tall uncle a boat. He is angry and wants his money. What now?"),
        ("order", CHORES.format("Sam", "Nia"), CHORES.format("Nia", "Sam")),
        ("tense", "Could the storm cause a flood?", "Could the storm have caused a flood?"),
        ("tense", "Is the bridge being painted?", "Is the bridge painted?"),
        ("tense", "She is moving abroad. Is a visa needed?", "She has moved abroad. Is a visa needed?"),
        ("order", "Should I paint before I sand the roof, and why?", "Should I sand the roof before I paint, and why?"),
        ("tense", "How does it feel to be judged?", "How does it feel to be judging?"),
        ("plurals", "What can my daughter do today?", "What can my daughters do today?"),
        ("voice", "Will I be paid on Friday?", "Will I pay on Friday?"),
        ("voice", "How do I get followed?", "How do I follow?"),
        ("voice", "Who was attacked first?", "Who attacked first?"),
        ("voice", "Can tenants be evicted in winter?", "Can tenants evict in winter?"),
        ("voice", "How do I forgive him?", "How do I get him to forgive me?"),
        ("order", "Tell me to trust Al.", "Tell Al to trust me."),
        ("order", "Is Ann Lee the aunt of Ann May Lee?", "Is Ann May Lee the aunt of Ann Lee?"),
        ("names", "What is Co?", "What is CO?"),
        ("words", "How heavy is the shot for men?", "How heavy is the shot for boys?"),
        ("mentions", "What does I mean?", "What does a mean?"),
        ("mentions", "When do I use who?", "When do I use whom?"),
        ("mentions", "When do I write its?", "When do I write it's?"),
        ("mentions", "Is it right to start with and?", "Is it right to start with but?"),
        ("mentions", "When does one write an instead of a?", "When does one write the instead of a?"),
        ("mentions", "What does as do in Python?", "What does with do in Python?"),
        ("mentions", "My sister is a nurse. Can she help?", "My sister has a nurse. Can she help?"),
        ("mentions", "They have my parents. What now?", "They are my parents. What now?"),
        ("mentions", "Is was a verb?", "Is were a verb?"),
        ("mentions", "How do I use that in a sentence?", "How do I use which in a sentence?"),
        ("mentions", "What did I buy to eat?", "What did I buy you eat?"),
        ("mentions", "What does has mean in this sentence?", "What does have mean in this sentence?"),
        ("details", "I just quit smoking. What helps?", "I want to quit smoking. What helps?"),
        ("details", "I must have lost it. Can I return it?", "I have lost it. Can I return it?"),
        ("details", "We got a rabbit. What does it eat?", "We may get a rabbit. What does it eat?"),
        ("details", "I quit my job. Am I insured?", "I am going to quit my job. Am I insured?"),
        ("details", MINUTES.format(""), MINUTES.format(", leaving out all names of people")),
        ("order", "How do I run with a bear?", "How do I run from a bear?"),
        ("order", "Can I travel with a baby?", "Can I travel as a baby?"),
        ("order", "What is in the box?", "What is on the box?"),
        ("order", "Why does my dog bark at me?", "Why does my dog bark for me?"),
        ("order", "How do I use salt to melt ice?", "How do I melt salt off ice?"),
        ("order", "Which files are new and not in git?", "Which files are not new and in git?"),
        ("order", "Where can I buy pictures of children?", "Where can I buy pictures for children?"),
        ("persons", "My sister borrowed money from me", "I borrowed money from my sister"),
        ("modality", "I will pay the fee", "I want to pay the fee"),
        ("modality", "I can close the file", "I want to close the file"),
        ("modality", "No one has to pay the toll", "No one must pay the toll"),
        ("modality", "Is a deposit always refunded?", "Is a deposit refunded?"),
        ("order", "Can I get a refund on a voucher?", "Can I get a refund with a voucher?"),
        ("order", "Where is the University of Miami?", "Where is Miami University?"),
        ("words", "Write a friendly letter to a customer who has returned a bicycle and wants the money back this week",
         "Write a friendly letter to a customer who has returned a toaster and wants the money back this week"),
        ("words",
         "Write a friendly letter to a customer who has returned a red bicycle and wants the money back this week",
         "Write a friendly letter to a customer who has returned a steel toaster and wants the money back this week"),
        ("words", "Write a friendly letter to a customer who has returned a bicycle and wants the money back this week",
         "Write a friendly letter to a customer who has returned the toaster and wants the money back this week"),
        ("words", "Plot the sales as a bar chart", "Plot the sales as a histogram"),
        ("words", "Book a one-way flight to Oslo", "Book a round-trip flight to Oslo"),
        ("words", "Extract the name from this message as JSON: I am Ana, order 7, my number is 55, please call back",
         "Extract the order number from this message as JSON: I am Ana, order 7, my number is 55, please call back"),
        ("details",
         "My contract says that I can cancel from the second year on. It is the third month now. Can I leave?",
         "My contract says that I can cancel within the second year. It is the third month now. Can I leave?"),
        ("order", "Take 5 mg in the morning and 10 mg at night", "Take 5 mg at night and 10 mg in the morning"),
        ("order", "Send the invoice by post and the offer via email",
         "Send the invoice via email and the offer by post"),
        ("units", "What was this month's bill?", "What was that month's bill?"),
        ("units", "How was the weather this summer in Oslo?", "How was the weather that summer in Oslo?"),
        ("units", "Is it open Monday to Friday?", "Is it open Monday and Friday?"),
        ("units", "Are pages 3 to 9 required?", "Are pages 3 and 9 required?"),
        ("units", "How cold is it between May and June?", "How cold is it between June and May?"),
        ("units", "Is it quiet between 22:00 and 6:00?", "Is it quiet between 6:00 and 22:00?"),
        ("numbers", "What happened in MCMXIV?", "What happened in MCMXVI?"),
        ("additions", "Is the lounge just for members?", "Is the lounge for members?"),
        ("additions", "Does the shop just sell shoes?", "Does the shop sell shoes?"),
        ("numbers", "What began World War 1?", "What began World War II?"),
        ("opposites", "Bring me the 1st volume", "Bring me the 2nd volume"),
        ("names", "What is the SEC?", "What is the sec?"),
        ("plurals", "Where do I claim a damage?", "Where do I claim damages?"),
        ("persons", "She says that I owe the deposit, is that right?",
         "She says that you owe the deposit, is that right?"),
        ("modality", "How much does a baby weigh?", "How much should a baby weigh?"),
        ("modality", "Why did the pump stop?", "Why should the pump stop?"),
        ("modality", "Tell me how much a baby weighs", "Tell me how much a baby should weigh"),
        ("modality", "when it opens", "when it must open"),
        ("modality", "Did I take both pills?", "Can I take both pills?"),
        ("order", "Was it trained on a corpus?", "Was it trained by a corpus?"),
        ("degree", "Why do few people vote?", "Why do a few people vote?"),
        ("degree", "How do I sing as well as my sister?", "How do I sing better than my sister?"),
        ("degree", "Is little salt healthy?", "Is a little salt healthy?"),
        ("persons", "I sent the form", "You sent the form"),
        ("persons", "The form asks where I was born", "The form asks where you were born"),
        ("persons", "The bank says that its fees rose", "The bank says that our fees rose"),
        ("persons", "How can I tell my aunt that her son died?", "How do I tell his aunt that her son died?"),
        ("scope", "How do I only delete photos from my phone?", "How can I delete photos only from my phone?"),
        ("scope", "What are a few must-dos only in Adelaide?", "What are some must-dos in Adelaide?"),
        ("opposites", "What do I do on my first day at Acme?", "What exactly do I do on my second day at Acme?"),
        ("persons", "Is she really fond of my dog?", "Is she fond of his dog?"),
        ("question", "Who can I dance with?", "Who do I dance?"),
        ("order", "How can I be sure it is not rotten?", "How do I not be sure it is rotten?"),
        ("modality", "Can you buy wine in Texas on Sunday?", "Should you purchase wine in Texas on Sunday?"),
        ("negation", "Is it possible to learn Hindi in a year?", "Is it impossible to learn Hindi in a year?"),
        ("negation", "Can I get a loan at 17?", "Is it impossible to get a loan at 17?"),
        ("opposites", "Why exactly do so few people vote?", "Why do so many people vote?"),
        ("question", "What did she marry?", "Who did she marry?"),
        ("question", "What did she marry?", "Whom did she marry?"),
        ("question", "Do you know when the shop is open?", "Do you know if the shop is open?"),
        ("question", "Tell me why he left", "Tell me whether he left"),
        ("question", "Do you know what she sold?", "Do you know whose she sold?"),
        ("question", "What was killed in Paris?", "Who was killed in Paris?"),
        ("question", "Who are you waiting for?", "What are you waiting for?"),
        ("question", "Which ports do I need for a TV?", "How many ports do I need for a TV?"),
        ("tense", "Who is the president of France?", "Who will be the president of France?"),
        ("tense", "Do you think that trains are safe?", "Did you think that trains are safe?"),
        ("tense", "what is the price", "what was the price"),
        ("tense", "What were the risks of nuclear power?",
         "Can you tell me: what are the risks of nuclear power?"),
        ("complements", "Where does Anna live?", "Where did Anna use to live?"),
        ("complements", "Where did Anna live?", "Where did Anna use to live?"),
        ("words", "Why do I love someone who hates me?", "Why do I love my boss who hates me?"),
        ("additions", "What are the best cars under $5,000?", "What are the best used cars under $5,000?"),
        ("additions", "How can I manually reset my router?", "What is the best way to reset my router?"),
        ("details", "Please tell me whether my parcel was sent yesterday and when your shop in Leeds closes on Mondays",
         "Please tell me when my parcel was sent yesterday and when your shop in Leeds closes on Mondays"),
        ("tense", "My visa expired on Monday. I have a job offer and a flat in Lyon. What are my options?",
         "My visa expires on Monday. I have a job offer and a flat in Lyon. What are my options?"),
        ("tense", "My card was stolen on the train and I blocked it an hour later, was I charged for the purchases?",
         "My card was stolen on the train and I blocked it an hour later, will I be charged for the purchases?"),
        ("tense", "I am taking aspirin. Can I drink wine?", "I took aspirin. Can I drink wine?"),
        ("tense", "My card expires today, can I pay?", "My card expired today, can I pay?"),
        ("tense", "My mother has cancer. Should I be tested?", "My mother had cancer. Should I be tested?"),
        ("tense", "Who has eaten the cake?", "Who had eaten the cake?"),
        ("numbers", "Take one pill twice a week", "Take two pills once a week"),
        ("scope", "Do plants need light?", "Do some plants need light?"),
        ("scope", "Can all employees see the report?", "Can employees see the report?"),
        ("scope", "Does the plan pay all my bills?", "Does the plan pay my bills?"),
        ("scope", "Cancel all my meetings on Friday", "Cancel one of my meetings on Friday"),
        ("scope", "My landlord says that I can only keep a cat in the flat if both of my neighbours agree",
         "The landlord says that I can keep one cat in my flat if both of the neighbours agree"),
        ("order", "Sign the lease, then pay the deposit", "Pay the deposit, then sign the lease"),
        ("order", "How do I compress and then encrypt a file?", "How do I encrypt and then compress a file?"),
        ("order", "Should it be is instead of are?", "Should it be are instead of is?"),
        ("order", "When do I use where instead of having?", "When do I use having instead of where?"),
        ("order", "Explain to a nurse how shock develops", "Explain how shock develops in a nurse"),
        ("order", "Is it safe to drive slowly when it rains?", "Is it safe to drive when it slowly rains?"),
        ("order", "Should I not eat or drink?", "Should I eat or not drink?"),
        ("question", "What can I see in Rome?", "Where can I see Rome?"),
        ("question", "What should I put in the oven?", "Where should I put the oven?"),
        ("opposites", "How do I find sent mails?", "How can I find unsent mails?"),
        ("opposites", "How do I report paid taxes?", "How can I report unpaid taxes?"),
        ("opposites", "Are useful plants rare?", "Are useless plants still rare?"),
        ("opposites", "Are useless plants rare?", "Are useful plants still rare?"),
        ("opposites", "How do I ban a user?", "How can I unban a user?"),
        ("words", "How do I report a found card?", "How do I report the lost card?"),
        ("words", "How did the Romans make bread?", "How did Romans sell bread?"),
        ("words", "How would he know?", "How could he know?"),
        ("restrictions", "How do I upgrade from Postgres 12 to 14?",
         "What is the best way to upgrade from Postgres 12 to 14 on a cluster?"),
        ("restrictions", "My landlord did not give back my deposit. What can I do about that?",
         "My landlord has not given back my deposit. What can I do about it in court?"),
        ("persons", "Where do I live?", "Where do you live?"),
        ("persons", "How many friends do I have?", "How many friends do you have?"),
        ("persons", "Why am I so tired?", "Why are you so tired?"),
        ("persons", "What did I order yesterday?", "What did you order yesterday?"),
        ("persons", "When did I join the company?", "When did you join the company?"),
        ("persons", "Which car do I own?", "Which car do you own?"),
        ("persons", "Who do I work for?", "Who do you work for?"),
        ("persons", "How much do I weigh?", "How much do you weigh?"),
        ("persons", "How long have I worked here?", "How long have you worked here?"),
        ("persons", "Do I have a dog?", "Do you have a dog?"),
        ("persons", "Did I pass the exam?", "Did you pass the exam?"),
        ("persons", "Have I paid the bill?", "Have you paid the bill?"),
        ("question", "It stops at night. Does it lose data?", "It stops at night. Why does it lose data?"),
        ("question", "Here is the log of the job. Did it fail?", "Here is the log of the job. When did it fail?"),
        ("words", "Write unit tests for this function with pytest.\n\ndef f(x):\n    return x",
         "Write type hints for this function with mypy.\n\ndef f(x):\n    return x"),
        ("modality", "He will pay the rent", "He pays the rent"),
        ("persons", "How do I feel today?", "How do you feel today?"),
        ("question", "Given this plan, tell me which port the host uses.",
         "Given this plan, tell me why the host uses the port."),
        ("words", "Tell me which port the service needs in this file.",
         "Tell me how many replicas the service needs in this file."),
        ("order", "Tell the story: The dog barked. The man woke up. The thief ran away.",
         "Tell the story: The man woke up. The dog barked. The thief ran away."),
        ("symbols", "Answer with YES or NO. Is a whale a fish?", "Answer with yes or no. Is a whale a fish?"),
        ("symbols", "Find lines that end with the word ERROR.", "Find lines that end with the word error."),
        ("quotations", 'Reply "YES" if this is spam.', 'Reply "yes" if this is spam.'),
        ("wording", "Rate the politeness of this: Send it.", "Rate the politeness of this: Please send it."),
        ("wording", "Is this title case? Title: the old man", "Is this title case? Title: The old man"),
        ("wording", "Continue the text: It was the best of times, it was",
         "Continue the text: It was the best of times, it"),
        ("plurals", "Write a unit test for the function.", "Write unit tests for the function."),
        ("plurals", "Extract the name from the text.", "Extract the names from the text."),
        ("plurals", "Here is a list. Which city has most rain?", "Here is a list. Which cities have most rain?"),
        ("plurals", "The guard of the old house by the river put the key on the table and left.",
         "The guard of the old house by the river put the keys on the table and left."),
        ("details", "Are you older than the president of Peru, or is the president of Chile older than you are?",
         "Are you older than a president of Peru, or is the president of Chile older than you are?"),
        ("words", "Write a method that takes ownership of a buffer", "Write a method that borrows a buffer"),
        ("words", "A cap costs 12 euros and a pen 2. How much do both cost?",
         "A cap costs 12 euros and a pen 2. How much more does the cap cost?"),
        ("prepositions", "Is it colder in the cellar in May?", "Is it colder in the cellar than in May?"),
        ("additions", "Mute the call", "Mute the call and help me"),
        ("order", "Will the bell ring if my TV is off tomorrow?", "Will the bell ring tomorrow if my TV is off?"),
        ("order", "What is the second word of: rice and beans", "What is the second word of: beans and rice"),
        ("order", "Concatenate rows and columns", "Concatenate columns and rows"),
        ("order", "Keep my desk for two hours on Friday", "Keep my desk two hours from now on Friday"),
        ("wording", "Is this informal? I'd love to come.", "Is this informal? I would love to come."),
        ("tense", "How many people lived there 50 years ago?", "How many people will live there in 50 years?"),
        ("tense", "How hot will it be in 100 years?", "How hot was it 100 years ago?"),
        ("additions", "Tell me about 1984", "Tell me about the year 1984"),
        ("additions", "Delete the drafts and mails", "Delete the drafts and all mails"),
        ("scope", "Are some mushrooms safe to eat?", "Are mushrooms safe to eat?"),
        ("order", "Which is the first of these: Rome or Paris", "Which is the first of these: Paris or Rome"),
        ("words", "Give me a yoga class for seniors", "Write a yoga class for seniors"),
        ("wording", "Does it have contractions: I do not know", "Does it have contractions: I don't know"),
    ],
)  # fmt: skip
def test_a_guard_refuses_what_differs(guard: str, one: str, other: str) -> None:
    assert refused_by(one, other) == guard
    verdict = VERIFIER(one, other, cosine=0.999)
    assert not verdict.accepted
    assert verdict.score == 0
    assert ("differ" in verdict.reason) == (guard != "language") or guard in verdict.reason


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("How do I lose 10,000 grams?", "How can I lose 10000 grams?"),
        ("Which is the BEST phone?", "Which is the best phone?"),
        ("Which phones cost below 20k?", "Which phones cost below 20,000?"),
        ("Give me twenty good ideas.", "Give me 20 good ideas."),
        ("Why isn't the heating working?", "Why is the heating not working?"),
        ("Why isn't my printer working?", "Why is my printer not working?"),
        ("How do I write to Donald Duck?", "How can I write to Donald Duck?"),
        ("What are the rules of curling?", "What are the rules in curling?"),
        ("How do I delete photos from my phone?", "How do I delete photos on my phone?"),
        ("Compare cats and dogs", "Compare dogs and cats"),
        ("Cancel my order and keep my subscription", "Keep my subscription and cancel my order"),
        ("Block Alice and unblock Bob", "Unblock Bob and block Alice"),
        ("Lock the door, paint the wall and open the window", "Open the window, paint the wall and lock the door"),
        ("Compare American English and British English", "Compare British English and American English"),
        ("In Tokyo, what time is it?", "What time is it in Tokyo?"),
        ("How does one become a pilot?", "How can one become a pilot?"),
        ("Do I get there by train on Monday?", "Do I get there on Monday by train?"),
        ("How do I resolve a dispute?", "How do I solve a dispute?"),
        ("Are you open Monday to Friday?", "Are you open from Monday to Friday?"),
        ("My screen just went black", "My screen went black"),
        ("How do you say thank you in Korean?", "How do I say thank you in Korean?"),
        ("How do I sort a list in Python?", "In Python, how do I sort a list?"),
        ("How do I schedule a cron job?", "How do I schedule a job with cron?"),
        ("What color is it?", "What colour is it?"),
        ("How do I recieve a parcel?", "How do I receive a parcel?"),
        ("How do I change my adress?", "How do I change my address?"),
        ("Hello, where is my parcel?", "Please, where is my parcel?"),
        ("Who invented the telephone?", "Who was the telephone invented by?"),
        ("How are volcanoes formed?", "How do volcanoes form?"),
        ("What is needed for a visa?", "What do I need for a visa?"),
        ("How can I make him stop snoring?", "How do I get him to stop snoring?"),
        ("Can I use baking soda for baking?", "Can baking soda be used for baking?"),
        ("How do I spell necessary?", "How do you spell necessary?"),
        ("What is the plural of a mouse?", "What is the plural of the mouse?"),
        ("How do I translate this into French?", "How do I translate this to French?"),
        ("Which word has the most vowels?", "What word has the most vowels?"),
        ("How do I fix it?", "How do I fix this?"),
        ("What happens if a company goes bankrupt?", "What happens when a company goes bankrupt?"),
        ("I have a dog - what should I feed it?", "I have a dog \u2014 what should I feed it?"),
        ("Qui est-ce ?", "Qui est-ce?"),
        ("Bonjour ; qui est-ce ?", "Bonjour; qui est-ce?"),
        ("What is it for ?", "What is it for?"),
        ("What does ; do in Python?", 'What does ";" do in Python?'),
        ("What does $? hold in Bash?", "What does `$?` hold in Bash?"),
        ("How do I type \u2014 in Word?", "How can I type \u201c\u2014\u201d in Word?"),
        ("How can I pay by card?", "How can I pay with a card?"),
        ("Do you ship to Canada?", "Can you ship to Canada?"),
        ("How should I clean a grill?", "How can I clean a grill?"),
        ("How can I boil rice?", "How can you boil rice?"),
        ("Can I freeze cooked rice?", "Can you freeze cooked rice?"),
        ("Should I wash chicken?", "Should you wash chicken?"),
        ("Could I have a copy?", "Can I have a copy?"),
        ("What will happen if I lose my card?", "What would happen if I lose my card?"),
        ("What is the quickest route to Delft?", "What is the fastest route to Delft?"),
        ("What is VAT?", "What does VAT mean?"),
        ("Every employee must wear a badge.", "All employees must wear a badge."),
        ("What are the most beautiful lakes in Peru?", "What are some beautiful lakes in Peru?"),
        ("Which country has the best schools?", "Which country in the world has the best schools?"),
        ("How do I tune a ukulele?", "How do I tune my ukulele?"),
        ("Is A cheaper than B?", "is A cheaper than B"),
        ("the best hotels in Rome", "the best hotels in Rome?"),
        ("Jam and tea or milk and bread?", "Tea and jam or bread and milk?"),
        ("please tell me how to bake bread", "Tell me how to bake bread"),
        ("What can I cook in 10min?", "What can I cook in 10 min?"),
        ("Who came 2nd in the race?", "Who came 2 in the race?"),
        ("Is a 4k screen worth it?", "Is a 4K screen worth it?"),
        ("Is it \u22125 outside?", "Is it -5 outside?"),
        ("What is 5 € + 3 €?", "What is 5 euros + 3 euros?"),
        ("How many tiles for 10 m²?", "How many tiles for 10 m2?"),
        ("Can I take one or two tablets?", "Can I take 1 or 2 tablets?"),
        ("Is 25 ℃ too warm for basil?", "Is 25 °C too warm for basil?"),
        ('How do I type "™" in Word?', "How do I type ™ in Word?"),
        ("What is x²?", "What is x^2?"),
        ("Is an iPhone 5S big?", "is an iphone 5s big?"),
        ("Who wrote https://a.org/b?", "Who wrote https://a.org/b"),
        ("Is a 6\u2033 pipe enough?", 'Is a 6" pipe enough?'),
        ('Is "top 10" a good title?', "Is top 10 a good title?"),
        ("How long do 100 mb take?", "How long do 100 MB take?"),
        ("Translate to French: my dog", "Please translate to French: My dog."),
        ("How do you spell ukulele?", "What is the spelling of ukulele?"),
        ("Delete everything but the logs", "Delete everything except the logs"),
        ("How do I go by train?", "How do I go on the train?"),
        ("Was the flight cancelled?", "Was the flight canceled?"),
        ("I have not received it", "I did not receive it"),
        ("Where do the potatoes grow?", "Where does the potato grow?"),
        ("Where are the boxes?", "Where is the box?"),
        ("Which cities are old?", "Which city is old?"),
        ("How do viruses spread?", "How does a virus spread?"),
        ("Who is a successful baker?", "Who is a succesful baker?"),
        ("Why do children cry?", "Why does a child cry?"),
        ("Is .5 l enough?", "Is 0.5 l enough?"),
        ("Did World War I change Wales?", "Has World War I changed Wales?"),
        ("How does one learn to swim?", "How can I learn to swim?"),
        ("The parser returns a list of tokens.", "A list of tokens is returned by the parser."),
        ("How do a debit card and a credit card differ?", "How do a credit card and a debit card differ?"),
        ("The roof has been repaired in May", "The roof is repaired in May"),
        ("How many eggs can I eat a day?", "How many eggs can I eat per day?"),
        ("What happens if I lose my card?", "What happens if I lost my card?"),
        ("Who is the best band in Leeds?", "What is the best band in Leeds?"),
        ("Will the museum be open on Monday?", "Is the museum open on Monday?"),
        ("What will be the best film of 2031?", "What is the best film of 2031?"),
        ("How long will delivery take?", "How long does delivery take?"),
        ("Where can I buy a tent?", "Where to buy a tent?"),
        ("What can I get for £5?", "What can I get for 5 pounds?"),
        ("Do you know if the shop is open?", "Is the shop open?"),
        ("Read this aloud", "Could you read this aloud?"),
        ("What opens on May 10?", "What opens on 10 May?"),
        ("Where may I park?", "where may i park"),
        ("Tell me more", "Tell me more \u2026"),
        ("How can I be a good son?", "How do I become a good son?"),
        ("What if my card is stolen?", "What if my card was stolen?"),
        ("Guests who have not signed the form", "Guests who have yet to sign the form"),
        ("How do heat pumps work?", "Could you tell me how heat pumps work?"),
        ("Is tea more popular than ever in Berlin?", "Has Berlin taken to drinking a lot of tea?"),
        ("You can obtain a saved index from a remote disk with the open function of the small store module",
         "With the open function of the small store module, a saved index can be loaded from a remote disk"),
        ("Keep my old blue notebook pages with small clean digital text files for a search engine tonight",
         "Tonight, for a search engine, keep my old blue text files with small clean digital notebook pages somehow"),
        ("How do I stop these damn emails?", "How do I stop these emails?"),
        ('How do I say "thank you" in Greek?', 'How do you say "thank you" in Greek?'),
        ("Where can I park a lorry?", "Where can I park a truck?"),
        ("My phone was stolen. How do I block it?", "My phone has been stolen. How do I block it?"),
    ],
)  # fmt: skip
def test_no_guard_refuses_another_wording(one: str, other: str) -> None:
    assert refused_by(one, other) in {"", "score"}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Can you tell me what the capital of Togo is?", "What is the capital of Togo?"),
        ("Do you know who invented the zip?", "Who invented the zip?"),
        ("Can you tell me: how do I apply for a loan?", "How do I apply for a loan?"),
        ("I was wondering what causes hail.", "What causes hail?"),
        ("Good morning, how do I apply for a loan?", "How do I apply for a loan?"),
        ("I'd like to know how a kiln works", "How does a kiln work?"),
        ("If it rains, is the fair cancelled?", "Is the fair cancelled if it rains?"),
        ("Before surgery, can I eat?", "Can I eat before surgery?"),
        ("How do I permanently delete files?", "How do I delete files permanently?"),
        ("Which is better, tea or coffee?", "Which is better, coffee or tea?"),
        ("What is the difference between a crow and a raven?", "What's the difference between a raven and a crow?"),
        ("How do crows and ravens differ?", "What is the difference between ravens and crows?"),
        ("How do stocks differ from bonds?", "What is the difference between a stock and a bond?"),
        ("What are the causes of gout?", "What causes gout?"),
        ("What does ASAP mean?", "What is the meaning of ASAP?"),
        ("What is the height of the Shard?", "How tall is the Shard?"),
        ("What is the best way to peel garlic?", "How do I peel garlic?"),
        ("How to peel garlic", "how can I peel garlic"),
        ("What is the plural of an ox?", "What is plural of ox?"),
        ("Which lake is the deepest?", "Which is the deepest lake?"),
        ("How do I turn on dark mode?", "How do I enable dark mode?"),
        ("How do I sign in?", "How do I log in?"),
        ("How do I get rid of moss?", "How do I remove moss?"),
        ("In which year did Troy fall?", "What year did Troy fall?"),
        ("How do I renew my fishing licence?", "How do I renew my fishing license?"),
        ("What are the symptoms of leukaemia?", "What are the symptoms of leukemia?"),
        ("Who was the 16th abbot?", "Who was the sixteenth abbot?"),
        ("What is the capital of Togo?", "What is Togo's capital?"),
        ("How do I restart a pod in Kubernetes?", "How do I restart a Kubernetes pod?"),
        ("What is the average rent of a flat?", "What is the average flat rent?"),
        ("What is the boiling point of water?", "water boiling point"),
        ("Which is the highest mountain in Togo?", "highest mountain in togo"),
        ("What is the best pizza in Naples?", "best pizza naples"),
        ("In Python, how do I copy a list?", "How do I copy a list in Python?"),
        ("Who is the author of Emma?", "Who wrote Emma?"),
        ("Who was the founder of the club?", "Who founded the club?"),
        ("What is the depth of the lake?", "How deep is the lake?"),
        ("How long is the pier?", "What is the length of the pier?"),
        ("What is the population of Fiji?", "How many people live in Fiji?"),
        ("How heavy is a tuba?", "How much does a tuba weigh?"),
        ("How much time does a transfer take?", "How long does a transfer take?"),
        ("Is it possible to pay in cash?", "Can I pay in cash?"),
        ("Do I have to wear a tie?", "Must I wear a tie?"),
        ("What is the best time to prune roses?", "When should I prune roses?"),
        ("Where is the jetty located?", "Where is the jetty?"),
        ("What is the purpose of a fuse?", "What is a fuse for?"),
        ("What is the job of a notary?", "What does a notary do?"),
        ("Is it better to rent or to buy?", "Should I rent or buy?"),
        ("Explain osmosis", "What is osmosis?"),
        ("Would you mind telling me when the shop opens?", "When does the shop open?"),
        ("I'd like to know whether the hall is open", "Is the hall open?"),
        ("Excuse me, is the hall open?", "Is the hall open?"),
        ("Is the hall open? Thanks a lot", "Is the hall open?"),
        ("Could you write me a poem about moss, please?", "Write a poem about moss"),
        ("Turn the porch light off", "Switch off the porch light"),
        ("What are the pros and cons of slate?", "What are the advantages and disadvantages of slate?"),
        ("How do I convert a list into a set?", "How do I convert a list to a set?"),
        ("Check whether the port is open", "Check if the port is open"),
        ("What is the luggage allowance?", "What is the baggage allowance?"),
        ("best restaraunt in Oslo", "best restaurant in Oslo"),
        ("What is a vpn?", "What is VPN?"),
        ("The site does not work", "The site is not working"),
        ("Give me a stew with no salt", "Give me a stew without salt"),
        ("Give me a stew without any salt", "Give me a stew without salt"),
        ("Translate the following sign into Welsh: exit", "Translate this sign into Welsh: exit"),
        ("Which lens would you recommend?", "Which lens do you recommend?"),
        ("I like it even though it is old", "I like it although it is old"),
        ("Is it okay to feed swans?", "Is it OK to feed swans?"),
        ("Do I need a key as well?", "Do I need a key too?"),
        ("A hall for around 150 guests", "A hall for about 150 guests"),
        ("Who rules on 10 February?", "Who rules on February 10?"),
        ("Is $1,000 enough?", "Is 1000 dollars enough?"),
        ("Solve 3x + 7 = 31", "solve 3x+7=31"),
        ("Write a function that checks whether a tree is empty", "Write a function that checks if a tree is empty"),
        ("Who has to pay for the fence?", "Who must pay for the fence?"),
        ("I am ill. Do I need to see a nurse?", "I am ill. Do I have to see a nurse?"),
        ("We would like to rent a barn", "We want to rent a barn"),
        ("How do I stop my dog from barking?", "How do I stop my dog barking?"),
        ("Which ferries run right now?", "Which ferries run now?"),
        ("Can I swim for one hour?", "Can I swim for 1 hour?"),
        ("A tent for twenty-five guests", "A tent for 25 guests"),
        ("Is two thousand euros enough?", "Is 2000 euros enough?"),
        ("Write to my grandma", "Write to my grandmother"),
        ('Explain this: "I\'d like a lift"', 'Please explain this: "I\'d like a lift"'),
        (
            "My cat has a fever and hides under the bed all day long. Which signs tell me that it is serious?",
            "My cat has a fever and hides under the bed all day long. What signs tell me that it is serious?",
        ),
        ("What are the symtoms of flu?", "What are the symptoms of flu?"),
        ("Will it rain tommorow?", "Will it rain tomorrow?"),
        ("I wonder how bees sleep", "How do bees sleep?"),
        ("Help me understand how to knit", "How do I knit?"),
        ("Could you please tell me your opening hours?", "What are your opening hours?"),
        ("Tell me my balance", "What is my balance?"),
        ("Give me a summary of the plot of Emma", "Summarise the plot of Emma"),
        ("Can you just tell me where the vet is?", "Where is the vet?"),
        ("What do I have to do to join the choir?", "How do I join the choir?"),
        ("Is it possible for me to vote by post?", "Can I vote by post?"),
        ("Which is the best time to prune a vine?", "When should I prune a vine?"),
        ("Who was the hall painted by?", "Who painted the hall?"),
        ("What is the price of silver?", "What is silver's price?"),
        ("Do you have any tips for a job fair?", "Any tips for a job fair?"),
        ("mayor of Ghent", "Who is the mayor of Ghent?"),
        ("serendipity meaning", "What is the meaning of serendipity?"),
        ("When I sneeze, why do I close my eyes?", "Why do I close my eyes when I sneeze?"),
        ("Is the tour free of charge?", "Is the tour free?"),
        ("How do I turn the radio off?", "How do I turn off the radio?"),
        ("How do I turn push notifications off?", "How do I disable push notifications?"),
        ("The train has not yet left", "The train hasn't left yet"),
        ("Who rules on Feb 10?", "Who rules on 10 February?"),
        ("How do I swim 2 km?", "How do I swim 2 kilometres?"),
        *((f"Is the shop open on {month[:3]} 10?", f"Is the shop open on {month} 10?") for month in MONTHS),
        ("What began World War II?", "What began World War 2?"),
        ("What began World War I?", "What began World War 1?"),
        ("Is type II cured?", "Is type 2 cured?"),
        ("Ferries in the 1st week of May", "Ferries in the first week of May"),
        ("Pick a number between 1 and 9", "Pick a number from 1 to 9"),
        ("Is it open Monday through Friday?", "Is it open Monday to Friday?"),
        ("Is it wet between June and July?", "Is it wet from June to July?"),
        ("Is the café open?", "Is the cafe open?"),
        ("Which tower is the highest?", "Which tower is the tallest?"),
        ("What occurs at dusk?", "What happens at dusk?"),
        ("What are the signs of measles?", "What are the symptoms of measles?"),
        ("Recommend films such as Jaws", "Recommend films like Jaws"),
        ("Describe life like a sailor", "Describe life of a sailor"),
        ("Can you plan a trip to Rome for me?", "Plan a trip to Rome"),
        ("Could you compare tea with coffee?", "Compare tea with coffee"),
        ("What the hell is wrong with my router?", "What is wrong with my router?"),
        ("Ugh, how do I mute myself?", "How do I mute myself?"),
        ("What do I need in order to open a bar?", "What do I need to open a bar?"),
        ("Can I eat whilst driving?", "Can I eat while driving?"),
        ("Who is author of Dune?", "Who is the author of Dune?"),
        ("Give me a one-week plan to learn chess", "Give me a one week plan to learn chess"),
        ("My phone was stolen. How do I respond?", "My phone was stolen. How should I respond?"),
        ("Are raw oysters safe to eat?", "Is it safe to eat raw oysters?"),
        ("How much is 8% of 50?", "What is 8 percent of 50?"),
        ("Calculate the cube of 12", "What is the cube of 12?"),
        ("What is cheaper: gas or coal?", "Which is cheaper, coal or gas?"),
        ("Regex for a hex colour", "Write a regex for a hex colour"),
        ("Give me a Go function that trims a string", "Write a Go function that trims a string"),
        ("Decide whether the text is spam", "Decide if the text is spam"),
        ("gimme a name for a goat", "give me a name for a goat"),
        ("r u a human", "are you a human"),
        ("Was the year 1904 a leap year?", "Was 1904 a leap year?"),
        ("Describe it in a single sentence", "Describe it in one sentence"),
        ("Write a joke of no more than ten words", "Write a joke of at most 10 words"),
        ("Pick a name with not fewer than 3 letters", "Pick a name with at least 3 letters"),
        ("Call me two hours from now", "Call me in two hours"),
        ("Call me in an hour from now", "Call me in an hour"),
        ("thx! how do I mute a chat", "how do I mute a chat"),
        ("Rephrase this: sales fell", "Paraphrase this: sales fell"),
        ("um, so how long do goats live?", "how long do goats live?"),
        ("What is Asia's deepest lake?", "What is the deepest lake in Asia?"),
        ("Who is the world's oldest man?", "Who is the oldest man in the world?"),
        ("If he is on bail, can he leave the country?", "Can he leave the country if he is on bail?"),
        ("Rewrite this to sound kinder: send it", "Rewrite this so that it sounds kinder: send it"),
        ("Which came first: the chicken or the egg?", "Which came first: the egg or the chicken?"),
        ("Last question: are bats and birds related?", "Last question: are birds and bats related?"),
        ("How do I concatenate strings and numbers?", "How do I concatenate numbers and strings?"),
        ("What should I wear to a formal dinner? I am a man", "What should I wear to a formal dinner? I'm a man"),
        ("How far apart are contractions? I am pregnant", "How far apart are contractions? I'm pregnant"),
        ("What is formaldehyde used for: I do not know", "What is formaldehyde used for: I don't know"),
        ("Turn off the lights and the TV", "Turn off the lights and also the TV"),
        ("Fix function that adds numbers", "Fix the function that adds numbers"),
        ("Find a class for beginners", "Find class for beginners"),
        ("Mute alerts for an hour from now", "Mute alerts for an hour"),
        ("In R you use what for loops", "In R what do you use for loops"),
    ],
)
def test_the_same_question_in_another_wording_is_served(one: str, other: str) -> None:
    assert VERIFIER(one, other, cosine=0.92).accepted
    assert VERIFIER(other, one, cosine=0.92).accepted


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Do I get a refund if I cancel my order?", "Do I cancel my order if I get a refund?"),
        ("Who was the owner of the farm?", "Who is the owner of the farm?"),
        ("What is the price of the share?", "What is the cost of the share?"),
        ("Explain the error", "What is the error?"),
        ("Explain plan in Oracle", "What is a plan in Oracle?"),
        ("Tell me if the door is opened", "Is the door opened?"),
        ("What is the meaning of thanks a lot?", "What is the meaning of many thanks?"),
        ("Where can I find my order?", "Where is my order?"),
        ("How do I fill a glass of wine?", "How do I fill a wine glass?"),
        ("What is an old photo of my dog?", "What is my old dog photo?"),
        ("Where is the house in the tree?", "Where is the tree house?"),
        ("What is the price in dollars?", "What is the dollar price?"),
        ("What is the best phone for games?", "best phone games"),
        ("Do the late trains stop here?", "Do the trains stop here late?"),
        ("Does my sister's friend know my friend's boss?", "Does my friend's sister know my boss's friend?"),
        ("Is the oldest dog fed in the shop?", "Is the dog fed in the oldest shop?"),
        ("Is a hot dog a sandwich?", "Is a sandwich a hot dog?"),
        ("Can I see my daily usage on the plan?", "Can I see my usage on the daily plan?"),
        ("How do cats and dogs differ from wolves?", "How do cats and wolves differ from dogs?"),
        ("Can only I see the file?", "Can I only see the file?"),
        ("Who does the king trust?", "Who trusts the king?"),
        ("I really don't like it", "I don't really like it"),
        ("Do you know how to swim?", "How to swim?"),
        ("Is the road closed?", "The road is closed."),
        ("Nobody has to pay", "Nobody must pay"),
        ("I do not have to pay", "I must not pay"),
        ("What do I need to open a bank?", "What do I have to open a bank?"),
        ("What port does https use?", "What port does http use?"),
    ],
)
def test_the_same_words_in_an_order_that_matters_are_not_the_same_question(one: str, other: str) -> None:
    assert not VERIFIER(one, other, cosine=0.92).accepted
    assert not VERIFIER(other, one, cosine=0.92).accepted


def test_what_is_to_be_done_is_asked_with_its_subject_in_the_place_of_who_does_it() -> None:
    assert VERIFIER("How can moss be removed?", "How do I remove moss?", cosine=0.97).accepted
    assert not VERIFIER("How can I be removed?", "How do I remove you?", cosine=0.97).accepted


def test_a_reason_names_what_differs() -> None:
    assert VERIFIER("Rooms for 5", "Rooms for 6", cosine=0.99).reason == "numbers differ: 5, 6"
    assert VERIFIER("What is 5 + 3", "What is 5 - 3", cosine=0.99).reason == "symbols differ: +, 5-3"
    assert VERIFIER("Is 5 + 3 = 7?", "Is 5 * 3 = 7?", cosine=0.99).reason == "snippets differ: 5+3=7, 5*3=7"
    assert VERIFIER("Sum up 3, 3, 7", "Sum up 3, 7, 7", cosine=0.99).reason == "numbers differ: 3, 7"


def test_a_number_may_be_told_again() -> None:
    for one, other in permutations((read("Of the 5 euros, how do I pay 5 now?"), read("How do I pay 5 euros?"))):
        assert GUARDS["numbers"](one, other, align(one.content, other.content)) == ""


@pytest.mark.parametrize("name", GUARDS)
def test_each_guard_can_be_switched_off(name: str) -> None:
    assert set(Verifier(without=[name]).guards) == set(GUARDS) - {name}


def test_without_a_guard_its_difference_does_not_refuse() -> None:
    one, other = "What is there to do in Rome in 2 days?", "What is there to do in Rome in 3 days?"
    assert Verifier(without=["numbers", "words"], threshold=0.2)(one, other, cosine=0.99).accepted


def test_without_the_guard_of_symbols_other_symbols_are_still_not_the_same_text() -> None:
    assert Verifier(without=["symbols"])("What is 5 * 3?", "What is 5 / 3?", cosine=0.9).score < 1


def test_a_guard_of_ones_own_is_asked() -> None:
    verifier = Verifier(guards={**GUARDS, "shouting": lambda left, *_: "loud" if "!" in left.text else ""})
    assert verifier("How are you!", "How are you?", cosine=1.0).reason == "loud"


# --- other languages, and long texts ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("怎么打开飞行模式", "怎么关闭飞行模式"),
        ("मैं खाता कैसे खोलूँ?", "मैं खाती कैसे खोलूँ?"),
        ("Wie viel kostet ein Auto?", "Wie viel kostet ein Haus?"),
        ("¿Tienes un ano?", "¿Tienes un año?"),
        ("จะเปิดได้อย่างไร", "จะปิดได้อย่างไร"),
        ("Chi ha scritto a Maria?", "A chi ha scritto Maria?"),
        ("¿Quién le dio a Ana?", "¿A quién le dio Ana?"),
        ("Quem deu a Ana o livro?", "A quem deu Ana o livro?"),
        ("Wir haben Ihr Paket.", "Wir haben ihr Paket."),
    ],
)
def test_in_another_language_only_the_same_words_pass(one: str, other: str) -> None:
    assert refused_by(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("怎么修改密码。", "怎么修改密码"),
        ("Wo ist meine Rechnung?", "bitte, wo ist meine rechnung"),
        ("Как изменить пароль?", "как изменить пароль"),
        ("비밀번호를 어떻게 변경하나요?", "비밀번호를 어떻게 변경하나요"),
        ("¿Dónde está mi pedido?", "Dónde está mi pedido"),
        ("Wo wohnen Sie heute?", "wo wohnen sie heute"),
        ("Como abro uma conta?", "como abro uma conta"),
        ("Bonjour ! où est ma commande ?", "Bonjour, où est ma commande"),
        ("手机10,000元以下", "手机10000元以下"),
        ("请问怎么修改密码?", "怎么修改密码?"),
        ("Por favor, ¿dónde está mi pedido?", "¿Dónde está mi pedido?"),
        ("S'il vous plaît, où est ma commande ?", "Où est ma commande ?"),
    ],
)
def test_in_another_language_case_punctuation_and_courtesy_do_not_matter(one: str, other: str) -> None:
    assert VERIFIER(one, other, cosine=0.9).accepted


def test_what_is_too_long_to_be_compared_passes_only_if_it_is_the_same() -> None:
    long = "word " * MAX_COMPARED_CHARS
    assert VERIFIER(long + "a", long + "b", cosine=1.0).guard == "length"
    assert VERIFIER(long + "a", long + "a \n\n", cosine=1.0).accepted


def test_one_word_of_a_long_text_is_enough() -> None:
    text = "Summarise the following report about the {} market and say what it means. " + "It says this and that. " * 15
    assert VERIFIER(text.format("oil"), text.format("milk"), cosine=0.999).guard == "words"


def test_in_a_long_text_what_is_said_elsewhere_too_does_not_excuse_another_word_here() -> None:
    text = "Staff must park in the street. Guests {} use the gate. "
    text += " ".join(f"The {colour} bin is for {kind}." for colour, kind in BINS.items())
    assert refused_by(text.format("must"), text.format("can")) == "details"


BINS = {
    "red": "paper", "blue": "glass", "green": "wood", "grey": "metal", "white": "food", "black": "cloth",
    "brown": "soil", "pink": "wire", "violet": "ash",
}  # fmt: skip
LONG = (
    "The patient takes {} mg of warfarin in the {} and {} mg of simvastatin in the {}, drinks {} and {} with breakfast "
    "and has a history of stomach ulcers. Is it safe to add ibuprofen for a week against back pain, or is paracetamol "
    "the better choice?"
)


@pytest.mark.parametrize(
    "other",
    [
        ("20", "morning", "5", "evening", "tea", "milk"),
        ("5", "evening", "20", "morning", "tea", "milk"),
        ("20", "evening", "5", "morning", "tea", "milk"),
        ("20", "morning", "5", "evening", "milk", "tea"),
    ],
)
def test_in_a_long_text_two_words_that_change_places_are_enough(other: tuple[str, ...]) -> None:
    one = LONG.format("5", "morning", "20", "evening", "tea", "milk")
    assert refused_by(one, LONG.format(*other)) == "order"


def test_in_a_long_text_nothing_may_be_told_in_another_order() -> None:
    told, asked = LONG.format("5", "morning", "20", "evening", "tea", "milk").split(". ")
    assert refused_by(f"{told}. {asked}", f"{asked} {told}.") == "order"


def test_in_a_long_text_what_and_links_may_stand_in_any_order() -> None:
    one = LONG.format("5", "morning", "20", "evening", "tea", "milk")
    assert refused_by(one, LONG.format("5", "morning", "20", "evening", "milk", "tea")) == ""


def test_far_texts_are_not_even_compared() -> None:
    assert VERIFIER("How do I learn Hindi?", "How can I learn Hindi?", cosine=0.5).reason.startswith("cosine 0.50")
    assert VERIFIER("How do I learn Hindi?", "How can I learn Hindi?", cosine=float("nan")).guard == "score"


# --- the judge of one's own ---------------------------------------------------------------------------------


async def test_a_judge_of_ones_own_takes_the_place_of_the_score_sync_and_async() -> None:
    asked = []

    def judge(request: str, stored: str) -> float:
        asked.append((request, stored))
        return 0.7

    async def ajudge(request: str, stored: str) -> bool:
        return request != stored

    assert Verifier(judge=judge, guards={})("far", "away", cosine=0.1).score == 0.7
    assert asked == [("far", "away")]
    assert not Verifier(0.8, judge=judge, guards={})("far", "away", cosine=0.1).accepted
    assert (await Verifier(judge=ajudge, guards={}).averify("far", "away", cosine=0.1)).score == 1.0
    handing_on = Verifier(judge=lambda one, other: ajudge(other, one), guards={})
    assert (await handing_on.averify("far", "away", cosine=0.1)).accepted
    assert Verifier(judge=judge)("Rooms for 5", "Rooms for 6", cosine=1.0).guard == "numbers"


@pytest.mark.parametrize("answer", ["yes", None, 2, float("nan"), -0.1])
def test_what_a_judge_may_not_say(answer: object) -> None:
    with pytest.raises(ModelError, match="neither True nor False"):
        Verifier(judge=lambda *_: answer, guards={})("a word", "another", cosine=1.0)  # type: ignore[arg-type]


def test_a_judge_is_a_function() -> None:
    with pytest.raises(ConfigurationError, match=r"^judge is a function, .*, not 5$"):
        Verifier(judge=5)  # type: ignore[arg-type]


def test_a_judge_that_fails_is_a_model_error_without_the_texts() -> None:
    def judge(request: str, _: str) -> bool:
        raise RuntimeError(request)

    with pytest.raises(ModelError) as caught:
        Verifier(judge=judge, guards={})("my secret", "another", cosine=1.0)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("threshold", [0, -1, 1.5])
def test_a_threshold_lies_between_0_and_1(threshold: float) -> None:
    with pytest.raises(ConfigurationError, match="threshold"):
        Verifier(threshold)


@pytest.mark.parametrize("without", ["numbers", ["digits"]])
def test_without_takes_names_of_guards(without: list[str]) -> None:
    with pytest.raises(ConfigurationError, match="without names guards"):
        Verifier(without=without)


# --- properties ---------------------------------------------------------------------------------------------


@given(st.text(max_size=80), st.text(max_size=80), st.floats(-1, 1))
def test_any_two_texts_get_a_verdict(one: str, other: str, cosine: float) -> None:
    verdict = VERIFIER(one, other, cosine=cosine)
    assert 0 <= verdict.score <= 1
    assert verdict.accepted == (not verdict.reason)


@given(st.text(max_size=80))
def test_a_text_is_the_same_as_itself(text: str) -> None:
    assert VERIFIER(text, text, cosine=1.0).score == 1


@given(st.text("abcd", max_size=8), st.text("abcd", max_size=8))
@example("ab", "bca")
def test_edits_are_symmetric_and_zero_only_for_the_same(one: str, other: str) -> None:
    assert edit_distance(one, other, 20) == edit_distance(other, one, 20)
    assert (edit_distance(one, other, 20) == 0) == (one == other)
    assert edit_distance(one, other, 1) == min(edit_distance(one, other, 20), 2)


def _edits_by_table(one: str, other: str) -> int:
    rows = [list(range(len(other) + 1))]
    for i, a in enumerate(one, 1):
        row = [i]
        for j, b in enumerate(other, 1):
            value = min(rows[-1][j] + 1, row[-1] + 1, rows[-1][j - 1] + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and one[i - 2] == b:
                value = min(value, rows[-2][j - 2] + 1)
            row.append(value)
        rows.append(row)
    return rows[-1][-1]


@given(st.text("abc", max_size=12), st.text("abc", max_size=12), st.integers(0, 12))
@example("", "abc", 2)
@example("ca", "abc", 3)  # no letter is exchanged and then parted
def test_edits_are_those_of_the_whole_table(one: str, other: str, most: int) -> None:
    assert edit_distance(one, other, most) == min(_edits_by_table(one, other), most + 1)
    assert edit_distance([*one], [*other], most) == edit_distance(one, other, most)


@given(st.permutations(range(9)))
def test_pairs_that_rise_are_counted(order: list[int]) -> None:
    assert _count_ascending_pairs(order) == sum(a < b for n, a in enumerate(order) for b in order[n + 1 :])


_FRAGMENTS = (
    *(hint for _, _, hints in REPLACEMENTS for hint in hints.split()),
    *(
        "u's",
        "urn't",
        "y'all's'm",
        "i's'm",
        "what's",
        "n'ts",
        "10,000",
        "1,50",
        "1st",
        "5k",
        "2.5 million",
        "20%",
        "$5",
    ),
    *("_", "`a b`", "`", "foo_bar", "fooBar(x)", "a.b.c", "U.S.A.", "--x", "/usr/bin", "C++", "c#", "x1", "5s", "3T"),
    *('"hi', 'there"', "'tis'", "«bon»", "中文字", "non-x", "5", "-", "3", "*", "a@b.com", "https://x.y/z", "!=", "é"),
    *("how", "How many", "why", "reason for", "what", "makes", "when", "where", "who", "which", "not", "or not", "the"),
)
_texts = st.lists(
    st.tuples(st.sampled_from(_FRAGMENTS) | st.text(max_size=6), st.sampled_from([" ", "", "-", ". ", "\n", "\u00a0"])),
    max_size=12,
).map(lambda parts: "".join(word + space for word, space in parts))


@given(_texts)
@example("i's'm 10,000")  # what is made of one is no other's
@example("urn't")  # what is left of it is looked for, too
def test_a_contraction_is_looked_for_only_where_it_may_be_and_found_all_the_same(text: str) -> None:
    text = text.lower()
    expected = text
    for pattern, plain, _ in REPLACEMENTS:
        expected = re.sub(pattern, plain, expected)
    assert normalize_spelling(text) == module._normalize_numbers(expected, re.findall(r"\w+", expected))


@given(_texts)
def test_what_is_read_of_pieces_is_what_is_read_of_the_whole(text: str) -> None:
    words = [*chain.from_iterable(reading._words_in(text.split()))]
    assert words == [word for match in reading._WORD.finditer(text) for word in reading._split_word(match[0])]
    code = {found[0].removesuffix("()") for found in reading._CODE.finditer(text)}
    marks = {
        found[0]
        for found in reading._NUMBER_WITH_LETTERS.finditer(text)
        if found[1].lower() not in reading._NUMBER_SUFFIXES
    }
    assert {*chain.from_iterable(reading._identifiers_in(text.split()))} == code | marks


def test_a_capital_tells_a_name_but_where_a_sentence_begins() -> None:
    text = "Is it Bob? Carla-Ann, perhaps! No: Dora. Eve left. OpenAI too."
    names = {word.text for word in read(text).content if word.capital}
    assert names == {"bob", "carla", "ann", "dora", "openai"}
    assert not any(word.capital for word in read(text.upper()).content)


@given(_texts)
def test_of_several_wordings_of_a_question_the_first_tells_its_kind(text: str) -> None:
    found = [(match.start(), n) for n, (_, kind) in enumerate(QUESTION_FRAMES) if (match := re.search(kind, text))]
    assert reading.question_frame(text) == (QUESTION_FRAMES[min(found)[1]][0] if found else "none")


def test_of_words_with_two_hyphens_between_them_none_is_empty() -> None:
    assert read("Who sang the well--known song?").words == ["who", "sang", "the", "well", "known", "song"]


def test_long_pieces_are_read_and_not_remembered() -> None:
    for piece, is_remembered in (("字" * 500, False), ("x_y" * 100, False), ("a" * 59, True)):
        (one,), (other,) = reading._words_in([piece]), reading._words_in([piece])
        assert (one is other) is is_remembered
    assert len(read("字" * 500).words) == 500


def test_what_is_remembered_of_pieces_is_bounded() -> None:
    read_pieces: list[str] = []

    @cached_per_piece
    def of_all(piece: str) -> int:
        read_pieces.append(piece)
        return len(piece)

    several = [f"{n:05d}" for n in range(piece_cache._MAX_PIECES)]
    assert [*of_all(several), *of_all(several[-9:])] == [5] * (piece_cache._MAX_PIECES + 9)
    assert len(read_pieces) == piece_cache._MAX_PIECES
    assert [*of_all(["another", several[0]])] == [7, 5]
    assert read_pieces[piece_cache._MAX_PIECES :] == ["another", several[0]]


def test_words_that_turn_round_are_told_only_where_all_have_partners() -> None:
    one, other = (
        "Cancel the train, keep the hotel, move the flight",
        "Keep the train, move the hotel, cancel the flight",
    )
    assert _swapped(one, other) == ("cancel", "keep")
    assert _swapped(one, f"Somehow {other}") is None
    assert _swapped(f"{one} somehow", other) is None


def test_what_denies_is_told_as_it_is_written() -> None:
    verdict = Verifier()("Why does it never not work?", "Why does it never work?", cosine=0.97)
    assert verdict.reason == "negation differs: never, not"


def test_two_words_for_one_way_oppose_nothing() -> None:
    assert refused_by("How do I move my money into Rome?", "How do I move my money to Rome today?") == ""


TALE = "Write of {}, a raven, a farmer, a barn, a storm, a letter, a bridge, a candle and {}"
LONG_TALE = "Write a long poem of {}, a raven, a barn, a farmer, a storm, a letter, a bridge, a candle and {}"
CHASE = (
    "The red {} chased the grey {} over the green hill past the old mill into the dark forest near the deep lake behind"
    " the tall tower under the bright moon while the small owl watched the quiet valley and the lazy river"
)


@pytest.mark.parametrize(
    ("one", "other", "changed", "back"),
    [
        ("What if the tenant leaves before the lease ends?", "What if the lease ends before the tenant leaves?",
         "tenant lease", "lease tenant"),
        ("Does the queen lay more eggs than the drone fertilises?",
         "Does the drone fertilise more eggs than the queen lays?", "queen drone", "drone queen"),
        ("Is it true that sugar and salt is white?", "Is it true that salt and sugar is white?", "sugar salt",
         "salt sugar"),
        (CHASE.format("fox", "wolf"), CHASE.format("wolf", "fox"), "fox wolf", "wolf fox"),
        (TALE.format("Rome", "Oslo"), LONG_TALE.format("Oslo", "Rome"), "rome oslo", "oslo rome"),
        ("What are the ingredients of pesto?", "Which ingredients are in pesto?", "pesto in", "pesto of"),
        ("What are the rules for curling?", "What are the rules in curling?", "curling in", "curling for"),
        ("How do I find mould on the fridge?", "How do I find mould in the fridge?", "fridge in", "fridge on"),
        ("Which film is on Rome?", "Which film is in Rome?", "rome in", "rome on"),
        ("How do I commit and then stash?", "How do I stash and then commit?", "commit stash", "stash commit"),
        ("What's the healthiest way to cook vegetables?", "What is the healthiest way of cooking vegetables?", "", ""),
        ("Where is the house in the tree?", "Where is the tree house?", "", ""),
        ("baking powder vs baking soda what's the difference",
         "What is the difference between baking soda and baking powder?", "", ""),
        ("What is served on Easter?", "What is served at Easter?", "", ""),
        ("How do I run tests on Linux?", "How do I run tests in Linux?", "", ""),
        ("Is it true that sugar or salt is white?", "Is it true that salt or sugar is white?", "", ""),
        (
            TALE.format("Rome", "a mirror"),
            LONG_TALE.format("a mirror", "Rome"),
            "",
            "",
        ),  # ten words, and others besides
    ],
)  # fmt: skip
def test_of_words_that_change_places_those_are_named_where_it_matters(
    one: str, other: str, changed: str, back: str
) -> None:
    """Two that did so themselves, or one and the preposition that it has in the other text."""
    assert " ".join(_swapped(one, other) or ()) == changed
    assert " ".join(_swapped(other, one) or ()) == back


@pytest.mark.parametrize(
    ("one", "other", "changed"),
    [
        ("paint and doors wash floors sweep", "floors sweep and doors wash paint", ("paint", "floors")),
        ("paint and doors wash floors sweep", "sweep wash and floors paint doors", ("paint", "sweep")),
        ("paint and doors wash floors", "floors wash and doors paint", ("paint", "wash")),
        ("paint and doors wash floors", "floors and paint wash doors", None),
    ],
)
def test_what_moves_goes_along_with_a_neighbour_of_its_own(
    one: str, other: str, changed: tuple[str, str] | None
) -> None:
    assert _swapped(one, other) == changed


def _swapped(one: str, other: str) -> tuple[str, str] | None:
    left, right = read(one), read(other)
    return swapped_words(left, right, align(left.content, right.content))


def test_letters_that_change_places_are_one_edit() -> None:
    assert edit_distance("form", "from", 5) == 1


def test_questions_are_weighed_by_trees_of_their_own() -> None:
    one, other = "How do I teach a parrot to speak", "How can one get a parrot to speak"
    stated = VERIFIER(one, other, cosine=0.95).score
    asked = VERIFIER(f"{one}?", other, cosine=0.95).score
    turned = VERIFIER(other, f"{one}? ", cosine=0.95).score
    assert stated != asked == turned


def test_a_question_may_be_said_in_fewer_other_words_than_a_statement() -> None:
    one = "You can use the open function of the store module to read a saved index from a remote disk"
    other = "The store module has the open function, which is there to read a saved index from a remote disk"
    assert VERIFIER(one, other, cosine=0.95).accepted
    assert VERIFIER(f"{one}?", other, cosine=0.95).guard == "score"


def test_letters_of_a_number_are_a_name_unless_they_are_a_unit_or_a_rank() -> None:
    assert read("Is the 5S or the 3T better?").code == {"5S", "3T"}
    assert not read("Is 5kg, 16GB, 3l, 2x, 20k, 4m or the 2nd enough?").code


@pytest.mark.parametrize("mark", ["", "?"])
def test_what_is_nearer_is_surer(mark: str) -> None:
    one, other = f"How do I teach a parrot to speak{mark}", f"How can one get a parrot to speak{mark}"
    scores = [VERIFIER(one, other, cosine=cosine).score for cosine in (0.76, 0.83, 0.9, 0.97)]
    assert scores == sorted(scores)
    assert scores[0] < 0.7 < scores[-1]


def test_the_trees_ask_for_features_that_exist() -> None:
    one, other = read("How do I boil an egg?"), read("How can I boil eggs?")
    figures = features(one, other, align(one.content, other.content), 0.9)
    assert len(figures) == len(FEATURE_NAMES)
    for trees in (TREES, QUESTION_TREES):
        assert {int(token.split("<")[0]) for token in trees.split() if "<" in token} <= set(range(len(FEATURE_NAMES)))


def test_texts_that_have_no_word_in_common_are_soon_told_apart() -> None:
    letters = ("".join(three) for three in permutations("bcdfghjklm", 3))
    words = [*letters][: 2 * (MAX_COMPARED_CHARS // 4)]
    half = len(words) // 2
    start = time.process_time()
    assert not VERIFIER(" ".join(words[:half]), " ".join(words[half:]), cosine=0.9).accepted
    assert time.process_time() - start < 0.5  # 0.15; when each word was compared with each, 0.8


# --- tuning -------------------------------------------------------------------------------------------------

SCORED = [(0.95, True), (0.9, True), (0.85, False), (0.8, True), (0.7, True), (0.6, False), (0.0, True)]


@pytest.mark.parametrize(("precision", "threshold"), [(1.0, 0.9), (0.8, 0.7), (0.5, 0.6)])
def test_tuning_picks_the_lowest_threshold_of_that_precision(precision: float, threshold: float) -> None:
    assert choose_threshold(SCORED, precision).threshold == threshold


def test_tuning_gives_the_whole_curve() -> None:
    curve = {point.threshold: point[1:] for point in choose_threshold(SCORED, 0.5).curve}
    assert curve[0.8] == (0.75, 0.6, 0.5)
    assert min(curve) == 0.6


def test_tuning_says_where_it_cannot() -> None:
    with pytest.raises(ConfigurationError, match=r"the best has 0\.500"):
        choose_threshold([(0.9, False), (0.8, True)], 0.9)
    with pytest.raises(ConfigurationError, match="no threshold serves any of these pairs"):
        choose_threshold([(0.0, True), (0.0, False)], 0.9)
    with pytest.raises(ConfigurationError, match="at least one is the same"):
        choose_threshold([(0.9, False)], 0.9)
    with pytest.raises(ConfigurationError, match="precision"):
        choose_threshold(SCORED, 1.1)
