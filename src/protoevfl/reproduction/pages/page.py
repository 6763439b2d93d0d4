"""One self-contained HTML page from records: no network, inline style, script and SVG; for a
screen, a phone, paper.

It opens with the findings (summary, figures, claims), then has one table per experiment; the long
table of all records and the provenance are folded away at its end. page.html is its template.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from importlib import resources
from pathlib import Path
from typing import Any

from protoevfl.bench import records as files
from protoevfl.bench.world import RunConfig
from protoevfl.errors import UserError
from protoevfl.reproduction.catalogue import EXPERIMENTS
from protoevfl.reproduction.grid import name_of
from protoevfl.reproduction.measure import Store, measure
from protoevfl.reproduction.pages import figures, sections, summary
from protoevfl.reproduction.pages.averages import Pairs
from protoevfl.reproduction.pages.pictures import Picture, svg
from protoevfl.reproduction.spec import Cell, Experiment, Record

# figures of records of no experiment
GENERAL = ("recall", "confusion", "gate", "priors", "accuracy_bytes")
WAY_OUT = (
    "name a run directory (of `protoevfl train`) or a records file (of `protoevfl bench` or "
    "`reproduce`)"
)


def load(path: Path) -> list[dict[str, Any]]:
    """The records of a file or of a folder (records.jsonl, records.jsonl.gz, or any .jsonl file of
    records in it). Whatever else there is (an audit log, say) is refused."""
    if not path.exists():
        raise UserError(f"there is no {path}; {WAY_OUT}")
    candidates = [path]
    if path.is_dir():
        named = [path / name for name in ("records.jsonl", "records.jsonl.gz")]
        candidates = (
            [p for p in named if p.exists()]
            or sorted(path.glob("*.jsonl"))
            or sorted(path.glob("*.jsonl.gz"))
        )
    for file in candidates:
        records = files.read(file)
        if records and all(map(_is_record, records)):
            return records
        if records and file.name.startswith("records.jsonl"):
            break
    raise UserError(f"{path} holds no records and is no run directory; {WAY_OUT}")


def _is_record(line: Mapping[str, Any]) -> bool:
    """Whether a JSON line is the record of a run: other logs of ours are JSON lines, too."""
    return {"method", "seed"} <= line.keys() and isinstance(line.get("metrics"), Mapping)


def _config_of(record: Record) -> RunConfig:
    """The configuration a record belongs to; what it does not name keeps its default."""
    known = {f.name: record[f.name] for f in fields(RunConfig) if record.get(f.name) is not None}
    known["classes"] = tuple(known.get("classes", ()))
    return RunConfig(**known)


def _grouped(records: Iterable[Record]) -> Pairs:
    """Records by configuration, in the order of the file."""
    cells: dict[str, tuple[Cell, dict[Any, Record]]] = {}
    for record in records:
        config = _config_of(record)
        tags = {
            "dataset": config.dataset,
            "aligned": str(config.aligned),
            "setting": config.setting,
            "method": name_of(config.method, config.preset),
            "classes": " ".join(map(str, config.classes)),
        }
        _, seeds = cells.setdefault(files.cell_key(record), (Cell(tags, config), {}))
        seeds[record.get("seed")] = record
    return [(cell, list(seeds.values())) for cell, seeds in cells.values()]


def build(
    records: Sequence[Record],
    title: str = "Proto-EVFL report",
    drawn: Mapping[str, list[Picture]] | None = None,
) -> str:
    """The page; `drawn` are pictures of experiments that exist already."""
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError:
        raise UserError(
            "the HTML page needs the package Jinja2: pip install 'Jinja2>=3.1'"
        ) from None
    pairs, store = _grouped(records), Store(records)
    items, quick = _matching(store)
    leads: list[Picture] = []
    experiments = []
    for item in items:
        pictures = (drawn or {}).get(item.name) or figures.draw(item, store, quick)
        leads += pictures[:1]
        tables = sections.experiment(item, measure(item, store, quick))
        experiments.append(
            {
                "name": item.name,
                "title": item.title,
                "place": item.place,
                "note": item.note,
                "tables": tables,
                "pictures": pictures[1:],
            }
        )
    if not items:
        plain = [(cell, seeds) for cell, seeds in pairs if not cell.config.overrides] or list(pairs)
        leads = [picture for name in GENERAL for picture in figures.FIGURES[name](plain)]
    claims = sections.verdicts(store, quick)
    links = [("figures", "Figures"), ("claims", "Claims")][: 2 if claims else 1]
    links += [(item.name, item.title) for item in items]
    links += [("records", "Records"), ("provenance", "Provenance")]
    here = resources.files("protoevfl.reproduction.pages")
    environment = Environment(
        loader=PackageLoader("protoevfl.reproduction.pages", ""),
        autoescape=True,
        undefined=StrictUndefined,
    )
    return environment.get_template("page.html").render(
        title=title,
        quick=quick,
        links=links,
        svg=svg,
        style=here.joinpath("page.css").read_text(encoding="utf-8"),
        script=here.joinpath("page.js").read_text(encoding="utf-8"),
        warnings=summary.warnings(pairs),
        sentences=summary.summary(pairs),
        pictures=leads,
        claims=claims,
        experiments=experiments,
        results=sections.results(pairs),
        splits=sections.splits(pairs),
        pools=figures.FIGURES["pools"](pairs),
        messages=sections.messages(pairs),
        provenance=summary.provenance(records),
        settings=sections.settings(pairs),
    )


def _matching(store: Store) -> tuple[list[Experiment], bool]:
    """The experiments these records belong to, and whether to their quick form."""
    for quick in (False, True):
        items = [e for e in EXPERIMENTS.values() if any(store.of(cell) for cell in e.chosen(quick))]
        if items:
            return items, quick
    return [], False
