"""Your own files on the command line: init, check, align, train, evaluate, predict, inspect,
value, report."""

import json
import logging
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Exit, Option

from protoevfl.cli import own_tables
from protoevfl.cli.option_values import DEVICE, settings_for
from protoevfl.cli.tables import print_table
from protoevfl.errors import UserError
from protoevfl.progress import OUTPUT, Bars, is_secondary_rank, note

if TYPE_CHECKING:
    from protoevfl.settings.config import Config

LOG = logging.getLogger(__name__)
CONFIG = Annotated[
    Path, Argument(metavar="CONFIG", help="protoevfl.toml, as `protoevfl init` writes it.")
]
RUN = Annotated[
    Path, Argument(metavar="RUN", help="A run directory, as `protoevfl train` writes it.")
]
INPUT = Annotated[
    list[str] | None,
    Option("--input", metavar="PARTY=FILE", help="A party's new rows; once per party."),
]
AS_JSON = Annotated[bool, Option("--json", help="Print JSON instead of tables.")]
OVERWRITE = Annotated[bool, Option("--overwrite", help="Replace the output if it exists.")]
LABELS = Annotated[
    Path | None, Option(help="File with ids and labels; default: the label party's input.")
]
EXAMPLE = Annotated[
    list[str] | None,
    Option(
        metavar="CLASS=ID",
        help="A row to be predicted that is of a class without labels; names two or more such.",
    ),
]
ATTRIBUTES = Annotated[
    Path | None,
    Option(
        metavar="FILE.csv",
        help="A line for every class: name, numbers; names two or more classes without labels.",
    ),
]


def init(
    path: Annotated[Path, Argument(help="Where to write it.")] = Path("protoevfl.toml"),
    example: Annotated[
        Path | None,
        Option(
            metavar="FOLDER",
            help="Write three companies' files to try: flights, real ones, downloaded; any other "
            "name, such as shop, made-up ones.",
        ),
    ] = None,
    rows: Annotated[
        int | None, Option(help="Customers of a made-up example [3000].", min=200, max=1_000_000)
    ] = None,
    archive: Annotated[
        Path | None, Option("--from", help="Of flights: the archive, already downloaded.")
    ] = None,
) -> None:
    """Write a commented protoevfl.toml for your own files, or an example with files."""
    if example is not None:
        config = _write_example(example, rows, archive)
        note(f"wrote three companies' files and {config}; next: protoevfl check {config}")
        return
    from protoevfl.settings.config import template

    if path.exists():
        raise UserError(f"{path} exists and is not replaced; give another name")
    if not path.parent.is_dir():
        raise UserError(f"there is no folder {path.parent}")
    path.write_text(template(), encoding="utf-8")
    note(f"wrote {path}; fill in your files, then: protoevfl check {path}")


