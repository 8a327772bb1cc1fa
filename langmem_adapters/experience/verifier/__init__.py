"""Whether an answer to one request may be served for another."""
