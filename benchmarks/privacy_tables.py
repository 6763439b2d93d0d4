"""Writes the figures of results/privacy_h200.jsonl.gz (by benchmarks/privacy.py) into PAGE, at its
marks.

python benchmarks/privacy_tables.py [RECORDS ...]         of two lines of the same run the later counts
"""

import sys
from pathlib import Path
from typing import Any

from protoevfl.bench import records

DETAILS = ("default", "undefended", "paper flow", "vanilla", "one_shot", "fedhssl")
PAGE = Path("docs/notes/privacy-complete-runs.md")
START, END = "<!-- figures -->", "<!-- /figures -->"
Row = dict[str, Any]


def points(value: float, half: float | None = None) -> str:
    spread = "" if half is None or half != half else f" ± {100 * half:.1f}"
    return f"{100 * value:.1f}{spread}"


def table(heads: list[str], lines: list[list[str]]) -> str:
    return "\n".join(
        "| " + " | ".join(line) + " |" for line in [heads, ["---"] * len(heads), *lines]
    )


def find(rows: list[Row], run: str, aligned: int, **more: Any) -> Row | None:
    wanted = {"run": run, "aligned": aligned, **more}
    return next(
        (r for r in rows if "threat" in r and all(r.get(k) == v for k, v in wanted.items())), None
    )


def cell(row: Row | None, what: str) -> str:
    # nothing was sent that could be attacked
    if row is None or (row["canary"] and not row["worst"]["communicates"]):
        return "-"
    if what == "advantage":
        return points(row["advantage"], row["advantage_half"])
    return points(row[what]["accuracy"], row[what]["half"])


def overview(rows: list[Row], aligned: int) -> str:
    """One line a run: utility, worst passive attack at k = 0 and 1, advantage, canary, proof."""
    heads = [
        "run",
        "accuracy",
        "a party alone",
        "labels found, k = 0",
        "k = 1",
        "without messages, k = 1",
        "advantage, k = 1",
        "canary",
        "canary, colluding",
        "epsilon",
        "proven at most",
        "colluding",
    ]
    lines = []
    for use in (r for r in rows if "utility" in r and r["aligned"] == aligned):
        run, facts = use["run"], use["utility"]
        alone = facts["pseudo_labels"]
        passive = {
            k: find(rows, run, aligned, threat="passive", known=k, canary=False) for k in (0, 1)
        }
        hidden = find(rows, run, aligned, threat="passive", canary=True)
        joint = find(rows, run, aligned, threat="colluding", canary=True)
        useful = "" if facts["useful"] is not False else " (not useful)"
        lines.append([
            run, points(*facts["accuracy"]), "-" if alone is None else points(*alone) + useful,
            cell(passive[0], "worst"), cell(passive[1], "worst"), cell(passive[1], "yardstick"),
            cell(passive[1], "advantage"), cell(hidden, "worst"), cell(joint, "worst"),
            f"{use['epsilon']:.2f}" if use["epsilon"] else "-",
            points(use["guess_bound"]) if use["guess_bound"] else "-",
            points(use["coalition_guess_bound"]) if use.get("coalition_guess_bound") else "-",
        ])  # fmt: skip
    return table(heads, lines)


def threats(rows: list[Row], aligned: int, run: str) -> str:
    """Every threat model and k of one run."""
    heads = ["attacker", "k", "labels", "worst attack", "found", "without messages", "advantage"]
    lines = [
        [
            r["threat"],
            str(r["known"]),
            "shuffled" if r["canary"] else "true",
            r["worst"]["attack"],
            cell(r, "worst"),
            f"{cell(r, 'yardstick')} ({r['yardstick']['attack']})",
            cell(r, "advantage"),
        ]
        for r in rows
        if "threat" in r and r["run"] == run and r["aligned"] == aligned
    ]
    return table(heads, lines)


def inversions(rows: list[Row]) -> str:
    heads = ["run", "shared rows", "guess of the row", "MSE", "PSNR", "SSIM"]
    lines = [
        [
            r["run"],
            str(r["aligned"]),
            name,
            f"{v['mse']:.4f}",
            f"{v['psnr']:.1f}",
            f"{v.get('ssim', float('nan')):.2f}",
        ]
        for r in rows
        if "inversion" in r
        for name, v in r["inversion"].items()
    ]
    return table(heads, lines)


def figures(rows: list[Row]) -> str:
    parts = []
    for aligned in sorted({r["aligned"] for r in rows}):
        parts += [
            f"### Fashion-MNIST, {aligned} shared rows (per cent, ± 95 %; chance 10)",
            overview(rows, aligned),
        ]
        there = {r["run"] for r in rows if r["aligned"] == aligned and "threat" in r}
        for run in (name for name in DETAILS if name in there):
            parts += [
                f"**{run}, {aligned} shared rows, all attackers**",
                threats(rows, aligned, run),
            ]
    parts += ["### Rows rebuilt from embeddings (half of the pairs leaked)", inversions(rows)]
    return "\n\n".join(parts)


def latest(rows: list[Row]) -> list[Row]:
    """Of lines about the same thing the last, in the order of the first."""
    kinds = ("threat", "known", "canary")
    last_rows: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        what = "utility" if "utility" in row else "inversion" if "inversion" in row else ""
        last_rows[row["run"], row["aligned"], what, *(row.get(k) for k in kinds)] = row
    return list(last_rows.values())


def main() -> None:
    sources, page = sys.argv[1:] or ["results/privacy_h200.jsonl.gz"], PAGE
    rows = latest([row for source in sources for row in records.read(source)])
    text = page.read_text()
    before, after = text.split(START)[0], text.split(END)[1]
    page.write_text(f"{before}{START}\n{figures(rows)}\n{END}{after}")


if __name__ == "__main__":
    main()
