"""Results of functions as experiences: which function, which arguments, and the same value back."""
