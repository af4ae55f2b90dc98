"""Attention on the device: launches of the stage, split, merge and prefill kernels."""

from functools import cache
from typing import Any, NamedTuple

import torch
import triton
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from services.contract.limits import MAX_PATH, MAX_ROWS, PAGE, TABLE_WORDS
from services.kernels.arch import HOPPER as HOPPER_ARCH
from services.kernels.arch import device_arch
from services.kernels.attention.kernel_hopper import hopper_kernel
from services.kernels.attention.kernel_merge import merge_kernel, prefill_kernel
from services.kernels.attention.kernel_split import split_kernel
from services.kernels.attention.kernel_stage import stage_kernel
from services.kernels.compile_case import CompileCase
from services.kernels.tree_tables import (
    COMMITTED_LENGTH,
    DEPTHS,
    LEAF_PATHS,
    LIVE,
    NUM_PATHS,
    PATH_LENGTH,
    PATH_OF,
    PATH_OWN,
    SLOT,
    TableViews,
)

LOG2_E = 1.4426950408889634
# Splits and columns that a program of the merge kernel holds at once.
MERGE_CHUNK, MERGE_WIDTH = 32, 128
# (architecture, head dim): rows of a tile, keys of a block, launch of the split kernel. Other
# head dims up to 128 take the entry of 64.
TILES = {
    (90, 256): ({"ROWS": 64, "BLOCK": 64}, {"num_warps": 4, "num_stages": 3}),
    (90, 64): ({"ROWS": 64, "BLOCK": 64}, {"num_warps": 4, "num_stages": 3}),
    (121, 256): ({"ROWS": 64, "BLOCK": 64}, {"num_warps": 8, "num_stages": 1}),
    (121, 64): ({"ROWS": 64, "BLOCK": 64}, {"num_warps": 4, "num_stages": 2}),
}
SMALL = {"num_warps": 4, "num_stages": 1}
# The Hopper kernel: blocks of keys and of values in shared memory, registers of its tile warps.
HOPPER = {"K_STAGES": 3, "V_STAGES": 2, "REGISTERS": 224}
KEYS = gl.NVMMASharedLayout(128, 16, 2)
MERGE = {"num_warps": 1, "num_stages": 1}
TABLES = {
    "LIVE": LIVE,
    "LENGTH": COMMITTED_LENGTH,
    "SLOT": SLOT,
    "DEPTHS": DEPTHS,
    "PATHS": LEAF_PATHS,
    "PATH_OF": PATH_OF,
    "PATH_LENGTH": PATH_LENGTH,
    "PATH_OWN": PATH_OWN,
    "NUM_PATHS": NUM_PATHS,
}


def tile_of(arch: int, dim: int) -> tuple[dict[str, int], dict[str, int]]:
    """Return the tile and the launch of the split kernel for a head dim."""
    return TILES[arch, dim if dim > 128 else 64]


class Workspace(NamedTuple):
    """Partial values, bases and sums of every (sequence, split, tile, kv head), staged blocks.

    `taken` counts the items that the Hopper kernel took; the merge kernel clears it.
    """

    acc: torch.Tensor
    top: torch.Tensor
    sums: torch.Tensor
    staged: torch.Tensor
    taken: torch.Tensor


def num_splits(positions: int) -> int:
    """Return how many splits hold that many positions: 256, then 1,024, then 2,048 wide."""
    if positions <= 4096:
        return triton.cdiv(positions, 256)
    if positions <= 32768:
        return 16 + triton.cdiv(positions - 4096, 1024)
    return 44 + triton.cdiv(positions - 32768, 2048)


def split_constants(
    arch: int, tree: bool, max_pages: int, heads: int, kv_heads: int, dim: int
) -> dict[str, Any]:
    """Return the constants of the split and merge kernels for one geometry."""
    longest, group = MAX_PATH if tree else MAX_ROWS, heads // kv_heads
    tile = tile_of(arch, dim)[0]
    return {
        "TREE": tree,
        "STRIDE": TABLE_WORDS if tree else 1,
        **TABLES,
        "MAX_PATHS": MAX_ROWS if tree else 1,
        "TAIL_TILES": triton.cdiv(longest * group, tile["ROWS"]),
        "TILES": triton.cdiv(MAX_ROWS * group, tile["ROWS"]),
        "SPLITS": num_splits(max_pages * PAGE),
        "MAX_PAGES": max_pages,
        "HQ": heads,
        "HKV": kv_heads,
        "D": dim,
        "CHUNK": MERGE_CHUNK,
        "WIDTH": min(MERGE_WIDTH, dim),
        **tile,
    }


