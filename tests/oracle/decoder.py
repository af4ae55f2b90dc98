"""The plain sequential decoder: one token at a time, in plain torch, no tricks.

Legend: d hidden, H query heads, G kv heads, D head dim; Hk, Hv key and value heads of a GDN
layer, dk, dv their dims, C channels.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from tests.oracle.folder import read_config, read_tensors


def rms_norm(x: torch.Tensor, offset: torch.Tensor, eps: float) -> torch.Tensor:
    """Return the zero-centred norm of the last dimension."""
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * (1 + offset)


def unit(x: torch.Tensor) -> torch.Tensor:
    """Return x over its l2 norm."""
    return x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + 1e-6)


class KeyValues:
    """Hold the keys and values of one attention layer, [n, G, D] each."""

    def __init__(self) -> None:
        self.keys: list[torch.Tensor] = []
        self.values: list[torch.Tensor] = []

    def stacked(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return keys and values [n, G, D]."""
        return torch.stack(self.keys), torch.stack(self.values)

    def cut(self, length: int) -> None:
        """Drop everything from position `length` on."""
        del self.keys[length:], self.values[length:]


class PlainDecoder:
    """Decode with a checkpoint folder, or a text config and tensors by plain name.

    After each step: recurrent[l] [Hv, dv, dk] and conv[l] [3, C] (raw rows, oldest first) per
    GDN layer, cache[a] per attention layer, hidden[t] [d] (after the final norm) per token.
    """

    def __init__(
        self, config: dict[str, Any], tensors: dict[str, torch.Tensor], dtype: torch.dtype
    ) -> None:
        self.config = config
        self.weights = {name: tensor.to(dtype) for name, tensor in tensors.items()}
        self.dtype = dtype
        self.eps = config.get("rms_norm_eps", 1e-6)
        self.kinds: list[str] = config["layer_types"]
        tied = config.get("tie_word_embeddings", False)
        self.embedding = self.weights["embed_tokens.weight"]
        self.head = self.embedding if tied else self.weights["lm_head.weight"]
        self.reset()

    @classmethod
    def from_folder(cls, folder: Path | str, dtype: torch.dtype = torch.float32) -> PlainDecoder:
        """Return a decoder of a folder's weights, widened to `dtype`."""
        return cls(read_config(Path(folder)), read_tensors(Path(folder)), dtype)

    def reset(self) -> None:
        """Forget every token."""
        c = self.config
        gdn = self.kinds.count("linear_attention")
        shape = (c["linear_num_value_heads"], c["linear_value_head_dim"], c["linear_key_head_dim"])
        self.recurrent = [torch.zeros(shape, dtype=self.dtype) for _ in range(gdn)]
        self.conv = [torch.zeros(3, self._channels(), dtype=self.dtype) for _ in range(gdn)]
        self.cache = [KeyValues() for _ in range(len(self.kinds) - gdn)]
        self.mtp_cache = KeyValues()
        self.hidden: list[torch.Tensor] = []

    def fork(self) -> PlainDecoder:
        """Return a decoder that continues from here on its own."""
        other = copy.copy(self)
        other.recurrent = [state.clone() for state in self.recurrent]
        other.conv = [rows.clone() for rows in self.conv]
        other.cache = [copy.deepcopy(layer) for layer in self.cache]
        other.mtp_cache = copy.deepcopy(self.mtp_cache)
        other.hidden = list(self.hidden)
        return other

    @property
    def length(self) -> int:
        """Return the number of tokens decoded so far."""
        return len(self.hidden)

    def step(self, token: int) -> torch.Tensor:
        """Decode one token and return the logits [V] of the next."""
        x = self.embedding[token]
        gdn, attention = 0, 0
        for index, kind in enumerate(self.kinds):
            prefix = f"layers.{index}."
            h = rms_norm(x, self.weights[prefix + "input_layernorm.weight"], self.eps)
            if kind == "linear_attention":
                x = x + self._gdn(prefix + "linear_attn.", gdn, h)
                gdn += 1
            else:
                x = x + self._attention(prefix, h, self.cache[attention], self.length)
                attention += 1
            x = x + self._mlp(prefix, x)
        self.hidden.append(rms_norm(x, self.weights["norm.weight"], self.eps))
        return self.head @ self.hidden[-1]

    def logits(self, token_ids: list[int]) -> torch.Tensor:
        """Decode tokens from an empty state; return the logits [n, V] after each."""
        self.reset()
        return torch.stack([self.step(token) for token in token_ids])

    def greedy(self, prompt: list[int], count: int) -> list[int]:
        """Return `count` greedy tokens after a prompt; ties go to the lowest id."""
        last = self.logits(prompt)[-1]
        tokens: list[int] = []
        for _ in range(count):
            tokens.append(int((last == last.max()).nonzero()[0]))
            last = self.step(tokens[-1])
        return tokens

    def mtp_step(
        self, token: int, hidden: torch.Tensor, position: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run the MTP block on row (token x[i+1], hidden h[i]) at position i.

        Returns h' [d] and logits [V] for x[i+2]. The row's keys and values replace whatever
        the MTP cache holds from `position` on.
        """
        w = self.weights
        self.mtp_cache.cut(position)
        left = rms_norm(self.embedding[token], w["mtp.pre_fc_norm_embedding.weight"], self.eps)
        right = rms_norm(hidden, w["mtp.pre_fc_norm_hidden.weight"], self.eps)
        x = w["mtp.fc.weight"] @ torch.cat([left, right])
        prefix = "mtp.layers.0."
        h = rms_norm(x, w[prefix + "input_layernorm.weight"], self.eps)
        x = x + self._attention(prefix, h, self.mtp_cache, position)
        x = x + self._mlp(prefix, x)
        out = rms_norm(x, w["mtp.norm.weight"], self.eps)
        return out, self.head @ out

    def _channels(self) -> int:
        c = self.config
        keys = c["linear_num_key_heads"] * c["linear_key_head_dim"]
        return int(2 * keys + c["linear_num_value_heads"] * c["linear_value_head_dim"])

    def _mlp(self, prefix: str, x: torch.Tensor) -> torch.Tensor:
        w = self.weights
        h = rms_norm(x, w[prefix + "post_attention_layernorm.weight"], self.eps)
        gate, up = w[prefix + "mlp.gate_proj.weight"] @ h, w[prefix + "mlp.up_proj.weight"] @ h
        return w[prefix + "mlp.down_proj.weight"] @ (F.silu(gate) * up)

    def _gdn(self, prefix: str, layer: int, h: torch.Tensor) -> torch.Tensor:
        c, w = self.config, self.weights
        heads, dv = c["linear_num_value_heads"], c["linear_value_head_dim"]
        keys, dk = c["linear_num_key_heads"], c["linear_key_head_dim"]
        window = torch.cat([self.conv[layer], (w[prefix + "in_proj_qkv.weight"] @ h)[None]])
        self.conv[layer] = window[1:]
        y = F.silu((window.T * w[prefix + "conv1d.weight"][:, 0]).sum(1))
        query, key, value = y.split([keys * dk, keys * dk, heads * dv])
        query = unit(query.view(keys, dk)).repeat_interleave(heads // keys, 0) * dk**-0.5
        key = unit(key.view(keys, dk)).repeat_interleave(heads // keys, 0)
        beta = torch.sigmoid(w[prefix + "in_proj_b.weight"] @ h)[:, None]
        rate = F.softplus(w[prefix + "in_proj_a.weight"] @ h + w[prefix + "dt_bias"])
        state = self.recurrent[layer] * torch.exp(-w[prefix + "A_log"].exp() * rate)[:, None, None]
        read = torch.einsum("hvk,hk->hv", state, key)
        update = beta * (value.view(heads, dv) - read)
        state = state + update[:, :, None] * key[:, None, :]
        self.recurrent[layer] = state
        core = torch.einsum("hvk,hk->hv", state, query)
        normed = core * torch.rsqrt(core.pow(2).mean(-1, keepdim=True) + self.eps)
        gate = self._gate(w[prefix + "in_proj_z.weight"] @ h).view(heads, dv)
        return w[prefix + "out_proj.weight"] @ (normed * w[prefix + "norm.weight"] * gate).flatten()

    def _gate(self, z: torch.Tensor) -> torch.Tensor:
        sigmoid = self.config.get("output_gate_type") == "sigmoid"
        return torch.sigmoid(z) if sigmoid else F.silu(z)

    def _attention(
        self, prefix: str, h: torch.Tensor, cache: KeyValues, position: int
    ) -> torch.Tensor:
        c, w = self.config, self.weights
        p = prefix + "self_attn."
        heads, groups, dim = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        query, gate = (w[p + "q_proj.weight"] @ h).view(heads, 2, dim).unbind(1)
        query = rms_norm(query, w[p + "q_norm.weight"], self.eps)
        key = (w[p + "k_proj.weight"] @ h).view(groups, dim)
        key = rms_norm(key, w[p + "k_norm.weight"], self.eps)
        cache.keys.append(self._rotate(key, position))
        cache.values.append((w[p + "v_proj.weight"] @ h).view(groups, dim))
        keys, values = cache.stacked()
        keys = keys.repeat_interleave(heads // groups, 1)
        values = values.repeat_interleave(heads // groups, 1)
        scores = torch.einsum("hd,nhd->hn", self._rotate(query, position), keys) * dim**-0.5
        mixed = torch.einsum("hn,nhd->hd", scores.softmax(-1), values)
        return w[p + "o_proj.weight"] @ (mixed * torch.sigmoid(gate)).flatten()

    def _rotate(self, x: torch.Tensor, position: int) -> torch.Tensor:
        rope = self.config["rope_parameters"]
        rotary = int(self.config["head_dim"] * rope["partial_rotary_factor"])
        half = rotary // 2
        steps = torch.arange(half, dtype=torch.float64) * 2 / rotary
        angle = position * float(rope["rope_theta"]) ** -steps
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        low, high, rest = x[..., :half], x[..., half:rotary], x[..., rotary:]
        return torch.cat([low * cos - high * sin, high * cos + low * sin, rest], -1)
