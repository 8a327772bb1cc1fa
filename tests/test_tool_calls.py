"""Ids of tool calls: renamed where they are ids, and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest

from langmem_adapters.providers.tool_calls import call_ids, replace_call_ids, with_new_call_ids

NAMES = {"7": "call new"}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"tool_calls": [{"id": "7", "name": "look"}]}, {"tool_calls": [{"id": "call new", "name": "look"}]}),
        ({"invalid_tool_calls": [{"id": "7"}]}, {"invalid_tool_calls": [{"id": "call new"}]}),
        ({"tool_call_id": "7", "content": "7"}, {"tool_call_id": "call new", "content": "7"}),
        (
            [{"type": "tool_use", "id": "7", "input": {"id": "7"}}],
            [{"type": "tool_use", "id": "call new", "input": {"id": "7"}}],
        ),
        ([{"type": "tool_result", "tool_use_id": "7"}], [{"type": "tool_result", "tool_use_id": "call new"}]),
        (
            {"type": "function_call", "call_id": "7", "id": "fc"},
            {"type": "function_call", "call_id": "call new", "id": "fc"},
        ),
        (
            {"additional_kwargs": {"tool_calls": [{"id": "7", "type": "function", "function": {"name": "7"}}]}},
            {"additional_kwargs": {"tool_calls": [{"id": "call new", "type": "function", "function": {"name": "7"}}]}},
        ),
        ({"additional_kwargs": {"signatures": {"7": "7"}}}, {"additional_kwargs": {"signatures": {"call new": "7"}}}),
        (
            {"additional_kwargs": {"reasoning_details": [{"type": "reasoning.encrypted", "id": "7", "data": "7"}]}},
            {
                "additional_kwargs": {
                    "reasoning_details": [{"type": "reasoning.encrypted", "id": "call new", "data": "7"}]
                }
            },
        ),
    ],
)
def test_an_id_is_renamed_wherever_a_host_repeats_it(data: Any, expected: Any) -> None:
    assert replace_call_ids(data, NAMES) == expected


@pytest.mark.parametrize(
    "data",
    [
        {
            "tool_calls": [
                {"id": "8", "name": "7", "args": {"id": "7", "tool_call_id": "7", "tool_calls": [{"id": "7"}]}}
            ]
        },
        {"role": "tool", "content": "7", "name": "7", "id": "7"},
        {"content": [{"type": "text", "text": "7", "id": "7"}]},
        {"artifact": {"tool_calls": [{"id": "7"}]}},
        {"response_metadata": {"7": "a", "8": "b"}, "additional_kwargs": {}},
        {"host": {"llama_index": {"blocks": [{"tool_kwargs": {"call_id": "7"}}]}}},
    ],
)
def test_what_only_reads_like_an_id_stays(data: Any) -> None:
    assert replace_call_ids(data, NAMES) == data


def test_ids_are_renamed_where_a_host_lists_them() -> None:
    """As streams of LlamaIndex' BedrockConverse list all calls of a message beside it."""
    listed = {"additional_kwargs": {"tool_call_id": ["7", "other", None, ["7"]], "status": ["7"]}}
    new = {"additional_kwargs": {"tool_call_id": [NAMES["7"], "other", None, ["7"]], "status": ["7"]}}
    assert replace_call_ids(listed, NAMES) == new


def test_an_id_that_is_the_name_of_its_tool_means_something() -> None:
    calls = [{"id": "look", "name": "look"}, {"id": "a", "name": "look"}, {"id": "", "name": "b"}, {"name": "c"}]
    assert call_ids(calls) == ["a"]


def test_a_new_id_has_the_form_that_its_provider_takes() -> None:
    """Mistral takes nine letters and digits; LiteLLM keeps Gemini's signature of a call in its id."""
    ids = ["a1B2c3D4e", "call_abc__thought__c2lnbmVk", "toolu_1"]
    calls = [{"id": id_, "name": "look", "args": {}} for id_ in ids]
    numbers = iter("123456")
    first, second = (
        [call["id"] for call in with_new_call_ids({"tool_calls": calls}, lambda: next(numbers) * 32)["tool_calls"]]
        for _ in range(2)
    )
    for mistral, gemini, other in (first, second):
        assert len(mistral) == 9
        assert mistral.isalnum()
        assert mistral.isascii()
        assert gemini.startswith("call_")
        assert gemini.endswith("__thought__c2lnbmVk")
        assert other.startswith("call_")
    assert not {*first, *second} & {*ids}
    assert len({*first, *second}) == 6
