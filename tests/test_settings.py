"""The composition root: what is configured is what the services get."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from pydantic import BaseModel
from redis.connection import parse_url

from langmem_adapters import settings as module
from langmem_adapters.embedding import Embedder
from langmem_adapters.encryption import AESGCMCodec, new_key
from langmem_adapters.errors import ConfigurationError, MissingDependency
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
    settings = Settings(url=url, tenant="acme", memory_k=3, similarity_top_k=2, ttl=60, refresh="read")
    brain = settings.brain("s", user="ada", long_term=True)
    assert (brain.memory_k, brain.ttl, brain.refresh, brain.scope.tenant) == (3, 60, "read", "acme")
    brain.add_messages([Message(role="user", content=f"bike {n}") for n in range(10)])
    assert brain.count() == 3
    assert len(settings.long_term(user="ada").search("bike")) == 2
    assert (settings.long_term(user="ada").ttl, settings.long_term(session="s").ttl) == (None, 60)
    pool = settings.experiences("capitals", user="ada")
    pool.create(Experience(req="France", resp="Paris"))
    assert (pool.ttl, pool.scope.tenant, pool.scope.user, pool.tag) == (60, "acme", "ada", "capitals")
    similar = settings.experiences("capitals", user="ada", index=settings.index)
    assert [found.experience.resp for found in similar.query("the capital of France")] == ["Paris"]
    assert (settings.sessions().ttl, settings.sessions().refresh) == (60, "read")


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
    assert Settings().url == Settings(url="").url == "redis://127.0.0.1:1/0"
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
    assert Settings.model_validate(MappingProxyType({"url": "memory:"})).memory_k == 7


@pytest.mark.parametrize(
    "wrong",
    [
        {"memory_k": 0},
        {"similarity_top_k": 0},
        {"ttl": 0},
        {"ttl": float("inf")},
        {"refresh": "SECRET"},
        {"url": ["SECRET"]},
        {"enable_longterm_memory": "SECRET"},
        {"embedder": "SECRET"},
        {"ranker": "SECRET"},
    ],
)
def test_a_wrong_setting_is_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=rf"^the setting {next(iter(wrong))} is wrong: .+$") as refusal:
        Settings(**wrong)
    assert "SECRET" not in str(refusal.value)
    assert refusal.value.__context__ is None  # pydantic's own error holds the value


def test_an_unknown_setting_is_refused_with_the_known_ones() -> None:
    every = r"^there is no setting memroy_k; there are url, tenant, memory_k, .* embedder, ranker, codec, redactor$"
    with pytest.raises(ConfigurationError, match=every):
        Settings(memroy_k=5)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("variable", "value"), [("MEMORY_K", "many"), ("TTL", "-1"), ("TTL", "inf"), ("REFRESH", "sometimes")]
)
def test_a_wrong_variable_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    monkeypatch.setenv(f"LANGMEM_{variable}", value)
    with pytest.raises(ConfigurationError, match=f"^the setting LANGMEM_{variable} is wrong: "):
        Settings()


def test_every_setting_has_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [*module._ENVIRONMENT_VARIABLES, "embedder", "ranker", "codec", "redactor"] == list(Settings.model_fields)
    values = {"ENABLE_LONGTERM_MEMORY": "yes", "ENABLE_EXPERIENCE_READ": "0", "ENABLE_EXPERIENCE_WRITE": "false"}
    for name, value in values.items():
        monkeypatch.setenv(f"LANGMEM_{name}", value)
    settings = Settings()
    assert settings.enable_longterm_memory is True
    assert (settings.enable_experience_read, settings.enable_experience_write) == (False, False)


def test_switches_reach_the_services(url: str) -> None:
    settings = Settings(url=url, enable_longterm_memory=True, enable_experience_read=False)
    assert settings.brain("s").long_term is not None
    assert settings.brain("s", long_term=False).long_term is None
    assert Settings(url=url).brain("s").long_term is None
    pool = settings.experiences("capitals")
    assert (pool.enable_read, pool.enable_write) == (False, True)
    pool = Settings(url=url, enable_experience_write=False).experiences("capitals")
    assert (pool.enable_read, pool.enable_write) == (True, False)


def test_making_settings_and_services_touches_no_file(url: str, tmp_path: Path) -> None:
    settings = Settings(url=url)
    settings.brain("s", user="ada", long_term=True)
    settings.experiences("capitals")
    settings.sessions()
    assert list(tmp_path.iterdir()) == []


def test_g3_a_password_is_in_no_json_and_a_dump_in_python_makes_the_same_settings() -> None:
    settings = Settings(url="redis://user:my-secret@127.0.0.1:1/0", vectors_url="redis://:my-secret@127.0.0.1:1/0")
    for dumped in (settings.model_dump_json(), json.dumps(settings.model_dump(mode="json"))):
        assert "my-secret" not in dumped
        read = json.loads(dumped)
        assert read["url"] == "redis://user:***@127.0.0.1:1/0"
        assert read["vectors_url"] == "redis://:***@127.0.0.1:1/0"
        with pytest.raises(ConfigurationError, match="as it is printed and dumped"):
            assert Settings(**read).store
    assert Settings(**settings.model_dump()) == settings
    plain = Settings(url="sqlite:///x.db", tenant="acme")
    assert Settings.model_validate_json(plain.model_dump_json()) == plain


def test_a_dump_in_json_names_the_classes_of_objects() -> None:
    codec = AESGCMCodec({"k": new_key()})
    embedder = Embedder(lambda texts: [[1.0] for _ in texts], name="one")
    objects: dict[str, Any] = {"codec": codec, "redactor": str.strip, "embedder": embedder, "ranker": str.upper}
    settings = Settings(url="memory:", **objects)
    dumped = json.loads(settings.model_dump_json())
    assert {name: dumped[name] for name in objects} == {name: type(each).__name__ for name, each in objects.items()}
    assert settings.model_dump().items() >= objects.items()


def test_g3_a_password_is_in_no_repr() -> None:
    url = "redis://user:my-secret@127.0.0.1:1/0"
    assert "my-secret" not in repr(Settings(url=url, vectors_url=url))


# --- files

CONFIG2 = """
llm:
  api_key: "sk-SECRET"
