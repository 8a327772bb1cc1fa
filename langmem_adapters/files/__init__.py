"""SQLite files: where they lie, how they are opened, and what deleting leaves in them."""
