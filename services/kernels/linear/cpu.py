"""The matrix product on the CPU: weights in panels of 64 outputs, 4 rows at a time.

A panel is weight[64 n : 64 n + 64] transposed and is read in steps of 64 rows that stay in the
first cache. An output is the sum, over these steps in order, of one chain of fma, so a row's
bits do not depend on the other rows, on their number, or on its place.
With bfloat16 operands (prepare) a panel row holds the terms 2j and 2j + 1 side by side.
"""

from threading import local

import numpy as np
import torch

from services.kernels.jit.cpu import compiled
from services.kernels.linear import reference
from services.kernels.numeric.cpu import derived, host_rows
from services.kernels.vector.cpu import (
    HAS_PAIRS,
    add_pairs,
    add_pairs_4,
    add_product,
    add_product_4,
    bits_of,
)

FIXED_ROWS = False
_PANEL = 64
_STEP = 64
# Rows that share a panel while it and their sums stay in the caches.
_BLOCK = 32
_ZERO = np.float32(0.0)
_NAN = np.uint16(0x7FC0)
_scratch = local()


@compiled
def _panel(x, stride, panel, out, rows):
    depth = panel.shape[0]
    for k in range(0, depth, _STEP):
        count, weight = min(_STEP, depth - k), panel[k].ctypes.data
        for row in range(0, rows - 3, 4):
            at, target = x + (row * stride + k) * 4, out + row * _PANEL * 4
            add_product_4(at, stride, weight, _PANEL, target, _PANEL, count)
        for row in range(rows - rows % 4, rows):
            at, target = x + (row * stride + k) * 4, out + row * _PANEL * 4
            add_product(at, stride, weight, _PANEL, target, _PANEL, count)


@compiled
def _panel_of_pairs(x, stride, panel, out, rows):
    depth = panel.shape[0]
    for k in range(0, depth, _STEP):
        count, weight = min(_STEP, depth - k), panel[k].ctypes.data
        for row in range(0, rows - 3, 4):
            at, target = x + (row * stride + k) * 4, out + row * _PANEL * 4
            add_pairs_4(at, stride, weight, target, _PANEL, count)
        for row in range(rows - rows % 4, rows):
            at, target = x + (row * stride + k) * 4, out + row * _PANEL * 4
            add_pairs(at, stride, weight, target, _PANEL, count)


@compiled
def _narrow(x, stride, width, halves):
    """Round rows of x to bfloat16, to nearest even."""
    for row in range(halves.shape[0]):
        source, target = x[row * stride : row * stride + width], halves[row]
        for i in range(width):
            bits = np.uint32(bits_of(source[i]))
            rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
            target[i] = np.uint16(rounded >> np.uint32(16)) if source[i] == source[i] else _NAN


@compiled
def _copy(part, rows, out, stride, first, width):
    for row in range(rows):
        source, target = part[row], out[row * stride + first : row * stride + first + width]
        if width == _PANEL:
            for i in range(_PANEL):
                target[i] = source[i]
        else:
            for i in range(width):
                target[i] = source[i]


@compiled
def _wide_product(x, stride, panels, out, out_stride, rows, width):
    part = np.empty((_BLOCK, _PANEL), np.float32)
    for index in range(panels.shape[0]):
        kept = min(_PANEL, width - index * _PANEL)
        for first in range(0, rows, _BLOCK):
            block, source = min(_BLOCK, rows - first), x.ctypes.data + first * stride * 4
            part[:block] = _ZERO
            _panel(source, stride, panels[index], part.ctypes.data, block)
            _copy(part, block, out, out_stride, first * out_stride + index * _PANEL, kept)


@compiled
def _narrow_product(x, stride, halves, panels, out, out_stride, width):
    part = np.empty((_BLOCK, _PANEL), np.float32)
    _narrow(x, stride, halves.shape[1], halves)
    rows, words = halves.shape[0], halves.shape[1] // 2
    for index in range(panels.shape[0]):
        kept = min(_PANEL, width - index * _PANEL)
        for first in range(0, rows, _BLOCK):
            block, source = min(_BLOCK, rows - first), halves[first].ctypes.data
            part[:block] = _ZERO
            _panel_of_pairs(source, words, panels[index], part.ctypes.data, block)
            _copy(part, block, out, out_stride, first * out_stride + index * _PANEL, kept)


def prepare(weight, narrow):
    """Do what linear.prepare says."""
    weight.is_narrow, weight.host_panels = narrow, None
    derived(weight, "host_panels", _panels)


def _panels(weight):
    """Return (panels, whether they are for bfloat16 operands)."""
    narrow = getattr(weight, "is_narrow", False)
    rows, depth = weight.shape
    count, pairs = -(-rows // _PANEL), -(-depth // 2)
    padded = torch.zeros(count * _PANEL, 2 * pairs if narrow else depth)
    padded[:rows, :depth] = weight.detach()
    if narrow and HAS_PAIRS:
        words = padded.to(torch.bfloat16).view(torch.int32)
        turned = words.view(count, _PANEL, pairs).transpose(1, 2).contiguous()
    else:
        exact = padded.to(torch.bfloat16).float() if narrow else padded
        turned = exact.view(count, _PANEL, -1).transpose(1, 2).contiguous()
    return turned.numpy(), narrow


def _halves(rows, width):
    """Return this thread's scratch for rows in bfloat16."""
    lent = _scratch.__dict__
    if (rows, width) not in lent:
        lent[rows, width] = np.zeros((rows, width), np.uint16)
    return lent[rows, width]


def linear(x, weight, out):
    """Do what linear.linear says, for any number of rows."""
    panels, narrow = derived(weight, "host_panels", _panels)
    rows, width = out.shape
    if narrow and x.shape[1] % 2:
        x = torch.nn.functional.pad(x, (0, 1))
    if narrow and not HAS_PAIRS:
        x = x.to(torch.bfloat16).float()
    if narrow and HAS_PAIRS:
        halves = _halves(rows, x.shape[1])
        _narrow_product(*host_rows(x), halves, panels, *host_rows(out), width)
    else:
        _wide_product(*host_rows(x), panels, *host_rows(out), rows, width)


def row_invariance_check(weight, rows):
    """Do what linear.row_invariance_check says."""
    return reference.row_invariance_check(weight, rows, linear)
