"""Ids of live requests, each tenant's apart."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from services.contract.errors import DuplicateError


class LiveRequests:
    """Map a tenant's own ids to the engine's, which no two requests share.

    An id that one tenant uses is free for every other one, who cannot see, stop or watch it.
    """

    def __init__(self) -> None:
        self._live: dict[tuple[str, str], Ticket] = {}
        self._count = itertools.count()

    def __len__(self) -> int:
        return len(self._live)

    def enter(self, tenant: str, request_id: str) -> Ticket:
        """Return the ticket of a new request.

        Raises  DuplicateError while the tenant has a live request of that id.
        """
        if (tenant, request_id) in self._live:
            text = "a request of this id is alive; send another id or none"
            raise DuplicateError("DUPLICATE_REQUEST", text, "request_id")
        ticket = Ticket(tenant, request_id, f"call-{next(self._count)}")
        self._live[tenant, request_id] = ticket
        return ticket

    def leave(self, ticket: Ticket) -> None:
        """Forget a request; nothing if its id is another one's by now."""
        key = ticket.tenant, ticket.request_id
        if self._live.get(key) is ticket:
            del self._live[key]

    def find(self, tenant: str, request_id: str) -> Ticket | None:
        """Return a tenant's live request."""
        return self._live.get((tenant, request_id))

    def of(self, tenant: str) -> list[str]:
        """Return the ids of a tenant's live requests, sorted."""
        return sorted(name for owner, name in self._live if owner == tenant)


@dataclass(frozen=True, slots=True)
class Ticket:
    """Whose request it is, its id for the caller, and its id for the engine."""

    tenant: str
    request_id: str
    engine_id: str
