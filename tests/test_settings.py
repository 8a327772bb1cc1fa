"""The composition root: what is configured is what the services get."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from langmem_adapters.model import Experience, Message
from langmem_adapters.settings import Settings
from langmem_adapters.stores.sqlite import SQLiteStore


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/memory.db"


def test_the_services_of_one_url_share_one_store(url: str) -> None:
    settings, others = Settings(url=url), Settings(url=url, tenant="acme")
    brain = settings.brain("s", user="ada")
    assert brain.store is settings.store is others.store is settings.sessions().store
    assert settings.index is others.index
    brain.add_talk("Hello")
    assert [info.session for info in settings.sessions(user="ada").list_sessions()] == ["s"]
    assert others.sessions(user="ada").list_sessions() == []


def test_settings_reach_the_services(url: str) -> None:
    settings = Settings(url=url, tenant="acme", memory_k=3, similarity_top_k=2, ttl=60)
    brain = settings.brain("s", user="ada", long_term=True)
    assert (brain.memory_k, brain.ttl, brain.scope.tenant) == (3, 60, "acme")
    brain.add_messages([Message(role="user", content=f"bike {n}") for n in range(10)])
    assert brain.count() == 3
    assert len(settings.long_term(user="ada").search("bike")) == 2
    pool = settings.experiences("capitals", user="ada")
    pool.create(Experience(req="France", resp="Paris"))
    assert (pool.ttl, pool.scope.tenant, pool.scope.user, pool.tag) == (60, "acme", "ada", "capitals")
    assert settings.sessions().ttl == 60


def test_without_a_user_what_overflows_stays_with_the_session(url: str) -> None:
    settings = Settings(url=url, memory_k=1)
    for session in ("a", "b"):
        settings.brain(session, long_term=True).add_messages(
            [Message(role="user", content=f"bike of {session}"), Message(role="user", content="thanks")]
        )
    found = settings.brain("a", long_term=True).recall("bike")
    assert [recalled.text for recalled in found] == ["bike of a"]


def test_the_environment_is_read_when_settings_are_made(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    assert (Settings().memory_k, Settings().similarity_top_k, Settings().ttl, Settings().tenant) == (200, 5, None, "")
    monkeypatch.setenv("REDIS_URL", "redis://127.0.0.1:1/0")
    assert Settings().url == "redis://127.0.0.1:1/0"
    monkeypatch.setenv("LANGMEM_STORE_URL", url)
    monkeypatch.setenv("LANGMEM_TENANT", "acme")
    monkeypatch.setenv("LANGMEM_MEMORY_K", "7")
    monkeypatch.setenv("LANGMEM_SIMILARITY_TOP_K", "3")
    monkeypatch.setenv("LANGMEM_TTL", "1.5")
    settings = Settings()
    assert (settings.url, settings.tenant, settings.memory_k) == (url, "acme", 7)
    assert (settings.similarity_top_k, settings.ttl) == (3, 1.5)
    assert isinstance(settings.store, SQLiteStore)
    assert Settings(memory_k=9, url="memory:").memory_k == 9


@pytest.mark.parametrize("wrong", [{"memory_k": 0}, {"similarity_top_k": 0}, {"ttl": 0}, {"memroy_k": 5}])
def test_a_wrong_setting_is_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as refusal:
        Settings(**wrong)
    assert [flaw["loc"] for flaw in refusal.value.errors()] == [tuple(wrong)]


def test_a_wrong_variable_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANGMEM_MEMORY_K", "many")
    with pytest.raises(ValidationError) as refusal:
        Settings()
    assert [flaw["loc"] for flaw in refusal.value.errors()] == [("memory_k",)]


def test_making_settings_and_services_touches_no_file(url: str, tmp_path: Path) -> None:
    settings = Settings(url=url)
    settings.brain("s", user="ada", long_term=True)
    settings.experiences("capitals")
    settings.sessions()
    assert list(tmp_path.iterdir()) == []


def test_g3_a_password_is_in_no_repr() -> None:
    assert "my-secret" not in repr(Settings(url="redis://user:my-secret@127.0.0.1:1/0"))
