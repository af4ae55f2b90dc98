"""Weight-bound products at the 27B shapes: row invariance first, then library against fixed tiles.

Run on a GPU: python -m benchmarks.kernels.linear
"""

from typing import Any

import torch

from benchmarks.kernels.timing import graph_times, machine, memory_rates, save
from services.kernels.linear import kernel, reference, table
from services.kernels.linear.cases import LUMO_TINY, QWEN_27B

ROWS = (32, 64, 96, 128)
BUDGET = 3 << 30


def invariant(weight: torch.Tensor, product: Any) -> list[int]:
    """Return the row counts at which every row keeps the bits it has at 32."""
    return [rows for rows in ROWS if reference.row_invariance_check(weight, rows, product)]


def time_products(shape: tuple[int, int], rows: int, product: Any, dtype: torch.dtype) -> float:
    """Return the median microseconds over weights that together exceed the cache."""
    copies = max(1, min(6, BUDGET // (2 * shape[0] * shape[1])))
    weights = [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(copies)]
    x = torch.randn((rows, shape[1]), device="cuda", dtype=torch.bfloat16)
    out = torch.empty((rows, shape[0]), device="cuda", dtype=dtype)
    return graph_times([lambda w=w: product(x, w, out) for w in weights], 20).median


def measure(shape: tuple[int, int]) -> dict[str, Any]:
    """Return one row: which row counts are invariant, times at 32 and 128 rows."""
    weight = torch.randn(shape, device="cuda", dtype=torch.bfloat16) * shape[1] ** -0.5
    row: dict[str, Any] = {"shape": shape, "tile": table.fixed_tile(90, *shape)}
    dtype = torch.float32 if shape in (QWEN_27B[5], LUMO_TINY[5]) else torch.bfloat16
    for name, product in (("library", kernel.library_linear), ("fixed", kernel.fixed_linear)):
        row[f"{name}_invariant"] = invariant(weight, product)
        for rows in (32, 128):
            row[f"{name}_{rows}_us"] = time_products(shape, rows, product, dtype)
    row["fixed_tb_s"] = 2e-6 * shape[0] * shape[1] / row["fixed_32_us"]
    row["library_tb_s"] = 2e-6 * shape[0] * shape[1] / row["library_32_us"]
    row["fixed_of_library"] = row["library_32_us"] / row["fixed_32_us"]
    return row


def main() -> None:
    """Measure every shape; a fixed tile that is not invariant prints nothing and fails."""
    rows = []
    for shape in (*QWEN_27B, *LUMO_TINY):
        row = measure(shape)
        if row["fixed_invariant"] != list(ROWS):
            raise SystemExit(f"fixed tiles at {shape} let rows see each other: no figures")
        rows.append(row)
        print(row, flush=True)
    save("linear", {**machine(), **memory_rates(), "rows": rows})


if __name__ == "__main__":
    main()
