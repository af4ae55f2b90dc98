"""Adaptive trees stay in bounds, are the best of their size, and beat the fixed tree."""

import random
from collections.abc import Sequence

import pytest

from services.contract.limits import MAX_DEPTH
from services.contract.tree import NodeSource
from services.drafter.adaptive import Growth, Spine, learn
from services.drafter.calibration import NONE, Calibration, mtp_cell, suffix_cell
from services.drafter.draft import Draft, Marginals, trimmed
from services.drafter.fill import fill_shape
from services.drafter.lookup import RequestText
from services.drafter.shape import MAX_CANDIDATES, parse_shape

VOCAB = 4000


class Source:
    """A made-up target and its MTP head, whose probabilities are true.

    Some passes are sure, some are not; some stretches copy an earlier one.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.text = [self.rng.randrange(VOCAB) for _ in range(300)]

    def marginals(self, truth: Sequence[int], num_passes: int) -> Marginals:
        """Return passes whose rank r is right with its stated probability."""
        found = Marginals()
        for depth in range(num_passes):
            sure = self.rng.random() < 0.5
            chances = (0.92, 0.04, 0.02, 0.01) if sure else (0.4, 0.25, 0.15, 0.1)
            tokens = [self.rng.randrange(VOCAB) for _ in chances]
            draw, below = self.rng.random(), 0.0
            for rank, chance in enumerate(chances):
                if below <= draw < below + chance:
                    tokens[rank] = truth[depth]
                below += chance
            found.tokens.append(tokens)
            found.logprobs.append([log_of(chance) for chance in chances])
        return found

    def extend(self, length: int) -> None:
        """Append fresh tokens or a copy of old ones."""
        while length > 0:
            run = self.rng.randint(5, 40)
            if self.rng.random() < 0.5:
                start = self.rng.randrange(len(self.text) - 40)
                self.text += self.text[start : start + run]
            else:
                self.text += [self.rng.randrange(VOCAB) for _ in range(run)]
            length -= run


def log_of(chance: float) -> float:
    """Return the natural logarithm."""
    from math import log

    return log(chance)


def accepted(draft: Draft, truth: Sequence[int]) -> int:
    """Return how many drafts the target would accept."""
    node, count = 0, 0
    for token in truth:
        matching = [child for child in draft.children(node) if draft.tokens[child] == token]
        if not matching:
            break
        node, count = matching[0], count + 1
    return count


def mean_accepted(shape_name: str, seed: int, cycles: int = 250) -> float:
    """Return accepted drafts a cycle of a shape on a made-up target."""
    source, text, calibration = Source(seed), RequestText(1 << 14), Calibration()
    source.extend(cycles * 17)
    position, shape = 300, parse_shape(shape_name)
    text.start("t", None)
    text.add_prompt(source.text[:position])
    total = 0
    for _ in range(cycles):
        truth = source.text[position : position + 16]
        root, marginals = source.text[position - 1], source.marginals(truth, 5)
        if shape.is_adaptive:
            draft = Growth(text, marginals, calibration).run(root)
        else:
            draft = fill_shape(shape, root, marginals, text)
        assert draft.num_nodes <= 1 + MAX_CANDIDATES
        count = accepted(draft, truth)
        if shape.is_adaptive:
            learn(draft, truth[: count + 1], calibration)
        text.add_emitted(truth[: count + 1])
        position += count + 1
        total += count
    return total / cycles


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_adaptive_accepts_more_than_hydra_and_hydra_more_than_a_chain(seed: int) -> None:
    chain, hydra, adaptive = (mean_accepted(s, seed) for s in ("chain-5", "hydra27", "adaptive"))
    print(f"accepted a cycle: chain-5 {chain:.2f}, hydra27 {hydra:.2f}, adaptive {adaptive:.2f}")
    assert adaptive > hydra > chain


@pytest.mark.parametrize("seed", range(5))
def test_bounds_hold_for_any_proposals(seed: int) -> None:
    rng = random.Random(seed)
    text, calibration = RequestText(4096), Calibration()
    text.start("t", None)
    text.add_prompt([rng.randrange(3) for _ in range(400)])
    for _ in range(40):
        passes = rng.randrange(9)
        marginals = Marginals(
            [rng.sample(range(3), 3) for _ in range(passes)],
            [sorted((-20 * rng.random() for _ in range(3)), reverse=True) for _ in range(passes)],
        )
        draft = Growth(text, marginals, calibration).run(1)
        tree = draft.tree()
        assert tree.num_nodes <= 1 + MAX_CANDIDATES
        assert max(tree.depths) <= MAX_DEPTH
        siblings = list(zip(tree.parents, tree.token_ids, strict=True))
        assert len(set(siblings)) == len(siblings)
        emitted = [rng.randrange(3) for _ in range(3)]
        learn(draft, emitted, calibration)
        text.add_emitted(emitted)


def test_the_tree_is_the_best_of_its_size() -> None:
    """Compare with the most likely nodes of the whole product tree of three passes."""
    chances = [(0.6, 0.25, 0.1), (0.5, 0.3, 0.1), (0.7, 0.1, 0.05)]
    marginals = Marginals(
        [[10 * depth + rank for rank in range(3)] for depth in range(3)],
        [[log_of(chance) for chance in row] for row in chances],
    )
    calibration = Calibration()
    draft = Growth(None, marginals, calibration).run(0, max_candidates=6)
    reach, expected = 1.0, []
    for depth, row in enumerate(chances):
        found = [calibration.probability(mtp_cell(r, log_of(c)), NONE) for r, c in enumerate(row)]
        expected += [(reach * chance, 10 * depth + rank) for rank, chance in enumerate(found)]
        reach *= found[0]
    best = {token for _, token in sorted(expected, reverse=True)[:6]}
    assert set(draft.tokens[1:]) == best


def test_costly_rows_make_smaller_trees_of_the_better_nodes() -> None:
    rng = random.Random(8)
    marginals = Marginals(
        [[rng.randrange(VOCAB) for _ in range(4)] for _ in range(5)],
        [[log_of(chance) for chance in (0.6, 0.2, 0.1, 0.05)]] * 5,
    )
    full = Growth(None, marginals, Calibration()).run(0)
    sizes = [full.num_nodes]
    for row_cost in (0.005, 0.02, 0.1):
        draft = Growth(None, marginals, Calibration(), row_cost).run(0)
        assert draft.tokens == full.tokens[: draft.num_nodes]
        sizes.append(draft.num_nodes)
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < sizes[0] / 2


def test_without_proposals_the_root_stays_alone() -> None:
    assert Growth(None, Marginals(), Calibration()).run(4).tokens == [4]


def test_calibration_moves_to_the_counted_share() -> None:
    calibration, cell = Calibration(), mtp_cell(0, log_of(0.9))
    before = calibration.probability(cell, NONE)
    for index in range(400):
        calibration.learn(cell, NONE, index % 4 == 0)
    assert before > 0.8
    assert abs(calibration.probability(cell, NONE) - 0.25) < 0.03
    assert calibration.probability(mtp_cell(1, log_of(0.9)), NONE) > 0.8


def test_two_sources_that_agree_are_trusted_more() -> None:
    calibration = Calibration()
    mtp, copy = mtp_cell(0, log_of(0.6)), suffix_cell(4, 2, 2)
    both = calibration.probability(mtp, copy)
    assert both > max(calibration.probability(mtp, NONE), calibration.probability(NONE, copy))


def test_calibration_depends_on_history_alone() -> None:
    rng = random.Random(4)
    history = [
        (
            mtp_cell(rng.randrange(3), -5 * rng.random()),
            suffix_cell(rng.randint(1, 20), 1, 2),
            rng.random() < 0.5,
        )
        for _ in range(500)
    ]
    first, second = Calibration(), Calibration()
    for calibration in (first, second):
        for entry in history:
            calibration.learn(*entry)
    for mtp, copy, _ in history:
        assert first.probability(mtp, copy) == second.probability(mtp, copy)


def test_passes_end_where_the_text_is_being_copied() -> None:
    text = RequestText(4096)
    text.start("t", None)
    phrase = list(range(100, 130))
    text.add_prompt([*phrase, 1, *phrase, 2, *phrase[:20]])
    calibration = Calibration()
    for _ in range(200):
        calibration.learn(NONE, suffix_cell(20, 2, 2), True)
        calibration.learn(NONE, suffix_cell(9, 2, 2), True)
    assert not Spine(text, calibration).take(phrase[20], log_of(0.95))
    # Control: where nothing is copied, the same pass is worth it.
    assert Spine(None, calibration).take(phrase[20], log_of(0.95))


def test_passes_end_where_the_spine_is_unlikely() -> None:
    spine = Spine(None, Calibration())
    answers = [spine.take(7, log_of(0.3)) for _ in range(6)]
    assert answers == sorted(answers, reverse=True)
    assert answers[0] and not answers[-1]


def test_trimming_keeps_a_whole_tree() -> None:
    draft = fill_shape(
        parse_shape("hydra27"), 1, Marginals([[1, 2, 3]] * 5, [[-0.1, -3.0, -4.0]] * 5), None
    )
    cut = trimmed(draft, 2)
    assert max(cut.depths) == 2
    assert cut.tree().num_nodes == sum(depth <= 2 for depth in draft.depths)
    assert trimmed(draft, 0).sources == [NodeSource.ROOT]
