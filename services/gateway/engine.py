"""One engine in this process: stage group, tokenizer, template, defaults, scheduler."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from services.contract.config import EngineConfig
from services.gateway.chat import ChatTemplate
from services.gateway.clock import CycleClock
from services.gateway.defaults import Defaults
from services.gateway.front import STAGES, Door, Traits
from services.gateway.local_group import build_local_group
from services.gateway.requests import Delta, Event, Finished, GenerationRequest
from services.gateway.router import Router
from services.gateway.scheduler import Scheduler
from services.gateway.text import TextCodec
from services.model.checkpoint import Checkpoint
from services.model.inspect import CheckpointFacts, describe
from services.runtime.devices import check_device
from services.runtime.group import StageGroup
from services.runtime.host_memory import check_start
from services.runtime.owners import shared_sizes

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Generation:
    """One finished sequence with everything its cycles gave."""

    finished: Finished
    deltas: tuple[Delta, ...]
    seed: int


class Engine:
    """Everything needed to turn text into tokens and tokens into text.

    Args    others: further groups, which a server uses; `generate` uses the first by default.
    """

    def __init__(
        self, config: EngineConfig, group: StageGroup, others: Iterable[StageGroup] = ()
    ) -> None:
        folder = Path(config.model)
        self.config = config
        self.group = group
        self.groups = (group, *others)
        self.codec = TextCodec.load(folder)
        self.template = ChatTemplate.load(folder, self.codec)
        self.defaults = Defaults.load(folder, group.eos_ids, config.context_length)
        self.schedulers = tuple(Scheduler(each, self.codec, config) for each in self.groups)
        self.scheduler = self.schedulers[0]
        self.traits = Traits("lumotree", STAGES, len(self.groups) * config.total_pages)
        self._ids = itertools.count()

    @classmethod
    def open(cls, config: EngineConfig, progress: Progress | None = None) -> Engine:
        """Load a checkpoint and build the three stages where `config.runtime` says.

        Raises  PreconditionError where this host lacks the device, or room on it.
        """
        if config.runtime == "inproc":
            check_device(config.device)
        if config.runtime == "inproc" or "RAY_ADDRESS" not in os.environ:
            sizes = shared_sizes(Checkpoint.open(Path(config.model)).config, config)
            check_start({name: config.groups * size for name, size in sizes.items()}, config.device)
        if config.runtime == "ray":
            from services.gateway.ray_group import build_ray_groups

            first, *others = build_ray_groups(config, progress)
            return cls(config, first, others)
        return cls(config, build_local_group(config, progress))

    def open_door(self) -> Door:
        """Return the clock that drives the group, or a router over several."""
        clocks = [CycleClock(scheduler) for scheduler in self.schedulers]
        return clocks[0] if len(clocks) == 1 else Router(clocks)

    def describe(self) -> CheckpointFacts:
        """Return what the checkpoint folder holds."""
        return describe(Path(self.config.model))

    def close(self) -> None:
        """Free the stages' memory."""
        for group in self.groups:
            group.close()

    def generate(
        self,
        request: GenerationRequest,
        watch: Callable[[Event], None] | None = None,
        group: int = 0,
    ) -> Generation:
        """Run one sequence to its end in a group; `watch` sees every event as it happens.

        Raises  the ContractError that ended the sequence, if one did.
        """
        return self.generate_all([request], watch, group)[0]

    def generate_all(
        self,
        requests: Iterable[GenerationRequest],
        watch: Callable[[Event], None] | None = None,
        group: int = 0,
    ) -> list[Generation]:
        """Run sequences side by side in a group; results are in the order of the requests."""
        collected: list[list[Event]] = []
        seeds = []
        for request in requests:
            events: list[Event] = []
            collected.append(events)
            seeds.append(request.sampling.seed)
            self.schedulers[group].submit(replace(request, sink=_sink(events, watch)))
        while self.schedulers[group].step():
            pass
        return [_gather(events, seed) for events, seed in zip(collected, seeds, strict=True)]

    def next_request_id(self) -> str:
        """Return an id no other request of this engine has."""
        return f"local-{next(self._ids)}"


def _sink(events: list[Event], watch: Callable[[Event], None] | None) -> Callable[[Event], None]:
    def take(event: Event) -> None:
        events.append(event)
        if watch is not None:
            watch(event)

    return take


def _gather(events: list[Event], seed: int) -> Generation:
    finished = next(event for event in events if isinstance(event, Finished))
    if finished.error is not None:
        raise finished.error
    deltas = tuple(event for event in events if isinstance(event, Delta))
    return Generation(finished, deltas, seed)
