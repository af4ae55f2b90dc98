"""Launch the GDN kernels on a GPU; arguments as in services.kernels.gdn."""

from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import torch

from services.kernels import tree_tables
from services.kernels.gdn import kernel_line, kernel_plain, kernel_tree, kernel_triangular
from services.kernels.tree_tables import TableViews

# The compiler may not contract: bits would then depend on the kernel around the step.
_EXACT: Final = {"enable_fp_fusion": False}
_PATH_LANES: Final = 12
_MAX_CUTS: Final = 16


@dataclass(frozen=True, slots=True)
class Tile:
    """Value rows and warps of a program, events staged at once, registers a thread may take.

    None of them changes a bit.
    """

    rows: int
    warps: int
    events: int
    registers: int | None = None


SCAN: Final = Tile(rows=32, warps=4, events=32)
PATHS: Final = Tile(rows=32, warps=4, events=16)
CHAIN: Final = Tile(rows=32, warps=4, events=32)
REPLAY: Final = Tile(rows=32, warps=4, events=16)


def scan(
    mixed_ring: torch.Tensor,
    ab_ring: torch.Tensor,
    a_log: torch.Tensor,
    dt_bias: torch.Tensor,
    recurrent: torch.Tensor,
    words: torch.Tensor,
    layer: int,
    tables: TableViews,
    out: torch.Tensor,
    schedule: str = "one_pass",
) -> None:
    """Do what gdn.scan says with the schedule's kernel."""
    block = tables.block
    operands = (mixed_ring, ab_ring, a_log, dt_bias, recurrent, words, block, out)
    if schedule == "one_pass":
        _one_pass(operands, layer)
    elif schedule == "two_level":
        _two_level(operands, layer)
    elif schedule == "triangular":
        kernel_triangular.triangular(operands, layer)
    else:
        raise ValueError(f"schedule is {schedule!r}; use one_pass, two_level or triangular")


def _one_pass(operands: tuple[torch.Tensor, ...], layer: int) -> None:
    mixed, recurrent, block, out = operands[0], operands[4], operands[6], operands[7]
    heads = _heads(mixed, recurrent)
    batch = block.shape[0]
    extra = _launch(SCAN, heads["DV"], out, events=True)
    kernel: Any = kernel_tree.scan_kernel if out.is_cuda else kernel_plain.scan_kernel
    kernel[(_programs(heads, extra), tree_tables.GDN_LANES, batch)](
        *operands,
        recurrent.shape[2],
        layer,
        **heads,
        **extra,
        T=out.shape[0] // batch,
        TABLE_WORDS=block.stride(0),
        COUNTS=tree_tables.EVENT_COUNT,
        EVENTS=tree_tables.EVENTS,
        LANE_EVENTS=tree_tables.LANE_EVENTS,
    )


def _two_level(operands: tuple[torch.Tensor, ...], layer: int) -> None:
    mixed, recurrent, block, out = operands[0], operands[4], operands[6], operands[7]
    heads = _heads(mixed, recurrent)
    batch = block.shape[0]
    extra = _launch(PATHS, heads["DV"], out, events=False)
    kernel: Any = kernel_tree.path_kernel if out.is_cuda else kernel_plain.path_kernel
    cuts = _cut_states(out.device, batch * _MAX_CUTS * recurrent[0, 0, 0].numel())
    for level, lanes in ((0, 1), (1, _PATH_LANES)):
        kernel[(_programs(heads, extra), lanes, batch)](
            *operands,
            cuts,
            recurrent.shape[2],
            layer,
            **heads,
            **extra,
            T=out.shape[0] // batch,
            TABLE_WORDS=block.stride(0),
            PATHS=tree_tables.LEAF_PATHS,
            LENGTHS=tree_tables.PATH_LENGTH,
            OWN=tree_tables.PATH_OWN,
            FORKS=tree_tables.PATH_FORK,
            LEVEL=level,
        )


@cache
def _cut_states(device: torch.device, size: int) -> torch.Tensor:
    return torch.empty(size, dtype=torch.float32, device=device)


def chain(
    mixed: torch.Tensor,
    ab: torch.Tensor,
    a_log: torch.Tensor,
    dt_bias: torch.Tensor,
    recurrent: torch.Tensor,
    words: torch.Tensor,
    layer: int,
    slots: torch.Tensor,
    counts: torch.Tensor,
    out: torch.Tensor,
) -> None:
    """Do what gdn.chain says; rows of `mixed` lie a multiple of 8 elements apart."""
    heads = _heads(mixed, recurrent)
    if mixed.stride(0) % 8 or mixed.stride(1) != 1 or ab.stride(1) != 1:
        raise ValueError(
            f"rows have strides {mixed.stride()} and {ab.stride()}; they must be dense, and those "
            f"of mixed a multiple of 8 apart"
        )
    extra = _launch(CHAIN, heads["DV"], out, events=True)
    kernel: Any = kernel_line.chain_kernel if out.is_cuda else kernel_plain.chain_kernel
    batch = slots.numel()
    kernel[(_programs(heads, extra), batch)](
        mixed,
        ab,
        a_log,
        dt_bias,
        recurrent,
        words,
        slots,
        counts,
        out,
        recurrent.shape[2],
        layer,
        out.shape[0] // batch,
        mixed.stride(0) // 8,
        ab.stride(0),
        **heads,
        **extra,
    )


def replay(
    mixed_ring: torch.Tensor,
    ab_ring: torch.Tensor,
    a_log: torch.Tensor,
    dt_bias: torch.Tensor,
    recurrent: torch.Tensor,
    words: torch.Tensor,
    path: torch.Tensor,
    slots: torch.Tensor,
) -> None:
    """Do what gdn.replay says, in one launch."""
    heads = _heads(mixed_ring, recurrent)
    layers = recurrent.shape[2]
    extra = _launch(REPLAY, heads["DV"], recurrent, events=False)
    kernel: Any = kernel_line.replay_kernel if recurrent.is_cuda else kernel_plain.replay_kernel
    kernel[(_programs(heads, extra), layers, slots.numel())](
        mixed_ring,
        ab_ring,
        a_log,
        dt_bias,
        recurrent,
        words,
        path,
        slots,
        layers,
        **heads,
        **extra,
    )


def _heads(mixed: torch.Tensor, recurrent: torch.Tensor) -> dict[str, int]:
    num_heads, dv, dk = recurrent.shape[3:]
    key_heads = (mixed.shape[-1] - num_heads * dv) // (2 * dk)
    return {"HK": key_heads, "HV": num_heads, "DK": dk, "DV": dv}


def _launch(tile: Tile, dv: int, out: torch.Tensor, events: bool) -> dict[str, Any]:
    rows = min(tile.rows, dv)
    if not out.is_cuda:
        return {"BV": rows}
    warps = max(1, tile.warps * rows // tile.rows)
    extra: dict[str, Any] = {"BV": rows, "W": warps, "num_warps": warps, **_EXACT}
    if events:
        extra["EB"] = tile.events
    if tile.registers:
        extra["maxnreg"] = tile.registers
    return extra


def _programs(heads: dict[str, int], extra: dict[str, Any]) -> int:
    return int(heads["HV"] * heads["DV"] // extra["BV"])
