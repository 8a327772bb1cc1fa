"""Single flight: of concurrent calls with one key, a leader makes the call and its followers wait."""
