"""Maintain a store: health, statistics, checks, removal by age, and migration."""

from __future__ import annotations

from langmem_adapters.operations.checkup import Checkup
from langmem_adapters.operations.migration import Migrated, Migration
from langmem_adapters.operations.pruning import Pruned, Pruning

__all__ = ["Checkup", "Migrated", "Migration", "Pruned", "Pruning"]
