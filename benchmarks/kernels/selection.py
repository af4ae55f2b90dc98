"""Time selection and the sampler on a GPU against one read of the logits.

Run: python -m benchmarks.kernels.selection

The gate comes first and a red one prints no figure: every row byte-equal to the reference, and
two planted faults (the other tie order, one id moved by one) found.
Each figure is the median of graph replays. `resident`: one buffer, in the L2 cache where it fits;
`rotating`: buffers of four times the L2 in turn, so that every read comes from memory.
"""

from collections.abc import Callable
from dataclasses import fields
from types import ModuleType
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from benchmarks.kernels.timing import graph_times, machine, save
from services.contract.sampling import Budget, SamplingParams
from services.kernels.cases import HYDRA27, make_tree
from services.kernels.sample import cases, kernel
from services.kernels.sample.cases import Sequence
from services.kernels.sample.state import SampleState
from services.kernels.select import kernel as select_kernel
from services.kernels.select import reference as select_reference
from services.kernels.tree_tables import TableViews

Runs = list[Callable[[], None]]
WAYS = {
    "greedy": SamplingParams(),
    "paper": SamplingParams(temperature=0.6, top_k=20, top_p=0.95, presence_penalty=1.0),
    "min-p": SamplingParams(temperature=0.8, min_p=0.05),
    "temperature 1": SamplingParams(temperature=1.0),
}


@triton.jit
def read_kernel(logits, out, vocab, TILE: tl.constexpr):
    """Read a tile of a row and keep one number of it."""
    row, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    offsets = block * TILE + tl.arange(0, TILE)
    x = tl.load(logits + row * vocab + offsets, mask=offsets < vocab, other=0.0)
    tl.store(out + row * tl.num_programs(1) + block, tl.max(x, 0))


def gate_logits(rows: int, vocab: int, kind: int) -> torch.Tensor:
    """Return untied rows, rows of many ties and both zeros, or rows of NaN and infinities."""
    logits = torch.randn(rows, vocab, device="cuda") * 4
    if kind == 1:
        logits = (logits * 4).round() / 16
        logits[:, ::5] = -0.0
    if kind == 2:
        logits[:, ::7], logits[:, 3::11], logits[:, 5::1013] = -torch.inf, torch.nan, torch.inf
    return logits


def ranked(backend: ModuleType, logits: torch.Tensor, k: int, lowest_first: bool) -> torch.Tensor:
    """Return the bytes of values and ids [R, 2k], ranked into poisoned memory."""
    values = torch.full((logits.shape[0], k), torch.nan, device="cuda")
    ids = torch.full((logits.shape[0], k), -9, dtype=torch.int32, device="cuda")
    backend.top_ranked(logits, k, values, ids, lowest_first)
    return torch.cat([values.view(torch.int32), ids], 1)


def gate() -> dict[str, int]:
    """Compare rows with the reference and count what each planted fault is seen in.

    Raises  SystemExit if a row differs or a planted fault is not seen.
    """
    counts = {"rows": 0, "wrong": 0, "other_order_seen": 0, "moved_id_seen": 0}
    for vocab, rows in ((1000, 320), (8192, 320), (50_000, 80), (248_320, 40)):
        for kind in range(3):
            logits = gate_logits(rows, vocab, kind)
            for k in (1, 3, 20, 64):
                wanted = {o: ranked(select_reference, logits, k, o) for o in (True, False)}
                for order in (True, False):
                    found = ranked(select_kernel, logits, k, order)
                    counts["rows"] += rows
                    counts["wrong"] += int((found != wanted[order]).any(1).sum())
                    counts["other_order_seen"] += int((found != wanted[not order]).any(1).sum())
                    found[0, k] += 1
                    counts["moved_id_seen"] += int((found[:1] != wanted[order][:1]).any())
    if counts["wrong"] or not counts["other_order_seen"] or counts["moved_id_seen"] != 96:
        raise SystemExit(f"the gate is red, no figures: {counts}")
    return counts


