"""The first step of a publication: check one path a slot and cut it where its sequence ends.

A path is refused, and its row in `accepted` then matches no slot, unless it belongs to the
slot's epoch and cycle, is a root path of the slot's tree with that tree's tokens, and its root
is the token that was left pending. Every later step compares the row with the slot's words, so
a refused path changes nothing.
"""

from typing import Final

import torch

from services.contract.limits import MAX_EOS_IDS, MAX_STOP_IDS
from services.kernels.dispatch import backend

# Words of a limits row [S, LIMIT_WORDS].
END_LENGTH: Final = 0
CONTEXT_LENGTH: Final = 1
NUM_EOS: Final = 2
NUM_STOP: Final = 3
VOCAB_SIZE: Final = 4
EOS_IDS: Final = 16
STOP_IDS: Final = EOS_IDS + MAX_EOS_IDS
LIMIT_WORDS: Final = STOP_IDS + MAX_STOP_IDS

# Word of an accepted row that says whether the path was taken, and its values.
PATH_STATUS: Final = 7
TAKEN: Final = 0
STALE_EPOCH: Final = 1
OTHER_CYCLE: Final = 2
OTHER_TREE: Final = 3
OTHER_ROOT: Final = 4


def accept(
    words: torch.Tensor,
    path: torch.Tensor,
    limits: torch.Tensor,
    tree_tables: torch.Tensor,
    next_root: torch.Tensor,
    slots: torch.Tensor,
    accepted: torch.Tensor,
) -> None:
    """Write the checked and cut path of each slot to `accepted`.

    Shapes  words [S, 16], path and accepted [S, 64], limits [S, 96], tree_tables
            [S, TABLE_WORDS], next_root [S], slots [B], all int32. next_root is -1 before the
            first publication of a sequence.
    Numbers the first emitted token that ends the sequence is the last one kept. It ends at an
            end token of the model, at a stop id, at END_LENGTH materialised tokens (the
            budget), or where the pending token fills the context, in this order of reasons.
    """
    backend("accept", words.device.type).accept(
        words, path, limits, tree_tables, next_root, slots, accepted
    )
