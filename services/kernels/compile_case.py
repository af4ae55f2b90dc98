"""What an offline compile of a kernel needs; every kernel module offers compile_cases(arch)."""

from dataclasses import dataclass, field
from typing import Any

ARCHS = (90, 121)


@dataclass(frozen=True, slots=True)
class CompileCase:
    """One kernel at one configuration.

    Args    name: "op.kernel shape". kernel: the jit function. types: Triton type of every
            run-time argument, in order ("*bf16", "i32", "fp32"). constants: every constexpr.
            hot: whether it runs inside a decode cycle, where no spill is allowed.
            max_registers: registers a thread may take; 0 leaves it to the assembler.
    """

    name: str
    kernel: Any
    types: dict[str, str]
    constants: dict[str, Any] = field(default_factory=dict)
    num_warps: int = 4
    num_stages: int = 3
    hot: bool = True
    max_registers: int = 0
