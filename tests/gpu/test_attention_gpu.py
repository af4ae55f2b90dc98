"""Attention on the device at the 27B shape: error, log-sum-exp, and bits."""

import hashlib
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from services.contract.limits import PAGE
from services.kernels.arch import device_arch
from services.kernels.attention import kernel, reference
from services.kernels.attention.cases import AttentionCase
from services.kernels.cases import HYDRA27, chain_tree, make_tree
from services.kernels.tree_tables import TableViews
from tests.gpu.operands import DEVICE, attention_case, rms, tables_on_device

pytestmark = pytest.mark.gpu
LENGTHS = (1000, 4090, 33000)


def attend(case: AttentionCase, tables: TableViews) -> torch.Tensor:
    out = torch.full_like(case.q, torch.nan)
    kernel.attend(case.q, case.kv, case.kv_ring, 0, case.page_table, tables, out)
    return out


def wide(case: AttentionCase) -> AttentionCase:
    tensors = (t.double() if t.is_floating_point() else t for t in vars(case).values())
    return AttentionCase(*tensors)


def library(case: AttentionCase, tables: TableViews, length: int) -> torch.Tensor:
    """The library's bf16 attention of each live row over its own keys."""
    out = torch.zeros_like(case.q)
    prefix = reference.gather_pages(case.kv, case.page_table[0], length)
    for node in range(int(tables.header[0, 0])):
        path = [n for n in tables.ancestors[0, node].tolist() if n >= 0]
        keys, values = torch.cat([prefix, case.kv_ring[0, 0][:, :, path]], 2)[:, None]
        q = case.q[node].view(1, 24, 1, 256)
        out[node] = F.scaled_dot_product_attention(q, keys, values, enable_gqa=True)[0, :, 0]
    return out


@pytest.mark.parametrize("length", LENGTHS)
def test_error_against_float64_is_that_of_the_library(length: int) -> None:
    case = attention_case(32, length + 64)
    tables = tables_on_device([make_tree(HYDRA27)], [length], [0])
    found, expected = attend(case, tables), wide(case)
    exact = torch.full_like(expected.q, torch.nan)
    arguments = (expected.q, expected.kv, expected.kv_ring, 0, case.page_table, tables)
    reference.attend(*arguments, exact)
    assert torch.equal(found[28:], torch.zeros_like(found[28:]))
    ours, theirs = rms(found - exact), rms(library(case, tables, length) - exact)
    assert ours <= 1.1 * theirs, (ours, theirs, rms(exact))


def test_the_plain_kernel_is_as_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    case, tables = attention_case(32, 4160), tables_on_device([make_tree(HYDRA27)], [4090], [0])
    fast = attend(case, tables)
    monkeypatch.setattr(kernel, "takes_hopper", lambda *_: False)
    plain, expected = attend(case, tables), wide(case)
    exact = torch.full_like(expected.q, torch.nan)
    arguments = (expected.q, expected.kv, expected.kv_ring, 0, case.page_table, tables)
    reference.attend(*arguments, exact)
    assert rms(plain - exact) <= 1.1 * rms(fast - exact)


@pytest.mark.parametrize("length", LENGTHS)
def test_log_sum_exp_is_within_4_ulp(length: int) -> None:
    case, tree = attention_case(32, length + 64), make_tree(HYDRA27)
    tables = tables_on_device([tree], [length], [0])
    attend(case, tables)
    keys = reference.gather_pages(case.kv, case.page_table[0], length)[0].double()
    for node in (0, 3, 13, 27):
        path = list(tree.path_to(node))
        own = torch.cat([keys, case.kv_ring[0, 0, 0][:, path].double()], 1)
        q = case.q[node].double().view(4, 6, 256) / 16
        expected = torch.logsumexp(q @ own.transpose(1, 2), -1).flatten()
        found = log_sum_exp(case, tables, node, length + len(path) - 1)
        ulp = torch.finfo(torch.float32).eps * 2.0 ** expected.abs().log2().floor()
        assert ((found - expected).abs() / ulp).max() <= 4, node


