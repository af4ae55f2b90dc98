"""Named points where a test may fail, hang or end a stage; no-ops otherwise."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

from services.contract.errors import InvalidField

NAMES = frozenset(
    f"{stage}.{point}"
    for stage, points in {
        "drafter": ("receive", "send"),
        "verifier": ("receive", "forward", "walk", "send"),
        "committer": (
            "receive",
            "accept",
            "recurrent_replay",
            "conv_gather",
            "kv_scatter",
            "next_root",
            "flip",
            "send",
        ),
    }.items()
    for point in points
)
TEST_MODE = "LUMOTREE_TEST_MODE"
HANG_SECONDS = 3600.0

_armed: dict[str, Callable[[], None]] = {}


class FailpointReached(Exception):
    """An armed point was reached."""


def reach(name: str) -> None:
    """Run what a test armed at `name`; nothing otherwise."""
    if _armed:
        action = _armed.get(name)
        if action is not None:
            action()


def arm(name: str, action: Callable[[], None]) -> None:
    """Arm one point.

    Raises  InvalidField for an unknown name, or outside test mode.
    """
    if name not in NAMES:
        raise InvalidField("FAILPOINT", f"{name} does not exist; see NAMES", "failpoint")
    if os.environ.get(TEST_MODE) != "1":
        message = f"needs {TEST_MODE}=1; never set it in service"
        raise InvalidField("FAILPOINT", message, "failpoint")
    _armed[name] = action


def arm_from(text: str) -> None:
    """Arm points from `name=action[@visit]` items split by commas; actions: _ACTIONS."""
    for item in filter(None, text.split(",")):
        name, _, rest = item.partition("=")
        action, _, visit = rest.partition("@")
        if action not in _ACTIONS or not (visit or "1").isdigit():
            message = f"{item} is not name=raise|exit|hang|kill[@visit]"
            raise InvalidField("FAILPOINT", message, "failpoint")
        arm(name, _after(int(visit or "1"), _ACTIONS[action]))


def disarm() -> None:
    """Disarm every point."""
    _armed.clear()


def _after(visit: int, action: Callable[[], None]) -> Callable[[], None]:
    visits = 0

    def count() -> None:
        nonlocal visits
        visits += 1
        if visits == visit:
            action()

    return count


def _raise() -> None:
    raise FailpointReached("an armed failpoint was reached")


def _exit() -> None:
    os._exit(70)


def _hang() -> None:
    time.sleep(HANG_SECONDS)


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


_ACTIONS: dict[str, Callable[[], None]] = {
    "raise": _raise,
    "exit": _exit,
    "hang": _hang,
    "kill": _kill,
}
