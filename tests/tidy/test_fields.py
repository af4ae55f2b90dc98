"""N10: no field of a public request is accepted and ignored: the gateway reads it or refuses it."""

import ast
from collections.abc import Iterator
from typing import Any

from services.contract import pb, wire
from tests.tidy.sources import python_files, syntax

GENERATION = pb.generation_pb2


def leaves(message: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Return (dotted path, name) of each field that holds a value."""
    for field in message.fields:
        path = f"{prefix}{field.name}"
        inner = field.message_type
        if inner is None or inner.GetOptions().map_entry:
            yield path, field.name
        else:
            yield from leaves(inner, f"{path}.")


def names_read() -> set[str]:
    """Return every attribute and every string that the gateway's code holds."""
    nodes = [n for path in python_files("services/gateway/") for n in ast.walk(syntax(path))]
    attributes = {n.attr for n in nodes if isinstance(n, ast.Attribute)}
    return attributes | {str(n.value) for n in nodes if isinstance(n, ast.Constant)}


def refused() -> tuple[str, ...]:
    """Return the paths that are refused by name."""
    return (*wire.UNSUPPORTED, *wire.UNSUPPORTED_VALUES)


def ignored(read: set[str]) -> list[str]:
    """Return the request fields that are neither read nor refused."""
    requests = [m for n, m in vars(GENERATION).items() if n.endswith("Request")]
    return [
        f"{request.DESCRIPTOR.name}.{path}"
        for request in requests
        for path, name in leaves(request.DESCRIPTOR)
        if name not in read and not path.startswith(refused())
    ]


def test_every_request_field_is_read_or_refused() -> None:
    assert not ignored(names_read())


def test_a_field_that_nobody_reads_is_found() -> None:
    read = names_read()
    found = set(ignored(read - {"ignore_eos"})) - set(ignored(read))
    assert found == {
        "GenerateRequest.stop.ignore_eos",
        "GenerateStreamRequest.stop.ignore_eos",
    }


def test_every_refused_path_is_a_field() -> None:
    paths = dict(leaves(GENERATION.GenerateRequest.DESCRIPTOR))
    for path in refused():
        assert any(known == path or known.startswith(f"{path}.") for known in paths), path
