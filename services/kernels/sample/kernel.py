"""Launch the sampler's Triton kernels; every size and choice of a cycle is read on the device."""

import torch

from services.contract.limits import MAX_PATH, MAX_ROWS, SURVIVORS
from services.kernels.compile_case import CompileCase
from services.kernels.sample.kernel_draw import (
    collect_kernel,
    overflow_kernel,
    resolve_kernel,
    tops_kernel,
)
from services.kernels.sample.kernel_logprobs import logprobs_kernel
from services.kernels.sample.kernel_walk import accept_kernel, count_kernel, walk_kernel
from services.kernels.sample.state import SPLIT_LANES, SPLITS

# Lanes of the passes that weigh, and warps.
STEP, WARPS, LIST_WARPS = 1024, 8, 4
REGISTERS, LIST_REGISTERS = 128, 168
_ROWS = {"num_warps": WARPS, "maxnreg": REGISTERS, "enable_fp_fusion": False}
_LISTS = {"num_warps": LIST_WARPS, "maxnreg": LIST_REGISTERS, "enable_fp_fusion": False}


def _row_operands(logits, tables, state):
    sampling = state.sampling
    views = (sampling, sampling.view(torch.float64), sampling.view(torch.float32))
    history = (state.prompt_mask, state.output_counts, state.logit_bias)
    block = tables.block
    return logits, logits.stride(0), logits.stride(1), block, block.stride(0), *views, *history


def draw(logits, tables, state, out, random_words=None):
    """Do what sample.draw says, in four launches."""
    rows, vocab = tables.block.shape[0] * MAX_ROWS, state.vocab_size
    operands, scratch = _row_operands(logits, tables, state), state.split_scratch
    chunk = -(-vocab // (SPLITS * state.lanes)) * state.lanes
    sizes = {"LANES": state.lanes, "STEP": min(STEP, state.lanes), "LIST": state.survivors}
    given = {"given": out if random_words is None else random_words, "out": out, "vocab": vocab}
    is_given = {"GIVEN": random_words is not None}
    tops_kernel[(rows, SPLITS)](*operands, *scratch[:2], chunk, vocab, LANES=state.lanes, **_ROWS)
    collect_kernel[(rows, SPLITS)](*operands, *scratch, chunk, vocab, **sizes, **_ROWS)
    resolve_kernel[(rows,)](
        *operands[3:7], scratch.tops, *scratch[2:], **given, **is_given, LIST=state.survivors,
        **_LISTS,
    )  # fmt: skip
    overflow_kernel[(rows,)](
        *operands, scratch.tops, scratch.totals, chunk, **given, **is_given,
        STEP=min(STEP, state.lanes), LIST=state.survivors, **_ROWS,
    )  # fmt: skip


def walk(logits, tables, state):
    """Do what sample.walk says, and write what it leads to."""
    block, count, vocab = tables.block, tables.block.shape[0], state.vocab_size
    draw(logits, tables, state, state.drawn)
    walk_kernel[(count,)](
        block, block.stride(0), state.drawn, state.words, state.sampling, state.path, num_warps=1
    )
    logprobs_kernel[(count * MAX_PATH,)](
        *_row_operands(logits, tables, state), state.path, state.logprob_ids,
        state.logprob_values, state.logprob_ids.shape[2], vocab,
        TILE=min(STEP, state.lanes), **_ROWS,
    )  # fmt: skip
    count_kernel[(count,)](
        block, block.stride(0), state.path, state.sampling, state.output_counts, vocab, num_warps=1
    )


def accept(path, sampling, prompt_mask, slots, out):
    """Do what sample.accept says."""
    accept_kernel[(slots.shape[0],)](
        path, sampling, prompt_mask, slots, out, prompt_mask.shape[1], num_warps=1
    )


_ROW_TYPES = {
    "logits": "*fp32", "tree_stride": "i64", "row_stride": "i32", "tables": "*i32",
    "table_stride": "i32", "sampling": "*i32", "doubles": "*fp64", "singles": "*fp32",
    "marks": "*u8", "counts": "*i32", "bias": "*fp32", "vocab": "i32",
}  # fmt: skip
_TYPES = {
    "tops": "*i64", "lane_tops": "*fp32", "sizes": "*i32", "totals": "*i64",
    "list_values": "*fp32", "list_ids": "*i32", "chunk": "i32", "given": "*i64", "out": "*i32",
    "path": "*i32", "out_ids": "*i32", "width": "i32", "drawn": "*i32", "slot_words": "*i32",
    "slots": "*i32", **_ROW_TYPES,
}  # fmt: skip


def compile_cases(arch):
    """Return the offline compiles of this operation."""
    step, given = {"STEP": STEP}, {"GIVEN": False, "LIST": SURVIVORS}
    wide = {"LANES": SPLIT_LANES}
    rows = [
        ("tops", tops_kernel, wide, WARPS, REGISTERS),
        ("collect", collect_kernel, {**wide, **step, "LIST": SURVIVORS}, WARPS, REGISTERS),
        ("resolve", resolve_kernel, given, LIST_WARPS, LIST_REGISTERS),
        ("overflow", overflow_kernel, {**given, **step}, WARPS, REGISTERS),
        ("logprobs", logprobs_kernel, {"TILE": STEP}, WARPS, REGISTERS),
        ("walk", walk_kernel, {}, 1, 0),
        ("count", count_kernel, {}, 1, 0),
        ("accept", accept_kernel, {}, 1, 0),
    ]
    return [_case(*row) for row in rows]


def _case(name, kernel, constants, warps, registers):
    types = {x: _TYPES[x] for x in kernel.arg_names if x not in constants}
    if name == "logprobs":
        types["out"] = "*fp32"
    return CompileCase(
        f"sample.{name}", kernel, types, constants, num_warps=warps, max_registers=registers
    )
