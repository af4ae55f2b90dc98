"""The row-local operations on the CPU. Sums run in 16 lanes; widths that are no multiple of
16 end with a scalar tail."""

import math

import numpy as np

from services.contract.limits import PAGE
from services.kernels.jit.cpu import compiled
from services.kernels.numeric.cpu import host, host_rows, sigmoid32, silu32
from services.kernels.tree_tables import COMMITTED_LENGTH, DEPTHS, LIVE, SLOT
from services.kernels.vector.cpu import dot, fma

_ONE = np.float32(1.0)
_ZERO = np.float32(0.0)


@compiled
def _factor(x, eps):
    """Return 1 / sqrt(mean x^2 + eps)."""
    whole = x.size - x.size % 16
    total = dot(x.ctypes.data, x.ctypes.data, whole)
    for i in range(whole, x.size):
        total = fma(x[i], x[i], total)
    return _ONE / np.sqrt(total / np.float32(x.size) + eps)


@compiled
def _normed(x, weight, eps, out):
    factor = _factor(x, eps)
    for i in range(x.size):
        out[i] = (x[i] * factor) * (_ONE + weight[i])


@compiled
def _rms_norm(x, stride, weight, eps, out):
    for row in range(out.shape[0]):
        _normed(x[row * stride : row * stride + weight.size], weight, eps, out[row])


@compiled
def _add_rms_norm(residual, x, stride, weight, eps, out):
    for row in range(out.shape[0]):
        total, added = residual[row], x[row * stride : row * stride + weight.size]
        for i in range(weight.size):
            total[i] += added[i]
        _normed(total, weight, eps, out[row])


@compiled
def _gated_norm(core, z, stride, weight, eps, is_silu, out):
    rows, heads, dv = core.shape
    for row in range(rows):
        for h in range(heads):
            x, factor = core[row, h], _factor(core[row, h], eps)
            gate = z[row * stride + h * dv : row * stride + (h + 1) * dv]
            target = out[row, h * dv : (h + 1) * dv]
            if is_silu:
                for i in range(dv):
                    target[i] = (x[i] * factor) * weight[i] * silu32(gate[i])
            else:
                for i in range(dv):
                    target[i] = (x[i] * factor) * weight[i] * sigmoid32(gate[i])


@compiled
def _rotate(x, cos, sin):
    half = cos.size
    for i in range(half):
        low, high = x[i], x[half + i]
        x[i] = fma(low, cos[i], -(high * sin[i]))
        x[half + i] = fma(high, cos[i], low * sin[i])


@compiled
def _angles(position, inv_freq, cos, sin):
    for i in range(inv_freq.size):
        angle = np.float32(position) * inv_freq[i]
        cos[i] = math.cos(angle)
        sin[i] = math.sin(angle)


@compiled
def _queries(row, q_weight, cos, sin, eps, q):
    dim = q_weight.size
    for h in range(q.shape[0]):
        _normed(row[2 * h * dim : (2 * h + 1) * dim], q_weight, eps, q[h])
        _rotate(q[h], cos, sin)


@compiled
def _key_value(row, h, num_kv, k_weight, cos, sin, eps, key, value):
    dim = k_weight.size
    first = row.size - 2 * num_kv * dim + h * dim
    _normed(row[first : first + dim], k_weight, eps, key)
    _rotate(key, cos, sin)
    value[:] = row[first + num_kv * dim : first + (num_kv + 1) * dim]


@compiled
def _rope_ring(qkv, stride, width, q_weight, k_weight, inv_freq, eps, tables, kv_ring, layer, q):
    cos, sin = np.empty_like(inv_freq), np.empty_like(inv_freq)
    rows = q.shape[0] // tables.shape[0]
    for index in range(tables.shape[0]):
        slot, live, first = tables[index, SLOT], tables[index, LIVE], index * rows
        ring = kv_ring[slot, layer]
        for node in range(live):
            position = tables[index, COMMITTED_LENGTH] + tables[index, DEPTHS + node]
            _angles(position, inv_freq, cos, sin)
            row = qkv[(first + node) * stride : (first + node) * stride + width]
            _queries(row, q_weight, cos, sin, eps, q[first + node])
            for h in range(ring.shape[1]):
                key, value = ring[0, h, node], ring[1, h, node]
                _key_value(row, h, ring.shape[1], k_weight, cos, sin, eps, key, value)
        q[first + live : first + rows] = _ZERO


