"""A run directory of `protoevfl train` as a record, so that one page serves own data and experiments alike."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from protoevfl.artifacts.run_dir import MANIFEST, Run, open_run
from protoevfl.core import metrics
from protoevfl.errors import UserError
from protoevfl.report.html import figure_text, paragraph, table, text

NO_SPLIT = paragraph(
    "Own data: nobody knows the classes of the parties' unaligned rows, so there is no imbalance to show. The labelled "
    "rows of each class stand above.",
    "soft",
)


def is_run(path: Path) -> bool:
    """Whether the folder was written by `protoevfl train`."""
    return (path / MANIFEST).is_file()


def own_record(path: Path) -> dict[str, Any]:
    """The record of a run on own data: what the label owner measured, what crossed, every setting.

    Nothing is computed from files of the parties; the label owner's folder must be there.
    """
    run = open_run(path)
    owner = run.need_owner()
    found, manifest = owner.metrics, run.manifest
    if not found.get("rows"):
        raise UserError(f"{path} has no test rows, so there is nothing to report; set some aside in the configuration")
    return {
        "dataset": f"own data ({path.resolve().name})", "method": manifest["method"]["name"], "preset": "default",
        "aligned": len(owner.labels), "parties": len(run.names), "seed": manifest.get("seed", 0), "overrides": {},
        "setting": "zero_shot" if owner.unseen else "normal", "classes": list(owner.unseen or owner.rare),
        "metrics": _metrics(run), "bytes": found["bytes"], "rounds": found["rounds"], "seconds": found["seconds"],
        "device": found.get("device"), "history": found.get("history", []), "epsilon": found.get("epsilon"),
        "settings": manifest["method"]["settings"], "privacy": manifest["privacy"], "versions": manifest["versions"],
        "party_names": list(run.names), "class_names": list(owner.classes), "notes": found.get("notes", []),
        "test_rows": found["rows"], "class_rows": found.get("class_rows", {}), "created": manifest["created"],
    }  # fmt: skip


def _metrics(run: Run) -> dict[str, Any]:
    owner = run.need_owner()
    guess = owner.subset(owner.test, tuple(range(len(owner.parties)))).argmax(1)
    table = metrics.confusion(guess, owner.test.labels, len(owner.classes))
    return {
        **owner.metrics["test"], "confusion": table.long().tolist(),
        "majority": owner.metrics.get("majority"), "subsets": owner.metrics.get("subsets", {}),
    }  # fmt: skip


def section(record: Mapping[str, Any]) -> str:
    """What only a run on own data has: the commonest answer, every subset of parties, labelled rows, what was spent."""
    found, said = record["metrics"], []
    if majority := found.get("majority"):
        said.append(
            f"{record['test_rows']:,} test rows took no part in training. Always answering {majority['class']} is "
            f"right for {100 * majority['accuracy']:.1f} % of them; the joint model for {100 * found['accuracy']:.1f} "
            f"% (balanced accuracy {100 * found['balanced_accuracy']:.1f} %)."
        )
    said.append(_promise(record))
    said += [f"Note from the run: {note}" for note in record["notes"]]
    parts = ['<h2 id="own">This run</h2>', *map(paragraph, said)]
    if found["subsets"]:
        names = dict.fromkeys(name for each in found["subsets"].values() for name in each)
        rows = [
            [text(who.replace("+", " + "), True), *(figure_text(_percent(each.get(name))) for name in names)]
            for who, each in found["subsets"].items()
        ]
        parts += ["<h3>Which parties are there when it predicts</h3>"]
        parts += [table("subsets", ("parties", *(f"{name.replace('_', ' ')} %" for name in names)), rows)]
    rows = [[text(name), figure_text(float(count), 0)] for name, count in record["class_rows"].items()]
    return "\n".join([*parts, "<h3>Labelled rows</h3>", table("class-rows", ("class", "rows for training"), rows)])


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


def _promise(record: Mapping[str, Any]) -> str:
    spent = record.get("epsilon")
    if not spent:
        return "Nothing is proven about the labels in this run: no release of it was entered in a privacy ledger."
    names, delta = record["party_names"], record["privacy"]["delta"]
    each = ", ".join(f"{names[int(m)]} {value:.2f}" for m, value in spent.items())
    return f"Proven for each label against one party (epsilon at delta {delta:g}): {each}. `protoevfl audit` says more."
