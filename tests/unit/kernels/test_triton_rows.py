"""Row-local Triton kernels against their references, interpreted in fp32."""

import random

import pytest
import torch

from services.kernels.attention.cases import make_attention_case
from services.kernels.cases import HYDRA27, chain_tree, make_tables, make_tree
from services.kernels.conv import kernel as conv_kernel
from services.kernels.conv import reference as conv_reference
from services.kernels.conv.cases import make_conv_case
from services.kernels.norm import kernel, reference
from services.kernels.norm.cases import inverse_frequencies, normal
from services.kernels.publish.cases import make_words

TOLERANCE = 4e-6


def runs() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Slots, starts and counts of two runs; the first crosses a page border."""
    values = ([1, 0], [250, 100], [30, 4])
    slots, starts, counts = (torch.tensor(row, dtype=torch.int32) for row in values)
    return slots, starts, counts


def poison(*size: int) -> torch.Tensor:
    return torch.full(size, torch.nan)


def assert_close(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)


def test_norms_match_the_reference() -> None:
    x, weight = normal(5, 48), normal(48, seed=1)
    found, expected = poison(5, 48), poison(5, 48)
    kernel.rms_norm(x, weight, 1e-6, found)
    reference.rms_norm(x, weight, 1e-6, expected)
    assert_close(found, expected)
    residual = normal(5, 48, seed=2)
    other = residual.clone()
    kernel.add_rms_norm(residual, x, weight, 1e-6, found)
    reference.add_rms_norm(other, x, weight, 1e-6, expected)
    assert torch.equal(residual, other)
    assert_close(found, expected)


@pytest.mark.parametrize("activation", ["silu", "sigmoid"])
def test_gated_norm_matches_the_reference_on_strided_gates(activation: str) -> None:
    core, z, weight = normal(3, 6, 16), normal(3, 200)[:, 50:146], normal(16, seed=1)
    found, expected = poison(3, 96), poison(3, 96)
    kernel.gated_norm(core, z, weight, 1e-6, activation, found)
    reference.gated_norm(core, z, weight, 1e-6, activation, expected)
    assert_close(found, expected)


def test_gates_match_the_reference() -> None:
    qkv, attn = normal(3, 4 * 128 + 256), normal(3, 4, 64, seed=1)
    found, expected = poison(3, 256), poison(3, 256)
    kernel.sigmoid_gate(attn, qkv, found)
    reference.sigmoid_gate(attn, qkv, expected)
    assert_close(found, expected)
    gate_up, found, expected = normal(3, 80), poison(3, 40), poison(3, 40)
    kernel.silu_mul(gate_up, found)
    reference.silu_mul(gate_up, expected)
    assert_close(found, expected)


def test_rotary_keys_are_the_same_bits_in_ring_and_page() -> None:
    case, tables = make_attention_case(64, 200), make_tables([chain_tree(9)], [70], [1])
    norms = (normal(64, seed=3), normal(64, seed=4), inverse_frequencies(16), 1e-6)
    qkv, ring, pages = normal(32, 768), case.kv_ring.clone(), case.kv.clone()
    in_tree, in_run, expected = poison(32, 4, 64), poison(32, 4, 64), poison(32, 4, 64)
    kernel.qk_norm_rope_ring(qkv, *norms, tables, ring, 1, in_tree)
    run = (torch.tensor([value], dtype=torch.int32) for value in (1, 70, 9))
    kernel.qk_norm_rope_pages(qkv, *norms, *run, case.page_table, pages, in_run)
    page = int(case.page_table[1, 1])
    assert torch.equal(in_tree, in_run)
    assert torch.equal(pages[page, :, :, 6:15], ring[1, 1, :, :, :9])
    own = case.kv_ring.clone()
    reference.qk_norm_rope_ring(qkv, *norms, tables, own, 1, expected)
    assert_close(in_tree, expected)
    assert_close(ring, own)


def test_rotary_pages_match_the_reference() -> None:
    case, norms = make_attention_case(64, 300), (normal(64), normal(64), inverse_frequencies(16))
    qkv, pages, own = normal(64, 768), case.kv.clone(), case.kv.clone()
    found, expected = poison(64, 4, 64), poison(64, 4, 64)
    kernel.qk_norm_rope_pages(qkv, *norms, 1e-6, *runs(), case.page_table, pages, found)
    reference.qk_norm_rope_pages(qkv, *norms, 1e-6, *runs(), case.page_table, own, expected)
    assert_close(found, expected)
    assert_close(pages, own)


def test_tree_convolution_matches_the_reference() -> None:
    case, words = make_conv_case(64, channels=72), make_words(2, length=70)
    words[1, 2] = 1
    tables = make_tables([make_tree(HYDRA27), chain_tree(5)], [1000, 70], [1, 0])
    rings = [case.raw_ring, case.mixed_ring, case.ab_ring]
    own = [ring.clone() for ring in rings]
    arguments = (case.raw, case.ab, case.conv, words, 1, tables, case.weight)
    conv_kernel.conv_tree(*arguments, *rings)
    conv_reference.conv_tree(*arguments, *own)
    for found, expected in zip(rings, own, strict=True):
        assert_close(found, expected)


@pytest.mark.parametrize("counts", [[30, 2], [0, 32]])
def test_chain_convolution_matches_the_reference(counts: list[int]) -> None:
    case, words, slots = make_conv_case(64, channels=72), make_words(2), runs()[0]
    lengths, state, own = torch.tensor(counts, dtype=torch.int32), case.conv, case.conv.clone()
    found, expected = poison(64, 72), poison(64, 72)
    conv_kernel.conv_chain(case.raw, state, words, 0, slots, lengths, case.weight, found)
    conv_reference.conv_chain(case.raw, own, words, 0, slots, lengths, case.weight, expected)
    assert_close(found, expected)
    assert torch.equal(state, own)


def test_a_node_in_a_tree_has_the_bits_of_its_path_as_a_chain() -> None:
    rng = random.Random(7)
    case, words = make_conv_case(32, channels=40, slots=1), make_words(1)
    tree = make_tree(HYDRA27)
    arguments = (case.conv, words, 0)
    rings = (case.raw_ring, case.mixed_ring, case.ab_ring)
    tables = make_tables([tree], [9], [0])
    conv_kernel.conv_tree(case.raw, case.ab, *arguments, tables, case.weight, *rings)
    path = list(tree.path_to(rng.randrange(20, 28)))
    raw = poison(32, 40)
    raw[: len(path)] = case.raw[path]
    out, counts = poison(32, 40), torch.tensor([len(path)], dtype=torch.int32)
    slots = torch.zeros(1, dtype=torch.int32)
    conv_kernel.conv_chain(raw, *arguments, slots, counts, case.weight, out)
    assert torch.equal(out[: len(path)], case.mixed_ring[0, 0, path])
