"""Looking after a store: signs of life, figures, what is wrong, removal by age, and moving house."""

from __future__ import annotations

from langmem_adapters.operations.checkup import Checkup
from langmem_adapters.operations.migration import Migrated, Migration
from langmem_adapters.operations.pruning import Pruned, Pruning

__all__ = ["Checkup", "Migrated", "Migration", "Pruned", "Pruning"]
