"""A run directory of `protoevfl train` as a record, so that one page serves own data and
experiments alike."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from protoevfl.artifacts.run_dir import MANIFEST, Run, open_run
from protoevfl.core import metrics
from protoevfl.errors import UserError
from protoevfl.report.html import Table, figure_text, text


def is_run(path: Path) -> bool:
    """Whether the folder was written by `protoevfl train`."""
    return (path / MANIFEST).is_file()


def own_record(path: Path) -> dict[str, Any]:
    """The record of a run on own data: what the label owner measured, what crossed, every setting.

    Nothing is computed from files of the parties; the label owner's folder must be there.
    """
    run = open_run(path)
    owner = run.need_owner()
    measured = owner.metrics
    manifest = run.manifest
    if not measured.get("rows"):
        raise UserError(
            f"{path} has no test rows, so there is nothing to report; set some aside in the "
            "configuration"
        )
    return {
        "dataset": f"own data ({path.resolve().name})",
        "method": manifest["method"]["name"],
        "preset": "default",
        "aligned": len(owner.labels),
        "parties": len(run.names),
        "seed": manifest.get("seed", 0),
        "overrides": {},
        "setting": "zero_shot" if owner.unseen else "normal",
        "classes": list(owner.unseen or owner.rare),
        "metrics": _metrics(run),
        **{name: measured[name] for name in ("bytes", "rounds", "seconds")},
        "device": measured.get("device"),
        "history": measured.get("history", []),
        "epsilon": measured.get("epsilon"),
        "settings": manifest["method"]["settings"],
        "privacy": manifest["privacy"],
        "versions": manifest["versions"],
        "party_names": list(run.names),
        "class_names": list(owner.classes),
        "notes": measured.get("notes", []),
        "test_rows": measured["rows"],
        "class_rows": measured.get("class_rows", {}),
        "created": manifest["created"],
    }


def _metrics(run: Run) -> dict[str, Any]:
    owner = run.need_owner()
    guess = owner.subset(owner.test, tuple(range(len(owner.parties)))).argmax(1)
    table = metrics.confusion(guess, owner.test.labels, len(owner.classes))
    return {
        **owner.metrics["test"], "confusion": table.long().tolist(),
        "majority": owner.metrics.get("majority"), "subsets": owner.metrics.get("subsets", {}),
    }  # fmt: skip


def sentences(record: Mapping[str, Any]) -> list[str]:
    """What only a run on own data has to say: the commonest answer, what was spent, notes of the
    run."""
    measured = record["metrics"]
    lines = [_promise(record), *(f"Note from the run: {note}" for note in record["notes"])]
    if majority := measured.get("majority"):
        lines.insert(
            0,
            f"{record['test_rows']:,} test rows took no part in training. Always answering "
            f"{majority['class']} is right for {100 * majority['accuracy']:.1f} % of them; the "
            f"joint model for {100 * measured['accuracy']:.1f} % (balanced accuracy "
            f"{100 * measured['balanced_accuracy']:.1f} %).",
        )
    return lines


def tables(record: Mapping[str, Any]) -> list[Table]:
    """Every subset of parties, and the labelled rows of each class."""
    subsets = record["metrics"]["subsets"]
    names = dict.fromkeys(name for rates in subsets.values() for name in rates)
    by_subset = [
        [
            text(who.replace("+", " + "), True),
            *(figure_text(_percent(rates.get(name))) for name in names),
        ]
        for who, rates in subsets.items()
    ]
    head = ("parties", *(f"{name.replace('_', ' ')} %" for name in names))
    by_class = [
        [text(name), figure_text(float(count), 0)] for name, count in record["class_rows"].items()
    ]
    present = Table("subsets", head, by_subset, "Which parties are there when it predicts")
    labelled = Table("class-rows", ("class", "rows for training"), by_class, "Labelled rows")
    return [present, labelled] if subsets else [labelled]


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


def _promise(record: Mapping[str, Any]) -> str:
    spent = record.get("epsilon")
    if not spent:
        return (
            "Nothing is proven about the labels in this run: no release of it was entered in a "
            "privacy ledger."
        )
    names, delta = record["party_names"], record["privacy"]["delta"]
    each = ", ".join(f"{names[int(m)]} {value:.2f}" for m, value in spent.items())
    return (
        f"Proven for each label against one party (epsilon at delta {delta:g}): {each}. "
        "`protoevfl audit` says more."
    )
