"""Trees around a known continuation: every acceptance pattern, on purpose."""

from __future__ import annotations

import random
from dataclasses import dataclass

from services.contract import pb
from services.contract.limits import MAX_DEPTH, MAX_ROWS
from services.contract.topology import NodeSource
from services.contract.tree import Tree
from tests.ring import Ring

PATTERNS = ("root", "rejected", "chain", "full", "mixed", "mixed", "mixed")


def plain_run(ring: Ring, prompt: list[int], count: int, **wishes: object) -> dict[int, bytes]:
    """Decode plainly in slot 0 and return the digest at every length."""
    row = ring.start(0, prompt, **wishes)
    digests = {row.length: ring.digest(0)}
    while len(row.emitted) < count:
        ring.cycle(0)
        digests[row.length] = ring.digest(0)
    return digests


@dataclass
class KnownDraft:
    """Draft trees that hold the true continuation of each slot down to a random depth.

    Args    truth: tokens that plain decoding emits, by slot.
    """

    ring: Ring
    truth: dict[int, list[int]]
    rng: random.Random
    patterns: tuple[str, ...] = PATTERNS

    def __call__(self, part: pb.stage_pb2.CycleSequence) -> Tree:
        """Return the tree of one sequence."""
        done = len(self.ring.rows[part.slot].emitted)
        ahead = self.truth[part.slot][done : done + MAX_DEPTH]
        pattern = self.rng.choice(self.patterns)
        if pattern == "root":
            return Tree.root_only(part.root_id)
        depth = {"rejected": 0, "chain": MAX_DEPTH, "full": MAX_DEPTH}.get(pattern)
        depth = self.rng.randrange(8) if depth is None else depth
        size = {"chain": 0, "full": MAX_ROWS}.get(pattern, self.rng.randint(2, MAX_ROWS))
        return self._grow(part.root_id, ahead[:depth], ahead, size)

    def _grow(self, root: int, spine: list[int], ahead: list[int], size: int) -> Tree:
        """Return the spine with wrong nodes strewn before, between and behind its nodes."""
        parents, tokens, depths = [-1], [root], [0]
        tips = [0]
        for token in spine:
            if size and self.rng.random() < 0.4 and len(tokens) < size:
                self._wrong(tips[-1], tips, ahead, parents, tokens, depths)
            parents.append(tips[-1])
            tokens.append(token)
            depths.append(depths[tips[-1]] + 1)
            tips.append(len(tokens) - 1)
        while len(tokens) < size:
            parent = self.rng.randrange(len(tokens))
            if depths[parent] < MAX_DEPTH:
                self._wrong(parent, tips, ahead, parents, tokens, depths)
        sources = (int(NodeSource.ROOT),) + (int(NodeSource.TEST),) * (len(tokens) - 1)
        return Tree(tuple(parents), tuple(tokens), sources, (0.0,) * len(tokens))

    def _wrong(
        self,
        parent: int,
        tips: list[int],
        ahead: list[int],
        parents: list[int],
        tokens: list[int],
        depths: list[int],
    ) -> None:
        """Add a child that plain decoding does not emit there."""
        on_path = tips[depths[parent]] == parent if depths[parent] < len(tips) else False
        true = ahead[depths[parent]] if on_path and depths[parent] < len(ahead) else -1
        taken = {tokens[i] for i, p in enumerate(parents) if p == parent} | {true}
        vocab = self.ring.model.vocab_size
        token = self.rng.choice([t for t in range(min(vocab, 97)) if t not in taken])
        parents.append(parent)
        tokens.append(token)
        depths.append(depths[parent] + 1)
