"""What every family needs: rules, the checkpoint, prefixes of real text, stages on a device."""

from __future__ import annotations

import random
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from services.contract.limits import PAGE
from services.contract.tree import Tree, tree_from_proto
from services.drafter.build import build_drafter
from services.model.checkpoint import Checkpoint
from services.model.weights import load_mtp, load_target
from services.runtime.buffers import model_dtype
from services.runtime.graphs import Graphs
from services.runtime.local import LocalGroup
from tests.ring import EPOCH, Ring

CPU = torch.device("cpu")
ROOM = 256


class World:
    """One run's rules, checkpoint and device; `short` cuts every size for a planted run."""

    def __init__(
        self, rules: dict[str, Any], model: Path, device: str = "cpu", short: bool = False
    ) -> None:
        self.rules, self.model, self.device, self.short = rules, model, device, short
        self.seed: int = rules["seed"]
        self.config = Checkpoint.open(model).config

    @cached_property
    def texts(self) -> list[list[int]]:
        """Token ids of the corpora's longest requests; random ids without a tokenizer."""
        try:
            from benchmarks.replay.corpus import CORPORA, load_corpus
        except ImportError:
            return self._random_texts()
        if not (self.model / "tokenizer.json").exists():
            return self._random_texts()
        files = sorted(CORPORA.glob("astropy_*.jsonl"))
        found = [list(r.token_ids) for file in files for r in load_corpus(file, self.model, 6)]
        return sorted(found, key=len, reverse=True)[:6]

    def _random_texts(self) -> list[list[int]]:
        rng = random.Random(self.seed)
        return [[rng.randrange(150) for _ in range(16384)]]

    def prefix(self, index: int) -> list[int]:
        """Return the index-th prefix of the rules."""
        length = self.rules["prefix_lengths"][index]
        text = self.texts[-1 - index % len(self.texts)]
        while len(text) < length:
            text = text + self.texts[0]
        return text[: min(length, 40 + index) if self.short else length]

    def ring(self, length: int, slots: int = 1, grid: int = 256) -> Ring:
        """Return stages with room for a prompt of this length and what follows; all poisoned."""
        context = -(-(length + ROOM) // PAGE) * PAGE
        return Ring(self.model, slots, context, grid, poison=True, device=self.device)

    def natural_ring(self, length: int) -> Ring:
        """Return stages with the checkpoint's own drafter."""
        ring = self.ring(length)
        checkpoint, dtype = Checkpoint.open(self.model), model_dtype(ring.config)
        target = load_target(checkpoint, dtype, self.device)
        mtp = load_mtp(checkpoint, dtype, self.device)
        lent = target.embedding, target.head
        drafter = build_drafter(ring.config, ring.model, mtp, lent, ring.arenas, EPOCH)
        ring.group = LocalGroup(ring.model, (drafter, ring.verifier, ring.committer), EPOCH)
        return ring


def cycle_tree(ring: Ring, slot: int = 0) -> tuple[Tree, tuple[int, ...]]:
    """Run one cycle of a slot; return its tree and the accepted nodes."""
    result = ring.cycle(slot)[0]
    tree, _ = tree_from_proto(result.tree, ring.model.vocab_size, ring.group.epoch)
    return tree, tuple(result.path.nodes)


def run_eagerly(ring: Ring) -> None:
    """Run the committer's steps one by one on any device, so that one can be replaced."""
    ring.committer.graphs.clear()
    ring.committer.graphs = Graphs(CPU)
