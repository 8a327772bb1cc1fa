"""What type checkers see of the public names.

It is mypy that tests this: it fails where a type is another, and where an error is not found that is ignored here.
"""

from __future__ import annotations

import pytest
from typing_extensions import assert_type

import langmem_adapters
import langmem_adapters.langchain
from langmem_adapters import *  # noqa: F403 - what is tested
from langmem_adapters.langchain import *  # noqa: F403 - what is tested


def test_every_name_is_seen_and_no_other() -> None:
    made: type[langmem_adapters.BrainMemory] = BrainMemory  # noqa: F405 - what is tested
    model: type[langmem_adapters.langchain.CachedChatModel] = CachedChatModel  # noqa: F405 - what is tested
    assert_type(made.__name__ + model.__name__, str)
    for package in (langmem_adapters, langmem_adapters.langchain):
        assert sorted(package.__all__) == sorted(package._WHERE)
    with pytest.raises(AttributeError, match="BrainMemmory"):
        langmem_adapters.BrainMemmory  # type: ignore[attr-defined] # noqa: B018 - a name that was mistyped
    with pytest.raises(ImportError, match="CachedModel"):
        from langmem_adapters.langchain import CachedModel  # type: ignore[attr-defined] # noqa: F401, PLC0415 - same
