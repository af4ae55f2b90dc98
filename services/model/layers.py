"""The layers as calls of kernels: each reads rows.normed and writes rows.delta."""

from dataclasses import dataclass
from typing import Protocol

import torch

from services.kernels import attention, conv, gdn, linear, norm
from services.kernels.tree_tables import TableViews
from services.model.config import ModelConfig
from services.model.rows import RowBuffers
from services.model.state import TargetState
from services.model.weights import AttentionWeights, BlockWeights, GdnWeights


class Mixers(Protocol):
    """How rows see other rows: as nodes of trees, or as runs of a prompt."""

    def gdn(self, weights: GdnWeights, layer: int, rows: RowBuffers) -> None:
        """Write rows.core from the projections in rows.gdn_in."""
        ...

    def attention(self, weights: AttentionWeights, layer: int, rows: RowBuffers) -> None:
        """Write rows.attn from the projections in rows.qkv."""
        ...


@dataclass(frozen=True, slots=True)
class TreeMixers:
    """Let every row see its own root path; operands are staged in the rings."""

    config: ModelConfig
    state: TargetState
    inv_freq: torch.Tensor
    tables: TableViews

    def gdn(self, weights: GdnWeights, layer: int, rows: RowBuffers) -> None:
        """Write rows.core; the recurrent and conv states stay."""
        s, tables = self.state, self.tables
        rings = s.raw_ring, s.mixed_ring, s.ab_ring
        conv.conv_tree(rows.raw, rows.ab, s.conv, s.words, layer, tables, weights.conv, *rings)
        gates = weights.a_log, weights.dt_bias
        gdn.scan(s.mixed_ring, s.ab_ring, *gates, s.recurrent, s.words, layer, tables, rows.core)

    def attention(self, weights: AttentionWeights, layer: int, rows: RowBuffers) -> None:
        """Write rows.attn; keys and values go to the ring."""
        s, tables, eps = self.state, self.tables, self.config.norm_eps
        norms = weights.q_norm, weights.k_norm, self.inv_freq, eps
        norm.qk_norm_rope_ring(rows.qkv, *norms, tables, s.kv_ring, layer, rows.q)
        attention.attend(rows.q, s.kv[layer], s.kv_ring, layer, s.page_table, tables, rows.attn)


@dataclass(frozen=True, slots=True)
class GridMixers:
    """Let every row see the rows before it; states and pages move on.

    Shapes  slots, starts, counts [B] int32: row b * T + i has position starts[b] + i.
    """

    config: ModelConfig
    state: TargetState
    inv_freq: torch.Tensor
    slots: torch.Tensor
    starts: torch.Tensor
    counts: torch.Tensor

    def gdn(self, weights: GdnWeights, layer: int, rows: RowBuffers) -> None:
        """Write rows.core and move the active recurrent and conv states."""
        s, runs = self.state, (self.slots, self.counts)
        conv.conv_chain(rows.raw, s.conv, s.words, layer, *runs, weights.conv, rows.mixed)
        gates = weights.a_log, weights.dt_bias
        gdn.chain(rows.mixed, rows.ab, *gates, s.recurrent, s.words, layer, *runs, rows.core)

    def attention(self, weights: AttentionWeights, layer: int, rows: RowBuffers) -> None:
        """Write rows.attn; keys and values go to their pages."""
        kv, table = self.state.kv[layer], self.state.page_table
        runs = self.slots, self.starts, self.counts
        norms = weights.q_norm, weights.k_norm, self.inv_freq, self.config.norm_eps
        norm.qk_norm_rope_pages(rows.qkv, *norms, *runs, table, kv, rows.q)
        attention.attend_prefill(rows.q, kv, table, *runs, rows.attn)


def run_blocks(
    config: ModelConfig,
    blocks: tuple[BlockWeights, ...],
    final_norm: torch.Tensor,
    mixers: Mixers,
    rows: RowBuffers,
) -> None:
    """Run decoder blocks over rows.residual; leave the final norm's output in rows.normed."""
    eps, gdn_layer, attention_layer = config.norm_eps, 0, 0
    norm.rms_norm(rows.residual, blocks[0].input_norm, eps, rows.normed)
    after = [block.input_norm for block in blocks[1:]] + [final_norm]
    for block, next_norm in zip(blocks, after, strict=True):
        if isinstance(block.mixer, GdnWeights):
            _gdn(config, block.mixer, gdn_layer, mixers, rows)
            gdn_layer += 1
        else:
            linear.linear(rows.normed, block.mixer.in_proj, rows.qkv)
            mixers.attention(block.mixer, attention_layer, rows)
            attention_output(block.mixer, rows)
            attention_layer += 1
        norm.add_rms_norm(rows.residual, rows.delta, block.post_norm, eps, rows.normed)
        mlp(block, rows)
        norm.add_rms_norm(rows.residual, rows.delta, next_norm, eps, rows.normed)


def attention_output(weights: AttentionWeights, rows: RowBuffers) -> None:
    """Gate rows.attn by the gate halves of rows.qkv and project it to rows.delta."""
    norm.sigmoid_gate(rows.attn, rows.qkv, rows.attn_out)
    linear.linear(rows.attn_out, weights.out_proj, rows.delta)


def mlp(block: BlockWeights, rows: RowBuffers) -> None:
    """Write the MLP of rows.normed to rows.delta."""
    linear.linear(rows.normed, block.gate_up, rows.gate_up)
    norm.silu_mul(rows.gate_up, rows.inner)
    linear.linear(rows.inner, block.down, rows.delta)


def _gdn(
    config: ModelConfig, weights: GdnWeights, layer: int, mixers: Mixers, rows: RowBuffers
) -> None:
    linear.linear(rows.normed, weights.in_proj, rows.gdn_in)
    mixers.gdn(weights, layer, rows)
    gate, eps = config.gate_activation, config.norm_eps
    norm.gated_norm(rows.core, rows.z, weights.gated_norm, eps, gate, rows.gdn_out)
    linear.linear(rows.gdn_out, weights.out_proj, rows.delta)
