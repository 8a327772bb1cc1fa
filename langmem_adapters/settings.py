"""Settings: the one place that puts stores, indexes and services together."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    field_serializer,
    field_validator,
    model_validator,
)
from typing_extensions import Self

from langmem_adapters.brain import BrainMemory
from langmem_adapters.completion import Completer
from langmem_adapters.embedding import Embedder
from langmem_adapters.erasure import Report, delete_user_flow
from langmem_adapters.errors import ConfigurationError
from langmem_adapters.experience import ExperiencePool
from langmem_adapters.expiry import Refresh
from langmem_adapters.files.locations import expand_home
from langmem_adapters.files.urls import URL_VARIABLES, anchored_url, default_url
from langmem_adapters.flow import Flow, arun, run, step
from langmem_adapters.indexes import shared_vectors
from langmem_adapters.keys import Namespace
from langmem_adapters.longterm import LongTermMemory
from langmem_adapters.protection import every_index, protected_index, protected_store, vectors_url
from langmem_adapters.protocols import Index, Store
from langmem_adapters.sealing import Redactor, check_codec
from langmem_adapters.sessions import Sessions
from langmem_adapters.settings_file import Config2, langmem_section, read_document
from langmem_adapters.stores import masked_url
from langmem_adapters.text import decode_escaped_utf8
from langmem_adapters.validation import check_sync_function
from langmem_adapters.working import TWELVE_HOURS, WorkingMemory

_PLAIN_SETTINGS = (
    *("tenant", "memory_k", "similarity_top_k", "ttl", "refresh", "enable_longterm_memory"),
    *("enable_experience_read", "enable_experience_write", "vectors_url"),
)
_OBJECT_CHECKS: dict[str, Callable[[Any], object]] = {
    "embedder": Embedder.of,
    "ranker": Completer,
    "codec": check_codec,
    "redactor": partial(check_sync_function, "it"),
}
_ENVIRONMENT_VARIABLES = {"url": URL_VARIABLES, **{name: (f"LANGMEM_{name.upper()}",) for name in _PLAIN_SETTINGS}}


class Settings(BaseModel):
    """Where memory is kept and how much of it is shown; a factory of the services that use it.

    Settings that are not given are read from the environment: ``LANGMEM_STORE_URL`` (else ``REDIS_URL``), and for each
    other plain value a variable of its name, such as ``LANGMEM_MEMORY_K``. Raises ConfigurationError, which names the
    wrong setting and quotes no value. ``repr`` shows no URL. ``model_dump_json`` shows *** instead of a password, which
    no store accepts, and of an object its class; ``model_dump``, from which settings can be made again, has the
    password and the objects themselves.

    Args:
        url, tenant: The store's URL, see :func:`~langmem_adapters.open_store` (kept with an absolute path); and the
            tenant that owns all data.
        memory_k, similarity_top_k: How many messages a window shows (200), and how many memories a search returns (5).
        ttl: Seconds after which sessions, experiences and working memory expire; a user's long-term memory does not.
        refresh: What restarts the ttl of a session: each "write", each "read" too, or "never" anything.
        enable_longterm_memory: Whether sessions have a long-term memory, if :meth:`brain` is not told.
        enable_experience_read, enable_experience_write: Whether experiences are looked up, and kept.
        vectors_url: Where vectors are, if not beside the lexical index; see :func:`~langmem_adapters.open_vectors`.
        embedder, ranker: A model that finds memories by meaning, and one that reorders the memories found.
        codec, redactor: Encrypts what is stored; first removes from texts what must not be stored. See SealedStore.

    >>> brain = Settings(url="memory:").brain("session-1", user="ada")
    >>> brain.add_talk("Where is my bike?")
    >>> brain.count()
    1
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    url: str = Field(default_factory=default_url, validate_default=True, repr=False)
    tenant: str = ""
    memory_k: int = Field(default=200, ge=1)
    similarity_top_k: int = Field(default=5, ge=1)
    ttl: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    refresh: Refresh = "write"
    enable_longterm_memory: bool = False
    enable_experience_read: bool = True
    enable_experience_write: bool = True
    vectors_url: str | None = Field(default=None, repr=False)
    embedder: Any = Field(default=None, repr=False)
    ranker: Any = Field(default=None, repr=False)
    codec: Any = Field(default=None, repr=False)
    redactor: Annotated[Redactor | None, WithJsonSchema({"type": "null"})] = Field(default=None, repr=False)

    if not TYPE_CHECKING:  # type checkers see the fields

        def __init__(self, **given: Any) -> None:
            try:
                super().__init__(**given)
            except ValidationError as error:
                sentence = _describe_error(error, given)
            else:
                return
            raise ConfigurationError(sentence)  # outside the except, as pydantic's error holds the values

    @classmethod
    def from_yaml(cls, path: str | os.PathLike[str], **given: Any) -> Self:
        """Read the section ``langmem`` of a file, and MetaGPT's own sections ``redis``, ``role_zero`` and ``exp_pool``.

        Arguments ``given`` come first, then the environment, then ``langmem``, which uses the names of this class,
        then MetaGPT's. Other sections are ignored, so that the file may be MetaGPT's ``config2.yaml``. Needs PyYAML.

        Raises ConfigurationError, which names the wrong setting, and MissingDependency.
        """
        document = read_document(expand_home(path))
        cls(**given)  # errors here are in the arguments; those below, in the file
        try:
            metagpt_settings = Config2.model_validate(document).settings()
            langmem_settings = langmem_section(document, _ENVIRONMENT_VARIABLES)
            settings = cls(**(metagpt_settings | langmem_settings | _environment_settings() | given))
        except ValidationError as error:
            sentence = _describe_error(error, document)
        except ConfigurationError as error:
            sentence = str(error)
        else:
            return settings
        raise ConfigurationError(f"{path}: {sentence}")

    @model_validator(mode="before")
    @classmethod
    def _add_environment(cls, given: Any) -> Any:
        return {**_environment_settings(), **given} if isinstance(given, Mapping) else given

    @field_serializer("url", "vectors_url", when_used="json")
    def _mask_password(self, url: str | None) -> str | None:
        return masked_url(url)

    @field_serializer("embedder", "ranker", "codec", "redactor", when_used="json-unless-none")
    def _name_class(self, value: object) -> str:
        return type(value).__name__

    @field_validator("url")
    @classmethod
    def _anchor_url(cls, url: str) -> str:
        return anchored_url(url or default_url())  # as open_store takes "": the command line compares it with files

    @field_validator("vectors_url")
    @classmethod
    def _anchor_vectors_url(cls, url: str | None) -> str | None:
        return None if url is None else anchored_url(url)

    @field_validator(*_OBJECT_CHECKS)
    @classmethod
    def _check_object(cls, value: Any, info: ValidationInfo) -> Any:
        if value is not None:
            _OBJECT_CHECKS[str(info.field_name)](value)
        return value

    @property
    def store(self) -> Store:
        """The store that this process has for the URL, behind ``codec`` and ``redactor`` if they are given."""
        return protected_store(self.url, self.codec, self.redactor)

    @property
    def index(self) -> Index:
        """The lexical index that this process has for the URL; with a ``codec``, one that writes no words to disk."""
        return protected_index(self.url, self.codec)

    def brain(self, session: str, *, user: str = "", long_term: bool | None = None) -> BrainMemory:
        """The short-term memory of a session.

        With ``long_term`` (default: ``enable_longterm_memory``), messages that leave its window move to the user's
        long-term memory (to the session's own, if there is no user) instead of staying in the history.
        """
        has_long_term = self.enable_longterm_memory if long_term is None else long_term
        return BrainMemory(
            self.store,
            session,
            user=user,
            tenant=self.tenant,
            memory_k=self.memory_k,
            long_term=self.long_term(user=user, session=session) if has_long_term else None,
            ttl=self.ttl,
            refresh=self.refresh,
        )

    def long_term(self, *, user: str = "", session: str = "") -> LongTermMemory:
        """The long-term memory of a user; without a user, that of a session, which expires with the session."""
        url = self.vectors_url or vectors_url(self.url, self.codec)
        return LongTermMemory(
            self.store,
            self.index,
            vectors=None if self.embedder is None else shared_vectors(url, self.embedder),
            ranker=self.ranker,
            user=user,
            tenant=self.tenant,
            session=session,
            similarity_top_k=self.similarity_top_k,
            ttl=None if user else self.ttl,
        )

    def experiences(self, tag: str, *, user: str = "", index: Index | None = None) -> ExperiencePool:
        """The experiences under a tag; with an ``index``, such as :attr:`index`, it also finds similar ones."""
        return ExperiencePool(
            self.store,
            tag=tag,
            user=user,
            tenant=self.tenant,
            index=index,
            ttl=self.ttl,
            enable_read=self.enable_experience_read,
            enable_write=self.enable_experience_write,
        )

    def working(self, *, user: str = "") -> WorkingMemory:
        """The working memory of a user's conversations; if the settings have no ``ttl``, it expires after 12 hours."""
        ttl = TWELVE_HOURS if self.ttl is None else self.ttl
        return WorkingMemory(self.store, user=user, tenant=self.tenant, ttl=ttl)

    def sessions(self, *, user: str = "") -> Sessions:
        """The sessions of a user."""
        return Sessions(self.store, user=user, tenant=self.tenant, ttl=self.ttl, refresh=self.refresh)

    def delete_user(
        self, user: str, *, items: Sequence[Namespace] | None = None, report: Report | None = None
    ) -> dict[str, int]:
        """Delete all data of a user in the store and in the indexes of this machine, and traces of it in their files.

        Returns how much was deleted, by place. See :func:`langmem_adapters.erasure.delete_user`.
        """
        return run(self.delete_user_flow(user, items=items, report=report))

    async def adelete_user(
        self, user: str, *, items: Sequence[Namespace] | None = None, report: Report | None = None
    ) -> dict[str, int]:
        """:meth:`delete_user`, without blocking the event loop."""
        return await arun(self.delete_user_flow(user, items=items, report=report))

    def delete_user_flow(
        self, user: str, *, items: Sequence[Namespace] | None = None, report: Report | None = None
    ) -> Flow[dict[str, int]]:
        """:meth:`delete_user`, as a part of a larger flow."""
        url, codec, vectors = self.url, self.codec, self.vectors_url
        indexes = yield from step(every_index, url, codec=codec, vectors=vectors, embedder=self.embedder)
        erasure = delete_user_flow(self.store, indexes, user=user, tenant=self.tenant, items=items, report=report)
        return (yield from erasure)


def _environment_settings() -> dict[str, str]:
    """The settings in the environment: for each, the first of its variables that is not empty."""
    settings = {}
    for name, variables in _ENVIRONMENT_VARIABLES.items():
        if value := next(filter(None, map(os.environ.get, variables)), None):
            settings[name] = decode_escaped_utf8(value) if name == "tenant" else value  # others may be paths
    return settings


def _describe_error(error: ValidationError, given: Mapping[str, Any]) -> str:
    """What is wrong with a setting, or with the variable in the environment if the setting was not ``given``."""
    first_error = error.errors(include_input=False, include_context=False, include_url=False)[0]
    setting = str(first_error["loc"][0])
    name = ".".join(map(str, first_error["loc"])) if setting in given else _ENVIRONMENT_VARIABLES[setting][0]
    if first_error["type"] == "extra_forbidden":
        return f"there is no setting {name}; there are {', '.join(Settings.model_fields)}"
    if first_error["type"] == "model_type":
        return f"the section {name} is not made of names and values"
    return f"the setting {name} is wrong: {first_error['msg'].removeprefix('Value error, ')}"
