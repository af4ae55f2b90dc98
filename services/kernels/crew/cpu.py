"""A second thread that takes panels of a product; the caller never waits for it.

The caller opens a job by one word (job number, next panel); both threads claim panels from it.
The second thread writes to a buffer of its own and marks the panel; what it has not marked when
all are claimed, because it was not given its core, the caller computes again. Its late result
is then ignored: every panel has the same bits whoever computes it.
Only one late panel can be under way, so only the last job's operands must be kept.
"""

from threading import Lock, Thread

import numpy as np
from numba import typeof

from services.kernels.atomic.cpu import (
    HAS_ATOMICS,
    load_word,
    pause,
    post_semaphore,
    store_word,
    swap_word,
    wait_semaphore,
)
from services.kernels.jit.cpu import compiled
from services.kernels.panels.cpu import BLOCK, PANEL, copy_panel, one_panel

# Words of the control block, a cache line apart where two threads write.
_TICKET, _BUSY, _PARKED, _SEMAPHORE, _JOB, _DONE = 0, 8, 16, 24, 32, 48
_OPERAND, _STRIDE, _PANELS, _DEPTH, _ROWS, _COUNT, _PAIRS = range(7)
MAX_THREADS = 2 if HAS_ATOMICS else 1
_SHIFT = 20
_CLOSED = (1 << _SHIFT) - 1
_MAX_PANELS = 1 << 12
_MAX_STAGED = 1 << 20
# Fewer rows, or fewer words of weight times rows, are no work for two threads.
_LEAST_ROWS = 4
_LEAST_WORK = 1 << 18
# Pauses before the second thread sleeps, and before the caller does a panel again.
_PATIENCE = 2048
_GRACE = 256


@compiled
def _help(control, staged):
    """Take panels until the process ends."""
    at, idle = np.int64(control.ctypes.data), 0
    part = np.empty((BLOCK, PANEL), np.float32)
    while True:
        ticket = load_word(at + _TICKET * 8)
        job = at + _JOB * 8
        if ticket & _CLOSED < load_word(job + _COUNT * 8):
            operand, stride = load_word(job + _OPERAND * 8), load_word(job + _STRIDE * 8)
            panels, depth = load_word(job + _PANELS * 8), load_word(job + _DEPTH * 8)
            rows, pairs = load_word(job + _ROWS * 8), load_word(job + _PAIRS * 8)
            store_word(at + _BUSY * 8, 1)
            if swap_word(at + _TICKET * 8, ticket, ticket + 1):
                index = ticket & _CLOSED
                panel = panels + index * depth * PANEL * 4
                for first in range(0, rows, BLOCK):
                    block, row = min(BLOCK, rows - first), index * rows + first
                    source = operand + first * stride * 4
                    one_panel(source, stride, panel, depth, part, block, pairs != 0)
                    staged[row : row + block] = part[:block]
                store_word(at + (_DONE + index) * 8, ticket >> _SHIFT)
            store_word(at + _BUSY * 8, 0)
            idle = 0
            continue
        idle += 1
        pause()
        if idle > _PATIENCE:
            store_word(at + _PARKED * 8, 1)
            if load_word(at + _TICKET * 8) == ticket:
                wait_semaphore(at + _SEMAPHORE * 8)
            store_word(at + _PARKED * 8, 0)
            idle = 0


@compiled
def _share(control, staged, x, stride, panels, chosen, out, out_stride, rows, width, pairs):
    """Write the panels first .. first + count of a product; return whether it was done."""
    start, count = chosen
    at, depth = np.int64(control.ctypes.data), panels.shape[1]
    job, first_panel = at + _JOB * 8, np.int64(panels[start].ctypes.data)
    number = (load_word(at + _TICKET * 8) >> _SHIFT) + 1
    store_word(job + _OPERAND * 8, x)
    store_word(job + _STRIDE * 8, stride)
    store_word(job + _PANELS * 8, first_panel)
    store_word(job + _DEPTH * 8, depth)
    store_word(job + _ROWS * 8, rows)
    store_word(job + _PAIRS * 8, np.int64(pairs))
    store_word(job + _COUNT * 8, count)
    store_word(at + _TICKET * 8, number << _SHIFT)
    if swap_word(at + _PARKED * 8, 1, 0):
        post_semaphore(at + _SEMAPHORE * 8)
    part = np.empty((BLOCK, PANEL), np.float32)
    while True:
        ticket = load_word(at + _TICKET * 8)
        index = ticket & _CLOSED
        if index >= count:
            break
        if swap_word(at + _TICKET * 8, ticket, ticket + 1):
            store_word(at + (_DONE + index) * 8, -number)
            _fill(part, x, stride, panels, start + index, out, out_stride, rows, width, pairs)
    store_word(at + _TICKET * 8, number << _SHIFT | _CLOSED)
    for index in range(count):
        done, tries = load_word(at + (_DONE + index) * 8), 0
        while abs(done) != number and tries < _GRACE:
            pause()
            done, tries = load_word(at + (_DONE + index) * 8), tries + 1
        column = (start + index) * PANEL
        if done == number:
            ready = staged[index * rows : (index + 1) * rows]
            copy_panel(ready, rows, out, out_stride, column, min(PANEL, width - column))
        elif done != -number:
            _fill(part, x, stride, panels, start + index, out, out_stride, rows, width, pairs)


@compiled
def _fill(part, x, stride, panels, index, out, out_stride, rows, width, pairs):
    """Write the outputs of one panel."""
    panel, depth = np.int64(panels[index].ctypes.data), panels.shape[1]
    column = index * PANEL
    for first in range(0, rows, BLOCK):
        block = min(BLOCK, rows - first)
        one_panel(x + first * stride * 4, stride, panel, depth, part, block, pairs)
        target = first * out_stride + column
        copy_panel(part, block, out, out_stride, target, min(PANEL, width - column))


class _Crew:
    """The second thread of this process and what it shares with one caller at a time."""

    def __init__(self):
        self.lock = Lock()
        self.control = np.zeros(_DONE + _MAX_PANELS, np.int64)
        self.control[_TICKET] = _CLOSED
        self.staged = np.empty((_MAX_STAGED // PANEL, PANEL), np.float32)
        self.kept = None
        operands = self.control, self.staged
        _help.compile(tuple(map(typeof, operands)))
        Thread(target=_help, args=operands, name="product-panels", daemon=True).start()


_crews = []


def shared_product(source, stride, panels, out, out_stride, rows, width, pairs):
    """Write rows times all panels to `out` with two threads; return False if that is no use.

    Args    source: numpy array of the operands, kept until the next shared product.
    """
    count, depth = panels.shape[0], panels.shape[1]
    if count < 2 or rows < _LEAST_ROWS or count * depth * PANEL * rows < _LEAST_WORK:
        return False
    if not _crews:
        _crews.append(_Crew())
    crew = _crews[0]
    if not crew.lock.acquire(blocking=False):
        return False
    try:
        step = min(_MAX_PANELS, _MAX_STAGED // (PANEL * rows))
        if crew.control[_BUSY] or not step:
            return False
        crew.kept = source, panels
        for start in range(0, count, step):
            chosen = start, min(step, count - start)
            where = out, out_stride, rows, width, pairs
            operands = source.ctypes.data, stride, panels, chosen
            _share(crew.control, crew.staged, *operands, *where)
    finally:
        crew.lock.release()
    return True
