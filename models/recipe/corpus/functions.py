"""Functions of a Python file, with the lines they span."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

MIN_LINES, MAX_LINES = 5, 60


@dataclass(frozen=True, slots=True)
class Function:
    """Hold one function; lines are 1-based, `first` includes decorators.

    Args    doc, doc_first, doc_last: the docstring of a function that holds more than it.
    """

    name: str
    qualified: str
    first: int
    last: int
    body_first: int
    indent: int
    arguments: tuple[str, ...]
    doc: str
    doc_first: int
    doc_last: int

    @property
    def starts_with_doc(self) -> bool:
        """Say whether there is a docstring to show or to remove."""
        return bool(self.doc) and self.doc_first == self.body_first


def find_functions(text: str) -> list[Function]:
    """Return the functions and methods of 5 to 60 lines; none if the file does not parse."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    return list(_walk(tree, ""))


def _walk(node: ast.AST, prefix: str) -> Iterator[Function]:
    for child in getattr(node, "body", []):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            function = _function(child, prefix)
            lines = function.last - function.first + 1
            if MIN_LINES <= lines <= MAX_LINES and function.body_first > child.lineno:
                yield function
        elif isinstance(child, ast.ClassDef):
            yield from _walk(child, f"{prefix}{child.name}.")


def _function(node: ast.FunctionDef | ast.AsyncFunctionDef, prefix: str) -> Function:
    doc = ast.get_docstring(node) or ""
    is_documented = bool(doc) and len(node.body) > 1
    names = (argument.arg for argument in node.args.args)
    return Function(
        name=node.name,
        qualified=prefix + node.name,
        first=min([node.lineno, *(line.lineno for line in node.decorator_list)]),
        last=node.end_lineno or node.lineno,
        body_first=node.body[0].lineno,
        indent=node.col_offset,
        arguments=tuple(name for name in names if name not in ("self", "cls")),
        doc=doc,
        doc_first=node.body[0].lineno if is_documented else 0,
        doc_last=(node.body[0].end_lineno or 0) if is_documented else 0,
    )
