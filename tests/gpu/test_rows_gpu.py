"""Row-local kernels, moves and products on the device, against float64 and against themselves."""

import pytest
import torch

from services.kernels.cases import HYDRA27, chain_tree, make_tree
from services.kernels.conv import kernel as conv_kernel
from services.kernels.conv import reference as conv_reference
from services.kernels.linear import kernel as linear_kernel
from services.kernels.linear import reference as linear_reference
from services.kernels.linear.cases import LUMO_TINY, QWEN_27B
from services.kernels.norm import kernel, reference
from services.kernels.norm.cases import inverse_frequencies
from services.kernels.publish import kernel as publish_kernel
from services.kernels.publish import reference as publish_reference
from services.kernels.publish.cases import make_paths, make_words
from tests.gpu.operands import DEVICE, attention_case, rms, tables_on_device

pytestmark = pytest.mark.gpu
CHANNELS, GATES = 10240, 96


def normal(*size: int, seed: int = 0, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    generator = torch.Generator(DEVICE).manual_seed(seed)
    return torch.randn(size, generator=generator, device=DEVICE).to(dtype)


def poison(*size: int) -> torch.Tensor:
    return torch.full(size, torch.nan, device=DEVICE, dtype=torch.bfloat16)


def assert_as_good(found: torch.Tensor, plain: torch.Tensor, exact: torch.Tensor) -> None:
    """The kernel's rms error is at most 1.1 times that of the plain torch path."""
    assert rms(found - exact) <= 1.1 * rms(plain - exact) + 1e-9
    assert not torch.isnan(found).any()


def test_norms_are_as_exact_as_plain_torch() -> None:
    x, weight = normal(32, 5120), normal(5120, seed=1, dtype=torch.float32)
    found, plain, exact = (
        poison(32, 5120),
        poison(32, 5120),
        torch.empty_like(x, dtype=torch.double),
    )
    kernel.rms_norm(x, weight, 1e-6, found)
    reference.rms_norm(x, weight, 1e-6, plain)
    reference.rms_norm(x.double(), weight.double(), 1e-6, exact)
    assert_as_good(found, plain, exact)
    first, second = normal(32, 5120, seed=2), normal(32, 5120, seed=2)
    kernel.add_rms_norm(first, x, weight, 1e-6, found)
    reference.add_rms_norm(second, x, weight, 1e-6, plain)
    assert torch.equal(first, second)
    reference.rms_norm(first.double(), weight.double(), 1e-6, exact)
    assert_as_good(found, plain, exact)


def test_gates_are_as_exact_as_plain_torch() -> None:
    core, z, weight = normal(32, 48, 128), normal(32, 16480)[:, 10240:16384], normal(128).float()
    found, plain, exact = poison(32, 6144), poison(32, 6144), poison(32, 6144).double()
    kernel.gated_norm(core, z, weight, 1e-6, "silu", found)
    reference.gated_norm(core, z, weight, 1e-6, "silu", plain)
    reference.gated_norm(core.double(), z.double(), weight.double(), 1e-6, "silu", exact)
    assert_as_good(found, plain, exact)
    wide = normal(32, 2 * 17408)
    found, plain, exact = poison(32, 17408), poison(32, 17408), poison(32, 17408).double()
    kernel.silu_mul(wide, found)
    reference.silu_mul(wide, plain)
    reference.silu_mul(wide.double(), exact)
    assert_as_good(found, plain, exact)


def test_rotary_keys_are_the_same_bits_in_ring_and_page() -> None:
    length = 100_000
    case = attention_case(32, length + 64)
    qkv, weights = normal(32, 14336), (normal(256).float(), normal(256, seed=1).float())
    norms = (*weights, inverse_frequencies(64).to(DEVICE), 1e-6)
    tables = tables_on_device([chain_tree(16)], [length], [0])
    in_tree, in_run, plain = (poison(32, 24, 256) for _ in range(3))
    kernel.qk_norm_rope_ring(qkv, *norms, tables, case.kv_ring, 0, in_tree)
    runs = [torch.tensor([value], device=DEVICE).int() for value in (0, length, 16)]
    kernel.qk_norm_rope_pages(qkv, *norms, *runs, case.page_table, case.kv, in_run)
    assert torch.equal(in_tree, in_run)
    page, row = int(case.page_table[0, length // 64]), length % 64
    assert torch.equal(case.kv[page, :, :, row : row + 16], case.kv_ring[0, 0, :, :, :16])
    ring, exact = case.kv_ring.clone(), torch.zeros_like(in_tree, dtype=torch.double)
    reference.qk_norm_rope_ring(qkv, *norms, tables, ring, 0, plain)
    angles = torch.arange(length, length + 16, device=DEVICE)
    query, _, _ = reference.qk_norm_rope(
        qkv[:16].double(), *(w.double() for w in weights), angles, norms[2], 1e-6, 4
    )
    exact[:16] = query
    assert rms(in_tree - exact) <= 1.1 * rms(plain - exact) + 1e-9


def test_tree_and_chain_convolutions_share_their_bits() -> None:
    tree = make_tree(HYDRA27)
    path = list(tree.path_to(27))
    wide, words = normal(64, 16480), make_words(2, length=9).to(DEVICE)
    raw, ab, weight = wide[:, :CHANNELS], wide[:, 16384:], normal(CHANNELS, 4)
    conv = normal(2, 2, 3, 3, CHANNELS, seed=4)
    rings = poison(2, 3, 32, CHANNELS), poison(2, 3, 32, CHANNELS), poison(2, 3, 32, 2, 48)
    own = [ring.clone() for ring in rings]
    tables = tables_on_device([tree, chain_tree(3)], [9, 9], [1, 0])
    conv_kernel.conv_tree(raw, ab, conv, words, 2, tables, weight, *rings)
    conv_reference.conv_tree(raw, ab, conv, words, 2, tables, weight, *own)
    assert torch.equal(rings[0].nan_to_num(7), own[0].nan_to_num(7))
    assert torch.equal(rings[2].nan_to_num(7), own[2].nan_to_num(7))
    assert rms((rings[1] - own[1]).nan_to_num(0)) < 1e-3
    lone, out = poison(32, 16480)[:, :CHANNELS], poison(32, CHANNELS)
    lone[:12] = raw[path]
    runs = [torch.tensor([value], device=DEVICE).int() for value in (1, 12)]
    conv_kernel.conv_chain(lone, conv, words, 2, *runs, weight, out)
    assert torch.equal(out[:12], rings[1][1, 2, path])
    assert torch.equal(conv[1, 0, 2], raw[path[-3:]])


def test_moves_match_the_reference() -> None:
    words = make_words(2, cycle=3, length=63)
    path = make_paths(words, [[0, 2, 5, 7], [0]]).to(DEVICE)
    words, slots = words.to(DEVICE), torch.tensor([1, 0], device=DEVICE).int()
    case, kv = attention_case(32, 200, slots=2, layers=2), normal(2, 8, 2, 4, 64, 256)
    ring, conv = normal(2, 3, 32, CHANNELS), normal(2, 2, 3, 3, CHANNELS, seed=1)
    own_kv, own_conv, own_words = kv.clone(), conv.clone(), words.clone()
    moves = ((publish_kernel, kv, conv, words), (publish_reference, own_kv, own_conv, own_words))
    for module, pages, states, row in moves:
        module.conv_gather(ring, states, row, path, slots)
        module.kv_scatter(case.kv_ring, pages, case.page_table, row, path, slots)
        module.flip(row, path, slots)
    assert torch.equal(kv, own_kv) and torch.equal(conv, own_conv) and torch.equal(words, own_words)


@pytest.mark.parametrize("shape", [*QWEN_27B[:5], *LUMO_TINY], ids=str)
def test_rows_of_every_product_keep_their_bits(shape: tuple[int, int]) -> None:
    weight = normal(*shape) * shape[1] ** -0.5
    for rows in (32, 64, 96, 128):
        assert linear_kernel.row_invariance_check(weight, rows)
        product = linear_kernel.fixed_linear
        assert linear_reference.row_invariance_check(weight, rows, product)


@pytest.mark.parametrize("shape", [QWEN_27B[4], LUMO_TINY[0]], ids=str)
def test_products_are_as_exact_as_the_library(shape: tuple[int, int]) -> None:
    x, weight = normal(32, shape[1]), normal(*shape, seed=1) * shape[1] ** -0.5
    exact = x.double() @ weight.double().t()
    for dtype in (torch.bfloat16, torch.float32):
        ours, theirs = (torch.full_like(exact, torch.nan, dtype=dtype) for _ in range(2))
        linear_kernel.fixed_linear(x, weight, ours)
        linear_kernel.library_linear(x, weight, theirs)
        assert rms(ours - exact) <= 1.1 * rms(theirs - exact) + 1e-9


def test_a_free_row_count_is_not_invariant() -> None:
    weight = normal(*QWEN_27B[4]) * 17408**-0.5
    same = linear_reference.row_invariance_check(weight, 256, linear_kernel.library_linear)
    assert not same, "the control has no power on this machine"
