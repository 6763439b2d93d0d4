"""All files of a reproduction: tables as Markdown and CSV, figures as SVG and PNG, the claims, one HTML page."""

from collections.abc import Callable, Sequence
from pathlib import Path

from protoevfl.bench import records
from protoevfl.reproduction import claims, tables
from protoevfl.reproduction.measure import Store, measure
from protoevfl.reproduction.pages import figures, page, pictures
from protoevfl.reproduction.spec import Experiment

Step = Callable[[int, int], None]


def render(
    experiments: Sequence[Experiment], file: Path, out: Path, *, quick: bool = False, png: bool = True,
    step: Step | None = None,
) -> list[Path]:  # fmt: skip
    """Writes NAME.md, NAME.csv and figures/NAME-*.svg|png for each experiment, results.md and report.html."""
    found = records.read(file)
    store, written, texts = Store(found), list[Path](), list[str]()
    pictured: dict[str, list[pictures.Picture]] = {}
    for number, experiment in enumerate(experiments):
        measured = measure(experiment, store, quick)
        drawn = pictured[experiment.name] = figures.draw(experiment, store, quick)
        images = [path for picture in drawn for path in pictures.save(picture, out / "figures", png)]
        text = tables.markdown(experiment, measured, quick)
        text += "".join(f"\n![{p.caption}](figures/{p.slug}.svg)\n" for p in drawn)
        written += [_write(out / f"{experiment.name}.md", text), *images]
        written.append(_write(out / f"{experiment.name}.csv", tables.comma_separated(experiment, measured)))
        texts.append(text)
        if step is not None:
            step(number + 1, len(experiments) + 1)
    head = "# Reproduction: ours beside the paper's\n"
    judged = f"\n## The paper's claims\n\n{claims.markdown(claims.verdicts(store))}\n" if not quick else ""
    written.append(_write(out / "results.md", "\n".join([head + judged, *texts])))
    if found:
        written.append(_write(out / "report.html", page.build(found, "Proto-EVFL: reproduction", pictured)))
    return written


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
