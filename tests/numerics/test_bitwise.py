"""N1 to N5 at toy size: a tree cycle leaves the bits that plain decoding leaves."""

import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from services.contract.sampling import Budget, SamplingParams
from services.contract.tree import Tree, tree_from_proto
from services.kernels.state_words import ACTIVE_SET
from services.kernels.tree_tables import build_tables
from services.runtime.stage import StageMessage
from tests.drafts import KnownDraft, plain_run
from tests.model_rig import ModelRig
from tests.ring import EPOCH, Ring
from tests.trees import random_tree

SAMPLED = SamplingParams(
    temperature=1.3, top_k=40, min_p=0.02, presence_penalty=0.7, repetition_penalty=1.1, seed=9
)
RINGS = ("raw_ring", "mixed_ring", "ab_ring", "kv_ring", "logits")


def prompt_of(rng: random.Random, length: int) -> list[int]:
    return [rng.randrange(150) for _ in range(length)]


def run_tree(ring: Ring, digests: dict[int, bytes], slot: int, cycles: int) -> int:
    """Run tree cycles of one slot; return how many left other bits than plain decoding."""
    wrong = 0
    for _ in range(cycles):
        ring.cycle(slot)
        wrong += ring.digest(slot) != digests[ring.rows[slot].length]
    return wrong


def compare(tiny: Path, seed: int, cycles: int, sampling: SamplingParams) -> None:
    rng = random.Random(seed)
    prompt = prompt_of(rng, rng.choice((1, 2, 33, 64, 65, 97)))
    budget = Budget(512, context_length=1024)
    plain, tree = Ring(tiny, context=1024), Ring(tiny, context=1024, poison=True)
    digests = plain_run(plain, prompt, 8 * cycles, sampling=sampling, budget=budget)
    tree.start(0, prompt, sampling, budget)
    tree.drafter.draft = KnownDraft(tree, {0: plain.rows[0].emitted}, rng)
    done = 0
    while done < cycles and len(tree.rows[0].emitted) < 8 * cycles - 16:
        assert run_tree(tree, digests, 0, 1) == 0, f"cycle {done} of seed {seed}"
        done += 1
    emitted = tree.rows[0].emitted
    assert emitted == plain.rows[0].emitted[: len(emitted)]
    accepted = len(emitted) - done
    assert accepted > done, "the schedule must accept more than one draft a cycle"


