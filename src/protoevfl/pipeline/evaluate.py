"""Measure a run: on the test rows it kept, or on new files with labels, for any subset of
parties."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from protoevfl.artifacts.owner import TestRows
from protoevfl.artifacts.run_dir import Run
from protoevfl.errors import UserError
from protoevfl.pipeline.predict import predict
from protoevfl.pipeline.train import majority, measure, short
from protoevfl.rows.files import read_columns, scan
from protoevfl.rows.ids import collect
from protoevfl.rows.labels import encode_labels


def labelled_rows(
    run: Run, inputs: Mapping[str, Path], labels: Path | None = None, device: str = "auto"
) -> TestRows:
    """Rows to measure on: those that all inputs and the labels have; without inputs the run's own
    test rows."""
    owner = run.need_owner()
    if not inputs:
        if labels is not None:
            raise UserError("--labels goes with --input: name the files the labels belong to")
        if not len(owner.test.labels):
            raise UserError("this run kept no test rows (test = 0); give --input and --labels")
        return owner.test
    if missing := [name for name in owner.parties if name not in inputs]:
        raise UserError(f"measuring needs an input of every party; {', '.join(missing)} has none")
    file = labels or inputs[owner.parties[0]]
    predictions = predict(run, inputs, device)
    truth = _read_truth(run, file)
    rows = [
        i
        for i, value in enumerate(predictions.ids)
        if value in truth and bool(predictions.present[:, i].all())
    ]
    if not rows:
        raise UserError(f"no row is in every input and has a label in {file.name}")
    index = torch.tensor(rows)
    embeddings = {m: f[predictions.place[m][index]] for m, f in predictions.embeddings.items()}
    own = None if predictions.own is None else predictions.own[index]
    return TestRows(embeddings, torch.tensor([truth[predictions.ids[i]] for i in rows]), own)


def _read_truth(run: Run, path: Path) -> dict[str, int]:
    """Normalised id -> class number, rows without a label left out."""
    owner = run.need_owner()
    party = run.need_party(owner.parties[0])
    columns = list(party.id_columns)
    if owner.label_column not in scan(path).names:
        raise UserError(
            f"{path.name} has no column '{owner.label_column}'; give the file with the labels as "
            "--labels"
        )
    table = read_columns(path, [*columns, owner.label_column], text=columns)
    ids = collect(
        [table[c].to_pylist() for c in columns], party.id_rules, path.name, party.on_bad_ids
    )
    column = table[owner.label_column].combine_chunks()
    classes, _ = encode_labels(column, f"{path.name} column '{owner.label_column}'", owner.classes)
    labels = classes[ids.rows].tolist()
    return {value: label for value, label in zip(ids.values, labels, strict=True) if label >= 0}


def evaluate(
    run: Run, inputs: Mapping[str, Path], labels: Path | None = None, device: str = "auto"
) -> dict[str, Any]:
    """The figures of the run's own test rows, or of new files; there "subsets" tells rows apart by
    who has them."""
    owner = run.need_owner()
    if not inputs:
        return measure(owner, labelled_rows(run, {}, labels))
    if labels is None and owner.parties[0] not in inputs:
        raise UserError(
            f"give the labels as --labels, or an input of {owner.parties[0]} that has them"
        )
    file = labels or inputs[owner.parties[0]]
    truth, predictions = _read_truth(run, file), predict(run, inputs, device)
    rows = torch.tensor(
        [i for i, value in enumerate(predictions.ids) if value in truth], dtype=torch.int64
    )
    if not len(rows):
        raise UserError(f"no row of the inputs has a label in {file.name}")
    y = torch.tensor([truth[predictions.ids[i]] for i in rows.tolist()])
    names = predictions.contributors()
    who = [names[i] for i in rows.tolist()]
    groups = {
        name: torch.tensor([w == name for w in who])
        for name in sorted(set(who), key=lambda w: (len(w), w))
    }
    p = predictions.probabilities[rows]
    return {
        "rows": len(rows),
        "test": owner.evaluate(p, y),
        "majority": majority(owner, y),
        "subsets": {
            name: {"rows": int(g.sum()), **short(owner.evaluate(p[g], y[g]))}
            for name, g in groups.items()
        },
    }
