"""`lumotree generate`: stream one completion and say how it was made."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from services.commands import options as opt
from services.commands.loading import DEFAULT_CONTEXT, DEFAULT_THREADS, local_config, open_engine
from services.commands.tree_view import acceptance_table, draw_tree, legend, source_table
from services.contract.errors import InvalidField
from services.gateway.defaults import resolve_drafting
from services.gateway.engine import Engine, Generation
from services.gateway.requests import Delta, Event, GenerationRequest

PromptFile = Annotated[Path | None, typer.Option("--prompt-file", help="File with the prompt.")]


def generate(
    prompt: Annotated[str | None, typer.Argument(help="Prompt text.")] = None,
    prompt_file: PromptFile = None,
    model: opt.Model = opt.EMBEDDED_MODEL,
    max_tokens: opt.MaxTokens = 256,
    min_tokens: opt.MinTokens = 0,
    temperature: opt.Temperature = None,
    top_p: opt.TopP = None,
    top_k: opt.TopK = None,
    min_p: opt.MinP = None,
    presence_penalty: opt.Presence = None,
    frequency_penalty: opt.Frequency = None,
    repetition_penalty: opt.Repetition = None,
    seed: opt.Seed = None,
    stop: opt.Stop = None,
    stop_token_ids: opt.StopIds = None,
    ignore_eos: opt.IgnoreEos = False,
    mode: opt.Mode = "tree",
    shape: opt.Shape = None,
    drafter: opt.Drafter = "mtp",
    no_suffix: opt.NoSuffix = False,
    threads: opt.Threads = DEFAULT_THREADS,
    max_model_len: opt.Context = DEFAULT_CONTEXT,
    dtype: opt.Dtype = "auto",
    runtime: opt.Runtime = "inproc",
    device: opt.Device = "cpu",
    as_json: opt.Json = False,
) -> None:
    """Complete a prompt with the embedded or a given checkpoint."""
    text = _prompt_text(prompt, prompt_file)
    drafting = resolve_drafting(mode, shape, drafter, suffix=not no_suffix)
    config = replace(
        local_config(model, threads, max_model_len, dtype=dtype), runtime=runtime, device=device
    )
    with open_engine(config, quiet=as_json) as engine:
        ids = tuple(engine.codec.encode(text))
        request = GenerationRequest(
            request_id=engine.next_request_id(),
            prompt_ids=ids,
            sampling=engine.defaults.resolve_sampling(
                {
                    "temperature": temperature,
                    "top_p": top_p,
                    "top_k": top_k,
                    "min_p": min_p,
                    "presence_penalty": presence_penalty,
                    "frequency_penalty": frequency_penalty,
                    "repetition_penalty": repetition_penalty,
                    "seed": seed,
                }
            ),
            budget=engine.defaults.resolve_budget(
                len(ids), max_tokens, min_tokens, ignore_eos, tuple(stop_token_ids or ())
            ),
            drafting=drafting,
            sink=_ignore,
            stop=tuple(stop or ()),
        )
        generation = engine.generate(request, None if as_json else _print_delta)
        if as_json:
            print(json.dumps(report(generation)))
        else:
            _print_summary(engine, generation)


def _prompt_text(prompt: str | None, file: Path | None) -> str:
    if (prompt is None) == (file is None):
        raise InvalidField("PROMPT", "give a prompt or --prompt-file, one of them", "prompt")
    return file.read_text(encoding="utf-8") if file is not None else str(prompt)


def report(generation: Generation) -> dict[str, Any]:
    """Return the machine-readable figures of one generation."""
    finished, spec = generation.finished, generation.finished.speculation
    return {
        "text": finished.text,
        "token_ids": list(finished.token_ids),
        "prompt_tokens": finished.prompt_tokens,
        "cycles": spec.num_spec_steps,
        "tokens_per_second": round(tokens_per_second(generation), 2),
        "mean_accepted_drafts": round(spec.mean_accepted_drafts, 4),
        "accepted_by_depth": list(spec.accepted_by_depth),
        "accepted_by_source": spec.accepted_by_source,
        "drafted_by_source": spec.drafted_by_source,
        "finish_reason": finished.reason.value,
        "matched_stop": finished.matched_stop,
        "seed": generation.seed,
        "prefill_ms": round(finished.timing.prefill_ms, 2),
        "decode_ms": round(finished.timing.decode_ms, 2),
    }


def tokens_per_second(generation: Generation) -> float:
    """Return the decode rate: tokens of all cycles but the first, over the time they took."""
    first = len(generation.deltas[0].token_ids) if generation.deltas else 0
    tokens = len(generation.finished.token_ids) - first
    return tokens / max(generation.finished.timing.decode_ms / 1e3, 1e-9)


def _ignore(event: Event) -> None:
    del event


def _print_delta(event: Event) -> None:
    if isinstance(event, Delta):
        sys.stdout.write(event.text)
        sys.stdout.flush()


def _print_summary(engine: Engine, generation: Generation) -> None:
    finished, spec = generation.finished, generation.finished.speculation
    console = Console()
    console.print()
    console.rule(style="dim")
    console.print(
        f"{len(finished.token_ids)} tokens in {spec.num_spec_steps} cycles, "
        f"[bold]{tokens_per_second(generation):.1f} tokens/s[/bold], "
        f"{spec.mean_accepted_drafts:.2f} accepted drafts a cycle, "
        f"prefill {finished.prompt_tokens} tokens in {finished.timing.prefill_ms:.0f} ms, "
        f"ended by {finished.reason.value}, seed {generation.seed}"
    )
    if not spec.num_draft_tokens:
        return
    console.print(acceptance_table(spec))
    console.print(source_table(spec))
    last = next((d for d in reversed(generation.deltas) if d.tree.num_nodes > 1), None)
    if last is not None:
        console.print(f"last verified tree (cycle {last.cycle})  ", legend())
        console.print(draw_tree(last.tree, last.nodes, lambda t: engine.codec.decode([t], False)))
