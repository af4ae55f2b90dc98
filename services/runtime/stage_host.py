"""The control side of a stage in a process of its own: load, export, wire, probe, end."""

from __future__ import annotations

import gc
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import torch

from services.contract import pb
from services.contract.config import EngineConfig
from services.contract.errors import PreconditionError
from services.contract.wire import parse
from services.kernels.threads import use_threads
from services.model.checkpoint import Checkpoint
from services.model.config import ModelConfig
from services.model.weights import TargetWeights, view_target
from services.runtime import failpoints, ipc
from services.runtime.arena import Arena
from services.runtime.buffers import Arenas, model_dtype
from services.runtime.ipc import probe
from services.runtime.ipc.events import EdgeEvents
from services.runtime.owners import WEIGHTS, arena_specs, new_block, weights_bytes, weights_map
from services.runtime.sockets import RING, Listener, connect, core_of
from services.runtime.stage import RingStage
from services.runtime.stage_loop import LoopCounts, StageLoop

MAP_BYTES = 1 << 20
_UPSTREAM = {"drafter": "committer", "verifier": "drafter", "committer": "verifier"}
CONNECT_SECONDS = 10.0


class Closable(Protocol):
    """An end of the order line."""

    def close(self) -> None:
        """Close it."""
        ...


class WiredStage(RingStage, Protocol):
    """A stage that outlives a wiring."""

    def rewire(self, epoch: int) -> None:
        """Forget every sequence and take messages of a new wiring."""
        ...


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a stage's process holds for its whole life."""

    config: EngineConfig
    model: ModelConfig
    checkpoint: Checkpoint
    paths: Mapping[str, str]
    arena: Arena
    events: EdgeEvents


@dataclass(frozen=True, slots=True)
class Wiring:
    """What belongs to one epoch: where the upstream connects, its events, the order line."""

    epoch: int
    inbox: Listener
    upstream: EdgeEvents
    orders: str


