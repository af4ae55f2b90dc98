"""A drafter stage over small arenas, with a stand-in for the MTP block, and its messages."""

from collections.abc import Sequence

import torch

from services.contract import pb
from services.contract.limits import TABLE_WORDS
from services.contract.sampling import (
    Budget,
    Drafting,
    SamplingParams,
    budget_to_proto,
    drafting_to_proto,
    sampling_to_proto,
)
from services.drafter.stage import DrafterStage
from services.runtime.arena import Arena, BufferSpec
from services.runtime.buffers import Arenas

EPOCH, GRID, VOCAB, CONTEXT, SLOTS, WIDTH = 3, 64, 97, 512, 4, 8
StageMessage = pb.stage_pb2.StageMessage


def following(token: int) -> int:
    """Return the token that the stand-in block always drafts after `token`."""
    return (token * 5 + 1) % VOCAB


class FakeHead:
    """Draft a fixed function of the last token, and keep what it was given."""

    def __init__(self) -> None:
        self.prompts: list[tuple[list[int], int, int, int]] = []
        self.firsts: list[tuple[list[int], list[int], list[int], list[int], list[float]]] = []
        self.chained: list[list[int]] = []
        self._last: list[int] = []

    def prefill_chunk(
        self, token_ids: torch.Tensor, hidden: torch.Tensor, slot: int, start: int, count: int
    ) -> None:
        self.prompts.append((token_ids[:count].tolist(), slot, start, count))

    def first_pass(
        self,
        token_ids: torch.Tensor,
        hidden: torch.Tensor,
        slots: torch.Tensor,
        starts: torch.Tensor,
        counts: torch.Tensor,
        logits: torch.Tensor,
    ) -> None:
        width = token_ids.numel() // slots.numel()
        rows = [i * width + n - 1 for i, n in enumerate(counts.tolist())]
        inputs = (token_ids.tolist(), slots.tolist(), starts.tolist(), counts.tolist())
        self.firsts.append((*inputs, hidden[:, 0].tolist()))
        self._draft([inputs[0][row] for row in rows], logits)

    def chained_pass(
        self, token_ids: torch.Tensor, active: torch.Tensor, logits: torch.Tensor
    ) -> None:
        self.chained.append(active.tolist())
        self._draft(token_ids.tolist(), logits)

    def _draft(self, tokens: list[int], logits: torch.Tensor) -> None:
        logits.zero_()
        for row, token in zip(logits, tokens, strict=True):
            for rank in range(4):
                row[(following(token) + rank) % VOCAB] = 8.0 - rank


class DrafterRig:
    """Number and send messages to one stage."""

    def __init__(self, head: FakeHead | None = None, allow_probes: bool = True) -> None:
        self.head = head
        self.hidden_ring = (
            torch.arange(SLOTS * 2 * 32.0).view(SLOTS, 2, 32, 1).repeat(1, 1, 1, WIDTH)
        )
        specs = [
            BufferSpec("hidden_ring", (SLOTS, 2, 32, WIDTH), torch.float32),
            BufferSpec("prefill_hidden", (GRID, WIDTH), torch.float32),
            BufferSpec("output_counts", (SLOTS, VOCAB), torch.int32),
            BufferSpec("logit_bias", (SLOTS, VOCAB), torch.float32),
        ]
        tables = [BufferSpec("tree_tables", (SLOTS, TABLE_WORDS), torch.int32)]
        self.arenas = Arenas(
            Arena("verifier", specs), Arena("drafter", tables), Arena("committer", [])
        )
        self.arenas.verifier["hidden_ring"].copy_(self.hidden_ring)
        sizes = GRID, VOCAB, CONTEXT, allow_probes
        self.stage = DrafterStage(head, self.arenas, EPOCH, *sizes)
        self.number = 0

    def send(self, **body: object) -> StageMessage:
        """Send the next message."""
        self.number += 1
        message = StageMessage(epoch=EPOCH, sequence_number=self.number, **body)
        return self.stage.step(message)

    def admit(
        self,
        shape: str = "hydra27",
        prompt_length: int = 5,
        slot: int = 0,
        generation: int = 1,
        drafter: str = "mtp",
        tenant: str = "t",
        max_tokens: int = 200,
    ) -> StageMessage:
        """Send an Admit."""
        return self.send(
            admit=pb.stage_pb2.Admit(
                request_id=f"request-{slot}-{generation}",
                choice_index=0,
                slot=slot,
                generation=generation,
                prompt_length=prompt_length,
                sampling=sampling_to_proto(SamplingParams()),
                budget=budget_to_proto(Budget(max_tokens, context_length=CONTEXT)),
                drafting=drafting_to_proto(Drafting(shape, drafter, True, tenant)),
            )
        )

    def prefill(self, prompt: Sequence[int], slot: int = 0, generation: int = 1) -> StageMessage:
        """Send a whole prompt in chunks; return the last answer."""
        last = StageMessage()
        for start in range(0, max(len(prompt) - 1, 1), GRID):
            end = min(start + GRID, len(prompt) - 1)
            chunk = pb.stage_pb2.PrefillChunk(
                slot=slot,
                generation=generation,
                start=start,
                token_ids=prompt[start:end],
                next_token_id=prompt[end],
                is_last=end == len(prompt) - 1,
            )
            last = self.send(prefill=chunk)
        return last

    def start(self, prompt: Sequence[int], shape: str = "hydra27", **admit: object) -> None:
        """Admit and prefill one sequence."""
        self.admit(shape, len(prompt), **admit)
        names = {name: admit[name] for name in ("slot", "generation") if name in admit}
        self.prefill(prompt, **names)

    def cycle(self, *parts: pb.stage_pb2.CycleSequence) -> StageMessage:
        """Send a Cycle."""
        return self.send(cycle=pb.stage_pb2.Cycle(sequences=parts))


def part(
    root: int,
    length: int,
    cycle: int = 0,
    emitted: Sequence[int] = (),
    slot: int = 0,
    generation: int = 1,
    forced: Sequence[int] = (),
) -> pb.stage_pb2.CycleSequence:
    """Return one sequence's part of a cycle."""
    return pb.stage_pb2.CycleSequence(
        slot=slot,
        generation=generation,
        cycle=cycle,
        committed_length=length,
        root_id=root,
        previous_emitted_ids=emitted,
        forced_ids=forced,
    )
