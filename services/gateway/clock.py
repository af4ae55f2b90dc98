"""The thread that drives a scheduler, and the doors other threads use."""

from __future__ import annotations

import threading
import time

from services.contract.errors import InternalError, UnavailableError
from services.gateway.requests import GenerationRequest
from services.gateway.scheduler import Scheduler
from services.runtime.log import get_logger

_LOG = get_logger("gateway.clock")
_IDLE_SECONDS = 0.5
STUCK_SECONDS = 60.0


class CycleClock:
    """Run a scheduler's steps on one thread while there is work.

    A defect in a step ends every live sequence with INTERNAL and the clock goes on.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._draining = False
        self.last_step = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="cycle-clock", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def submit(self, request: GenerationRequest) -> None:
        """Queue a sequence.

        Raises  UnavailableError while draining, and what `Scheduler.submit` raises.
        """
        if self._draining:
            raise UnavailableError("DRAINING", "the server is stopping; try another one")
        self.scheduler.submit(request)
        self._wake.set()

    def cancel(self, request_id: str) -> bool:
        """Stop a request before its next cycle; say whether it was alive."""
        found = self.scheduler.cancel(request_id)
        self._wake.set()
        return found

    @property
    def is_stuck(self) -> bool:
        """Whether live sequences have seen no step for a minute."""
        return not self.scheduler.is_idle and time.monotonic() - self.last_step > STUCK_SECONDS

    def refuse(self) -> None:
        """Refuse new sequences from now on."""
        self._draining = True

    def drain(self, timeout_s: float) -> bool:
        """Refuse new sequences, wait for the live ones; say whether all of them ended."""
        self.refuse()
        deadline = time.monotonic() + timeout_s
        while not self.scheduler.is_idle and time.monotonic() < deadline:
            time.sleep(0.01)
        return self.scheduler.is_idle

    def stop(self) -> None:
        """End what still lives as ABORTED and stop the thread."""
        self._draining = True
        self._stopped.set()
        self._wake.set()
        self._thread.join(timeout=30.0)

    def _run(self) -> None:
        while not self._stopped.is_set():
            if not self._step():
                self._wake.wait(_IDLE_SECONDS)
                self._wake.clear()
        self.scheduler.abort_all()

    def _step(self) -> bool:
        self.last_step = time.monotonic()
        try:
            return self.scheduler.step()
        except Exception as error:  # a defect must end the requests, not the thread
            _LOG.error("step failed", kind=type(error).__name__, where=_where(error))
            self.scheduler.end_all(
                InternalError("DEFECT", f"a step failed: {type(error).__name__}")
            )
        return True


def _where(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f"{trace.tb_frame.f_code.co_name}:{trace.tb_lineno}"