class StageHost(ABC):
    """Serve one stage by control calls; its cycles run on the loop's thread.

    Every call but `status` and `stats` belongs to one caller, which makes one at a time.
    """

    name: ClassVar[str]

    def __init__(self) -> None:
        self._loaded: Loaded | None = None
        self._stage: WiredStage | None = None
        self._handles: dict[str, bytes] = {}
        self._arenas: Arenas | None = None
        self._weights: TargetWeights | None = None
        self._order_end: Closable | None = None
        self._wiring: Wiring | None = None
        self._loop: StageLoop | None = None

    def load(self, config: EngineConfig, paths: Mapping[str, str]) -> bool:
        """Allocate this owner's memory and read its weights; say whether that was needed.

        Args    paths: owner -> shared-memory file, in mode cpu_shm.
        """
        if self._loaded is not None:
            return False
        use_threads(config.threads)
        checkpoint = Checkpoint.open(Path(config.model))
        specs = arena_specs(self.name, checkpoint.config, config)
        block = new_block(specs, config.device, paths.get(self.name, ""))
        arena = Arena(self.name, specs, storage=block)
        events = EdgeEvents.made_on(config.device)
        self._loaded = Loaded(config, checkpoint.config, checkpoint, paths, arena, events)
        self.load_weights(self._loaded)
        return True

    def export(self, importer: str, epoch: int, mode: str) -> list[bytes]:
        """Return the maps of everything this owner lends to one importer for an epoch."""
        del importer  # each call makes handles of its own: one export an importer
        loaded = self._held()
        maps = [self._map(loaded.arena, epoch, mode)]
        weights = self.lent_weights()
        if weights is not None:
            handle = ipc.export_block(weights, mode, loaded.paths.get(WEIGHTS, ""))
            maps.append(weights_map(weights, epoch, mode, handle))
        return [item.SerializeToString() for item in maps]

    def wire(self, epoch: int, maps: list[bytes], inbox: str, orders: str = "") -> None:
        """Open the other owners' memory and listen for the upstream.

        Args    orders: where publications are ordered, if the verifier launches them.
        Raises  UnavailableError where an owner is gone or the old loop hangs.
        """
        loaded = self._held()
        self._unwire()
        lent = {item.owner: item for item in (_read_map(data) for data in maps)}
        handles = {owner: item.handle for owner, item in lent.items()}
        if self._arenas is None or handles != self._handles or loaded.config.device != "cpu":
            self._drop_lent()
            arenas = {owner: self._open(loaded, lent, owner) for owner in RING}
            self._arenas = Arenas(arenas["verifier"], arenas["drafter"], arenas["committer"])
            self._weights = self._open_weights(loaded, lent)
            self._handles = handles
        handles_of_events = list(lent[_UPSTREAM[self.name]].event_handles)
        upstream = EdgeEvents.opened(handles_of_events, loaded.arena.storage.device)
        self._wiring = Wiring(epoch, Listener(inbox), upstream, orders)

    def prepare(self) -> None:
        """Build the stage and warm it up, or have it forget the last wiring."""
        loaded, wiring = self._held(), self._wired()
        if self._arenas is None or self._weights is None:
            raise PreconditionError("NOT_WIRED", "wire the stage first", "wire")
        if self._stage is None:
            self._stage = self.build(loaded, self._arenas, self._weights, wiring.epoch)
            self._stage.warmup()
        else:
            self._stage.rewire(wiring.epoch)
        if wiring.orders:
            end = self.take_orders(loaded, self._arenas, self._weights, wiring.orders)
            self._order_end = end

    def connect(self, outbox: str) -> None:
        """Connect to the downstream and start the loop."""
        wiring, stage, loaded = self._wired(), self._stage, self._held()
        if stage is None:
            raise PreconditionError("NOT_PREPARED", "prepare the stage first", "prepare")
        if wiring.orders and self._order_end is None:
            self._order_end = self.connect_orders(wiring.orders)
        ends = wiring.inbox, connect(outbox, CONNECT_SECONDS), wiring.upstream, loaded.events
        core = core_of(outbox, os.sched_getaffinity(0))
        self._loop = StageLoop(stage, *ends, loaded.config.threads, core, end_process)
        self._loop.start()

    def probe_write(self, owner: str, seed: int) -> None:
        """Write a pattern into a row of an owner's arena, before there is a sequence."""
        probe.write(self._arena_of(owner), seed)

    def probe_read(self, owner: str, seed: int) -> bool:
        """Say whether a row of an owner's arena holds the pattern."""
        return probe.read(self._arena_of(owner), seed)

    def probe_clear(self) -> None:
        """Zero what the probe wrote into this owner's arena."""
        probe.clear(self._arena_of(self.name))

    def status(self) -> dict[str, int]:
        """Return the process id and how many messages came and were answered."""
        counts = LoopCounts() if self._loop is None else self._loop.counts
        return {"pid": os.getpid(), "received": counts.received, "answered": counts.answered}

    def stats(self) -> dict[str, Any]:
        """Return the stage's counters."""
        return {} if self._stage is None else self._stage.stats()

    def arm(self, points: str) -> None:
        """Arm failpoints; refused outside test mode."""
        failpoints.disarm()
        failpoints.arm_from(points)

    def drain(self) -> None:
        """End the loop and drop what other owners lent."""
        self._unwire()
        if self._loaded is not None:
            self._drop_lent()

    @abstractmethod
    def load_weights(self, loaded: Loaded) -> None:
        """Read the weights that this stage owns."""

    @abstractmethod
    def build(self, loaded: Loaded, arenas: Arenas, lent: TargetWeights, epoch: int) -> WiredStage:
        """Return the stage over all arenas and the verifier's weights."""

    def lent_weights(self) -> torch.Tensor | None:
        """Return the block of weights that this owner lends, if it does."""
        return None

    def take_orders(
        self, loaded: Loaded, arenas: Arenas, lent: TargetWeights, name: str
    ) -> Closable | None:
        """Listen for the committer's orders, in the stage that launches publications."""
        return None

    def connect_orders(self, name: str) -> Closable | None:
        """Connect to who launches publications, in the stage that orders them."""
        return None

    @property
    def is_ordered(self) -> bool:
        """Whether the verifier launches publications on the committer's order."""
        return bool(self._wired().orders)

    def _wired(self) -> Wiring:
        if self._wiring is None:
            raise PreconditionError("NOT_WIRED", "wire the stage first", "wire")
        return self._wiring

    def _held(self) -> Loaded:
        if self._loaded is None:
            raise PreconditionError("NOT_LOADED", "load the stage first", "load")
        return self._loaded

    def _map(self, arena: Arena, epoch: int, mode: str) -> pb.stage_pb2.BufferMap:
        loaded = self._held()
        path = loaded.paths.get(self.name, "")
        item = arena.buffer_map(epoch, mode, ipc.export_block(arena.storage, mode, path))
        item.event_handles.extend(loaded.events.handles)
        return item

    def _open(
        self, loaded: Loaded, lent: Mapping[str, pb.stage_pb2.BufferMap], owner: str
    ) -> Arena:
        if owner == self.name:
            return loaded.arena
        item = lent[owner]
        return Arena.mapped(item, ipc.import_block(item.handle, item.mode, item.size_bytes))

    def _open_weights(
        self, loaded: Loaded, lent: Mapping[str, pb.stage_pb2.BufferMap]
    ) -> TargetWeights:
        dtype = model_dtype(loaded.config)
        block = self.lent_weights()
        if block is None:
            item = lent[WEIGHTS]
            size = weights_bytes(loaded.model, loaded.config)
            block = ipc.import_block(item.handle, item.mode, size)
        return view_target(loaded.model, dtype, block)

    def _drop_lent(self) -> None:
        """Drop every view of other owners' memory, so that they can free it."""
        if self._stage is not None:
            self._stage.close()
        self._stage = self._arenas = self._weights = None
        if self._held().config.device != "cpu":
            gc.collect()
            torch.cuda.ipc_collect()

    def _arena_of(self, owner: str) -> Arena:
        if self._arenas is None:
            raise PreconditionError("NOT_WIRED", "wire the stage first", "wire")
        arena: Arena = getattr(self._arenas, owner)
        return arena

    def _unwire(self) -> None:
        loop, self._loop = self._loop, None
        wiring, self._wiring = self._wiring, None
        end, self._order_end = self._order_end, None
        if loop is not None:
            loop.stop()
        if end is not None:
            end.close()
        if wiring is not None:
            wiring.inbox.close()


def _read_map(data: bytes) -> pb.stage_pb2.BufferMap:
    return parse(pb.stage_pb2.BufferMap, data, MAP_BYTES)


def end_process(error: BaseException) -> None:
    """End a process whose stage broke; its runtime starts a fresh one."""
    os._exit(70)
