"""All files of a reproduction: results.md with its figures and tables as CSV, and one HTML page."""

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

from protoevfl.bench import records
from protoevfl.reproduction.pages import page
from protoevfl.reproduction.pages.document import Filling
from protoevfl.reproduction.spec import Experiment

QUICK_WARNING = "**Quick run: few rows and moments of training. It shows that everything works, it measures nothing.**"


def render(
    experiments: Sequence[Experiment],
    file: Path,
    out: Path,
    *,
    quick: bool = False,
    png: bool = True,
    step: Callable[[int, int], None] | None = None,
) -> list[Path]:
    """Writes results.md, figures/NAME-*.svg|png and tables/NAME.csv of each experiment, and
    report.html."""
    runs = records.read(file)
    filling = Filling(runs, quick, png)
    results = out / "results.md"
    out.mkdir(parents=True, exist_ok=True)
    results.write_text(_skeleton(experiments, quick), encoding="utf-8")
    filling.page(results, step)
    if runs and find_spec("jinja2"):  # machines that only run experiments may lack it
        report = out / "report.html"
        report.write_text(
            page.build(runs, "Proto-EVFL: reproduction", filling.drawn), encoding="utf-8"
        )
        filling.written.append(report)
    return filling.written


def _skeleton(experiments: Sequence[Experiment], quick: bool) -> str:
    """The page with empty blocks."""
    parts = ["# Reproduction: ours beside the paper's"]
    parts += [QUICK_WARNING] if quick else ["## The paper's claims", _block("claims")]
    for item in experiments:
        place = f"{item.place}. `protoevfl reproduce {item.name}`"
        further = [_block(f"{item.name}/{name}") for name in item.figures[1:]]
        parts += [f"## {item.title}", place, _block(item.name), item.note, *further]
    return "\n\n".join([*filter(None, parts), "## Provenance", _block("runs")]) + "\n"


def _block(name: str) -> str:
    return f"<!-- begin {name} -->\n<!-- end -->"
