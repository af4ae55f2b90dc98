"""Compile every Triton kernel for sm_90 and sm_121 offline and print what it takes.

Run: python -m benchmarks.kernels.compile_table [--json FILE] [--op NAME]
"""

import argparse
import importlib
import json
import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

os.environ["TRITON_INTERPRET"] = "0"

import triton
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import get_ptxas
from triton.compiler import ASTSource
from triton.experimental.gluon._runtime import GluonASTSource

from services.kernels.compile_case import ARCHS, CompileCase

ROOT = Path(__file__).resolve().parents[2]
SHARED_LIMIT = {90: 227 * 1024, 121: 99 * 1024}


def kernel_modules() -> list[str]:
    """Return the dotted names of every services/kernels/*/kernel*.py."""
    files = sorted((ROOT / "services" / "kernels").glob("*/kernel*.py"))
    return [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in files]


def cases(arch: int, op: str = "") -> list[CompileCase]:
    """Return the compile cases of every kernel module that offers some."""
    found: list[CompileCase] = []
    for name in kernel_modules():
        if op and f".{op}." not in name:
            continue
        offer = getattr(importlib.import_module(name), "compile_cases", None)
        if offer is not None:
            found.extend(offer(arch))
    return found


def resources(ptx: str, arch: int) -> dict[str, int]:
    """Return registers, stack and spill bytes, and matrix instructions of a kernel's PTX."""
    tool = get_ptxas(arch).path
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "kernel.ptx")
        source.write_text(ptx)
        target = [f"--gpu-name=sm_{arch}a", "--fmad=false", "-v"]
        command = [tool, *target, str(source), "-o", str(source.with_suffix(".cubin"))]
        report = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    return {
        "registers": _sum(r"Used (\d+) registers", report),
        "stack": _sum(r"(\d+) bytes stack frame", report),
        "spills": _sum(r"(\d+) bytes spill", report),
        "wgmma": len(re.findall(r"wgmma\.mma_async", ptx)),
    }


def _sum(pattern: str, text: str) -> int:
    return sum(int(value) for value in re.findall(pattern, text))


def compile_case(case: CompileCase, arch: int) -> dict[str, Any]:
    """Compile one case for one architecture and return its row of the table."""
    names = case.kernel.arg_names
    signature = {name: case.types.get(name, "constexpr") for name in names}
    unknown = [name for name in names if name not in case.types and name not in case.constants]
    if unknown:
        raise ValueError(f"{case.name}: no type or constant for {', '.join(unknown)}")
    constants = {(names.index(name),): value for name, value in case.constants.items()}
    pointers = [i for i, name in enumerate(names) if signature[name].startswith("*")]
    attributes = {(index,): [["tt.divisibility", 16]] for index in pointers}
    form = GluonASTSource if case.kernel.is_gluon() else ASTSource
    source = form(case.kernel, signature, constants, attributes)
    options = {
        "num_warps": case.num_warps,
        "num_stages": case.num_stages,
        "enable_fp_fusion": False,
        "maxnreg": case.max_registers or None,
    }
    built = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)
    return {
        "kernel": case.name,
        "arch": arch,
        "warps": case.num_warps,
        "shared": built.metadata.shared,
        "hot": case.hot,
        **resources(built.asm["ptx"], arch),
    }


def faults(row: dict[str, Any]) -> list[str]:
    """Return what a row breaks: shared memory over the limit, spills in a hot kernel."""
    found = []
    if row["shared"] > SHARED_LIMIT[row["arch"]]:
        found.append(f"{row['shared']} bytes of shared memory, limit {SHARED_LIMIT[row['arch']]}")
    if row["hot"] and row["spills"]:
        found.append(f"{row['spills']} spilled bytes in a hot kernel")
    return found


def table(op: str = "") -> list[dict[str, Any]]:
    """Compile everything and return the rows."""
    return [compile_case(case, arch) for arch in ARCHS for case in cases(arch, op)]


def main() -> None:
    """Print the table; exit 1 if a row breaks a limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--op", default="")
    arguments = parser.parse_args()
    rows = table(arguments.op)
    print(f"{'kernel':52}{'arch':>5}{'warps':>6}{'regs':>6}{'spills':>7}{'stack':>6}{'shared':>8}")
    for row in rows:
        print(
            f"{row['kernel']:52}{row['arch']:>5}{row['warps']:>6}{row['registers']:>6}"
            f"{row['spills']:>7}{row['stack']:>6}{row['shared']:>8}"
        )
    if arguments.json:
        arguments.json.write_text(
            json.dumps({"triton": triton.__version__, "rows": rows}, indent=1)
        )
    broken = [f"{row['kernel']} sm_{row['arch']}: {text}" for row in rows for text in faults(row)]
    print("\n".join(broken))
    raise SystemExit(1 if broken else 0)


if __name__ == "__main__":
    main()
