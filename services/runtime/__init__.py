"""Where memory lives and how the stages run: arenas, pools, the ring, local and Ray groups."""
