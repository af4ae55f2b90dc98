"""The matrix product on the CPU: weights in panels of 64 outputs, 4 rows at a time.

A panel is weight[64 n : 64 n + 64] transposed, [K, 64], and is read in steps of 64 rows that
stay in the first cache. An output is the sum, over these steps in order, of one chain of fma,
so a row's bits do not depend on the other rows, on their number, or on its place.
"""

import numpy as np

from services.kernels.jit.cpu import compiled
from services.kernels.linear import reference
from services.kernels.numeric.cpu import host_rows
from services.kernels.vector.cpu import add_product, add_product_4

FIXED_ROWS = False
_PANEL = 64
_STEP = 64
_ZERO = np.float32(0.0)


@compiled
def _panel(x, stride, panel, out, out_stride, rows):
    depth = panel.shape[0]
    for k in range(0, depth, _STEP):
        count, weight = min(_STEP, depth - k), panel[k].ctypes.data
        for row in range(0, rows - 3, 4):
            at, target = x + (row * stride + k) * 4, out + row * out_stride * 4
            add_product_4(at, stride, weight, _PANEL, target, out_stride, count)
        for row in range(rows - rows % 4, rows):
            at, target = x + (row * stride + k) * 4, out + row * out_stride * 4
            add_product(at, stride, weight, _PANEL, target, out_stride, count)


@compiled
def _linear(x, stride, panels, out, out_stride, rows, width):
    for row in range(rows):
        out[row * out_stride : row * out_stride + width] = _ZERO
    whole = width // _PANEL
    address, result = x.ctypes.data, out.ctypes.data
    for index in range(whole):
        _panel(address, stride, panels[index], result + index * _PANEL * 4, out_stride, rows)
    if width % _PANEL:
        last = np.zeros((rows, _PANEL), np.float32)
        _panel(address, stride, panels[whole], last.ctypes.data, _PANEL, rows)
        for row in range(rows):
            for i in range(width % _PANEL):
                out[row * out_stride + whole * _PANEL + i] = last[row, i]


def _panels(weight):
    """Return the weight [N, K] as panels [ceil(N / 64), K, 64], kept on the tensor object."""
    try:
        return weight.host_panels
    except AttributeError:
        rows, depth = weight.shape
        count = -(-rows // _PANEL)
        padded = np.zeros((count * _PANEL, depth), np.float32)
        padded[:rows] = weight.detach().numpy()
        turned = padded.reshape(count, _PANEL, depth).transpose(0, 2, 1)
        weight.host_panels = np.ascontiguousarray(turned)
        return weight.host_panels


def linear(x, weight, out):
    """Do what linear.linear says, for any number of rows."""
    _linear(*host_rows(x), _panels(weight), *host_rows(out), out.shape[0], out.shape[1])


def row_invariance_check(weight, rows):
    """Do what linear.row_invariance_check says."""
    return reference.row_invariance_check(weight, rows, linear)
