"""Live health: one name for the service, one a stage, one for the whole server."""

from __future__ import annotations

import asyncio

from grpc_health.v1 import health, health_pb2

from services.contract import pb
from services.gateway.clock import CycleClock
from services.runtime.group import StageGroup

SERVICE = pb.generation_pb2.DESCRIPTOR.services_by_name["GenerationService"].full_name
STAGES = ("drafter", "verifier", "committer")
_PERIOD_SECONDS = 0.05
_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class HealthMonitor:
    """Keep the health service equal to the group's own view of its stages."""

    def __init__(self, group: StageGroup, clock: CycleClock) -> None:
        self.servicer = health.aio.HealthServicer()
        self._group = group
        self._clock = clock
        self._shown: dict[str, int] = {}
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
        stages = self._group.health()
        usable = not self._draining and not self._clock.is_stuck
        for name in STAGES:
            await self._show(name, usable and stages.get(name, False))
        whole = usable and all(stages.get(name, False) for name in STAGES)
        for name in ("", SERVICE):
            await self._show(name, whole)

    async def _show(self, name: str, is_serving: bool) -> None:
        status = _SERVING if is_serving else _NOT_SERVING
        if self._shown.get(name) != status:
            self._shown[name] = status
            await self.servicer.set(name, status)
