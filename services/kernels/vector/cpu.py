"""Sums in a fixed order over vectors of 16 fp32 lanes, emitted as LLVM code.

Every fma is explicit and nothing is reassociated, so a result depends on its operands and on
the order stated here, not on the loop that surrounds the call or on the machine's vectors.
Operands are addresses of contiguous fp32 memory.
"""

from llvmlite import ir
from llvmlite.binding import get_host_cpu_features, initialize_native_asmparser
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 16
_FLOAT = ir.FloatType()
_VECTOR = ir.VectorType(_FLOAT, LANES)
_WORDS = ir.VectorType(ir.IntType(32), LANES)
_ADDRESS = ir.IntType(64)

HAS_PAIRS = get_host_cpu_features().get("avx512bf16", False)
if HAS_PAIRS:
    initialize_native_asmparser()


class _Emit:
    """Emit loads, stores and fused products of 16 lanes at addresses."""

    def __init__(self, builder):
        self.builder = builder

    def index(self, value):
        return ir.Constant(_ADDRESS, value) if isinstance(value, int) else value

    def pointer(self, address, offset, kind):
        size = self.builder.mul(self.index(offset), self.index(4))
        return self.builder.inttoptr(self.builder.add(address, size), kind.as_pointer())

    def load(self, address, offset):
        return self.builder.load(self.pointer(address, offset, _VECTOR), align=4)

    def store(self, value, address, offset):
        self.builder.store(value, self.pointer(address, offset, _VECTOR), align=4)

    def splat(self, address, offset):
        return self.spread(self.builder.load(self.pointer(address, offset, _FLOAT), align=4))

    def spread(self, scalar):
        empty = ir.Constant(_VECTOR, ir.Undefined)
        first = self.builder.insert_element(empty, scalar, ir.Constant(ir.IntType(32), 0))
        return self.shuffle(first, first, [0] * LANES)

    def shuffle(self, x, y, lanes):
        mask = ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), lanes)
        return self.builder.shuffle_vector(x, y, mask)

    def fma(self, x, y, z):
        kind = ir.FunctionType(z.type, [z.type] * 3)
        name = "llvm.fma.v16f32" if z.type == _VECTOR else "llvm.fma.f32"
        return self.builder.call(
            cgutils.get_or_insert_function(self.builder.module, kind, name), [x, y, z]
        )

    def cells(self, count):
        cells = [cgutils.alloca_once(self.builder, _VECTOR) for _ in range(count)]
        for cell in cells:
            self.builder.store(ir.Constant(_VECTOR, [0.0] * LANES), cell)
        return cells

    def accumulate(self, cell, x, y):
        self.builder.store(self.fma(x, y, self.builder.load(cell)), cell)

    def times(self, x, y):
        return self.builder.mul(self.index(x), self.index(y))

    def plus(self, x, y):
        return self.builder.add(self.index(x), self.index(y))


@intrinsic
def fma(typingctx, x, y, z):
    """Return x * y + z of fp32 scalars with one rounding."""

    def codegen(context, builder, signature, args):
        return _Emit(builder).fma(*args)

    return types.float32(types.float32, types.float32, types.float32), codegen


@intrinsic
def bits_of(typingctx, x):
    """Return the int32 that has the bits of an fp32."""

    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], ir.IntType(32))

    return types.int32(types.float32), codegen


@intrinsic
def float_of(typingctx, x):
    """Return the fp32 that has the bits of an int32."""

    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], _FLOAT)

    return types.float32(types.int32), codegen


@intrinsic
def dot(typingctx, x, y, count):
    """Return the sum of x[i] * y[i], i < count, count a multiple of 16.

    Numbers lane l sums i = l, l + 16, ... in order; then lanes fold by halves 8, 4, 2, 1.
    """

    def codegen(context, builder, signature, args):
        emit = _Emit(builder)
        (cell,) = emit.cells(1)
        with cgutils.for_range_slice(
            builder, emit.index(0), args[2], emit.index(LANES), _ADDRESS
        ) as (i, _):
            emit.accumulate(cell, emit.load(args[0], i), emit.load(args[1], i))
        total = builder.load(cell)
        for half in (8, 4, 2, 1):
            lanes = [(lane + half) % LANES for lane in range(LANES)]
            total = builder.fadd(total, emit.shuffle(total, total, lanes))
        return builder.extract_element(total, ir.Constant(ir.IntType(32), 0))

    return types.float32(types.int64, types.int64, types.int64), codegen


@intrinsic
def transpose(typingctx, source, source_stride, target, target_stride):
    """Copy the transposed 16 x 16 block at `source` to `target`; strides in elements."""

    def codegen(context, builder, signature, args):
        emit = _Emit(builder)
        rows = [emit.load(args[0], emit.times(args[1], r)) for r in range(LANES)]
        for half in (8, 4, 2, 1):
            low = [lane if not lane & half else lane - half + LANES for lane in range(LANES)]
            high = [lane + half if not lane & half else lane + LANES for lane in range(LANES)]
            rows = [
                emit.shuffle(rows[r & ~half], rows[r | half], high if r & half else low)
                for r in range(LANES)
            ]
        for r in range(LANES):
            emit.store(rows[r], args[2], emit.times(args[3], r))

    kind = types.int64
    return types.void(kind, kind, kind, kind), codegen


