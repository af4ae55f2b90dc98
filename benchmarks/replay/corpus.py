"""Recorded requests as token ids: the project's constructed corpora, or any OpenAI-form JSONL."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.gateway.chat import ChatTemplate
from services.gateway.text import TextCodec

CORPORA = Path(__file__).resolve().parents[1] / "data"


@dataclass(frozen=True, slots=True)
class CorpusRequest:
    """One request of a corpus."""

    corpus: str
    id: str
    conversation: str
    token_ids: tuple[int, ...]


def check_manifest(folder: Path = CORPORA) -> dict[str, str]:
    """Return the corpora's hashes after comparing the files with the frozen manifest.

    Raises  ValueError naming a file that changed.
    """
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    hashes = {}
    for name, facts in manifest["corpora"].items():
        found = hashlib.sha256((folder / f"{name}.jsonl").read_bytes()).hexdigest()
        if found != facts["sha256"]:
            raise ValueError(f"{name}.jsonl is not the file of the manifest; restore it")
        hashes[name] = found
    return hashes


def load_corpus(file: Path, model: Path, limit: int) -> list[CorpusRequest]:
    """Return requests spread evenly over a corpus; 0 takes all of them."""
    codec = TextCodec.load(model)
    template = ChatTemplate.load(model, codec)
    lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line]
    count = min(limit or len(lines), len(lines))
    chosen = [lines[index * len(lines) // count] for index in range(count)]
    return [_request(json.loads(line), file.stem, i, template) for i, line in enumerate(chosen)]


def _request(
    entry: dict[str, Any], corpus: str, index: int, template: ChatTemplate
) -> CorpusRequest:
    body = entry.get("request", entry)
    ids = body.get("token_ids") or template.render(body["messages"], body.get("tools"))[1]
    name = entry.get("id", f"{corpus}-{index}")
    return CorpusRequest(corpus, name, entry.get("conversation", name), tuple(ids))
