"""The verifier behind its socket."""
