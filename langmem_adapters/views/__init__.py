"""What objects look like in a notebook: HTML without scripts and without external resources, light and dark.

Rendering is pure: a view is given all that it shows. Texts are escaped, cut, and masked where they look like secrets,
as the output of a notebook is kept in a file that others read.
"""

from __future__ import annotations

from langmem_adapters.views.chat import NEWEST, conversation
from langmem_adapters.views.hits import compared, experiences, memories, one_experience
from langmem_adapters.views.lists import Figures, Listing
from langmem_adapters.views.markup import attempt
from langmem_adapters.views.plain import as_text, masked, one_line, when
from langmem_adapters.views.tables import items, rows, sessions, statistics

__all__ = [
    "NEWEST",
    "Figures",
    "Listing",
    "as_text",
    "attempt",
    "compared",
    "conversation",
    "experiences",
    "items",
    "masked",
    "memories",
    "one_experience",
    "one_line",
    "rows",
    "sessions",
    "statistics",
    "when",
]
