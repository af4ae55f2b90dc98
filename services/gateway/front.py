"""What the public front needs of an engine, whichever it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from services.contract import pb
from services.contract.config import EngineConfig
from services.contract.sampling import Drafting
from services.contract.wire import refuse_values
from services.gateway.chat import ChatTemplate
from services.gateway.defaults import Defaults
from services.gateway.requests import GenerationRequest
from services.gateway.speculation import SpecSummary
from services.gateway.text import TextCodec
from services.model.inspect import CheckpointFacts

gen = pb.generation_pb2
STAGES = ("drafter", "verifier", "committer")


@dataclass(frozen=True, slots=True)
class Traits:
    """How one kind of engine differs for callers.

    Args    stages: names it has in the health service. refused: paths of request fields it
            cannot honour, with the reason; refused_values: paths of which some values are
            refused. drafting: what every request is drafted with, None where requests choose.
            has_trees: whether cycles have trees that can be traced. num_pages: key-value pages
            it counts, 0 where it does not tell.
    """

    name: str
    stages: tuple[str, ...]
    num_pages: int
    has_trees: bool = True
    tie_policy: gen.TiePolicy = gen.TIE_POLICY_KEEP_TIES
    drafting: Drafting | None = None
    refused: Mapping[str, str] = field(default_factory=dict)
    refused_values: Mapping[str, tuple[tuple[Any, ...], str]] = field(default_factory=dict)

    def check(self, request: Any) -> None:
        """Refuse by name what this engine cannot honour."""
        refuse_values(request, self.refused, self.refused_values)


class Load(Protocol):
    """What runs and waits at an engine."""

    @property
    def num_running(self) -> int:
        """Sequences that are computed."""
        ...

    @property
    def num_waiting(self) -> int:
        """Sequences that are queued."""
        ...

    @property
    def free_pages(self) -> int:
        """Key-value pages that nobody holds; 0 where the engine does not tell."""
        ...

    @property
    def speculation(self) -> SpecSummary:
        """Speculation figures of all ended sequences."""
        ...

    def live_ids(self) -> list[str]:
        """Return the ids of all live requests."""
        ...


class Door(Protocol):
    """Where requests go in; a request's sink gets its events (services/gateway/requests.py)."""

    @property
    def scheduler(self) -> Load:
        """Return what tells the load."""
        ...

    @property
    def is_stuck(self) -> bool:
        """Whether live sequences have not moved for too long."""
        ...

    def start(self) -> None:
        """Begin to work."""
        ...

    def submit(self, request: GenerationRequest) -> None:
        """Queue a sequence, or raise the ContractError that refuses it."""
        ...

    def cancel(self, request_id: str) -> bool:
        """Stop every sequence of a request; say whether one was alive."""
        ...

    def drain(self, timeout_s: float) -> bool:
        """Refuse new sequences, wait for the live ones; say whether all of them ended."""
        ...

    def stop(self) -> None:
        """End what still lives as ABORTED."""
        ...


class Wiring(Protocol):
    """One copy of what computes: its state, for health and facts."""

    @property
    def epoch(self) -> int:
        """Return the wiring generation."""
        ...

    @property
    def vocab_size(self) -> int:
        """Return the number of token ids."""
        ...

    def health(self) -> dict[str, bool]:
        """Say of each stage whether it serves."""
        ...

    def stats(self) -> dict[str, Any]:
        """Return counters, the fingerprint and the transport mode."""
        ...


class ServedEngine(Protocol):
    """An engine that the front can serve."""

    config: EngineConfig
    codec: TextCodec
    template: ChatTemplate
    defaults: Defaults
    traits: Traits

    @property
    def group(self) -> Wiring:
        """Return the first wiring."""
        ...

    @property
    def groups(self) -> Sequence[Wiring]:
        """Return every wiring."""
        ...

    def open_door(self) -> Door:
        """Return where requests go in; once for a server."""
        ...

    def describe(self) -> CheckpointFacts:
        """Return what the checkpoint folder holds."""
        ...
