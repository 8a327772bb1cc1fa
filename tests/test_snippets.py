"""Code, data and formulas within requests: compared to the sign, and out of the way of what is said about them (D1)."""

from __future__ import annotations

import time
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_adapters.experience import Verifier
from langmem_adapters.experience.verifier.snippets import separate_snippets

VERIFIER = Verifier()
PRINTS = "What does this print?\n\n{}"
LOOP = "total = 0\nfor n in range(3):\n    total += n\n    print(total)"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (PRINTS.format("if a:\n    b()\n    c()"), PRINTS.format("if a:\n    b()\nc()")),
        (PRINTS.format("yield x"), PRINTS.format("return x")),
        (PRINTS.format("print(x)"), PRINTS.format("print(X)")),
        (PRINTS.format("print('x')"), PRINTS.format("print(x)")),
        (PRINTS.format("print('a', end='')"), PRINTS.format("print('a', end=' ')")),
        (PRINTS.format("print(1, 2)"), PRINTS.format("print((1, 2))")),
        (PRINTS.format("{1, 2}"), PRINTS.format("{1: 2}")),
        (PRINTS.format("x = f(1)\n\ny = 2"), PRINTS.format("y = 2\n\nx = f(1)")),
        ("Is it true that not a or b?", "Is it true that not (a or b)?"),
        ("What does s.split('  ') do?", "What does s.split(' ') do?"),
        ("What does `s.split('  ')` do?", "What does `s.split(' ')` do?"),
        ("What is a++ + b in C?", "What is a + ++b in C?"),
        ("What does x = 5 do in bash?", "What does x=5 do in bash?"),
        ("Explain [1 -2] in Matlab", "Explain [1 - 2] in Matlab"),
        ("Explain this SQL query: select a, b from t", "Explain this SQL query: select b, a from t"),
        (
            "Explain this query: SELECT a FROM t UNION SELECT b FROM s",
            "Explain this query: SELECT a FROM t UNION ALL SELECT b FROM s",
        ),
        ("What does the regex ^$ match?", "What does the regex ^.$ match?"),
        ("What does the regex `a+?` match?", "What does the regex `a+` match?"),
        ("What does cd .. do?", "What does cd . do?"),
        ("What does find / -name x do?", "What does find . -name x do?"),
        ("What does `git checkout x` do?", "What does `git checkout -- x` do?"),
        ("What does echo $HOME do?", "What does echo '$HOME' do?"),
        ('Convert this to YAML: {"a": 1}', 'Convert this to YAML: {"a": "1"}'),
        ('Convert this to YAML: {"a": {"b": 1}, "c": 2}', 'Convert this to YAML: {"a": {"b": 1, "c": 2}}'),
        ("Sum this up:\n\na,b\n1,2", "Sum this up:\n\na,b\n2,1"),
        ("Is my list right?\n- fruit\n  - apple\n- milk", "Is my list right?\n- fruit\n- apple\n- milk"),
        (
            "Is my order right?\n1. Boil the water.\n2. Add the tea.",
            "Is my order right?\n1. Add the tea.\n2. Boil the water.",
        ),
        ("How many stanzas are there?\n\nred rose\n\nblue sky", "How many stanzas are there?\n\nred rose\nblue sky"),
        ("How many numbers has (1...10)?", "How many numbers has (1..10)?"),
        ("What is the complement of ATGCCA?", "What is the complement of ATGCAC?"),
        ("Where does &x point to?", "Where does x point to?"),
        (PRINTS.format('x = ""'), PRINTS.format('x = "')),
        (PRINTS.format("print(\u201cx\u201d)"), PRINTS.format('print("x")')),
        (PRINTS.format("x = a \u2212 b"), PRINTS.format("x = a - b")),
        (PRINTS.format("\uff58 = 1"), PRINTS.format("x = 1")),
        ("Why does print(\u2018x\u2019) fail?", "Why does print('x') fail?"),
        ("How many fields are there?\n\na\t\tb", f"How many fields are there?\n\na\t{8 * ' '}b"),
        ("Why does make stop?\n\nall:\n\tgcc x.c -o x", "Why does make stop?\n\nall:\n        gcc x.c -o x"),
        ("What is this?\n```ruby\nputs(7 / 2)\n```", "What is this?\n```lua\nputs(7 / 2)\n```"),
        ("What is this?\n```SELECT a\nFROM t\n```", "What is this?\n```SELECT b\nFROM t\n```"),
        ("What is this?\n```x = 1```", "What is this?\n```x = 2```"),
        ("Explain this regex: ^a+?", "Explain this regex: ^a+"),
        ("Explain this formula: n!", "Explain this formula: n"),
    ],
)
def test_d1_code_that_differs_in_a_sign_or_a_blank_is_other_code(one: str, other: str) -> None:
    for left, right in permutations((one, other)):
        assert VERIFIER(left, right, cosine=1.0).guard == "snippets"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (PRINTS.format(LOOP), f"What does this print?\n```python\n{LOOP}\n```"),
        (PRINTS.format(LOOP), f"Please tell me what this prints\n\n\n{LOOP}  \n\nthanks!"),
        (PRINTS.format(LOOP), f"{LOOP}\n\nWhat does this print?"),
        (PRINTS.format(LOOP), PRINTS.format("\n".join(f"    {line}" for line in LOOP.splitlines()))),
        ("What does `ls -la` do?", "What does ls -la do?"),
        ("What does `ls -la` do?", "what is ls -la doing?"),
        ("Explain this line:\n\nx = [1, 2]", "Explain this line: `x = [1, 2]`"),
        ("What does this do? rm -rf build/", "What does this do?\n\n    rm -rf build/"),
        ("What is it?\n```js\nlet x = [1];\n```", "What is it?\n~~~ JavaScript\nlet x = [1];\n~~~"),
        ("What is a\u00b2 \u2212 b?", "what is a^2 - b"),
        ("Solve 3x + 7 = 31", "solve 3x+7=31"),
        ("What is x² for x = 2?", "What is x^2 for x = 2?"),
        ("Why is \u201cx = 1\u201d wrong?", 'Why is "x = 1" wrong?'),
        ("Can you explain `f(x) -> y`?", "explain `f(x) -> y` please"),
        ("**How** do I do it?\n\nIt is late.", "**How** do I do it?\nIt is late."),
    ],
)
def test_the_same_code_may_be_marked_and_asked_about_otherwise(one: str, other: str) -> None:
    for left, right in permutations((one, other)):
        assert VERIFIER(left, right, cosine=0.97).accepted


