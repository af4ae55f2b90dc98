"""The planted sampler faults of the paper's Table XII, and a temperature 1% off."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from benchmarks.proof.sampler_rig import Tokens, Words, draw_rows
from tests.sampling import Case, make_case

Draw = Callable[[Case, Words, str], Tokens]


def warmer(factor: float) -> Draw:
    """Draw at another temperature."""

    def draw(case: Case, words: Words, device: str) -> Tokens:
        params = case.sequence.params
        params = replace(params, temperature=params.temperature * factor)
        sequence = replace(case.sequence, params=params)
        return draw_rows(make_case(case.tree, sequence, case.logits), words, device)

    return draw


def temperature_twice(case: Case, words: Words, device: str) -> Tokens:
    """The temperature divides the logits a second time."""
    return warmer(case.sequence.params.temperature)(case, words, device)


def rows_shifted(case: Case, words: Words, device: str) -> Tokens:
    """Every node uses the row of the node before it."""
    logits = case.logits.clone()
    count = case.tree.num_nodes
    logits[:, :count] = logits[:, :count].roll(1, 1)
    return draw_rows(replace(case, logits=logits), words, device)


def fixed_draw(case: Case, words: Words, device: str) -> Tokens:
    """A token outside the tree is always the same one."""
    tokens = draw_rows(case, words, device).copy()
    for node in range(case.tree.num_nodes):
        children = [case.tree.token_ids[child] for child in case.tree.children(node)]
        rest = case.probabilities(node)
        rest[children] = 0.0
        leaves = ~np.isin(tokens[:, node], children)
        tokens[leaves, node] = int(rest.argmax())
    return tokens


def always_accept(case: Case, words: Words, device: str) -> Tokens:
    """A node that has children always takes the first of them."""
    tokens = draw_rows(case, words, device).copy()
    for node in range(case.tree.num_nodes):
        children = case.tree.children(node)
        if children:
            tokens[:, node] = case.tree.token_ids[children[0]]
    return tokens


def correlated_draws(case: Case, words: Words, device: str) -> Tokens:
    """Every depth uses the random number of the root."""
    return draw_rows(case, np.repeat(words[:, :1], words.shape[1], 1), device)


SAMPLER_FAULTS: dict[str, Draw] = {
    "temperature_twice": temperature_twice,
    "rows_shifted": rows_shifted,
    "fixed_draw": fixed_draw,
    "always_accept": always_accept,
    "correlated_draws": correlated_draws,
    "temperature_1_percent": warmer(1.01),
}
