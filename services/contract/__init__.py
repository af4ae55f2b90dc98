"""Checked values that every room shares; the only importer of generated code."""
