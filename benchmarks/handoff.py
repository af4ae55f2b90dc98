"""What it costs a cycle to pass through three processes: actors against one process.

Run: python -m benchmarks.handoff. Gate: both runtimes give the same tokens and digests. The
runtimes alternate request by request in one run on one machine. The hand-off of a cycle is its
round trip as the gateway sees it, less the time inside the three stages.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from services.commands.options import EMBEDDED_MODEL
from services.contract.config import EngineConfig
from services.contract.sampling import Budget, Drafting, SamplingParams
from services.gateway.engine import Engine, Generation
from services.gateway.requests import GenerationRequest
from services.runtime.ray_group import RayGroup
from services.runtime.stage import StageMessage

RESULTS = Path(__file__).resolve().parent / "results"
PROMPTS = (
    "def fibonacci(n):\n",
    "class Stack:\n    def __init__(self):\n",
    "import os\n\n\ndef list_files(folder):\n",
    "def parse(text: str) -> dict[str, int]:\n",
)
RUNTIMES = ("inproc", "ray")
CONTEXT = 1024


@dataclass
class Arm:
    """One runtime's engine and what its cycles took, in microseconds."""

    engine: Engine
    rounds: list[float] = field(default_factory=list)
    handoffs: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        send = self.engine.group.send

        def timed(message: StageMessage) -> StageMessage:
            is_cycle = message.WhichOneof("body") == "cycle"
            start = time.perf_counter()
            reply = send(message)
            if is_cycle:
                took = (time.perf_counter() - start) * 1e6
                self.rounds.append(took)
                self.handoffs.append(took - sum(span.step_us for span in reply.spans))
            return reply

        vars(self.engine.group)["send"] = timed

    def forget(self) -> None:
        """Drop what the warm-up measured."""
        for figures in (self.rounds, self.handoffs, self.rates):
            figures.clear()


def generate(
    engine: Engine, prompt: str, seed: int, most: int, wants_digest: bool = False
) -> Generation:
    """Generate one completion."""
    ids = tuple(engine.codec.encode(prompt))
    return engine.generate(
        GenerationRequest(
            request_id=engine.next_request_id(),
            prompt_ids=ids,
            sampling=SamplingParams(temperature=0.6, top_p=0.95, top_k=20, seed=seed),
            budget=Budget(most, context_length=CONTEXT),
            drafting=Drafting(),
            sink=lambda event: None,
            wants_digest=wants_digest,
        )
    )


def gate(arms: dict[str, Arm], most: int) -> int:
    """Compare tokens and the digest after every cycle; return how many digests were equal."""
    count = 0
    for prompt in PROMPTS:
        found = [generate(arm.engine, prompt, 1, most, wants_digest=True) for arm in arms.values()]
        texts = [g.finished.token_ids for g in found]
        digests = [[delta.digest for delta in g.deltas] for g in found]
        if texts[0] != texts[1] or digests[0] != digests[1] or not all(digests[0]):
            raise SystemExit("the gate is red: the runtimes give different tokens or digests")
        count += len(digests[0])
    return count


def measure(arms: dict[str, Arm], repeats: int, most: int) -> list[float]:
    """Run every prompt on both runtimes in turn; return the rate ratios, ray over inproc."""
    ratios = []
    for repeat in range(repeats):
        for place, prompt in enumerate(PROMPTS):
            order = RUNTIMES if (repeat + place) % 2 else RUNTIMES[::-1]
            found = {name: generate(arms[name].engine, prompt, repeat, most) for name in order}
            tokens = {name: g.finished.token_ids for name, g in found.items()}
            if tokens["inproc"] != tokens["ray"]:
                raise SystemExit("the gate is red: the runtimes give different tokens")
            for name, g in found.items():
                rate = len(g.finished.token_ids) / (g.finished.timing.decode_ms / 1e3)
                arms[name].rates.append(rate)
            ratios.append(arms["ray"].rates[-1] / arms["inproc"].rates[-1])
    return ratios


