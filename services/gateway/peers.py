"""Live streams by client, bounded."""

from __future__ import annotations

from collections import Counter

import grpc

from services.contract.errors import ExhaustedError
from services.contract.limits import MAX_STREAMS_PER_CLIENT


class PeerStreams:
    """Count the live calls of each connection."""

    def __init__(self, limit: int = MAX_STREAMS_PER_CLIENT) -> None:
        self.limit = limit
        self._live: Counter[str] = Counter()

    def enter(self, context: grpc.aio.ServicerContext) -> None:
        """Count a call until its end.

        Raises  ExhaustedError for one more than the limit.
        """
        peer = context.peer()
        if self._live[peer] >= self.limit:
            text = f"{self.limit} calls of this connection are live; end one or retry later"
            raise ExhaustedError("CLIENT_STREAMS", text)
        self._live[peer] += 1
        context.add_done_callback(lambda _: self._leave(peer))

    def _leave(self, peer: str) -> None:
        self._live[peer] -= 1
        if not self._live[peer]:
            del self._live[peer]
