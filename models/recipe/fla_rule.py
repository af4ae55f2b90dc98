"""The delta rule by fla's chunk kernels, with parts of its backward replaced."""

import math
from typing import Any

import torch
import torch.nn.functional as F

from models.recipe.delta_rule import DeltaRule, chunked_delta_rule
from models.recipe.operations import Operations

CHUNK = 64


def make_delta_rule(kind: str, operations: Operations) -> DeltaRule:
    """Return the rule of a kind.

    Args    kind: "torch"; "fla1" (fla, its query-key backward replaced); "fla2" (its factor
            backward too); with a trailing "w2" kernels of 2 warps instead of 4.
    """
    if kind == "torch":
        return chunked_delta_rule
    import fla.ops.gated_delta_rule.chunk as kernels

    _pin_configurations(2 if kind.endswith("w2") else 4)
    kernels.chunk_bwd_dqkwg = _query_key_backward(operations)
    if kind.startswith("fla2"):
        kernels.prepare_wy_repr_bwd = _factor_backward(operations)

    def rule(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, decay: torch.Tensor, beta: torch.Tensor
    ) -> torch.Tensor:
        length = q.shape[1]
        padding = -length % CHUNK
        if padding:
            q, k, v = (F.pad(x, (0, 0, 0, 0, 0, padding)) for x in (q, k, v))
            decay, beta = (F.pad(x, (0, 0, 0, padding)) for x in (decay, beta))
        out, _ = kernels.chunk_gated_delta_rule(q, k, v, decay, beta, use_qk_l2norm_in_kernel=True)
        return out[:, :length]

    return rule


def rule_errors(kind: str, device: str, length: int) -> dict[str, float]:
    """Return the largest relative errors of output and gradients against the fp32 rule."""
    torch.manual_seed(1)
    rule = make_delta_rule(kind, Operations())
    keys, values, dtype = (2, length, 2, 64), (2, length, 6, 64), torch.bfloat16
    q, k = (torch.randn(keys, device=device).to(dtype) for _ in range(2))
    v, out_gradient = (torch.randn(values, device=device).to(dtype) for _ in range(2))
    beta = torch.rand(values[:3], device=device)
    decay = -(torch.rand(values[:3], device=device) ** 3) * 0.6
    inputs = (q, k, v, decay, beta)
    wanted = _gradients(chunked_delta_rule, [x.float() for x in inputs], out_gradient)
    got = _gradients(rule, [x.clone() for x in inputs], out_gradient)
    names = ("o", "dq", "dk", "dv", "dg", "dbeta")
    return {name: _error(a, b) for name, a, b in zip(names, wanted, got, strict=True)}


def _gradients(
    rule: DeltaRule, inputs: list[torch.Tensor], out_gradient: torch.Tensor
) -> list[torch.Tensor]:
    inputs = [x.detach().requires_grad_() for x in inputs]
    out = rule(*inputs)
    out.backward(out_gradient.to(out.dtype))
    return [out.detach().float(), *(x.grad.float() for x in inputs if x.grad is not None)]


def _error(wanted: torch.Tensor, got: torch.Tensor) -> float:
    if not bool(torch.isfinite(got).all()):
        return math.inf
    return float((wanted - got).norm() / wanted.norm())


def _query_key_backward(operations: Operations) -> Any:
    def replacement(
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        do: torch.Tensor,
        h: torch.Tensor,
        dh: torch.Tensor,
        g: torch.Tensor,
        dv: torch.Tensor,
        scale: float,
        chunk_size: int = CHUNK,
        **unused: Any,
    ) -> Any:
        if unused.get("cu_seqlens") is not None or unused.get("state_v_first"):
            raise ValueError("packed sequences and transposed states are not supported")
        return operations.query_key_backward(q, k, v, do, h, dh, g, dv, scale, chunk_size)

    return replacement


def _factor_backward(operations: Operations) -> Any:
    def replacement(
        k: torch.Tensor,
        v: torch.Tensor,
        beta: torch.Tensor,
        A: torch.Tensor,
        dw: torch.Tensor,
        du: torch.Tensor,
        g: torch.Tensor,
        **unused: Any,
    ) -> Any:
        return operations.factor_backward(k, v, beta, A, dw, du, g)

    return replacement


def _pin_configurations(warps: int) -> None:
    """Give each kernel one fixed configuration: what the probe checked is what runs."""
    from triton.runtime.autotuner import Autotuner

    if getattr(Autotuner, "is_pinned", False):
        return
    Autotuner.is_pinned = True
    run = Autotuner.run

    def pinned(self: Any, *args: Any, **kwargs: Any) -> Any:
        if len(self.configs) > 1:
            self.configs = [min(self.configs, key=lambda config: _distance(config, warps))]
        return run(self, *args, **kwargs)

    Autotuner.run = pinned


def _distance(config: Any, warps: int) -> float:
    sizes = config.kwargs
    wanted = {"BV": 64 if "BK" in sizes else 32, "BK": 64, "BT": 32, "BS": 32}
    total = abs(math.log2(config.num_warps / warps)) * 4 + abs(config.num_stages - 3)
    return total + sum(
        abs(math.log2(sizes[name] / size)) * 2 for name, size in wanted.items() if name in sizes
    )
