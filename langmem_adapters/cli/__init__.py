"""The command line, ``langmem-adapters``."""

from __future__ import annotations

import sys
from pathlib import Path

try:  # takes a moment, in which Ctrl-C may come
    from langmem_adapters.cli.app import main
except KeyboardInterrupt:
    if Path(sys.argv[0]).stem != "langmem-adapters":
        raise
    sys.exit(130)  # as of a command

__all__ = ["main"]