def buffers(rows: int, vocab: int, rotate: bool) -> list[torch.Tensor]:
    """Return the logits that take turns."""
    size = rows * vocab * 4
    count = max(2, -(-(240 << 20) // size)) if rotate else 1
    return [torch.randn(rows, vocab, device="cuda") for _ in range(min(count, 128))]


def read_runs(logits: list[torch.Tensor]) -> Runs:
    """Return one plain read of each buffer."""
    rows, vocab = logits[0].shape
    blocks = triton.cdiv(vocab, 4096)
    out = torch.empty(rows * blocks, device="cuda")

    def run(x: torch.Tensor) -> None:
        read_kernel[(rows, blocks)](x, out, vocab, TILE=4096, num_warps=8)

    return [lambda x=x: run(x) for x in logits]


def select_runs(logits: list[torch.Tensor], k: int) -> Runs:
    """Return one selection of each buffer."""
    rows = logits[0].shape[0]
    values = torch.empty(rows, k, device="cuda")
    ids = torch.empty(rows, k, dtype=torch.int32, device="cuda")
    return [lambda x=x: select_kernel.top_ranked(x, k, values, ids) for x in logits]


def torch_runs(logits: list[torch.Tensor], k: int) -> Runs:
    """Return torch's argmax and topk of each buffer."""

    def run(x: torch.Tensor) -> None:
        torch.argmax(x, 1)
        torch.topk(x, k, 1)

    return [lambda x=x: run(x) for x in logits]


def selection(vocab: int) -> list[dict[str, Any]]:
    """Return the rows of the selection table."""
    table = []
    for rows in (1, 4, 32):
        for rotate in (False, True) if vocab > 100_000 else (False,):
            logits = buffers(rows, vocab, rotate)
            repeat = logits if rotate else logits * 20
            read = graph_times(read_runs(repeat)).median
            for k in (3, 20):
                found = graph_times(select_runs(repeat, k)).median
                table.append(
                    {
                        "vocab": vocab,
                        "rows": rows,
                        "k": k,
                        "logits": "rotating" if rotate else "resident",
                        "read_us": read,
                        "select_us": found,
                        "bound_us": 1.5 * read + 4,
                        "met": found <= 1.5 * read + 4,
                        "torch_us": graph_times(torch_runs(repeat[:8], k), 10).median,
                    }
                )
    return table


def device_state(sequence: Sequence, vocab: int) -> SampleState:
    """Return one slot's buffers on the device."""
    state = cases.make_state([sequence], vocab, 1)
    values = {f.name: getattr(state, f.name) for f in fields(state) if f.init}
    return SampleState(**{n: v.cuda() if torch.is_tensor(v) else v for n, v in values.items()})


def sampling(vocab: int) -> list[dict[str, Any]]:
    """Return the time of a whole walk of the default tree by parameters."""
    rng, table = np.random.default_rng(3), []
    tree = cases.with_tokens(make_tree(HYDRA27), vocab, rng)
    logits = torch.randn(1, 32, vocab, device="cuda") * 3
    for name, params in WAYS.items():
        sequence = Sequence(params, Budget(1 << 16))
        state = device_state(sequence, vocab)
        tables = TableViews(cases.make_tables([tree], [sequence], [0]).block.cuda())
        times = graph_times([lambda s=state, t=tables: kernel.walk(logits, t, s)])
        table.append({"vocab": vocab, "parameters": name, "rows": 28, "walk_us": times.median})
    return table


def main() -> None:
    """Print and save the tables."""
    result: dict[str, Any] = {"machine": machine(), "gate": gate(), "selection": [], "sampling": []}
    for vocab in (8192, 248_320):
        result["selection"] += selection(vocab)
        result["sampling"] += sampling(vocab)
    for row in [*result["selection"], *result["sampling"]]:
        print(
            " ".join(f"{k}={v:.1f}" if isinstance(v, float) else f"{k}={v}" for k, v in row.items())
        )
    save("selection", result)


if __name__ == "__main__":
    main()
