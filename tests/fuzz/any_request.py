"""Random requests, run plainly and alone, then drafted beside others: nothing may differ."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

from services.contract.errors import InvalidField
from services.contract.limits import MAX_DEPTH, MAX_ROWS, MIN_REPETITION
from services.contract.sampling import Budget, Drafting, SamplingParams
from services.drafter.probes import remember_truth
from services.gateway.engine import Engine
from services.gateway.requests import Delta, Event, Finished, GenerationRequest

PLAIN = Drafting(shape="root", suffix=False)
BORDERS = (1, 2, 3, 16, 17, 32, 33, 63, 64, 65, 128, 255, 256, 257, 320)
SEEDS = (0, 1, (1 << 31), (1 << 32) - 1, (1 << 63) - 1, (1 << 64) - 1)
CORNERS: dict[str, tuple[float, ...]] = {
    "temperature": (0.0, 1e-45, 0.01, 0.6, 1.0, 3.0, 100.0),
    "top_p": (1e-45, 0.1, 0.9, 0.9999999),
    "top_k": (1, 2, 20, 63, 64, 65, 1 << 20),
    "min_p": (1e-45, 0.05, 0.999, 1.0),
    "presence_penalty": (-2.0, 1e-45, 1.0, 2.0),
    "frequency_penalty": (-2.0, 0.2, 2.0),
    "repetition_penalty": (MIN_REPETITION, 0.9, 1.3, 10.0),
    "num_logprobs": (0, 1, 20),
}


class Difference(Exception):
    """Drafting, or a neighbour, changed what a caller sees or the target state."""


@dataclass
class Outcome:
    """Everything that a request's events show of it."""

    deltas: list[Delta] = field(default_factory=list)
    finished: Finished | None = None

    def take(self, event: Event) -> None:
        """Be the sink of a request."""
        if isinstance(event, Delta):
            self.deltas.append(event)
        elif isinstance(event, Finished):
            self.finished = event

    def seen(self) -> tuple[object, ...]:
        """Return what the caller sees: tokens, text, end, usage, log-probabilities' bits."""
        end = self.finished
        assert end is not None
        logprobs = [one for delta in self.deltas for one in delta.logprobs]
        streamed = "".join(delta.text for delta in self.deltas)
        shown = end.token_ids, end.text, streamed, end.reason, end.matched_stop, end.error
        return *shown, end.prompt_tokens, repr(logprobs)

    def digests(self) -> dict[int, bytes | None]:
        """Return the digest of the target state at each length."""
        return {delta.committed_length: delta.digest for delta in self.deltas}


@dataclass(frozen=True)
class Known:
    """A request, what it gave plainly, and the digests without its stop strings."""

    request: GenerationRequest
    seen: tuple[object, ...]
    digests: dict[int, bytes | None]


