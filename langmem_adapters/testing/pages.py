"""What tests compare of a page."""

from __future__ import annotations

from itertools import pairwise

from langmem_adapters.protocols import Item, Page


def ids_and_data(page: Page) -> list[tuple[str, bytes]]:
    """Ids and data of a page, without its sequence numbers, which differ between stores."""
    return [(item.id, item.data) for item in page.items]


def is_rising(items: list[Item]) -> bool:
    """Whether sequence numbers go up."""
    return all(a.seq < b.seq for a, b in pairwise(items))
