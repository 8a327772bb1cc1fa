"""What the agent middleware and the histories make of threads and runs."""
