"""What one tree row draws, and its log-probabilities, in plain torch."""

import math

import torch

from services.contract.limits import MIN_LOGPROB
from services.kernels.fixed import WEIGHT_BITS
from services.kernels.fixed.reference import fixed_weights, philox_word
from services.kernels.sample import params as p
from services.kernels.sample.params import SamplingWords, unpack
from services.kernels.sample.state import SampleState
from services.kernels.tree_tables import COMMITTED_LENGTH, SLOT, TableViews

_NEG_INF = -math.inf


class Row:
    """Hold what one tree row's draw depends on: its slot's values and its own path."""

    def __init__(self, tables: TableViews, index: int, node: int, state: SampleState) -> None:
        header = tables.header[index].tolist()
        depth = int(tables.depths[index, node])
        self.slot, self.depth = int(header[SLOT]), depth
        self.sampling = unpack(state.sampling[self.slot].cpu().numpy())
        ancestors = tables.ancestors[index, node, 1 : depth + 1].long()
        self.path_tokens = tables.tokens[index][ancestors].long()
        self.num_emitted = self.sampling.num_emitted + depth
        self.word = philox_word(
            self.sampling.seed, self.sampling.choice_index, header[COMMITTED_LENGTH] + depth + 1
        )


def processed_values(logits: torch.Tensor, row: Row, state: SampleState) -> torch.Tensor:
    """Return the row's logits [V] after bias, bans, min_tokens and penalties, in fp32."""
    sampling, marks = row.sampling, state.prompt_mask[row.slot]
    values = logits
    if sampling.flags & p.HAS_BIAS:
        values = values + state.logit_bias[row.slot]
    values = torch.where(values.isnan(), _NEG_INF, values)
    if row.num_emitted < sampling.min_tokens:
        values = torch.where((marks & p.IS_END) != 0, _NEG_INF, values)
    if sampling.flags & p.HAS_PENALTIES:
        values = _penalised(values, row, state)
    return values


def _penalised(values: torch.Tensor, row: Row, state: SampleState) -> torch.Tensor:
    sampling = row.sampling
    ones = torch.ones_like(row.path_tokens, dtype=torch.int32)
    counts = state.output_counts[row.slot].clone().index_add_(0, row.path_tokens, ones)
    emitted = counts > 0
    seen = emitted | ((state.prompt_mask[row.slot] & p.IN_PROMPT) != 0)
    repetition = torch.tensor(sampling.repetition_penalty, dtype=torch.float32)
    inverse = torch.tensor(sampling.inverse_repetition, dtype=torch.float32)
    frequency = torch.tensor(sampling.frequency_penalty, dtype=torch.float32)
    presence = torch.tensor(sampling.presence_penalty, dtype=torch.float32)
    scaled = torch.where(values > 0, values * inverse, values * repetition)
    values = torch.where(seen, scaled, values)
    values = torch.where(emitted, values - frequency * counts.float(), values)
    return torch.where(emitted, values - presence, values)


def greedy(values: torch.Tensor) -> int:
    """Return the lowest id among the largest values."""
    return int((values == values.max()).nonzero()[0])


def survivor_weights(values: torch.Tensor, sampling: SamplingWords) -> torch.Tensor:
    """Return integer weights [V] of what min-p, top-k and top-p leave; 0 elsewhere."""
    top = values.max().double()
    ranked, order = torch.sort(values, descending=True, stable=True)
    keep = (values > _NEG_INF) & (values.double() >= top - sampling.margin)
    if 0 < sampling.top_k < len(values):
        keep &= values >= ranked[sampling.top_k - 1]
    weights = fixed_weights((values.double() - top) * sampling.scale)
    weights = torch.where(keep, weights, 0)
    if sampling.top_p < 1.0:
        before = weights[order].cumsum(0) - weights[order]
        limit = sampling.top_p * weights.sum().double()
        keep[order] &= before.double() < limit
    return torch.where(keep, weights, 0)


def pick(weights: torch.Tensor, word: int) -> int:
    """Return the id at which the running weight passes word / 2^64 of the total."""
    target = (word * int(weights.sum())) >> 64
    return int((weights.cumsum(0) > target).nonzero()[0])


def draw_row(logits: torch.Tensor, row: Row, state: SampleState, word: int) -> int:
    """Return the token that plain decoding draws at this row with this random word."""
    values = processed_values(logits, row, state)
    if row.sampling.flags & p.IS_GREEDY or values.max().isinf():
        return greedy(values)
    return pick(survivor_weights(values, row.sampling), word)


def write_logprobs(
    logits: torch.Tensor, row: Row, token: int, place: int, state: SampleState
) -> None:
    """Write the emitted token's and the row's best tokens' log-probabilities, if asked for."""
    count = row.sampling.num_logprobs
    if count < 0:
        return
    values = torch.where(logits.isnan(), _NEG_INF, logits)
    scale, keep = 1.0, values > _NEG_INF
    if row.sampling.flags & p.IS_PROCESSED:
        values = processed_values(logits, row, state)
        keep = values > _NEG_INF
        if not row.sampling.flags & p.IS_GREEDY:
            scale = row.sampling.scale
            keep = survivor_weights(values, row.sampling) > 0
    keep = keep & values.max().isfinite()
    scaled = (values.double() - values.max().double()) * scale
    total = int(torch.where(keep, fixed_weights(scaled), 0).sum())
    logprobs = scaled - math.log(total / float(1 << WEIGHT_BITS)) if total else scaled
    logprobs = torch.where(keep, logprobs, _NEG_INF).clamp(min=MIN_LOGPROB).float()
    ids = [token, *torch.sort(values, descending=True, stable=True).indices[:count].tolist()]
    state.logprob_ids[row.slot, place, : len(ids)] = torch.tensor(ids, dtype=torch.int32)
    state.logprob_values[row.slot, place, : len(ids)] = logprobs[ids]
