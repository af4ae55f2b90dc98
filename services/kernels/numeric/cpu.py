"""Elementary fp32 functions as fixed polynomials, and cached host views of tensors.

The functions have no branch and no library call, so a vectorised loop and its scalar tail
give the same bits.
"""

import numpy as np

from services.kernels.jit.cpu import compiled
from services.kernels.vector.cpu import bits_of, float_of, fma

F = np.float32
_ONE = F(1.0)
_ZERO = F(0.0)
_LOG2E = F(1.4426950408889634)
_LN2_HIGH = F(0.693145751953125)
_LN2_LOW = F(1.428606765330187e-06)
_MAGIC = F(12582912.0)
_LOWEST = F(-87.0)
_HIGHEST = F(88.0)
_E2, _E3, _E4 = F(0.5), F(1.6666665459e-1), F(4.1665795894e-2)
_E5, _E6, _E7 = F(8.3334519073e-3), F(1.3981999507e-3), F(1.9875691500e-4)
_TWO = F(2.0)
_L3, _L5, _L7, _L9 = F(1 / 3), F(1 / 5), F(1 / 7), F(1 / 9)
_L11, _L13, _L15 = F(1 / 11), F(1 / 13), F(1 / 15)


@compiled
def exp32(x):
    """Return e^x in fp32 within 2 ulp; 0 below -87, clamped above 88; exp32(0) is 1."""
    y = x if not (x < _LOWEST) else _LOWEST
    y = y if not (y > _HIGHEST) else _HIGHEST
    shifted = fma(y, _LOG2E, _MAGIC)
    n = shifted - _MAGIC
    r = fma(n, -_LN2_LOW, fma(n, -_LN2_HIGH, y))
    p = fma(_E7, r, _E6)
    p = fma(p, r, _E5)
    p = fma(p, r, _E4)
    p = fma(p, r, _E3)
    p = fma(p, r, _E2)
    p = fma(p, r * r, r) + _ONE
    power = float_of(np.int32((bits_of(shifted) - bits_of(_MAGIC) + np.int32(127)) << np.int32(23)))
    result = p * power
    return result if not (x < _LOWEST) else _ZERO


@compiled
def sigmoid32(x):
    """Return 1 / (1 + e^-x)."""
    return _ONE / (_ONE + exp32(-x))


@compiled
def silu32(x):
    """Return x / (1 + e^-x)."""
    return x / (_ONE + exp32(-x))


@compiled
def softplus32(x):
    """Return log(1 + e^x) as max(x, 0) + log1p(e^-|x|), log1p by the series of atanh."""
    t = exp32(-abs(x))
    s = t / (_TWO + t)
    z = s * s
    p = fma(_L15, z, _L13)
    p = fma(p, z, _L11)
    p = fma(p, z, _L9)
    p = fma(p, z, _L7)
    p = fma(p, z, _L5)
    p = fma(p, z, _L3)
    tail = _TWO * fma(p * z, s, s)
    return (x if not (x < _ZERO) else _ZERO) + tail


def host(tensor):
    """Return the numpy view of a contiguous CPU tensor, kept on the tensor object."""
    try:
        return tensor.host_view
    except AttributeError:
        if not tensor.is_contiguous():
            raise ValueError("kernel operand is not contiguous; pass a contiguous view") from None
        tensor.host_view = tensor.detach().numpy()
        return tensor.host_view


def host_rows(tensor):
    """Return (flat numpy view, row stride) of a 2-D CPU tensor with unit column stride."""
    try:
        return tensor.host_rows
    except AttributeError:
        rows, columns = tensor.shape
        if tensor.stride(1) != 1 and columns > 1:
            raise ValueError("kernel rows need a column stride of 1") from None
        stride = tensor.stride(0)
        flat = tensor.detach().as_strided(((rows - 1) * stride + columns,), (1,)).numpy()
        tensor.host_rows = (flat, stride)
        return tensor.host_rows


def derived(tensor, name, make):
    """Return make(tensor), kept on the tensor object until the tensor is written to."""
    version = -1 if tensor.is_inference() else tensor._version
    found = getattr(tensor, name, None)
    if found is None or found[0] != version:
        found = version, make(tensor)
        setattr(tensor, name, found)
    return found[1]
