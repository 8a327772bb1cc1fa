"""``python -m langmem_adapters.cli``."""

from __future__ import annotations

from langmem_adapters.cli.app import main

main()
