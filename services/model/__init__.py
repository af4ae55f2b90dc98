"""The hybrid model: its configuration, its weights, its layers, and its MTP block."""
