"""One self-contained HTML page from records: no network, inline style, script and SVG; for a screen, a phone, paper."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from protoevfl.bench import records as files
from protoevfl.bench.run import RunConfig
from protoevfl.errors import UserError
from protoevfl.report import run_record
from protoevfl.report.html import paragraph
from protoevfl.reproduction.catalogue import EXPERIMENTS
from protoevfl.reproduction.grid import name_of
from protoevfl.reproduction.measure import Store, measure
from protoevfl.reproduction.pages import figures, sections, summary
from protoevfl.reproduction.pages.averages import Pairs
from protoevfl.reproduction.pages.pictures import Picture
from protoevfl.reproduction.spec import Cell, Experiment, Record

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
GENERAL = ("recall", "confusion", "gate", "priors", "accuracy_bytes")


def load(path: Path) -> list[dict[str, Any]]:
    """The records of a file, of a folder (records.jsonl, records.jsonl.gz, or any one .jsonl file in it), or of a run
    directory of `protoevfl train`."""
    if run_record.is_run(path):
        return [run_record.own_record(path)]
    if path.is_dir():
        named = [path / name for name in ("records.jsonl", "records.jsonl.gz")]
        some = [p for p in named if p.exists()] or sorted(path.glob("*.jsonl")) or sorted(path.glob("*.jsonl.gz"))
        if not some:
            raise UserError(f"{path} holds no records (records.jsonl); name a records file or a run directory")
        path = some[0]
    if not path.exists():
        raise UserError(f"there is no {path}; name a records file (.jsonl) or a run directory")
    found = files.read(path)
    if not found:
        raise UserError(f"{path} holds no records yet")
    return found


def config_of(record: Record) -> RunConfig:
    """The configuration a record belongs to; what it does not name keeps its default."""
    known = {f.name: record[f.name] for f in fields(RunConfig) if record.get(f.name) is not None}
    known["classes"] = tuple(known.get("classes", ()))
    return RunConfig(**known)


def grouped(records: Iterable[Record]) -> Pairs:
    """Records by configuration, in the order of the file."""
    cells: dict[str, tuple[Cell, dict[Any, Record]]] = {}
    for record in records:
        config = config_of(record)
        tags = {
            "dataset": config.dataset, "aligned": str(config.aligned), "setting": config.setting,
            "method": name_of(config.method, config.preset), "classes": " ".join(map(str, config.classes)),
        }  # fmt: skip
        _, seeds = cells.setdefault(files.cell_key(record), (Cell(tags, config), {}))
        seeds[record.get("seed")] = record
    return [(cell, list(seeds.values())) for cell, seeds in cells.values()]


def build(
    records: Sequence[Record], title: str = "Proto-EVFL report", drawn: Mapping[str, list[Picture]] | None = None
) -> str:
    """The page; `drawn` are pictures of experiments that exist already."""
    drawn = drawn or {}
    pairs, store = grouped(records), Store(records)
    ours, quick = matching(store)
    split = any(record.get("split") for record in records)
    content = [
        '<h2 id="summary">Summary</h2>',
        *(paragraph(sentence, "warning") for sentence in summary.warnings(pairs)),
        *(paragraph(sentence) for sentence in summary.summary(pairs)),
        sections.verdicts(store, quick),
        '<h2 id="results-all">All results</h2>',
        sections.results(pairs),
        *(run_record.section(record) for record in records if record.get("party_names")),
    ]
    for item in ours:
        shown = drawn[item.name] if item.name in drawn else figures.draw(item, store, quick)
        content.append(sections.experiment(item, measure(item, store, quick), shown))
    if not ours:
        content.append('<h2 id="figures">Figures</h2>')
        plain = [(cell, some) for cell, some in pairs if not cell.config.overrides] or list(pairs)
        content += [sections.figure(picture) for name in GENERAL for picture in figures.FIGURES[name](plain)]
    content += [
        '<h2 id="split">The split and its imbalance</h2>',
        sections.splits(pairs) if split else run_record.NO_SPLIT,
    ]
    content += [sections.figure(picture) for picture in figures.FIGURES["pools"](pairs)]
    content += ['<h2 id="bytes">Bytes by message type</h2>', sections.messages(pairs)]
    content += ['<h2 id="settings">Every setting</h2>', sections.settings(pairs)]
    links = [("results-all", "Results"), *((item.name, item.title) for item in ours), ("split", "Split"),
             ("bytes", "Bytes"), ("settings", "Settings")]  # fmt: skip
    return _fill(title, links, "\n".join(content), quick)


def matching(store: Store) -> tuple[list[Experiment], bool]:
    """The experiments these records belong to, and whether to their quick form."""
    for quick in (False, True):
        found = [e for e in EXPERIMENTS.values() if any(store.of(cell) for cell in e.chosen(quick))]
        if found:
            return found, quick
    return [], False


def _fill(title: str, links: Sequence[tuple[str, str]], content: str, quick: bool) -> str:
    here = resources.files("protoevfl.reproduction.pages")
    style, script = (here.joinpath(f"page.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
    menu = "".join(f'<a href="#{name}">{escape(shown)}</a>' for name, shown in links)
    warning = paragraph("Quick run: it shows that everything works, it measures nothing.", "warning")
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{escape(title)}</title>
<style>
{style}</style>
</head>
<body>
<header><h1>{escape(title)}</h1></header>
<nav aria-label="sections"><div>{menu}</div></nav>
<main>
{warning if quick else ""}
{content}
</main>
<script>
{script}</script>
</body>
</html>
"""
