"""The row-local operations on the CPU: right, and blind to other rows."""

import random

import pytest
import torch

from services.kernels import norm
from services.kernels.cases import HYDRA27, make_tables, make_tree, random_tree
from services.kernels.norm import reference
from services.kernels.norm.cases import inverse_frequencies, normal

EPS = 1e-6


def poisoned(*size: int) -> torch.Tensor:
    """Return NaN."""
    return torch.full(size, torch.nan)


@pytest.mark.parametrize("width", [256, 40])
def test_rms_norms_match_reference(width: int, seed: int) -> None:
    x, weight = normal(32, width, seed=seed), normal(width, seed=seed + 1, scale=0.3)
    out, expected = poisoned(32, width), poisoned(32, width)
    norm.rms_norm(x, weight, EPS, out)
    reference.rms_norm(x, weight, EPS, expected)
    torch.testing.assert_close(out, expected, rtol=1e-6, atol=1e-6)
    residual = normal(32, width, seed=seed + 2)
    total = residual + x
    norm.add_rms_norm(residual, x, weight, EPS, out)
    reference.rms_norm(total, weight, EPS, expected)
    assert torch.equal(residual, total)
    torch.testing.assert_close(out, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("activation", ["silu", "sigmoid"])
def test_gated_norm_matches_reference(activation: str, seed: int) -> None:
    core, weight = normal(32, 6, 64, seed=seed), 1 + normal(64, seed=seed + 1, scale=0.1)
    z = normal(32, 500, seed=seed + 2, scale=4.0)[:, 100:484]
    out, expected = poisoned(32, 384), poisoned(32, 384)
    norm.gated_norm(core, z, weight, EPS, activation, out)
    reference.gated_norm(core, z, weight, EPS, activation, expected)
    torch.testing.assert_close(out, expected, rtol=2e-6, atol=1e-6)


def test_gates_match_reference(seed: int) -> None:
    qkv, attn = normal(32, 768, seed=seed, scale=6.0), normal(32, 4, 64, seed=seed + 1)
    out, expected = poisoned(32, 256), poisoned(32, 256)
    norm.sigmoid_gate(attn, qkv, out)
    reference.sigmoid_gate(attn, qkv, expected)
    torch.testing.assert_close(out, expected, rtol=2e-6, atol=1e-7)
    gate_up = normal(32, 1290, seed=seed + 2, scale=6.0)[:, 3:1283]
    out, expected = poisoned(32, 640), poisoned(32, 640)
    norm.silu_mul(gate_up, out)
    reference.silu_mul(gate_up, expected)
    torch.testing.assert_close(out, expected, rtol=2e-6, atol=1e-7)


def rope_ring(
    qkv: torch.Tensor, tables: object, backend: object = norm
) -> tuple[torch.Tensor, ...]:
    """Return q and the ring of layer 1 after qk_norm_rope_ring."""
    weights = normal(64, seed=1, scale=0.2), normal(64, seed=2, scale=0.2)
    q, ring = poisoned(qkv.shape[0], 4, 64), poisoned(2, 2, 2, 2, 32, 64)
    freq = inverse_frequencies(16)
    backend.qk_norm_rope_ring(qkv, *weights, freq, EPS, tables, ring, 1, q)
    return q, ring


def rope_pages(qkv: torch.Tensor, start: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return q and the keys and values [2, Hkv, count, D] that went to slot 1's pages."""
    weights = normal(64, seed=1, scale=0.2), normal(64, seed=2, scale=0.2)
    q, kv = poisoned(qkv.shape[0], 4, 64), poisoned(40, 2, 2, 64, 64)
    table = torch.arange(40, dtype=torch.int32).flip(0).view(2, 20).contiguous()
    runs = torch.tensor([[1], [start], [count]], dtype=torch.int32)
    freq = inverse_frequencies(16)
    norm.qk_norm_rope_pages(qkv, *weights, freq, EPS, *runs, table, kv, q)
    flat = kv[table[1].long()].permute(1, 2, 0, 3, 4).flatten(2, 3)
    assert flat.isnan().sum() == flat.numel() - count * 256
    return q, flat[:, :, start : start + count]


def test_rope_matches_reference_and_writes_live_rows_only(seed: int) -> None:
    qkv, tables = normal(32, 768, seed=seed), make_tables([make_tree(HYDRA27)], [1000], [1])
    q, ring = rope_ring(qkv, tables)
    expected_q, expected = rope_ring(qkv, tables, reference)
    torch.testing.assert_close(q, expected_q, rtol=0, atol=3e-6)
    torch.testing.assert_close(ring, expected, rtol=0, atol=3e-6, equal_nan=True)
    assert not q[28:].any()


def test_ring_and_pages_get_the_same_bits(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(20):
        tree, length = random_tree(rng), rng.choice((0, 60, 63, 64, 1000))
        qkv = normal(32, 768, seed=seed)
        q, ring = rope_ring(qkv, make_tables([tree], [length], [1]))
        nodes = list(tree.path_to(rng.randrange(tree.num_nodes)))
        rows = poisoned(16, 768)
        rows[: len(nodes)] = qkv[nodes]
        chain_q, pages = rope_pages(rows, length, len(nodes))
        assert torch.equal(chain_q[: len(nodes)], q[nodes]) and not chain_q[len(nodes) :].any()
        assert torch.equal(pages, ring[1, 1][:, :, nodes])
        shifted, _ = rope_ring(qkv, make_tables([tree], [length + 1], [1]))
        assert not torch.equal(shifted[0], q[0])


def apply_all(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return the results of all row-local operations on x [R, 768], side by side."""
    rows = x.shape[0]
    outs = [poisoned(rows, width) for width in (768, 768, 384, 256, 384)]
    norm.rms_norm(x, weight, EPS, outs[0])
    norm.add_rms_norm(x.clone(), x, weight, EPS, outs[1])
    core, gate = x[:, :384].reshape(rows, 6, 64).contiguous(), x[:, 384:]
    norm.gated_norm(core, gate, weight[:64].clone(), EPS, "silu", outs[2])
    norm.sigmoid_gate(x[:, :256].reshape(rows, 4, 64).contiguous(), x, outs[3])
    norm.silu_mul(x, outs[4])
    return torch.cat(outs, 1)


def test_a_row_keeps_its_bits_wherever_it_lies_and_whatever_lies_beside_it(seed: int) -> None:
    weight = normal(768, seed=3, scale=0.1)
    x = normal(32, 768, seed=seed)
    expected = apply_all(x, weight)
    for rows, shift in ((32, 5), (128, 77), (1, 0)):
        wide = poisoned(rows, 768)
        kept = min(rows, 9)
        places = [(shift + 3 * i) % rows for i in range(kept)]
        wide[places] = x[:kept]
        assert torch.equal(apply_all(wide, weight)[places], expected[:kept])
    changed = x.clone()
    changed[4, 0] += 1e-3
    assert not torch.equal(apply_all(changed, weight)[4], expected[4])
