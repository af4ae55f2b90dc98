"""Our forward, the plain decoder and transformers agree on random and on trained weights."""

import random
from functools import cache
from pathlib import Path

import pytest
import torch

from services.contract.topology import Tree
from tests.model_rig import ModelRig, tree_of
from tests.numerics.library_model import LibraryModel, LibraryMtp
from tests.oracle.decoder import PlainDecoder
from tests.oracle.models import random_tensors, stored_names, tiny_config, write_folder
from tests.oracle.variants import container, fuse_gdn
from tests.trees import random_parents

EMBEDDED = Path(__file__).parents[2] / "models" / "lumo-tiny"
VARIANTS = ("untied", "tied", "container", "sharded", "fused")


class Zoo:
    """Make each variant's folder and library model once; a rig is fresh at each call."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.library = cache(lambda variant: LibraryModel(self.folder(variant)))

    def folder(self, variant: str) -> Path:
        """Return a folder of random weights in one of the layouts that files come in."""
        if variant == "embedded":
            return EMBEDDED
        folder = self.root / variant
        if folder.exists():
            return folder
        config = tiny_config(tie_word_embeddings=variant == "tied")
        tensors = random_tensors(config, seed=len(variant))
        if variant == "container":
            stored = stored_names(tensors, "model.language_model.")
            return write_folder(folder, container(config), stored)
        if variant == "fused":
            config, tensors = fuse_gdn(config, tensors)
        shards = 3 if variant == "sharded" else 1
        return write_folder(folder, config, stored_names(tensors), shards)

    def rig(self, variant: str) -> ModelRig:
        """Return a rig whose memory held NaN before."""
        rig = ModelRig(self.folder(variant))
        rig.poison()
        return rig


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Zoo:
    return Zoo(tmp_path_factory.mktemp("zoo"))


def tokens_of(rig: ModelRig, count: int, seed: int = 5) -> list[int]:
    """Return random token ids of the rig's vocabulary."""
    choose = random.Random(seed)
    return [choose.randrange(rig.config.vocab_size - 1) for _ in range(count)]


def assert_close(got: torch.Tensor, wanted: torch.Tensor, scale: torch.Tensor) -> None:
    """Compare within 1e-4 * max(1, rms of the logits): the stated bound."""
    bound = 1e-4 * max(1.0, float(scale.square().mean().sqrt()))
    error = float((got - wanted).abs().max())
    assert error <= bound, f"error {error:.2e}, bound {bound:.2e}"


@pytest.mark.parametrize("variant", [*VARIANTS, "embedded"])
def test_prefill_agrees_with_the_library(zoo: Zoo, variant: str) -> None:
    rig = zoo.rig(variant)
    ids = tokens_of(rig, 150)
    logits, hidden = zoo.library(variant).run(ids)
    ours = rig.prefill(ids)
    assert_close(ours, hidden, logits)
    assert_close(ours @ rig.weights.head.T, logits, logits)


@pytest.mark.parametrize("variant", [*VARIANTS, "embedded"])
def test_single_tokens_agree_with_the_library(zoo: Zoo, variant: str) -> None:
    rig = zoo.rig(variant)
    ids = tokens_of(rig, 40)
    logits, _ = zoo.library(variant).run(ids)
    assert_close(torch.stack([rig.step(token) for token in ids]), logits, logits)


@pytest.mark.parametrize("variant", ["untied", "embedded"])
def test_ragged_chains_after_a_prompt_agree_with_the_library(zoo: Zoo, variant: str) -> None:
    rig = zoo.rig(variant)
    ids = tokens_of(rig, 128)
    logits, _ = zoo.library(variant).run(ids)
    rig.prefill(ids[:71])
    start = 71
    for count in (1, 16, 2, 7, 15, 3, 13):
        chain = tree_of(list(range(-1, count - 1)), ids[start : start + count])
        rows = rig.decode({0: chain}, rig.cycle())[0]
        assert_close(rows[:count], logits[start : start + count], logits)
        rig.commit(list(range(count)))
        start += count
    assert start == 128


