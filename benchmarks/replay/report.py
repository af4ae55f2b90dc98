"""Make a dated report page with tables and plots from a replay's JSON.

Run as: python -m benchmarks.replay.report RESULT.json FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.page import write_page
from benchmarks.replay.arms import GROUPS
from benchmarks.replay.pictures import Report, draw_all
from benchmarks.replay.table import row, texts


def text(report: Report, source: Path) -> str:
    """Return the page without its pictures."""
    return "\n".join([*_head(report, source), *_tables(report), *_ratios(report)])


def _head(report: Report, source: Path) -> list[str]:
    facts = report["provenance"]
    plan = facts["plan"]
    versions = ", ".join(f"{name} {value}" for name, value in facts["versions"].items())
    sampling = ", ".join(f"{name} {value}" for name, value in facts["sampling"].items())
    seed = "a fresh seed a request" if plan["seed"] is None else f"seed {plan['seed']}"
    lines = [
        f"# Replay, {facts['date'][:10]}",
        "",
        f"Made from `{source.name}` by `python -m benchmarks.replay.report`.",
        f"{facts['processor']}, {facts['threads']} threads; Python {facts['python']}, {versions}.",
        f"Requests: {facts['corpora_note']}. Cap {plan['max_tokens']} tokens, repeats: "
        f"{plan['repeats']}, in rotating order; {seed}; {sampling}.",
        "Rates pool (tokens - 1) / (time after the first token) over an arm's requests; ratios",
        "take the requests that both arms answered.",
        f"{texts(report).capitalize()}.",
    ]
    if not report["is_complete"]:
        lines.append("The run did not end: these are its figures so far.")
    return [*lines, *_failures(report), ""]


def _failures(report: Report) -> list[str]:
    if not report["failures"]:
        return []
    return ["", "Arms that ended early:", *(f"- {n} {r}" for n, r in report["failures"].items())]


def _tables(report: Report) -> list[str]:
    lines: list[str] = []
    for corpus, arms in report["figures"].items():
        lines += [f"## {corpus}", ""]
        lines.append("| arm | tokens/s | range | accepted/cycle | ms/cycle | answers | tokens |")
        lines.append("|---|---:|---:|---:|---:|---:|---:|")
        for name, arm in arms.items():
            cells = (*row(report, name, arm), str(arm["requests"]), str(arm["tokens"]))
            lines.append(f"| {' | '.join(cells)} |".replace(" *", " \\*"))
        lines.append("")
    return [*lines, "\\* not bit-comparable with the exact arms", "", *_variants(report)]


def _variants(report: Report) -> list[str]:
    """Return what the variants of this run change."""
    lines = []
    for arm in (arm for group in GROUPS.values() for arm in group):
        if arm.name in report["arms"] and arm.base != "plain":
            lines.append(f"- {arm.name}: {arm.about}")
    return ["Variants:", *lines, ""] if lines else []


def _ratios(report: Report) -> list[str]:
    lines = ["## Ratios", "", "| arm | base | ratio | 95% interval |", "|---|---|---:|---:|"]
    for entry in report["ratios"]:
        low, high = entry["interval_95"]
        ratio = f"{entry['ratio']:.2f} | {low:.2f}-{high:.2f}"
        lines.append(f"| {entry['arm']} | {entry['base']} | {ratio} |")
    return [*lines, ""]


if __name__ == "__main__":
    write_page(Path(sys.argv[1]), Path(sys.argv[2]), draw_all, text)
