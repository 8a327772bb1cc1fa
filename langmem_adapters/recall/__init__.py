"""The parts of the long-term memory: what is kept, how it is searched, and how it is removed."""
