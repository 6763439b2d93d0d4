"""Fills the marked blocks of a Markdown page from records, so that no number in it is typed by hand.

<!-- begin claims -->        the paper's claims with their verdicts
<!-- begin ablation -->      the tables of an experiment; "ablation:accuracy" is one of its quantities alone
<!-- begin runs -->          how many records, seeds, machines and commits stand behind the page
<!-- end -->
"""

import re
from collections.abc import Sequence
from pathlib import Path

from protoevfl.bench import records
from protoevfl.errors import UserError
from protoevfl.reproduction import claims
from protoevfl.reproduction.catalogue import EXPERIMENTS
from protoevfl.reproduction.measure import Store, measure
from protoevfl.reproduction.spec import Record
from protoevfl.reproduction.tables import grids, markdown_table

BLOCK = re.compile(r"(<!-- begin (?P<name>[\w :-]+?) -->\n).*?(<!-- end -->)", re.DOTALL)


def fill(page: Path, file: Path) -> int:
    """Rewrites the blocks of a page; returns how many there are."""
    text = page.read_text(encoding="utf-8")
    found = records.read(file)
    store = Store(found)
    made, count = BLOCK.subn(lambda m: f"{m[1]}\n{block(m['name'], store, found)}\n\n{m[3]}", text)
    page.write_text(made, encoding="utf-8")
    return count


def block(name: str, store: Store, found: Sequence[Record]) -> str:
    if name == "claims":
        return claims.markdown(claims.verdicts(store))
    if name == "runs":
        return runs(found)
    experiment, _, quantity = name.partition(":")
    if experiment not in EXPERIMENTS:
        raise UserError(f"no block '{name}'; there are claims, runs, {', '.join(EXPERIMENTS)}")
    item = EXPERIMENTS[experiment]
    shown = [g for g in grids(item, measure(item, store)) if not quantity or g.title.startswith(quantity)]
    parts = [f"**{g.title}**\n\n{markdown_table(g)}" if len(shown) > 1 else markdown_table(g) for g in shown]
    return "\n\n".join(parts) or "Not measured yet."


def runs(found: Sequence[Record]) -> str:
    """What stands behind the numbers."""
    if not found:
        return "No records yet."

    def names(key: str) -> str:
        return ", ".join(sorted({str(r[key]) for r in found if r.get(key)})) or "not recorded"

    seeds = sorted({int(r["seed"]) for r in found if "seed" in r})
    seconds = sum(float(r.get("seconds") or 0) for r in found)
    cells = len({records.cell_key(r) for r in found})
    return "\n".join([
        f"- {len(found):,} runs of {cells:,} configurations, seeds {', '.join(map(str, seeds))}",
        f"- {seconds / 3600:.1f} hours in all",
        f"- devices: {names('device')}",
        f"- commits: {names('commit')}",
    ])  # fmt: skip
