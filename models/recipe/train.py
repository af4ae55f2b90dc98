"""Train the tiny hybrid against the clock and write it as a checkpoint folder.

    python -m models.recipe.train --source FOLDER --out FOLDER --budget 900

FOLDER/data holds the token shards of models.recipe.corpus, FOLDER/hf the tokenizer files. The
learning rate follows the clock: flat, then falling to zero over the last part of the budget.
Writes OUT/model, OUT/log.json and OUT/samples.txt.
"""

import argparse
import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from models.recipe.data import Windows, draw_anchors, load_tokens
from models.recipe.evaluate import evaluate, sample
from models.recipe.export import save_checkpoint
from models.recipe.fla_rule import make_delta_rule
from models.recipe.network import Network
from models.recipe.operations import Operations
from models.recipe.optimizer import Optimizer
from models.recipe.probe import choose_variant
from models.recipe.settings import TINY, TOY, Config, Params, compute_copies, first_values

SAMPLE_PROMPTS = (
    "def binary_search(items, target):\n",
    "import os\nimport json\n\n\nclass Config:\n    def __init__(self, path):\n",
    'import numpy as np\n\n\ndef mean_squared_error(y_true, y_pred):\n    """',
    "def test_add():\n",
)


@dataclass(frozen=True, slots=True)
class Options:
    """Hold the options of a run.

    Args    budget, reserve: seconds for everything, and for what follows training. tokens: a
            step. length: of a window; every `long_every`-th step doubles it. anchors: deeper
            MTP positions a window. block: rows of the head at once. decay: last share of the
            training time over which the rate falls. mtp, mtp_deep: loss weights.
    """

    source: Path
    out: Path
    budget: float = 900
    reserve: float = 45
    tokens: int = 131072
    length: int = 4096
    anchors: int = 128
    block: int = 16384
    muon_rate: float = 0.02
    adam_rate: float = 0.004
    weight_decay: float = 0.05
    warmup: int = 150
    decay: float = 0.45
    mtp: float = 0.3
    mtp_deep: float = 0.1
    long_every: int = 6
    rule: str = "auto"
    compile: str = "auto"
    max_steps: int = 1_000_000_000
    toy: bool = False


