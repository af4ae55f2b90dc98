"""LumoTree: tree-speculative decoding of hybrid language models."""
