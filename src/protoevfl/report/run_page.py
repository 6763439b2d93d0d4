"""The page for a decision: one HTML file about one run on own data, for a screen, a phone and paper.

    does joining pay -> how good it is -> what parties and own columns are worth -> what crossed ->
    how it was made

It loads nothing from anywhere and has no script. run_page.html is its template, run_page.css its
style; light and dark follow the reader's system.
"""

from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from protoevfl.artifacts.run_dir import MANIFEST, Run, open_run
from protoevfl.errors import UserError
from protoevfl.observer import SILENT, Observer
from protoevfl.pipeline.evaluate import labelled_rows
from protoevfl.pipeline.train import measure
from protoevfl.report import quality, worth
from protoevfl.report.charts import DRAWN
from protoevfl.report.crossed import crossed
from protoevfl.report.measured import Measured
from protoevfl.report.origin import origin
from protoevfl.report.parts import Section
from protoevfl.report.verdict import verdict


def is_run(path: Path) -> bool:
    """Whether the folder was written by `protoevfl train` or by a run between companies."""
    return (path / MANIFEST).is_file()


def build(
    path: Path,
    inputs: Mapping[str, Path] | None = None,
    labels: Path | None = None,
    title: str = "",
    device: str = "auto",
    observer: Observer = SILENT,
) -> str:
    """The page about a run directory that has the label owner's folder.

    inputs   new rows of every party to measure on, instead of the rows kept aside
    labels   the file with their labels; none: the label party's input has them
    """
    measured = _measured(open_run(path), inputs or {}, labels, device)
    return _rendered(measured, sections(measured, observer), title)


def sections(measured: Measured, observer: Observer = SILENT) -> list[Section]:
    """All sections of the page, in its order; those that need test rows are left out without
    any."""
    figures = []
    if len(measured.labels):
        figures = [*quality.sections(measured), *worth.sections(measured, observer)]
    return [verdict(measured), *figures, crossed(measured.run), origin(measured.run)]


def _measured(run: Run, inputs: Mapping[str, Path], labels: Path | None, device: str) -> Measured:
    owner = run.need_owner()
    if not inputs and labels is None:
        return Measured(run, owner.test, owner.metrics)
    rows = labelled_rows(run, inputs, labels, device)
    return Measured(run, rows, measure(owner, rows), new_rows=True)


def _rendered(measured: Measured, shown: list[Section], title: str) -> str:
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError:
        raise UserError(
            "the HTML page needs the package Jinja2: pip install 'Jinja2>=3.1'"
        ) from None
    environment = Environment(
        loader=PackageLoader("protoevfl.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["coded"] = _coded
    style = resources.files("protoevfl.report").joinpath("run_page.css")
    return environment.get_template("run_page.html").render(
        title=title or f"Does joining pay for {measured.active}?",
        active=measured.active,
        others=measured.others,
        run=measured.run.path.resolve().name,
        created=measured.run.manifest["created"][:10],
        sections=shown,
        drawn=DRAWN,
        style=style.read_text(encoding="utf-8"),
    )


def _coded(text: str) -> Any:
    """The escaped text; what stands between backticks is code."""
    from markupsafe import Markup, escape

    pieces = str(escape(text)).split("`")
    return Markup("".join(f"<code>{p}</code>" if i % 2 else p for i, p in enumerate(pieces)))
