"""The committer behind its socket."""
