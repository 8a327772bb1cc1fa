"""Where a pool keeps its entries, what finds them, and what goes by itself."""
