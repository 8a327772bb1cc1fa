"""The settings file: the section ``langmem``, and the sections of MetaGPT's ``config2.yaml``."""

from __future__ import annotations

import importlib
import ipaddress
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from langmem_adapters.errors import ConfigurationError, MissingDependency


def read_document(path: Path) -> dict[str, Any]:
    """Read a YAML file. Raises ConfigurationError, and MissingDependency if PyYAML is missing."""
    try:
        yaml = importlib.import_module("yaml")
    except ImportError as error:
        raise MissingDependency("PyYAML", "yaml") from error
    try:
        document = yaml.safe_load(path.read_bytes())
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, RecursionError) as error:  # it lets these out
        mark = getattr(error, "problem_mark", None)
        details = f", line {mark.line + 1}" if mark else ""
    else:
        if isinstance(document, dict | None):
            return document or {}
        details = ": settings are names and values"
    # Not from the parser's own error, which quotes the file.
    raise ConfigurationError(f"{path} is not a YAML file of settings{details}")


def langmem_section(document: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """The section ``langmem``, without settings set to null. Raises ConfigurationError for unknown names."""
    if misplaced := [name for name in document if name in names]:
        raise ConfigurationError(f"the setting {misplaced[0]} belongs in the section langmem")
    section = document.get("langmem")
    if not isinstance(section, dict | None):
        raise ConfigurationError("the section langmem is not made of names and values")
    for name in section or {}:
        if name not in names:
            raise ConfigurationError(f"there is no setting langmem.{name!s:.50}; there are {', '.join(names)}")
    return {name: value for name, value in (section or {}).items() if value is not None}


class _Section(BaseModel):
    """A section of MetaGPT's. Unknown keys and keys without a value are ignored."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, data: Any) -> Any:
        return {key: value for key, value in data.items() if value is not None} if isinstance(data, dict) else data


class _Redis(_Section):
    host: str = "localhost"
    port: int = Field(default=6379, ge=1, le=65535)
    username: str = ""
    password: str = Field(default="", repr=False)
    db: int = Field(default=0, ge=0)

    @field_validator("host")
    @classmethod
    def _check_host(cls, host: str) -> str:
        if re.fullmatch(r"[\w.-]+", host):
            return host
        try:
            return f"[{ipaddress.IPv6Address(host.strip('[]'))}]"
        except ValueError:
            raise ValueError("it is the name or the address of a server, without scheme and port") from None

    @field_validator("username", "password")
    @classmethod
    def _check_login(cls, text: str) -> str:
        try:
            text.encode()
        except UnicodeEncodeError:  # holds the text
            raise ValueError("it holds half of a surrogate pair, which cannot be sent") from None
        return text

    def url(self) -> str:
        login = quote(self.username, safe="")
        if self.password:
            login += f":{quote(self.password, safe='')}"
        if login:
            login += "@"
        return f"redis://{login}{self.host}:{self.port}/{self.db}"


class _RoleZero(_Section):
    enable_longterm_memory: bool | None = None
    memory_k: int | None = Field(default=None, ge=1)
    similarity_top_k: int | None = Field(default=None, ge=1)


class _ExpPool(_Section):
    enabled: bool = True  # missing in older versions, which have the other two
    enable_read: bool = False
    enable_write: bool = False


class Config2(_Section):
    """The sections of MetaGPT's ``config2.yaml`` that are about memory; all others are ignored."""

    redis: _Redis | None = None
    role_zero: _RoleZero | None = None
    exp_pool: _ExpPool | None = None

    def settings(self) -> dict[str, Any]:
        """The values of these sections, under the names of :class:`~langmem_adapters.settings.Settings`."""
        values: dict[str, Any] = self.role_zero.model_dump(exclude_none=True) if self.role_zero else {}
        if self.redis and not self.redis.host.startswith("YOUR_"):  # MetaGPT's placeholder
            values["url"] = self.redis.url()
        if self.exp_pool:
            values["enable_experience_read"] = self.exp_pool.enabled and self.exp_pool.enable_read
            values["enable_experience_write"] = self.exp_pool.enabled and self.exp_pool.enable_write
        return values
