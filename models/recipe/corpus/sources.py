"""Collect permissively licensed Python sources, one JSONL file a package, with a manifest.

    python -m models.recipe.corpus.sources WHEELS OUT

The held-out package is never read here.
"""

import hashlib
import json
import re
import sys
import zipfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from models.recipe.corpus.filters import (
    HELD_OUT,
    REFUSED_LICENSES,
    SKIPPED_FOLDERS,
    clean_source,
)

MAX_PACKAGE_CHARS: Final = 26_000_000
PACKAGE_LIMITS: Final = {
    "transformers": 16_000_000,
    "torch": 22_000_000,
    "homeassistant": 30_000_000,
    "salt": 20_000_000,
    "diffusers": 8_000_000,
    "moto": 10_000_000,
    "nova": 18_000_000,
    "neutron": 14_000_000,
    "cinder": 18_000_000,
    "keystone": 8_000_000,
    "qiskit": 9_000_000,
    "yt-dlp": 6_000_000,
    "ray": 14_000_000,
    "mlflow": 10_000_000,
}


@dataclass(frozen=True, slots=True)
class Source:
    """Hold one text: the hash of its non-blank characters, its package, its path."""

    digest: str
    package: str
    path: str
    text: str


@dataclass(frozen=True, slots=True)
class Package:
    """Hold what the manifest says of a package."""

    package: str
    version: str
    license: str
    files: int = 0
    bytes: int = 0
    note: str = ""


def collect(wheel: Path, out: Path) -> Package:
    """Write the sources of a wheel as JSONL; a refused license or name writes nothing."""
    with zipfile.ZipFile(wheel) as archive:
        metadata, _, description = _metadata(archive).partition("\n\n")
        package = Package(
            _field(metadata, "Name").lower(), _field(metadata, "Version"), license_of(metadata)
        )
        if REFUSED_LICENSES.search(package.license) or HELD_OUT in package.package:
            return Package(*list(asdict(package).values())[:3], note="refused license or name")
        sources = _limited(package.package, list(_sources(archive, package.package)))
    sources += _description(package.package, description)
    with (out / f"{package.package}.jsonl").open("w") as file:
        file.writelines(json.dumps(asdict(source)) + "\n" for source in sources)
    size = sum(len(source.text.encode()) for source in sources)
    return Package(*list(asdict(package).values())[:3], files=len(sources), bytes=size)


def license_of(metadata: str) -> str:
    """Return the license a METADATA file states: expression, classifiers, or free text."""
    for pattern in ("License-Expression: ", "Classifier: License :: ", "License: "):
        found = re.findall(rf"^{re.escape(pattern)}(.*)$", metadata, re.M)
        if found:
            return "; ".join(text[:80] if pattern == "License: " else text for text in found)
    return "see package"


def _metadata(archive: zipfile.ZipFile) -> str:
    name = next(
        name
        for name in archive.namelist()
        if name.endswith(".dist-info/METADATA") and name.count("/") == 1
    )
    return archive.read(name).decode("utf-8", "replace")


def _field(metadata: str, name: str) -> str:
    found = re.search(rf"^{name}: (.*)$", metadata, re.M)
    return found.group(1).strip() if found else ""


def _sources(archive: zipfile.ZipFile, package: str) -> Iterator[Source]:
    seen = set()
    for path in sorted(name for name in archive.namelist() if name.endswith(".py")):
        if SKIPPED_FOLDERS.search(path) or HELD_OUT in path.lower():
            continue
        text = clean_source(archive.read(path))
        if text is None:
            continue
        digest = hashlib.sha256(re.sub(r"\s+", "", text).encode()).hexdigest()
        if digest not in seen:
            seen.add(digest)
            yield Source(digest, package, path, text)


def _limited(package: str, sources: list[Source]) -> list[Source]:
    """Keep a deterministic subset below the package's limit."""
    limit = PACKAGE_LIMITS.get(package, MAX_PACKAGE_CHARS)
    if sum(len(source.text) for source in sources) <= limit:
        return sources
    kept, total = [], 0
    for source in sorted(sources, key=lambda source: source.digest):
        if total + len(source.text) <= limit:
            total += len(source.text)
            kept.append(source)
    return sorted(kept, key=lambda source: source.path)


def _description(package: str, text: str) -> list[Source]:
    text = text.strip().replace("\r\n", "\n")
    if not 300 < len(text) < 60_000 or HELD_OUT in text.lower():
        return []
    lines = [line for line in text.split("\n") if len(line) < 400]
    text = "\n".join(line for line in lines if "shields.io" not in line and "<img" not in line)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return [Source(digest, package, "README.md", text)]


def main(wheels: Path, out: Path) -> None:
    """Collect every wheel below a folder and write the manifest."""
    out.mkdir(parents=True, exist_ok=True)
    paths = sorted(wheels.rglob("*.whl"))
    with ProcessPoolExecutor(2) as pool:
        packages = list(pool.map(collect, paths, [out] * len(paths)))
    manifest = [asdict(package) for package in packages]
    (out / "manifest.json").write_text(json.dumps(manifest, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
