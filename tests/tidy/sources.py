"""The project's files, and what a module imports."""

import ast
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
GENERATED = "services/contract/_pb/"


class Import(NamedTuple):
    """One imported module, where, and whether at the top of the file."""

    path: str
    line: int
    module: str
    at_top: bool


@cache
def tracked_files() -> tuple[str, ...]:
    """Return the paths of the files under version control, and of new ones not ignored."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return tuple(path for path in listed.stdout.splitlines() if (ROOT / path).is_file())


def python_files(folder: str) -> tuple[str, ...]:
    """Return hand-written Python files under `folder`."""
    return tuple(
        path
        for path in tracked_files()
        if path.startswith(folder) and path.endswith(".py") and not path.startswith(GENERATED)
    )


@cache
def syntax(path: str) -> ast.Module:
    """Return the file's syntax tree."""
    return ast.parse((ROOT / path).read_text(encoding="utf-8"), path)


def imports(path: str, tree: ast.Module) -> Iterator[Import]:
    """Return every import of a module; `from a import b` gives a.b as well as a."""
    top = set(_top_level(tree))
    for node in ast.walk(tree):
        for module in _modules(node):
            yield Import(path, getattr(node, "lineno", 0), module, node in top)


def _top_level(tree: ast.Module) -> Iterator[ast.AST]:
    for node in tree.body:
        if not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)):
            yield node


def _modules(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module:
        return [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return []
