"""The publication moves on the device: Triton source and launches, one launch a move."""

import torch
import triton
import triton.language as tl

from services.contract.limits import MAX_PATH, PAGE
from services.kernels import state_words
from services.kernels.compile_case import CompileCase

BLOCK = 1024
_LAUNCH = {"num_warps": 4, "num_stages": 1}
_WORDS = {
    name: getattr(state_words, name)
    for name in ("EPOCH", "CYCLE", "ACTIVE_SET", "LENGTH", "PATH_EPOCH", "PATH_CYCLE")
} | {"COUNT": state_words.PATH_NUM_NODES, "NODES": state_words.PATH_NODES}


@triton.jit
def current_count(
    words,
    path,
    EPOCH: tl.constexpr,
    CYCLE: tl.constexpr,
    PATH_EPOCH: tl.constexpr,
    PATH_CYCLE: tl.constexpr,
    COUNT: tl.constexpr,
):
    """Return the path's number of nodes; 0 if it is not of the slot's epoch and cycle."""
    same_epoch = tl.load(words + EPOCH) == tl.load(path + PATH_EPOCH)
    same_cycle = tl.load(words + CYCLE) == tl.load(path + PATH_CYCLE)
    return tl.where(same_epoch & same_cycle, tl.load(path + COUNT), 0)


@triton.jit
def conv_gather_kernel(
    raw_ring_ptr,
    conv_ptr,
    words_ptr,
    path_ptr,
    slots_ptr,
    LAYERS: tl.constexpr,
    C: tl.constexpr,
    SIZE: tl.constexpr,
    EPOCH: tl.constexpr,
    CYCLE: tl.constexpr,
    ACTIVE_SET: tl.constexpr,
    LENGTH: tl.constexpr,
    PATH_EPOCH: tl.constexpr,
    PATH_CYCLE: tl.constexpr,
    COUNT: tl.constexpr,
    NODES: tl.constexpr,
):
    """Write one piece of one layer's last 3 raw rows to the set that is not active."""
    slot = tl.load(slots_ptr + tl.program_id(2)).to(tl.int64)
    words, path = words_ptr + slot * 16, path_ptr + slot * 64
    count = current_count(words, path, EPOCH, CYCLE, PATH_EPOCH, PATH_CYCLE, COUNT)
    if count == 0:
        return
    active = tl.load(words + ACTIVE_SET)
    channel = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    inside = channel < C
    layer = tl.program_id(1)
    old = conv_ptr + ((slot * 2 + active) * LAYERS + layer) * (3 * C) + channel
    new = conv_ptr + ((slot * 2 + 1 - active) * LAYERS + layer) * (3 * C) + channel
    ring = raw_ring_ptr + (slot * LAYERS + layer) * (32 * C) + channel
    for index in tl.static_range(3):
        place = count - 3 + index
        node = tl.load(path + NODES + place, mask=place >= 0, other=0)
        row = tl.load(tl.where(place >= 0, ring + node * C, old + (place + 3) * C), mask=inside)
        tl.store(new + index * C, row, mask=inside)


