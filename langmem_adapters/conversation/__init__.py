"""One session: its log, its summary, and what a model is asked about it."""
