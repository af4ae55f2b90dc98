"""Publication moves and the fixed-tile product, interpreted in fp32."""

import pytest
import torch

from services.kernels.attention.cases import make_attention_case
from services.kernels.conv.cases import make_conv_case
from services.kernels.linear import kernel as linear_kernel
from services.kernels.linear import reference as linear_reference
from services.kernels.norm.cases import normal
from services.kernels.publish import kernel, reference
from services.kernels.publish.cases import make_paths, make_words
from services.kernels.state_words import ACTIVE_SET, CYCLE, LENGTH

SLOTS = torch.tensor([1, 0], dtype=torch.int32)


def words_and_paths(length: int = 63) -> tuple[torch.Tensor, torch.Tensor]:
    words = make_words(2, cycle=3, length=length)
    words[1, ACTIVE_SET] = 1
    return words, make_paths(words, [[0, 2, 5, 7], [0]])


def test_conv_gather_matches_the_reference() -> None:
    words, path = words_and_paths()
    ring, conv = normal(2, 2, 32, 72), make_conv_case(32, channels=72).conv
    own = conv.clone()
    kernel.conv_gather(ring, conv, words, path, SLOTS)
    reference.conv_gather(ring, own, words, path, SLOTS)
    assert torch.equal(conv, own)


def test_kv_scatter_matches_the_reference_across_a_page_border() -> None:
    words, path = words_and_paths()
    case = make_attention_case(32, 200)
    kv = normal(2, *case.kv.shape, seed=1)
    own = kv.clone()
    kernel.kv_scatter(case.kv_ring, kv, case.page_table, words, path, SLOTS)
    reference.kv_scatter(case.kv_ring, own, case.page_table, words, path, SLOTS)
    assert torch.equal(kv, own)


def test_flip_moves_set_length_and_cycle_once() -> None:
    words, path = words_and_paths()
    kernel.flip(words, path, SLOTS)
    assert words[:, ACTIVE_SET].tolist() == [1, 0]
    assert words[:, LENGTH].tolist() == [67, 64]
    assert words[:, CYCLE].tolist() == [4, 4]
    again = words.clone()
    kernel.flip(words, path, SLOTS)
    assert torch.equal(words, again)


@pytest.mark.parametrize("word", [0, 1])
def test_a_path_of_another_epoch_or_cycle_changes_nothing(word: int) -> None:
    words, path = words_and_paths()
    path[:, word] += 1
    case = make_attention_case(32, 200)
    conv, kv = make_conv_case(32, channels=72).conv, normal(2, *case.kv.shape)
    before = words.clone(), conv.clone(), kv.clone()
    kernel.conv_gather(normal(2, 2, 32, 72), conv, words, path, SLOTS)
    kernel.kv_scatter(case.kv_ring, kv, case.page_table, words, path, SLOTS)
    kernel.flip(words, path, SLOTS)
    for old, new in zip(before, (words, conv, kv), strict=True):
        assert torch.equal(old, new)


@pytest.mark.parametrize(("features", "width"), [(70, 256), (100, 80), (64, 1024)])
@pytest.mark.parametrize("rows", [32, 96])
def test_fixed_tiles_match_the_library(features: int, width: int, rows: int) -> None:
    x, weight = normal(rows, width), normal(features, width, seed=5)
    found, expected = (torch.full((rows, features), torch.nan) for _ in range(2))
    linear_kernel.fixed_linear(x, weight, found)
    linear_reference.linear(x, weight, expected)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=2e-4)


def test_rows_of_fixed_tiles_do_not_see_each_other() -> None:
    weight = normal(96, 512)
    product = linear_kernel.fixed_linear
    assert linear_reference.row_invariance_check(weight, 64, product)


def test_the_row_check_finds_a_product_that_mixes_rows() -> None:
    def mixing(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor) -> None:
        linear_kernel.fixed_linear(x, weight, out)
        out[0] += 1e-6 * out.nan_to_num().sum()

    assert not linear_reference.row_invariance_check(normal(96, 512), 32, mixing)