@pytest.mark.parametrize("sampling", [SamplingParams(), SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("index", range(2))
def test_tree_cycles_leave_plain_bits(
    tiny: Path, seed: int, index: int, sampling: SamplingParams
) -> None:
    compare(tiny, seed + index, 16, sampling)


@pytest.mark.slow
@pytest.mark.parametrize("index", range(20))
def test_twenty_seeds_of_fifty_cycles_leave_plain_bits(tiny: Path, seed: int, index: int) -> None:
    compare(tiny, seed + index, 50, SAMPLED if index % 2 else SamplingParams())


def swap_parents(ring: Ring) -> None:
    """Give the kernels the tables of a tree in which nodes 2 and 3 have other parents."""
    honest = ring.drafter.cycle

    def cycle(message: StageMessage) -> StageMessage:
        message = honest(message)
        part = message.cycle.sequences[0]
        tree, _ = tree_from_proto(part.tree, ring.model.vocab_size, EPOCH)
        parents = (*tree.parents[:2], 0, 1, *tree.parents[4:])
        wrong = replace(tree, parents=parents)
        where = part.committed_length, part.slot, part.cycle
        build_tables(wrong, *where, ring.arenas.drafter["tree_tables"][part.slot].numpy())
        return message

    ring.drafter.cycle = cycle


def chain_ring(tiny: Path, seed: int) -> tuple[Ring, dict[int, bytes]]:
    rng = random.Random(seed)
    prompt = prompt_of(rng, 20)
    plain, tree = Ring(tiny), Ring(tiny)
    digests = plain_run(plain, prompt, 20)
    tree.start(0, prompt)
    tree.drafter.draft = KnownDraft(tree, {0: plain.rows[0].emitted}, rng, ("chain",))
    return tree, digests


def test_swapped_parents_change_the_bits(
    tiny: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.verifier.stage.refuse_other_tables", lambda tables, trees: None)
    honest, _ = chain_ring(tiny, seed)
    swapped, _ = chain_ring(tiny, seed)
    swap_parents(swapped)
    for ring in (honest, swapped):
        ring.cycle(0)
    rows = zip(
        honest.arenas.verifier["logits"][0], swapped.arenas.verifier["logits"][0], strict=True
    )
    equal = [torch.equal(a, b) for a, b in rows]
    assert equal[:5] == [True, True, False, False, False]


def test_tables_of_another_tree_are_refused(tiny: Path, seed: int) -> None:
    tree, digests = chain_ring(tiny, seed)
    swap_parents(tree)
    reply = tree.group.send(tree.message(0))
    assert "not those of the descriptor" in reply.failure.message
    assert tree.digest(0) == digests[tree.rows[0].length]


def save(rig: ModelRig) -> dict[str, torch.Tensor]:
    names = ("recurrent", "conv", "kv", "words")
    return {name: getattr(rig.state, name).clone() for name in names}


def restore(rig: ModelRig, saved: dict[str, torch.Tensor]) -> None:
    for name, tensor in saved.items():
        getattr(rig.state, name).copy_(tensor)


def check_every_node(rig: ModelRig, tree: Tree, logits: torch.Tensor) -> None:
    """Decode each root path plainly, from the state its parent left, and compare every bit."""
    left = {-1: save(rig)}
    for node, parent in enumerate(tree.parents):
        restore(rig, left[parent])
        plain = rig.step(tree.token_ids[node])
        assert torch.equal(plain, logits[node]), f"node {node} of {tree.parents}"
        left[node] = save(rig)
    restore(rig, left[-1])


def check_random_trees(tiny: Path, seed: int, count: int) -> None:
    rng = random.Random(seed)
    rig = ModelRig(tiny, slots=1, context=128)
    rig.poison()
    rig.prefill(prompt_of(rng, 61))
    for _ in range(count):
        tree = random_tree(rng, 150)
        logits = rig.decode({0: tree}, rig.cycle())[0]
        check_every_node(rig, tree, logits)
        if rig.length() < 90:
            rig.decode({0: tree}, rig.cycle())
            rig.commit(list(tree.path_to(rng.randrange(tree.num_nodes))))


def test_every_node_has_the_logits_of_its_path_alone(tiny: Path, seed: int) -> None:
    check_random_trees(tiny, seed, 6)


@pytest.mark.slow
def test_every_node_of_two_hundred_trees_has_the_logits_of_its_path(tiny: Path, seed: int) -> None:
    check_random_trees(tiny, seed, 200)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_a_sequence_keeps_its_bits_in_a_batch(tiny: Path, seed: int, count: int) -> None:
    rng = random.Random(seed)
    prompts = [prompt_of(rng, rng.randint(1, 80)) for _ in range(count)]
    digests, truth = [], {}
    for slot, prompt in enumerate(prompts):
        plain = Ring(tiny)
        digests.append(plain_run(plain, prompt, 140))
        truth[slot] = plain.rows[0].emitted
    ring = Ring(tiny, slots=4, poison=True)
    for slot, prompt in enumerate(prompts):
        ring.start(slot, prompt)
    ring.drafter.draft = KnownDraft(ring, truth, rng)
    for cycle in range(8):
        order = list(range(count))
        rng.shuffle(order)
        ring.cycle(*order)
        for slot in order:
            assert ring.digest(slot) == digests[slot][ring.rows[slot].length], f"cycle {cycle}"
    for slot in range(1, count):
        ring.release(slot)
    ring.cycle(0)
    assert ring.digest(0) == digests[0][ring.rows[0].length]


def test_neighbour_full_of_nan_changes_no_bit(tiny: Path, seed: int) -> None:
    rng = random.Random(seed)
    prompt = prompt_of(rng, 40)
    plain, ring = Ring(tiny), Ring(tiny)
    digests = plain_run(plain, prompt, 100)
    ring.start(0, prompt)
    ring.start(1, prompt)
    ring.arenas.verifier["recurrent"][1].fill_(torch.nan)
    ring.drafter.draft = KnownDraft(ring, dict.fromkeys((0, 1), plain.rows[0].emitted), rng)
    for _ in range(6):
        ring.cycle(1, 0)
        assert ring.digest(0) == digests[ring.rows[0].length]
    assert ring.digest(1) != digests.get(ring.rows[1].length)


def poison_everything_unused(ring: Ring) -> None:
    """Fill with NaN what no live row may read: rings, the other set, free pages and rows."""
    state = ring.arenas.verifier
    for name in RINGS:
        state[name].fill_(torch.nan)
    active = int(state["words"][0, ACTIVE_SET])
    for name in ("recurrent", "conv"):
        state[name][0, 1 - active].fill_(torch.nan)
        state[name][1].fill_(torch.nan)
    full, rest = divmod(ring.rows[0].length, 64)
    state["kv"][:, full, :, :, rest:].fill_(torch.nan)
    state["kv"][:, full + 1 :].fill_(torch.nan)


def test_poison_changes_no_bit(tiny: Path, seed: int) -> None:
    rng = random.Random(seed)
    prompt = prompt_of(rng, 30)
    plain, ring = Ring(tiny), Ring(tiny)
    digests = plain_run(plain, prompt, 160)
    ring.start(0, prompt)
    ring.drafter.draft = KnownDraft(ring, {0: plain.rows[0].emitted}, rng)
    for _ in range(12):
        poison_everything_unused(ring)
        assert run_tree(ring, digests, 0, 1) == 0
    assert ring.rows[0].emitted == plain.rows[0].emitted[: len(ring.rows[0].emitted)]


@pytest.mark.parametrize("name", ["recurrent", "conv"])
def test_poison_in_the_live_state_shows(tiny: Path, seed: int, name: str) -> None:
    rng = random.Random(seed)
    prompt = prompt_of(rng, 30)
    plain, ring = Ring(tiny), Ring(tiny)
    digests = plain_run(plain, prompt, 40)
    ring.start(0, prompt)
    active = int(ring.arenas.verifier["words"][0, ACTIVE_SET])
    ring.arenas.verifier[name][0, active].view(-1)[0] = torch.nan
    assert run_tree(ring, digests, 0, 1) == 1
