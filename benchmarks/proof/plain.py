"""Plain decoding, twice: a whole sequence with its digests, and every live row of one forward."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from benchmarks.proof.world import World
from services.committer.digest import surface_digests
from services.contract.sampling import Budget, SamplingParams
from services.contract.tree import Tree
from tests.model_rig import ModelRig
from tests.ring import Ring, root_only

COPIED = ("recurrent", "conv", "kv", "words", "page_table")
STEPPED = ("recurrent", "conv", "words")
Digests = dict[str, bytes]


@dataclass(frozen=True)
class Truth:
    """A prompt, what plain decoding emits after it, and the state's digests at every length."""

    prompt: list[int]
    emitted: list[int]
    digests: dict[int, Digests]
    sampling: SamplingParams

    def differing_surfaces(self, ring: Ring, slot: int = 0) -> list[str]:
        """Return the surfaces of a slot whose bits are not plain decoding's."""
        found = surface_digests(ring.arenas.verifier, slot)
        wanted = self.digests[ring.rows[slot].length]
        return [name for name in wanted if found[name] != wanted[name]]


def plain_truth(
    world: World, prompt: list[int], count: int, sampling: SamplingParams | None = None
) -> Truth:
    """Decode `count` tokens plainly: one root-only tree a token."""
    return truth_of(world.ring(len(prompt)), prompt, count, sampling or SamplingParams())


def truth_of(ring: Ring, prompt: list[int], count: int, sampling: SamplingParams) -> Truth:
    """Decode plainly in slot 0 of a ring, and release the slot."""
    ring.drafter.draft = root_only
    budget = Budget(count + 16, context_length=ring.config.context_length)
    row = ring.start(0, prompt, sampling, budget)
    digests = {row.length: surface_digests(ring.arenas.verifier, 0)}
    while len(row.emitted) < count:
        ring.cycle(0)
        digests[row.length] = surface_digests(ring.arenas.verifier, 0)
    ring.release(0)
    return Truth(prompt, row.emitted, digests, sampling)


class PlainRows:
    """A second memory in which each path of a tree is decoded plainly, token by token."""

    def __init__(self, world: World, ring: Ring) -> None:
        context = ring.config.context_length
        self.rig = ModelRig(world.model, slots=1, context=context, device=world.device)

    def load(self, ring: Ring) -> None:
        """Take over the state that a forward is about to read."""
        for name in COPIED:
            source = ring.arenas.verifier[name]
            target = getattr(self.rig.state, name)
            target.copy_(source[:1] if name not in ("kv",) else source[:, : target.shape[1]])

    def wrong_rows(self, tree: Tree, logits: torch.Tensor) -> list[int]:
        """Return the nodes whose logits are not, bit for bit, those of their path alone.

        Nodes are stepped depth first, so the keys at a node's ancestors' places are theirs.
        """
        left = {-1: self._save()}
        wrong: list[int] = []
        pending = [0]
        while pending:
            node = pending.pop()
            self._restore(left[tree.parents[node]])
            row = self.rig.step(tree.token_ids[node])
            if not torch.equal(row, logits[node]):
                wrong.append(node)
            children = tree.children(node)
            if children:
                left[node] = self._save()
            pending.extend(reversed(children))
        self._restore(left[-1])
        return wrong

    def sees_swapped_parents(self, tree: Tree, logits: torch.Tensor) -> bool:
        """Decode a tree in which one node hangs elsewhere; say whether its row changed."""
        moved = self._moved(tree)
        if moved is None:
            return True
        node, other = moved
        rows = self.rig.decode({0: other}, self.rig.cycle())[0]
        return not torch.equal(rows[node], logits[node])

    @staticmethod
    def _moved(tree: Tree) -> tuple[int, Tree] | None:
        for node in range(tree.num_nodes - 1, 1, -1):
            if tree.parents[node] > 0 and not tree.children(node):
                parents = (*tree.parents[:node], 0, *tree.parents[node + 1 :])
                return node, replace(tree, parents=parents)
        return None

    def _save(self) -> dict[str, torch.Tensor]:
        return {name: getattr(self.rig.state, name).clone() for name in STEPPED}

    def _restore(self, saved: dict[str, torch.Tensor]) -> None:
        for name, tensor in saved.items():
            getattr(self.rig.state, name).copy_(tensor)
