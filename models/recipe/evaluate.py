"""Held-out loss, MTP agreement by depth, and sampled text."""

import time
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F

from models.recipe.network import KeysValues, Network
from models.recipe.settings import MTP_DEPTH, Params

ANCHORS = 256
END_TOKENS = ("<|endoftext|>", "<|im_end|>")


@dataclass(slots=True)
class Agreement:
    """Count, by depth, how often a draft was the text's token or the trunk's own choice."""

    device: str
    total: int = 0
    right: torch.Tensor = field(init=False)
    agreed: torch.Tensor = field(init=False)
    unbroken: torch.Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.right, self.agreed, self.unbroken = torch.zeros(3, MTP_DEPTH, device=self.device)

    def shares(self, counts: torch.Tensor) -> list[float]:
        """Return counts by depth as shares of all anchors."""
        return [round(float(count) / self.total, 4) for count in counts]


@torch.no_grad()
def evaluate(
    network: Network,
    weights: Params,
    tokens: torch.Tensor,
    device: str,
    length: int = 4096,
    max_windows: int = 64,
    batch: int = 8,
) -> dict[str, Any]:
    """Return loss and top-1 of the trunk, and shares of right and agreeing drafts by depth."""
    count = min(max_windows, (tokens.numel() - MTP_DEPTH - 2) // length)
    generator = torch.Generator().manual_seed(7)
    agreement = Agreement(device)
    loss, hits = 0.0, 0
    for first in range(0, count, batch):
        starts = range(first * length, min(first + batch, count) * length, length)
        width = length + MTP_DEPTH + 1
        rows = torch.stack([tokens[start : start + width] for start in starts]).long().to(device)
        hidden = network.trunk(weights, rows[:, :length])
        chosen, row_loss = _trunk_choices(weights, hidden, rows[:, 1 : length + 1])
        loss += row_loss
        hits += int((chosen == rows[:, 1 : length + 1]).sum())
        _count_drafts(network, weights, rows, hidden, chosen, generator, agreement)
    num_tokens = count * length
    return {
        "val_loss": round(loss / num_tokens, 4),
        "val_top1": round(hits / num_tokens, 4),
        "mtp_top1": agreement.shares(agreement.right),
        "mtp_agree_greedy": agreement.shares(agreement.agreed),
        "mtp_chain_agree": agreement.shares(agreement.unbroken),
        "tokens": num_tokens,
    }


def _trunk_choices(
    weights: Params, hidden: torch.Tensor, labels: torch.Tensor
) -> tuple[torch.Tensor, float]:
    chosen, loss = torch.empty_like(labels), 0.0
    for row in range(len(hidden)):
        logits = (hidden[row] @ weights["model.embed_tokens.weight"].t()).float()
        loss += float(F.cross_entropy(logits, labels[row], reduction="sum"))
        chosen[row] = logits.argmax(-1)
    return chosen, loss


def _count_drafts(
    network: Network,
    weights: Params,
    tokens: torch.Tensor,
    hidden: torch.Tensor,
    chosen: torch.Tensor,
    generator: torch.Generator,
    agreement: Agreement,
) -> None:
    windows, length, _ = hidden.shape
    first, keys, values = network.mtp_first(weights, tokens[:, 1 : length + 1], hidden)
    high = length - MTP_DEPTH - 2
    anchors = torch.randint(min(64, high - 1), high, (windows, ANCHORS), generator=generator)
    anchors = anchors.to(tokens.device)
    rows = first.gather(1, anchors[..., None].expand(-1, -1, first.shape[-1]))
    own: list[KeysValues] = []
    alive = torch.ones_like(anchors, dtype=torch.bool)
    for depth in range(1, MTP_DEPTH + 1):
        if depth > 1:
            ids = tokens.gather(1, anchors + depth)
            rows = network.mtp_next(weights, ids, rows, anchors, depth, (keys, values), own)
        draft = (rows @ weights["model.embed_tokens.weight"].t()).argmax(-1)
        same = draft == chosen.gather(1, anchors + depth)
        alive = alive & same
        agreement.right[depth - 1] += (draft == tokens.gather(1, anchors + depth + 1)).sum()
        agreement.agreed[depth - 1] += same.sum()
        agreement.unbroken[depth - 1] += alive.sum()
    agreement.total += windows * ANCHORS


@torch.no_grad()
def sample(
    network: Network,
    weights: Params,
    tokenizer: Any,
    prompts: list[str],
    device: str,
    max_tokens: int,
    until: float,
) -> list[str]:
    """Return greedy continuations, cut at an end token or when the clock passes `until`."""
    stops = {tokenizer.token_to_id(token) for token in END_TOKENS}
    texts = []
    for prompt in prompts:
        ids = tokenizer.encode(prompt).ids[-3000:]
        for _ in range(max_tokens):
            padded = torch.tensor([ids + [0] * (-len(ids) % 64)], device=device)
            hidden = network.trunk(weights, padded)[0, len(ids) - 1]
            ids.append(int((hidden @ weights["model.embed_tokens.weight"].t()).argmax()))
            if ids[-1] in stops or time.time() > until:
                break
        texts.append(tokenizer.decode(ids, skip_special_tokens=False))
    return texts
