"""Scalar quantization to 8 bits: a first pass that rules out vectors which cannot be among the nearest.

A row is kept a second time as integers from -127 to 127, a quarter of the memory to read. The parts of a row and of the
query that this leaves out have lengths, and by Cauchy and Schwarz no cosine is further off than these allow.
"""

from __future__ import annotations

import functools
import importlib
import math
from typing import Any, NamedTuple, TypeAlias

import numpy as np

_Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
_MAX_CODE = 127
_FLOAT32_ERROR = 2e-5  # the error of 32 bits


class QuantizedRows(NamedTuple):
    """Rows as 8-bit codes, the scale of each row, and the greatest length of what quantization leaves out of any."""

    codes: _Array
    scale: _Array
    error: float

    def cosines(self, query: _Array) -> tuple[_Array, float]:
        """The approximate cosine of each row with the query, and how far off two of them may be together."""
        query_row = quantize(query.reshape(1, -1))
        dots = np.asarray(kernels().cdist(query_row.codes, self.codes, "dot")).reshape(-1)
        max_error = self.error + query_row.error * (1 + self.error)  # a row's length is 1, quantized 1 + error at most
        return dots * (self.scale * query_row.scale[0]), 2 * max_error + _FLOAT32_ERROR


def quantize(rows: _Array) -> QuantizedRows:
    """Quantize rows of 32 bits to 8."""
    scale = np.maximum(np.abs(rows).max(axis=1), np.finfo("f4").tiny) / _MAX_CODE
    codes = np.rint(rows / scale[:, None]).astype("i1")
    residuals = rows - codes * scale[:, None]
    return QuantizedRows(codes, scale, math.sqrt(np.einsum("ij,ij->i", residuals, residuals).max()))


@functools.cache
def kernels() -> Any:
    """The library that multiplies 8 bits faster than NumPy does 32; None if it is not installed."""
    try:
        return importlib.import_module("simsimd")
    except ImportError:
        return None
