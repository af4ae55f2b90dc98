"""Indices of the device words that say what a slot and an accepted path hold."""

from typing import Final

# words [S, 16]: the slot.
EPOCH: Final = 0
CYCLE: Final = 1
ACTIVE_SET: Final = 2
LENGTH: Final = 3
GENERATION: Final = 4
STATUS: Final = 5

# path [S, 64]: the accepted path of the slot's cycle.
PATH_EPOCH: Final = 0
PATH_CYCLE: Final = 1
PATH_NUM_NODES: Final = 2
PATH_NUM_EMITTED: Final = 3
PATH_PENDING: Final = 4
PATH_CUT_REASON: Final = 5
PATH_CUT_INDEX: Final = 6
# Tokens emitted before this cycle, and tokens materialised after its publication.
PATH_EMITTED_BEFORE: Final = 8
PATH_COMMITTED: Final = 9
PATH_NODES: Final = 16
PATH_EMITTED: Final = 32
