"""Options that several commands share, named as vLLM names them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import services

EMBEDDED_MODEL = Path(services.__file__).resolve().parents[1] / "models" / "lumo-tiny"
PROMPTS = EMBEDDED_MODEL.parent / "prompts"

Model = Annotated[Path, typer.Option("--model", help="Checkpoint folder.")]
MaxTokens = Annotated[int, typer.Option("--max-tokens", help="Most tokens to emit.")]
MinTokens = Annotated[int, typer.Option("--min-tokens", help="No end token before this many.")]
Temperature = Annotated[float | None, typer.Option("--temperature", help="0 is greedy.")]
TopP = Annotated[float | None, typer.Option("--top-p", help="1 is off.")]
TopK = Annotated[int | None, typer.Option("--top-k", help="0 is off; boundary ties are kept.")]
MinP = Annotated[float | None, typer.Option("--min-p", help="0 is off.")]
Presence = Annotated[float | None, typer.Option("--presence-penalty", help="0 is off.")]
Frequency = Annotated[float | None, typer.Option("--frequency-penalty", help="0 is off.")]
Repetition = Annotated[float | None, typer.Option("--repetition-penalty", help="1 is off.")]
Seed = Annotated[int | None, typer.Option("--seed", help="Unset: drawn and reported.")]
Stop = Annotated[list[str] | None, typer.Option("--stop", help="Stop string; repeatable.")]
StopIds = Annotated[list[int] | None, typer.Option("--stop-token-ids", help="Stop token id.")]
IgnoreEos = Annotated[bool, typer.Option("--ignore-eos", help="Go on past end tokens.")]
Mode = Annotated[str, typer.Option("--mode", help="off, chain or tree.")]
Shape = Annotated[
    str | None,
    typer.Option("--shape", help="hydra27, adaptive, chain-K, or a JSON list of parents."),
]
Drafter = Annotated[
    str,
    typer.Option("--drafter", help="mtp, or random, oracle:F, adversarial:D:F, replay:F."),
]
NoSuffix = Annotated[bool, typer.Option("--no-suffix", help="Draft without suffix look-ups.")]
Threads = Annotated[int, typer.Option("--threads", help="CPU threads of the matrix products.")]
Context = Annotated[int, typer.Option("--max-model-len", help="Positions of a sequence.")]
_DTYPE = typer.Option("--dtype", help="auto, float32 or bfloat16; auto follows the device.")
Dtype = Annotated[str, _DTYPE]
OptionalDtype = Annotated[str | None, _DTYPE]
Runtime = Annotated[str, typer.Option("--runtime", help="inproc or ray.")]
Device = Annotated[str, typer.Option("--device", help="cpu, cuda or cuda:N.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
