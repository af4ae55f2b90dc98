"""Write the report and the picture of results/gdn.json.

Run: python -m benchmarks.kernels.gdn_page
"""

import json
from typing import Any

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot as plt

from benchmarks.kernels.timing import RESULTS

matplotlib.rcParams["svg.hashsalt"] = "lumotree"
REPORTS = RESULTS.parent / "reports"
_HEAD = (
    "| arm | verify us | p10-p90 | x floor | commit us | total us | eager us | buffers MiB "
    "| output error | state error | outputs outside | states outside |",
    "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
)


def draw(shape: dict[str, Any], stem: str) -> None:
    """Draw verification and commit of every arm over the floor."""
    rows = sorted((r for r in shape["arms"] if "failed" not in r), key=_total, reverse=True)
    figure, axes = plt.subplots(figsize=(7.2, 1.2 + 0.3 * len(rows)))
    for place, row in enumerate(rows):
        colour = "#2a9d8f" if row["arm"].startswith("LumoTree") else "#adb5bd"
        colour = "#d62828" if row["outputs_outside_torch"][0] else colour
        axes.barh(place, _total(row), color=colour)
        axes.text(_total(row), place, f" {_total(row):,.0f}", va="center", fontsize=8)
    axes.axvline(shape["floors"]["read_48"]["us"], color="black", linewidth=1, linestyle=":")
    axes.set_yticks(range(len(rows)), [row["arm"] for row in rows], fontsize=8)
    axes.set_xscale("log")
    axes.set_xlabel("verify + commit, us, log scale\nred: outside the paired rule; line: floor")
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(REPORTS / f"{stem}.svg", metadata={"Date": None})


def _total(row: dict[str, Any]) -> float:
    return float(row["total_graph"]["us"])


def table(shape: dict[str, Any]) -> list[str]:
    """Return the rows of one tree shape; outside: against our chain / against torch in fp32."""
    floor = shape["floors"]["read_48"]["us"]
    lines = list(_HEAD)
    for row in shape["arms"]:
        if "failed" in row:
            lines.append(f"| {row['arm']} | did not run: {row['failed'][:80]} |")
            continue
        verify = row["verify_graph"]
        cells = [
            row["arm"],
            f"{verify['us']:,.1f}",
            f"{verify['p10']:,.1f}-{verify['p90']:,.1f}",
            f"{verify['us'] / floor:.2f}",
            f"{row['commit_graph']['us']:.1f}",
            f"{_total(row):,.1f}",
            f"{row['total_eager']['us']:,.0f}",
            f"{row['buffers_mib']:,.1f}",
            f"{row['output_error']:.1e}",
            f"{row['state_error']:.1e}",
            _outside(row, "outputs"),
            _outside(row, "states"),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _outside(row: dict[str, Any], what: str) -> str:
    found = [row.get(f"{what}_outside_{base}") for base in ("chain", "torch")]
    if None in found:
        return "-"
    return f"{found[0][0]:,} / {found[1][0]:,} of {found[0][1]:,}"


def lengths(shape: dict[str, Any]) -> list[str]:
    """Return the publication by path length."""
    floor = shape["floors"]["copy_1"]["us"]
    ours = shape["arms"][0]
    found = [(key.split("_")[-1], ours[key]["us"]) for key in ours if "commit_length" in key]
    return [
        f"- path of {size}: {time:.1f} us, {time / floor:.2f} x the copy" for size, time in found
    ]


def page(result: dict[str, Any], stem: str) -> list[str]:
    """Return the lines of the report."""
    machine = result["machine"]
    lines = [
        f"# GDN at the 27B shape, {machine['date']}",
        "",
        f"{machine['device']}, torch {machine['torch']}, triton {machine['triton']}. 48 layers, "
        "batch 1, bf16 rows, fp32 states. JSON: `results/gdn.json`.",
        f"Method: `python -m benchmarks.kernels.gdn --packages`; {result['warm']} untimed and "
        f"{result['timed']} timed iterations (torch: 20; eager: half), the L2 flushed before each, "
        "frontiers cycled; medians, captured graphs unless eager. The gate ran first: one_pass, "
        "two_level, chain and replay equal in every bit on 48 layers and every path.",
    ]
    for shape in result["shapes"]:
        floors = {key: round(value["us"], 1) for key, value in shape["floors"].items()}
        lines += ["", f"## {shape['shape']}, {shape['nodes']} nodes"]
        lines += [
            f"Floors, us: 48 launches reading the states {floors['read_48']}, one launch copying "
            f"them {floors['copy_1']}, 48 empty launches {floors['tiny_48']}. Outside: cells "
            "outside the paired rule with our chain / torch in fp32 as native.",
            "",
            *table(shape),
            "",
            "Publication:",
            *lengths(shape),
        ]
    lines += ["", f"![time]({stem}.svg)", *variants(result.get("variants"))]
    notes = [f"- {note}" for note in result.get("notes", [])]
    if "not_measured" in result:
        notes.append(f"- Not measured: {'; '.join(result['not_measured'])}.")
    return [*lines, "", "## Notes", *notes] if notes else lines


def variants(found: dict[str, Any] | None) -> list[str]:
    """Return the table of variants that a run beside the table's measured, if there was one."""
    if found is None:
        return []
    lines = ["", "## Variants", found["what"] + ".", ""]
    lines += ["| variant | tree | us | p10-p90 | x floor |", "|---|---|---:|---:|---:|"]
    floor = found["floors"]["read_48"]
    for name, tree, time in found["rows"]:
        spread = f"{time['p10']:.1f}-{time['p90']:.1f}"
        lines.append(
            f"| {name} | {tree} | {time['us']:.1f} | {spread} | {time['us'] / floor:.2f} |"
        )
    return lines


def main() -> None:
    """Write the page and its picture."""
    result = json.loads((RESULTS / "gdn.json").read_text())
    stem = f"gdn_h200_{result['machine']['date']}"
    draw(result["shapes"][0], stem)
    (REPORTS / f"{stem}.md").write_text("\n".join(page(result, stem)) + "\n")


if __name__ == "__main__":
    main()
