"""`protoevfl data`: which data sets there are and where they lie; ModelNet-10 rendered from its
meshes."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from protoevfl.cli.tables import print_table
from protoevfl.progress import bar, note

app = typer.Typer(add_completion=False, no_args_is_help=True)


@app.callback()
def data() -> None:
    """The data sets: which there are, where they lie, render ModelNet-10."""


@app.command("list")
def list_(as_json: Annotated[bool, Option("--json", help="Print it as JSON.")] = False) -> None:
    """Every data set with its size and whether its files are here."""
    datasets = [_facts(name) for name in SIZES]
    if as_json:
        print(json.dumps(datasets))
        return
    rows = [
        [r["name"], f"{r['rows']:,}", str(r["classes"]), r["what"], _where(r)] for r in datasets
    ]
    print_table(["name", "rows", "classes", "what", "files"], rows)


SIZES = {  # name: rows, classes, what a row is
    "digits": (1797, 10, "handwritten digits, 8 x 8, bundled"),
    "digits_table": (1797, 10, "the same as a table of 64 columns, bundled"),
    "fashion_mnist": (70000, 10, "clothes, 28 x 28"),
    "modelnet10": (4899, 10, "furniture, 12 views of 32 x 32"),
    "adult": (48842, 2, "census, income above 50K, 14 columns"),
    "credit": (30000, 2, "card holders, default next month, 23 columns"),
}


def _facts(name: str) -> dict[str, Any]:
    """What `list` says about one data set; folders are those that hold its files."""
    from protoevfl.rows import fetch, sources

    rows, classes, what = SIZES[name]
    paths = [fetch.find(file) for file in sources.FILES[name]]
    folders = sorted({str(path.parent) for path in paths if path is not None})
    here = all(path is not None for path in paths)
    return {
        "name": name,
        "rows": rows,
        "classes": classes,
        "what": what,
        "here": here,
        "folders": folders,
        "downloads": name != "modelnet10",
    }


def _where(row: dict[str, Any]) -> str:
    if row["here"]:
        return ", ".join(row["folders"]) or "bundled"
    return "downloaded on first use" if row["downloads"] else "protoevfl data render-modelnet10"


@app.command("render-modelnet10")
def render(
    directory: Annotated[
        Path, Argument(help="The unpacked ModelNet10 archive: CLASS/train/*.off, CLASS/test/*.off.")
    ],
    out: Annotated[
        Path | None, Option(help="The file to write; default: the user cache, where it is found.")
    ] = None,
    size: Annotated[int, Option(help="Pixels a side; the data set is read at 32.")] = 32,
    workers: Annotated[int | None, Option(help="Processes that draw; default: one a core.")] = None,
) -> None:
    """Draw 12 views of every mesh, 30 degrees apart, 30 degrees up, into one file."""
    from protoevfl.rows import fetch
    from protoevfl.rows.image_sources import MODELNET_FILE
    from protoevfl.rows.modelnet import render_modelnet10

    target = out or fetch.cache_dir() / MODELNET_FILE
    with bar("drawing meshes") as step:
        render_modelnet10(directory, target, size, step, workers)
    note(f"written: {target}")
    if out is not None:
        note(f"set PROTOEVFL_DATA={target.parent} for it to be found (file name {MODELNET_FILE})")
