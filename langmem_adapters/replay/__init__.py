"""Replays a recorded conversation with other settings of its memory: what each costs, and what it finds.

The memory works as it does for an application: messages are appended one by one, windows are read, summaries are
made, memories are searched. Only the answers come from the record.
"""

from __future__ import annotations

from langmem_adapters.replay.comparison import Call, Comparison, Outcome
from langmem_adapters.replay.configuration import Configuration
from langmem_adapters.replay.runner import areplay, replay

__all__ = ["Call", "Comparison", "Configuration", "Outcome", "areplay", "replay"]
