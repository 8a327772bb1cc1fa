"""Function results as experiences: identify the function and its arguments, and restore the same value."""
