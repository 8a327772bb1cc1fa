"""The codec: nothing is lost, nothing is built but plain data."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import decimal
import enum
import json
import math
import sys
import traceback
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from typing_extensions import Self

from langmem_adapters.codec import decode, encode, is_tagged, parse_json, to_plain
from langmem_adapters.errors import SerializationError


def _no_pair(text: str) -> bool:
    """Two surrogates that stand for one character are that character in JSON."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass") == text


texts = st.text(st.characters(codec=None)).filter(_no_pair) | st.sampled_from(["$type", "$value", "\ud800", "\x00"])
offsets = st.integers(-720, 720).map(lambda minutes: dt.timezone(dt.timedelta(minutes=minutes)))
hashable = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    texts,
    st.binary(),
    st.datetimes(timezones=st.none() | offsets),
    st.dates(),
    st.times(),
    st.timedeltas(),
    st.decimals(allow_nan=False),
    st.uuids(),
)
values = st.recursive(
    hashable,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.sets(hashable, max_size=4),
        st.frozensets(hashable, max_size=4),
        st.dictionaries(texts, inner, max_size=4),
        st.dictionaries(hashable | st.tuples(hashable, hashable), inner, max_size=4),
    ),
    max_leaves=20,
)


def _typed(value: Any) -> Any:
    """The value with its types, as 1 == 1.0 == True."""
    if isinstance(value, dict):
        return dict, tuple((_typed(k), _typed(v)) for k, v in value.items())
    if isinstance(value, set | frozenset):
        return type(value), frozenset(_typed(item) for item in value)
    if isinstance(value, list | tuple):
        return type(value), tuple(_typed(item) for item in value)
    return type(value), value, math.copysign(1, value) if isinstance(value, float) else None


@given(values)
def test_every_plain_value_comes_back_with_its_types(value: Any) -> None:
    assert _typed(decode(encode(value))) == _typed(value)


@pytest.mark.parametrize("value", [math.inf, -math.inf, -0.0, 5e-324, 10**3999, -(10**3999), 2**64])
def test_numbers_at_the_edge(value: float) -> None:
    assert _typed(decode(encode([value]))) == _typed([value])


def test_nan_stays_nan() -> None:
    assert math.isnan(decode(encode(math.nan)))
    assert decode(encode(decimal.Decimal("NaN"))).is_nan()


@pytest.mark.parametrize("make", [dict.fromkeys, set, lambda keys: {1: {(key,): 0 for key in keys}}])
def test_keys_that_are_one_text_when_stored_are_refused_and_others_are_kept(make: Callable[..., Any]) -> None:
    value = make(["\ud83d\ude00", "\ude00\ud83d", "\ud83d", ""])
    assert len(decode(encode([value]))[0]) == len(value)
    with pytest.raises(SerializationError, match="two keys, one of them with a character in two halves"):
        encode([make(["\ud83d\ude00", "\U0001f600"])])


@given(st.dictionaries(st.sampled_from(["$type", "$value", "x"]), st.sampled_from(["bytes", "dict", "", 1]) | values))
def test_the_codecs_own_marks_in_a_users_data_are_data(value: Any) -> None:
    assert _typed(decode(encode(value))) == _typed(value)
    assert _typed(decode(encode({"nested": [value]}))) == _typed({"nested": [value]})


# --- what has another type, and what cannot be kept


class _Colour(enum.Enum):
    RED = "red"


class _Named(str, enum.Enum):
    BLUE = "blue"


class _Model(BaseModel):
    inner: tuple[int, ...] = (1, 2)


@dataclasses.dataclass
class _Row:
    data: bytes = b"\x00"


def test_models_dataclasses_and_enum_members_become_plain_data() -> None:
    value = {"model": _Model(), "row": _Row(), "named": _Named.BLUE}
    assert decode(encode(value)) == {"model": {"inner": (1, 2)}, "row": {"data": b"\x00"}, "named": "blue"}


class _Masked(str):
    __slots__ = ()
    value = "another"

    def __str__(self) -> str:
        return "***"


class _Money(decimal.Decimal):
    def __str__(self) -> str:
        return f"${super().__str__()}"


class _Labelled(str, enum.Enum):
    GREEN = "green", "Green!"

    def __new__(cls, text: str, label: str) -> Self:
        member = str.__new__(cls, text)
        member._value_ = label
        return member