FORM = "Grade this form.\n{}Does it often rain where you live?{}Does it often snow where you live?{}Is it often dry?{}"
LISTS = "These may be used by all of us:\n- oil\n{}These must not be used by any of us:\n{}- nuts"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (FORM.format("", "\nYes\n", "\n", ""), FORM.format("", "\n", "\nYes\n", "")),
        (FORM.format("", "\nYes\n", "\n", "\nNo"), FORM.format("", "\n", "\nYes\n", "\nNo")),
        (FORM.format("", "\n", "\nYes\n", ""), FORM.format("", "\n", "\n", "\nYes")),
        (LISTS.format("- salt\n", ""), LISTS.format("", "- salt\n")),
    ],
)
def test_d1_data_belongs_to_the_prose_that_it_stands_after(one: str, other: str) -> None:
    for left, right in permutations((one, other)):
        assert VERIFIER(left, right, cosine=1.0).reason == "snippets differ: their order or place"
    assert VERIFIER(one, f"Hello,\n{one}\nThanks!", cosine=1.0).accepted


def test_what_is_said_about_long_code_is_compared_as_if_it_stood_alone() -> None:
    code = "\n".join(f"print({n}, {n} * {n})" for n in range(200))
    assert len(code) > 2_000
    asked = f"How many lines does this print?\n\n{code}"
    assert VERIFIER(asked, f"How many lines will this print, please?\n\n{code}", cosine=1.0).guard != "length"
    assert VERIFIER(asked, f"Please, how many lines does this print?\n\n{code}", cosine=1.0).accepted
    assert VERIFIER(asked, f"How many words does this print?\n\n{code}", cosine=1.0).guard == "words"
    assert VERIFIER(asked, asked.replace("(7, 7 * 7)", "(7, 7 + 7)"), cosine=1.0).guard == "snippets"


def test_d1_of_a_word_longer_than_any_word_every_letter_counts() -> None:
    key = "qwertyuiopasdfghjklzxcvbnm" * 4
    mistyped = key[:50] + key[51] + key[50] + key[52:]
    verdict = VERIFIER(f"What does the key {key} open?", f"What does the key {mistyped} open?", cosine=0.99)
    assert verdict.guard == "snippets"


def test_of_what_is_very_long_every_line_counts() -> None:
    code = "\n".join(f"  print({n})" for n in range(2_000))
    assert VERIFIER(f"{code}\n  x", f"{code} \n\n  x", cosine=1.0).accepted
    assert VERIFIER(f"{code}\n  x", f"{code}\nx", cosine=1.0).guard == "length"


def test_a_reason_names_a_few_of_the_snippets_by_how_they_begin() -> None:
    one, other = ("\n".join(f"{letter} = '{n}{'x' * 100}'" for n in range(50)) for letter in "ab")
    reason = VERIFIER(PRINTS.format(one), PRINTS.format(other), cosine=1.0).reason
    assert "a = '0xxx" in reason
    assert len(reason) < 500


def test_without_the_guard_the_others_read_the_code() -> None:
    verifier = Verifier(without=["snippets"])
    assert verifier("What is a[1:] + 2?", "What is a[:1] * 2?", cosine=1.0).guard == "symbols"
    assert verifier(PRINTS.format("yield x"), PRINTS.format("yield x "), cosine=1.0).accepted


@given(st.text(st.sampled_from("ab `=+-.,:;?!()[]{}'\"\n\\/*<>$&#@1X"), max_size=80))
def test_a_request_is_parted_as_itself_and_the_same_in_a_fence(text: str) -> None:
    one, other = separate_snippets(text, text)
    assert one == other
    assert VERIFIER(text, text, cosine=0.0).accepted
    fenced, also = separate_snippets(f"Why?\n```\n{text}\n```", f"Why?\n```py\n{text}\n```")
    assert fenced == also


@pytest.mark.parametrize(
    "piece",
    [
        "a",
        "a,",
        "a/b ",
        "( ",
        "+ ",
        "= ",
        "`",
        "`a b` ",
        "x = 1\n",
        "\n",
        " ",
        ". ",
        "-",
        "... --- ",
        "the code: ",
        "[[{{",
        "'",
        f"x = f(a,{' ' * 7_900}b) + 1",
    ],
)
def test_no_text_takes_long_to_be_parted(piece: str) -> None:
    text = (piece * 8_000)[:7_990]
    start = time.process_time()
    separate_snippets(text, f"{text[:-3]}zz ")
    assert time.process_time() - start < 0.3
