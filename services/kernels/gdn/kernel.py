"""Launch the GDN kernels on a GPU; arguments as in services.kernels.gdn."""

from functools import cache

import torch

from services.kernels import tree_tables
from services.kernels.gdn import kernel_line, kernel_tree
from services.kernels.tree_tables import TableViews

_PATH_LANES = 12
_MAX_CUTS = 16
# The compiler may not contract: bits would then depend on the kernel around the step.
_EXACT = {"enable_fp_fusion": False}


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
    else:
        raise ValueError(f"schedule is {schedule!r}; use one_pass, two_level or triangular")


def _heads(mixed: torch.Tensor, recurrent: torch.Tensor) -> dict[str, int]:
    num_heads, dv, dk = recurrent.shape[3:]
    key_heads = (mixed.shape[-1] - num_heads * dv) // (2 * dk)
    return {"HK": key_heads, "HV": num_heads, "DK": dk, "DV": dv}


def _one_pass(operands: tuple[torch.Tensor, ...], layer: int) -> None:
    mixed, recurrent, block, out = operands[0], operands[4], operands[6], operands[7]
    heads = _heads(mixed, recurrent)
    rows, batch = min(32, heads["DV"]), block.shape[0]
    grid = (heads["HV"] * heads["DV"] // rows, tree_tables.GDN_LANES, batch)
    kernel_tree.scan_kernel[grid](
        *operands,
        recurrent.shape[2],
        layer,
        **heads,
        T=out.shape[0] // batch,
        BV=rows,
        EB=32,
        W=rows // 8,
        TABLE_WORDS=block.stride(0),
        STARTS=tree_tables.EVENT_START,
        EVENTS=tree_tables.EVENTS,
        num_warps=rows // 8,
        **_EXACT,
    )


def _two_level(operands: tuple[torch.Tensor, ...], layer: int) -> None:
    mixed, recurrent, block, out = operands[0], operands[4], operands[6], operands[7]
    heads = _heads(mixed, recurrent)
    rows, batch = min(32, heads["DV"]), block.shape[0]
    cuts = _cut_states(out.device, batch * _MAX_CUTS * recurrent[0, 0, 0].numel())
    for level, lanes in ((0, 1), (1, _PATH_LANES)):
        kernel_tree.path_kernel[(heads["HV"] * heads["DV"] // rows, lanes, batch)](
            *operands,
            cuts,
            recurrent.shape[2],
            layer,
            **heads,
            T=out.shape[0] // batch,
            BV=rows,
            W=rows // 8,
            TABLE_WORDS=block.stride(0),
            PATHS=tree_tables.LEAF_PATHS,
            LENGTHS=tree_tables.PATH_LENGTH,
            OWN=tree_tables.PATH_OWN,
            FORKS=tree_tables.PATH_FORK,
            LEVEL=level,
            num_warps=rows // 8,
            **_EXACT,
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
    if mixed.stride(0) % 8 or mixed.stride(-1) != 1:
        raise ValueError(
            f"mixed has strides {mixed.stride()}; rows must be dense and a multiple of 8 apart"
        )
    rows, batch = min(32, heads["DV"]), slots.numel()
    kernel_line.chain_kernel[(heads["HV"] * heads["DV"] // rows, batch)](
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
        BV=rows,
        EB=32,
        W=rows // 8,
        num_warps=rows // 8,
        **_EXACT,
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
    rows, layers = min(32, heads["DV"]), recurrent.shape[2]
    kernel_line.replay_kernel[(heads["HV"] * heads["DV"] // rows, layers, slots.numel())](
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
        BV=rows,
        W=rows // 8,
        num_warps=rows // 8,
        **_EXACT,
    )
