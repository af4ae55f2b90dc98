"""The three actors of a stage group: one bundle on one host, control calls with a timeout."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from services.contract.errors import ContractError, UnavailableError
from services.runtime.ray_session import UNIT, ray, unit_of
from services.runtime.seat import HostSeat, Seat

SHARES: Final = {"drafter": 0.3, "verifier": 0.4, "committer": 0.3}
_PLACE_SECONDS: Final = 60.0
_RETRY_SECONDS: Final = 0.05


class StageActors:
    """Hold one group's actors; Ray restarts one that dies.

    Args    kinds: stage -> actor class.
    Raises  UnavailableError where no host has a free GPU, or its stand-in.
    """

    def __init__(self, kinds: Mapping[str, Any], device: str) -> None:
        from ray.util.placement_group import placement_group

        self._unit = unit_of(device)
        self._group = placement_group([{self._unit: 1.0}], strategy="STRICT_PACK")
        if not self._group.wait(_PLACE_SECONDS):
            self.close()
            text = f"no host has a free {self._unit}; add one, or start Ray there with it"
            raise UnavailableError("NO_PLACE", text)
        self._handles = {name: self._start(kinds[name], name) for name in SHARES}

    def call(
        self,
        method: str,
        arguments: Callable[[str], tuple[Any, ...]] = lambda name: (),
        *,
        timeout_s: float,
    ) -> dict[str, Any]:
        """Call a control method of every actor at once; return the answers by stage.

        Args    arguments: stage -> the call's arguments.
        Raises  the ContractError that a stage raised; UnavailableError for a dead or late one.
        """
        calls = {
            name: getattr(handle, method).remote(*arguments(name))
            for name, handle in self._handles.items()
        }
        return {name: self._get(name, call, timeout_s) for name, call in calls.items()}

    def call_one(self, name: str, method: str, *arguments: Any, timeout_s: float) -> Any:
        """Call a control method of one actor."""
        return self._get(name, getattr(self._handles[name], method).remote(*arguments), timeout_s)

    def host(self) -> str:
        """Return the host of the group, or an empty string while it has none."""
        from ray.util.placement_group import placement_group_table

        if not self._group.wait(_PLACE_SECONDS):
            return ""
        return str(placement_group_table(self._group)["bundles_to_node_id"].get(0, ""))

    def seat(self) -> Seat:
        """Return the group's seat on its present host: here, or behind a relay there."""
        if self.host() == ray.get_runtime_context().get_node_id():
            return HostSeat()
        from services.runtime.relay import RelayActor, RelaySeat

        options = {"num_cpus": 0, "max_restarts": -1, "max_concurrency": 2}
        return RelaySeat(RelayActor.options(scheduling_strategy=self._place(), **options).remote())

    def kill(self, name: str) -> None:
        """End the process of a stage that hangs; Ray starts a fresh one."""
        ray.kill(self._handles[name], no_restart=False)

    def restart(self, name: str) -> None:
        """End the process of a stage, if it lives, and wait until a fresh one answers.

        Raises  UnavailableError if none does in time.
        """
        old = self._pid(name)
        if old:
            self.kill(name)
        end = time.monotonic() + _PLACE_SECONDS
        while self._pid(name) in (0, old):
            if time.monotonic() > end:
                text = f"{name} was not restarted within {_PLACE_SECONDS:g} s"
                raise UnavailableError("STAGE_DIED", text)
            time.sleep(_RETRY_SECONDS)

    def close(self) -> None:
        """End the actors and give their place back."""
        from ray.util.placement_group import remove_placement_group

        if not ray.is_initialized():
            return
        for handle in getattr(self, "_handles", {}).values():
            ray.kill(handle, no_restart=True)
        remove_placement_group(self._group)

    def _pid(self, name: str) -> int:
        """Return the process of a stage, 0 while it has none."""
        try:
            return int(self.call_one(name, "status", timeout_s=_PLACE_SECONDS)["pid"])
        except UnavailableError:
            return 0

    def _place(self) -> Any:
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        return PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=0)

    def _start(self, kind: Any, name: str) -> Any:
        share = SHARES[name]
        needs = {"resources": {UNIT: share}} if self._unit == UNIT else {"num_gpus": share}
        options = {"num_cpus": 0, "max_restarts": -1, "max_concurrency": 2, **needs}
        return kind.options(scheduling_strategy=self._place(), **options).remote()

    def _get(self, name: str, call: Any, timeout_s: float) -> Any:
        try:
            return ray.get(call, timeout=timeout_s)
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, ContractError):
                raise error.cause from error
            text = f"{name} broke: {type(error.cause).__name__}"
            raise UnavailableError("STAGE_DIED", text) from error
        except ray.exceptions.GetTimeoutError as error:
            text = f"{name} gave no answer within {timeout_s:g} s"
            raise UnavailableError("STAGE_HUNG", text) from error
        except ray.exceptions.RayError as error:
            raise UnavailableError("STAGE_DIED", f"{name} is restarting; wait") from error
