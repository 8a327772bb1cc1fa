"""Threads and runs, compared with sessions: for the agent middleware and the histories."""
