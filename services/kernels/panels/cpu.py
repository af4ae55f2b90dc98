"""Rows times one panel of a weight: 64 outputs, 4 rows at a time.

A panel is weight[64 n : 64 n + 64] transposed and is read in steps of 64 rows that stay in the
first cache. An output is the sum, over these steps in order, of one chain of fma, so a row's
bits do not depend on the other rows, on their number, on its place, or on the thread.
With bfloat16 operands a panel row holds the terms 2j and 2j + 1 side by side. Operands are
addresses; a stride counts 32-bit words.
"""

import numpy as np

from services.kernels.jit.cpu import compiled
from services.kernels.vector.cpu import (
    add_pairs,
    add_pairs_4,
    add_product,
    add_product_4,
    bits_of,
)

PANEL = 64
_STEP = 64
# Rows that share a panel while it and their sums stay in the caches.
BLOCK = 32
_ZERO = np.float32(0.0)
_NAN = np.uint16(0x7FC0)


@compiled
def _panel(x, stride, panel, depth, out, rows):
    for k in range(0, depth, _STEP):
        count, weight = min(_STEP, depth - k), panel + k * PANEL * 4
        for row in range(0, rows - 3, 4):
            at, target = x + (row * stride + k) * 4, out + row * PANEL * 4
            add_product_4(at, stride, weight, PANEL, target, PANEL, count)
        for row in range(rows - rows % 4, rows):
            at, target = x + (row * stride + k) * 4, out + row * PANEL * 4
            add_product(at, stride, weight, PANEL, target, PANEL, count)


@compiled
def _panel_of_pairs(x, stride, panel, depth, out, rows):
    for k in range(0, depth, _STEP):
        count, weight = min(_STEP, depth - k), panel + k * PANEL * 4
        for row in range(0, rows - 3, 4):
            at, target = x + (row * stride + k) * 4, out + row * PANEL * 4
            add_pairs_4(at, stride, weight, target, PANEL, count)
        for row in range(rows - rows % 4, rows):
            at, target = x + (row * stride + k) * 4, out + row * PANEL * 4
            add_pairs(at, stride, weight, target, PANEL, count)


@compiled
def narrow_rows(x, stride, width, halves):
    """Round rows of x to bfloat16, to nearest even."""
    for row in range(halves.shape[0]):
        source, target = x[row * stride : row * stride + width], halves[row]
        for i in range(width):
            bits = np.uint32(bits_of(source[i]))
            rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
            target[i] = np.uint16(rounded >> np.uint32(16)) if source[i] == source[i] else _NAN


@compiled
def copy_panel(part, rows, out, stride, first, width):
    """Copy part [rows, 64] to columns first .. first + width of out, flat with a row stride."""
    for row in range(rows):
        source, target = part[row], out[row * stride + first : row * stride + first + width]
        if width == PANEL:
            for i in range(PANEL):
                target[i] = source[i]
        else:
            for i in range(width):
                target[i] = source[i]


@compiled
def one_panel(x, stride, panel, depth, part, rows, pairs):
    """Write part[:rows] = x [rows, depth] times one panel; at most BLOCK rows."""
    part[:rows] = _ZERO
    if pairs:
        _panel_of_pairs(x, stride, panel, depth, np.int64(part.ctypes.data), rows)
    else:
        _panel(x, stride, panel, depth, np.int64(part.ctypes.data), rows)


@compiled
def product(x, stride, panels, out, out_stride, rows, width, pairs):
    """Write rows times all panels to `out`."""
    part, depth = np.empty((BLOCK, PANEL), np.float32), panels.shape[1]
    for index in range(panels.shape[0]):
        panel, kept = np.int64(panels[index].ctypes.data), min(PANEL, width - index * PANEL)
        for first in range(0, rows, BLOCK):
            block = min(BLOCK, rows - first)
            one_panel(x + first * stride * 4, stride, panel, depth, part, block, pairs)
            copy_panel(part, block, out, out_stride, first * out_stride + index * PANEL, kept)
