"""Pictures of what a memory does: drawn with matplotlib, and never shown or saved by themselves.

Each function draws on the axes it is given, or on new ones, and returns them. Text follows the style that is set
(``matplotlib.style.use("dark_background")``); the colours of the data are readable on light and on dark.
"""

from __future__ import annotations

from langmem_adapters.plots.cache_usage import Recorder, Snapshot, hit_rate, savings
from langmem_adapters.plots.comparison import side_by_side
from langmem_adapters.plots.scores import score_distribution, threshold_curve
from langmem_adapters.plots.similarity import similarity_map
from langmem_adapters.plots.timeline import Placed, atrace, memory_timeline, trace

__all__ = [
    "Placed",
    "Recorder",
    "Snapshot",
    "atrace",
    "hit_rate",
    "memory_timeline",
    "savings",
    "score_distribution",
    "side_by_side",
    "similarity_map",
    "threshold_curve",
    "trace",
]
