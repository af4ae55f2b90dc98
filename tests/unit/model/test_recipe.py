"""The training code still imports, runs a step, and is the model that the engine runs."""

import importlib
import json
import pkgutil
from pathlib import Path
from random import Random

import pytest
import torch

import models.recipe
from models.recipe.arithmetic import block_loss
from models.recipe.chunk_backward import factor_backward, query_key_backward
from models.recipe.corpus.filters import clean_source, strip_license
from models.recipe.corpus.transcripts import TOOLS, load_template, make_session
from models.recipe.data import Windows, draw_anchors
from models.recipe.delta_rule import chunked_delta_rule
from models.recipe.export import save_checkpoint
from models.recipe.network import Network
from models.recipe.optimizer import Optimizer
from models.recipe.settings import TINY, TOY, compute_copies, first_values, tensor_shapes
from services.model.checkpoint import Checkpoint
from tests.model_rig import ModelRig
from tests.oracle.decoder import PlainDecoder

EMBEDDED = Path(__file__).parents[3] / "models" / "lumo-tiny"


def test_every_module_imports() -> None:
    names = [m.name for m in pkgutil.walk_packages(models.recipe.__path__, "models.recipe.")]
    assert len(names) >= 16
    for name in names:
        importlib.import_module(name)


def test_embedded_checkpoint_has_the_recipes_config_and_tensors() -> None:
    assert json.loads((EMBEDDED / "config.json").read_text()) == TINY
    stored = {e.name: e.shape for e in Checkpoint.open(EMBEDDED).tensors.values()}
    assert stored == tensor_shapes(TINY)


def test_trainer_and_engine_run_the_same_model() -> None:
    rig = ModelRig(EMBEDDED, slots=1)
    tensors = PlainDecoder.from_folder(EMBEDDED).weights
    top = ("mtp.", "lm_head.")
    weights = {n if n.startswith(top) else f"model.{n}": t for n, t in tensors.items()}
    ids = [Random(3).randrange(8000) for _ in range(1)] + list(range(100, 170))
    network = Network(TINY)
    with torch.no_grad():
        hidden = network.trunk(weights, torch.tensor([ids]))[0]
        drafts, _, _ = network.mtp_first(weights, torch.tensor([ids[1:]]), hidden[None, :-1])
    torch.testing.assert_close(rig.prefill(ids), hidden, rtol=0, atol=1e-3)
    rig.mtp_prefill(ids[1:65], hidden[:64], 0)
    rig.mtp_first(ids[65:], hidden[64:-1], 64)
    torch.testing.assert_close(rig.mtp.hidden(1)[0], drafts[0, -1], rtol=0, atol=1e-3)


def test_training_steps_lower_the_loss_and_save_a_checkpoint(tmp_path: Path, seed: int) -> None:
    torch.manual_seed(seed)
    config = {**TOY, "vocab_size": 64, "eos_token_id": 63, "pad_token_id": 63}
    masters = first_values(config, 0, "cpu")
    optimizer = Optimizer(masters, config, 0.02, 0.01, 0.05)
    network = Network(config)
    tokens = torch.arange(4000) % 17
    windows = Windows(tokens)
    losses = []
    for _ in range(6):
        weights = {n: w.requires_grad_() for n, w in compute_copies(masters, torch.float32).items()}
        anchors = draw_anchors(2, 64, 8, "cpu")
        main, drafts = network.losses(weights, windows.draw(2, 64), anchors, block=48)
        (main + 0.3 * torch.stack(drafts).sum()).backward()
        optimizer.step({n: w.grad for n, w in weights.items() if w.grad is not None}, 1.0)
        losses.append(float(main.detach()))
    assert losses[-1] < losses[0] - 0.3
    save_checkpoint(masters, config, tmp_path / "model", tmp_path, max_bytes=60_000)
    assert Checkpoint.open(tmp_path / "model").config.num_layers == 4


def test_block_loss_gradient_is_that_of_cross_entropy(seed: int) -> None:
    torch.manual_seed(seed)
    logits = torch.randn(5, 9, requires_grad=True)
    labels = torch.tensor([1, -1, 3, 8, 0])
    loss, gradient = block_loss(logits.detach(), labels, torch.tensor(0.25))
    wanted = torch.nn.functional.cross_entropy(logits, labels, ignore_index=-1, reduction="sum")
    (wanted * 0.25).backward()
    torch.testing.assert_close(loss, wanted.detach())
    torch.testing.assert_close(gradient, logits.grad)


def test_chunked_rule_agrees_with_single_steps(seed: int) -> None:
    torch.manual_seed(seed)
    q, k, v = torch.randn(1, 70, 2, 8), torch.randn(1, 70, 2, 8), torch.randn(1, 70, 4, 8)
    decay, beta = -torch.rand(1, 70, 4), torch.rand(1, 70, 4)
    out = chunked_delta_rule(q, k, v, decay, beta, chunk=16)
    state = torch.zeros(4, 8, 8)
    unit = torch.nn.functional.normalize
    for t in range(70):
        key, query = (unit(x[0, t], dim=-1).repeat_interleave(2, 0) for x in (k, q))
        state = state * decay[0, t].exp()[:, None, None]
        update = beta[0, t][:, None] * (v[0, t] - torch.einsum("hkv,hk->hv", state, key))
        state = state + key[:, :, None] * update[:, None, :]
        core = torch.einsum("hkv,hk->hv", state, query) * 8**-0.5
        torch.testing.assert_close(out[0, t], core, rtol=1e-4, atol=1e-4)


def test_chunk_backward_shapes_match_their_operands(seed: int) -> None:
    torch.manual_seed(seed)
    q, k = torch.randn(2, 2, 32, 1, 8)
    v, do, dv, du, dw = torch.randn(5, 2, 32, 2, 8)
    states, decay = torch.randn(2, 2, 2, 1, 2, 8, 8), -torch.rand(2, 32, 2)
    found = query_key_backward(q, k, v, do, *states, decay, dv, 0.3, 16)
    assert [x.shape for x in found] == [q.shape, k.shape, v.shape, decay.shape]
    found = factor_backward(k, v, torch.rand(2, 32, 2), torch.randn(2, 32, 2, 16), dw, du, decay)
    assert [x.shape for x in found] == [k.shape, v.shape, decay.shape, decay.shape]


SOURCE = '''"""A module."""
import os


def first(path, mode):
    """Open a path.

    More words.
    """
    handle = os.open(path, mode)
    return handle


class Thing:
    def second(self, value):
        total = value + 1
        total *= 2
        total -= 3
        return total
'''


def test_sessions_are_deterministic_and_render_with_the_template(seed: int) -> None:
    make = [make_session(Random(seed), "a/b.py", SOURCE, 4) for _ in range(2)]
    assert make[0] == make[1]
    assert make[0]
    text = load_template(EMBEDDED / "chat_template.jinja")(messages=make[0], tools=TOOLS)
    assert "<|im_start|>assistant" in text
    assert make_session(Random(seed), "a/b.py", "x = 1\n", 4) is None


@pytest.mark.parametrize("raw", [b"x" * 500, b"def f(" + b"1" * 800, b"# auto-generated\n" * 50])
def test_filter_drops_what_is_not_code(raw: bytes) -> None:
    assert clean_source(raw) is None
    assert clean_source((SOURCE * 2).encode()) == SOURCE * 2


def test_long_license_heads_are_stripped() -> None:
    head = "# Copyright somebody, all rights reserved\n" * 10
    assert strip_license(head + SOURCE) == SOURCE
    assert strip_license("# Copyright\n" + SOURCE).startswith("# Copyright")
