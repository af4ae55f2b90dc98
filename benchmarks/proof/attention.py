"""Attention of tree rows: equal to plain decoding's rows, repeatable, close to float64."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import torch

from benchmarks.proof.check import Check
from benchmarks.proof.operands import PATHS, TREE
from benchmarks.proof.second_process import digests_elsewhere
from services.contract.limits import PAGE
from services.kernels import attention
from services.kernels.attention import reference
from services.kernels.attention.cases import AttentionCase, make_attention_case
from services.kernels.cases import make_tables, make_tree
from services.kernels.tree_tables import TableViews

FAMILY = "components"


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
    fired = True
    for layer in layers:
        case = operands(rules, layer, device)
        tree = attend(case, tables)
        good += _keeps_rule(rules, case, tree, tables)
        rule_control += _keeps_rule(rules, case, tree * 1.01, tables)
        for node, path in enumerate(PATHS):
            alone = _plain_row(case, path, length, device)
            held += torch.equal(alone, tree[node])
            rows += 1
            if len(path) > 1:
                fired &= not torch.equal(_plain_row(case, path[1:], length, device), tree[node])
    yield Check(FAMILY, "attention rows equal plain rows", rows, held, fired)
    yield Check(
        FAMILY, "attention against torch, by the rule", len(layers), good, rule_control == 0
    )
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


def _keeps_rule(
    rules: dict[str, Any], case: AttentionCase, rows: torch.Tensor, tables: TableViews
) -> bool:
    """Compare with the plain torch path of the same dtype, both against float64."""
    from benchmarks.proof.components import within

    count = TREE.num_nodes
    plain = attend(case, tables, reference)[:count]
    wide = replace(case, **{n: getattr(case, n).double() for n in ("q", "kv", "kv_ring")})
    exact = attend(wide, tables, reference)[:count]
    factor = rules["independent_max_factor"]
    return bool(within(rules, rows[None, :count], plain[None], exact[None], factor)[0])