@dataclass(frozen=True)
class Maker:
    """Draw requests: lengths at borders, sampling values at corners, ends inside the text."""

    rng: random.Random
    vocab: int
    context: int
    eos_ids: tuple[int, ...]

    def prompt(self) -> tuple[int, ...]:
        """Return ids: random ones, or ones that repeat and so are drafted well."""
        rng = self.rng
        near_end = self.context - rng.randint(1, 40)
        count = rng.choice((*(n for n in BORDERS if n < self.context), near_end, near_end))
        if rng.random() < 0.4:
            return tuple(rng.randrange(self.vocab) for _ in range(count))
        unit = [rng.randrange(self.vocab) for _ in range(rng.randint(1, 9))]
        return tuple((unit * (count // len(unit) + 1))[:count])

    def sampling(self) -> SamplingParams:
        """Return values of which each is unset or at a corner of its bounds."""
        rng, values = self.rng, dict[str, Any]()
        for name, corners in CORNERS.items():
            if rng.random() < 0.4:
                values[name] = rng.choice(corners)
        values["seed"] = rng.choice((*SEEDS, rng.getrandbits(64)))
        values["processed_logprobs"] = rng.random() < 0.5
        some = rng.sample(range(self.vocab), 12)
        if rng.random() < 0.3:
            pairs = [(token, rng.choice((-100.0, 5.0, 100.0))) for token in some[:3]]
            values["logit_bias"] = tuple(pairs)
        if rng.random() < 0.2:
            values["banned_token_ids"] = tuple(some[3:6])
        if rng.random() < 0.1:
            values["allowed_token_ids"] = tuple(some[6 : rng.choice((7, 12))])
        return SamplingParams(**values)

    def budget(self, prompt: int, truth: tuple[int, ...] = ()) -> Budget:
        """Return a budget; with a truth one of its ends may lie inside it."""
        rng, room = self.rng, self.context - prompt
        most = min(room, len(truth) or rng.choice((1, 17, 40, 40)))
        stops, end = (), self.context
        match rng.choice(("tokens", "stop", "context", "none")) if truth else "none":
            case "tokens":
                most = rng.randint(1, most)
            case "stop":
                stops = (rng.choice(truth[len(truth) // 2 :]),)
            case "context":
                end = min(end, prompt + rng.randint(1, most))
        eos = self.eos_ids if rng.random() < 0.7 else ()
        return Budget(most, rng.choice((0, 0, most // 2, most)), eos, stops, end)

    def drafting(self, truth: str) -> Drafting:
        """Return any shape, filled by MTP and suffixes or by a test drafter of the truth."""
        rng = self.rng
        wrong_at = f"adversarial:{rng.randint(0, MAX_DEPTH)}:@{truth}"
        drafter = rng.choice(("mtp", f"oracle:@{truth}", wrong_at, "random"))
        chain = f"chain-{rng.randint(1, MAX_DEPTH)}"
        shape = rng.choice(("hydra27", "adaptive", chain, self._tree(), self._tree()))
        return Drafting(shape, drafter, rng.random() < 0.7, rng.choice(("", "a")))

    def _tree(self) -> str:
        depths, parents, bias = [0], [-1], self.rng.random()
        for _ in range(self.rng.choice((1, 4, 30, MAX_ROWS - 1))):
            fit = [node for node, depth in enumerate(depths) if depth < MAX_DEPTH]
            parents.append(fit[-1] if self.rng.random() < bias else self.rng.choice(fit))
            depths.append(depths[parents[-1]] + 1)
        return json.dumps(parents)


@dataclass
class Hunt:
    """One engine under random requests; `counts` says what was compared."""

    engine: Engine
    rng: random.Random
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        vocab, context = self.engine.group.vocab_size, self.engine.config.context_length
        self._make = Maker(self.rng, vocab, context, self.engine.defaults.eos_ids)

    def run(self, groups: int, rounds: int = 2) -> Counter[str]:
        """Return the counts after `groups` groups of up to four requests.

        Raises  Difference naming the request at the first one that is not as it was plainly.
        """
        for _ in range(groups):
            known = [one for one in map(self._plain, range(self.rng.randint(1, 4))) if one]
            for _ in range(rounds if known else 0):
                self._compare(known)
        return self.counts

    def _plain(self, _: int) -> Known | None:
        """Run a new request plainly, then once more with ends inside its text."""
        make, prompt = self._make, self._make.prompt()
        name, budget = self.engine.next_request_id(), make.budget(len(prompt))
        sink, choice = Outcome(), self.rng.choice((0, 7))
        request = GenerationRequest(
            name, prompt, make.sampling(), budget, PLAIN, sink.take, choice, wants_digest=True
        )
        try:
            free = self._alone(request)
            end = free.finished
            assert end is not None
            request = replace(request, budget=make.budget(len(prompt), end.token_ids))
            free = self._alone(request)
            request = replace(request, stop=self._stops(end.text), include_stop=choice == 0)
            cut = self._alone(request)
        except InvalidField:
            return None
        remember_truth(name, end.token_ids)
        self.counts["requests"] += 1
        return Known(request, cut.seen(), free.digests())

    def _stops(self, text: str) -> tuple[str, ...]:
        if not text or self.rng.random() < 0.5:
            return ()
        at = self.rng.randrange(len(text))
        return (text[at : at + self.rng.randint(1, 4)], "never")

    def _alone(self, request: GenerationRequest) -> Outcome:
        outcome = Outcome()
        self.engine.scheduler.submit(replace(request, sink=outcome.take))
        while self.engine.scheduler.step():
            pass
        return outcome

    def _compare(self, known: list[Known]) -> None:
        """Draft all of them at once, beside requests that are cancelled on the way."""
        outcomes = [Outcome() for _ in known]
        todo = []
        for one, outcome in zip(known, outcomes, strict=True):
            drafting = self._make.drafting(one.request.request_id)
            todo.append(replace(one.request, drafting=drafting, sink=outcome.take))
        for _ in range(self.rng.randrange(3)):
            drafting = replace(self._make.drafting("none"), drafter="random")
            name, victim = f"victim-{self.engine.next_request_id()}", self.rng.choice(known)
            ignored = Outcome().take
            todo.append(replace(victim.request, request_id=name, drafting=drafting, sink=ignored))
        self.rng.shuffle(todo)
        drafted = {request.request_id: request for request in todo}
        self._drive(todo)
        for one, outcome in zip(known, outcomes, strict=True):
            self._check(one, outcome, drafted[one.request.request_id])

    def _drive(self, todo: list[GenerationRequest]) -> None:
        scheduler = self.engine.scheduler
        while todo or not scheduler.is_idle:
            if todo and self.rng.random() < 0.5:
                scheduler.submit(todo.pop())
            victims = [name for name in scheduler.live_ids() if name.startswith("victim")]
            if victims and self.rng.random() < 0.15:
                self.counts["cancelled"] += scheduler.cancel(self.rng.choice(victims))
            scheduler.step()
        scheduler.check_integrity()

    def _check(self, one: Known, outcome: Outcome, request: GenerationRequest) -> None:
        digests, seen = outcome.digests(), outcome.seen()
        for place, (is_, was) in enumerate(zip(seen, one.seen, strict=True)):
            if is_ != was:
                raise Difference(f"seen[{place}] is {is_!r}, was {was!r}: {request}")
        for length, digest in digests.items():
            if digest is None or one.digests.get(length) != digest:
                raise Difference(f"another digest at length {length}: {request}")
        tokens = sum(len(delta.token_ids) for delta in outcome.deltas)
        self.counts.update(
            compared=1, tokens=tokens, digests=len(digests), accepted=tokens - len(outcome.deltas)
        )
