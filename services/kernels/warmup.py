"""Compile every CPU kernel of the cycle before the first request, or at set-up.

Run as `python -m services.kernels.warmup`, it fills the cache of compiled code.
"""

import time

import torch

from services.contract.sampling import Budget, SamplingParams
from services.contract.topology import Tree
from services.kernels import attention, conv, gdn, linear, norm, publish, sample, select
from services.kernels.attention.cases import make_attention_case
from services.kernels.cases import chain_tree, make_tables
from services.kernels.conv.cases import make_conv_case
from services.kernels.gdn.cases import TINY, make_gdn_case
from services.kernels.norm.cases import inverse_frequencies
from services.kernels.publish.cases import make_paths, make_words
from services.kernels.sample.cases import Sequence, make_state
from services.kernels.sample.cases import make_tables as make_sample_tables
from services.kernels.threads import num_threads, use_threads
from services.kernels.tree_tables import TableViews

_EPS = 1e-6


def compile_cpu_kernels() -> None:
    """Run each CPU kernel once on made-up operands; some tens of seconds the first time."""
    tables = make_tables([chain_tree(3)], [2], [0])
    runs = torch.tensor([[0], [0], [2]], dtype=torch.int32)
    _run_gdn(tables, runs)
    threads = num_threads()
    use_threads(2)
    _run_rows(tables, runs)
    use_threads(threads)
    _run_publish()
    _run_sample()


def _run_gdn(tables: TableViews, runs: torch.Tensor) -> None:
    case, rows = make_gdn_case(TINY, seed=0), make_conv_case(32)
    slots, counts = runs[0], runs[2]
    rings = rows.raw_ring, case.mixed_ring, case.ab_ring
    conv.conv_tree(rows.raw, rows.ab, rows.conv, case.words, 0, tables, rows.weight, *rings)
    mixed = torch.empty_like(rows.raw)
    conv.conv_chain(rows.raw, rows.conv, case.words, 0, slots, counts, rows.weight, mixed)
    core, gates = torch.empty(32, TINY.value_heads, TINY.dv), (case.a_log[0], case.dt_bias[0])
    state = case.recurrent, case.words
    gdn.scan(case.mixed_ring, case.ab_ring, *gates, *state, 0, tables, core)
    gdn.chain(mixed, rows.ab, *gates, *state, 0, slots, counts, core)
    params = case.a_log, case.dt_bias
    gdn.replay(case.mixed_ring, case.ab_ring, *params, *state, case.path, slots)


def _run_rows(tables: TableViews, runs: torch.Tensor) -> None:
    # The second product is large enough for two threads.
    x, weight, wide = torch.ones(32, 768), torch.ones(64, 768), torch.ones(256, 768)
    out, head = torch.empty(32, 64), torch.ones(64)
    for narrow in (False, True):
        linear.prepare(weight, narrow)
        linear.prepare(wide, narrow)
        linear.linear(x, weight, out)
        linear.linear(x, wide, torch.empty(32, 256))
    norm.rms_norm(out, head, _EPS, torch.empty_like(out))
    norm.add_rms_norm(out, out, head, _EPS, torch.empty_like(out))
    norm.silu_mul(x[:, :128], out)
    slots, starts, counts = runs
    case = make_attention_case(32, 64)
    attn, wide = torch.empty_like(case.q), torch.empty(32, 256)
    norms = head, head, inverse_frequencies(16), _EPS
    norm.qk_norm_rope_ring(x, *norms, tables, case.kv_ring, 0, case.q)
    norm.qk_norm_rope_pages(x, *norms, slots, starts, counts, case.page_table, case.kv, case.q)
    attention.attend(case.q, case.kv, case.kv_ring, 0, case.page_table, tables, attn)
    attention.attend_prefill(case.q, case.kv, case.page_table, slots, starts, counts, attn)
    norm.sigmoid_gate(attn, x, wide)
    norm.gated_norm(attn, wide, head, _EPS, "silu", wide)


def _run_publish() -> None:
    words, slots = make_words(1), torch.tensor([0], dtype=torch.int32)
    state = words, make_paths(words, [[0]]), slots
    publish.conv_gather(torch.ones(1, 1, 32, 16), torch.ones(1, 2, 1, 3, 16), *state)
    pages = torch.zeros(1, 1, dtype=torch.int32)
    ring, kv = torch.ones(1, 1, 2, 1, 32, 16), torch.ones(1, 1, 2, 1, 64, 16)
    publish.kv_scatter(ring, kv, pages, *state)
    publish.flip(*state)


def _run_sample() -> None:
    sampled = SamplingParams(temperature=1.0, top_k=80, top_p=0.9, num_logprobs=1)
    sequence = Sequence(sampled, Budget(8))
    state, logits = make_state([sequence], 128), torch.zeros(1, 32, 128)
    tables = make_sample_tables([Tree.root_only(0)], [sequence], [0])
    sample.draw(logits, tables, state, state.drawn)
    sample.walk(logits, tables, state)
    slots = torch.tensor([0], dtype=torch.int32)
    sample.accept(
        state.path, state.sampling, state.prompt_mask, slots, torch.empty_like(state.path)
    )
    values, ids = torch.empty(32, 3), torch.empty(32, 3, dtype=torch.int32)
    select.top_ranked(logits[0], 3, values, ids)


if __name__ == "__main__":
    started = time.perf_counter()
    compile_cpu_kernels()
    print(f"CPU kernels compiled in {time.perf_counter() - started:.1f} s")
