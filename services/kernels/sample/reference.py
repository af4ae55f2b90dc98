"""The draw, the walk and the cut in plain torch: what every backend equals, token for token."""

import torch

from services.contract.limits import MAX_PATH
from services.contract.path import CutReason
from services.kernels.sample import params as p
from services.kernels.sample.params import SamplingWords, unpack
from services.kernels.sample.reference_rows import Row, draw_row, write_logprobs
from services.kernels.sample.state import SampleState
from services.kernels.state_words import (
    EPOCH,
    PATH_COMMITTED,
    PATH_CUT_INDEX,
    PATH_CUT_REASON,
    PATH_CYCLE,
    PATH_EMITTED,
    PATH_EMITTED_BEFORE,
    PATH_EPOCH,
    PATH_NODES,
    PATH_NUM_EMITTED,
    PATH_NUM_NODES,
    PATH_PENDING,
)
from services.kernels.tree_tables import (
    COMMITTED_LENGTH,
    CYCLE,
    FORCED,
    LIVE,
    SLOT,
    TableViews,
)


def draw(
    logits: torch.Tensor,
    tables: TableViews,
    state: SampleState,
    out: torch.Tensor,
    random_words: torch.Tensor | None = None,
) -> None:
    """Write the token of every live row to `out` [B, 32]."""
    for index in range(len(tables.block)):
        for node in range(int(tables.header[index, LIVE])):
            row = Row(tables, index, node, state)
            word = row.word
            if random_words is not None:
                word = int(random_words[index, node]) & 0xFFFFFFFFFFFFFFFF
            out[index, node] = draw_row(logits[index, node], row, state, word)


def walk(logits: torch.Tensor, tables: TableViews, state: SampleState) -> None:
    """Walk each tree: draw, descend while a child carries the token, else stop."""
    draw(logits, tables, state, state.drawn)
    for index in range(len(tables.block)):
        if int(tables.header[index, LIVE]):
            _walk_one(logits[index], tables, index, state)


def _walk_one(logits: torch.Tensor, tables: TableViews, index: int, state: SampleState) -> None:
    header = tables.header[index].tolist()
    parents, tokens = tables.parents[index].tolist(), tables.tokens[index].tolist()
    nodes, emitted, node = [0], list[int](), 0
    while True:
        token = int(state.drawn[index, node])
        wanted = tokens if header[FORCED] else [token] * len(tokens)
        children = [i for i in range(header[LIVE]) if parents[i] == node and tokens[i] == wanted[i]]
        emitted.append(tokens[children[0]] if children else token)
        if not children:
            break
        node = children[0]
        nodes.append(node)
    _write_path(header, nodes, emitted, state)
    for place, (node, token) in enumerate(zip(nodes, emitted, strict=True)):
        write_logprobs(logits[node], Row(tables, index, node, state), token, place, state)
    ones = torch.ones(len(emitted), dtype=torch.int32)
    state.output_counts[header[SLOT]].index_add_(0, torch.tensor(emitted), ones)
    state.sampling[header[SLOT], p.NUM_EMITTED] += len(emitted)


def _write_path(
    header: list[int], nodes: list[int], emitted: list[int], state: SampleState
) -> None:
    slot = header[SLOT]
    path = state.path[slot]
    path[PATH_NODES : PATH_EMITTED + MAX_PATH] = -1
    path[PATH_EPOCH] = state.words[slot, EPOCH]
    path[PATH_CYCLE] = header[CYCLE]
    path[PATH_NUM_NODES] = len(nodes)
    path[PATH_NUM_EMITTED] = len(emitted)
    path[PATH_PENDING] = emitted[-1]
    path[PATH_CUT_REASON] = int(CutReason.NONE)
    path[PATH_CUT_INDEX] = -1
    path[PATH_EMITTED_BEFORE] = state.sampling[slot, p.NUM_EMITTED]
    path[PATH_COMMITTED] = header[COMMITTED_LENGTH] + len(nodes)
    path[PATH_NODES : PATH_NODES + len(nodes)] = torch.tensor(nodes, dtype=torch.int32)
    path[PATH_EMITTED : PATH_EMITTED + len(emitted)] = torch.tensor(emitted, dtype=torch.int32)


def accept(
    path: torch.Tensor,
    sampling: torch.Tensor,
    prompt_mask: torch.Tensor,
    slots: torch.Tensor,
    out: torch.Tensor,
) -> None:
    """Copy the slots' paths to `out` and cut each at the first token that ends it."""
    for slot in slots.tolist():
        out[slot] = path[slot]
        limits = unpack(sampling[slot].cpu().numpy())
        for index in range(min(int(path[slot, PATH_NUM_EMITTED]), MAX_PATH)):
            reason = cut_reason(path[slot], index, limits, prompt_mask[slot])
            if reason is not CutReason.NONE:
                _cut(out[slot], index, reason)
                break


def cut_reason(
    path: torch.Tensor, index: int, limits: SamplingWords, marks: torch.Tensor
) -> CutReason:
    """Return why the path [64] ends at the emitted token `index`, or NONE."""
    token = int(path[PATH_EMITTED + index])
    mark = int(marks[token]) if 0 <= token < len(marks) else 0
    length = int(path[PATH_COMMITTED]) - int(path[PATH_NUM_NODES]) + index + 1
    if mark & p.IS_EOS:
        return CutReason.EOS
    if mark & p.IS_STOP:
        return CutReason.STOP_ID
    if int(path[PATH_EMITTED_BEFORE]) + index + 1 >= limits.max_tokens:
        return CutReason.BUDGET
    return CutReason.CONTEXT if length + 1 >= limits.context_length else CutReason.NONE


def _cut(out: torch.Tensor, index: int, reason: CutReason) -> None:
    out[PATH_COMMITTED] += index + 1 - out[PATH_NUM_NODES]
    out[PATH_NUM_NODES] = index + 1
    out[PATH_NUM_EMITTED] = index + 1
    out[PATH_PENDING] = out[PATH_EMITTED + index]
    out[PATH_CUT_REASON] = int(reason)
    out[PATH_CUT_INDEX] = index
    out[PATH_NODES + index + 1 : PATH_EMITTED] = -1
    out[PATH_EMITTED + index + 1 : PATH_EMITTED + MAX_PATH] = -1
