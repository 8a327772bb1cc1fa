"""Keyed records of a namespace, and the indexes that follow them."""
