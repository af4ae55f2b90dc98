"""The recurrent step on the CPU, on transposed state tiles [dk, dv] in scratch.

Sizes are padded with zeros to dk % 16 == 0 and dv % 32 == 0. Scan, chain and replay are loops
over prepare, read, finish and write; nothing else touches a state.
"""

import numpy as np

from services.kernels.jit.cpu import compiled
from services.kernels.numeric.cpu import exp32, sigmoid32, softplus32
from services.kernels.vector.cpu import decay_and_add, dot, fma, project_pair, transpose

_EPS = np.float32(1e-6)
_ONE = np.float32(1.0)
_ZERO = np.float32(0.0)


@compiled
def load_tile(state, tile):
    dv, dk = state.shape
    if dv % 16 or dk % 16:
        tile[:] = _ZERO
        for i in range(dv):
            for j in range(dk):
                tile[j, i] = state[i, j]
        return
    width = tile.shape[1]
    for i in range(0, dv, 16):
        for j in range(0, dk, 16):
            source = state.ctypes.data + (i * dk + j) * 4
            transpose(source, dk, tile.ctypes.data + (j * width + i) * 4, width)
    for j in range(dk):
        for i in range(dv, width):
            tile[j, i] = _ZERO


@compiled
def store_tile(tile, state):
    dv, dk = state.shape
    if dv % 16 or dk % 16:
        for i in range(dv):
            for j in range(dk):
                state[i, j] = tile[j, i]
        return
    width = tile.shape[1]
    for i in range(0, dv, 16):
        for j in range(0, dk, 16):
            source = tile.ctypes.data + (j * width + i) * 4
            transpose(source, width, state.ctypes.data + (i * dk + j) * 4, dk)


@compiled
def _unit(source, scale, target):
    dk = source.size
    for j in range(dk):
        target[j] = source[j]
    for j in range(dk, target.size):
        target[j] = _ZERO
    address = target.ctypes.data
    factor = scale / np.sqrt(dot(address, address, target.size) + _EPS)
    for j in range(dk):
        target[j] *= factor


@compiled
def prepare(mixed, a, b, rates, dt_bias, dk, keys, gates):
    """Fill keys [Hk, 2, dkp] (q, k) and gates [Hv, 3] (g, beta, k . q) of one row.

    Shapes  mixed [C], a, b, rates, dt_bias [Hv]; rates = -exp(a_log).
    """
    num_keys, num_heads = keys.shape[0], dt_bias.size
    scale, group = _ONE / np.sqrt(np.float32(dk)), num_heads // num_keys
    for head in range(num_keys):
        key, other = head * dk, (num_keys + head) * dk
        _unit(mixed[key : key + dk], scale, keys[head, 0])
        _unit(mixed[other : other + dk], _ONE, keys[head, 1])
        product = dot(keys[head, 1].ctypes.data, keys[head, 0].ctypes.data, keys.shape[2])
        for h in range(head * group, (head + 1) * group):
            gates[h, 0] = exp32(rates[h] * softplus32(a[h] + dt_bias[h]))
            gates[h, 1] = sigmoid32(b[h])
            gates[h, 2] = product


@compiled
def step(source, target, keeps, key, gate, value, work, out):
    """Run one row of one head on the tile `source`; write the next tile if `keeps`.

    Shapes  tiles [dkp, dvp], target may be source; key [2, dkp] and gate [3] by prepare;
            value, out [dv]; work [2, dvp].
    """
    g, beta, product = gate[0], gate[1], gate[2]
    k, u, c = key[1].ctypes.data, work[0], work[1]
    dk, dv = source.shape
    addresses = key[0].ctypes.data, u.ctypes.data, c.ctypes.data
    project_pair(source.ctypes.data, k, *addresses, dk, dv)
    for i in range(value.size):
        u[i] = beta * fma(-g, u[i], value[i])
        out[i] = fma(u[i], product, g * c[i])
    if keeps:
        decay_and_add(source.ctypes.data, target.ctypes.data, k, u.ctypes.data, g, dk, dv)
