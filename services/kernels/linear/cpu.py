"""The matrix product on the CPU: weights in panels of 64 outputs, shared by up to two threads.

See panels/cpu.py for the order of the sums and crew/cpu.py for the second thread.
"""

from threading import local

import numpy as np
import torch

from services.kernels.crew.cpu import MAX_THREADS, shared_product
from services.kernels.linear import reference
from services.kernels.numeric.cpu import derived, host_rows
from services.kernels.panels.cpu import PANEL, narrow_rows, product
from services.kernels.vector.cpu import HAS_PAIRS

FIXED_ROWS = False
_scratch = local()
_threads = 1


def prepare(weight, narrow):
    """Do what linear.prepare says."""
    weight.is_narrow, weight.host_panels = narrow, None
    derived(weight, "host_panels", _panels)


def _panels(weight):
    """Return (panels, whether they are for bfloat16 operands)."""
    narrow = getattr(weight, "is_narrow", False)
    rows, depth = weight.shape
    count, pairs = -(-rows // PANEL), -(-depth // 2)
    padded = torch.zeros(count * PANEL, 2 * pairs if narrow else depth)
    padded[:rows, :depth] = weight.detach()
    if narrow and HAS_PAIRS:
        words = padded.to(torch.bfloat16).view(torch.int32)
        turned = words.view(count, PANEL, pairs).transpose(1, 2).contiguous()
    else:
        exact = padded.to(torch.bfloat16).float() if narrow else padded
        turned = exact.view(count, PANEL, -1).transpose(1, 2).contiguous()
    return turned.numpy(), narrow


def use_threads(count):
    """Let the products of this process use one thread or two."""
    global _threads
    _threads = min(count, MAX_THREADS)


def num_threads():
    """Return how many threads a product may use."""
    return _threads


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
    source, stride = host_rows(x)
    pairs = narrow and HAS_PAIRS
    if pairs:
        halves = _halves(rows, x.shape[1])
        narrow_rows(source, stride, x.shape[1], halves)
        source, stride = halves, x.shape[1] // 2
    target = *host_rows(out), rows, width
    if _threads < 2 or not shared_product(source, stride, panels, *target, pairs):
        product(source.ctypes.data, stride, panels, *target, pairs)


def row_invariance_check(weight, rows):
    """Do what linear.row_invariance_check says."""
    return reference.row_invariance_check(weight, rows, linear)
