"""Each stage alone, behind its socket: in this process and as a Ray actor."""
