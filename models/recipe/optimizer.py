"""Muon for hidden matrices, Adam for the rest, over fp32 master weights."""

import torch

from models.recipe.settings import Config, Params

BETA1, BETA2, ADAM_EPS = 0.9, 0.95, 1e-8
Slice = tuple[str, int, int]


def orthogonalise(gradient: torch.Tensor, steps: int = 5) -> torch.Tensor:
    """Return a batch of matrices with singular values near 1, by Newton-Schulz steps."""
    x = gradient.bfloat16() if gradient.is_cuda else gradient.float()
    is_tall = x.shape[-2] > x.shape[-1]
    if is_tall:
        x = x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return (x.mT if is_tall else x).float()


class Optimizer:
    """Update master weights in place; a step with inf or NaN gradients changes nothing.

    Args    is_muon: whether hidden matrices take Muon; else everything takes Adam.
    """

    def __init__(
        self,
        masters: Params,
        config: Config,
        muon_rate: float,
        adam_rate: float,
        weight_decay: float,
        is_muon: bool = True,
    ) -> None:
        self.masters, self.weight_decay = masters, weight_decay
        self.muon_rate, self.adam_rate, self.num_steps = muon_rate, adam_rate, 0
        self._groups: dict[tuple[int, int], list[Slice]] = {}
        self._vectors: list[str] = []
        key_width = config["linear_num_key_heads"] * config["linear_key_head_dim"]
        for name, value in masters.items():
            if is_muon and _is_hidden_matrix(name, value):
                for low, high in _parts(name, value, key_width):
                    group = self._groups.setdefault((high - low, value.shape[1]), [])
                    group.append((name, low, high))
            else:
                self._vectors.append(name)
        device = next(iter(masters.values())).device
        self._momenta = {
            shape: torch.zeros(len(group), *shape, device=device)
            for shape, group in self._groups.items()
        }
        self._first = [torch.zeros_like(masters[name]) for name in self._vectors]
        self._second = [torch.zeros_like(masters[name]) for name in self._vectors]

    @torch.no_grad()
    def step(self, gradients: Params, rate: float) -> torch.Tensor:
        """Take one step at `rate` times the learning rates; return Adam's gradient norm."""
        self.num_steps += 1
        sums = torch.stack([gradient.sum() for gradient in gradients.values()])
        is_finite = sums.sum().isfinite().float()
        for shape, group in self._groups.items():
            self._muon(shape, group, gradients, rate, is_finite)
        return self._adam(gradients, rate, is_finite)

    def _muon(
        self,
        shape: tuple[int, int],
        group: list[Slice],
        gradients: Params,
        rate: float,
        is_finite: torch.Tensor,
    ) -> None:
        momentum = min(0.95, 0.85 + 0.10 * self.num_steps / 300)
        stacked = torch.stack([gradients[name][low:high].float() for name, low, high in group])
        stacked = torch.nan_to_num(stacked, 0.0, 0.0, 0.0)
        buffer = self._momenta[shape].lerp_(stacked, 1 - momentum)
        scale = max(1.0, shape[0] / shape[1]) ** 0.5
        updates = orthogonalise(stacked.lerp(buffer, momentum)) * scale
        rate = self.muon_rate * rate
        for (name, low, high), update in zip(group, updates, strict=True):
            part = self.masters[name][low:high]
            part.mul_(1 - rate * self.weight_decay * is_finite).add_(update * (-rate * is_finite))

    def _adam(self, gradients: Params, rate: float, is_finite: torch.Tensor) -> torch.Tensor:
        cleaned = [
            torch.nan_to_num(gradients[name].float(), 0.0, 0.0, 0.0) for name in self._vectors
        ]
        norm = torch.stack(torch._foreach_norm(cleaned)).norm()
        torch._foreach_mul_(cleaned, (1.0 / norm.clamp(min=1.0)) * is_finite)
        torch._foreach_lerp_(self._first, cleaned, 1 - BETA1)
        torch._foreach_mul_(self._second, BETA2)
        torch._foreach_addcmul_(self._second, cleaned, cleaned, 1 - BETA2)
        spread = torch._foreach_div(self._second, 1 - BETA2**self.num_steps)
        spread = torch._foreach_add(torch._foreach_sqrt(spread), ADAM_EPS)
        update = torch._foreach_div(self._first, spread)
        size = self.adam_rate * rate / (1 - BETA1**self.num_steps)
        torch._foreach_add_([self.masters[name] for name in self._vectors], update, alpha=-size)
        return norm


def _is_hidden_matrix(name: str, value: torch.Tensor) -> bool:
    return value.dim() == 2 and "embed" not in name and min(value.shape) >= 32


def _parts(name: str, value: torch.Tensor, key_width: int) -> list[tuple[int, int]]:
    """Return the row ranges that are matrices of their own: queries, keys, values."""
    rows = value.shape[0]
    if name.endswith("in_proj_qkv.weight"):
        return [(0, key_width), (key_width, 2 * key_width), (2 * key_width, rows)]
    return [(0, rows)]
