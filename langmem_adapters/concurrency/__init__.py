"""Threads, locks, forks and outages: what waits for what, and for how long."""
