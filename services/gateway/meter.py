"""What is counted of public requests; named as vLLM names it, behind our own prefix."""

from __future__ import annotations

from collections.abc import Callable

from services.gateway.front import Load, ServedEngine
from services.gateway.requests import Delta, Event, Finished
from services.gateway.speculation import SpecSummary
from services.runtime.host_memory import available_bytes
from services.runtime.metrics import Registry

_SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
_SPANS = {
    "request_queue_time": "queue_ms",
    "request_prefill_time": "prefill_ms",
    "time_to_first_token": "ttft_ms",
    "request_decode_time": "decode_ms",
}


class Meter:
    """Count the events of all requests; labels never hold what a caller wrote."""

    def __init__(self, engine: ServedEngine, load: Load) -> None:
        self._registry = registry = Registry()
        self._prompt = registry.counter("lumotree_prompt_tokens_total", "Prompt tokens read.")
        self._generated = registry.counter(
            "lumotree_generation_tokens_total", "Tokens handed to answers."
        )
        self._ended = registry.counter(
            "lumotree_request_success_total", "Sequences that ended.", ("finished_reason",)
        )
        self._spans = {
            span: registry.histogram(f"lumotree_{name}_seconds", f"{span} of sequences.", _SECONDS)
            for name, span in _SPANS.items()
        }
        _add_load(registry, engine, load)
        _add_speculation(registry, load)

    def see(self, event: Event) -> None:
        """Count one event of a sequence."""
        if isinstance(event, Delta):
            self._generated.add(len(event.token_ids))
        elif isinstance(event, Finished):
            self._prompt.add(event.prompt_tokens)
            self._ended.add(1, event.reason.value)
            for span, histogram in self._spans.items():
                histogram.observe(getattr(event.timing, span) / 1e3)

    def text(self) -> str:
        """Return all metrics in Prometheus' text form."""
        return self._registry.render()


def _add_load(registry: Registry, engine: ServedEngine, load: Load) -> None:
    pages, slots = engine.traits.num_pages, len(engine.groups) * engine.config.max_sequences
    first = sum(group.epoch for group in engine.groups)
    gauges = {
        "num_requests_running": ("Sequences that hold a slot.", lambda: load.num_running),
        "num_requests_waiting": ("Sequences that are queued.", lambda: load.num_waiting),
        "state_slots_total": ("Slots of sequences.", lambda: slots),
        "kv_cache_usage_perc": (
            "Share of pages in use, 1 is all.",
            lambda: (pages - load.free_pages) / max(pages, 1),
        ),
        "engine_healthy": (
            "Whether a whole stage group serves.",
            lambda: any(all(group.health().values()) for group in engine.groups),
        ),
        "host_mem_available_bytes": ("Host memory that may be taken.", available_bytes),
    }
    for name, (text, read) in gauges.items():
        registry.gauge(f"lumotree_{name}", text, read)
    registry.total(
        "lumotree_stage_restarts_total",
        "Wirings after the first one.",
        lambda: sum(group.epoch for group in engine.groups) - first,
    )


def _add_speculation(registry: Registry, load: Load) -> None:
    def total(name: str, text: str, read: Callable[[SpecSummary], int]) -> None:
        said = f"{text} Of ended sequences."
        name = f"lumotree_spec_decode_num_{name}_total"
        registry.total(name, said, lambda: read(load.speculation))

    total("drafts", "Cycles.", lambda spec: spec.num_spec_steps)
    total("draft_tokens", "Draft tokens proposed.", lambda spec: spec.num_draft_tokens)
    total("accepted_tokens", "Draft tokens accepted.", lambda spec: spec.num_accepted_draft_tokens)