redis:
  host: memory.example.org
  port: 32582
  password: "p@ss/w:rd %?#SECRET"
  db: "3"
exp_pool:
  enabled: true
  enable_read: true
  enable_write: false
  persist_path: .chroma_exp_data
  retrieval_type: chroma
  use_llm_ranker: false
role_zero:
  enable_longterm_memory: true
  longterm_memory_persist_path: .role_memory_data
  memory_k: 50
  similarity_top_k: 3
"""


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str | bytes], Path]:
    def write(text: str | bytes) -> Path:
        path = tmp_path / "config2.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def test_metagpt_s_own_file_is_read(written: Callable[[str], Path], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    settings = Settings.from_yaml(str(written(CONFIG2)))
    assert settings.url == "redis://:p%40ss%2Fw%3Ard%20%25%3F%23SECRET@memory.example.org:32582/3"
    assert (settings.memory_k, settings.similarity_top_k, settings.enable_longterm_memory) == (50, 3, True)
    assert (settings.enable_experience_read, settings.enable_experience_write) == (True, False)
    parsed = parse_url(settings.url)  # type: ignore[no-untyped-call]
    assert (parsed["password"], parsed["db"]) == ("p@ss/w:rd %?#SECRET", 3)
    assert "SECRET" not in repr(settings) + str(settings) + repr(settings.store) + caplog.text


@pytest.mark.parametrize(
    ("section", "url"),
    [
        ("{}", "redis://localhost:6379/0"),
        ('{host: h, port: "7", password: "", db: 1}', "redis://h:7/1"),
        ("{host: h, username: ada, password:}", "redis://ada@h:6379/0"),
        ("{host: h, username: 'a:b/c', password: 'x'}", "redis://a%3Ab%2Fc:x@h:6379/0"),
        ("{host: '::1', password: x}", "redis://:x@[::1]:6379/0"),
        ("{host: '[fe80::2]'}", "redis://[fe80::2]:6379/0"),
    ],
)
def test_the_url_of_a_redis_section(written: Callable[[str], Path], section: str, url: str) -> None:
    assert Settings.from_yaml(written(f"redis: {section}")).url == url


@pytest.mark.parametrize(
    ("section", "read", "write"),
    [
        ("{enabled: true, enable_read: true, enable_write: true}", True, True),
        ("{enabled: false, enable_read: true, enable_write: true}", False, False),
        ("{enabled: true}", False, False),
        ("{enable_read: true}", True, False),  # before there was "enabled"
        ("", True, True),  # no section: our own default
    ],
)
def test_switches_of_the_experience_pool(written: Callable[[str], Path], section: str, read: bool, write: bool) -> None:
    settings = Settings.from_yaml(written(f"exp_pool: {section}"))
    assert (settings.enable_experience_read, settings.enable_experience_write) == (read, write)


def test_what_counts_first(written: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(
        "redis: {host: theirs}\n"
        "role_zero: {memory_k: 1, similarity_top_k: 1}\n"
        "langmem: {url: 'memory:', memory_k: 2, ttl: 2, refresh: read, tenant: ours}\n"
    )
    settings = Settings.from_yaml(path)
    assert (settings.url, settings.memory_k, settings.similarity_top_k) == ("memory:", 2, 1)
    assert (settings.ttl, settings.refresh, settings.tenant) == (2, "read", "ours")
    monkeypatch.setenv("LANGMEM_MEMORY_K", "3")
    monkeypatch.setenv("LANGMEM_SIMILARITY_TOP_K", "3")
    monkeypatch.setenv("LANGMEM_TENANT", "")  # as good as not set
    monkeypatch.setenv("REDIS_URL", "redis://from-the-environment")
    settings = Settings.from_yaml(path, memory_k=4)
    assert (settings.memory_k, settings.similarity_top_k, settings.tenant) == (4, 3, "ours")
    assert settings.url == "redis://from-the-environment"
    assert Settings.from_yaml(path, url="memory:").url == "memory:"


@pytest.mark.parametrize(
    "text", ["", "# nothing\n", "redis:\nrole_zero:\nlangmem:\n", "redis: {host: YOUR_HOST, port: 32582}", "s3: [1]\n"]
)
def test_a_file_that_says_nothing_leaves_the_defaults(written: Callable[[str], Path], text: str) -> None:
    assert Settings.from_yaml(written(text)) == Settings()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("redis: {host: h, port: SECRET}", "the setting redis.port is wrong: "),
        ("redis: {host: h, port: 70000}", "the setting redis.port is wrong: "),
        ("redis: {host: h, password: 123456}", "the setting redis.password is wrong: "),
        ('redis: {host: h, password: "SECRET\\ud800"}', "the setting redis.password is wrong: it holds half of a"),
        ('redis: {host: h, username: "SECRET\\ud800"}', "the setting redis.username is wrong: it holds half of a"),
        ("redis: {host: h, db: SECRET}", "the setting redis.db is wrong: "),
        ("redis: {host: 'redis://:SECRET@h'}", "the setting redis.host is wrong: it is the name or the address"),
        ("redis: {host: 'h:6379'}", "the setting redis.host is wrong: "),
        ("redis: SECRET", "the section redis is not made of names and values"),
        ("role_zero: {memory_k: 0}", "the setting role_zero.memory_k is wrong: "),
        ("exp_pool: {enable_read: SECRET}", "the setting exp_pool.enable_read is wrong: "),
        ("langmem: {memory_k: SECRET}", "the setting memory_k is wrong: "),
        ("langmem: {memroy_k: 5}", "there is no setting langmem.memroy_k; there are url, tenant, memory_k"),
        ("langmem: {1: 5}", "there is no setting langmem.1; there are"),
        ("memory_k: 5", "the setting memory_k belongs in the section langmem"),
        ("url: 'redis://:SECRET@h'\nlangmem: {}", "the setting url belongs in the section langmem"),
        ("langmem: [SECRET]", "the section langmem is not made of names and values"),
        ("- SECRET", "is not a YAML file of settings: settings are names and values"),
        ("a: 1\nredis: {password: 'SECRET\n", "is not a YAML file of settings, line 3"),
        ("redis: !!python/object:os.system {password: SECRET}", "is not a YAML file of settings, line 1"),
        (b"redis: \xff\xfe SECRET", "is not a YAML file of settings"),
        ("day: 2024-99-99", "is not a YAML file of settings"),
        ("on: !!bool SECRET", "is not a YAML file of settings"),
        ("number: !!int '-'", "is not a YAML file of settings"),
        ("day: !!timestamp SECRET", "is not a YAML file of settings"),
        ("[" * 1000, "is not a YAML file of settings"),
    ],
)
def test_a_wrong_file_is_refused_in_one_sentence(
    written: Callable[[str | bytes], Path], text: str | bytes, sentence: str
) -> None:
    path = written(text)
    with pytest.raises(ConfigurationError) as refusal:
        Settings.from_yaml(path)
    said = str(refusal.value)
    assert said.startswith(str(path))
    assert sentence in said
    assert "SECRET" not in said
    assert "\n" not in said
    assert refusal.value.__context__ is None  # a parser's own error quotes the file


def test_what_is_wrong_outside_of_the_file_is_not_blamed_on_it(
    written: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(CONFIG2)
    with pytest.raises(ConfigurationError, match=r"^the setting ttl is wrong"):
        Settings.from_yaml(path, ttl=-1)
    with pytest.raises(ConfigurationError, match=r"^there is no setting password;"):
        Settings.from_yaml(path, password="SECRET")
    monkeypatch.setenv("LANGMEM_MEMORY_K", "many")
    with pytest.raises(ConfigurationError, match=r"^the setting LANGMEM_MEMORY_K is wrong"):
        Settings.from_yaml(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"absent\.yaml cannot be read: No such file"):
        Settings.from_yaml(tmp_path / "absent.yaml")
    with pytest.raises(ConfigurationError, match="cannot be read: Is a directory"):
        Settings.from_yaml(tmp_path)


def test_without_pyyaml_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(MissingDependency, match=r"PyYAML is not installed.*langmem_adapters\[yaml\]"):
        Settings.from_yaml(tmp_path / "config2.yaml")


def test_each_name_in_memory_is_a_place_of_its_own() -> None:
    """As for the tests of an application, which are to find nothing of each other."""
    one, other = Settings(url="memory:one"), Settings(url="memory:other")
    one.brain("s", user="ada").add_talk("My bike is in the shed.")
    one.long_term(user="ada").add([Message(role="user", content="My bike is in the shed.")])
    assert Settings(url="memory:one").brain("s", user="ada").count() == 1
    assert len(Settings(url="memory:one").long_term(user="ada").search("bike")) == 1
    assert other.brain("s", user="ada").count() == 0
    assert other.long_term(user="ada").search("bike") == []


def test_settings_within_the_settings_of_an_application_have_a_json_schema() -> None:
    class Application(BaseModel):
        memory: Settings

    schema = Application.model_json_schema()["$defs"]["Settings"]
    assert set(schema["properties"]) == set(Settings.model_fields)
    assert schema["properties"]["redactor"]["type"] == "null"  # JSON has no functions
    assert Application.model_validate_json('{"memory": {"url": "memory:", "redactor": null}}').memory.url == "memory:"