@pytest.mark.parametrize(
    ("value", "plain"),
    [(_Masked("secret"), "secret"), (_Money("3.5"), decimal.Decimal("3.5")), (_Labelled.GREEN, "green")],
)
def test_a_subclass_is_written_as_what_it_is_not_as_what_it_shows(value: Any, plain: Any) -> None:
    assert _typed(decode(encode([value]))) == _typed([plain])


@pytest.mark.parametrize("kind", [set, frozenset])
def test_a_set_is_written_in_one_order(kind: Callable[[Any], Any]) -> None:
    one, same = (kind([frozenset(numbers), *numbers, "a"]) for numbers in ([0, 8], [8, 0]))
    assert (one, encode(one)) == (same, encode(same))
    assert [list(frozenset(numbers)) for numbers in ([0, 8], [8, 0])] == [[0, 8], [8, 0]]  # as words in two processes


def test_plain_data_is_not_copied() -> None:
    value = {"a": [1, "x", None, {"b": 2.0}]}
    assert to_plain(value) is value


@pytest.mark.parametrize("thing", [object(), _Colour.RED, len, _Model, 1j, bytearray(b"x")])
def test_what_is_no_data_is_refused_in_one_sentence_that_names_the_place(thing: Any) -> None:
    with pytest.raises(SerializationError) as refusal:
        encode({"messages": [{"args": (1, thing)}]})
    sentence = str(refusal.value)
    assert sentence.startswith("value.messages[0].args[1] is of type ")
    assert sentence.endswith(", which cannot be stored as data")
    assert "\n" not in sentence


def test_a_refusal_stays_short_whatever_the_keys_are() -> None:
    with pytest.raises(SerializationError) as refusal:
        encode({"k" * 10_000: {("t" * 10_000,): object()}})
    assert len(str(refusal.value)) < 400


def test_an_integer_that_python_would_not_read_again_is_refused() -> None:
    with pytest.raises(SerializationError, match=r"value\.n is an integer of more than 4,000 digits"):
        encode({"n": 10**4400})


def _nested(kind: str, depth: int) -> Any:
    value: Any = "core"
    for _ in range(depth):
        value = {"list": [value], "tuple": (value,), "dict": {"k": value}, "pairs": {1: value}}[kind]
    return value


@pytest.mark.parametrize(("kind", "levels"), [("list", 1), ("dict", 1), ("tuple", 2), ("pairs", 3)])
def test_what_can_be_written_can_be_read_up_to_the_limit_of_depth(kind: str, levels: int) -> None:
    deepest = 200 // levels
    value = _nested(kind, deepest)
    assert decode(encode(value)) == value
    with pytest.raises(SerializationError, match="nested more than 200 levels deep"):
        encode(_nested(kind, deepest + 1))


@pytest.mark.parametrize("core", ['"core"', '"\\ud800"'])  # the latter has a reader of its own
@pytest.mark.parametrize(("opened", "closed"), [("[", "]"), ('{"k":', "}")])
def test_c6_what_is_deeper_than_anything_that_is_written_is_refused(opened: str, closed: str, core: str) -> None:
    def data(depth: int) -> bytes:
        return f"{opened * depth}{core}{closed * depth}".encode()

    assert encode(decode(data(200))) == encode(json.loads(data(200)))
    for depth in (202, 400):
        json.loads(data(depth))  # by which others would have to walk through it
        with pytest.raises(SerializationError, match="too deep"):
            decode(data(depth))


def test_a_value_that_holds_itself_is_refused() -> None:
    circle: list[Any] = [1]
    circle += [circle, circle]
    with pytest.raises(SerializationError, match="nested more than"):
        encode(circle)


def test_little_room_on_the_stack_is_an_error_of_ours() -> None:
    def fall(depth: int) -> bytes:
        return fall(depth - 1) if depth else encode(_nested("pairs", 60))

    frame, used = sys._getframe(), 0
    while frame.f_back is not None:
        frame, used = frame.f_back, used + 1
    with pytest.raises(SerializationError, match="too deep"):
        fall(sys.getrecursionlimit() - used - 30)


# --- hostile bytes


