"""The verifier stage: prompt chunks on the grid, trees in fixed rows, one accepted path each."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from services.contract import pb
from services.contract.checks import token_ids
from services.contract.config import EngineConfig
from services.contract.errors import InvalidField
from services.contract.limits import MAX_ROWS
from services.contract.tree import Tree, TreeTag, tree_from_proto
from services.kernels import linear, sample
from services.kernels.sample.state import SampleState
from services.kernels.state_words import CYCLE, LENGTH
from services.kernels.tree_tables import TableViews
from services.model.config import ModelConfig
from services.model.forward import TargetForward
from services.model.state import TargetState
from services.model.weights import TargetWeights
from services.runtime.arena import Arena
from services.runtime.buffers import Arenas
from services.runtime.failpoints import reach
from services.runtime.graphs import Graphs, Mirror, finish
from services.runtime.ring_guard import SlotRecord, check_chunk, check_slab
from services.runtime.stage import Stage, StageMessage
from services.verifier.rows import (
    PageBooks,
    Slab,
    fill_defaults,
    mark_prompt,
    num_positions,
    padded,
    reset_rows,
)
from services.verifier.selftest import check_rows, fingerprint
from services.verifier.tables import refuse_other_tables


class VerifierStage(Stage):
    """Run the target over prompts and trees, and walk each tree to its accepted path."""

    name = "verifier"

    def __init__(
        self,
        model: ModelConfig,
        weights: TargetWeights,
        arenas: Arenas,
        config: EngineConfig,
        epoch: int,
    ) -> None:
        state = arenas.verifier
        super().__init__(epoch, state["words"].shape[0])
        self._model, self._weights, self._config, self._state = model, weights, config, state
        self._tree_tables = arenas.drafter["tree_tables"]
        self._forward = TargetForward(model, weights, TargetState.of(state))
        self._sampler = _sampler(state)
        self._pages = PageBooks(state)
        self._slab = Slab(self._tree_tables, state["logits"])
        self.graphs = Graphs(state["words"].device)
        self._words = Mirror(state["words"])
        self._counts |= {"prompt_tokens": 0, "rows": 0}

    def warmup(self) -> None:
        """Prove that rows do not see each other on these weights; capture each slab size.

        Raises  UnavailableError naming the weight; the engine then must not serve.
        """
        check_rows(self._weights, self._state["logits"].shape[0])
        if self._state.storage.is_cuda:
            fill_defaults(self._state)
            for batch in range(1, self._state["logits"].shape[0] + 1):
                self.graphs.run(("gather", batch), partial(self._slab.gather, batch))
                self._verify(*self._slab.roots(batch))

    def admit(self, message: StageMessage) -> StageMessage:
        """Clear the slot's rows and fill in what the sequence asks for."""
        record = self.slots.admit(message.admit)
        try:
            self._check_ids(record)
        except InvalidField:
            self.slots.release(record.ref.slot, record.ref.generation)
            raise
        self._pages.clear(record.ref.slot)
        reset_rows(self._state, record, self.guard.epoch)
        return message

    def prefill(self, message: StageMessage) -> StageMessage:
        """Materialise prompt tokens on the grid."""
        chunk = message.prefill
        record = self.slots.get(chunk.slot, chunk.generation)
        check_chunk(record, chunk, self._config.prefill_grid)
        count = len(chunk.token_ids)
        ids = token_ids(chunk.token_ids, self._model.vocab_size, count, "prefill.token_ids")
        last = [chunk.next_token_id] if chunk.is_last else []
        end = token_ids(last, self._model.vocab_size, 1, "prefill.next_token_id")
        self._pages.check(chunk.slot, chunk.new_pages, record.length + count)
        self._pages.append(chunk.slot, chunk.new_pages)
        mark_prompt(self._state, chunk.slot, ids + end)
        if count:
            self._materialise(chunk.slot, record.length, ids)
        record.length += count
        record.is_prefilled = chunk.is_last
        self._counts["prompt_tokens"] += count
        return message

    def cycle(self, message: StageMessage) -> StageMessage:
        """Verify one tree of each sequence and leave its accepted path on the device."""
        self._words.fetch()
        finish(self._words.device.device)
        for part in message.cycle.sequences:
            self._refresh(self.slots.get(part.slot, part.generation))
        records = check_slab(self.slots, message.cycle)
        parts = message.cycle.sequences
        trees = [self._tree(*pair) for pair in zip(records, parts, strict=True)]
        tables, logits = self._slab.choose([record.ref.slot for record in records])
        self.graphs.run(("gather", len(records)), partial(self._slab.gather, len(records)))
        refuse_other_tables(tables, trees)
        for part in parts:
            self._pages.append(part.slot, part.new_pages)
        self._verify(tables, logits, self._num_rows([tree for tree, _ in trees]))
        return message

    def release(self, message: StageMessage) -> StageMessage:
        """Forget the sequence; its rows are cleared when the slot is given again."""
        self.slots.release(message.release.slot, message.release.generation)
        return message

    def stats(self) -> dict[str, Any]:
        """Return the counters and what the engine's bits depend on."""
        return {**super().stats(), "fingerprint": fingerprint(self._weights)}

    def close(self) -> None:
        """Drop the references to device memory."""
        self.graphs.clear()
        del self._words
        del self._forward, self._sampler, self._slab, self._pages
        del self._state, self._tree_tables, self._weights

    def _check_ids(self, record: SlotRecord) -> None:
        vocab, budget = self._model.vocab_size, record.budget
        record.sampling.check_vocabulary(vocab)
        token_ids(budget.eos_ids, vocab, len(budget.eos_ids), "budget.eos_ids")
        token_ids(budget.stop_ids, vocab, len(budget.stop_ids), "budget.stop_ids")

    def _materialise(self, slot: int, start: int, ids: tuple[int, ...]) -> None:
        words = self._state["words"]
        chunk = padded(ids, self._config.prefill_grid, words.device)
        self._forward.prefill(chunk, slot, start, len(ids))
        words[slot, LENGTH] = start + len(ids)

    def _refresh(self, record: SlotRecord) -> None:
        """Read what the committer published since the last cycle."""
        words = self._words.host[record.ref.slot].tolist()
        record.length, record.cycle = words[LENGTH], words[CYCLE]

    def _tree(self, record: SlotRecord, part: pb.stage_pb2.CycleSequence) -> tuple[Tree, TreeTag]:
        tree, tag = tree_from_proto(part.tree, self._model.vocab_size, self.guard.epoch)
        expected = (record.ref.slot, record.ref.generation, record.cycle, record.length)
        if (tag.slot, tag.generation, tag.cycle, tag.committed_length) != expected:
            text = "the descriptor is not of this slot and cycle; draft again"
            raise InvalidField("TREE", text, "cycle.sequences.tree")
        if tree.token_ids[0] != part.root_id:
            text = "node 0 does not carry the pending token; draft again"
            raise InvalidField("TREE", text, "cycle.sequences.root_id")
        self._pages.check(part.slot, part.new_pages, num_positions(record, max(tree.depths)))
        return tree, tag

    def _verify(self, tables: TableViews, logits: torch.Tensor, width: int = MAX_ROWS) -> None:
        reach("verifier.forward")
        batch = logits.shape[0]
        rows = logits.flatten(0, 1)[: batch * width]
        self.graphs.run(("forward", batch), lambda: self._forward.decode(tables, rows, width))
        reach("verifier.walk")
        wide = rows.view(batch, width, -1)
        self.graphs.run(("walk", batch), lambda: sample.walk(wide, tables, self._sampler))
        self._counts["rows"] += rows.shape[0]

    def _num_rows(self, trees: list[Tree]) -> int:
        """Return the rows a tree: the live ones where a row's bits do not hang on their number."""
        fixed = linear.needs_fixed_rows(self._state["logits"].device.type)
        return MAX_ROWS if fixed else max(tree.num_nodes for tree in trees)


def _sampler(state: Arena) -> SampleState:
    return SampleState(
        words=state["words"],
        path=state["path"],
        sampling=state["sampling"],
        prompt_mask=state["prompt_mask"],
        output_counts=state["output_counts"],
        logit_bias=state["logit_bias"],
        logprob_ids=state["logprob_ids"],
        logprob_values=state["logprob_values"],
        max_sequences=state["logits"].shape[0],
    )
