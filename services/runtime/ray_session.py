"""Start Ray, or join the one that RAY_ADDRESS names, with the settings the stages need."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Final

# Read by Ray when it is first imported or started.
ENVIRONMENT: Final = {
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
for _name, _value in ENVIRONMENT.items():
    os.environ.setdefault(_name, _value)

import ray as ray  # noqa: E402 - after the environment; others import it from here

from services.contract.errors import PreconditionError, UnavailableError  # noqa: E402
from services.runtime.log import get_logger  # noqa: E402
from services.runtime.mps import Mps  # noqa: E402

_LOG = get_logger("runtime.ray_session")
_ATTEMPTS: Final = 3
UNIT: Final = "lumotree"
_OBJECT_STORE_BYTES: Final = 80 << 20


def unit_of(device: str) -> str:
    """Return the resource of which a stage group takes one: a GPU, or its stand-in."""
    return UNIT if device == "cpu" else "GPU"


class RaySession:
    """A connection to Ray; one that was started here ends with its last group.

    Args    groups: stage groups that use it; a Ray started here has room for as many.
            mps: whether the actors of a Ray started here share the GPU through MPS.
    """

    def __init__(self, device: str, groups: int, mps: bool = False) -> None:
        self._users = groups
        self._mps: Mps | None = None
        self._is_ours = not ray.is_initialized()
        address = os.environ.get("RAY_ADDRESS")
        if mps and (address or not self._is_ours):
            text = "mps is for a Ray started here; start MPS with the Ray that you join"
            raise PreconditionError("MPS", text, "mps")
        if not self._is_ours:
            return
        if address:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
            return
        if mps:
            self._mps = Mps.start()
        try:
            _start(device, groups)
        except BaseException:
            self.end()
            raise

    def check_attached(self, stages: Mapping[str, int]) -> None:
        """Do nothing without MPS; else raise UnavailableError naming a stage that is not in it."""
        if self._mps is not None:
            self._mps.check_attached(stages)

    def close(self) -> None:
        """Let one group go; the last one ends the connection."""
        self._users -= 1
        if self._users <= 0:
            self.end()

    def end(self) -> None:
        """End the connection; stop Ray if it was started here."""
        if self._is_ours and ray.is_initialized():
            ray.shutdown()
        if self._mps is not None:
            self._mps.stop()
            self._mps = None


def _start(device: str, groups: int) -> None:
    """Start a Ray of our own; its servers now and then fail to come up, so try three times.

    Raises  UnavailableError if none came up.
    """
    unit = {UNIT: float(groups)} if device == "cpu" else {}
    why = ""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            ray.init(
                address="local",
                num_cpus=1,
                num_gpus=0 if device == "cpu" else None,
                resources=unit,
                object_store_memory=_OBJECT_STORE_BYTES,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
        except Exception as error:
            ray.shutdown()
            first_line = str(error).partition("\n")[0]
            why = f"{type(error).__name__}: {first_line}"
            _LOG.warning("ray did not start", attempt=attempt, kind=type(error).__name__)
        else:
            return
    text = f"Ray did not start in {_ATTEMPTS} attempts ({why}); use --runtime inproc"
    raise UnavailableError("RAY_START", text)
