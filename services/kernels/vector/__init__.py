"""Vector building blocks of the CPU kernels; numba only."""
