"""Threads, forks and what is out of reach: how work waits for others, and does not."""
