"""Row-local operations: Triton source. One program never reads another row."""

import triton
import triton.language as tl


@triton.jit
def unit_scale(x, eps, N: tl.constexpr):
    """Return rsqrt(mean x^2 + eps) over the last axis; entries past N are 0."""
    return tl.rsqrt(tl.sum(x * x, -1) / N + eps)


@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, out_ptr, eps, STRIDE: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Normalise one row, zero-centred weight."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < N
    x = tl.load(x_ptr + row * STRIDE + column, mask=inside, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + column, mask=inside, other=0.0).to(tl.float32)
    out = x * unit_scale(x, eps, N) * (1.0 + weight)
    tl.store(out_ptr + row * N + column, out.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def add_rms_norm_kernel(
    residual_ptr,
    x_ptr,
    weight_ptr,
    out_ptr,
    eps,
    STRIDE: tl.constexpr,
    N: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Add a row to the residual and normalise the stored sum."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < N
    place = row * N + column
    x = tl.load(x_ptr + row * STRIDE + column, mask=inside, other=0.0).to(tl.float32)
    total = tl.load(residual_ptr + place, mask=inside, other=0.0).to(tl.float32) + x
    stored = total.to(residual_ptr.dtype.element_ty)
    tl.store(residual_ptr + place, stored, mask=inside)
    total = stored.to(tl.float32)
    weight = tl.load(weight_ptr + column, mask=inside, other=0.0).to(tl.float32)
    out = total * unit_scale(total, eps, N) * (1.0 + weight)
    tl.store(out_ptr + place, out.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def gated_norm_kernel(
    core_ptr,
    z_ptr,
    weight_ptr,
    out_ptr,
    eps,
    SILU: tl.constexpr,
    STRIDE: tl.constexpr,
    HV: tl.constexpr,
    DV: tl.constexpr,
    HEADS: tl.constexpr,
):
    """Normalise HEADS value heads of one row and gate them."""
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    place = head[:, None] * DV + tl.arange(0, DV)[None, :]
    inside = (head < HV)[:, None]
    core = tl.load(core_ptr + row * (HV * DV) + place, mask=inside, other=0.0).to(tl.float32)
    z = tl.load(z_ptr + row * STRIDE + place, mask=inside, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + tl.arange(0, DV)).to(tl.float32)
    gate = tl.sigmoid(z)
    if SILU:
        gate = z * gate
    out = core * unit_scale(core, eps, DV)[:, None] * weight[None, :] * gate
    tl.store(
        out_ptr + row * (HV * DV) + place, out.to(out_ptr.dtype.element_ty), mask=inside
    )  # fmt: skip


@triton.jit
def sigmoid_gate_kernel(
    attn_ptr, qkv_ptr, out_ptr, STRIDE: tl.constexpr, HQ: tl.constexpr, D: tl.constexpr
):
    """Gate one head of one row."""
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    column = tl.arange(0, D)
    place = (row * HQ + head) * D + column
    gate = tl.load(qkv_ptr + row * STRIDE + head * (2 * D) + D + column).to(tl.float32)
    out = tl.load(attn_ptr + place).to(tl.float32) * tl.sigmoid(gate)
    tl.store(out_ptr + place, out.to(out_ptr.dtype.element_ty))


@triton.jit
def silu_mul_kernel(
    gate_up_ptr, out_ptr, STRIDE: tl.constexpr, F: tl.constexpr, BLOCK: tl.constexpr
):
    """Multiply silu of a piece of the gate by its piece of the other half."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < F
    source = gate_up_ptr + row * STRIDE + column
    gate = tl.load(source, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(source + F, mask=inside, other=0.0).to(tl.float32)
    out = gate * tl.sigmoid(gate) * up
    tl.store(out_ptr + row * F + column, out.to(out_ptr.dtype.element_ty), mask=inside)
