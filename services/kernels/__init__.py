"""Kernels of the cycle: one folder an operation, one wrapper over its backends."""
