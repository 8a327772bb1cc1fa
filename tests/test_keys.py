"""Namespaces that never collide, and fingerprints that say when two requests are the same (C4)."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_adapters.errors import ConfigurationError, SerializationError
from langmem_adapters.keys import decode_namespace, encode_namespace, fingerprint

parts = st.text(st.characters(codec=None) | st.sampled_from("/%:.~{}*?[]\\\x00"), max_size=6)
namespaces = st.lists(parts, max_size=4).map(tuple)


@given(namespaces)
def test_a_namespace_is_read_back_whatever_it_holds(namespace: tuple[str, ...]) -> None:
    name = encode_namespace(namespace)
    assert decode_namespace(name) == namespace
    assert name.isascii()


def test_a_damaged_name_is_shown_as_far_as_it_can_be_read() -> None:
    assert decode_namespace("a/%FFb/%ED%A0%80/") == ("a", "\\xffb", "\ud800")


@given(namespaces, namespaces)
def test_no_two_namespaces_collide_and_a_prefix_stays_one(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    first, second = encode_namespace(one), encode_namespace(other)
    assert (first == second) == (one == other)
    assert second.startswith(first) == (other[: len(one)] == one)


@given(namespaces, namespaces)
def test_children_begin_with_their_parent(parent: tuple[str, ...], rest: tuple[str, ...]) -> None:
    assert encode_namespace(parent + rest) == encode_namespace(parent) + encode_namespace(rest)


@pytest.mark.parametrize("wrong", ["brain", ("a", 1), (None,), (b"a",)])
def test_what_is_no_tuple_of_strings_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="a namespace is a tuple of strings, not"):
        encode_namespace(wrong)


# --- fingerprints


keys = st.text(max_size=4) | st.integers() | st.tuples(st.integers(), st.text(max_size=2))
leaves = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4) | st.binary(max_size=4)
)


@given(st.dictionaries(keys, leaves | st.dictionaries(keys, leaves), max_size=6))
def test_the_order_of_a_dictionary_does_not_matter(data: dict[Any, Any]) -> None:
    turned = {
        key: dict(reversed(value.items())) if isinstance(value, dict) else value
        for key, value in reversed(data.items())
    }
    assert fingerprint(data) == fingerprint(turned)


@given(st.lists(st.integers(), unique=True, min_size=2))
def test_the_order_of_a_list_does(data: list[int]) -> None:
    assert fingerprint(data) != fingerprint(data[::-1])


def test_types_and_boundaries_are_told_apart() -> None:
    alike: list[tuple[Any, ...]] = [
        (1,),
        ("1",),
        (1.0,),
        (True,),
        (None,),
        ("None",),
        ("",),
        (),
        ([],),
        ({},),
        ((),),
        (set(),),
        ("ab", "c"),
        ("a", "bc"),
        ("abc",),
        (["ab", "c"],),
        ([["ab"], "c"],),
        (("ab", "c"),),
        ({"ab": "c"},),
        ({"a": {"b": "c"}},),
        ({1: "x"},),
        ({"1": "x"},),
        ([[1, "x"]],),
        (b"ab",),
        ({"$type": "bytes", "$value": "YWI="},),
    ]
    assert len({fingerprint(*request) for request in alike}) == len(alike)


def test_the_same_request_has_the_same_fingerprint_in_another_process() -> None:
    """Sets have another order there, as strings hash differently."""
    request = "{'tags': set('abcdefgh'), 1: {(1, 'x'): None}}"
    code = f"from langmem_adapters.keys import fingerprint; print(fingerprint({request}))"
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout.strip()
        for seed in ("1", "2", "3")
    }
    assert found == {fingerprint({"tags": set("abcdefgh"), 1: {(1, "x"): None}})}


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ((), "4f53cda18c2baa0c0354bb5f9a3ecbe5"),
        (("a", "b"), "0473ef2dc0d324ab659d3580c1134e9d"),
        (({"b": [1, 2.5, None, True], "a": "é \ud800 $"},), "57dcd8022cba9f63b3b9b6f5ad40b500"),
        (({"set": {"x", "y"}, 1: (b"z",)},), "b4ed64989961e2281a966be82bb557ef"),
        (("price: $type", {"$type": "set", "$value": ["b", "a"]}), "7c9a4f76529c9622090df074216497c7"),
        ((1e16, -0.0, float("inf"), float("nan"), 10**30), "d1f429b075d6a10849d674e4335219ea"),
    ],
    ids=range(6),
)
def test_a_fingerprint_is_what_it_was_in_earlier_versions(parts: tuple[Any, ...], expected: str) -> None:
    assert fingerprint(*parts) == expected


def test_a_fingerprint_is_short_and_tells_nothing() -> None:
    found = fingerprint("my-secret", {"prompt": "\ud800" * 100_000})
    assert len(found) == 32
    assert set(found) <= set("0123456789abcdef")


def test_what_is_no_data_has_no_fingerprint() -> None:
    with pytest.raises(SerializationError, match=r"value\[0\] is of type builtins.object"):
        fingerprint(object())
