"""What the paper's audit lacks: every parameter, and ties at the border."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import torch

from benchmarks.proof.check import Check
from benchmarks.proof.sampler_rig import Step, draw_rows, on_device, path_tokens, wanted_token
from benchmarks.proof.world import World
from services.contract.sampling import SamplingParams
from services.kernels import sample
from services.kernels.cases import random_tree
from services.kernels.sample import cases
from services.kernels.tree_tables import TableViews
from tests.sampling import Case, distribution, grid_words, make_case

FAMILY, VOCAB = "sampler", 96


def random_case(rng: np.random.Generator, shapes: random.Random) -> Case:
    """Return a random tree, slot and rows: each parameter on about half of the time."""
    tree = cases.with_tokens(random_tree(shapes), VOCAB, rng)
    step = float(rng.choice([0.0, 0.25, 1.0]))
    sequence = cases.random_sequence(rng, VOCAB)
    return make_case(tree, sequence, cases.make_logits(1, VOCAB, rng, step))


def drawn(case: Case, device: str) -> list[int]:
    """Return the token of every row."""
    out = torch.full((1, 32), -1, dtype=torch.int32, device=device)
    tables = TableViews(case.tables.block.to(device))
    sample.draw(case.logits.to(device), tables, on_device(case.state, device), out)
    return out[0].tolist()


def random_rows(world: World) -> Check:
    """Compare random rows with brute force; the control ignores min-p."""
    rules = world.rules[FAMILY]
    rng, shapes = np.random.default_rng(world.seed), random.Random(world.seed)
    seen = held = changed = 0
    while seen < rules["random_rows"]:
        case = random_case(rng, shapes)
        tokens = drawn(case, world.device)
        step = Step(case.tree, case.sequence, case.logits[0], tokens)
        loose = replace(case.sequence.params, min_p=0.0)
        other = replace(step, sequence=replace(case.sequence, params=loose))
        for node in range(min(case.tree.num_nodes, rules["random_rows"] - seen)):
            history = path_tokens(step, node)
            token, is_border = wanted_token(step, node, history, rules["border"])
            held += token == tokens[node] or is_border
            ignored, _ = wanted_token(other, node, history, rules["border"])
            changed += ignored != tokens[node]
            seen += 1
    detail = {"rows_that_ignoring_min_p_changes": changed}
    name = "random rows: penalties, bias, bans, min-p, top-k, top-p"
    return Check(FAMILY, name, seen, held, changed > 0, detail)


def histories(world: World, steps: list[Step]) -> Check:
    """Compare whole distributions of captured rows, flat enough that every token counts.

    The control gives each row the tokens of all earlier nodes instead of its own path's.
    """
    rules = world.rules[FAMILY]
    points, params = rules["history_points"], SamplingParams(**rules["history_sampling"])
    words = np.repeat(grid_words(points)[:, None], 16, 1)
    rows = held = other = changed = 0
    worst = 0.0
    for step in steps[:: rules["history_every"]]:
        sequence = replace(step.sequence, params=params)
        case = make_case(step.tree, sequence, step.logits[None])
        tokens = draw_rows(case, words, world.device, batch=256)
        for node in range(step.tree.num_nodes):
            counts = np.bincount(tokens[:, node], minlength=case.logits.shape[2])
            error = count_error(counts, case.probabilities(node))
            held, rows, worst = held + (error <= rules["grid_bound"]), rows + 1, max(worst, error)
            flat = list(step.tree.token_ids[1:node])
            if sorted(flat) != sorted(path_tokens(step, node)):
                other += 1
                wrong = distribution(case.row(node), sequence, flat)
                changed += count_error(counts, wrong) > rules["grid_bound"]
    detail = {"worst": worst, "flattened_history_breaks": changed, "of_rows_it_differs_on": other}
    fired = changed > rules["flat_share"] * other
    return Check(FAMILY, "captured rows, whole distributions", rows, held, fired, detail)


def count_error(counts: np.ndarray, probabilities: np.ndarray) -> float:
    """Return the largest |count - M p| of a row drawn at M equally spaced uniforms."""
    return float(np.abs(counts - counts.sum() * probabilities).max())


def tied_rows(world: World) -> Check:
    """Draw rows full of ties at the top-k border; the control keeps exactly k tokens."""
    from benchmarks.proof.sampler import made_case

    rules = world.rules[FAMILY]
    params = SamplingParams(temperature=0.9, top_k=20, min_p=0.02, seed=1)
    points, rows, held, fired = rules["grid_points"], 0, 0, False
    words = np.repeat(grid_words(points)[:, None], 16, 1)
    for index in range(3):
        case = made_case(world.seed + index, params, tie_step=0.5)
        tokens = draw_rows(case, words, world.device)
        for node in range(case.tree.num_nodes):
            counts = np.bincount(tokens[:, node], minlength=case.logits.shape[2])
            exact = case.probabilities(node)
            held += float(np.abs(counts - points * exact).max()) <= rules["grid_bound"]
            cut = _exactly_k(exact, params.top_k)
            fired |= float(np.abs(counts - points * cut).max()) > rules["grid_fault_bound"]
            rows += 1
    return Check(FAMILY, "rows tied at the top-k border", rows, held, fired)


def _exactly_k(probabilities: np.ndarray, k: int) -> np.ndarray:
    order = np.argsort(-probabilities, kind="stable")
    cut = probabilities.copy()
    cut[order[k:]] = 0.0
    return cut / cut.sum()
