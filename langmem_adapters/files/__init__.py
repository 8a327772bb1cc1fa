"""SQLite files: their locations, how they are opened, and what deletions leave in them."""