def recovery(engine: Engine) -> dict[str, float]:
    """Kill each stage of an idle group; return the seconds until it serves again."""
    group, took = engine.group, {}
    if not isinstance(group, RayGroup):
        return took
    for stage, pid in group.stage_pids().items():
        os.kill(pid, signal.SIGKILL)
        start = time.monotonic()
        while all(group.health().values()):
            time.sleep(0.001)
        noticed = time.monotonic() - start
        while not all(group.health().values()):
            time.sleep(0.01)
        took[f"{stage}_noticed_ms"] = round(1e3 * noticed, 1)
        took[f"{stage}_serving_s"] = round(time.monotonic() - start, 2)
    return took


def quantiles(values: list[float]) -> dict[str, float]:
    """Return median, 10th, 90th and 99th percentile."""
    cuts = statistics.quantiles(values, n=100)
    named = {"p10": cuts[9], "p50": cuts[49], "p90": cuts[89], "p99": cuts[98]}
    return {name: round(value, 1) for name, value in named.items()}


def main() -> None:
    """Measure and write benchmarks/results/handoff.json or handoff_gpu.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=6)
    parser.add_argument("--tokens", type=int, default=192)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--mps", action="store_true", help="start MPS for the stages")
    parser.add_argument("--no-recovery", action="store_true", help="kill no stage at the end")
    options = parser.parse_args()
    arms: dict[str, Arm] = {}
    try:
        for runtime in RUNTIMES:
            config = EngineConfig(
                model=str(EMBEDDED_MODEL),
                runtime=runtime,
                threads=options.threads,
                device=options.device,
                mps=options.mps and runtime == "ray",
                context_length=CONTEXT,
                max_sequences=1,
            )
            arms[runtime] = Arm(Engine.open(config))
        equal = gate(arms, options.tokens)
        measure(arms, 1, options.tokens)
        for arm in arms.values():
            arm.forget()
        ratios = measure(arms, options.repeats, options.tokens)
        report = {"equal_digests": equal, **summary(arms, ratios)}
        mode = str(arms["ray"].engine.group.stats()["mode"]) + "_mps" * options.mps
        if not options.no_recovery:
            report["recovery"] = recovery(arms["ray"].engine)
    finally:
        for arm in arms.values():
            arm.engine.close()
    report["settings"] = vars(options) | {"cpus": os.cpu_count(), "load": os.getloadavg()[0]}
    RESULTS.mkdir(exist_ok=True)
    keep(report, mode, options.device)
    print(json.dumps(report, indent=1))


def keep(report: dict[str, Any], mode: str, device: str) -> None:
    """Write a report: the CPU's in a file of its own, a GPU's beside its other modes."""
    if device == "cpu":
        path, kept = RESULTS / "handoff.json", report
    else:
        path = RESULTS / "handoff_gpu.json"
        others = json.loads(path.read_text()) if path.exists() else {}
        kept = others | {mode: report}
    path.write_text(json.dumps(kept, indent=1) + "\n")


def gpu(arms: dict[str, Arm]) -> dict[str, str]:
    """Return the name of the arms' GPU, if they run on one."""
    device = arms["inproc"].engine.config.device
    return {} if device == "cpu" else {"gpu": torch.cuda.get_device_name(device)}


def summary(arms: dict[str, Arm], ratios: list[float]) -> dict[str, Any]:
    """Return the figures of both runtimes and what lies between them."""
    figures = {
        name: {
            "cycles": len(arm.rounds),
            "round_us": quantiles(arm.rounds),
            "handoff_us": quantiles(arm.handoffs),
            "tokens_per_s": quantiles(arm.rates),
        }
        for name, arm in arms.items()
    }
    added = statistics.median(arms["ray"].handoffs) - statistics.median(arms["inproc"].handoffs)
    return {
        "machine": {"cpu": platform.machine(), "torch": torch.__version__, **gpu(arms)},
        **figures,
        "added_handoff_us_p50": round(added, 1),
        "rate_ratio_p50": round(statistics.median(ratios), 4),
        "rate_ratios": [round(ratio, 3) for ratio in ratios],
    }


if __name__ == "__main__":
    main()
