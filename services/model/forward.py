"""The target's forward: over the rows of a slab of trees, and over a chunk of a prompt."""

import torch

from services.contract.errors import InvalidField
from services.contract.limits import MAX_ROWS, MAX_SLAB_ROWS
from services.kernels import linear
from services.kernels.tree_tables import CYCLE, SLOT, TableViews
from services.model.config import ModelConfig
from services.model.layers import GridMixers, TreeMixers, run_blocks
from services.model.rows import ForwardBuffers, RowBuffers
from services.model.state import TargetState
from services.model.weights import TargetWeights


class TargetForward:
    """Run the target over its arena's tensors; nothing is allocated after the first call.

    Args    state: the tensors that are read and written. Only device tables decide what a
            decode forward does, so it can be captured once per slab size.
    """

    def __init__(self, config: ModelConfig, weights: TargetWeights, state: TargetState) -> None:
        self.config, self.weights, self.state = config, weights, state
        device, dtype = weights.embedding.device, weights.embedding.dtype
        grid = state.prefill_hidden.shape[0]
        self._buffers = ForwardBuffers(config, max(grid, MAX_SLAB_ROWS), dtype, device)
        self._inv_freq = config.rope.inverse_frequencies(device)
        self._run = torch.zeros((3, 1), dtype=torch.int32, device=device)
        self._ring_index = torch.zeros(MAX_SLAB_ROWS, dtype=torch.int64, device=device)

    def decode(self, tables: TableViews, logits: torch.Tensor, width: int = MAX_ROWS) -> None:
        """Run the trees of a slab; the states stay, operands go to the rings.

        Shapes  tables [B, TABLE_WORDS]; logits [B * width, V] fp32, contiguous, of every row.
        Args    width: rows a tree, 32; or 1 for roots alone, whose bits are not those of 32.
        Writes  raw_ring, mixed_ring, ab_ring, kv_ring at (slot, ..., node), and the hidden rows
            at hidden_ring[slot, cycle & 1]. Padding rows of logits and hidden have no meaning.
        """
        batch = tables.block.shape[0]
        rows = self._buffers.rows(batch * width)
        torch.clamp(tables.tokens[:, :width], min=0, out=rows.ids.view(batch, width))
        torch.index_select(self.weights.embedding, 0, rows.ids, out=rows.residual)
        mixers = TreeMixers(self.config, self.state, self._inv_freq, tables)
        run_blocks(self.config, self.weights.blocks, self.weights.final_norm, mixers, rows)
        linear.linear(rows.normed, self.weights.head, logits)
        self._store_hidden(tables, rows, width)

    def prefill(self, token_ids: torch.Tensor, slot: int, start: int, count: int) -> None:
        """Run one chunk of a prompt on the grid and move the slot's states past it.

        Shapes  token_ids [grid] int32, padded with any valid id from `count` on.
        Args    start: position of the first token, a multiple of the grid.
        Writes  the active recurrent and conv sets, the slot's pages, prefill_hidden, and, for
            the first cycle's draft, hidden_ring[slot, 1, 0] = hidden of the last token.
        Raises  InvalidField if the chunk is not one grid step.
        """
        grid = self.state.prefill_hidden.shape[0]
        if token_ids.numel() != grid or not 1 <= count <= grid or start % grid:
            message = f"{count} of {token_ids.numel()} tokens from {start}; the grid is {grid}"
            raise InvalidField("PREFILL", message + "; send 1 to grid tokens on the grid")
        rows = self._buffers.rows(grid)
        for index, value in enumerate((slot, start, count)):
            self._run[index].fill_(value)
        torch.index_select(self.weights.embedding, 0, token_ids, out=rows.residual)
        mixers = GridMixers(self.config, self.state, self._inv_freq, *self._run)
        run_blocks(self.config, self.weights.blocks, self.weights.final_norm, mixers, rows)
        self.state.prefill_hidden.copy_(rows.normed)
        self.state.hidden_ring[slot, 1, 0].copy_(rows.normed[count - 1])

    def _store_hidden(self, tables: TableViews, rows: RowBuffers, width: int) -> None:
        batch, header = tables.block.shape[0], tables.header
        hidden = rows.normed.view(batch, width, -1)
        if header.device.type == "cpu":
            # Plain copies: an indexed one costs 0.2 ms there.
            for row, words in enumerate(header.tolist()):
                half = self.state.hidden_ring[words[SLOT], words[CYCLE] & 1]
                half[:width].copy_(hidden[row])
            return
        index = self._ring_index[:batch]
        torch.bitwise_and(header[:, CYCLE], 1, out=index)
        index.add_(header[:, SLOT], alpha=2)
        ring = self.state.hidden_ring.flatten(0, 1)[:, :width]
        ring.index_copy_(0, index, hidden)
