"""How the tests start another Python."""

from __future__ import annotations

# Warnings are errors, but for what langsmith, LlamaIndex and Chroma do at their import since Python 3.14.
STRICT = ["-W", "error", "-W", "ignore:'asyncio.iscoroutinefunction' is deprecated:DeprecationWarning"]
