"""Requests and answers as JSON lines, for a replay; off unless an operator asks for it."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, Final

from services.contract.errors import InvalidField
from services.gateway.assemble import Assembler
from services.gateway.requests import FinishReason
from services.runtime.log import get_logger

_LOG = get_logger("gateway.recorder")
MAX_FILE_BYTES: Final = 1 << 30
_ENDED: Final = (FinishReason.STOP, FinishReason.LENGTH)


class Recorder:
    """Append each request that came to its end to one file that only its owner reads.

    Raises  InvalidField if the folder cannot be written to.
    """

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.path = folder / f"requests-{time.time_ns()}.jsonl"
            handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError as error:
            text = f"{folder} cannot be written to: {error.strerror}; name another folder"
            raise InvalidField("RECORD", text, "record") from None
        self._file = os.fdopen(handle, "w", encoding="utf-8")
        self._bytes = 0

    def add(self, assembler: Assembler) -> None:
        """Write one request; nothing if a choice was cut short or the file is full."""
        if any(end.reason not in _ENDED for end in assembler.finished.values()):
            return
        line = json.dumps(_entry(assembler), ensure_ascii=True) + "\n"
        if self._bytes + len(line) > MAX_FILE_BYTES:
            _LOG.warning("record is full", limit=MAX_FILE_BYTES)
            return
        self._bytes += len(line)
        self._file.write(line)
        self._file.flush()


def _entry(assembler: Assembler) -> dict[str, Any]:
    resolved = assembler.resolved
    sampling, budget = resolved.sampling, resolved.budget
    return {
        "id": assembler.request_id,
        "request": {
            "prompt": resolved.prompt_text,
            "token_ids": resolved.prompt_ids,
            "max_tokens": budget.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
            "seed": sampling.seed,
        },
        "choices": [
            {"text": end.text, "token_ids": end.token_ids, "finish_reason": end.reason.value}
            for _, end in sorted(assembler.finished.items())
        ],
    }
