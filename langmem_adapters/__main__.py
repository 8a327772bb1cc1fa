"""``python -m langmem_adapters``: the command line, where its script is on no path."""

from __future__ import annotations

import sys

sys.argv[0] = "langmem-adapters"  # what it is called, and so what is missing is told in one sentence
from langmem_adapters.cli.app import main  # noqa: E402 - after its name

main()
