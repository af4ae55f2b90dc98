"""The life of sequences: random programs over the stages (promise N12)."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from benchmarks.proof.check import Check, left_out
from benchmarks.proof.world import World

FAMILY, NAME = "lifecycle", "random programs of a sequence's life"


def run(world: World) -> Iterator[Check]:
    """Yield the state machine's result; the control leaves a reused row uncleared."""
    if world.device != "cpu":
        yield left_out(FAMILY, NAME, "not run: the state machine drives the CPU stages")
        return
    try:
        from tests.lifecycle import test_state_machine as machine
    except ImportError as error:
        yield left_out(FAMILY, NAME, f"not run: {error.name} is not installed")
        return
    from tests.lifecycle.world import World as Books

    logging.disable(logging.CRITICAL)  # the programs break stages on purpose
    rules, books = world.rules[FAMILY], Books(world.model)
    programs = rules["programs"]
    try:
        seen = dict(machine.run(books, programs))
        held = programs
    except AssertionError as error:
        seen, held = {"error": str(error)[:200]}, 0
    mend = machine.keep_recurrent_rows(books)
    try:
        machine.run(books, rules["control_programs"])
        fired = False
    except AssertionError:
        fired = True
    finally:
        mend()
        logging.disable(logging.NOTSET)
    yield Check(FAMILY, NAME, programs, held, fired, {"events": seen})
    yield left_out(FAMILY, "prefix hit", "not built: no prefix cache")
