"""Live health: a name for the service, each stage, the transport mode and the whole server."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from grpc_health.v1 import health, health_pb2

from services.contract import pb
from services.gateway.front import STAGES, Door, Wiring

SERVICE = pb.generation_pb2.DESCRIPTOR.services_by_name["GenerationService"].full_name
_PERIOD_SECONDS = 0.05
_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class HealthMonitor:
    """Keep the health service equal to the groups' own view of their stages.

    With several groups a name serves while it does in one of them. A group that came back
    between two looks was away: it is shown as such once.
    """

    def __init__(
        self, groups: Sequence[Wiring], clock: Door, stages: tuple[str, ...] = STAGES
    ) -> None:
        self.servicer = health.aio.HealthServicer()
        self._groups = tuple(groups)
        self._clock = clock
        self._stages = stages
        self._shown: dict[str, int] = {}
        self._epochs = [group.epoch for group in groups]
        self._modes = [str(group.stats()["mode"]) for group in groups]
        self._draining = False

    async def run(self) -> None:
        """Update every name until cancelled."""
        while True:
            await self.update()
            await asyncio.sleep(_PERIOD_SECONDS)

    async def drain(self) -> None:
        """Show NOT_SERVING from now on."""
        self._draining = True
        await self.update()

    async def update(self) -> None:
        """Show the present state; watchers hear of changes only."""
        epochs = [group.epoch for group in self._groups]
        seen = [
            group.health() if epoch == before else dict.fromkeys(self._stages, False)
            for group, epoch, before in zip(self._groups, epochs, self._epochs, strict=True)
        ]
        self._epochs = epochs
        usable = not self._draining and not self._clock.is_stuck
        for name in self._stages:
            await self._show(name, usable and any(stages.get(name, False) for stages in seen))
        whole = usable and any(all(stages.values()) for stages in seen)
        for name in ("", SERVICE):
            await self._show(name, whole)
        for mode in set(self._modes):
            own = (all(s.values()) for s, m in zip(seen, self._modes, strict=True) if m == mode)
            await self._show(f"transport.{mode}", usable and any(own))

    async def _show(self, name: str, is_serving: bool) -> None:
        status = _SERVING if is_serving else _NOT_SERVING
        if self._shown.get(name) != status:
            self._shown[name] = status
            await self.servicer.set(name, status)
