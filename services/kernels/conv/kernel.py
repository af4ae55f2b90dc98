"""The convolution on the device: Triton source and launches."""

import torch
import triton
import triton.language as tl

from services.contract.limits import MAX_PATH, TABLE_WORDS
from services.kernels.compile_case import CompileCase
from services.kernels.state_words import ACTIVE_SET
from services.kernels.tree_tables import ANCESTORS, DEPTHS, LIVE, SLOT, TableViews

BLOCK = 1024
_EXACT = {"num_warps": 4, "num_stages": 1, "enable_fp_fusion": False}


@triton.jit
def fold_taps(x0, x1, x2, x3, weight_ptr, channel, inside):
    """Return silu of the ordered taps, oldest row first."""
    total = x0 * tl.load(weight_ptr + channel * 4, mask=inside, other=0.0).to(tl.float32)
    total += x1 * tl.load(weight_ptr + channel * 4 + 1, mask=inside, other=0.0).to(tl.float32)
    total += x2 * tl.load(weight_ptr + channel * 4 + 2, mask=inside, other=0.0).to(tl.float32)
    total += x3 * tl.load(weight_ptr + channel * 4 + 3, mask=inside, other=0.0).to(tl.float32)
    return total * tl.sigmoid(total)


@triton.jit(do_not_specialize=["rows"])
def conv_tree_kernel(
    raw_ptr,
    ab_ptr,
    conv_ptr,
    words_ptr,
    tables_ptr,
    weight_ptr,
    raw_ring_ptr,
    mixed_ring_ptr,
    ab_ring_ptr,
    rows,
    WORDS: tl.constexpr,
    ACTIVE: tl.constexpr,
    STRIDE: tl.constexpr,
    AB_STRIDE: tl.constexpr,
    LAYERS: tl.constexpr,
    C: tl.constexpr,
    HV: tl.constexpr,
    SIZE: tl.constexpr,
    GATES: tl.constexpr,
    LIVE_WORD: tl.constexpr,
    SLOT_WORD: tl.constexpr,
    DEPTHS_WORD: tl.constexpr,
    ANCESTORS_WORD: tl.constexpr,
    PATH: tl.constexpr,
):
    """Stage one piece of one node: raw row, conv output, and with the first piece its gates."""
    batch = tl.program_id(0) // rows
    node = tl.program_id(0) % rows
    tables = tables_ptr + batch * WORDS
    if node >= tl.load(tables + LIVE_WORD):
        return
    slot = tl.load(tables + SLOT_WORD).to(tl.int64)
    depth = tl.load(tables + DEPTHS_WORD + node)
    active = tl.load(words_ptr + slot * 16 + ACTIVE)
    channel = tl.program_id(1) * SIZE + tl.arange(0, SIZE)
    inside = channel < C
    state = conv_ptr + (slot * 2 + active) * (LAYERS * 3 * C) + channel
    ancestors = tables + ANCESTORS_WORD + node * PATH
    first = batch.to(tl.int64) * rows
    x0 = window_row(raw_ptr, state, ancestors, first, depth - 3, inside, channel, STRIDE, C)
    x1 = window_row(raw_ptr, state, ancestors, first, depth - 2, inside, channel, STRIDE, C)
    x2 = window_row(raw_ptr, state, ancestors, first, depth - 1, inside, channel, STRIDE, C)
    raw = tl.load(raw_ptr + (first + node) * STRIDE + channel, mask=inside, other=0.0)
    mixed = fold_taps(x0, x1, x2, raw.to(tl.float32), weight_ptr, channel, inside)
    place = slot * (LAYERS * 32) + node
    tl.store(raw_ring_ptr + place * C + channel, raw, mask=inside)
    tl.store(
        mixed_ring_ptr + place * C + channel, mixed.to(mixed_ring_ptr.dtype.element_ty), mask=inside
    )
    if tl.program_id(1) == 0:
        gate = tl.arange(0, GATES)
        ab = tl.load(ab_ptr + (first + node) * AB_STRIDE + gate, mask=gate < 2 * HV)
        tl.store(ab_ring_ptr + place * (2 * HV) + gate, ab, mask=gate < 2 * HV)


