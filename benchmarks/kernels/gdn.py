"""GDN component benchmark: correctness gate, then time, on a GPU.

48 layers of the 27B shape; graph and eager; the L2 is flushed before each iteration, the accepted
frontier cycles through all nodes. Run: python -m benchmarks.kernels.gdn [--packages] [--out DIR]
"""

import argparse
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl

from benchmarks.kernels import gdn_arms as arms
from benchmarks.kernels import gdn_package_arms as package_arms
from benchmarks.kernels import gdn_solve_arms as solve_arms
from benchmarks.kernels.gdn_data import (
    PARENTS,
    Problem,
    Sequential,
    cells_outside,
    make_problem,
    sequential,
    set_path,
)
from benchmarks.kernels.gdn_gate import check
from benchmarks.kernels.timing import RESULTS, machine

WARM, TIMED = 20, 100
DEVICE = torch.device("cuda")


@triton.jit
def read_kernel(source_ptr, out_ptr, SIZE: tl.constexpr):
    """Read SIZE floats a program; the floor of a verification."""
    x = tl.load(source_ptr + tl.program_id(0) * SIZE + tl.arange(0, SIZE))
    tl.store(out_ptr + tl.program_id(0), tl.sum(x))


@triton.jit
def copy_kernel(source_ptr, out_ptr, SIZE: tl.constexpr):
    """Copy SIZE floats a program; the floor of a publication."""
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(out_ptr + at, tl.load(source_ptr + at))


class Clock:
    """Time device work: events around it, the L2 flushed before, nothing else in between."""

    def __init__(self) -> None:
        self.trash = torch.empty(256 << 20, dtype=torch.uint8, device=DEVICE)
        self.stream = torch.cuda.Stream()

    def time(
        self,
        work: Callable[[], Any],
        before: Callable[[int], None] | None = None,
        timed: int = TIMED,
    ) -> dict[str, float]:
        """Return median, p10 and p90 of `work` in microseconds."""
        times = []
        with torch.cuda.stream(self.stream):
            for index in range(WARM + timed):
                if before:
                    before(index)
                self.trash.zero_()
                torch.cuda.synchronize()
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                start.record()
                work()
                end.record()
                torch.cuda.synchronize()
                times.append(1e3 * start.elapsed_time(end))
        times = sorted(times[WARM:])
        ends = times[timed // 10], times[-1 - timed // 10]
        return {"us": statistics.median(times), "p10": ends[0], "p90": ends[1]}

    def graph(self, work: Callable[[], Any]) -> Callable[[], None]:
        """Capture `work` in a graph and return its replay."""
        with torch.cuda.stream(self.stream):
            work()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=self.stream):
                work()
        return graph.replay


def floors(clock: Clock, problem: Problem) -> dict[str, dict[str, float]]:
    """Return the times of the two floors: 48 reading launches, one copying launch."""
    states = problem.case.recurrent[0]
    sink = torch.empty(1 << 20, device=DEVICE)
    programs = states[0, 0].numel() // 1024

    def read() -> None:
        for layer in range(states.shape[1]):
            read_kernel[(programs,)](states[0, layer], sink, SIZE=1024)

    def copy() -> None:
        copy_kernel[(programs * states.shape[1],)](states[0], states[1], SIZE=1024)

    def empty() -> None:
        for _ in range(states.shape[1]):
            read_kernel[(1,)](states[0], sink, SIZE=1024)

    work = {"read_48": read, "copy_1": copy, "tiny_48": empty}
    return {name: clock.time(clock.graph(run)) for name, run in work.items()}


