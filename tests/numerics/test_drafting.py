"""N13: drafts are made from the right rows, and no draft changes a text."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from services.contract.limits import MAX_SLAB
from services.contract.sampling import Budget, Drafting, SamplingParams
from services.contract.tree import NodeSource
from services.drafter.draft import Marginals
from services.drafter.probes import remember_truth
from services.drafter.stage import DrafterStage
from services.kernels import select
from services.model.checkpoint import Checkpoint
from services.model.mtp import MtpHead
from services.model.weights import load_mtp
from services.runtime.local import LocalGroup
from tests.model_rig import GRID, ModelRig
from tests.ring import EPOCH, Ring

EMBEDDED = Path(__file__).parents[2] / "models" / "lumo-tiny"
CODE = """import os

def read_lines(path):
    with open(path) as handle:
        return handle.readlines()

def read_words(path):
    words = []
    for line in read_lines(path):
"""
GREEDY = SamplingParams()
SAMPLED = SamplingParams(temperature=0.8, top_k=20, min_p=0.05, presence_penalty=1.0, seed=5)
WIDE = "[-1,0,0,0,0,0,1,1,2,3,6,8]"


@cache
def prompt() -> list[int]:
    """Return the ids of a few lines of code."""
    tokenizer = Tokenizer.from_file(str(EMBEDDED / "tokenizer.json"))
    return list(tokenizer.encode(CODE).ids)


class DraftingRing(Ring):
    """The three real stages; what each MTP run returned is kept."""

    def __init__(self, slots: int = MAX_SLAB) -> None:
        super().__init__(EMBEDDED, slots)
        checkpoint = Checkpoint.open(EMBEDDED)
        weights = load_mtp(checkpoint, torch.float32)
        assert weights is not None
        shared = self.verifier._weights.embedding, self.verifier._weights.head
        kv, table = self.arenas.drafter["mtp_kv"][0], self.arenas.verifier["page_table"]
        head = MtpHead(self.model, weights, *shared, kv, table, self.config.prefill_grid)
        sizes = self.config.prefill_grid, self.model.vocab_size, self.config.context_length
        self.stage = DrafterStage(head, self.arenas, EPOCH, *sizes)
        stages = self.stage, self.verifier, self.committer
        self.group = LocalGroup(self.model, stages, EPOCH)
        self.drafted: list[Marginals] = []
        assert self.stage._passes is not None
        self.stage._passes.run = self._kept(self.stage._passes.run)

    def _kept(self, run: Callable[..., list[Marginals]]) -> Callable[..., list[Marginals]]:
        def kept(*args: object) -> list[Marginals]:
            self.drafted = run(*args)
            return self.drafted

        return kept

    def text(self, count: int, sampling: SamplingParams, shape: str, drafter: str) -> list[int]:
        """Return the first `count` tokens that follow the prompt."""
        budget = Budget(count, context_length=self.config.context_length)
        row = self.start(0, prompt(), sampling, budget, Drafting(shape, drafter, True, shape))
        while len(row.emitted) < count:
            self.cycle(0)
        self.release(0)
        return row.emitted


@cache
def ring() -> DraftingRing:
    """Return the one ring of this module."""
    return DraftingRing()


@cache
def plain(sampling: SamplingParams) -> list[int]:
    """Return what plain decoding gives."""
    return ring().text(48, sampling, "root", "mtp")


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize(
    ("shape", "drafter"),
    [
        ("chain-5", "mtp"),
        ("chain-15", "mtp"),
        ("hydra27", "mtp"),
        ("adaptive", "mtp"),
        (WIDE, "mtp"),
        ("hydra27", "random"),
        ("hydra27", "oracle:@truth"),
        ("hydra27", "adversarial:3:@truth"),
        ("adaptive", "adversarial:0:@truth"),
    ],
)
def test_no_draft_changes_a_text(shape: str, drafter: str, sampling: SamplingParams) -> None:
    expected = plain(sampling)
    remember_truth("truth", expected)
    assert ring().text(48, sampling, shape, drafter) == expected


def test_another_seed_changes_the_text() -> None:
    """Control: the comparison above tells texts apart."""
    other = SamplingParams(temperature=0.8, top_k=20, min_p=0.05, presence_penalty=1.0, seed=6)
    assert ring().text(48, other, "hydra27", "mtp") != plain(SAMPLED)


class Reference:
    """The MTP block over rows computed anew from the whole text."""

    def __init__(self) -> None:
        self.rig = ModelRig(EMBEDDED, slots=1)
        assert self.rig.mtp is not None
        self.head = self.rig.mtp

    def marginals(self, text: list[int], num_passes: int) -> Marginals:
        """Return what should be drafted after `text`, whose last token is the root."""
        for state in (self.rig.state.recurrent, self.rig.state.conv, self.rig.state.words):
            state.zero_()
        hidden, last = self.rig.prefill(text[:-1]), len(text) - 2
        for start in range(0, last, GRID):
            count = min(GRID, last - start)
            ids, rows = (
                torch.zeros(GRID, dtype=torch.int32),
                hidden.new_zeros(GRID, hidden.shape[1]),
            )
            ids[:count] = torch.tensor(text[start + 1 : start + count + 1])
            rows[:count] = hidden[start : start + count]
            self.head.prefill_chunk(ids, rows, 0, start, count)
        found = Marginals()
        logits = torch.zeros(1, self.rig.config.vocab_size)
        token, one = torch.tensor([text[-1]], dtype=torch.int32), torch.ones(1, dtype=torch.int32)
        position = torch.tensor([last], dtype=torch.int32)
        self.head.first_pass(token, hidden[last:].contiguous(), one - 1, position, one, logits)
        for _ in range(num_passes):
            best = logits.log_softmax(-1).topk(3)
            found.tokens.append(best.indices[0].tolist())
            found.logprobs.append(best.values[0].tolist())
            self.head.chained_pass(best.indices[:, 0].int(), one, logits)
        return found


def differs(found: Marginals, expected: Marginals) -> bool:
    """Return whether the proposals are not those expected, but for rounding."""
    for logprobs, wanted in zip(found.logprobs, expected.logprobs, strict=True):
        if any(abs(a - b) > 2e-3 for a, b in zip(logprobs, wanted, strict=True)):
            return True
    return found.spine() != expected.spine()


def test_every_cycle_drafts_as_if_the_text_were_read_anew() -> None:
    reference, each = Reference(), ring()
    row = each.start(0, prompt(), drafting=Drafting("hydra27", "mtp", False, ""))
    jumps = 0
    for _ in range(14):
        text = prompt() + row.emitted
        result = each.cycle(0)[0]
        expected = reference.marginals(text, 5)
        assert not differs(each.drafted[0], expected), f"cycle {row.cycle - 1}"
        # Control: drafts of the text before its last token are others.
        assert differs(each.drafted[0], reference.marginals(text[:-1], 5))
        sources = [result.tree.sources[node] for node in result.path.nodes]
        jumps += NodeSource.MTP_RUNNER_UP in sources
    each.release(0)
    # Accepted rows were not always the first ones of the tree.
    assert jumps


def test_slabs_draft_what_each_sequence_drafts_alone() -> None:
    each, shapes = ring(), ("hydra27", "chain-3", "adaptive", "hydra27")

    def trees(slots: tuple[int, ...]) -> dict[int, list[tuple[int, ...]]]:
        found: dict[int, list[tuple[int, ...]]] = {slot: [] for slot in slots}
        for slot in slots:
            wishes = Drafting(shapes[slot], "mtp", False, "")
            each.start(slot, prompt()[slot:], drafting=wishes)
        for _ in range(4):
            for slot, result in zip(slots, each.cycle(*slots), strict=True):
                found[slot].append(tuple(result.tree.token_ids))
        for slot in slots:
            each.release(slot)
        return found

    fixed = (0, 1, 3)
    together = trees(fixed)
    for slot in fixed:
        assert trees((slot,))[slot] == together[slot]


def test_hydra_accepts_more_than_a_chain_and_adaptive_more_than_hydra() -> None:
    def rate(shape: str) -> float:
        each = ring()
        drafting = Drafting(shape, "mtp", not shape.startswith("chain"), f"rate-{shape}")
        row = each.start(0, prompt(), drafting=drafting)
        while len(row.emitted) < 160:
            each.cycle(0)
        each.release(0)
        return len(row.emitted) / row.cycle - 1

    chain, hydra, adaptive = (rate(shape) for shape in ("chain-5", "hydra27", "adaptive"))
    print(f"accepted a cycle: chain-5 {chain:.2f}, hydra27 {hydra:.2f}, adaptive {adaptive:.2f}")
    assert hydra >= 1.4 * chain
    assert adaptive > hydra


@pytest.mark.parametrize("seed", range(4))
def test_selection_equals_sorting(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(250):
        logits = torch.randint(-3, 4, (3, 40), generator=generator).float()
        values, ids = torch.zeros(3, 5), torch.zeros(3, 5, dtype=torch.int32)
        select.top_ranked(logits, 5, values, ids)
        order = torch.sort(-logits, dim=1, stable=True).indices[:, :5]
        assert torch.equal(ids.long(), order)
        assert torch.equal(values, logits.gather(1, order))
        assert torch.equal(ids[:, 0].long(), logits.argmax(1))
