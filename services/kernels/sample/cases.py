"""Sampler operands for tests and measurements: trees with real tokens, slots, logits."""

from dataclasses import dataclass, replace

import numpy as np
import torch

from services.contract.limits import MAX_LOGPROBS, MAX_PATH, MAX_ROWS, SURVIVORS, TABLE_WORDS
from services.contract.sampling import Budget, SamplingParams
from services.contract.topology import Tree
from services.kernels.sample import params as p
from services.kernels.sample.state import SPLIT_LANES, SampleState
from services.kernels.state_words import CYCLE, EPOCH
from services.kernels.tree_tables import TableViews, build_tables


@dataclass(frozen=True, slots=True)
class Sequence:
    """Hold what one slot samples with.

    Args    prompt, emitted: tokens so far; the tree's root is the last of them.
    """

    params: SamplingParams
    budget: Budget
    prompt: tuple[int, ...] = (0,)
    emitted: tuple[int, ...] = ()
    choice_index: int = 0


def make_state(
    sequences: list[Sequence],
    vocab: int,
    slab: int = 4,
    survivors: int = SURVIVORS,
    lanes: int = SPLIT_LANES,
) -> SampleState:
    """Return the buffers of these sequences, one slot each."""
    slots = len(sequences)
    wide = (slots, MAX_PATH, 1 + MAX_LOGPROBS)
    state = SampleState(
        words=torch.zeros(slots, 16, dtype=torch.int32),
        path=torch.full((slots, 64), -7, dtype=torch.int32),
        sampling=torch.zeros(slots, p.SAMPLING_WORDS, dtype=torch.int32),
        prompt_mask=torch.zeros(slots, vocab, dtype=torch.uint8),
        output_counts=torch.zeros(slots, vocab, dtype=torch.int32),
        logit_bias=torch.full((slots, vocab), float("nan")),
        logprob_ids=torch.full(wide, -1, dtype=torch.int32),
        logprob_values=torch.full(wide, float("nan")),
        max_sequences=slab,
        survivors=survivors,
        lanes=lanes,
    )
    for slot, sequence in enumerate(sequences):
        _fill_slot(state, slot, sequence)
    return state


def _fill_slot(state: SampleState, slot: int, sequence: Sequence) -> None:
    words, marks = state.sampling[slot].numpy(), state.prompt_mask[slot].numpy()
    p.pack(sequence.params, sequence.budget, sequence.choice_index, words)
    p.fill_bias(sequence.params, state.logit_bias[slot].numpy())
    p.fill_marks(sequence.budget, marks)
    marks[list(sequence.prompt)] |= p.IN_PROMPT
    np.add.at(state.output_counts[slot].numpy(), list(sequence.emitted), 1)
    words[p.NUM_EMITTED] = len(sequence.emitted)
    state.words[slot, EPOCH], state.words[slot, CYCLE] = 5, 3


def make_tables(trees: list[Tree], sequences: list[Sequence], slots: list[int]) -> TableViews:
    """Return the tables of a slab; the root of each tree continues its slot's tokens."""
    block = np.zeros((len(trees), TABLE_WORDS), np.int32)
    for row, tree, slot in zip(block, trees, slots, strict=True):
        known = len(sequences[slot].prompt) + len(sequences[slot].emitted)
        build_tables(tree, known - 1, slot, 3, row)
    return TableViews(torch.from_numpy(block))


def with_tokens(tree: Tree, vocab: int, generator: np.random.Generator) -> Tree:
    """Return the tree with random tokens, siblings apart from each other."""
    tokens = generator.integers(0, vocab, tree.num_nodes)
    for node in range(tree.num_nodes):
        children = tree.children(node)
        tokens[list(children)] = generator.choice(vocab, len(children), replace=False)
    return replace(tree, token_ids=tuple(int(t) for t in tokens))


def make_logits(
    batch: int, vocab: int, generator: np.random.Generator, step: float
) -> torch.Tensor:
    """Return logits [B, 32, V]; `step` > 0 rounds them to its multiples, which makes ties."""
    values = generator.normal(0.0, 2.0, (batch, MAX_ROWS, vocab)).astype(np.float32)
    if step:
        values = np.round(values / step).astype(np.float32) * np.float32(step)
    return torch.from_numpy(values)


def random_params(generator: np.random.Generator, vocab: int) -> SamplingParams:
    """Return sampling values that switch each feature on about half of the time."""

    def maybe(value: float, off: float) -> float:
        return value if generator.random() < 0.5 else off

    ids = [int(i) for i in generator.choice(vocab, 6, replace=False)]
    return SamplingParams(
        temperature=float(generator.choice([0.0, 1.0, *generator.uniform(0.2, 1.5, 6)])),
        top_p=maybe(float(generator.uniform(0.3, 0.99)), 1.0),
        top_k=int(maybe(float(generator.integers(1, 40)), 0)),
        min_p=maybe(float(generator.uniform(0.01, 0.3)), 0.0),
        presence_penalty=maybe(float(generator.uniform(-1.5, 1.5)), 0.0),
        frequency_penalty=maybe(float(generator.uniform(-0.5, 1.0)), 0.0),
        repetition_penalty=maybe(float(generator.uniform(0.8, 1.5)), 1.0),
        seed=int(generator.integers(0, 1 << 63)),
        logit_bias=((ids[0], 1.5), (ids[1], -2.0)) if generator.random() < 0.5 else (),
        banned_token_ids=tuple(ids[2:4]) if generator.random() < 0.5 else (),
        num_logprobs=int(generator.integers(-1, 6)),
        processed_logprobs=bool(generator.random() < 0.5),
    )


def random_sequence(generator: np.random.Generator, vocab: int) -> Sequence:
    """Return a slot in the middle of a generation."""
    emitted = tuple(int(t) for t in generator.integers(0, vocab, int(generator.integers(0, 12))))
    ends = [int(t) for t in generator.choice(vocab, 3, replace=False)]
    budget = Budget(64, int(generator.integers(0, 16)), (ends[0],), tuple(ends[1:]), 4096)
    prompt = tuple(int(t) for t in generator.integers(0, vocab, 8))
    choice = int(generator.integers(0, 4))
    return Sequence(random_params(generator, vocab), budget, prompt, emitted, choice)
