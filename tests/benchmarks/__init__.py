"""Programs that measure; run by hand, not by pytest."""
