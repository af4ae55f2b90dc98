"""The trunk, the MTP block at depth 1 on every position and deeper at sampled anchors."""

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F

from models.recipe import arithmetic
from models.recipe.arithmetic import attention_inputs, rms_norm, rope_tables
from models.recipe.delta_rule import DeltaRule, chunked_delta_rule
from models.recipe.loss import HeadLoss
from models.recipe.operations import Operations
from models.recipe.settings import MTP_DEPTH, Config, Params

MTP_LAYER = "mtp.layers.0."
KeysValues = tuple[torch.Tensor, torch.Tensor]


@dataclass(slots=True)
class Network:
    """Run a set of weights; the functions may be compiled ones.

    Legend  B windows, T tokens, R anchors, d hidden.
    """

    config: Config
    rule: DeltaRule = chunked_delta_rule
    operations: Operations = field(default_factory=Operations)

    def trunk(self, weights: Params, ids: torch.Tensor) -> torch.Tensor:
        """Return hidden states [B, T, d] after the final norm: what head and MTP read."""
        x = F.embedding(ids, weights["model.embed_tokens.weight"])
        tables = rope_tables(self.config, torch.arange(ids.shape[1], device=ids.device))
        for index, kind in enumerate(self.config["layer_types"]):
            prefix = f"model.layers.{index}."
            if kind == "linear_attention":
                x = self._gdn(weights, prefix, x)
            else:
                x, _, _ = self._attention(weights, prefix, x, tables)
        return rms_norm(x, weights["model.norm.weight"])

    def mtp_first(
        self, weights: Params, next_ids: torch.Tensor, hidden: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Run depth 1 on every position t: reads h[t] and token t + 1, predicts token t + 2."""
        tables = rope_tables(self.config, torch.arange(hidden.shape[1], device=hidden.device))
        x = self._mtp_input(weights, next_ids, hidden)
        x, keys, values = self._attention(weights, MTP_LAYER, x, tables)
        return rms_norm(x, weights["mtp.norm.weight"]), keys, values

    def mtp_next(
        self,
        weights: Params,
        next_ids: torch.Tensor,
        hidden: torch.Tensor,
        anchors: torch.Tensor,
        depth: int,
        first: KeysValues,
        own: list[KeysValues],
    ) -> torch.Tensor:
        """Run one deeper pass for anchors [B, R] on the block's own output [B, R, d].

        Each row attends to the depth-1 keys up to its anchor and to its own chain's keys, to
        which this pass adds.
        """
        p, dim = MTP_LAYER + "self_attn.", self.config["head_dim"]
        x = self._mtp_input(weights, next_ids, hidden)
        tables = rope_tables(self.config, anchors + depth - 1)
        inputs = [weights[MTP_LAYER + "input_layernorm.weight"], *_projections(weights, p)]
        norms = weights[p + "q_norm.weight"], weights[p + "k_norm.weight"]
        q, k, v, gate = attention_inputs(x, *inputs, *norms, *tables, dim)
        own.append((k, v))
        mixed = _attend_chain(q, anchors, first, own) * torch.sigmoid(gate)
        x = x + F.linear(mixed, weights[p + "o_proj.weight"])
        x = arithmetic.mlp(x, *_feed_forward(weights, MTP_LAYER))
        return rms_norm(x, weights["mtp.norm.weight"])

    def losses(
        self, weights: Params, tokens: torch.Tensor, anchors: torch.Tensor, block: int
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Return the trunk's loss and those of MTP depths 1..5.

        Shapes  tokens [B, T + 6], anchors [B, R] positions below T.
        """
        length = tokens.shape[1] - MTP_DEPTH - 1
        head = weights["model.embed_tokens.weight"]

        def loss(rows: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            flat = rows.reshape(-1, rows.shape[-1])
            result: torch.Tensor = HeadLoss.apply(
                flat, head, labels.reshape(-1), block, self.operations
            )
            return result

        hidden = self.trunk(weights, tokens[:, :length])
        main = loss(hidden, tokens[:, 1 : length + 1])
        first, keys, values = self.mtp_first(weights, tokens[:, 1 : length + 1], hidden)
        drafts = [loss(first, tokens[:, 2 : length + 2])]
        rows = first.gather(1, anchors[..., None].expand(-1, -1, first.shape[-1]))
        own: list[KeysValues] = []
        for depth in range(2, MTP_DEPTH + 1):
            ids = tokens.gather(1, anchors + depth)
            rows = self.mtp_next(weights, ids, rows, anchors, depth, (keys, values), own)
            drafts.append(loss(rows, tokens.gather(1, anchors + depth + 1)))
        return main, drafts

    def _mtp_input(
        self, weights: Params, next_ids: torch.Tensor, hidden: torch.Tensor
    ) -> torch.Tensor:
        embedded = F.embedding(next_ids, weights["model.embed_tokens.weight"])
        embedded = rms_norm(embedded, weights["mtp.pre_fc_norm_embedding.weight"])
        hidden = rms_norm(hidden, weights["mtp.pre_fc_norm_hidden.weight"])
        return F.linear(torch.cat([embedded, hidden], -1), weights["mtp.fc.weight"])

    def _gdn(self, weights: Params, prefix: str, x: torch.Tensor) -> torch.Tensor:
        c, p = self.config, prefix + "linear_attn."
        names = ("in_proj_qkv.weight", "in_proj_z.weight", "in_proj_b.weight", "in_proj_a.weight")
        names += ("conv1d.weight", "A_log", "dt_bias")
        operands = [weights[prefix + "input_layernorm.weight"], *(weights[p + n] for n in names)]
        key_dim = c["linear_key_head_dim"]
        sizes = c["linear_num_key_heads"] * key_dim, key_dim, c["linear_value_head_dim"]
        q, k, v, decay, beta, z = self.operations.gdn_inputs(x, *operands, *sizes)
        core = self.rule(q, k, v, decay, beta)
        out = weights[p + "norm.weight"], weights[p + "out_proj.weight"]
        result: torch.Tensor = self.operations.gdn_output(
            x, core, z, *out, *_feed_forward(weights, prefix)
        )
        return result

    def _attention(
        self, weights: Params, prefix: str, x: torch.Tensor, tables: KeysValues
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        p = prefix + "self_attn."
        norms = weights[p + "q_norm.weight"], weights[p + "k_norm.weight"]
        result: tuple[torch.Tensor, torch.Tensor, torch.Tensor] = self.operations.attention_block(
            x,
            weights[prefix + "input_layernorm.weight"],
            *_projections(weights, p),
            weights[p + "o_proj.weight"],
            *norms,
            _feed_forward(weights, prefix),
            *tables,
            self.config["head_dim"],
        )
        return result


def _projections(weights: Params, prefix: str) -> list[torch.Tensor]:
    return [weights[f"{prefix}{part}_proj.weight"] for part in ("q", "k", "v")]


def _feed_forward(weights: Params, prefix: str) -> tuple[torch.Tensor, ...]:
    parts = (weights[f"{prefix}mlp.{part}_proj.weight"] for part in ("gate", "up", "down"))
    return (weights[prefix + "post_attention_layernorm.weight"], *parts)


def _attend_chain(
    q: torch.Tensor, anchors: torch.Tensor, first: KeysValues, own: list[KeysValues]
) -> torch.Tensor:
    """Return [B, R, H * D]: one softmax over the prefix up to each anchor and the own chain."""
    keys, values = first
    batch, rows, heads, dim = q.shape
    groups, length = keys.shape[2], keys.shape[1]
    q = q.reshape(batch, rows, groups, heads // groups, dim)
    prefix = torch.einsum("brkgd,btkd->bkgrt", q, keys).float() * dim**-0.5
    positions = torch.arange(length, device=q.device)[None, None, None, None, :]
    prefix = prefix.masked_fill(positions > anchors[:, None, None, :, None], -torch.inf)
    chain = [torch.einsum("brkgd,brkd->bkgr", q, key).float() for key, _ in own]
    scores = torch.cat([prefix, torch.stack(chain, -1) * dim**-0.5], -1)
    shares = torch.softmax(scores, -1).to(q.dtype)
    mixed = torch.einsum("bkgrt,btkd->brkgd", shares[..., :length], values)
    for index, (_, value) in enumerate(own):
        mixed = mixed + torch.einsum("bkgr,brkd->brkgd", shares[..., length + index], value)
    return mixed.reshape(batch, rows, heads * dim)