@cache
def workspace(
    device: torch.device, dtype: torch.dtype, batch: int, cells: tuple[int, int], kv: tuple
) -> Workspace:
    """Return the scratch of one geometry; warm-up allocates it, all layers share it.

    A process runs its stages on one stream, so no two launches use it at once.
    """
    kv_heads, dim, paths = kv
    acc = torch.empty((*cells, dim), dtype=torch.float32, device=device)
    top = torch.empty(cells, dtype=torch.float32, device=device)
    staged = torch.empty((batch, paths, 2, 2, kv_heads, PAGE, dim), dtype=dtype, device=device)
    taken = torch.zeros(1, dtype=torch.int32, device=device)
    return Workspace(acc, top, torch.empty_like(top), staged, taken)


def _workspace_of(q: torch.Tensor, batch: int, constants: dict[str, Any]) -> Workspace:
    tiles = constants["SPLITS"] * constants["TILES"]
    tiles += constants["MAX_PATHS"] * 2 * constants["TAIL_TILES"]
    cells = (batch * tiles * constants["HKV"], constants["ROWS"])
    kv = (constants["HKV"], constants["D"], constants["MAX_PATHS"])
    return workspace(q.device, q.dtype, batch, cells, kv)


def takes_hopper(q: torch.Tensor, arch: int, group: int) -> bool:
    """Return whether the Hopper kernel serves these queries."""
    fits = q.shape[-1] == 256 and q.dtype == torch.bfloat16 and MAX_PATH * group <= 128
    return q.is_cuda and arch == HOPPER_ARCH and fits


def _rows_of(pages: torch.Tensor) -> TensorDescriptor:
    """Describe rows [n, D] of pages to the copy engine, a page at a time."""
    dim = pages.shape[-1]
    rows = pages.view(-1, dim)
    return TensorDescriptor(rows, list(rows.shape), [dim, 1], [PAGE, dim], KEYS)


def _used(kernel: Any, constants: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in constants.items() if name in kernel.arg_names}


