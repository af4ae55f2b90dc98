"""The library's model of the same folder: logits, caches, and the MTP block."""

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM
from transformers.cache_utils import DynamicCache, MtpCache
from transformers.modeling_layers import MtpModel


class LibraryModel:
    """Run a folder with transformers in fp32."""

    def __init__(self, folder: Path) -> None:
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.cache: DynamicCache | None = None

    @torch.no_grad()
    def run(self, token_ids: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """Run tokens from an empty state; return logits [n, V] and hidden rows [n, d]."""
        ids = torch.tensor([token_ids])
        out = self.model(ids, use_cache=True, output_hidden_states=True)
        self.cache = out.past_key_values
        return out.logits[0], out.hidden_states[-1][0]

    def recurrent(self) -> torch.Tensor:
        """Return the recurrent states [L, Hv, dv, dk] after the last run."""
        return torch.stack([state.transpose(1, 2) for state in self._states("recurrent_states")])

    def conv(self) -> torch.Tensor:
        """Return the last three raw rows [L, 3, C] after the last run."""
        return torch.stack([state.T[-3:] for state in self._states("conv_states")])

    def keys_values(self, layer: int) -> torch.Tensor:
        """Return keys and values [2, n, Hkv, D] of the layer-th attention layer."""
        layers = [entry for entry in self._layers() if hasattr(entry, "keys")]
        pair = torch.stack([layers[layer].keys[0], layers[layer].values[0]])
        return pair.transpose(1, 2)

    def _states(self, name: str) -> list[torch.Tensor]:
        return [getattr(x, name)[0][0] for x in self._layers() if hasattr(x, name)]

    def _layers(self) -> list[object]:
        if self.cache is None:
            raise RuntimeError("run first")
        return list(self.cache.layers)


class LibraryMtp:
    """Run the MTP block of a library model; its position is one above ours."""

    def __init__(self, library: LibraryModel) -> None:
        config = library.model.config
        config.num_mtp_layers = 1
        config.mtp_layer_types = ["full_attention"]
        self.model = MtpModel.from_pretrained(library.model).eval()
        self.head = library.model.lm_head
        self.cache = MtpCache(config=config.get_mtp_config())
        self.length = 0

    @torch.no_grad()
    def run(self, token_ids: list[int], hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Run rows after those already cached; return h' [n, d] and logits [n, V]."""
        count = len(token_ids)
        positions = torch.arange(self.length + 1, self.length + count + 1)[None]
        ids = torch.tensor([token_ids])
        out = self.model.forward_layer(0, hidden[None], positions, self.cache, input_ids=ids)[0]
        self.length += count
        return out, self.head(out)
