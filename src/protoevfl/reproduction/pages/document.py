"""Fills the marked blocks of Markdown pages from records, so that no number in them is typed by
hand.

<!-- begin claims -->               the paper's claims with their verdicts
<!-- begin ablation -->             an experiment: its first figure, one table, a link to all as CSV
<!-- begin ablation:balanced -->    the table of one of its further quantities alone
<!-- begin accuracy_images/gate --> one of its further figures alone
<!-- begin runs -->                 the records, seeds, machines and commits behind the page
<!-- end -->

Figures and CSV files are written into the folders figures/ and tables/ beside the page.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from protoevfl.bench import records
from protoevfl.errors import UserError
from protoevfl.reproduction import claims, tables
from protoevfl.reproduction.accuracy import MARGINS
from protoevfl.reproduction.catalogue import EXPERIMENTS
from protoevfl.reproduction.measure import Store, measure
from protoevfl.reproduction.pages import figures, page, pictures, summary
from protoevfl.reproduction.spec import Experiment, Record

BLOCK = re.compile(r"(<!-- begin (?P<name>[\w /:-]+?) -->\n).*?(<!-- end -->)", re.DOTALL)
SEEDS = 5  # of every table but that of the close cases, so that tables can be compared


@dataclass
class Filling:
    """What fills blocks, and what it has written and drawn."""

    records: Sequence[Record]
    quick: bool = False
    png: bool = False
    written: list[Path] = field(default_factory=list)
    drawn: dict[str, list[pictures.Picture]] = field(default_factory=dict)

    def page(self, page: Path, step: Callable[[int, int], None] | None = None) -> None:
        """Rewrites the blocks of a page; `step` gets how many are filled, of how many."""
        text = page.read_text(encoding="utf-8")
        total, done = len(BLOCK.findall(text)), 0

        def block(match: re.Match[str]) -> str:
            nonlocal done
            content = self.block(match["name"], page.parent)
            done += 1
            if step is not None:
                step(done, total)
            return f"{match[1]}\n{content}\n\n{match[3]}"

        page.write_text(BLOCK.sub(block, text), encoding="utf-8")
        self.written.append(page)

    def block(self, name: str, folder: Path) -> str:
        if name == "claims":
            return claims.markdown(claims.verdicts(self._store(), self.quick))
        if name == "runs":
            return "\n".join(f"- {line}" for line in summary.provenance(self.records))
        place, _, figure = name.partition("/")
        experiment, _, quantity = place.partition(":")
        if experiment not in EXPERIMENTS:
            raise UserError(f"no block '{name}'; there are claims, runs, {', '.join(EXPERIMENTS)}")
        item = EXPERIMENTS[experiment]
        if figure:
            return self._figure(item, figure, folder)
        return self._experiment(item, quantity, folder)

    def _store(self, item: Experiment | None = None) -> Store:
        if item is MARGINS:
            return Store(self.records)
        return Store(record for record in self.records if int(record.get("seed", 0)) < SEEDS)

    def _experiment(self, item: Experiment, quantity: str, folder: Path) -> str:
        measured = measure(item, self._store(item), self.quick)
        grids = [g for g in tables.grids(item, measured) if g.title.startswith(quantity)]
        if not grids:
            return "Not measured yet."
        title = grids[0].title
        table = f"*{title[:1].upper()}{title[1:]}.*\n\n{tables.markdown_table(grids[0])}"
        if quantity:
            return table
        numbers = folder / "tables" / f"{item.name}.csv"
        numbers.parent.mkdir(parents=True, exist_ok=True)
        numbers.write_text(tables.comma_separated(item, measured), encoding="utf-8")
        self.written.append(numbers)
        link = f"[All its numbers as CSV](tables/{item.name}.csv)"
        return "\n\n".join([self._figure(item, item.figures[0], folder), table, link])

    def _figure(self, item: Experiment, name: str, folder: Path) -> str:
        if item.name not in self.drawn:
            self.drawn[item.name] = figures.draw(item, self._store(item), self.quick)
        slug = f"-{name.replace('_', '-')}"
        for picture in self.drawn[item.name]:
            if picture.slug.endswith(slug):
                self.written += pictures.save(picture, folder / "figures", self.png)
                return f"![{picture.caption}](figures/{picture.slug}.svg)"
        return "Nothing to draw yet."


def pages_of(page: Path) -> list[Path]:
    """A page and those in the folder of its name beside it: results.md, results/*.md."""
    return [page, *sorted(page.with_suffix("").glob("*.md"))]


QUICK_WARNING = (
    "**Quick run: few rows and moments of training. It shows that everything works, it measures "
    "nothing.**"
)


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
