"""Rows of prompt and decode speed, as llama-bench prints them."""
