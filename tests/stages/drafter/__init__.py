"""The drafter behind its socket."""
