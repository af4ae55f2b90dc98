"""No CPU kernel errs more than 1.1 times the plain fp32 path, against float64.

The rule, for RMS and for the maximum: E <= 1.10 E_plain + 2^-24 M + 2^-149, with M the same
measure of the float64 result.
"""

from collections.abc import Callable

import pytest
import torch

from services.kernels import attention, conv, gdn, linear, norm
from services.kernels.attention import reference as attention_reference
from services.kernels.attention.cases import make_attention_case
from services.kernels.cases import HYDRA27, make_tables, make_tree
from services.kernels.conv import reference as conv_reference
from services.kernels.conv.cases import make_conv_case
from services.kernels.gdn import reference as gdn_reference
from services.kernels.gdn.cases import GdnShape, make_gdn_case
from services.kernels.norm import reference as norm_reference
from services.kernels.norm.cases import inverse_frequencies, normal
from services.kernels.publish.cases import make_words

Results = dict[str, torch.Tensor]
EPS = 1e-6


def rms(x: torch.Tensor) -> float:
    """Return the root mean square."""
    return float(x.double().square().mean().sqrt())


def largest(x: torch.Tensor) -> float:
    """Return the largest absolute value."""
    return float(x.double().abs().max())


def obeys_rule(ours: torch.Tensor, plain: torch.Tensor, exact: torch.Tensor) -> bool:
    """Say whether `ours` keeps the rule in both measures."""
    for measure in (rms, largest):
        bound = 1.10 * measure(plain.double() - exact) + 2**-24 * measure(exact) + 2**-149
        if not measure(ours.double() - exact) <= bound:
            return False
    return True


def gdn_results(seed: int, width: int) -> tuple[Results, Results, Results]:
    """Return outputs and states of a tree and of a replayed path, three ways."""
    shape = GdnShape(slots=1, layers=2, dk=width, dv=width)
    tables, results = make_tables([make_tree(HYDRA27)], [10], [0]), []
    for backend, dtype in (
        (gdn, torch.float32),
        (gdn_reference, torch.float32),
        (gdn_reference, torch.float64),
    ):
        case = make_gdn_case(shape, seed)
        nodes = torch.tensor([0, 1, 4, 9, 14, 18, 22, 23, 24, 25, 26, 27], dtype=torch.int32)
        case.path[0, 2], case.path[0, 16:28] = 12, nodes
        state = case.recurrent.to(dtype)
        out = torch.full((32, 6, width), torch.nan, dtype=dtype)
        rings = case.mixed_ring, case.ab_ring
        backend.scan(*rings, case.a_log[1], case.dt_bias[1], state, case.words, 1, tables, out)
        slots = torch.tensor([0], dtype=torch.int32)
        params = case.a_log, case.dt_bias
        backend.replay(*rings, *params, state, case.words, case.path, slots)
        results.append({"out": out[:28], "state": state[0, 1]})
    return results[0], results[1], results[2]


def conv_results(seed: int) -> tuple[Results, Results, Results]:
    """Return the mixed rows of a tree, three ways."""
    tables, results = make_tables([make_tree(HYDRA27)], [10], [0]), []
    for backend, dtype in (
        (conv, torch.float32),
        (conv_reference, torch.float32),
        (conv_reference, torch.float64),
    ):
        case = make_conv_case(32, slots=1, seed=seed)
        rings = [ring.to(dtype) for ring in (case.raw_ring, case.mixed_ring, case.ab_ring)]
        rows = case.raw.to(dtype), case.ab.to(dtype), case.conv.to(dtype)
        backend.conv_tree(*rows, make_words(1), 1, tables, case.weight.to(dtype), *rings)
        results.append({"mixed": rings[1][0, 1, :28]})
    return results[0], results[1], results[2]


