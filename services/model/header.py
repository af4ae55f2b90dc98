"""Safetensors headers, checked before anything trusts them."""

import json
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Final

from services.contract.errors import CheckpointError

MAX_HEADER_BYTES: Final = 16 * 1024 * 1024
MAX_TENSORS: Final = 20_000
_MAX_DIMS: Final = 8
_DTYPE_BITS: Final = {
    **{"BF16": 16, "F16": 16, "F32": 32, "F64": 64, "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6},
    **{"F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "I8": 8, "U8": 8, "I16": 16, "U16": 16},
    **{"I32": 32, "U32": 32, "I64": 64, "U64": 64, "C64": 64, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8},
}


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """Name one stored tensor: its file, its name there, its type, its bytes."""

    path: Path
    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def size_bytes(self) -> int:
        """Return the bytes the tensor takes in the file."""
        return self.end - self.begin


def read_header(path: Path) -> dict[str, TensorEntry]:
    """Return the tensors of a safetensors file by name, every bound checked.

    Raises  CheckpointError naming the file: missing, empty, truncated, over-long header, too
            many tensors, or entries that do not tile the data.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(_first_bytes(path, file.read(8)), "little")
            if length > MAX_HEADER_BYTES:
                message = f"header is {length} bytes; the limit is {MAX_HEADER_BYTES}"
                raise file_error(path, message)
            if 8 + length > size:
                raise file_error(path, f"truncated: {size} bytes, its header alone needs more")
            raw = file.read(length)
    except FileNotFoundError:
        raise file_error(path, "missing; download it again") from None
    except OSError as error:
        raise file_error(path, f"not readable: {error.strerror}") from None
    entries = _entries(path, _parse(path, raw))
    _check_tiling(path, entries, size - 8 - length)
    return entries


def file_error(path: Path, message: str) -> CheckpointError:
    """Return the error that names a weight file."""
    return CheckpointError("WEIGHT_FILE", f"{path.name}: {message}")


def _first_bytes(path: Path, first: bytes) -> bytes:
    if len(first) < 8:
        raise file_error(path, "empty or shorter than a header; download it again")
    return first


def _parse(path: Path, raw: bytes) -> dict[str, Any]:
    """Parse a header after bounding, by its bytes alone, what parsing can allocate."""
    if raw.count(b'"data_offsets"') > MAX_TENSORS:
        raise file_error(path, f"more than {MAX_TENSORS} tensors")
    if raw.count(b":") > 8 * MAX_TENSORS or raw.count(b"[") + raw.count(b"{") > 4 * MAX_TENSORS:
        raise file_error(path, "the header holds more than tensor entries")
    try:
        header = json.loads(raw, object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        raise file_error(path, "the header is not valid JSON") from None
    if not isinstance(header, dict):
        raise file_error(path, "the header is no JSON object")
    header.pop("__metadata__", None)
    if len(header) > MAX_TENSORS:
        raise file_error(path, f"{len(header)} tensors; the limit is {MAX_TENSORS}")
    return header


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a name is listed twice")
    return values


def _entries(path: Path, header: dict[str, Any]) -> dict[str, TensorEntry]:
    return {name: _entry(path, name, value) for name, value in header.items()}


def _entry(path: Path, name: str, value: object) -> TensorEntry:
    if not isinstance(value, dict):
        raise file_error(path, f"entry of {name} is no object")
    dtype = value.get("dtype")
    if not isinstance(dtype, str) or dtype not in _DTYPE_BITS:
        raise file_error(path, f"{name} has an unknown dtype")
    shape, offsets = _naturals(value.get("shape")), _naturals(value.get("data_offsets"))
    if shape is None or len(shape) > _MAX_DIMS:
        raise file_error(path, f"{name} has no valid shape")
    if offsets is None or len(offsets) != 2:
        raise file_error(path, f"{name} has no valid data_offsets")
    begin, end = offsets
    if (end - begin) * 8 != prod(shape) * _DTYPE_BITS[dtype]:
        raise file_error(path, f"{name} spans {end - begin} bytes, its shape needs others")
    return TensorEntry(path, name, dtype, shape, begin, end)


def _naturals(value: Any) -> tuple[int, ...] | None:
    if not isinstance(value, list):
        return None
    fine = all(type(x) is int and 0 <= x < 1 << 48 for x in value)
    return tuple(value) if fine else None


def _check_tiling(path: Path, entries: dict[str, TensorEntry], data_bytes: int) -> None:
    end = 0
    for entry in sorted(entries.values(), key=lambda entry: (entry.begin, entry.end)):
        if entry.begin != end:
            raise file_error(path, f"{entry.name} does not start where the tensor before it ends")
        end = entry.end
    if end > data_bytes:
        raise file_error(path, f"truncated: tensors need {end} bytes of data, it has {data_bytes}")
    if end < data_bytes:
        raise file_error(path, f"{data_bytes - end} bytes after the last tensor")
