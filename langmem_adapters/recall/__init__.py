"""The long-term memory's parts: what is kept, how it is searched, and how it is taken back."""