class Trainer:
    """Hold weights, optimizer and data of one run."""

    def __init__(self, options: Options, config: Config, tokens: torch.Tensor, rule: str) -> None:
        self.options, self.config, self.device = options, config, str(tokens.device)
        self.dtype = torch.bfloat16 if tokens.is_cuda else torch.float32
        operations = Operations()
        self.network = Network(config, make_delta_rule(rule, operations), operations)
        self.masters = first_values(config, 0, self.device)
        rates = options.muon_rate, options.adam_rate, options.weight_decay
        self.optimizer = Optimizer(self.masters, config, *rates)
        copies = compute_copies(self.masters, self.dtype)
        self.weights = {name: value.requires_grad_() for name, value in copies.items()}
        self.windows = Windows(tokens)
        self.num_steps, self.num_tokens, self.step_tokens = 0, 0, options.tokens

    def step(self, rate: float) -> list[float]:
        """Take one step; return the trunk's loss, those by MTP depth, and the gradient norm."""
        o = self.options
        is_long = self.num_steps % o.long_every == o.long_every - 1 and self.device != "cpu"
        length = o.length * (2 if is_long else 1)
        count = max(1, self.step_tokens // length)
        tokens = self.windows.draw(count, length)
        anchors = draw_anchors(count, length, o.anchors * (2 if is_long else 1), self.device)
        main, drafts = self.network.losses(self.weights, tokens, anchors, o.block)
        deep = torch.stack(drafts[1:]).sum()
        (main + o.mtp * drafts[0] + o.mtp_deep * deep).backward()
        gradients = {name: w.grad for name, w in self.weights.items() if w.grad is not None}
        norm = self.optimizer.step(gradients, rate)
        self._refresh()
        self.num_steps += 1
        self.num_tokens += count * length
        return torch.stack([x.detach().float() for x in (main, *drafts, norm)]).tolist()

    def recover(self, error: RuntimeError) -> None:
        """Go on after a failed step with less: half the tokens, or without compiling.

        Raises  the error itself when there is nothing less to try.
        """
        for weight in self.weights.values():
            weight.grad = None
        is_memory = isinstance(error, torch.cuda.OutOfMemoryError)
        if is_memory and self.step_tokens > self.options.length * 4:
            torch.cuda.empty_cache()
            self.step_tokens //= 2
        elif not is_memory and self.num_steps < 40 and self.options.compile != "none":
            self.network.operations.reset()
        else:
            raise error

    def rounded(self) -> Params:
        """Return the weights as the checkpoint will hold them."""
        stored = {name: master.bfloat16().float() for name, master in self.masters.items()}
        return compute_copies(stored, self.dtype)

    @torch.no_grad()
    def _refresh(self) -> None:
        for name, weight in self.weights.items():
            weight.grad = None
            weight.copy_(self.masters[name])


def rate_at(progress: float, num_steps: int, options: Options) -> float:
    """Return the learning rate's factor: warm-up by steps, then by share of the time."""
    rate = min(1.0, (num_steps + 1) / options.warmup)
    start = 1 - options.decay
    return rate * max(0.0, (1 - progress) / options.decay) if progress > start else rate


def train(trainer: Trainer, held_out: dict[str, torch.Tensor], start: float) -> list[Any]:
    """Train until the budget ends; return the history."""
    options, history = trainer.options, []
    end = start + options.budget - options.reserve
    first = next_evaluation = time.time()
    while trainer.num_steps < options.max_steps:
        now = time.time()
        first = now if trainer.num_steps <= 3 else first
        progress = (now - first) / max(1.0, end - first)
        if progress >= 1.0:
            break
        try:
            losses = trainer.step(rate_at(progress, trainer.num_steps, options))
        except RuntimeError as error:
            trainer.recover(error)
            continue
        if trainer.num_steps % 50 == 0:
            history.append({"step": trainer.num_steps, "t": now - start, "losses": losses})
            print(f"step {trainer.num_steps} loss {losses[0]:.4f} tokens {trainer.num_tokens}")
        if now > next_evaluation + 90 and progress < 0.97:
            history.append({"step": trainer.num_steps, "eval": scores(trainer, held_out, 16)})
            next_evaluation = now
    return history


def scores(trainer: Trainer, held_out: dict[str, torch.Tensor], windows: int) -> dict[str, Any]:
    """Return the held-out figures of the weights as stored."""
    length = min(4096, trainer.options.length)
    args = trainer.network, trainer.rounded()
    return {
        name: evaluate(*args, tokens, trainer.device, length, windows)
        for name, tokens in held_out.items()
    }


def main(options: Options) -> None:
    """Probe, load, train, evaluate, save."""
    start = time.time()
    torch.set_float32_matmul_precision("high")
    options.out.mkdir(parents=True, exist_ok=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    sizes = [options.tokens, options.length, options.anchors, options.block]
    with ThreadPoolExecutor(1) as pool:
        loading = pool.submit(load_tokens, options.source)
        rule, level = choose_variant(options.out, options.rule, options.compile, sizes)
        stream, held_out = loading.result()
    tokens = torch.from_numpy(stream.astype(np.int32)).to(device)
    held = {name: torch.from_numpy(x.astype(np.int32)) for name, x in held_out.items()}
    trainer = Trainer(options, TOY if options.toy else TINY, tokens, rule)
    if level != "none":
        trainer.network.operations.compile(level)
    history = train(trainer, held, start)
    save_checkpoint(trainer.masters, trainer.config, options.out / "model", options.source / "hf")
    trainer.network.operations.reset()
    history.append({"final": scores(trainer, held, 64 if device == "cuda" else 2)})
    log = {"config": trainer.config, "args": asdict(options), "hist": history}
    (options.out / "log.json").write_text(json.dumps(log, default=str))
    _write_samples(trainer, start + options.budget - 4)


def _write_samples(trainer: Trainer, until: float) -> None:
    from tokenizers import Tokenizer

    options = trainer.options
    tokenizer = Tokenizer.from_file(str(options.source / "hf" / "tokenizer.json"))
    count = 160 if trainer.device != "cpu" else 8
    args = trainer.network, trainer.rounded(), tokenizer, list(SAMPLE_PROMPTS)
    texts = sample(*args, trainer.device, count, until)
    (options.out / "samples.txt").write_text("\n=====\n".join(texts))


def _options() -> Options:
    parser = argparse.ArgumentParser(description="Train the tiny hybrid.")
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    for name in ("budget", "reserve", "muon-rate", "adam-rate", "weight-decay", "decay"):
        parser.add_argument(f"--{name}", type=float, default=argparse.SUPPRESS)
    for name in ("tokens", "length", "anchors", "block", "warmup", "max-steps"):
        parser.add_argument(f"--{name}", type=int, default=argparse.SUPPRESS)
    for name in ("rule", "compile"):
        parser.add_argument(f"--{name}", default=argparse.SUPPRESS)
    parser.add_argument("--toy", action="store_true")
    return Options(**vars(parser.parse_args()))


if __name__ == "__main__":
    main(_options())
