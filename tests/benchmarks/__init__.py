"""Programs that measure; of them, pytest runs the gates of the short form."""
