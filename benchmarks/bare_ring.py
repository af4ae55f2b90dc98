"""The least that a ring of four processes costs on this machine, without a model.

Run: python -m benchmarks.bare_ring. Three processes receive, parse, read some memory, serialise
and send, as the stages do; a fourth sends a cycle message and receives it. Gate: every message
comes back whole. The cost is the round trip less the time in which the three read memory. What
a stage reads pushes the code of a hop out of the caches: that is what the sizes show.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from services.contract.limits import STAGE_MESSAGE_BYTES
from services.contract.tree import Tree, TreeTag, tree_to_proto
from services.contract.wire import parse
from services.runtime.sockets import Channel, Listener, RingClosedError, connect
from services.runtime.stage import StageMessage

RESULTS = Path(__file__).resolve().parent / "results"
STAGES = 3
READ_MIB = (0, 1, 4, 16, 40)


def cycle_message() -> StageMessage:
    """Return a cycle message with a tree of 28 nodes."""
    parents = [*range(-1, 14), 0, *range(15, 27)]
    tree = Tree.checked(parents, range(28), [1, *[2] * 27], [0.0] * 28)
    message = StageMessage(epoch=1, sequence_number=1)
    part = message.cycle.sequences.add(slot=0, generation=1, cycle=7, committed_length=900)
    part.tree.CopyFrom(tree_to_proto(tree, TreeTag("bare", 0, 1, 7, 900, 0, 1)))
    return message


def stage(inbox: str, outbox: str, read_mib: int, cores: Sequence[int]) -> None:
    """Serve one place of the ring until it ends."""
    os.sched_setaffinity(0, cores)
    block = np.zeros(max(read_mib << 18, 1), np.int32)
    listener = Listener(inbox)
    outward = _connected(outbox)
    inward = listener.accept(30.0)
    try:
        while True:
            message = parse(StageMessage, inward.receive(), STAGE_MESSAGE_BYTES)
            start = time.perf_counter()
            if read_mib:
                block.sum()
            took = int((time.perf_counter() - start) * 1e6)
            message.spans.add(step_us=took)
            outward.send(message.SerializeToString())
    except RingClosedError:
        return


def _connected(name: str) -> Channel:
    for _ in range(1000):
        try:
            return connect(name, 5.0)
        except RingClosedError:
            time.sleep(0.01)
    raise TimeoutError("a process of the ring did not start; look at its output")


def rounds(read_mib: int, cores: Sequence[int], count: int) -> list[float]:
    """Return the microseconds of `count` rounds outside the memory reads."""
    sent = cycle_message()
    names = [f"\0bare-ring-{os.getpid()}-{read_mib}-{len(cores)}-{i}" for i in range(STAGES + 1)]
    context = multiprocessing.get_context("spawn")
    listener = Listener(names[-1])
    ends = [(names[i], names[i + 1], read_mib, cores) for i in range(STAGES)]
    processes = [context.Process(target=stage, args=end, daemon=True) for end in ends]
    for process in processes:
        process.start()
    out = _connected(names[0])
    back = listener.accept(30.0)
    took = [_round(out, back, sent) for _ in range(count + 20)]
    out.close()
    for process in processes:
        process.join()
    return took[20:]


def _round(out: Channel, back: Channel, sent: StageMessage) -> float:
    start = time.perf_counter()
    out.send(sent.SerializeToString())
    answer = parse(StageMessage, back.receive(30.0), STAGE_MESSAGE_BYTES)
    took = (time.perf_counter() - start) * 1e6
    if answer.cycle != sent.cycle or len(answer.spans) != STAGES:
        raise SystemExit("the gate is red: a message came back changed")
    return took - sum(span.step_us for span in answer.spans)


def main() -> None:
    """Measure and write benchmarks/results/bare_ring.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=300)
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    places = {"stages_on_one_core": cores[-1:], "stages_anywhere": cores}
    rows = []
    for read_mib in READ_MIB:
        row: dict[str, float] = {"read_mib": read_mib}
        for name, allowed in places.items():
            cuts = statistics.quantiles(rounds(read_mib, allowed, options.rounds), n=10)
            row |= {f"{name}_p10_us": round(cuts[0]), f"{name}_p50_us": round(cuts[4])}
        rows.append(row)
        print(row, flush=True)
    facts = {"cpu": platform.processor() or platform.machine(), "cpus": len(cores)}
    size = len(cycle_message().SerializeToString())
    report = {**facts, "message_bytes": size, "load": os.getloadavg()[0], "rows": rows}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "bare_ring.json").write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