@compiled
def _rope_pages(
    qkv, stride, width, q_weight, k_weight, inv_freq, eps, slots, starts, counts, page_table, kv, q
):
    cos, sin = np.empty_like(inv_freq), np.empty_like(inv_freq)
    rows, num_kv = q.shape[0] // slots.size, kv.shape[2]
    for index in range(slots.size):
        count, first = counts[index], index * rows
        for i in range(count):
            position = starts[index] + i
            _angles(position, inv_freq, cos, sin)
            row = qkv[(first + i) * stride : (first + i) * stride + width]
            _queries(row, q_weight, cos, sin, eps, q[first + i])
            page = kv[page_table[slots[index], position // PAGE]]
            for h in range(num_kv):
                key, value = page[0, h, position % PAGE], page[1, h, position % PAGE]
                _key_value(row, h, num_kv, k_weight, cos, sin, eps, key, value)
        q[first + count : first + rows] = _ZERO


@compiled
def _sigmoid_gate(attn, qkv, stride, out):
    rows, heads, dim = attn.shape
    for row in range(rows):
        for h in range(heads):
            first = row * stride + (2 * h + 1) * dim
            gate, x = qkv[first : first + dim], attn[row, h]
            target = out[row, h * dim : (h + 1) * dim]
            for i in range(dim):
                target[i] = x[i] * sigmoid32(gate[i])


@compiled
def _silu_mul(gate_up, stride, out):
    rows, width = out.shape
    for row in range(rows):
        gate = gate_up[row * stride : row * stride + width]
        up, target = gate_up[row * stride + width : row * stride + 2 * width], out[row]
        for i in range(width):
            target[i] = silu32(gate[i]) * up[i]


def rms_norm(x, weight, eps, out):
    """Do what norm.rms_norm says."""
    _rms_norm(*host_rows(x), host(weight), np.float32(eps), host(out))


def add_rms_norm(residual, x, weight, eps, out):
    """Do what norm.add_rms_norm says."""
    _add_rms_norm(host(residual), *host_rows(x), host(weight), np.float32(eps), host(out))


def gated_norm(core, z, weight, eps, activation, out):
    """Do what norm.gated_norm says."""
    is_silu = activation == "silu"
    _gated_norm(host(core), *host_rows(z), host(weight), np.float32(eps), is_silu, host(out))


def qk_norm_rope_ring(qkv, q_weight, k_weight, inv_freq, eps, tables, kv_ring, layer, q):
    """Do what norm.qk_norm_rope_ring says."""
    _rope_ring(
        *host_rows(qkv),
        qkv.shape[1],
        host(q_weight),
        host(k_weight),
        host(inv_freq),
        np.float32(eps),
        host(tables.block),
        host(kv_ring),
        layer,
        host(q),
    )


def qk_norm_rope_pages(
    qkv, q_weight, k_weight, inv_freq, eps, slots, starts, counts, page_table, kv, q
):
    """Do what norm.qk_norm_rope_pages says."""
    _rope_pages(
        *host_rows(qkv),
        qkv.shape[1],
        host(q_weight),
        host(k_weight),
        host(inv_freq),
        np.float32(eps),
        host(slots),
        host(starts),
        host(counts),
        host(page_table),
        host(kv),
        host(q),
    )


def sigmoid_gate(attn, qkv, out):
    """Do what norm.sigmoid_gate says."""
    _sigmoid_gate(host(attn), *host_rows(qkv), host(out))


def silu_mul(gate_up, out):
    """Do what norm.silu_mul says."""
    _silu_mul(*host_rows(gate_up), host(out))
