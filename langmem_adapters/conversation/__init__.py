"""One session: what goes into its log and leaves it, its summary, and what a model is asked about it."""
