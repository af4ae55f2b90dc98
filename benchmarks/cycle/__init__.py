"""Measure whole decode cycles on a GPU."""
