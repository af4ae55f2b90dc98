"""Words that two threads share: atomic loads, stores, claims, and a semaphore, as LLVM code."""

import platform

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_WORD = ir.IntType(64)
_INT = ir.IntType(32)
_PAUSE = {"x86_64": "pause", "aarch64": "yield"}.get(platform.machine(), "")
HAS_ATOMICS = platform.system() == "Linux" and bool(_PAUSE)


def _pointer(builder, address):
    return builder.inttoptr(address, _WORD.as_pointer())


@intrinsic
def load_word(typingctx, address):
    """Return the int64 at `address`; later reads come after it."""

    def codegen(context, builder, signature, args):
        return builder.load_atomic(_pointer(builder, args[0]), "seq_cst", 8)

    return types.int64(types.int64), codegen


@intrinsic
def store_word(typingctx, address, value):
    """Write an int64; earlier writes are seen before it, later reads come after it."""

    def codegen(context, builder, signature, args):
        builder.store_atomic(args[1], _pointer(builder, args[0]), "seq_cst", 8)

    return types.void(types.int64, types.int64), codegen


@intrinsic
def swap_word(typingctx, address, expected, value):
    """Write `value` if the int64 is `expected`; return whether it was."""

    def codegen(context, builder, signature, args):
        pointer = _pointer(builder, args[0])
        found = builder.cmpxchg(pointer, args[1], args[2], "seq_cst", "seq_cst")
        return builder.extract_value(found, 1)

    return types.boolean(types.int64, types.int64, types.int64), codegen


@intrinsic
def pause(typingctx):
    """Tell the core that this thread spins."""

    def codegen(context, builder, signature, args):
        kind = ir.FunctionType(ir.VoidType(), [])
        builder.asm(kind, _PAUSE, "", [], side_effect=True)

    return types.void(), codegen


def _semaphore(name):
    def typed(typingctx, address):
        def codegen(context, builder, signature, args):
            kind = ir.FunctionType(_INT, [_WORD])
            function = cgutils.get_or_insert_function(builder.module, kind, name)
            return builder.call(function, args)

        return types.int32(types.int64), codegen

    return typed


# POSIX semaphores of the C library at an address of 32 zeroed bytes (a count of 0).
wait_semaphore = intrinsic(_semaphore("sem_wait"))
post_semaphore = intrinsic(_semaphore("sem_post"))
