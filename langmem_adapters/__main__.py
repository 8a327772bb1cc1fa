"""``python -m langmem_adapters``: the command line, where its script is on no path."""

from __future__ import annotations

from langmem_adapters.cli.app import main

main()
