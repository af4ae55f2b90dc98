"""How the CPU kernels are compiled and where the machine code is kept; numba only."""
