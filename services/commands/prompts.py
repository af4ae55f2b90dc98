"""Prompts shipped with the project, and any JSONL or JSON of the same forms."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from services.contract.errors import InvalidField
from services.gateway.engine import Engine


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt as token ids."""

    name: str
    token_ids: tuple[int, ...]


def load_prompts(engine: Engine, files: list[Path], count: int) -> list[Prompt]:
    """Return the first `count` prompts, taking one from each file in turn.

    A .json file lists objects with `prompt`; a .jsonl file has one OpenAI chat request a line,
    under `request` or bare.
    Raises  InvalidField if the files hold fewer.
    """
    sources = [list(_read(engine, file)) for file in files]
    longest = max(map(len, sources), default=0)
    merged = [source[i] for i in range(longest) for source in sources if i < len(source)]
    if len(merged) < count:
        raise InvalidField(
            "PROMPTS", f"{count} asked, {len(merged)} there; ask for fewer", "prompts"
        )
    return merged[:count]


def _read(engine: Engine, file: Path) -> Iterator[Prompt]:
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".json":
        for entry in json.loads(text):
            yield Prompt(entry["id"], tuple(engine.codec.encode(entry["prompt"])))
        return
    for index, line in enumerate(filter(None, text.splitlines())):
        entry = json.loads(line)
        request = entry.get("request", entry)
        _, ids = engine.template.render(request["messages"], request.get("tools"))
        yield Prompt(entry.get("id", f"{file.stem}-{index}"), tuple(ids))
