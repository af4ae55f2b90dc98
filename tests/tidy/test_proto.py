"""Generated code equals re-generated code, and the proto surface only grows."""

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from services.contract import pb
from tests.tidy.sources import ROOT

SURFACE = ROOT / "tests" / "tidy" / "proto_surface.txt"
MODULES = (pb.tree_pb2, pb.path_pb2, pb.generation_pb2, pb.stage_pb2)


def surface() -> list[str]:
    """Return one line for each method, field and enum value of the protos."""
    return sorted(line for module in MODULES for line in _file_lines(module.DESCRIPTOR))


def _file_lines(file: Any) -> Iterator[str]:
    for message in file.message_types_by_name.values():
        yield from _message_lines(message)
    for enum in file.enum_types_by_name.values():
        yield from (f"{enum.full_name} {v.number} {v.name}" for v in enum.values)
    for service in file.services_by_name.values():
        yield from (_method_line(method) for method in service.methods)


def _message_lines(message: Any) -> Iterator[str]:
    for field in message.fields:
        kind = field.message_type or field.enum_type
        name = kind.full_name if kind else f"type-{field.type}"
        shape = "repeated" if field.is_repeated else "single"
        yield f"{message.full_name} {field.number} {field.name} {shape} {name}"


def _method_line(method: Any) -> str:
    shape = "stream" if method.server_streaming else "unary"
    return f"{method.full_name} {method.input_type.name} {shape} {method.output_type.name}"


def _generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "proto" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_surface_is_the_frozen_one() -> None:
    frozen = SURFACE.read_text(encoding="utf-8").splitlines()
    gone, new = sorted(set(frozen) - set(surface())), sorted(set(surface()) - set(frozen))
    hint = f"python -m tests.tidy.test_proto > {SURFACE.relative_to(ROOT)} records an addition"
    assert not gone, f"removed or changed: {gone}"
    assert not new, f"not recorded: {new}; {hint}"


def test_generated_code_equals_regenerated_code() -> None:
    command = [sys.executable, "proto/generate.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_a_changed_a_missing_and_an_extra_file_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = _generator()
    monkeypatch.setattr(generator, "TARGET", tmp_path)
    (tmp_path / "same.py").write_text("a")
    (tmp_path / "changed.py").write_text("b")
    (tmp_path / "extra.py").write_text("c")
    files = {"same.py": "a", "changed.py": "B", "missing.py": "d"}
    assert generator.differences(files) == ["changed.py", "extra.py", "missing.py"]


def test_every_public_scalar_tells_unset_from_zero() -> None:
    for module in (pb.tree_pb2, pb.path_pb2, pb.generation_pb2):
        for message in module.DESCRIPTOR.message_types_by_name.values():
            for field in message.fields:
                assert field.is_repeated or field.has_presence, field.full_name


def test_buf_finds_nothing() -> None:
    buf = Path(sys.executable).with_name("buf")
    done = subprocess.run([buf, "lint", "proto"], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


if __name__ == "__main__":
    print("\n".join(surface()))
