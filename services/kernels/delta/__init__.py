"""The recurrent step of Gated DeltaNet on the CPU; numba only."""
