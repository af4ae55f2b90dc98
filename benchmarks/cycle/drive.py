"""Drive a stage group by messages: admit, prefill, cycles; and time what it captured."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from services.contract import pb
from services.contract.limits import PAGE
from services.contract.sampling import (
    Budget,
    Drafting,
    SamplingParams,
    budget_to_proto,
    drafting_to_proto,
    sampling_to_proto,
)
from services.runtime.graphs import Graphs
from services.runtime.local import LocalGroup

StageMessage = pb.stage_pb2.StageMessage


@dataclass
class Sequence:
    """What a gateway would remember of one sequence."""

    group: LocalGroup
    grid: int
    context: int
    slot: int = 0
    generation: int = 0
    root: int = 0
    length: int = 0
    cycles: int = 0
    emitted: list[int] = field(default_factory=list)
    previous: list[int] = field(default_factory=list)

    def start(self, prompt: list[int], shape: str, suffix: bool) -> None:
        """Admit the sequence and prefill its prompt."""
        self.generation += 1
        self.cycles, self.emitted, self.previous = 0, [], []
        budget = Budget(8192, context_length=self.context)
        admit = pb.stage_pb2.Admit(
            request_id=f"r{self.generation}",
            choice_index=0,
            slot=self.slot,
            generation=self.generation,
            prompt_length=len(prompt),
            sampling=sampling_to_proto(SamplingParams()),
            budget=budget_to_proto(budget),
            drafting=drafting_to_proto(Drafting(shape, "mtp", suffix, "")),
            wants_digest=False,
        )
        self._ask(StageMessage(admit=admit))
        last = len(prompt) - 1
        for start in range(0, max(last, 1), self.grid):
            self._ask(StageMessage(prefill=self._chunk(prompt, start)))
        self.root, self.length = prompt[-1], last

    def cycle(self) -> StageMessage:
        """Run one cycle and return its answer."""
        cycle = pb.stage_pb2.Cycle()
        cycle.sequences.add(
            slot=self.slot,
            generation=self.generation,
            cycle=self.cycles,
            committed_length=self.length,
            root_id=self.root,
            previous_emitted_ids=self.previous,
        )
        reply = self._ask(StageMessage(cycle=cycle))
        path = reply.result.sequences[0].path
        self.root, self.length = path.pending_id, path.committed_length
        self.previous = list(path.emitted_ids)
        self.emitted += self.previous
        self.cycles += 1
        return reply

    def release(self) -> None:
        """End the sequence."""
        release = pb.stage_pb2.Release(
            slot=self.slot, generation=self.generation, keep_suffix=False
        )
        self._ask(StageMessage(release=release))

    def _chunk(self, prompt: list[int], start: int) -> pb.stage_pb2.PrefillChunk:
        end = min(start + self.grid, len(prompt) - 1)
        return pb.stage_pb2.PrefillChunk(
            slot=self.slot,
            generation=self.generation,
            start=start,
            token_ids=prompt[start:end],
            next_token_id=prompt[end],
            is_last=end == len(prompt) - 1,
            new_pages=range(self.context // PAGE) if start == 0 else [],
        )

    def _ask(self, message: StageMessage) -> StageMessage:
        reply = self.group.send(message)
        if reply.WhichOneof("body") == "failure":
            raise RuntimeError(str(reply.failure))
        return reply


def random_prompt(length: int, vocab_size: int, seed: int = 1) -> list[int]:
    """Return made-up tokens."""
    rng = random.Random(seed)
    return [rng.randrange(vocab_size) for _ in range(length)]


def timed_cycles(sequence: Sequence, count: int, warm: int = 5) -> dict[str, Any]:
    """Run cycles; return the wall time of each and the host time of each stage, in ms."""
    walls, spans = [], []
    for index in range(warm + count):
        torch.cuda.synchronize()
        start = time.perf_counter()
        reply = sequence.cycle()
        torch.cuda.synchronize()
        if index >= warm:
            walls.append(1e3 * (time.perf_counter() - start))
            spans.append({span.stage: span.step_us / 1e3 for span in reply.spans})
    walls.sort()
    stages = {name: statistics.median(span.get(name, 0.0) for span in spans) for name in spans[0]}
    return {
        "step_ms": statistics.median(walls),
        "p10_ms": walls[len(walls) // 10],
        "p90_ms": walls[-1 - len(walls) // 10],
        "stage_host_ms": stages,
    }


def graph_ms(graphs: Graphs, repeats: int = 10) -> dict[str, float]:
    """Return the device time of one replay of each captured graph; its state is then spent."""
    found = {}
    for key, graph in graphs.items():
        found[str(key)] = _event_ms(graph.replay, repeats)
    return found


def publication_ms(sequence: Sequence, words: torch.Tensor, graphs: Graphs) -> float:
    """Run one more cycle, then return the device time of its publication, repeated in full.

    Args    words: the slots' state words; put back before each repeat, or the graph would leave
            at once.
    """
    before = words.clone()
    sequence.cycle()
    after = words.clone()
    publish = dict(graphs.items())["publish", 1]

    def again() -> None:
        words.copy_(before)
        publish.replay()

    found = _event_ms(again, 10) - _event_ms(lambda: words.copy_(before), 10)
    words.copy_(after)
    return found


def _event_ms(run: Callable[[], None], repeats: int) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    run()
    start.record()
    for _ in range(repeats):
        run()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / repeats
