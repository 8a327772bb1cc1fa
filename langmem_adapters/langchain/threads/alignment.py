"""The heaviest pairs of two sequences, in the order of both. A pure rule; its cost grows with the possible pairs."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence


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
    end_row, end_column, total = len(weights), column_count, len(first_columns)
    while total:
        candidates = [(row, column) for row, column in pairs_by_total[total] if row < end_row and column < end_column]
        rows_of_last_column = [row for row, column in candidates if column == end_column - 1]
        if rows_of_last_column:
            end_row, end_column = rows_of_last_column[-1], end_column - 1
        else:
            end_row, _ = candidates[0]  # rows rise
            end_column = max(column for row, column in candidates if row == end_row)
        total -= weights[end_row][end_column]
        pairs.append((end_row, end_column))
    return pairs[::-1]