@triton.jit
def kv_scatter_kernel(
    ring_ptr,
    kv_ptr,
    page_ptr,
    words_ptr,
    path_ptr,
    slots_ptr,
    LAYER_STRIDE: tl.constexpr,
    LAYERS: tl.constexpr,
    MAX_PAGES: tl.constexpr,
    PLANES: tl.constexpr,
    PLANE_BLOCK: tl.constexpr,
    D: tl.constexpr,
    PAGE_ROWS: tl.constexpr,
    EPOCH: tl.constexpr,
    CYCLE: tl.constexpr,
    ACTIVE_SET: tl.constexpr,
    LENGTH: tl.constexpr,
    PATH_EPOCH: tl.constexpr,
    PATH_CYCLE: tl.constexpr,
    COUNT: tl.constexpr,
    NODES: tl.constexpr,
):
    """Copy keys and values of one path node in one layer to its place in a page."""
    index, layer = tl.program_id(0), tl.program_id(1)
    slot = tl.load(slots_ptr + tl.program_id(2)).to(tl.int64)
    words, path = words_ptr + slot * 16, path_ptr + slot * 64
    count = current_count(words, path, EPOCH, CYCLE, PATH_EPOCH, PATH_CYCLE, COUNT)
    if index >= count:
        return
    position = tl.load(words + LENGTH) + index
    node = tl.load(path + NODES + index)
    page = tl.load(page_ptr + slot * MAX_PAGES + position // PAGE_ROWS).to(tl.int64)
    plane = tl.arange(0, PLANE_BLOCK)[:, None]
    column = tl.arange(0, D)[None, :]
    source = ring_ptr + (slot * LAYERS + layer) * (PLANES * 32 * D) + (plane * 32 + node) * D
    target = kv_ptr + layer.to(tl.int64) * LAYER_STRIDE + page * (PLANES * PAGE_ROWS * D)
    target += (plane * PAGE_ROWS + position % PAGE_ROWS) * D
    inside = plane < PLANES
    tl.store(target + column, tl.load(source + column, mask=inside), mask=inside)


@triton.jit
def flip_kernel(
    words_ptr,
    path_ptr,
    slots_ptr,
    EPOCH: tl.constexpr,
    CYCLE: tl.constexpr,
    ACTIVE_SET: tl.constexpr,
    LENGTH: tl.constexpr,
    PATH_EPOCH: tl.constexpr,
    PATH_CYCLE: tl.constexpr,
    COUNT: tl.constexpr,
    NODES: tl.constexpr,
):
    """Flip one slot's active set, add its path's length and advance its cycle."""
    slot = tl.load(slots_ptr + tl.program_id(0)).to(tl.int64)
    words, path = words_ptr + slot * 16, path_ptr + slot * 64
    count = current_count(words, path, EPOCH, CYCLE, PATH_EPOCH, PATH_CYCLE, COUNT)
    if count == 0:
        return
    tl.store(words + ACTIVE_SET, 1 - tl.load(words + ACTIVE_SET))
    tl.store(words + LENGTH, tl.load(words + LENGTH) + count)
    tl.store(words + CYCLE, tl.load(words + CYCLE) + 1)


def conv_gather(
    raw_ring: torch.Tensor,
    conv: torch.Tensor,
    words: torch.Tensor,
    path: torch.Tensor,
    slots: torch.Tensor,
) -> None:
    """Do what publish.conv_gather says."""
    layers, channels = conv.shape[2], conv.shape[4]
    conv_gather_kernel[triton.cdiv(channels, BLOCK), layers, slots.shape[0]](
        raw_ring, conv, words, path, slots, LAYERS=layers, C=channels, SIZE=BLOCK,
        **_WORDS, **_LAUNCH,
    )  # fmt: skip


def kv_scatter(
    kv_ring: torch.Tensor,
    kv: torch.Tensor,
    page_table: torch.Tensor,
    words: torch.Tensor,
    path: torch.Tensor,
    slots: torch.Tensor,
) -> None:
    """Do what publish.kv_scatter says."""
    layers, _, _, kv_heads, _, dim = kv.shape
    kv_scatter_kernel[MAX_PATH, layers, slots.shape[0]](
        kv_ring, kv, page_table, words, path, slots, LAYER_STRIDE=kv.stride(0),
        MAX_PAGES=page_table.shape[1], **_planes(layers, kv_heads, dim), **_WORDS, **_LAUNCH,
    )  # fmt: skip


def _planes(layers: int, kv_heads: int, dim: int) -> dict[str, int]:
    block = triton.next_power_of_2(2 * kv_heads)
    shape = {"LAYERS": layers, "PLANES": 2 * kv_heads, "PLANE_BLOCK": block}
    return shape | {"D": dim, "PAGE_ROWS": PAGE}


def flip(words: torch.Tensor, path: torch.Tensor, slots: torch.Tensor) -> None:
    """Do what publish.flip says."""
    flip_kernel[(slots.shape[0],)](words, path, slots, **_WORDS, num_warps=1, num_stages=1)


def compile_cases(arch: int) -> list[CompileCase]:
    """Return the kernels at the 27B shape and the embedded model's."""
    words = dict.fromkeys(("words_ptr", "path_ptr", "slots_ptr"), "*i32")
    found = [CompileCase("publish.flip", flip_kernel, words, _WORDS, 1, 1)]
    for layers, channels, kv_layers, kv_heads, dim in ((48, 10240, 16, 4, 256), (6, 640, 2, 2, 64)):
        types = dict.fromkeys(("raw_ring_ptr", "conv_ptr"), "*bf16") | words
        shape = {"LAYERS": layers, "C": channels, "SIZE": BLOCK} | _WORDS
        name = f"publish.conv_gather C={channels}"
        found.append(CompileCase(name, conv_gather_kernel, types, shape, 4, 1))
        types = {"ring_ptr": "*bf16", "kv_ptr": "*bf16", "page_ptr": "*i32"} | words
        shape = _planes(kv_layers, kv_heads, dim) | _WORDS
        shape |= {"LAYER_STRIDE": 4096 * 2 * kv_heads * PAGE * dim, "MAX_PAGES": 1024}
        name = f"publish.kv_scatter D={dim}"
        found.append(CompileCase(name, kv_scatter_kernel, types, shape, 4, 1))
    return found
