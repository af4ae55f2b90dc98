"""After the warm-up no CPU kernel of the cycle is left to compile."""

from types import ModuleType

import pytest
import torch

from services.kernels import gdn, warmup
from services.kernels.attention import cpu as attention_cpu
from services.kernels.cases import HYDRA27, make_tables, make_tree
from services.kernels.conv import cpu as conv_cpu
from services.kernels.crew import cpu as crew_cpu
from services.kernels.gdn import cpu as gdn_cpu
from services.kernels.gdn.cases import LUMO_TINY, make_gdn_case
from services.kernels.norm import cpu as norm_cpu
from services.kernels.panels import cpu as panels_cpu
from services.kernels.publish import cpu as publish_cpu
from services.kernels.vector.cpu import HAS_PAIRS

ENTRIES = {
    attention_cpu: ("_attend", "_prefill"),
    conv_cpu: ("_tree", "_chain"),
    gdn_cpu: ("_scan", "_chain", "_replay"),
    panels_cpu: ("narrow_rows", "product"),
    crew_cpu: ("_share", "_help"),
    norm_cpu: ("_rms_norm", "_add_rms_norm", "_gated_norm", "_rope_ring", "_rope_pages"),
    publish_cpu: ("_conv_gather", "_kv_scatter", "_flip"),
}


@pytest.mark.parametrize("module", ENTRIES, ids=lambda module: module.__name__.split(".")[2])
def test_every_entry_is_compiled(module: ModuleType) -> None:
    warmup.compile_cpu_kernels()
    counts = {name: len(getattr(module, name).signatures) for name in ENTRIES[module]}
    if module is panels_cpu and not HAS_PAIRS:
        counts.pop("narrow_rows")
    assert all(count >= 1 for count in counts.values()), counts


def test_another_model_needs_no_new_code(seed: int) -> None:
    warmup.compile_cpu_kernels()
    before = list(gdn_cpu._scan.signatures)
    case, tables = make_gdn_case(LUMO_TINY, seed), make_tables([make_tree(HYDRA27)], [9], [3])
    params = case.a_log[4], case.dt_bias[4], case.recurrent, case.words, 4, tables
    gdn.scan(case.mixed_ring, case.ab_ring, *params, torch.empty(32, 6, 64))
    assert gdn_cpu._scan.signatures == before