@pytest.mark.parametrize("variant", ["untied", "fused", "embedded"])
def test_states_and_pages_agree_with_the_library(zoo: Zoo, variant: str) -> None:
    rig, library = zoo.rig(variant), zoo.library(variant)
    ids = tokens_of(rig, 90)
    logits, _ = library.run(ids)
    rig.prefill(ids[:77])
    for token in ids[77:]:
        rig.step(token)
    assert_close(rig.recurrent(), library.recurrent(), logits)
    assert_close(rig.conv(), library.conv(), logits)
    for layer in range(rig.config.num_attention_layers):
        assert_close(rig.keys_values(layer), library.keys_values(layer), logits)


def test_every_path_of_four_random_trees_agrees_with_the_library(zoo: Zoo) -> None:
    rig, library = zoo.rig("untied"), zoo.library("untied")
    choose = random.Random(11)
    history = tokens_of(rig, 70)
    rig.prefill(history)
    for cycle in range(4):
        parents = random_parents(choose, choose.randrange(12, 33))
        tree = tree_of(list(parents), [choose.randrange(159) for _ in parents])
        rows = rig.decode({0: tree}, cycle)[0]
        for node in range(tree.num_nodes):
            logits, _ = library.run(history + _tokens(tree, node))
            assert_close(rows[node], logits[-1], logits)
        node = choose.randrange(tree.num_nodes)
        rig.commit(list(tree.path_to(node)))
        history += _tokens(tree, node)


def _tokens(tree: Tree, node: int) -> list[int]:
    return [tree.token_ids[index] for index in tree.path_to(node)]


@pytest.mark.parametrize("variant", ["untied", "tied", "container", "embedded"])
def test_mtp_passes_agree_with_the_library(zoo: Zoo, variant: str) -> None:
    rig, library = zoo.rig(variant), zoo.library(variant)
    ids = tokens_of(rig, 84)
    scale, hidden = library.run(ids[:-1])
    mtp = LibraryMtp(library)
    mtp.run(ids[1:71], hidden[:70])
    for start in (0, 64):
        rig.mtp_prefill(ids[1:71], hidden[:70], start, slot=1)
    logits = rig.mtp_first(ids[71:], hidden[70:], 70, slot=1)
    theirs, expected = mtp.run(ids[71:], hidden[70:])
    assert_close(rig.mtp.hidden(1)[0], theirs[-1], scale)
    assert_close(logits[0], expected[-1], scale)
    for _ in range(4):
        token = int(expected[-1].argmax())
        theirs, expected = mtp.run([token], theirs[-1:])
        rig.mtp_chained(token, logits)
        assert_close(logits[0], expected[-1], scale)


def test_mtp_pass_after_dropped_drafts_agrees_with_the_library(zoo: Zoo) -> None:
    rig, library = zoo.rig("untied"), zoo.library("untied")
    ids = tokens_of(rig, 40)
    scale, hidden = library.run(ids[:-1])
    rig.mtp_first(ids[1:11], hidden[:10], 0)
    for token in (3, 4, 5, 6):
        rig.mtp_chained(token, torch.empty(1, rig.config.vocab_size))
    rig.mtp_first(ids[11:14], hidden[10:13], 10)
    logits = rig.mtp_first(ids[14:30], hidden[13:29], 13)
    _, expected = LibraryMtp(library).run(ids[1:30], hidden[:29])
    assert_close(logits[0], expected[-1], scale)


@pytest.mark.parametrize("variant", ["tied", "untied", "embedded"])
def test_plain_decoder_agrees_with_the_library(zoo: Zoo, variant: str) -> None:
    decoder = PlainDecoder.from_folder(zoo.folder(variant))
    ids = [token % decoder.config["vocab_size"] for token in range(3, 600, 13)]
    logits, hidden = zoo.library(variant).run(ids)
    assert_close(decoder.logits(ids), logits, logits)
    mtp = LibraryMtp(zoo.library(variant))
    theirs, expected = mtp.run(ids[1:], hidden[:-1])
    for index, token in enumerate(ids[1:]):
        ours, row = decoder.mtp_step(token, decoder.hidden[index], index)
        assert_close(ours, theirs[index], logits)
        assert_close(row, expected[index], logits)


def test_norm_without_its_one_is_noticed(zoo: Zoo) -> None:
    rig = zoo.rig("untied")
    ids = tokens_of(rig, 30)
    logits, _ = zoo.library("untied").run(ids)
    rig.weights.blocks[0].input_norm.sub_(1)
    with pytest.raises(AssertionError, match="bound"):
        assert_close(rig.prefill(ids) @ rig.weights.head.T, logits, logits)
