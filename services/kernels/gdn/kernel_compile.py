"""The offline compile cases of the exact GDN kernels at the 27B shape."""

from typing import Any

from services.contract.limits import TABLE_WORDS
from services.kernels import tree_tables
from services.kernels.compile_case import CompileCase
from services.kernels.gdn import kernel_line, kernel_tree
from services.kernels.gdn.kernel import CHAIN, PATHS, REPLAY, SCAN, Tile

_HEADS = {"HK": 16, "HV": 48, "DK": 128, "DV": 128}
_TYPES = {
    **dict.fromkeys(("mixed_ptr", "ab_ptr", "out_ptr"), "*bf16"),
    **dict.fromkeys(("a_log_ptr", "dt_bias_ptr", "recurrent_ptr", "cut_ptr"), "*fp32"),
    **dict.fromkeys(("words_ptr", "tables_ptr", "slots_ptr", "counts_ptr", "path_ptr"), "*i32"),
    **dict.fromkeys(("num_layers", "layer", "length", "c8", "ab_stride"), "i32"),
}
_SCAN_TABLES = {
    "T": 32,
    "TABLE_WORDS": TABLE_WORDS,
    "COUNTS": tree_tables.EVENT_COUNT,
    "EVENTS": tree_tables.EVENTS,
    "LANE_EVENTS": tree_tables.LANE_EVENTS,
}
_PATH_TABLES = {
    "T": 32,
    "TABLE_WORDS": TABLE_WORDS,
    "PATHS": tree_tables.LEAF_PATHS,
    "LENGTHS": tree_tables.PATH_LENGTH,
    "OWN": tree_tables.PATH_OWN,
    "FORKS": tree_tables.PATH_FORK,
}


def compile_cases(arch: int) -> list[CompileCase]:
    """Return every exact kernel at its checked-in configuration."""
    path = kernel_tree.path_kernel
    levels = [
        _case(f"two_level {level}", path, PATHS, {**_PATH_TABLES, "LEVEL": level})
        for level in (0, 1)
    ]
    return [
        _case("one_pass", kernel_tree.scan_kernel, SCAN, {**_SCAN_TABLES, "EB": SCAN.events}),
        *levels,
        _case("chain", kernel_line.chain_kernel, CHAIN, {"EB": CHAIN.events}),
        _case("replay", kernel_line.replay_kernel, REPLAY, {}),
    ]


def _case(name: str, kernel: Any, tile: Tile, extra: dict[str, Any]) -> CompileCase:
    return CompileCase(
        name=f"gdn.{name} 27B",
        kernel=kernel,
        types={key: kind for key, kind in _TYPES.items() if key in kernel.arg_names},
        constants={**_HEADS, "BV": tile.rows, "W": tile.warps, **extra},
        num_warps=tile.warps,
        max_registers=tile.registers or 0,
    )
