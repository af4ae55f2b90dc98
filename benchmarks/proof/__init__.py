"""The proof: the paper's validation repeated on this system, and carried further."""
