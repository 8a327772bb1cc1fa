"""Of those who ask the same at once, one asks, and the others wait."""