@cache
def _programs(device: torch.device) -> int:
    """Return the programs of the Hopper kernel: one a multiprocessor."""
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def _run_splits(
    q: torch.Tensor,
    kv: torch.Tensor,
    ring: torch.Tensor,
    page_table: torch.Tensor,
    words: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor],
    tree: bool,
    out: torch.Tensor,
) -> None:
    batch, kv_heads, (_, heads, dim) = words[0].shape[0], kv.shape[2], q.shape
    rows, scale = q.shape[0] // batch, dim**-0.5 * LOG2_E
    arch = device_arch(q.device)
    constants = split_constants(arch, tree, page_table.shape[1], heads, kv_heads, dim)
    parts = _workspace_of(q, batch, constants)
    paths, tail = constants["MAX_PATHS"], constants["MAX_PATHS"] * 2 * constants["TAIL_TILES"]
    if takes_hopper(q, arch, heads // kv_heads):
        hopper_kernel[(_programs(q.device),)](
            q, _rows_of(kv), kv, ring, page_table, *words,
            parts.acc, parts.top, parts.sums, parts.taken, scale, rows, batch,
            SLOT_STRIDE=ring.stride(0), **_used(hopper_kernel, constants | HOPPER),
            num_warps=4, enable_fp_fusion=False,
        )  # fmt: skip
    else:
        stage_kernel[2 * paths, 2 * kv_heads, batch](
            kv, ring, page_table, *words, parts.staged, SLOT_STRIDE=ring.stride(0),
            **_used(stage_kernel, constants), **SMALL,
        )  # fmt: skip
        grid = (kv_heads * (tail + constants["SPLITS"] * constants["TILES"]), batch)
        split_kernel[grid](
            q, kv, parts.staged, page_table, *words, parts.acc, parts.top, parts.sums, scale, rows,
            **_used(split_kernel, constants), **tile_of(arch, dim)[1],
            enable_fp_fusion=False,
        )  # fmt: skip
    live, lengths, _, tables = words
    merge_kernel[rows, heads * (dim // constants["WIDTH"]), batch](
        parts.acc, parts.top, parts.sums, live, lengths, tables, out, parts.taken,
        **_used(merge_kernel, constants), **MERGE, enable_fp_fusion=False,
    )  # fmt: skip


def attend(
    q: torch.Tensor,
    kv: torch.Tensor,
    kv_ring: torch.Tensor,
    layer: int,
    page_table: torch.Tensor,
    tables: TableViews,
    out: torch.Tensor,
) -> None:
    """Do what attention.attend says."""
    block = tables.block
    words = (block[:, LIVE:], block[:, COMMITTED_LENGTH:], block[:, SLOT:], block)
    _run_splits(q, kv, kv_ring[:, layer], page_table, words, True, out)


def attend_prefill(
    q: torch.Tensor,
    kv: torch.Tensor,
    page_table: torch.Tensor,
    slots: torch.Tensor,
    starts: torch.Tensor,
    counts: torch.Tensor,
    out: torch.Tensor,
) -> None:
    """Do what attention.attend_prefill says; runs of up to 32 rows take the split kernel."""
    batch, kv_heads, (_, heads, dim) = slots.shape[0], kv.shape[2], q.shape
    rows = q.shape[0] // batch
    if rows <= MAX_ROWS:
        _run_splits(q, kv, kv, page_table, (counts, starts, slots, slots), False, out)
        return
    tile, launch = tile_of(device_arch(q.device), dim)
    grid = (triton.cdiv(rows * (heads // kv_heads), tile["ROWS"]), kv_heads, batch)
    prefill_kernel[grid](
        q, kv, page_table, slots, starts, counts, out, dim**-0.5 * LOG2_E, rows,
        MAX_PAGES=page_table.shape[1], HQ=heads, HKV=kv_heads, D=dim, ROWS=tile["ROWS"],
        **launch, enable_fp_fusion=False,
    )  # fmt: skip


def compile_cases(arch: int) -> list[CompileCase]:
    """Return the kernels at the 27B shape and the embedded model's."""
    found = []
    for shape in ((24, 4, 256), (4, 2, 64)):
        for tree in (True, False):
            constants = split_constants(arch, tree, 1024, *shape)
            extra = {"SLOT_STRIDE": 2 * shape[1] * MAX_ROWS * shape[2]}
            name = f"D={shape[2]} {'tree' if tree else 'run'}"
            launch = tile_of(arch, shape[2])[1]
            found += [
                _case("stage", stage_kernel, constants | extra, name, SMALL),
                _case("split", split_kernel, constants | extra, name, launch),
                *_hopper_cases(arch, constants | extra, name),
                _case("merge", merge_kernel, constants | extra, name, MERGE),
            ]
        found.append(_case("prefill", prefill_kernel, constants, f"D={shape[2]}", launch, False))
    return found


def _hopper_cases(arch: int, constants: dict[str, Any], name: str) -> list[CompileCase]:
    if arch != HOPPER_ARCH or constants["D"] != 256:
        return []
    return [_case("hopper", hopper_kernel, constants | HOPPER, name, {"num_warps": 4})]


_TYPES = {
    **dict.fromkeys(("q_ptr", "kv_ptr", "ring_ptr", "staged_ptr", "out_ptr"), "*bf16"),
    **dict.fromkeys(("acc_ptr", "top_ptr", "sum_ptr"), "*fp32"),
    **dict.fromkeys(
        (
            "page_ptr",
            "taken_ptr",
            "live_ptr",
            "length_ptr",
            "slot_ptr",
            "tables_ptr",
            "start_ptr",
            "count_ptr",
        ),
        "*i32",
    ),
    "scale": "fp32",
    "rows": "i32",
    "batches": "i32",
    "kv": f"tensordesc<bf16[{PAGE}, 256],{KEYS!r}>",
}


def _case(
    kind: str, kernel: Any, constants: dict[str, Any], name: str, launch: dict, hot: bool = True
) -> CompileCase:
    types = {key: _TYPES[key] for key in kernel.arg_names if key in _TYPES}
    title = f"attention.{kind} {name}"
    return CompileCase(title, kernel, types, _used(kernel, constants), **launch, hot=hot)
