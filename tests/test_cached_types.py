"""What type checkers see of decorated functions and methods: their arguments, what they return, and their cache.

It is mypy that tests this: it fails where a type is another, and where an error is not found that is ignored here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Generic, TypeVar

import pytest
from typing_extensions import assert_type

from langmem_adapters import Experience, cached
from langmem_adapters.experience import FunctionCache

T = TypeVar("T")


@cached(url="memory:")
def capital(country: str, *, language: str = "en") -> str:
    return f"{country} in {language}"


@cached(url="memory:")
async def acapital(country: str) -> str:
    return country


@cached(url="memory:")
def letters(text: str) -> Iterator[str]:
    yield from text


class Atlas(Generic[T]):
    def __init__(self, scale: T) -> None:
        self.scale = scale

    @cached(url="memory:")
    def capital(self, country: str, *, year: int = 2000) -> str:
        return f"{country} in {year}"

    @cached(url="memory:", key={"self": lambda atlas: atlas.scale})
    def scaled(self, by: int) -> list[T]:
        return [self.scale] * by

    @cached(url="memory:")
    async def acapital(self, country: str) -> str:
        return country

    @cached(url="memory:")
    def letters(self, text: str) -> Iterator[str]:
        yield from text

    @cached(url="memory:")
    async def aletters(self, text: str) -> AsyncIterator[str]:
        for letter in text:
            yield letter

    @cached(url="memory:")
    def title(self) -> str:
        return "Atlas"

    @classmethod
    @cached(url="memory:")
    def of(cls, country: str) -> str:
        return country

    @staticmethod
    @cached(url="memory:")
    def upper(country: str) -> str:
        return country.upper()

    @property
    @cached(url="memory:")
    def pages(self) -> int:
        return 100


class Globe(Atlas[str]):
    @cached(url="memory:")
    def capital(self, country: str, *, year: int = 2000) -> str:
        return super().capital(country, year=year)


def test_functions() -> None:
    assert_type(capital("France", language="fr"), str)
    assert_type(list(letters(text="ab")), list[str])
    called: Callable[[str], str] = capital
    assert called("France") == "France in en"
    with pytest.raises(TypeError):
        capital()  # type: ignore[call-arg]
    assert_type(capital.cache.lookup("France", language="fr"), Experience | None)
    assert_type(capital.cache.invalidate("France"), bool)
    with pytest.raises(TypeError):
        capital.cache.lookup(city="Paris")  # type: ignore[call-arg]
    cache: FunctionCache = capital.cache
    assert cache.stats()["hits"] == 0


def test_what_functools_gives_a_decorated_function() -> None:
    assert_type(capital.__name__, str)
    assert_type(Atlas(1).capital.__qualname__, str)
    assert_type(capital.__wrapped__("Spain"), str)
    assert capital.__wrapped__("Spain") == "Spain in en"
    assert (capital.__name__, Atlas(1).capital.__qualname__) == ("capital", "Atlas.capital")


def test_methods() -> None:
    atlas = Atlas(0.5)
    assert_type(atlas.capital("France", year=1800), str)
    assert_type(Atlas.capital.cache, FunctionCache)
    assert_type(atlas.capital.cache.lookup("Spain", year=1800), Experience | None)
    with pytest.raises(TypeError):
        atlas.capital.cache.lookup()  # type: ignore[call-arg]
    assert_type(atlas.scaled(2), list[float])
    assert_type(atlas.letters("ab"), Iterator[str])
    assert_type(atlas.aletters("ab"), AsyncIterator[str])
    assert_type(atlas.title(), str)
    assert_type(atlas.pages, int)
    assert_type(Globe("big").capital("France"), str)
    called: Callable[[str], str] = atlas.capital
    assert called("France") == Atlas.capital(atlas, "France") == "France in 2000"
    with pytest.raises(TypeError):
        atlas.capital()  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        atlas.capital("France", century=18)  # type: ignore[call-arg]
    assert list(atlas.letters(b"ab")) == [97, 98]  # type: ignore[arg-type, comparison-overlap]


async def test_coroutine_functions() -> None:
    atlas = Atlas(1)
    assert_type(await atlas.acapital("France"), str)
    assert_type(await acapital("Spain"), str)
    called: Callable[[str], Awaitable[str]] = atlas.acapital
    assert await called("France") == "France"
    assert [letter async for letter in atlas.aletters("ab")] == ["a", "b"]


def test_methods_of_classes() -> None:
    assert_type(Atlas.of("France"), str)
    assert_type(Atlas(1).of("France"), str)
    assert_type(Atlas.upper("France"), str)
    assert_type(Atlas(1).upper("France"), str)
