"""The command line, ``langmem-adapters``."""

from __future__ import annotations

from langmem_adapters.cli.app import main

__all__ = ["main"]
