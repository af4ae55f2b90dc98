"""Try each fast variant in a process of its own: a crash there costs nothing."""

import json
import math
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any

import torch

from models.recipe.data import draw_anchors
from models.recipe.fla_rule import make_delta_rule, rule_errors
from models.recipe.network import Network
from models.recipe.operations import Operations
from models.recipe.settings import MTP_DEPTH, TINY, Params, compute_copies, first_values

TOLERANCES = {"o": 0.02, "dq": 0.03, "dk": 0.03, "dv": 0.03, "dg": 0.05, "dbeta": 0.04}
KINDS = ("fla1", "fla2", "fla2w2")
MARK = "PROBE "
Result = dict[str, Any]


class Probe:
    """Run `python -m models.recipe.probe` with a variant; collect its one line of JSON."""

    def __init__(self, folder: Path, what: str, kind: str, level: str, sizes: list[int]) -> None:
        self.name = f"{what} {kind} {level}"
        self._start = time.time()
        self._log: IO[str] = (folder / f"probe_{what}_{kind}_{level}.log").open("w+")
        words = [what, kind, level, *map(str, sizes)]
        command = [sys.executable, "-m", "models.recipe.probe", *words]
        self._process = subprocess.Popen(command, stdout=self._log, stderr=subprocess.STDOUT)

    def result(self, timeout_s: float) -> Result | None:
        """Wait until `timeout_s` after the start; return what was printed, None on failure."""
        try:
            self._process.wait(max(1.0, self._start + timeout_s - time.time()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.seek(0)
        lines = [line for line in self._log if line.startswith(MARK)]
        found: Result | None = json.loads(lines[-1].removeprefix(MARK)) if lines else None
        print(f"probe {self.name}: {found or f'no result, exit {self._process.returncode}'}")
        return found


def choose_variant(folder: Path, kind: str, level: str, sizes: list[int]) -> tuple[str, str]:
    """Return the (delta rule, compile level) that is right and fast here.

    Args    kind, level: "auto" to probe; anything else is taken as it is.
    """
    if not torch.cuda.is_available():
        return "torch", "none"
    kinds = KINDS if kind == "auto" else ()
    best = "torch" if kinds else kind
    lead = kinds[0] if kinds else kind
    full = Probe(folder, "step", lead, "full", sizes) if level == "auto" else None
    trials = [(name, Probe(folder, "rule", name, "none", sizes)) for name in kinds]
    for name, trial in reversed(trials):
        if _is_right(trial.result(150)):
            best = name
    if full is None:
        return best, level
    found = full.result(230 if best == lead else 1)
    if best == lead and _is_sound(found):
        return best, "full"
    for other in ["part"] if best == lead else ["full", "part"]:
        if _is_sound(Probe(folder, "step", best, other, sizes).result(150)):
            return best, other
    return best, "none"


def _is_right(result: Result | None) -> bool:
    if not result or not result["finite"]:
        return False
    return all(result["errors"][name] < bound for name, bound in TOLERANCES.items())


def _is_sound(result: Result | None) -> bool:
    return bool(result and result["finite"] and result.get("compile_error", 9) < 0.2)


def probe_rule(kind: str) -> Result:
    """Return the errors of a delta rule against the fp32 one."""
    is_cuda = torch.cuda.is_available()
    errors = rule_errors(kind, "cuda" if is_cuda else "cpu", 512 if is_cuda else 128)
    return {"errors": errors, "finite": all(map(math.isfinite, errors.values()))}


def probe_step(kind: str, level: str, sizes: list[int]) -> Result:
    """Return the time of training steps at both window lengths, and what compiling changed."""
    num_tokens, length, num_anchors, block = sizes
    device = "cuda" if torch.cuda.is_available() else "cpu"
    operations = Operations()
    network = Network(TINY, make_delta_rule(kind, operations), operations)
    masters = first_values(TINY, 0, device)
    if level != "none":
        operations.compile(level)
    result: Result = {"finite": True}
    for size in (length, 2 * length):
        batch = num_tokens // size, size
        gradients, milliseconds = _timed(network, masters, batch, num_anchors, block, device)
        result[f"ms_{size}"] = milliseconds
        result["finite"] &= all(bool(torch.isfinite(g).all()) for g in gradients.values())
    if level != "none":
        batch = num_tokens // length, length
        result["compile_error"] = _compile_error(
            network, masters, batch, num_anchors, block, device
        )
    return result


def _timed(
    network: Network,
    masters: Params,
    batch: tuple[int, int],
    num_anchors: int,
    block: int,
    device: str,
) -> tuple[Params, float]:
    start = 0.0
    for index in range(5):
        if index == 2:
            _synchronise(device)
            start = time.time()
        gradients = _gradients(network, masters, *batch, num_anchors, block, device)
    _synchronise(device)
    return gradients, (time.time() - start) / 3 * 1e3


def _compile_error(
    network: Network,
    masters: Params,
    batch: tuple[int, int],
    num_anchors: int,
    block: int,
    device: str,
) -> float:
    """Return the relative difference of compiled and eager gradients; 0 if eager is too large."""
    try:
        compiled = _gradients(network, masters, *batch, num_anchors, block, device)
        network.operations.reset()
        eager = _gradients(network, masters, *batch, num_anchors, block, device)
    except torch.cuda.OutOfMemoryError:
        return 0.0
    apart = sum(float((compiled[name] - eager[name]).norm()) ** 2 for name in eager)
    return math.sqrt(apart / sum(float(eager[name].norm()) ** 2 for name in eager))


def _gradients(
    network: Network,
    masters: Params,
    windows: int,
    length: int,
    num_anchors: int,
    block: int,
    device: str,
) -> Params:
    torch.manual_seed(0)
    tokens = torch.randint(0, TINY["vocab_size"], (windows, length + MTP_DEPTH + 1), device=device)
    anchors = draw_anchors(windows, length, num_anchors, device)
    copies = compute_copies(masters, torch.bfloat16)
    weights = {name: value.requires_grad_() for name, value in copies.items()}
    main, drafts = network.losses(weights, tokens, anchors, block)
    (main + 0.3 * torch.stack(drafts).sum()).backward()
    return {name: w.grad.float() for name, w in weights.items() if w.grad is not None}


def _synchronise(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    what, kind, level, *numbers = sys.argv[1:]
    if what == "rule":
        print(MARK + json.dumps(probe_rule(kind)), flush=True)
    else:
        print(MARK + json.dumps(probe_step(kind, level, [int(n) for n in numbers])), flush=True)
