"""The storage of a pool: its entries, their search index, their read cache, and eviction."""