def _write_example(folder: Path, rows: int | None, archive: Path | None) -> Path:
    """The made-up companies, or the real ones where the folder is called flights."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} is not empty; give a new folder")
    if folder.name == "flights":
        from protoevfl.rows.flights import write_flights

        if rows is not None:
            raise UserError("--rows is for made-up examples; the flights are as many as there are")
        return write_flights(folder, archive)
    from protoevfl.rows.example import write_example

    if archive is not None:
        raise UserError("--from goes with --example flights; other examples are made up")
    return write_example(folder, 3000 if rows is None else rows)


def check(
    config: CONFIG,
    estimate: Annotated[
        bool, Option(help="Try the method on random rows to estimate time and bytes.")
    ] = True,
    as_json: AS_JSON = False,
) -> None:
    """Read a configuration and its files and say what is wrong with them."""
    from protoevfl.pipeline import check as own_check
    from protoevfl.settings.config import load

    OUTPUT.json = as_json
    report = own_check.check(load(config), estimate)
    if as_json:
        print(json.dumps(report.to_dict()))
    else:
        own_tables.show_report(report, config)
    if report.errors:
        raise Exit(2)


def align(config: CONFIG, overwrite: OVERWRITE = False, as_json: AS_JSON = False) -> None:
    """Find the rows the parties share by private set intersection; each party's result has its own
    folder."""
    from protoevfl.observer import Terminal
    from protoevfl.pipeline.one_process import alignment_folder
    from protoevfl.pipeline.simulate import align_files
    from protoevfl.settings.config import load

    loaded = load(config)
    with Bars() as bars:
        pairs = align_files(loaded, Terminal(bars), overwrite)
    if as_json:
        facts = {
            other: {name: {"digest": a.digest, **a.counts} for name, a in pair.items()}
            for other, pair in pairs.items()
        }
        print(json.dumps(facts))
        return
    shown = ("input", "dropped", "matched")
    rows = [
        [a.party, *(str(a.counts[name]) for name in shown), other, a.digest[:12]]
        for other, pair in pairs.items()
        for a in pair.values()
    ]
    head = ["party", "rows", "dropped", "shared", "pair with", "digest"]
    print_table(head, rows, "Private set intersection of the active party with each other one", 1)
    note(f"wrote {alignment_folder(loaded)}; next: protoevfl train {config}")


def train(
    config: CONFIG,
    out: Annotated[
        Path | None, Option(help="Run directory; default: output of the configuration.")
    ] = None,
    set_: Annotated[
        list[str] | None, Option("--set", help="A setting of the method: head.epochs=50.")
    ] = None,
    seed: Annotated[
        int | None, Option(help="A seed instead of the configuration's.", min=0)
    ] = None,
    track: Annotated[list[str] | None, Option(help="mlflow[=URI] or tensorboard[=FOLDER].")] = None,
    overwrite: OVERWRITE = False,
    as_json: AS_JSON = False,
) -> None:
    """Train on your own files in this process and write a run directory."""
    from protoevfl import tracking
    from protoevfl.observer import Logged, Terminal, Together
    from protoevfl.pipeline.simulate import train_files

    loaded = _changed(config, set_ or [], seed)
    facts = {"method": loaded.method.name, "preset": loaded.method.preset, "seed": loaded.seed}
    with (
        tracking.start(
            [] if is_secondary_rank() else track or [], {**facts, **loaded.method.overrides}
        ) as tracker,
        Bars() as bars,
    ):
        observer = Together([Terminal(bars), Logged(LOG), tracker])
        owner = train_files(loaded, out, overwrite=overwrite, observer=observer)
        tracker.finish(owner.metrics)
    run = out or loaded.output
    if as_json:
        print(json.dumps(owner.metrics))
        return
    own_tables.show_metrics(owner.metrics, own_tables.TEST_ROWS)
    own_tables.show_cost(owner.metrics)
    # worth is measured on test rows
    worth = f"protoevfl value {run}, " if owner.metrics["rows"] else ""
    note(f"wrote {run}; next: {worth}protoevfl predict {run} --input PARTY=FILE --out new.csv")


def evaluate(
    run: RUN,
    inputs: INPUT = None,
    labels: LABELS = None,
    device: DEVICE = "auto",
    as_json: AS_JSON = False,
) -> None:
    """Measure a trained run on the test rows it kept, or on labelled new files."""
    from protoevfl.artifacts.run_dir import open_run
    from protoevfl.pipeline import evaluate as own_evaluate

    figures = own_evaluate.evaluate(open_run(run), _inputs(inputs), labels, device)
    if as_json:
        print(json.dumps(figures))
        return
    title = "New rows, by the parties that have them" if inputs else own_tables.TEST_ROWS
    own_tables.show_metrics(figures, title)


def predict(
    run: RUN,
    inputs: INPUT = None,
    out: Annotated[Path, Option(help="Predictions, .parquet or .csv.")] = Path(
        "predictions.parquet"
    ),
    example: EXAMPLE = None,
    attributes: ATTRIBUTES = None,
    strict: Annotated[
        bool, Option("--strict", help="Refuse where there would be a warning about ids or columns.")
    ] = False,
    device: DEVICE = "auto",
    overwrite: OVERWRITE = False,
) -> None:
    """Predict for new rows, with any party missing: each row uses the parties that have it."""
    from protoevfl.artifacts import integrity
    from protoevfl.artifacts.run_dir import open_run
    from protoevfl.observer import Logged, Terminal, Together
    from protoevfl.pipeline import predict as own_predict

    own_predict.writer(out)
    integrity.check_free(out, overwrite)
    with Bars() as bars:
        predictions = own_predict.predict(
            open_run(run),
            _inputs(inputs),
            device,
            _examples(example),
            attributes,
            strict=strict,
            observer=Together([Terminal(bars), Logged(LOG)]),
        )
    own_predict.write_predictions(predictions, out)
    parties = Counter(predictions.contributors())
    counts = ", ".join(
        f"{parties[name]:,} from {name}" for name in sorted(parties, key=lambda n: (-len(n), n))
    )
    note(f"wrote {parties.total():,} predictions to {out}: {counts}")


def inspect(run: RUN, as_json: AS_JSON = False) -> None:
    """Show what a run directory holds, after checking every checksum."""
    from protoevfl.artifacts.run_dir import open_run

    opened = open_run(run)
    if as_json:
        print(json.dumps(own_tables.run_facts(opened)))
    else:
        own_tables.show_run(opened)


def value(
    run: RUN,
    metric: Annotated[str, Option(help="accuracy or auc; default: auc for two classes.")] = "",
    inputs: INPUT = None,
    labels: LABELS = None,
    draws: Annotated[
        int, Option(help="Bootstrap draws of the intervals.", min=100, max=100_000)
    ] = 1000,
    picture: Annotated[Path | None, Option(help="Also draw it: .png, .svg or .pdf.")] = None,
    device: DEVICE = "auto",
    as_json: AS_JSON = False,
) -> None:
    """What each party is worth: exact Shapley values over all subsets of parties, with 95 %
    intervals."""
    from protoevfl.artifacts.run_dir import open_run
    from protoevfl.pipeline import value as own_value
    from protoevfl.pipeline.evaluate import labelled_rows
    from protoevfl.pipeline.value_picture import check_picture, draw

    if picture is not None:
        check_picture(picture)
    opened = open_run(run)
    rows = labelled_rows(opened, _inputs(inputs), labels, device)
    worth = own_value.value(opened.need_owner(), rows, metric, draws)
    if picture is not None:
        draw(worth, picture)
    if as_json:
        print(json.dumps(worth.to_dict()))
        return
    own_tables.show_worth(worth)


def report(
    source: Annotated[Path, Argument(help="A run directory or a records file.")],
    out: Annotated[
        Path | None, Option(help="The page; default: report.html in the run directory.")
    ] = None,
    title: Annotated[str, Option(help="Its title.")] = "",
    inputs: INPUT = None,
    labels: LABELS = None,
    device: DEVICE = "auto",
    open_: Annotated[bool, Option("--open", help="Show it in the browser.")] = False,
) -> None:
    """Does joining pay? One self-contained HTML page about a run, or about records of `bench`."""
    from protoevfl.artifacts.integrity import whole_file
    from protoevfl.observer import Terminal
    from protoevfl.report import run_page

    target = out or (source if source.is_dir() else source.parent) / "report.html"
    if target.is_dir():
        raise UserError(f"cannot write {target}: it is a folder; name a file")
    if run_page.is_run(source):
        with Bars() as bars:
            files = _inputs(inputs)
            html = run_page.build(source, files, labels, title, device, Terminal(bars))
    else:
        from protoevfl.reproduction.pages.page import build, load

        if inputs or labels:
            raise UserError("--input and --labels go with a run directory, not with records")
        html = build(load(source), title or "Proto-EVFL report")
    try:
        with whole_file(target) as part:
            part.write_text(html, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write {target}: {error.strerror}") from None
    print(target)
    if open_:
        import webbrowser

        webbrowser.open(target.resolve().as_uri())


def _inputs(given: list[str] | None) -> dict[str, Path]:
    """PARTY=FILE options; each party once."""
    files = _pairs(
        given,
        "--input takes PARTY=FILE, for example bank=new.parquet",
        "--input names {} twice; join its files first",
    )
    return {party: Path(file) for party, file in files.items()}


def _examples(given: list[str] | None) -> dict[str, str]:
    """CLASS=ID options; each class once."""
    return _pairs(
        given,
        "--example takes CLASS=ID, for example fraud=100007",
        "--example names class {} twice; one row is enough",
    )


def _pairs(given: list[str] | None, usage: str, twice: str) -> dict[str, str]:
    """NAME=VALUE options; `usage` and `twice` say what is wrong with one."""
    pairs: dict[str, str] = {}
    for text in given or []:
        name, _, value = text.partition("=")
        if not (name and value):
            raise UserError(f"{usage}, not '{text}'")
        if name in pairs:
            raise UserError(twice.format(name))
        pairs[name] = value
    return pairs


def _changed(path: Path, settings: list[str], seed: int | None) -> "Config":
    """The configuration with the command line's settings on top."""
    from protoevfl.settings.config import load

    loaded = load(path)
    given = settings_for([loaded.method.name], settings)[loaded.method.name]
    method = replace(loaded.method, overrides={**loaded.method.overrides, **given})
    return replace(loaded, method=method, seed=loaded.seed if seed is None else seed)
