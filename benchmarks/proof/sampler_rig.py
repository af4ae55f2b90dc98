"""Captured verification steps, draws from their rows in bulk, and walks over the draws."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.proof.world import World, cycle_tree
from services.contract.sampling import Budget, Drafting, SamplingParams
from services.contract.topology import Tree
from services.kernels import sample
from services.kernels.sample import cases
from services.kernels.sample.cases import Sequence
from services.kernels.sample.state import SampleState
from services.kernels.state_words import PATH_EMITTED, PATH_NODES, PATH_PENDING
from services.kernels.tree_tables import SLOT, TableViews
from services.runtime.graphs import Graphs
from tests.sampling import Case, distribution, make_case, philox_words

Words = npt.NDArray[np.uint64]
Tokens = npt.NDArray[np.int32]
BATCH = 2048
BUFFERS = ("words", "path", "sampling", "prompt_mask", "output_counts", "logit_bias")
BUFFERS += ("logprob_ids", "logprob_values")
BUDGET = Budget(4096, context_length=16384)


@dataclass(frozen=True)
class Step:
    """One captured forward: its tree, its sequence before it, its rows, the tokens drawn.

    Shapes  logits [32, V] fp32 on the CPU; drawn [32]: what the verifier's sampler gave.
    """

    tree: Tree
    sequence: Sequence
    logits: torch.Tensor
    drawn: list[int]


@contextmanager
def watched(ring: object, seen: list[tuple[torch.Tensor, list[int]]]) -> Iterator[None]:
    """Record the logits of every forward and the token of every live row before each walk."""
    honest = sample.walk
    ring.verifier.graphs.clear()
    ring.verifier.graphs = Graphs(torch.device("cpu"))

    def walk(logits: torch.Tensor, tables: TableViews, state: SampleState) -> None:
        out = torch.full((1, 32), -1, dtype=torch.int32, device=logits.device)
        sample.draw(logits, tables, state, out)
        rows = torch.zeros(32, logits.shape[2])
        rows[: logits.shape[1]] = logits[0].cpu()
        seen.append((rows, out[0].tolist()))
        honest(logits, tables, state)

    sample.walk = walk
    try:
        yield
    finally:
        sample.walk = honest


def captured_steps(world: World, params: SamplingParams, num_rows: int) -> list[Step]:
    """Run natural sampled cycles until so many live rows were seen, over several requests."""
    prefixes = world.rules["sampler"]["captured_prefixes"]
    steps: list[Step] = []
    share = -(-num_rows // len(prefixes))
    for index in prefixes:
        prompt = world.prefix(index)
        ring = world.natural_ring(len(prompt))
        row = ring.start(0, prompt, params, BUDGET, Drafting("hydra27"))
        seen: list[tuple[torch.Tensor, list[int]]] = []
        rows = 0
        with watched(ring, seen):
            while rows < share and row.length + 32 < ring.config.context_length:
                known = tuple(row.emitted)
                tree, _ = cycle_tree(ring)
                sequence = Sequence(params, BUDGET, tuple(prompt), known)
                steps.append(Step(tree, sequence, *seen[-1]))
                rows += tree.num_nodes
    return steps


def path_tokens(step: Step, node: int) -> list[int]:
    """Return the tokens of a node's path, the root's left out."""
    return [step.tree.token_ids[i] for i in step.tree.path_to(node)[1:]]


def wanted_token(
    step: Step, node: int, history: list[int], border: float, later: int = 0
) -> tuple[int, bool]:
    """Return the token that brute force draws at a row, and whether its uniform is on a border.

    Args    later: take the random number of so many positions further on.
    """
    sequence = step.sequence
    known = len(sequence.prompt) + len(sequence.emitted)
    seed = np.array([sequence.params.seed], np.uint64)
    position = np.array([known + step.tree.depths[node] + later], np.uint64)
    uniform = int(philox_words(seed, sequence.choice_index, position)[0]) / 2**64
    reached = np.cumsum(distribution(step.logits[node].numpy(), sequence, history))
    reached[-1] = 1.0
    return int(np.argmax(reached > uniform)), bool(np.abs(reached - uniform).min() < border)


def compressed(step: Step) -> Case:
    """Return the step over the union of its rows' supports: the same distributions, few ids."""
    loose = replace(step.sequence, params=replace(step.sequence.params, top_p=1.0))
    keep = np.zeros(step.logits.shape[1], bool)
    for node in range(step.tree.num_nodes):
        row = step.logits[node].numpy()
        keep |= distribution(row, loose, path_tokens(step, node)) > 0
    keep[list(step.tree.token_ids)] = True
    place = np.cumsum(keep) - 1
    tree = replace(step.tree, token_ids=tuple(int(place[t]) for t in step.tree.token_ids))
    known = [tuple(int(place[t]) for t in ids if keep[t]) for ids in _histories(step)]
    sequence = replace(step.sequence, prompt=known[0], emitted=known[1])
    return make_case(tree, sequence, step.logits[:, torch.from_numpy(keep)].contiguous()[None])


