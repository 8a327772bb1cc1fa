"""SQLite files: their places, how they are opened, and what deletions leave in them."""
