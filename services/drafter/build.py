"""Build the drafter stage over its arena and what the verifier lends."""

from __future__ import annotations

import torch

from services.contract.config import EngineConfig
from services.drafter.stage import DrafterStage
from services.model.config import ModelConfig
from services.model.mtp import MtpHead
from services.model.weights import MtpWeights
from services.runtime.buffers import Arenas


def build_drafter(
    config: EngineConfig,
    model: ModelConfig,
    mtp: MtpWeights | None,
    lent: tuple[torch.Tensor, torch.Tensor],
    arenas: Arenas,
    epoch: int,
) -> DrafterStage:
    """Return the stage.

    Args    mtp: None for a checkpoint without an MTP block. lent: embedding and head of the
            target.
    """
    head = None
    num_ids = min(config.draft_vocab or model.vocab_size, model.vocab_size)
    if mtp is not None:
        kv, table = arenas.drafter["mtp_kv"][0], arenas.verifier["page_table"]
        head = MtpHead(model, mtp, lent[0], lent[1][:num_ids], kv, table, config.prefill_grid)
    sizes = config.prefill_grid, model.vocab_size, config.context_length
    return DrafterStage(head, arenas, epoch, *sizes, draft_vocab=num_ids)
