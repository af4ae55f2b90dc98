"""Tree attention at the 27B shape: the gate first, then time against bytes, products and peers.

Run on a GPU: python -m benchmarks.kernels.attention; anywhere: -m benchmarks.kernels.attention_page
"""

import argparse
from collections.abc import Callable
from datetime import date
from typing import Any

import pytest
import torch

from benchmarks.kernels.timing import Times, eager_times, graph_times, machine, memory_rates, save
from benchmarks.peers import attention as peers
from services.contract.limits import PAGE
from services.kernels.attention import kernel, reference
from services.kernels.attention.cases import AttentionCase
from services.kernels.cases import HYDRA27, chain_tree, make_tree
from services.kernels.tree_tables import TableViews
from tests.gpu.operands import DIM, HEADS, KV_HEADS, attention_case, tables_on_device

LENGTHS = (4096, 32768, 65536)
LAYERS = 4
CONTEXT = 131072
TREES = {"hydra27": make_tree(HYDRA27), "chain-5": chain_tree(6), "plain": chain_tree(1)}


def layers_of(length: int) -> list[AttentionCase]:
    """Return the operands of several layers: together they exceed the cache."""
    found = []
    for layer in range(LAYERS):
        case = attention_case(32, length + 64, seed=layer)
        table = torch.zeros((1, CONTEXT // PAGE), dtype=torch.int32, device="cuda")
        table[:, : case.page_table.shape[1]] = case.page_table
        found.append(AttentionCase(case.q, case.kv, case.kv_ring, table))
    return found


def time_tree(cases: list[AttentionCase], tables: TableViews) -> Times:
    """Time one layer of ours, captured with its neighbours."""
    runs = []
    for case in cases:
        out = torch.empty_like(case.q)
        arguments = (case.q, case.kv, case.kv_ring, 0, case.page_table, tables, out)
        runs.append(lambda arguments=arguments: kernel.attend(*arguments))
    return graph_times(runs)


def product_rate() -> float:
    """Return TFLOP/s of the library's bf16 product of 8192 x 8192 matrices."""
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    out = torch.empty_like(a)
    return 2 * 8192**3 / graph_times([lambda: torch.mm(a, b, out=out)], 10).median / 1e6


def tree_mask(tables: TableViews, length: int) -> torch.Tensor:
    """Return the mask [32, length + 32] of a tree whose candidates follow the committed keys."""
    live = int(tables.header[0, 0])
    mask = torch.zeros((32, length + 32), dtype=torch.bool, device="cuda")
    mask[:live, :length] = True
    for node in range(live):
        path = [n for n in tables.ancestors[0, node].tolist() if n >= 0]
        mask[node, [length + n for n in path]] = True
    mask[live:, 0] = True
    return mask


def contiguous(case: AttentionCase, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return keys and values [Hkv, n, D] of one layer, candidates last."""
    prefix = reference.gather_pages(case.kv, case.page_table[0], length)
    keys, values = torch.cat([prefix, case.kv_ring[0, 0][:, :, :32]], dim=2)
    return keys.contiguous(), values.contiguous()


def paged(case: AttentionCase, length: int) -> torch.Tensor:
    """Return pages that hold the candidates behind the committed keys."""
    kv = case.kv.clone()
    for node in range(32):
        page, row = int(case.page_table[0, (length + node) // PAGE]), (length + node) % PAGE
        kv[page, :, :, row] = case.kv_ring[0, 0, :, :, node]
    return kv


def peer_runs(
    cases: list[AttentionCase], tables: TableViews, length: int
) -> dict[str, Callable[[AttentionCase], peers.Peer]]:
    """Return how to make each peer's call for one layer."""
    mask = tree_mask(tables, length)
    return {
        "SDPA with mask": lambda c: peers.sdpa(c.q, *contiguous(c, length), mask),
        "flex attention": lambda c: peers.flex(c.q, *contiguous(c, length), mask),
        "FlashInfer custom mask": lambda c: peers.flashinfer(
            c.q, paged(c, length), c.page_table[0], length + 32, mask
        ),
    }


def time_peers(
    cases: list[AttentionCase], tables: TableViews, length: int, names: list[str]
) -> dict[str, Any]:
    """Time each named peer, or say why it does not run."""
    found: dict[str, Any] = {}
    for name, make in peer_runs(cases, tables, length).items():
        if name not in names:
            continue
        try:
            found[name] = eager_times([make(case) for case in cases])._asdict()
        except Exception as error:
            found[name] = {"not_run": f"{type(error).__name__}: {str(error)[:160]}"}
    return found


def measure(length: int, name: str, rates: dict[str, float]) -> dict[str, Any]:
    """Return one row of the table: ours at one length and tree."""
    tree, cases = TREES[name], layers_of(length)
    times = time_tree(cases, tables_on_device([tree], [length], [0]))
    rate = 2 * KV_HEADS * DIM * 2 * (length + 32) / times.median / 1e6
    flops = 4e-6 * tree.num_nodes * HEADS * DIM * length / times.median
    return {
        "tree": name,
        "context": length,
        **times._asdict(),
        "kv_tb_s": rate,
        "of_read_rate": rate / rates["read_tb_s"],
        "tflops": flops,
        "of_product_rate": flops / rates["product_tflops"],
    }


def main() -> None:
    """Run the gate, then print and store the table; peers that compile longest come last."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-gate", action="store_true", help="time only; nothing is stored")
    arguments = parser.parse_args()
    if not arguments.no_gate and pytest.main(["-q", "-x", "tests/gpu/test_attention_gpu.py"]):
        raise SystemExit("the gate is red: no figures")
    rates = {**memory_rates(), "product_tflops": product_rate()}
    rows = [measure(length, name, rates) for length in LENGTHS for name in TREES]
    for row in rows:
        print({k: round(v, 3) if isinstance(v, float) else v for k, v in row.items()}, flush=True)
    result = {"date": str(date.today()), **machine(), **rates, "rows": rows, "peers": []}
    for peer in ("SDPA with mask", "flex attention", "FlashInfer custom mask"):
        for length in LENGTHS[1:]:
            tables = tables_on_device([TREES["hydra27"]], [length], [0])
            times = time_peers(layers_of(length), tables, length, [peer])[peer]
            result["peers"].append({"peer": peer, "context": length, **times})
            print(result["peers"][-1], flush=True)
            if not arguments.no_gate:
                save("attention", result)


if __name__ == "__main__":
    main()