def _histories(step: Step) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return step.sequence.prompt, step.sequence.emitted


def positions(case: Case) -> int:
    """Return the position of the token that the root row draws."""
    return len(case.sequence.prompt) + len(case.sequence.emitted)


def counter_words(case: Case, seeds: Words) -> Words:
    """Return the generator's words [num, 16] of each seed, one a depth."""
    start = positions(case)
    columns = [philox_words(seeds, 0, np.full_like(seeds, start + d)) for d in range(16)]
    return np.stack(columns, 1)


def on_device(state: SampleState, device: str) -> SampleState:
    """Return the state with its tensors on a device."""
    return replace(state, **{name: getattr(state, name).to(device) for name in BUFFERS})


def slab_of(case: Case, batch: int, device: str) -> tuple[torch.Tensor, TableViews, SampleState]:
    """Return the case `batch` times: logits, tables and state on the device."""
    state = cases.make_state([case.sequence], case.logits.shape[2], slab=batch)
    one = {name: getattr(state, name).to(device) for name in BUFFERS}
    rows = {name: x.repeat(batch, *[1] * (x.dim() - 1)) for name, x in one.items()}
    block = case.tables.block.repeat(batch, 1)
    block[:, SLOT] = torch.arange(batch)
    logits = case.logits.to(device).expand(batch, -1, -1).contiguous()
    return logits, TableViews(block.to(device)), replace(state, **rows)


def draw_rows(case: Case, words: Words, device: str, batch: int = BATCH) -> Tokens:
    """Return the token [num, nodes] of every live row for each row of words [num, 16]."""
    nodes, depths = case.tree.num_nodes, list(case.tree.depths)
    if device == "cpu":
        from services.kernels.sample import cpu

        out = np.empty((nodes, len(words)), np.int32)
        for node in range(nodes):
            column = np.ascontiguousarray(words[:, depths[node]])
            row = case.logits[0, node]
            cpu.draw_many(row, case.tables, case.state, node, column, out[node])
        return out.T
    return draw_slabs(case, words, device, batch)


def draw_slabs(case: Case, words: Words, device: str, batch: int) -> Tokens:
    """Return the same by the kernel of the ring, a slab of `batch` copies of the tree at a time."""
    nodes, depths = case.tree.num_nodes, list(case.tree.depths)
    logits, tables, state = slab_of(case, batch, device)
    given = torch.zeros(len(words), 32, dtype=torch.int64, device=device)
    given[:, :nodes] = torch.from_numpy(words.view(np.int64)[:, depths]).to(device)
    out = torch.full((len(words), 32), -1, dtype=torch.int32, device=device)
    for start in range(0, len(words), batch):
        part = slice(start, start + batch)
        sample.draw(logits, tables, state, out[part], given[part])
    return out[:, :nodes].cpu().numpy()


def walk_over(tree: Tree, tokens: Tokens) -> tuple[npt.NDArray[np.bool_], Tokens, Tokens]:
    """Walk from the root by drawn tokens; return who visited what, last nodes, last tokens."""
    num = len(tokens)
    visited = np.zeros((num, tree.num_nodes), bool)
    visited[:, 0] = True
    last, pending = np.zeros(num, np.int32), tokens[:, 0].copy()
    for node in range(1, tree.num_nodes):
        parent, token = tree.parents[node], tree.token_ids[node]
        older = [i for i in tree.children(parent) if i < node]
        if any(tree.token_ids[i] == token for i in older):
            continue  # of equal siblings the walk takes the first
        takes = visited[:, parent] & (tokens[:, parent] == token)
        visited[:, node] = takes
        last[takes], pending[takes] = node, tokens[takes, node]
    return visited, last, pending


def real_walks(case: Case, seeds: Words, device: str) -> tuple[Tokens, Tokens]:
    """Return the last node and pending token of the sampler's own walk for each seed."""
    from services.kernels.sample.params import SEED_HIGH, SEED_LOW

    batch = 2000
    logits, tables, state = slab_of(case, batch, device)
    before = state.output_counts.clone(), state.sampling.clone()
    last, pending = [], []
    for group in seeds.reshape(-1, batch):
        state.output_counts.copy_(before[0])
        state.sampling.copy_(before[1])
        halves = torch.from_numpy(group.view(np.int32).reshape(batch, 2))
        state.sampling[:, SEED_LOW : SEED_HIGH + 1] = halves.to(device)
        sample.walk(logits, tables, state)
        last.append(state.path[:, PATH_NODES:PATH_EMITTED].max(1).values.cpu())
        pending.append(state.path[:, PATH_PENDING].clone().cpu())
    return torch.cat(last).numpy(), torch.cat(pending).numpy()
