"""The MTP block: rows of (next token, hidden state) to drafts, with a key-value cache of its own.

Row i pairs token x[i + 1] with hidden h[i] (after the target's final norm), has rotary position
i, owns KV position i, and predicts x[i + 2]. Chained passes feed the block its own output.
Nothing here can change a text: row counts are free, and only speed depends on the bits.
"""

from dataclasses import dataclass

import torch

from services.contract.limits import MAX_PATH, MAX_ROWS, MAX_SLAB
from services.kernels import attention, linear, norm
from services.model.config import ModelConfig
from services.model.layers import attention_output, mlp
from services.model.rows import ForwardBuffers, RowBuffers
from services.model.weights import AttentionWeights, MtpWeights


@dataclass(frozen=True, slots=True)
class _Slab:
    """Where B sequences draft: slot, position of the last row, its index among all rows."""

    slots: torch.Tensor
    positions: torch.Tensor
    last: torch.Tensor
    order: torch.Tensor
    ones: torch.Tensor


def _slab(batch: int, device: torch.device) -> _Slab:
    slots, positions, last = torch.zeros((3, batch), dtype=torch.int32, device=device)
    order = torch.arange(batch, dtype=torch.int32, device=device)
    return _Slab(slots, positions, last, order, torch.ones_like(slots))


