"""`lumotree chat`: talk to a checkpoint in its own chat template."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer
from rich.console import Console

from services.commands import options as opt
from services.commands.generate import report, tokens_per_second
from services.commands.loading import DEFAULT_CONTEXT, DEFAULT_THREADS, local_config, open_engine
from services.commands.tree_view import draw_tree
from services.gateway.defaults import resolve_drafting
from services.gateway.engine import Engine, Generation
from services.gateway.requests import Delta, Event, GenerationRequest

System = Annotated[str | None, typer.Option("--system", help="System message.")]
ShowTree = Annotated[bool, typer.Option("--show-tree", help="Draw the last tree of each answer.")]


def chat(
    model: opt.Model = opt.EMBEDDED_MODEL,
    system: System = None,
    max_tokens: opt.MaxTokens = 512,
    temperature: opt.Temperature = None,
    top_p: opt.TopP = None,
    top_k: opt.TopK = None,
    min_p: opt.MinP = None,
    presence_penalty: opt.Presence = None,
    seed: opt.Seed = None,
    mode: opt.Mode = "tree",
    shape: opt.Shape = None,
    drafter: opt.Drafter = "mtp",
    show_tree: ShowTree = False,
    threads: opt.Threads = DEFAULT_THREADS,
    max_model_len: opt.Context = DEFAULT_CONTEXT,
    dtype: opt.Dtype = "auto",
    as_json: opt.Json = False,
) -> None:
    """Read user turns from standard input until its end, answer each one."""
    drafting = resolve_drafting(mode, shape, drafter, suffix=True)
    values = {
        "temperature": temperature,
        "top_p": top_p,
        "top_k": top_k,
        "min_p": min_p,
        "presence_penalty": presence_penalty,
        "seed": seed,
    }
    messages = [{"role": "system", "content": system}] if system else []
    with open_engine(
        local_config(model, threads, max_model_len, dtype=dtype), quiet=as_json
    ) as engine:
        while (line := _read_turn(as_json)) is not None:
            messages.append({"role": "user", "content": line})
            request = _request(engine, messages, values, max_tokens, drafting)
            generation = engine.generate(request, None if as_json else _print_delta)
            messages.append({"role": "assistant", "content": generation.finished.text})
            _close_turn(engine, generation, show_tree, as_json)


def _request(
    engine: Engine,
    messages: list[dict[str, Any]],
    values: dict[str, Any],
    max_tokens: int,
    drafting: Any,
) -> GenerationRequest:
    _, ids = engine.template.render(messages)
    return GenerationRequest(
        request_id=engine.next_request_id(),
        prompt_ids=tuple(ids),
        sampling=engine.defaults.resolve_sampling(values),
        budget=engine.defaults.resolve_budget(len(ids), max_tokens),
        drafting=drafting,
        sink=_print_delta,
    )


def _read_turn(as_json: bool) -> str | None:
    if not as_json and sys.stdin.isatty():
        sys.stdout.write("\n> ")
        sys.stdout.flush()
    line = sys.stdin.readline()
    return line.rstrip("\n") if line else None


def _print_delta(event: Event) -> None:
    if isinstance(event, Delta):
        sys.stdout.write(event.text)
        sys.stdout.flush()


def _close_turn(engine: Engine, generation: Generation, show_tree: bool, as_json: bool) -> None:
    if as_json:
        print(json.dumps(report(generation)), flush=True)
        return
    console = Console()
    spec = generation.finished.speculation
    console.print(
        f"\n[dim]{len(generation.finished.token_ids)} tokens, "
        f"{tokens_per_second(generation):.1f} tokens/s, "
        f"{spec.mean_accepted_drafts:.2f} accepted drafts a cycle[/dim]"
    )
    if show_tree and generation.deltas:
        last = generation.deltas[-1]
        console.print(draw_tree(last.tree, last.nodes, lambda t: engine.codec.decode([t], False)))
