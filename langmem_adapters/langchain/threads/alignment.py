"""The heaviest pairs of two sequences, in the order of both. A pure rule; its cost grows with the possible pairs."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence

__all__ = ["heaviest_alignment"]


def heaviest_alignment(weights: Sequence[Mapping[int, int]], column_count: int) -> list[tuple[int, int]]:
    """Pairs of a row and a column, both rising, of the greatest total weight; of several, those in the last columns.

    Only pairs that are possible are examined, as Hunt and Szymanski do it, not each row with each column.

    Args:
        weights: For each row, the columns that it may be paired with, and the weight of each pair, which is above 0.
        column_count: How many columns there are.

    >>> heaviest_alignment([{0: 1, 2: 1}, {1: 2}, {2: 2}], 3)
    [(0, 0), (1, 1), (2, 2)]
    """
    first_columns: list[int] = []  # the first column that reaches a weight of 1, 2, 3 …
    pairs_by_total: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)  # the pairs that complete each weight
    for row, row_weights in enumerate(weights):
        totals = [(bisect_left(first_columns, column) + weight, column) for column, weight in row_weights.items()]
        for total, column in totals:
            pairs_by_total[total].append((row, column))
            start = total
            while start and (start > len(first_columns) or first_columns[start - 1] > column):
                start -= 1
            first_columns[start:total] = [column] * (total - start)
    pairs: list[tuple[int, int]] = []
    end, total = (len(weights), column_count), len(first_columns)
    while total:
        candidates = [(row, column) for row, column in pairs_by_total[total] if row < end[0] and column < end[1]]
        in_last_column = [pair for pair in candidates if pair[1] == end[1] - 1]
        top_row = candidates[0][0]  # rows rise
        in_top_row = (pair for pair in candidates if pair[0] == top_row)
        end = in_last_column[-1] if in_last_column else max(in_top_row)
        total -= weights[end[0]][end[1]]
        pairs.append(end)
    return pairs[::-1]
