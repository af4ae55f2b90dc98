"""Names that Triton changed after 3.6, under one name each."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

barrier = gl.barrier if hasattr(gl, "barrier") else gl.thread_barrier
IS_PUBLIC = gl.constexpr(hasattr(gl.shared_memory_descriptor, "reinterpret"))


@gluon.jit
def as_floats(block, shape: gl.constexpr, layout: gl.constexpr):
    """Return a block of shared memory as fp32 of another shape."""
    if IS_PUBLIC:
        floats = block.reinterpret(gl.float32, shape, layout)
    else:
        floats = block._reinterpret(gl.float32, shape, layout)
    return floats