def attention_results(seed: int, dim: int) -> tuple[Results, Results, Results]:
    """Return the outputs of a tree at 300 tokens, three ways."""
    case = make_attention_case(32, 400, slots=1, dim=dim, seed=seed)
    tables, results = make_tables([make_tree(HYDRA27)], [300], [0]), []
    for backend, dtype in (
        (attention, torch.float32),
        (attention_reference, torch.float32),
        (attention_reference, torch.float64),
    ):
        out = torch.full_like(case.q, torch.nan, dtype=dtype)
        keys = case.kv.to(dtype), case.kv_ring.to(dtype)
        backend.attend(case.q.to(dtype), *keys, 1, case.page_table, tables, out)
        results.append({"out": out[:28]})
    return results[0], results[1], results[2]


def norm_results(seed: int) -> tuple[Results, Results, Results]:
    """Return every row-local operation, three ways."""
    results = []
    for backend, dtype in (
        (norm, torch.float32),
        (norm_reference, torch.float32),
        (norm_reference, torch.float64),
    ):
        x, weight = normal(32, 768, seed=seed).to(dtype), normal(768, seed=1, scale=0.2).to(dtype)
        names = {"rms": 768, "add": 768, "gated": 384, "gate": 256, "silu": 384}
        outs = {
            name: torch.full((32, width), torch.nan, dtype=dtype) for name, width in names.items()
        }
        backend.rms_norm(x, weight, EPS, outs["rms"])
        backend.add_rms_norm(x.clone(), x, weight, EPS, outs["add"])
        core = x[:, :384].reshape(32, 6, 64).contiguous()
        backend.gated_norm(core, x[:, 384:], weight[:64].clone(), EPS, "silu", outs["gated"])
        backend.sigmoid_gate(x[:, :256].reshape(32, 4, 64).contiguous(), x, outs["gate"])
        backend.silu_mul(x, outs["silu"])
        q, ring = (
            torch.full(s, torch.nan, dtype=dtype) for s in ((32, 4, 64), (1, 1, 2, 2, 32, 64))
        )
        tables = make_tables([make_tree(HYDRA27)], [500], [0])
        weights = weight[:64].clone(), weight[64:128].clone()
        freq = inverse_frequencies(16)
        backend.qk_norm_rope_ring(x, *weights, freq, EPS, tables, ring, 0, q)
        results.append({**outs, "q": q[:28], "ring": ring[..., :28, :]})
    return results[0], results[1], results[2]


def linear_results(seed: int, depth: int) -> tuple[Results, Results, Results]:
    """Return a product over `depth`, three ways."""
    x, weight = normal(32, depth, seed=seed), normal(320, depth, seed=seed + 1)
    out = torch.full((32, 320), torch.nan)
    linear.linear(x, weight, out)
    exact = x.double() @ weight.double().t()
    return {"out": out}, {"out": torch.nn.functional.linear(x, weight)}, {"out": exact}


CASES: dict[str, Callable[[int], tuple[Results, Results, Results]]] = {
    "gdn-64": lambda seed: gdn_results(seed, 64),
    "gdn-128": lambda seed: gdn_results(seed, 128),
    "conv": conv_results,
    "attention-64": lambda seed: attention_results(seed, 64),
    "attention-256": lambda seed: attention_results(seed, 256),
    "norm": norm_results,
    "linear-256": lambda seed: linear_results(seed, 256),
    "linear-640": lambda seed: linear_results(seed, 640),
}


@pytest.mark.parametrize("name", CASES)
def test_kernel_errs_no_more_than_the_plain_path(name: str, seed: int) -> None:
    for turn in range(3):
        ours, plain, exact = CASES[name](seed + turn)
        for key, value in ours.items():
            assert obeys_rule(value, plain[key], exact[key]), (key, turn)


@pytest.mark.parametrize("name", CASES)
def test_rule_refuses_an_error_of_a_few_ulp(name: str, seed: int) -> None:
    ours, plain, exact = CASES[name](seed)
    for key, value in ours.items():
        assert not obeys_rule(value * (1 + 2e-6), plain[key], exact[key]), key
