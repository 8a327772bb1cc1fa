"""What objects look like in a notebook: HTML without scripts and without external resources, light and dark.

Rendering is pure: a view is given all that it shows. Texts are escaped, cut, and masked where they look like secrets,
as the output of a notebook is kept in a file that others read.
"""

from __future__ import annotations

from langmem_adapters.views.chat import MAX_MESSAGES, conversation
from langmem_adapters.views.hits import comparison, experiences, memories, one_experience
from langmem_adapters.views.lists import Figures, Listing, print_masked
from langmem_adapters.views.markup import render_safely
from langmem_adapters.views.plain import format_time, mask_secrets, one_line
from langmem_adapters.views.tables import items, rows, sessions, statistics

__all__ = [
    "MAX_MESSAGES",
    "Figures",
    "Listing",
    "comparison",
    "conversation",
    "experiences",
    "format_time",
    "items",
    "mask_secrets",
    "memories",
    "one_experience",
    "one_line",
    "print_masked",
    "render_safely",
    "rows",
    "sessions",
    "statistics",
]
