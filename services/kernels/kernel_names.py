"""Names that Triton changed after 3.6, under one name each."""

from triton.experimental.gluon import language as gl

barrier = gl.barrier if hasattr(gl, "barrier") else gl.thread_barrier