def log_sum_exp(case: AttentionCase, tables: TableViews, node: int, position: int) -> torch.Tensor:
    """Merge the stored maxima and sums of one node's splits in float64."""
    arch = device_arch(DEVICE)
    constants = kernel.split_constants(arch, True, case.page_table.shape[1], 24, 4, 256)
    parts = kernel._workspace_of(case.q, 1, constants)
    rows, tiles, tails = constants["ROWS"], constants["TILES"], constants["TAIL_TILES"]
    last_shared = kernel.num_splits(int(tables.header[0, 1]) + 1) - 1
    path = int(tables.path_of[0, node])
    place = int(tables.depths[0, node]) - int(tables.path_own[0, path])
    found = []
    for head in range(24):
        kv_head, row, tail = head // 6, node * 6 + head % 6, place * 6 + head % 6
        cells = []
        for split in range(kernel.num_splits(position + 1)):
            if split < last_shared:
                cells.append(((split * tiles + row // rows) * 4 + kv_head, row % rows))
            else:
                cell = (path * 2 + split - last_shared) * tails + tail // rows
                cells.append(((constants["SPLITS"] * tiles + cell) * 4 + kv_head, tail % rows))
        tops = torch.stack([parts.top[cell] for cell in cells]).double() * math.log(2)
        sums = torch.stack([parts.sums[cell] for cell in cells]).double()
        found.append(torch.logsumexp(tops + sums.log(), 0))
    return torch.stack(found)


@pytest.mark.parametrize("length", [4090, 16380])
def test_a_key_moved_from_ring_to_page_changes_no_bit(length: int) -> None:
    tree = make_tree(HYDRA27)
    path = list(tree.path_to(27))
    case = attention_case(32, length + 64)
    expected = attend(case, tables_on_device([tree], [length], [0]))[27]
    for moved in (1, 7, 11):
        position = length + moved - 1
        for index in range(moved):
            page, row = int(case.page_table[0, (length + index) // PAGE]), (length + index) % PAGE
            case.kv[page, :, :, row] = case.kv_ring[0, 0, :, :, path[index]]
        rest, ring = path[moved:], case.kv_ring.clone()
        q = torch.full_like(case.q, torch.nan)
        q[: len(rest)], ring[0, 0, :, :, : len(rest)] = case.q[rest], case.kv_ring[0, 0][:, :, rest]
        lone = AttentionCase(q, case.kv, ring, case.page_table)
        found = attend(lone, tables_on_device([chain_tree(len(rest))], [position + 1], [0]))
        assert torch.equal(found[len(rest) - 1], expected), moved


def test_batching_and_poison_change_no_bit() -> None:
    trees = [make_tree(HYDRA27), chain_tree(5), make_tree(HYDRA27), chain_tree(16)]
    lengths, slots = [5000, 90, 17000, 4090], [0, 1, 2, 3]
    case = attention_case(128, 17100, slots=4)
    together = attend(case, tables_on_device(trees, lengths, slots))
    for index in slots:
        rows = slice(32 * index, 32 * index + 32)
        case.q[rows][trees[index].num_nodes :] = torch.nan
        case.kv_ring[index, :, :, :, trees[index].num_nodes :] = torch.nan
        page, row = case.page_table[index, lengths[index] // PAGE :], lengths[index] % PAGE
        case.kv[page[1:].long()] = torch.nan
        case.kv[int(page[0]), :, :, row:] = torch.nan
    for index in slots:
        rows = slice(32 * index, 32 * index + 32)
        own = AttentionCase(case.q[rows], case.kv, case.kv_ring, case.page_table)
        alone = attend(own, tables_on_device([trees[index]], [lengths[index]], [index]))
        assert torch.equal(alone, together[rows]), index


def test_one_captured_graph_serves_every_length() -> None:
    case, tree = attention_case(32, 17100), make_tree(HYDRA27)
    tables, out = tables_on_device([tree], [100], [0]), torch.empty_like(case.q)
    arguments = (case.q, case.kv, case.kv_ring, 0, case.page_table, tables, out)
    kernel.attend(*arguments)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel.attend(*arguments)
    for length in (0, 77, 4095, 17000):
        tables.block.copy_(tables_on_device([tree], [length], [0]).block)
        out.fill_(torch.nan)
        graph.replay()
        assert torch.equal(out, attend(case, tables)), length


@pytest.mark.parametrize("rows", [16, 256])
def test_prompt_rows_match_float64(rows: int) -> None:
    case, start = attention_case(rows, 4096 + rows), 4096
    slots, starts, counts = (torch.tensor([v], device=DEVICE).int() for v in (0, start, rows - 3))
    out = torch.full_like(case.q, torch.nan)
    runs = (case.page_table, slots, starts, counts)
    kernel.attend_prefill(case.q, case.kv, *runs, out)
    exact = torch.full_like(wide(case).q, torch.nan)
    reference.attend_prefill(wide(case).q, wide(case).kv, *runs, exact)
    assert rms(out - exact) <= 4e-3 * rms(exact)
    assert torch.equal(out[rows - 3 :], torch.zeros_like(out[rows - 3 :]))


def digest() -> str:
    """Hash outputs of a fixed case: two processes must print the same."""
    case = attention_case(64, 33000, slots=2, seed=5)
    trees = [make_tree(HYDRA27), chain_tree(9)]
    out = attend(case, tables_on_device(trees, [32000, 4090], [1, 0]))
    return hashlib.sha256(out.view(torch.uint8).cpu().numpy().tobytes()).hexdigest()


def test_two_processes_give_equal_digests() -> None:
    code = "from tests.gpu.test_attention_gpu import digest; print(digest())"
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == digest()
