"""Planted state faults: each must be seen in its own cycle."""
