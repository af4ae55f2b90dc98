"""Tree attention at the 27B shape: the gate first, then time against bytes and peers.

Run on a GPU: python -m benchmarks.kernels.attention
"""

import argparse
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


def contiguous(
    case: AttentionCase, tables: TableViews, length: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return keys and values [Hkv, n, D] and the tree's mask [32, n] of one layer."""
    live = int(tables.header[0, 0])
    keys, values = torch.cat(
        [
            reference.gather_pages(case.kv, case.page_table[0], length),
            case.kv_ring[0, 0][:, :, :32],
        ],
        dim=2,
    )
    mask = torch.zeros((32, length + 32), dtype=torch.bool, device="cuda")
    mask[:live, :length] = True
    for node in range(live):
        path = [n for n in tables.ancestors[0, node].tolist() if n >= 0]
        mask[node, [length + n for n in path]] = True
    mask[live:, 0] = True
    return keys.contiguous(), values.contiguous(), mask


def time_peers(cases: list[AttentionCase], tables: TableViews, length: int) -> dict[str, Any]:
    """Time each peer, or say why it does not run."""
    operands = [(case.q, *contiguous(case, tables, length)) for case in cases]
    found: dict[str, Any] = {}
    for name, make in (("sdpa_mask", peers.sdpa), ("flex", peers.flex)):
        try:
            found[name] = eager_times([make(*operand) for operand in operands])._asdict()
        except Exception as error:
            found[name] = {"not_run": f"{type(error).__name__}: {str(error)[:160]}"}
    return found


def main() -> None:
    """Run the gate, then print and store the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-gate", action="store_true", help="time only; nothing is stored")
    arguments = parser.parse_args()
    if not arguments.no_gate and pytest.main(["-q", "-x", "tests/gpu/test_attention_gpu.py"]):
        raise SystemExit("the gate is red: no figures")
    rates, rows = memory_rates(), []
    for length in LENGTHS:
        cases = layers_of(length)
        size = 2 * KV_HEADS * DIM * 2 * (length + 32)
        for name, tree in TREES.items():
            tables = tables_on_device([tree], [length], [0])
            times = time_tree(cases, tables)
            rate = size / times.median / 1e6
            row = {"tree": name, "context": length, **times._asdict(), "kv_tb_s": rate}
            row["of_read_rate"] = rate / max(rates.values())
            row["tflops"] = 4e-6 * tree.num_nodes * HEADS * DIM * length / times.median
            if name == "hydra27":
                row["peers"] = time_peers(cases, tables, length)
            rows.append(row)
            print({key: value for key, value in row.items() if key != "peers"}, flush=True)
            print("   ", row.get("peers", ""), flush=True)
    if not arguments.no_gate:
        save("attention", {**machine(), **rates, "rows": rows})


if __name__ == "__main__":
    main()
