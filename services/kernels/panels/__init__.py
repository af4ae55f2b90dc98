"""Products of rows with one panel of a weight."""
