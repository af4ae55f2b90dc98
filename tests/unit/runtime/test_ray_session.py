"""A Ray of our own is tried again when its servers do not come up, and given up in words."""

from __future__ import annotations

from typing import Any

import pytest

from services.contract.errors import UnavailableError
from services.runtime import ray_session


class FakeRay:
    """Fail to start so many times; remember what was asked."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.starts = self.shutdowns = 0

    def is_initialized(self) -> bool:
        """Say that nothing runs yet."""
        return False

    def init(self, **options: Any) -> None:
        """Start, or fail as Ray does."""
        self.starts += 1
        if self.starts <= self.failures:
            raise RuntimeError("timed out waiting for a server")

    def shutdown(self) -> None:
        """Count the clean-ups."""
        self.shutdowns += 1


@pytest.mark.parametrize(("failures", "starts"), [(0, 1), (1, 2), (2, 3)])
def test_start_is_tried_again_after_a_clean_up(
    monkeypatch: pytest.MonkeyPatch, failures: int, starts: int
) -> None:
    fake = FakeRay(failures)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray_session, "ray", fake)
    ray_session.RaySession("cpu", 1)
    assert (fake.starts, fake.shutdowns) == (starts, failures)


def test_start_is_given_up_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeRay(9)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray_session, "ray", fake)
    with pytest.raises(UnavailableError, match=r"3 attempts .RuntimeError: timed out waiting"):
        ray_session.RaySession("cpu", 1)
    assert fake.starts == fake.shutdowns == 3
