"""The optional manifest of a checkpoint folder: what each file must hash to."""

import hashlib
from pathlib import Path
from typing import Final

from services.contract.errors import CheckpointError
from services.model.config import read_json

MANIFEST: Final = "manifest.json"


def check_manifest(folder: Path) -> bool:
    """Compare every file that the manifest lists with its size and SHA-256.

    Returns whether there is a manifest.
    Raises  CheckpointError naming the first file that differs.
    """
    path = folder / MANIFEST
    if not path.is_file():
        return False
    files = read_json(path).get("files")
    if not isinstance(files, dict):
        raise CheckpointError("MANIFEST", f"{MANIFEST}: no object named files")
    for name, wanted in files.items():
        if Path(name).name != name or not isinstance(wanted, dict):
            raise CheckpointError("MANIFEST", f"{MANIFEST}: {name!r} is no plain file entry")
        _check_file(folder / name, wanted.get("bytes"), wanted.get("sha256"))
    return True


def _check_file(path: Path, size: object, digest: object) -> None:
    if not path.is_file():
        raise CheckpointError("MANIFEST", f"{path.name}: missing, but the manifest lists it")
    if path.stat().st_size != size:
        message = f"{path.stat().st_size} bytes, the manifest says {size}; download it again"
        raise CheckpointError("MANIFEST", f"{path.name}: {message}")
    with path.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != digest:
            message = "its SHA-256 is not the manifest's; download it again"
            raise CheckpointError("MANIFEST", f"{path.name}: {message}")