@intrinsic
def project_pair(typingctx, tile, k, q, r, c, dk, dv):
    """Write r[i] = sum_j tile[j, i] k[j] and c[i] likewise with q; tile [dk, dv].

    Args    dk: a multiple of 4. dv: a multiple of 32.
    Numbers four sums, j = s mod 4 in order, added as (s0 + s1) + (s2 + s3).
    """

    def codegen(context, builder, signature, args):
        tile, k, q, r, c, dk, dv = args
        emit = _Emit(builder)
        start, four, wide = emit.index(0), emit.index(4), emit.index(2 * LANES)
        with cgutils.for_range_slice(builder, start, dv, wide, _ADDRESS) as (i, _):
            sums = {(s, v): emit.cells(2) for s in range(4) for v in range(2)}
            with cgutils.for_range_slice(builder, start, dk, four, _ADDRESS) as (j, _):
                for s in range(4):
                    row = emit.plus(j, s)
                    factors = emit.splat(k, row), emit.splat(q, row)
                    for v in range(2):
                        place = emit.plus(emit.times(row, dv), emit.plus(i, v * LANES))
                        cells = emit.load(tile, place)
                        for factor, cell in zip(factors, sums[s, v], strict=True):
                            emit.accumulate(cell, factor, cells)
            for v in range(2):
                for which, target in enumerate((r, c)):
                    p = [builder.load(sums[s, v][which]) for s in range(4)]
                    total = builder.fadd(builder.fadd(p[0], p[1]), builder.fadd(p[2], p[3]))
                    emit.store(total, target, emit.plus(i, v * LANES))

    return types.void(*[types.int64] * 7), codegen


@intrinsic
def decay_and_add(typingctx, source, target, k, u, g, dk, dv):
    """Write target[j, i] = fma(u[i], k[j], g * source[j, i]); tiles [dk, dv] may be one.

    Args    g: fp32. dk: a multiple of 4. dv: a multiple of 32.
    """

    def codegen(context, builder, signature, args):
        source, target, k, u, g, dk, dv = args
        emit = _Emit(builder)
        decay = emit.spread(g)
        start, four, wide = emit.index(0), emit.index(4), emit.index(2 * LANES)
        with cgutils.for_range_slice(builder, start, dv, wide, _ADDRESS) as (i, _):
            factors = [emit.load(u, emit.plus(i, v * LANES)) for v in range(2)]
            with cgutils.for_range_slice(builder, start, dk, four, _ADDRESS) as (j, _):
                for s in range(4):
                    row = emit.plus(j, s)
                    key = emit.splat(k, row)
                    for v in range(2):
                        place = emit.plus(emit.times(row, dv), emit.plus(i, v * LANES))
                        decayed = builder.fmul(decay, emit.load(source, place))
                        emit.store(emit.fma(factors[v], key, decayed), target, place)

    kind = types.int64
    return types.void(kind, kind, kind, kind, types.float32, kind, kind), codegen


def _accumulate_blocks(emit, c, c_stride, count, rows, load, multiply):
    """Emit c[r, 0:64] += sum over `count` terms: `load` a term's columns, `multiply` a row's."""
    builder, blocks = emit.builder, [(r, v) for r in range(rows) for v in range(4)]
    sums = dict(zip(blocks, emit.cells(len(blocks)), strict=True))
    with cgutils.for_range(builder, count) as loop:
        columns = [load(loop.index, v * LANES) for v in range(4)]
        for r in range(rows):
            multiply(loop.index, r, columns, [sums[r, v] for v in range(4)])
    for r, v in blocks:
        place = emit.plus(emit.times(c_stride, r), v * LANES)
        total = builder.fadd(emit.load(c, place), builder.load(sums[r, v]))
        emit.store(total, c, place)


def _add_product(rows):
    def typed(typingctx, a, a_stride, b, b_stride, c, c_stride, count):
        def codegen(context, builder, signature, args):
            a, a_stride, b, b_stride, c, c_stride, count = args
            emit = _Emit(builder)

            def load(term, lane):
                return emit.load(b, emit.plus(emit.times(term, b_stride), lane))

            def multiply(term, row, columns, cells):
                factor = emit.splat(a, emit.plus(emit.times(a_stride, row), term))
                for cell, column in zip(cells, columns, strict=True):
                    emit.accumulate(cell, factor, column)

            _accumulate_blocks(emit, c, c_stride, count, rows, load, multiply)

        return types.void(*[types.int64] * 7), codegen

    return typed


def _add_pairs(rows):
    def typed(typingctx, a, a_stride, b, c, c_stride, count):
        def codegen(context, builder, signature, args):
            a, a_stride, b, c, c_stride, count = args
            emit = _Emit(builder)
            product = ir.FunctionType(_VECTOR, [_VECTOR, _WORDS, _WORDS])
            add = ir.InlineAsm(product, "vdpbf16ps $3, $2, $0", "=v,0,v,v", side_effect=False)

            def load(term, lane):
                return emit.load(b, emit.plus(emit.times(term, 4 * LANES), lane))

            def multiply(term, row, columns, cells):
                words = emit.splat(a, emit.plus(emit.times(a_stride, row), term))
                factor = builder.bitcast(words, _WORDS)
                for cell, column in zip(cells, columns, strict=True):
                    operands = [builder.load(cell), factor, builder.bitcast(column, _WORDS)]
                    builder.store(builder.call(add, operands), cell)

            _accumulate_blocks(emit, c, c_stride, count, rows, load, multiply)

        return types.void(*[types.int64] * 6), codegen

    return typed


# c[r, 0:64] += sum_j a[r, j] * b[j, 0:64] for 1 or 4 rows: the sum starts at 0 and takes one fma
# a term, j in order; then one addition. Strides in elements.
add_product = intrinsic(_add_product(1))
add_product_4 = intrinsic(_add_product(4))

# The same over pairs of bfloat16: a [rows, count] and b [count, 64] hold two terms a 32-bit word;
# a term is one vdpbf16ps instruction (HAS_PAIRS says whether the machine has it).
add_pairs = intrinsic(_add_pairs(1))
add_pairs_4 = intrinsic(_add_pairs(4))