def measure(clock: Clock, problem: Problem, arm: Any) -> dict[str, Any]:
    """Return an arm's times."""
    live = problem.tree.num_nodes
    paths = torch.zeros(live, 64, dtype=torch.int32)
    for node in range(live):
        set_path(problem, node)
        paths[node] = problem.case.path[0].cpu()
    paths = paths.to(DEVICE)

    def frontier(index: int) -> None:
        problem.case.path[0].copy_(paths[index % live])

    short = TIMED if "torch" not in arm.name else 20
    verify, commit = clock.graph(arm.verify), clock.graph(arm.commit)
    work: dict[str, tuple[Callable[[], Any], int]] = {
        "verify_graph": (verify, short),
        "commit_graph": (commit, short),
        "total_graph": (lambda: (verify(), commit()), short),
        "total_eager": (lambda: (arm.verify(), arm.commit()), short // 2),
    }
    result: dict[str, Any] = {"arm": arm.name, "buffers_mib": arm.buffers}
    for name, (run, timed) in work.items():
        arm.reset()
        result[name] = clock.time(run, frontier, timed)
    if arm.name.startswith("LumoTree one_pass"):
        for node in (0, _node_of_depth(problem, 11)):
            result[f"commit_length_{len(problem.tree.path_to(node))}"] = clock.time(
                commit, lambda _, node=node: frontier(node)
            )
    return result


def _node_of_depth(problem: Problem, depth: int) -> int:
    return max(range(problem.tree.num_nodes), key=lambda n: min(problem.tree.depths[n], depth))


def accuracy(
    problem: Problem, arm: Any, exact: Sequential, native: Sequential, ours: Sequential
) -> dict[str, Any]:
    """Return errors against float64 and cells outside the paired rule, for two natives."""
    live = problem.tree.num_nodes
    result: dict[str, Any] = {"output_error": 0.0, "state_error": 0.0}
    problem.out.fill_(torch.nan)
    arm.reset()
    first = getattr(arm, "verify_first", arm.verify)
    first()
    found = problem.out[:, :live].clone()
    result["output_error"] = float((found.double() - exact.outputs[:, :live]).abs().max())
    rules = {"torch": native, "chain": ours}
    for name, base in rules.items():
        outputs, truth = base.outputs[:, :live].to(torch.bfloat16), exact.outputs[:, :live]
        result[f"outputs_outside_{name}"] = cells_outside(found, outputs, truth, 1)
    if isinstance(arm, package_arms.Fla):
        return result
    states: dict[str, list[int]] = {name: [0, 0] for name in rules}
    for node, expected in exact.states.items():
        set_path(problem, node)
        arm.reset()
        if isinstance(arm, solve_arms.TreeWY):
            arm.verify_first()
            arm.flush()
        else:
            arm.commit()
        state = arm.committed()
        error = float((state.double() - expected).abs().max())
        result["state_error"] = max(result["state_error"], error)
        for name, base in rules.items():
            outside, cells = cells_outside(state, base.states[node], expected, 2)
            states[name][0] += outside
            states[name][1] += cells
    return result | {f"states_outside_{name}": tuple(value) for name, value in states.items()}


def all_arms(problem: Problem, packages: bool) -> list[Callable[[], Any]]:
    """Return the makers of the arms; only one arm's buffers exist at a time."""
    makers: list[Callable[[], Any]] = [
        lambda: arms.Ours(problem, "one_pass"),
        lambda: arms.Ours(problem, "two_level"),
        lambda: arms.Ours(problem, "triangular"),
        lambda: arms.NativePaths(problem),
        lambda: arms.TorchNodes(problem),
        lambda: solve_arms.Weaver(problem, "tf32"),
        lambda: solve_arms.Weaver(problem, "tf32x3"),
        lambda: solve_arms.TreeWY(problem),
        lambda: solve_arms.Bole(problem),
    ]
    if packages:
        from fla.ops.gated_delta_rule import fused_recurrent_gated_delta_rule
        from sglang.kernels.ops.attention.fla.fused_sigmoid_gating_recurrent import (
            fused_sigmoid_gating_delta_rule_update,
        )

        makers.append(lambda: package_arms.Sglang(problem, fused_sigmoid_gating_delta_rule_update))
        if problem.tree.parents == PARENTS["chain12"]:
            makers.append(lambda: package_arms.Fla(problem, fused_recurrent_gated_delta_rule))
    return makers


def run_shape(clock: Clock, name: str, packages: bool) -> dict[str, Any]:
    """Gate, measure and return one tree shape; only hydra27 runs every arm."""
    problem = make_problem(name, DEVICE)
    live = problem.tree.num_nodes
    keep = tuple(sorted({0, live // 2, (2 * live) // 3, live - 1}))
    exact, native = (sequential(problem, kind, keep) for kind in (torch.float64, torch.float32))
    ours = check(problem, exact, native)
    rows = []
    for make in all_arms(problem, packages):
        arm = make()
        if name != "hydra27" and isinstance(arm, (arms.TorchNodes, solve_arms.Bole)):
            continue
        try:
            row = measure(clock, problem, arm) | accuracy(problem, arm, exact, native, ours)
        except Exception as error:
            row = {"arm": arm.name, "failed": f"{type(error).__name__}: {error}"[:300]}
        rows.append(row)
        del arm
        torch.cuda.empty_cache()
    return {
        "shape": name,
        "nodes": live,
        "floors": floors(clock, problem),
        "torch_states_outside_chain": _states_outside(native, ours, exact),
        "arms": rows,
    }


def _states_outside(found: Sequential, base: Sequential, exact: Sequential) -> tuple[int, int]:
    """Return (state cells outside, cells) of one fp32 recurrence paired with another."""
    pairs = [
        cells_outside(found.states[node], base.states[node], expected, 2)
        for node, expected in exact.states.items()
    ]
    return sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)


def table(result: dict[str, Any]) -> str:
    """Return the printed table of one shape."""
    floor = {key: value["us"] for key, value in result["floors"].items()}
    lines = [f"{result['shape']} ({result['nodes']} nodes); floors in us: {floor}"]
    head = "arm", "verify", "xfloor", "commit", "total", "eager", "MiB", "out err", "state err"
    lines.append("{:52}{:>9}{:>7}{:>8}{:>9}{:>9}{:>8}{:>9}{:>10}  outside".format(*head))
    for row in result["arms"]:
        if "failed" in row:
            lines.append(f"{row['arm']:52} failed: {row['failed'][:120]}")
            continue
        verify, commit, total, eager = (
            row[key]["us"] for key in ("verify_graph", "commit_graph", "total_graph", "total_eager")
        )
        states = [row.get(f"states_outside_{base}", ("-", "-")) for base in ("chain", "torch")]
        lines.append(
            f"{row['arm']:52}{verify:9.1f}{verify / floor['read_48']:7.2f}{commit:8.1f}{total:9.1f}"
            f"{eager:9.1f}{row['buffers_mib']:8.1f}{row['output_error']:9.1e}"
            f"{row['state_error']:10.1e}  out {row['outputs_outside_chain'][0]}"
            f"/{row['outputs_outside_torch'][0]} state {states[0][0]}/{states[1][0]}"
            f" of {states[0][1]}"
        )
        spread = row["verify_graph"]
        lines.append(f"    verify p10-p90: {spread['p10']:.1f} - {spread['p90']:.1f}")
        lengths = [key for key in row if key.startswith("commit_length")]
        for key in lengths:
            ratio = row[key]["us"] / floor["copy_1"]
            lines.append(f"    {key}: {row[key]['us']:.1f} us, {ratio:.2f} x the copy")
    return "\n".join(lines)


def main() -> None:
    """Run the shapes, print the tables, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packages", action="store_true", help="also run fla and SGLang")
    parser.add_argument("--shapes", nargs="*", default=["hydra27", "tree16", "tree8", "chain12"])
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    clock, shapes = Clock(), []
    for name in arguments.shapes:
        shapes.append(run_shape(clock, name, arguments.packages))
        print(table(shapes[-1]), flush=True)
        payload = {"machine": machine(), "warm": WARM, "timed": TIMED, "shapes": shapes}
        (arguments.out / "gdn.json").write_text(json.dumps(payload, indent=1) + "\n")
        text = "\n\n".join(table(shape) for shape in shapes)
        (arguments.out / "gdn.txt").write_text(text + "\n")


if __name__ == "__main__":
    main()
