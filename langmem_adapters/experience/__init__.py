"""Experiences: requests, the responses they got, and how good those were."""

from __future__ import annotations

from langmem_adapters.experience.pool import ExperiencePool
from langmem_adapters.experience.switches import bypass, refresh

__all__ = ["ExperiencePool", "bypass", "refresh"]
