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

__all__ = ["QuantizedRows", "kernels", "quantize"]

_Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
_MOST = 127
_ROUNDING = 2e-5  # the error of 32 bits


class QuantizedRows(NamedTuple):
    """Rows as 8-bit codes, the scale of each row, and the greatest length of what quantization leaves out of any."""

    codes: _Array
    scale: _Array
    error: float

    def cosines(self, query: _Array) -> tuple[_Array, float]:
        """The approximate cosine of each row with the query, and how far off two of them may be together."""
        asked = quantize(query.reshape(1, -1))
        dots = np.asarray(kernels().cdist(asked.codes, self.codes, "dot")).reshape(-1)
        off = self.error + asked.error * (1 + self.error)  # lengths are 1, and of a quantized row no more than the last
        return dots * (self.scale * asked.scale[0]), 2 * off + _ROUNDING


def quantize(rows: _Array) -> QuantizedRows:
    """Quantize rows of 32 bits to 8."""
    scale = np.maximum(np.abs(rows).max(axis=1), np.finfo("f4").tiny) / _MOST
    codes = np.rint(rows / scale[:, None]).astype("i1")
    left = rows - codes * scale[:, None]
    return QuantizedRows(codes, scale, math.sqrt(np.einsum("ij,ij->i", left, left).max()))


@functools.cache
def kernels() -> Any:
    """The library that multiplies 8 bits faster than NumPy does 32; None if it is not installed."""
    try:
        return importlib.import_module("simsimd")
    except ImportError:
        return None
