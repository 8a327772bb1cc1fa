"""The heaviest pairs of two sequences, in the order of both. A pure rule; its cost grows with the possible pairs."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence

__all__ = ["heaviest"]


def heaviest(weights: Sequence[Mapping[int, int]], columns: int) -> list[tuple[int, int]]:
    """Pairs of a row and a column, both rising, of the greatest total weight; of several, those in the last columns.

    Only pairs that are possible are examined, as Hunt and Szymanski do it, not each row with each column.

    Args:
        weights: For each row, the columns that it may be paired with, and the weight of each pair, which is above 0.
        columns: How many columns there are.

    >>> heaviest([{0: 1, 2: 1}, {1: 2}, {2: 2}], 3)
    [(0, 0), (1, 1), (2, 2)]
    """
    first: list[int] = []  # the first column that reaches a weight of 1, 2, 3 …
    ends: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)  # the pairs that complete each weight
    for row, found in enumerate(weights):
        totals = [(bisect_left(first, column) + weight, column) for column, weight in found.items()]
        for total, column in totals:
            ends[total].append((row, column))
            place = total
            while place and (place > len(first) or first[place - 1] > column):
                place -= 1
            first[place:total] = [column] * (total - place)
    pairs: list[tuple[int, int]] = []
    end, total = (len(weights), columns), len(first)
    while total:
        within = [(row, column) for row, column in ends[total] if row < end[0] and column < end[1]]
        last = [pair for pair in within if pair[1] == end[1] - 1]
        top = within[0][0]  # rows rise
        end = last[-1] if last else (top, max(column for row, column in within if row == top))
        total -= weights[end[0]][end[1]]
        pairs.append(end)
    return pairs[::-1]
