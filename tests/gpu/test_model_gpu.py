"""The forward and the MTP head on the device: close to fp32, exact by row, the same captured."""

import random
from pathlib import Path

import pytest
import torch

from services.contract.topology import Tree
from tests.model_rig import ModelRig, tree_of
from tests.oracle.decoder import PlainDecoder
from tests.trees import random_parents

pytestmark = pytest.mark.gpu
EMBEDDED = Path(__file__).parents[2] / "models" / "lumo-tiny"
PROMPT = [random.Random(4).randrange(8000) for _ in range(90)]


@pytest.fixture
def rig() -> ModelRig:
    rig = ModelRig(EMBEDDED, device="cuda")
    rig.poison()
    rig.prefill(PROMPT)
    rig.prefill(PROMPT[:40], slot=1)
    return rig


def random_tree(seed: int, count: int = 28) -> Tree:
    choose = random.Random(seed)
    parents = random_parents(choose, count)
    return tree_of(list(parents), [choose.randrange(8000) for _ in parents])


def test_logits_are_close_to_the_plain_decoder(rig: ModelRig) -> None:
    decoder = PlainDecoder.from_folder(EMBEDDED)
    wanted = decoder.logits([*PROMPT, 17])[-1]
    got = rig.decode({0: tree_of([-1], [17])})[0, 0].cpu()
    error = float((got - wanted).square().mean().sqrt() / wanted.square().mean().sqrt())
    assert error < 0.03
    assert int(got.argmax()) in wanted.topk(3).indices


def test_mtp_logits_are_close_to_the_plain_decoder(rig: ModelRig) -> None:
    decoder = PlainDecoder.from_folder(EMBEDDED)
    decoder.logits(PROMPT)
    rows = torch.stack(decoder.hidden).to("cuda", torch.bfloat16)
    rig.mtp_prefill(PROMPT[1:65], rows, 0)
    rig.mtp_prefill(PROMPT[1:81], rows[:80], 64)
    got = rig.mtp_first(PROMPT[81:], rows[80:89], 80)
    for index, token in enumerate(PROMPT[1:]):
        hidden, wanted = decoder.mtp_step(token, decoder.hidden[index], index)
    assert float((got[0].cpu() - wanted).square().mean().sqrt()) < 0.03 * float(wanted.std())
    rig.mtp_chained(23, got)
    _, wanted = decoder.mtp_step(23, hidden, 89)
    assert float((got[0].cpu() - wanted).square().mean().sqrt()) < 0.03 * float(wanted.std())


def test_tree_path_and_single_steps_give_the_same_bits(rig: ModelRig) -> None:
    plain = ModelRig(EMBEDDED, device="cuda")
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
        for layer in range(rig.config.num_attention_layers):
            assert torch.equal(rig.keys_values(layer), plain.keys_values(layer))


def test_a_sequence_keeps_its_bits_beside_another(rig: ModelRig) -> None:
    trees = {0: random_tree(1), 1: random_tree(2, 5)}
    rows = rig.decode(trees)
    for index, (slot, tree) in enumerate(trees.items()):
        alone = rig.decode({slot: tree})[0]
        assert torch.equal(rows[index, : tree.num_nodes], alone[: tree.num_nodes])


def test_captured_forward_follows_the_tables(rig: ModelRig) -> None:
    trees = [random_tree(seed, 20 + seed) for seed in range(3)]
    eager = [rig.decode({0: tree})[0, : tree.num_nodes].clone() for tree in trees]
    tables = rig.tables({0: trees[0]})
    logits = torch.zeros(32, rig.config.vocab_size, device="cuda")
    rig.forward.decode(tables, logits)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        rig.forward.decode(tables, logits)
    for tree, wanted in zip(trees, eager, strict=True):
        tables.block.copy_(rig.tables({0: tree}).block)
        graph.replay()
        assert torch.equal(logits[: tree.num_nodes], wanted)
