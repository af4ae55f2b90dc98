"""The recurrent step and its gates on the device: one source for every GDN kernel.

A state tile is a tuple of N chunks [rows, 16] of its dk columns, so a dot product is an explicit
chain of fused multiply-adds over the chunks and one short reduction over 16 columns. Nothing here
may be contracted by the compiler: kernels are compiled with fp fusion off.

    r = S k, u = beta v - (beta g) r, S' = fma(u, k, g S)
    o = g (S w) + (k . q) (beta v), w = q - beta (k . q) k
The output is o = g S q + u (k . q) with u written out: one dot product, so a leaf costs one.
"""

import triton
import triton.language as tl


@triton.jit
def exp32(x):
    """Return exp(x) to about one ulp; the hardware's exp2 is used for whole powers only."""
    x = tl.where(x < -104.0, -104.0, x)
    n = tl.floor(x * 1.4426950408889634 + 0.5)
    r = tl.fma(n, -0.693359375, x)
    r = tl.fma(n, 2.12194440e-4, r)
    p = tl.fma(r, 1.9875691500e-4, 1.3981999507e-3)
    p = tl.fma(p, r, 8.3334519073e-3)
    p = tl.fma(p, r, 4.1665795894e-2)
    p = tl.fma(p, r, 1.6666665459e-1)
    p = tl.fma(p, r, 5.0000001201e-1)
    p = tl.fma(p, r * r, r) + 1.0
    return p * tl.exp2(n)


@triton.jit
def reciprocal(x):
    """Return 1 / x for finite x >= 1, with one Newton step."""
    y = 1.0 / x
    return tl.fma(y, tl.fma(-x, y, 1.0), y)


@triton.jit
def softplus(x):
    """Return log(1 + exp(x)) = max(x, 0) + 2 atanh(e / (2 + e)), e = exp(-|x|)."""
    e = exp32(-tl.abs(x))
    z = e * reciprocal(2.0 + e)
    w = z * z
    p = tl.fma(w, 1.0 / 13.0, 1.0 / 11.0)
    p = tl.fma(p, w, 1.0 / 9.0)
    p = tl.fma(p, w, 1.0 / 7.0)
    p = tl.fma(p, w, 1.0 / 5.0)
    p = tl.fma(p, w, 1.0 / 3.0)
    p = tl.fma(p * w, z, z)
    return tl.where(x > 0.0, x, 0.0) + 2.0 * p


@triton.jit
def decay_gate(a, a_log, dt_bias):
    """Return g = exp(-exp(a_log) * softplus(a + dt_bias))."""
    return exp32(-exp32(a_log) * softplus(a + dt_bias))


@triton.jit
def beta_gate(b):
    """Return sigmoid(b)."""
    e = exp32(-tl.abs(b))
    y = reciprocal(1.0 + e)
    return tl.where(b < 0.0, e * y, y)


@triton.jit
def inverse_norm(x):
    """Return 1 / sqrt(sum x^2 + 1e-6) of each row of x [rows, dk], with one Newton step."""
    total = tl.sum(x * x, axis=1) + 1e-6
    r = tl.rsqrt(total)
    return tl.fma(0.5 * r, tl.fma(-total * r, r, 1.0), r)


@triton.jit
def step_dot(s, x, N: tl.constexpr):
    """Return S x [rows] of a chunked tile and a chunked vector."""
    acc = s[0] * x[0][None, :]
    for i in tl.static_range(1, N):
        acc = tl.fma(s[i], x[i][None, :], acc)
    return tl.sum(acc, axis=1)


@triton.jit
def step_update(r, bv, minus_bg):
    """Return u = beta * v - (beta * g) * r from r = S k."""
    return tl.fma(minus_bg, r, bv)


@triton.jit
def step_output(d, g, bv, kq):
    """Return o = g * d + (k . q) * (beta * v) from d = S w, w = q - beta * (k . q) * k."""
    return tl.fma(g, d, kq * bv)


@triton.jit
def step_state(s, k, u, g, N: tl.constexpr):
    """Return S' = fma(u, k, g * S)."""
    after = (tl.fma(u[:, None], k[0][None, :], g[:, None] * s[0]),)
    for i in tl.static_range(1, N):
        after = after + (tl.fma(u[:, None], k[i][None, :], g[:, None] * s[i]),)
    return after
