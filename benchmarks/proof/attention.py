"""Attention of tree rows: equal to plain decoding's rows, repeatable, close to float64."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import torch
import torch.nn.functional as F

from benchmarks.proof.check import Check
from benchmarks.proof.operands import PATHS, TREE
from benchmarks.proof.paired import Measures, keeps
from benchmarks.proof.second_process import digests_elsewhere
from services.contract.limits import PAGE
from services.kernels import attention
from services.kernels.attention import reference
from services.kernels.attention.cases import AttentionCase, make_attention_case
from services.kernels.cases import make_tables, make_tree
from services.kernels.tree_tables import COMMITTED_LENGTH, TableViews

FAMILY = "components"
NATIVE = "torch scaled_dot_product_attention"


def operands(rules: dict[str, Any], layer: int, device: str) -> AttentionCase:
    """Return the operands of one attention layer on a device."""
    heads = (24, 4, 256) if device == "cuda" else (4, 2, 64)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    length = rules["attention_length"] + PAGE
    case = make_attention_case(32, length, 1, *heads, layers=1, seed=layer, dtype=dtype)
    return AttentionCase(**{f.name: getattr(case, f.name).to(device) for f in fields(case)})


def tables_of(parents: tuple[int, ...], length: int, device: str) -> TableViews:
    """Return the tables of one tree on a device."""
    return TableViews(make_tables([make_tree(parents)], [length], [0]).block.to(device))


def attend(case: AttentionCase, tables: TableViews, backend: Any = attention) -> torch.Tensor:
    """Return the 32 rows of a tree."""
    out = torch.full_like(case.q, torch.nan)
    backend.attend(case.q, case.kv, case.kv_ring, 0, case.page_table, tables, out)
    return out


def attention_digests(rules: dict[str, Any], device: str) -> list[str]:
    """Return the digest of every layer's rows."""
    tables = tables_of(TREE.parents, rules["attention_length"], device)
    found = []
    for layer in range(rules["attention_layers"]):
        rows = attend(operands(rules, layer, device), tables).cpu().contiguous()
        found.append(hashlib.sha256(rows.view(torch.uint8).numpy().data).hexdigest())
    return found


def attention_checks(rules: dict[str, Any], device: str) -> Iterator[Check]:
    """Yield equality with plain rows, repeatability in two processes, and the paired rule."""
    layers, length = range(rules["attention_layers"]), rules["attention_length"]
    tables = tables_of(TREE.parents, length, device)
    rows = held = good = rule_control = 0
    fired, ratios = True, []
    for layer in layers:
        case = operands(rules, layer, device)
        tree = attend(case, tables)
        keeps_rule, ratio = _errors(rules, case, tree, tables)
        ratios.append(ratio)
        good += keeps_rule
        rule_control += _errors(rules, case, tree * 1.01, tables)[0]
        for node, path in enumerate(PATHS):
            alone = _plain_row(case, path, length, device)
            held += torch.equal(alone, tree[node])
            rows += 1
            if len(path) > 1:
                fired &= not torch.equal(_plain_row(case, path[1:], length, device), tree[node])
    yield Check(FAMILY, "attention rows equal plain rows", rows, held, fired)
    name, detail = "attention by the paired rule", {"rms_ratios": ratios, "native": NATIVE}
    yield Check(FAMILY, name, len(layers), good, rule_control == 0, detail)
    here = attention_digests(rules, device)
    again = [attention_digests(rules, device), digests_elsewhere("attention", device)]
    same = sum(a == b == c for a, b, c in zip(here, *again, strict=True))
    distinct = len(set(here)) == len(here)
    yield Check(FAMILY, "attention bits in two processes", len(here), same, distinct)


def _plain_row(case: AttentionCase, path: list[int], length: int, device: str) -> torch.Tensor:
    """Return the last node's row when its ancestors lie in pages, as plain decoding has them."""
    kv, ring, query = case.kv.clone(), case.kv_ring.clone(), case.q.clone()
    for place, node in enumerate(path[:-1], start=length):
        page = int(case.page_table[0, place // PAGE])
        kv[page, :, :, place % PAGE] = case.kv_ring[0, 0, :, :, node]
    ring[0, 0, :, :, 0] = case.kv_ring[0, 0, :, :, path[-1]]
    query[0] = case.q[path[-1]]
    tables = tables_of((-1,), length + len(path) - 1, device)
    return attend(replace(case, q=query, kv=kv, kv_ring=ring), tables)[0]


def _errors(
    rules: dict[str, Any], case: AttentionCase, rows: torch.Tensor, tables: TableViews
) -> tuple[bool, float]:
    """Return whether rows keep the rule, torch's fused attention being native, and the RMS ratio.

    Both compute on the operands' dtype, a GPU with bf16 probabilities; float64 is the yardstick.
    """
    count = TREE.num_nodes
    wide = replace(case, **{n: getattr(case, n).double() for n in ("q", "kv", "kv_ring")})
    exact = attend(wide, tables, reference)[:count]
    native = _fused(case, tables)
    sides = [Measures.between(x[None, None, :count], exact[None, None]) for x in (rows, native)]
    ours, theirs = (side.pooled(0, 1, 2) for side in sides)
    size = Measures.of(exact[None, None]).pooled(0, 1, 2)
    held = keeps(rules, ours, theirs, size, rules["independent_max_factor"])
    return bool(held), float((ours.square / theirs.square).sqrt())


def _fused(case: AttentionCase, tables: TableViews) -> torch.Tensor:
    """Return the rows by scaled_dot_product_attention over pages and ring, the tree as its mask."""
    length = int(tables.header[0, COMMITTED_LENGTH])
    prefix = reference.gather_pages(case.kv, case.page_table[0], length)
    keys, values = torch.cat([prefix, case.kv_ring[0, 0]], dim=2)
    seen = torch.zeros(32, length + 32, dtype=torch.bool, device=case.q.device)
    seen[:, :length] = True
    for node, path in enumerate(PATHS):
        seen[node, [length + n for n in path]] = True
    group = case.q.shape[1] // keys.shape[0]
    heads = (x.nan_to_num().repeat_interleave(group, 0)[None] for x in (keys, values))
    query = case.q.transpose(0, 1)[None]
    return F.scaled_dot_product_attention(query, *heads, attn_mask=seen[None, None])[0].transpose(
        0, 1
    )
