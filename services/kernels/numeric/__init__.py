"""Scalar functions and host views of the CPU kernels; numba only."""
