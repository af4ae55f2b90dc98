"""Query and key norms with rotary positions: Triton source."""

import triton
import triton.language as tl

from services.kernels.norm.kernel_rows import unit_scale

PAGE = tl.constexpr(64)


@triton.jit
def normed_rotated(source, weight_ptr, freq_ptr, position, eps, D: tl.constexpr, ROT: tl.constexpr):
    """Return one head of one row, normalised and rotated, in fp32; angles are fp32."""
    HALF: tl.constexpr = ROT // 2
    column = tl.arange(0, D)
    x = tl.load(source + column).to(tl.float32)
    scale = unit_scale(x, eps, D)
    rotary = column < ROT
    partner = tl.where(column < HALF, column + HALF, column - HALF)
    other = tl.load(source + partner, mask=rotary, other=0.0).to(tl.float32)
    x = x * scale * (1.0 + tl.load(weight_ptr + column).to(tl.float32))
    weight = tl.load(weight_ptr + partner, mask=rotary, other=0.0).to(tl.float32)
    other = other * scale * (1.0 + weight)
    freq = tl.load(freq_ptr + column % HALF, mask=rotary, other=0.0)
    angle = position.to(tl.float32) * freq
    turned = other * tl.sin(angle)
    turned = tl.where(column < HALF, -turned, turned)
    return tl.where(rotary, x * tl.cos(angle) + turned, x)


@triton.jit(do_not_specialize=["rows"])
def qk_norm_rope_kernel(
    qkv_ptr,
    q_weight_ptr,
    k_weight_ptr,
    freq_ptr,
    live_ptr,
    length_ptr,
    slot_ptr,
    depth_ptr,
    page_ptr,
    store_ptr,
    q_ptr,
    eps,
    rows,
    TREE: tl.constexpr,
    WORDS: tl.constexpr,
    SLOT_STRIDE: tl.constexpr,
    MAX_PAGES: tl.constexpr,
    STRIDE: tl.constexpr,
    ROT: tl.constexpr,
    HQ: tl.constexpr,
    HKV: tl.constexpr,
    D: tl.constexpr,
):
    """Do one head of one row: a query, a key, or a value, which is only copied."""
    row = tl.program_id(0)
    head = tl.program_id(1)
    batch = row // rows
    node = row % rows
    column = tl.arange(0, D)
    is_live = node < tl.load(live_ptr + batch * WORDS)
    position = tl.load(length_ptr + batch * WORDS)
    if TREE:
        position += tl.load(depth_ptr + batch * WORDS + node)
    else:
        position += node
    line = qkv_ptr + row.to(tl.int64) * STRIDE
    if head < HQ:
        target = q_ptr + (row * HQ + head) * D + column
        if is_live:
            source = line + head * (2 * D)
            q = normed_rotated(source, q_weight_ptr, freq_ptr, position, eps, D, ROT)
            tl.store(target, q.to(q_ptr.dtype.element_ty))
        else:
            tl.store(target, tl.zeros([D], tl.float32).to(q_ptr.dtype.element_ty))
        return
    if not is_live:
        return
    plane = head - HQ
    slot = tl.load(slot_ptr + batch * WORDS).to(tl.int64)
    if TREE:
        target = store_ptr + slot * SLOT_STRIDE + (plane * 32 + node) * D
    else:
        page = tl.load(page_ptr + slot * MAX_PAGES + position // PAGE).to(tl.int64)
        target = store_ptr + (page * (2 * HKV) + plane) * (PAGE * D) + position % PAGE * D
    source = line + HQ * (2 * D) + plane * D
    if plane < HKV:
        k = normed_rotated(source, k_weight_ptr, freq_ptr, position, eps, D, ROT)
        tl.store(target + column, k.to(store_ptr.dtype.element_ty))
    else:
        tl.store(target + column, tl.load(source + column))
