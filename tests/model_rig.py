"""The project's forward over bare arenas: what a verifier and a committer would do by hand."""

from pathlib import Path

import torch

from services.contract.config import EngineConfig
from services.contract.limits import MAX_PATH, TABLE_WORDS
from services.contract.topology import NodeSource, Tree
from services.kernels import gdn, publish
from services.kernels.state_words import ACTIVE_SET, LENGTH, PATH_NODES, PATH_NUM_NODES
from services.kernels.tree_tables import TableViews, build_tables
from services.model.checkpoint import Checkpoint
from services.model.forward import TargetForward
from services.model.mtp import MtpHead
from services.model.state import TargetState
from services.model.weights import load_mtp, load_target
from services.runtime.buffers import make_arenas, model_dtype

GRID = 64


def tree_of(parents: list[int], token_ids: list[int]) -> Tree:
    """Return a tree with neutral sources and log-probabilities."""
    count = len(parents)
    sources = (int(NodeSource.ROOT),) + (int(NodeSource.FORCED),) * (count - 1)
    return Tree(tuple(parents), tuple(token_ids), sources, (0.0,) * count)


class ModelRig:
    """Hold one loaded model and its arenas, with whole pages given to every slot."""

    def __init__(
        self, folder: Path | str, slots: int = 2, context: int = 512, device: str = "cpu"
    ) -> None:
        self.device = device
        self.engine = EngineConfig(
            model=str(folder),
            device=device,
            max_sequences=slots,
            context_length=context,
            prefill_grid=GRID,
            threads=1,
        )
        checkpoint = Checkpoint.open(Path(folder))
        self.config = checkpoint.config
        dtype = model_dtype(self.engine)
        self.weights = load_target(checkpoint, dtype, device)
        self.arenas = make_arenas(self.config, self.engine)
        self.state = TargetState.of(self.arenas.verifier)
        self.path = self.arenas.verifier["path"]
        pages = self.engine.pages_per_sequence
        self.state.page_table.copy_(torch.arange(slots * pages).view(slots, pages))
        self.forward = TargetForward(self.config, self.weights, self.state)
        mtp = load_mtp(checkpoint, dtype, device)
        if mtp is not None:
            shared = self.weights.embedding, self.weights.head
            pages = self.arenas.drafter["mtp_kv"][0], self.state.page_table
            self.mtp = MtpHead(self.config, mtp, *shared, *pages, GRID)

    def poison(self) -> None:
        """Fill every ring and page with NaN, as memory of a past owner may hold."""
        for name in ("kv", "raw_ring", "mixed_ring", "ab_ring", "kv_ring", "hidden_ring"):
            getattr(self.state, name).fill_(torch.nan)
        self.arenas.drafter["mtp_kv"].fill_(torch.nan)

    def prefill(self, token_ids: list[int], slot: int = 0) -> torch.Tensor:
        """Run a prompt on the grid; return the hidden rows [n, d]."""
        hidden = []
        for start in range(0, len(token_ids), GRID):
            part = token_ids[start : start + GRID]
            ids = self._words(part + [0] * (GRID - len(part)))
            self.forward.prefill(ids, slot, start, len(part))
            hidden.append(self.state.prefill_hidden[: len(part)].clone())
        self.state.words[slot, LENGTH] = len(token_ids)
        return torch.cat(hidden)

    def mtp_prefill(
        self, token_ids: list[int], hidden: torch.Tensor, start: int, slot: int = 0
    ) -> None:
        """Run the MTP rows of one grid step of a prompt; row i is (token i, hidden i)."""
        ids, rows = self._padded(token_ids[start : start + GRID], hidden[start:], GRID)
        count = min(GRID, len(token_ids) - start)
        self.mtp.prefill_chunk(ids, rows, slot, start, count)

    def mtp_first(
        self, token_ids: list[int], hidden: torch.Tensor, start: int, slot: int = 0
    ) -> torch.Tensor:
        """Run MTP pass 1 over up to 16 rows from position `start`; return logits [1, V]."""
        ids, rows = self._padded(token_ids, hidden, MAX_PATH)
        run = [self._words([x]) for x in (slot, start, len(token_ids))]
        logits = self._logits(1)
        self.mtp.first_pass(ids, rows, *run, logits)
        return logits

    def mtp_chained(self, token: int, logits: torch.Tensor) -> None:
        """Run one chained MTP pass of the sequence of the last first pass."""
        self.mtp.chained_pass(self._words([token]), self._words([1]), logits)

    def _padded(
        self, token_ids: list[int], hidden: torch.Tensor, count: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        ids = self._words(token_ids + [0] * (count - len(token_ids)))
        rows = hidden.new_full((count, self.config.hidden_size), torch.nan)
        rows[: len(token_ids)] = hidden[: len(token_ids)]
        return ids, rows

    def _words(self, values: list[int]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int32, device=self.device)

    def _logits(self, rows: int) -> torch.Tensor:
        return torch.full((rows, self.config.vocab_size), torch.nan, device=self.device)

    def length(self, slot: int = 0) -> int:
        """Return the materialised tokens of a slot."""
        return int(self.state.words[slot, LENGTH])

    def decode(self, trees: dict[int, Tree], cycle: int = 0, width: int = 32) -> torch.Tensor:
        """Run the trees of some slots as one slab; return logits [B, width, V]."""
        logits = self._logits(len(trees) * width)
        self.forward.decode(self.tables(trees, cycle), logits, width)
        return logits.view(len(trees), width, -1)

    def tables(self, trees: dict[int, Tree], cycle: int = 0) -> TableViews:
        """Return the tables of some slots' trees, on the device."""
        block = torch.zeros((len(trees), TABLE_WORDS), dtype=torch.int32)
        for row, (slot, tree) in zip(block, trees.items(), strict=True):
            build_tables(tree, self.length(slot), slot, cycle, row.numpy())
        return TableViews(block.to(self.device))

    def commit(self, nodes: list[int], slot: int = 0) -> None:
        """Publish a root-to-node path of the slot's last tree."""
        self.path[slot].zero_()
        self.path[slot, :2] = self.state.words[slot, :2]
        self.path[slot, PATH_NUM_NODES] = len(nodes)
        self.path[slot, PATH_NODES : PATH_NODES + len(nodes)] = self._words(nodes)
        s, slots = self.state, self._words([slot])
        gates = self.weights.a_log, self.weights.dt_bias
        replayed = s.recurrent, s.words, self.path, slots
        gdn.replay(s.mixed_ring, s.ab_ring, *gates, *replayed)
        publish.conv_gather(s.raw_ring, s.conv, s.words, self.path, slots)
        publish.kv_scatter(s.kv_ring, s.kv, s.page_table, s.words, self.path, slots)
        publish.flip(s.words, self.path, slots)

    def step(self, token: int, slot: int = 0) -> torch.Tensor:
        """Decode one token plainly and commit it; return its logits [V]."""
        logits = self.decode({slot: tree_of([-1], [token])}, self.cycle(slot))[0, 0]
        self.commit([0], slot)
        return logits

    def cycle(self, slot: int = 0) -> int:
        """Return the slot's cycle counter."""
        return int(self.state.words[slot, 1])

    def recurrent(self, slot: int = 0) -> torch.Tensor:
        """Return the active recurrent states [L, Hv, dv, dk]."""
        return self.state.recurrent[slot, int(self.state.words[slot, ACTIVE_SET])]

    def conv(self, slot: int = 0) -> torch.Tensor:
        """Return the active conv states [L, 3, C]."""
        return self.state.conv[slot, int(self.state.words[slot, ACTIVE_SET])]

    def keys_values(self, layer: int, slot: int = 0) -> torch.Tensor:
        """Return keys and values [2, n, Hkv, D] of one attention layer."""
        pages = self.state.kv[layer][self.state.page_table[slot].long()]
        flat = pages.permute(1, 0, 3, 2, 4).flatten(1, 2)
        return flat[:, : self.length(slot)]