@triton.jit
def window_row(
    raw_ptr, state, ancestors, first, depth, inside, channel, STRIDE: tl.constexpr, C: tl.constexpr
):
    """Load the row at a depth of the node's path; depths -3..-1 lie in the conv state."""
    ancestor = tl.load(ancestors + depth, mask=depth >= 0, other=0)
    source = raw_ptr + (first + ancestor) * STRIDE + channel
    held = state + (depth + 3) * C
    x = tl.load(source, mask=inside & (tl.zeros_like(channel) + depth >= 0), other=0.0)
    old = tl.load(held, mask=inside & (tl.zeros_like(channel) + depth < 0), other=0.0)
    return tl.where(depth >= 0, x, old).to(tl.float32)


@triton.jit(do_not_specialize=["rows"])
def conv_chain_kernel(
    raw_ptr,
    conv_ptr,
    words_ptr,
    slots_ptr,
    counts_ptr,
    weight_ptr,
    out_ptr,
    rows,
    ACTIVE: tl.constexpr,
    STRIDE: tl.constexpr,
    LAYERS: tl.constexpr,
    C: tl.constexpr,
    SIZE: tl.constexpr,
):
    """Convolve one piece of one prompt row."""
    batch = tl.program_id(0) // rows
    row = tl.program_id(0) % rows
    channel = tl.program_id(1) * SIZE + tl.arange(0, SIZE)
    inside = channel < C
    target = out_ptr + tl.program_id(0).to(tl.int64) * C + channel
    if row >= tl.load(counts_ptr + batch):
        tl.store(target, tl.zeros([SIZE], out_ptr.dtype.element_ty), mask=inside)
        return
    slot = tl.load(slots_ptr + batch).to(tl.int64)
    active = tl.load(words_ptr + slot * 16 + ACTIVE)
    state = conv_ptr + (slot * 2 + active) * (LAYERS * 3 * C) + channel
    source = raw_ptr + batch.to(tl.int64) * rows * STRIDE + channel
    x0 = run_row(source, state, row - 3, inside, channel, STRIDE, C)
    x1 = run_row(source, state, row - 2, inside, channel, STRIDE, C)
    x2 = run_row(source, state, row - 1, inside, channel, STRIDE, C)
    x3 = run_row(source, state, row, inside, channel, STRIDE, C)
    mixed = fold_taps(x0, x1, x2, x3, weight_ptr, channel, inside)
    tl.store(target, mixed.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def run_row(source, state, row, inside, channel, STRIDE: tl.constexpr, C: tl.constexpr):
    """Load row `row` of a chunk in fp32; rows -3..-1 lie in the conv state."""
    x = tl.load(source + row * STRIDE, mask=inside & (tl.zeros_like(channel) + row >= 0), other=0.0)
    old = tl.load(
        state + (row + 3) * C, mask=inside & (tl.zeros_like(channel) + row < 0), other=0.0
    )
    return tl.where(row >= 0, x, old).to(tl.float32)


@triton.jit(do_not_specialize=["rows"])
def conv_shift_kernel(
    raw_ptr,
    conv_ptr,
    words_ptr,
    slots_ptr,
    counts_ptr,
    rows,
    ACTIVE: tl.constexpr,
    STRIDE: tl.constexpr,
    LAYERS: tl.constexpr,
    C: tl.constexpr,
    SIZE: tl.constexpr,
):
    """Move one piece of the conv state to the last 3 rows of a chunk."""
    batch = tl.program_id(0)
    channel = tl.program_id(1) * SIZE + tl.arange(0, SIZE)
    inside = channel < C
    count = tl.load(counts_ptr + batch)
    slot = tl.load(slots_ptr + batch).to(tl.int64)
    active = tl.load(words_ptr + slot * 16 + ACTIVE)
    state = conv_ptr + (slot * 2 + active) * (LAYERS * 3 * C) + channel
    source = raw_ptr + batch.to(tl.int64) * rows * STRIDE + channel
    x0 = run_row(source, state, count - 3, inside, channel, STRIDE, C)
    x1 = run_row(source, state, count - 2, inside, channel, STRIDE, C)
    x2 = run_row(source, state, count - 1, inside, channel, STRIDE, C)
    tl.store(state, x0.to(conv_ptr.dtype.element_ty), mask=inside)
    tl.store(state + C, x1.to(conv_ptr.dtype.element_ty), mask=inside)
    tl.store(state + 2 * C, x2.to(conv_ptr.dtype.element_ty), mask=inside)


_TABLES = {
    "WORDS": TABLE_WORDS,
    "LIVE_WORD": LIVE,
    "SLOT_WORD": SLOT,
    "DEPTHS_WORD": DEPTHS,
    "ANCESTORS_WORD": ANCESTORS,
    "PATH": MAX_PATH,
}


def conv_tree(
    raw: torch.Tensor,
    ab: torch.Tensor,
    conv: torch.Tensor,
    words: torch.Tensor,
    layer: int,
    tables: TableViews,
    weight: torch.Tensor,
    raw_ring: torch.Tensor,
    mixed_ring: torch.Tensor,
    ab_ring: torch.Tensor,
) -> None:
    """Do what conv.conv_tree says."""
    total, channels = raw.shape
    heads = ab.shape[1] // 2
    rings = raw_ring[:, layer], mixed_ring[:, layer], ab_ring[:, layer]
    conv_tree_kernel[total, triton.cdiv(channels, BLOCK)](
        raw, ab, conv[:, :, layer], words, tables.block, weight, *rings,
        total // tables.block.shape[0], ACTIVE=ACTIVE_SET, STRIDE=raw.stride(0),
        AB_STRIDE=ab.stride(0), LAYERS=conv.shape[2], C=channels, HV=heads, SIZE=BLOCK,
        GATES=triton.next_power_of_2(2 * heads), **_TABLES, **_EXACT,
    )  # fmt: skip


def conv_chain(
    raw: torch.Tensor,
    conv: torch.Tensor,
    words: torch.Tensor,
    layer: int,
    slots: torch.Tensor,
    counts: torch.Tensor,
    weight: torch.Tensor,
    out: torch.Tensor,
) -> None:
    """Do what conv.conv_chain says."""
    total, channels = raw.shape
    batch, pieces = slots.shape[0], triton.cdiv(channels, BLOCK)
    shape = {"ACTIVE": ACTIVE_SET, "STRIDE": raw.stride(0), "LAYERS": conv.shape[2]}
    shape |= {"C": channels, "SIZE": BLOCK}
    own, rows = conv[:, :, layer], total // batch
    conv_chain_kernel[total, pieces](
        raw, own, words, slots, counts, weight, out, rows, **shape, **_EXACT
    )
    conv_shift_kernel[batch, pieces](raw, own, words, slots, counts, rows, **shape, **_EXACT)


def compile_cases(arch: int) -> list[CompileCase]:
    """Return the kernels at the 27B shape and the embedded model's."""
    found = []
    for channels, heads, layers in ((10240, 48, 48), (640, 6, 6)):
        stride = channels + heads * 128 + 2 * heads
        shape = {"ACTIVE": ACTIVE_SET, "STRIDE": stride, "LAYERS": layers, "C": channels}
        shape |= {"SIZE": BLOCK}
        tree = {
            "HV": heads,
            "AB_STRIDE": stride,
            "GATES": triton.next_power_of_2(2 * heads),
            **_TABLES,
        } | shape
        for name, kernel, constants in (
            ("tree", conv_tree_kernel, tree),
            ("chain", conv_chain_kernel, shape),
            ("shift", conv_shift_kernel, shape),
        ):
            types = {key: _type(key) for key in kernel.arg_names if key not in constants}
            found.append(CompileCase(f"conv.{name} C={channels}", kernel, types, constants, 4, 1))
    return found


def _type(name: str) -> str:
    if name in ("words_ptr", "tables_ptr", "slots_ptr", "counts_ptr"):
        return "*i32"
    return "i32" if name == "rows" else "*bf16"
