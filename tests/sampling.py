"""An independent sampler: brute force in float64 from token lists, and statistics on draws."""

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from services.contract.topology import Tree
from services.kernels.sample import cases
from services.kernels.sample.cases import Sequence
from services.kernels.sample.state import SampleState
from services.kernels.tree_tables import TableViews

Floats = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint64]
F32 = np.float32
MASK = np.uint64(0xFFFFFFFF)


@dataclass(frozen=True)
class Case:
    """One tree on one slot, and the operands of the kernels for it."""

    tree: Tree
    sequence: Sequence
    logits: torch.Tensor
    tables: TableViews
    state: SampleState

    def path_tokens(self, node: int) -> list[int]:
        """Return the tokens of the node's path, the root's left out."""
        return [self.tree.token_ids[i] for i in self.tree.path_to(node)[1:]]

    def row(self, node: int) -> npt.NDArray[np.float32]:
        """Return the node's logits."""
        return self.logits[0, node].numpy()

    def probabilities(self, node: int) -> Floats:
        """Return the exact distribution that the node's row is drawn from."""
        return distribution(self.row(node), self.sequence, self.path_tokens(node))


def make_case(tree: Tree, sequence: Sequence, logits: torch.Tensor) -> Case:
    """Return a case whose tables and buffers agree with its tree and sequence."""
    tables = cases.make_tables([tree], [sequence], [0])
    return Case(tree, sequence, logits, tables, cases.make_state([sequence], logits.shape[2]))


def edited(row: npt.NDArray[np.float32], sequence: Sequence, path: list[int]) -> Floats:
    """Return a row after bias, bans, min_tokens and penalties, token by token."""
    params, values = sequence.params, row.astype(F32).copy()
    for token, bias in params.logit_bias:
        values[token] += F32(bias)
    banned = set(params.banned_token_ids)
    if params.allowed_token_ids:
        banned |= set(range(len(row))) - set(params.allowed_token_ids)
    if len(sequence.emitted) + len(path) < sequence.budget.min_tokens:
        banned |= {*sequence.budget.eos_ids, *sequence.budget.stop_ids}
    values[sorted(banned)] = -np.inf
    counts = Counter([*sequence.emitted, *path])
    for token in {*counts, *sequence.prompt}:
        factor = F32(params.repetition_penalty)
        values[token] *= F32(1.0 / params.repetition_penalty) if values[token] > 0 else factor
    for token, count in counts.items():
        values[token] -= F32(params.frequency_penalty) * F32(count)
        values[token] -= F32(params.presence_penalty)
    return values.astype(np.float64)


def distribution(row: npt.NDArray[np.float32], sequence: Sequence, path: list[int]) -> Floats:
    """Return the probabilities [V] of a row: every filter by sorting."""
    params, values = sequence.params, edited(row, sequence, path)
    order = np.argsort(-values, kind="stable")
    result = np.zeros(len(values))
    if params.temperature == 0.0 or params.min_p == 1.0:
        result[order[0]] = 1.0
        return result
    weights = np.exp((values - values[order[0]]) / params.temperature)
    weights[weights < params.min_p * (1 - 1e-13)] = 0.0
    if params.top_k:
        weights[values < values[order[min(params.top_k, len(order)) - 1]]] = 0.0
    if params.top_p < 1.0:
        ranked = weights[order]
        before = np.cumsum(ranked) - ranked
        weights[order[before >= params.top_p * math.fsum(ranked)]] = 0.0
    return weights / math.fsum(weights)


def philox_words(seeds: Words, choice: int, positions: Words) -> Words:
    """Return Philox4x32-10 words, vectorised: the generator written a second time."""
    a, b = positions & MASK, np.full_like(positions, choice)
    c = d = np.zeros_like(positions)
    key_a, key_b = seeds & MASK, seeds >> np.uint64(32)
    for _ in range(10):
        first, second = np.uint64(0xD2511F53) * a, np.uint64(0xCD9E8D57) * c
        a, b, c, d = (
            (second >> np.uint64(32)) ^ b ^ key_a,
            second & MASK,
            (first >> np.uint64(32)) ^ d ^ key_b,
            first & MASK,
        )
        key_a = (key_a + np.uint64(0x9E3779B9)) & MASK
        key_b = (key_b + np.uint64(0xBB67AE85)) & MASK
    return b << np.uint64(32) | a


def grid_words(count: int) -> Words:
    """Return `count` random words whose uniforms lie at the middles of equal cells."""
    step = (1 << 64) // count
    return (np.arange(count, dtype=np.uint64) * np.uint64(step)) + np.uint64(step // 2)


def chi_square_p(counts: npt.NDArray[np.int64], probabilities: Floats) -> float:
    """Return the tail probability of the counts; cells that expect under 5 are pooled."""
    expected = probabilities * counts.sum()
    small = expected < 5
    observed = np.append(counts[~small], counts[small].sum()).astype(np.float64)
    wanted = np.append(expected[~small], expected[small].sum())
    if observed[wanted == 0].any():
        return 0.0
    observed, wanted = observed[wanted > 0], wanted[wanted > 0]
    if len(wanted) < 2:
        return 1.0
    statistic = float(((observed - wanted) ** 2 / wanted).sum())
    half = torch.tensor([(len(wanted) - 1) / 2, statistic / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half[0], half[1]))