class MtpHead:
    """Run the MTP block over pages of its own; nothing is allocated after the first call.

    Shapes  embedding, head [V, d] of the target; kv [P, 2, Hkv, 64, D]; page_table
            [S, max_pages] int32, the target's: position p of a slot lies in the same page.
    """

    def __init__(
        self,
        config: ModelConfig,
        weights: MtpWeights,
        embedding: torch.Tensor,
        head: torch.Tensor,
        kv: torch.Tensor,
        page_table: torch.Tensor,
        grid: int,
    ) -> None:
        self.config, self.weights = config, weights
        self._embedding, self._head, self._kv, self._page_table = embedding, head, kv, page_table
        device, dtype = embedding.device, embedding.dtype
        self._wide = ForwardBuffers(config, max(grid, MAX_SLAB * MAX_PATH), dtype, device)
        self._narrow = ForwardBuffers(config, MAX_SLAB, dtype, device)
        pairs = max(grid, MAX_SLAB * MAX_PATH)
        self._pairs = torch.zeros((pairs, 2 * config.hidden_size), dtype=dtype, device=device)
        self._inv_freq = config.rope.inverse_frequencies(device)
        self._run = torch.zeros((3, 1), dtype=torch.int32, device=device)
        self._slabs = [_slab(batch, device) for batch in range(1, MAX_SLAB + 1)]
        mixer = weights.block.mixer
        if not isinstance(mixer, AttentionWeights):
            raise TypeError("the MTP block is an attention block")
        self._mixer = mixer

    def prefill_chunk(
        self, token_ids: torch.Tensor, hidden: torch.Tensor, slot: int, start: int, count: int
    ) -> None:
        """Store the keys and values of prompt rows start .. start + count - 1.

        Shapes  token_ids [grid] int32: x[start + 1], ..., padded with any valid id; hidden
                [grid, d]: h[start], ... Rows from `count` on are padding.
        """
        if not count:
            return
        num_rows = -(-count // MAX_ROWS) * MAX_ROWS
        for index, value in enumerate((slot, start, count)):
            self._run[index].fill_(value)
        rows = self._wide.rows(num_rows)
        self._project(token_ids[:num_rows], hidden[:num_rows], rows)
        self._store_keys(rows, self._run[0], self._run[1], self._run[2])

    def first_pass(
        self,
        token_ids: torch.Tensor,
        hidden: torch.Tensor,
        slots: torch.Tensor,
        starts: torch.Tensor,
        counts: torch.Tensor,
        logits: torch.Tensor,
    ) -> None:
        """Run the newly materialised rows of B sequences; draft from the last of each.

        Shapes  token_ids [B * T] int32, hidden [B * T, d], T <= 16: row b * T + i is
                x[starts + i + 1] and h[starts + i]; rows from counts[b] on are padding. slots,
                starts, counts [B] int32. logits [B, V] fp32: of x[starts + counts + 1].
        Writes  KV positions starts[b] .. starts[b] + counts[b] - 1.
        """
        batch = slots.numel()
        rows = self._wide.rows(token_ids.numel())
        self._project(token_ids, hidden, rows)
        self._store_keys(rows, slots, starts, counts)
        slab = self._slabs[batch - 1]
        slab.slots.copy_(slots)
        torch.add(starts, counts, out=slab.positions).sub_(1).clamp_(min=0)
        last = torch.mul(slab.order, token_ids.numel() // batch, out=slab.last)
        last.add_(counts).sub_(1).clamp_(min=0)
        narrow = self._narrow.rows(batch)
        for source, target in (
            (rows.residual, narrow.residual),
            (rows.qkv, narrow.qkv),
            (rows.q, narrow.q),
        ):
            torch.index_select(source, 0, last, out=target)
        self._finish(narrow, slab, slab.ones, logits)

    def chained_pass(
        self, token_ids: torch.Tensor, active: torch.Tensor, logits: torch.Tensor
    ) -> None:
        """Run one more row a sequence: the token just drafted and the block's own output.

        Shapes  token_ids [B] int32; active [B] int32, 0 where a sequence drafts no further;
                logits [B, V] fp32. The sequences are those of the last first_pass; each call
                moves them one position on.
        Writes  one KV position of each active sequence, which the next first_pass overwrites.
                Its page must exist.
        """
        batch = token_ids.numel()
        rows, slab = self._narrow.rows(batch), self._slabs[batch - 1]
        slab.positions.add_(1)
        self._project(token_ids, rows.normed, rows)
        self._store_keys(rows, slab.slots, slab.positions, active)
        self._finish(rows, slab, active, logits)

    def hidden(self, batch: int) -> torch.Tensor:
        """Return the block's output [B, d] of the last pass."""
        return self._narrow.rows(batch).normed

    def _project(self, token_ids: torch.Tensor, hidden: torch.Tensor, rows: RowBuffers) -> None:
        """Write the block's input to rows.residual and its projections to rows.qkv."""
        w, eps, width = self.weights, self.config.norm_eps, self.config.hidden_size
        pairs = self._pairs[: rows.residual.shape[0]]
        torch.index_select(self._embedding, 0, token_ids, out=rows.residual)
        norm.rms_norm(hidden, w.hidden_norm, eps, rows.delta)
        pairs[:, width:].copy_(rows.delta)
        norm.rms_norm(rows.residual, w.embedding_norm, eps, rows.delta)
        pairs[:, :width].copy_(rows.delta)
        linear.linear(pairs, w.fc, rows.residual)
        norm.rms_norm(rows.residual, w.block.input_norm, eps, rows.normed)
        linear.linear(rows.normed, self._mixer.in_proj, rows.qkv)

    def _store_keys(
        self, rows: RowBuffers, slots: torch.Tensor, starts: torch.Tensor, counts: torch.Tensor
    ) -> None:
        norms = self._mixer.q_norm, self._mixer.k_norm, self._inv_freq, self.config.norm_eps
        runs = slots, starts, counts
        norm.qk_norm_rope_pages(rows.qkv, *norms, *runs, self._page_table, self._kv, rows.q)

    def _finish(
        self, rows: RowBuffers, slab: _Slab, counts: torch.Tensor, logits: torch.Tensor
    ) -> None:
        """Run the rest of the block on one row a sequence; leave h' in rows.normed."""
        block, eps = self.weights.block, self.config.norm_eps
        runs = slab.slots, slab.positions, counts
        attention.attend_prefill(rows.q, self._kv, self._page_table, *runs, rows.attn)
        attention_output(self._mixer, rows)
        norm.add_rms_norm(rows.residual, rows.delta, block.post_norm, eps, rows.normed)
        mlp(block, rows)
        norm.add_rms_norm(rows.residual, rows.delta, self.weights.norm, eps, rows.normed)
        linear.linear(rows.normed, self._head, logits)
