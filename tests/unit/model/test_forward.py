"""The forward over rows: what a row may depend on, bit by bit, and where results land."""

import random
from pathlib import Path

import pytest
import torch

from services.contract.errors import InvalidField
from services.contract.topology import Tree
from tests.model_rig import GRID, ModelRig, tree_of
from tests.oracle.decoder import PlainDecoder
from tests.oracle.models import random_tensors, stored_names, tiny_config, write_folder
from tests.trees import random_parents

PROMPT = [7 * i % 150 for i in range(GRID + 9)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = tiny_config()
    tensors = stored_names(random_tensors(config, seed=3))
    return write_folder(tmp_path_factory.mktemp("forward"), config, tensors)


@pytest.fixture
def rig(folder: Path) -> ModelRig:
    rig = ModelRig(folder)
    rig.poison()
    rig.prefill(PROMPT)
    rig.prefill(PROMPT[:30], slot=1)
    return rig


def random_tree(seed: int, count: int = 28) -> Tree:
    choose = random.Random(seed)
    parents = random_parents(choose, count)
    return tree_of(list(parents), [choose.randrange(159) for _ in parents])


def test_tree_path_and_single_steps_give_the_same_bits(folder: Path, rig: ModelRig) -> None:
    plain = ModelRig(folder)
    plain.prefill(PROMPT)
    for cycle in range(3):
        tree = random_tree(cycle)
        rows = rig.decode({0: tree}, rig.cycle())[0]
        path = tree.path_to(tree.num_nodes - 1)
        for node in path:
            assert torch.equal(rows[node], plain.step(tree.token_ids[node]))
        rig.commit(list(path))
        assert torch.equal(rig.recurrent(), plain.recurrent())
        assert torch.equal(rig.conv(), plain.conv())
        assert torch.equal(rig.keys_values(0), plain.keys_values(0))


def test_a_sequence_keeps_its_bits_beside_another(rig: ModelRig) -> None:
    trees = {0: random_tree(1), 1: random_tree(2, 5)}
    alone = {slot: rig.decode({slot: tree})[0] for slot, tree in trees.items()}
    for order in ((0, 1), (1, 0)):
        rows = rig.decode({slot: trees[slot] for slot in order})
        for row, slot in zip(rows, order, strict=True):
            live = trees[slot].num_nodes
            assert torch.equal(row[:live], alone[slot][:live])


def test_decoding_changes_no_state(rig: ModelRig) -> None:
    names = ("recurrent", "conv", "kv", "words", "page_table")
    before = [getattr(rig.state, name).clone() for name in names]
    rig.decode({0: random_tree(4), 1: random_tree(5)})
    for name, tensor in zip(names, before, strict=True):
        same = torch.equal(getattr(rig.state, name).nan_to_num(7), tensor.nan_to_num(7))
        assert same, name


def test_hidden_rows_land_in_the_half_of_their_cycle(rig: ModelRig) -> None:
    tree = random_tree(6)
    rig.state.hidden_ring.fill_(torch.nan)
    logits = rig.decode({1: tree}, cycle=3)[0]
    ring = rig.state.hidden_ring
    assert ring[1, 0].isnan().all()
    assert ring[0].isnan().all()
    live = tree.num_nodes
    torch.testing.assert_close(ring[1, 1, :live] @ rig.weights.head.T, logits[:live])


def test_prompt_leaves_its_last_hidden_row_for_the_first_draft(folder: Path) -> None:
    rig = ModelRig(folder)
    hidden = rig.prefill(PROMPT)
    assert torch.equal(rig.state.hidden_ring[0, 1, 0], hidden[-1])


def test_one_free_row_agrees_within_rounding(rig: ModelRig) -> None:
    root = {0: tree_of([-1], [11])}
    free, fixed = rig.decode(root, width=1)[0, 0], rig.decode(root)[0, 0]
    torch.testing.assert_close(free, fixed, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("start", "count", "size"), [(1, 4, GRID), (0, 0, GRID), (0, 65, GRID), (0, 4, GRID - 1)]
)
def test_prefill_off_the_grid_is_refused(rig: ModelRig, start: int, count: int, size: int) -> None:
    with pytest.raises(InvalidField, match="the grid is 64"):
        rig.forward.prefill(torch.zeros(size, dtype=torch.int32), 0, start, count)


def test_sigmoid_output_gate_agrees_with_the_plain_decoder(tmp_path: Path) -> None:
    config = tiny_config(output_gate_type="sigmoid")
    folder = write_folder(tmp_path, config, stored_names(random_tensors(config)))
    rig, decoder = ModelRig(folder), PlainDecoder.from_folder(folder)
    wanted = decoder.logits(PROMPT[:20])
    got = torch.stack([rig.step(token) for token in PROMPT[:20]])
    torch.testing.assert_close(got, wanted, rtol=0, atol=1e-4)
