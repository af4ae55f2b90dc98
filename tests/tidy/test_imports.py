"""Imports point one way, and heavy packages stay in their rooms."""

import ast
from collections.abc import Iterable

import pytest

from tests.tidy.sources import Import, imports, python_files, syntax

STAGES = ("drafter", "verifier", "committer")
LEVELS = {
    "contract": 0,
    "kernels": 1,
    "model": 2,
    "runtime": 3,
    **dict.fromkeys(STAGES, 4),
    "gateway": 5,
    "commands": 6,
    "cli": 7,
}
# Who may import a package: a path must start or end with one of these.
OWNERS = {
    "grpc": ("services/gateway/", "services/client.py"),
    "grpc_health": ("services/gateway/",),
    "grpc_reflection": ("services/gateway/",),
    "ray": ("services/runtime/", "/actor.py"),
    "numba": ("/cpu.py",),
    "triton": ("/kernel.py",),
    "services.contract._pb": ("services/contract/",),
    "vllm": ("services/gateway/vllm/",),
}
FORBIDDEN = ("tests", "benchmarks", "transformers")


def room_of(module: str) -> str:
    """Return the room of services.ROOM..., or an empty string."""
    parts = module.split(".")
    return parts[1] if parts[0] == "services" and len(parts) > 1 else ""


def faults(found: Iterable[Import]) -> list[str]:
    """Return the imports that break a rule."""
    return [f"{x.path}:{x.line} imports {x.module}: {why}" for x in found if (why := _fault(x))]


def _fault(found: Import) -> str:
    package = found.module.split(".")[0]
    if package in FORBIDDEN:
        return "services never import it"
    for owned, owners in OWNERS.items():
        if f"{found.module}.".startswith(f"{owned}.") and not _is_owner(found.path, owners):
            return f"only {' and '.join(owners)} may"
    return _direction_fault(found) or _laziness_fault(found)


def _is_owner(path: str, owners: tuple[str, ...]) -> bool:
    name = path.replace("/kernel_", "/kernel.py_")
    return any(path.startswith(x) or path.endswith(x) or f"{x}_" in name for x in owners)


def _direction_fault(found: Import) -> str:
    source = room_of(found.path.removesuffix(".py").replace("/", "."))
    target = room_of(found.module)
    if target == source or not target or target not in LEVELS:
        return ""
    if source == "client":
        return "" if target == "contract" else "the client knows the contract alone"
    if source in LEVELS and LEVELS[target] >= LEVELS[source]:
        return "imports point from later rooms to earlier ones"
    return ""


def _laziness_fault(found: Import) -> str:
    if found.module.split(".")[0] == "vllm" and found.at_top:
        return "import vllm inside the function that needs it"
    leaf = found.module.rsplit(".", 1)[-1]
    is_backend = found.module.startswith("services.kernels.") and (
        leaf == "cpu" or leaf.startswith("kernel")
    )
    if is_backend and leaf != "kernels" and found.at_top and not _is_backend(found.path):
        return "import a backend inside the function that needs it"
    return ""


def _is_backend(path: str) -> bool:
    name = path.rsplit("/", 1)[-1]
    return name == "cpu.py" or name.startswith("kernel")


def test_imports_point_one_way() -> None:
    found = [x for path in python_files("services/") for x in imports(path, syntax(path))]
    assert len(found) > 100
    assert not faults(found), "\n".join(faults(found))


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("services/contract/tree.py", "from services.kernels import gdn"),
        ("services/model/layers.py", "import services.runtime.arena"),
        ("services/drafter/stage.py", "from services.verifier import walk"),
        ("services/committer/stage.py", "from services import gateway"),
        ("services/gateway/server.py", "from services import cli"),
        ("services/runtime/local.py", "from services.drafter.stage import DrafterStage"),
        ("services/client.py", "from services.gateway import text"),
        ("services/runtime/local.py", "import grpc"),
        ("services/contract/pb.py", "import grpc.aio"),
        ("services/gateway/server.py", "import ray"),
        ("services/verifier/stage.py", "import ray"),
        ("services/drafter/suffix.py", "import numba"),
        ("services/kernels/gdn/reference.py", "import triton"),
        ("services/kernels/gdn/__init__.py", "from services.kernels.gdn import kernel"),
        ("services/kernels/gdn/__init__.py", "from services.kernels.gdn.cpu import scan"),
        ("services/gateway/server.py", "from services.contract._pb import tree_pb2"),
        ("services/model/weights.py", "import transformers"),
        ("services/gateway/server.py", "def f():\n    import vllm"),
        ("services/gateway/vllm/native.py", "from vllm import SamplingParams"),
        ("services/verifier/walk.py", "def f():\n    from tests import oracle"),
    ],
)
def test_a_wrong_import_is_found(path: str, code: str) -> None:
    assert faults(imports(path, ast.parse(code)))


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("services/gateway/server.py", "import grpc\nfrom services.runtime import local"),
        ("services/drafter/actor.py", "import ray"),
        ("services/kernels/gdn/kernel.py", "import triton"),
        ("services/kernels/gdn/kernel_replay.py", "import triton"),
        ("services/kernels/gdn/cpu.py", "import numba"),
        ("services/kernels/gdn/__init__.py", "def f():\n    from services.kernels.gdn import cpu"),
        ("services/verifier/stage.py", "from services.kernels import gdn"),
        ("services/gateway/vllm/native.py", "def f():\n    import vllm"),
        ("services/gateway/server.py", "from services.gateway.vllm.door import VllmDoor"),
    ],
)
def test_a_right_import_is_left_alone(path: str, code: str) -> None:
    assert not faults(imports(path, ast.parse(code)))
