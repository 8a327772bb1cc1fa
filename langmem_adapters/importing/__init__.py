"""Conversations from elsewhere.

These are our own export, chat messages of OpenAI, LangChain and LlamaIndex, ChatGPT's export, LoCoMo, and the
long-term memory of MetaGPT.

A source is read and checked as a whole before anything is given out, and every message has an id that is the same
when it is read again, so that importing it twice adds nothing. No class is ever found by a name in the data.
"""

from __future__ import annotations

from langmem_adapters.importing.formats import FileFormat, read_transcripts
from langmem_adapters.importing.transcript import Transcript

__all__ = ["FileFormat", "Transcript", "read_transcripts"]
