"""Token shards, and training windows drawn from them without replacement."""

import lzma
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from models.recipe.settings import MTP_DEPTH

Tokens = npt.NDArray[np.uint16]
HELD_OUT = ("code", "chat")


def load_tokens(folder: Path) -> tuple[Tokens, dict[str, Tokens]]:
    """Return the training stream and the held-out streams of `folder`/data."""
    files = sorted((folder / "data").glob("train*.xz"))
    with ThreadPoolExecutor(16) as pool:
        parts = list(pool.map(read_shard, files))
    held_out = {name: read_shard(folder / "data" / f"val_{name}.xz") for name in HELD_OUT}
    return np.concatenate(parts), held_out


def read_shard(path: Path) -> Tokens:
    """Return the little-endian 16-bit tokens of one xz file."""
    return np.frombuffer(lzma.decompress(path.read_bytes()), dtype="<u2")


class Windows:
    """Draw windows of T + 6 tokens; each epoch has a new random phase and order."""

    def __init__(self, tokens: torch.Tensor, seed: int = 0) -> None:
        self._tokens = tokens
        self._generator = torch.Generator().manual_seed(seed)
        self._queues: dict[int, torch.Tensor] = {}
        self.epochs: dict[int, int] = {}

    def draw(self, count: int, length: int) -> torch.Tensor:
        """Return `count` windows [count, length + 6], int64."""
        width = length + MTP_DEPTH + 1
        queue = self._queues.get(length)
        if queue is None or len(queue) < count:
            queue = self._epoch(count, length, self._tokens.numel() - width - 1)
        self._queues[length] = queue[count:]
        starts = queue[:count].to(self._tokens.device)
        offsets = torch.arange(width, device=self._tokens.device)
        return self._tokens[starts[:, None] + offsets].long()

    def _epoch(self, count: int, length: int, end: int) -> torch.Tensor:
        phase = int(torch.randint(0, length, (1,), generator=self._generator))
        starts = torch.arange(phase, end, length)
        if len(starts) < count:
            starts = torch.randint(0, end, (count,), generator=self._generator)
        self.epochs[length] = self.epochs.get(length, 0) + 1
        return starts[torch.randperm(len(starts), generator=self._generator)]


def draw_anchors(windows: int, length: int, count: int, device: str) -> torch.Tensor:
    """Return random positions [windows, count] at which deeper MTP passes are trained."""
    return torch.randint(0, length, (windows, count), device=device)