HOSTILE = [
    b'{"$type":"os.system","$value":"true"}',
    b'{"$type":"antigravity","$value":[]}',
    b'{"$type":["bytes"],"$value":""}',
    b'{"$type":null,"$value":1}',
    b'{"$type":"bytes"}',
    b'{"$type":"bytes","$value":"not base64!"}',
    b'{"$type":"bytes","$value":5}',
    b'{"$type":"uuid","$value":5}',
    b'{"$type":"datetime","$value":"my-secret"}',
    b'{"$type":"timedelta","$value":[1e300]}',
    b'{"$type":"timedelta","$value":[99999999999999999999]}',
    b'{"$type":"decimal","$value":"my-secret"}',
    b'{"$type":"decimal","$value":"1e99999999999999999999"}',
    b'{"$type":"set","$value":[[1]]}',
    b'{"$type":"dict","$value":[[[1],2]]}',
    b'{"$type":"dict","$value":[1]}',
    b'{"$type":"tuple","$value":7}',
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b'[{"$type":"tuple","$value":' * 5_000,
    b"9" * 5_000,
    b"",
    b"\xff\xfe\x00",
    b"my-secret",
    b'{"a":1} my-secret',
]


@pytest.mark.parametrize("data", HOSTILE, ids=lambda data: data[:40].decode("latin-1"))
def test_hostile_bytes_are_refused_and_import_nothing(data: bytes) -> None:
    before = set(sys.modules)
    with pytest.raises(SerializationError) as refusal:
        decode(data)
    assert set(sys.modules) == before
    assert "my-secret" not in "".join(traceback.format_exception(refusal.value))


@given(values, st.data())
def test_truncated_and_altered_bytes_never_raise_anything_else(value: Any, data: st.DataObject) -> None:
    whole = encode(value)
    at = data.draw(st.integers(0, len(whole)))
    with contextlib.suppress(SerializationError):
        decode(whole[:at])
    with contextlib.suppress(SerializationError):
        decode(whole[:at] + data.draw(st.binary(min_size=1, max_size=3)) + whole[at + 1 :])


@given(st.binary())
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    with contextlib.suppress(SerializationError):
        decode(data)


def test_uuid_and_dates_are_read_as_what_they_were() -> None:
    value = {
        "id": uuid.UUID(int=5),
        "at": dt.datetime(2026, 1, 2, 3, tzinfo=dt.timezone.utc),
        "day": dt.date(2026, 1, 2),
    }
    assert _typed(decode(encode(value))) == _typed(value)


# --- JSON of others

_numbers = st.from_regex(r"-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)
_strings = st.from_regex(
    r'"([a-z$]|\\u[dD][89a-fA-F][0-9a-f]{2}|\\[bfnrt/"\\]|\\u00[0-9a-f]{2}|[\x00-\x20]){0,6}"', fullmatch=True
)
_words = st.sampled_from(
    ["null", "true", "NaN", "-Infinity", "Infinity", "-NaN", "nul", "01", "1.", "-", "[,]", "\ufeff1", ""]
)
_json = st.recursive(
    st.one_of(_numbers, _strings, _words, texts.map(json.dumps), texts.map(lambda text: f'"{text}"')),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: "[" + ",".join(items) + "]"),
        st.lists(st.tuples(_strings, inner), max_size=3).map(
            lambda items: " { " + " , ".join(f"{key} : {value}" for key, value in items) + " } "
        ),
    ),
    max_leaves=8,
)


def _read(read: Callable[[Any], Any], text: str | bytes) -> str:
    """What comes of it, with types and order; NaN is itself here."""
    try:
        return repr(read(text))
    except (ValueError, RecursionError):
        return "refused"


@given(_json)
def test_json_is_read_as_the_standard_library_does(text: str) -> None:
    assert _read(parse_json, text) == _read(json.loads, text)


@pytest.mark.parametrize(
    "text",
    ["[" * depth + "]" * depth for depth in (199, 200, 201, 300, 100_000)]
    + ["9" * 4300, "9" * 4301, '{"a":1,"b":2,"a":3}', '"\\ud83d\\ude00"', '"\\ude00\\ud83d"', "-0", "1e400", "5e-324"],
    ids=lambda text: text[:12],
)
def test_json_at_the_edge_is_read_as_the_standard_library_does(text: str) -> None:
    assert _read(parse_json, text) == _read(json.loads, text)
    assert _read(parse_json, text.encode()) == _read(json.loads, text.encode())


@pytest.mark.parametrize(
    ("data", "tagged"),
    [
        (b'{"$type":"bytes","$value":""}', True),
        (b'{"a":"$type"}', True),
        (b'{"a":"$ 5","b":"type"}', False),
        (b'{"a":"$typ"}', False),
        (b"{}", False),
    ],
)
def test_what_may_be_tagged(data: bytes, tagged: bool) -> None:
    assert is_tagged(data) is tagged
