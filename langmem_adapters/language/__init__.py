"""What a text says, as far as it can be told without a model: terms, dates, names and kinds of sentences."""
