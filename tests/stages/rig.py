"""One stage under test behind its socket; its neighbours and all memory stand in here."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import torch

from services.committer.actor import CommitterActor, CommitterHost
from services.committer.stage import CommitterStage
from services.contract.errors import UnavailableError
from services.contract.limits import STAGE_MESSAGE_BYTES
from services.contract.wire import parse
from services.drafter.actor import DrafterActor, DrafterHost
from services.model.checkpoint import Checkpoint
from services.model.weights import load_target
from services.runtime.arena import Arena
from services.runtime.buffers import Arenas
from services.runtime.ipc.host import SharedFile, map_file
from services.runtime.local import LocalGroup
from services.runtime.owners import WEIGHTS, arena_specs, shared_sizes, weights_map
from services.runtime.ray_session import ray
from services.runtime.sockets import RING, Channel, Listener, address, connect
from services.runtime.stage import RingStage, StageMessage
from services.verifier.actor import VerifierActor, VerifierHost
from services.verifier.stage import VerifierStage
from tests.ring import EPOCH, ChosenDrafter, Ring

PLACES = ("inproc", "ray")
_KINDS: dict[str, tuple[Any, Any]] = {
    "drafter": (DrafterHost, DrafterActor),
    "verifier": (VerifierHost, VerifierActor),
    "committer": (CommitterHost, CommitterActor),
}
_SECONDS = 60.0


class HostedStage:
    """A stage's control calls, and its socket as if it were a stage of this process."""

    def __init__(self, name: str, place: str, ring: str) -> None:
        self.name, self._place, self._ring = name, place, ring
        self._in: Channel | None = None
        self._back: Channel | None = None
        self._make()

    def _make(self) -> None:
        host, actor = _KINDS[self.name]
        if self._place == "ray":
            share = {"num_cpus": 0, "max_restarts": -1}
            self._host = actor.options(**share).remote()
        else:
            self._host = host()

    def call(self, method: str, *arguments: Any) -> Any:
        """Run a control call where the stage lives."""
        if self._place != "ray":
            return getattr(self._host, method)(*arguments)
        try:
            return ray.get(getattr(self._host, method).remote(*arguments), timeout=_SECONDS)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from error
        except ray.exceptions.RayError as error:
            raise UnavailableError("STAGE_DIED", "restarting") from error

    def wire(self, epoch: int, maps: list[bytes]) -> None:
        """Wire the stage between two sockets of the test."""
        self.unwire()
        inbox, outbox = (address(self._ring, epoch, end) for end in ("in", "out"))
        listener = Listener(outbox)
        self.call("wire", epoch, maps, inbox)
        self.call("prepare")
        self.call("connect", outbox)
        self._in, self._back = connect(inbox, _SECONDS), listener.accept(_SECONDS)

    def raw(self, data: bytes) -> StageMessage:
        """Return the answer to any bytes."""
        assert self._in is not None and self._back is not None
        self._in.send(data)
        return parse(StageMessage, self._back.receive(_SECONDS), STAGE_MESSAGE_BYTES)

    def step(self, message: StageMessage) -> StageMessage:
        """Return the answer to a message."""
        return self.raw(message.SerializeToString())

    def warmup(self) -> None:
        """Nothing to prepare."""

    def stats(self) -> dict[str, Any]:
        """Return the stage's counters."""
        return dict(self.call("stats"))

    def kill(self) -> None:
        """End the stage as SIGKILL does; wait for the fresh one."""
        if self._place != "ray":
            self.unwire()
            self.call("drain")
            self._make()
            return
        os.kill(self.call("status")["pid"], signal.SIGKILL)
        end = time.monotonic() + _SECONDS
        while True:
            try:
                self.call("status")
                return
            except UnavailableError:
                assert time.monotonic() < end
                time.sleep(0.05)

    def unwire(self) -> None:
        """Close the test's ends of the sockets."""
        for channel in (self._in, self._back):
            if channel is not None:
                channel.close()
        self._in = self._back = None

    def close(self) -> None:
        """End the stage."""
        self.unwire()
        self.call("drain")
        if self._place == "ray":
            ray.kill(self._host, no_restart=True)


class StageRig(Ring):
    """Drive one hosted stage of a checkpoint by stage messages alone."""

    def __init__(self, folder: Path, tested: str, place: str) -> None:
        super().__init__(folder)
        self.tested = tested
        sizes = shared_sizes(self.model, self.config)
        self.files = {owner: SharedFile(owner, size) for owner, size in sizes.items()}
        blocks = {owner: map_file(self.files[owner].path, size) for owner, size in sizes.items()}
        self.weights_block = blocks[WEIGHTS]
        self.weights = load_target(Checkpoint.open(folder), torch.float32, block=self.weights_block)
        arenas = {
            owner: Arena(owner, arena_specs(owner, self.model, self.config), storage=blocks[owner])
            for owner in RING
        }
        self.arenas = Arenas(arenas["verifier"], arenas["drafter"], arenas["committer"])
        self.hosted = HostedStage(tested, place, f"test-{os.getpid()}-{id(self)}")
        self.wire(EPOCH)

    def wire(self, epoch: int) -> None:
        """Wire everything under an epoch; every sequence is lost."""
        paths = {owner: file.path for owner, file in self.files.items()}
        self.hosted.call("load", self.config, paths)
        self.hosted.wire(epoch, [item.SerializeToString() for item in self._maps(epoch)])
        self.group = LocalGroup(self.model, self._stages(epoch), epoch)
        self.rows.clear()
        self._generations = [0] * len(self._generations)

    def close(self) -> None:
        """End the stage under test and give up the memory."""
        self.hosted.close()
        for file in self.files.values():
            file.close()

    def _stages(self, epoch: int) -> list[RingStage]:
        self.drafter = ChosenDrafter(self.arenas, self.config, epoch)
        common = self.arenas, self.config, epoch
        stages: dict[str, RingStage] = {
            "drafter": self.drafter,
            "verifier": VerifierStage(self.model, self.weights, *common),
            "committer": CommitterStage(self.weights, *common),
        }
        stages[self.tested] = self.hosted
        return [stages[name] for name in RING]

    def _maps(self, epoch: int) -> list[Any]:
        maps = [
            getattr(self.arenas, owner).buffer_map(
                epoch, "cpu_shm", self.files[owner].path.encode()
            )
            for owner in RING
            if owner != self.tested
        ]
        if self.tested != "verifier":
            handle = self._handle(WEIGHTS)
            maps.append(weights_map(self.weights_block, epoch, "cpu_shm", handle))
        return maps

    def _handle(self, owner: str) -> bytes:
        return self.files[owner].path.encode()
