"""Predict for new rows: ids are joined across the inputs, and each row uses the parties that have
it.

    input files -> each party's embeddings of its own rows -> rows grouped by the set of parties ->
    probabilities

No party has to be there: one input is enough, and a row that only one party knows is predicted from
that party. Rows come back in the order of the active party's input, then those that only others have,
with their ids as they stand in the file. Ids that miss each other by their spelling, and columns that
look unlike those of training, are said.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from protoevfl.artifacts import integrity
from protoevfl.artifacts.owner import ROWS, StoredOwner, among
from protoevfl.artifacts.party import StoredParty
from protoevfl.artifacts.run_dir import Run
from protoevfl.distributed import choose_device
from protoevfl.errors import UserError
from protoevfl.observer import SILENT, Observer
from protoevfl.rows import drift
from protoevfl.rows.attributes import read_attributes
from protoevfl.rows.encoders import encoded_batches
from protoevfl.rows.features import TableEncoder
from protoevfl.rows.files import read_columns, require_columns, scan
from protoevfl.rows.ids import IdRules, Ids, collect, near_match_lines, near_matches

MOST_WARNINGS = 20  # that are shown one by one
# how a formula begins, full-width signs included; ids are written as they stand in the file
FORMULA = r"^\s*[=+\-@＝＋－＠]|^[\t\r\n]"


@dataclass(frozen=True)
class Input:
    """One party's new rows: ids, embeddings (n, d) and the id columns as they stand in the file."""

    party: StoredParty
    ids: Ids
    embeddings: Tensor
    id_table: Any  # pyarrow Table of the kept rows, in the order of ids.values
    # (n, ...) rows as the own model takes them; the active party's only
    encoded: Tensor | None = None
    warnings: tuple[str, ...] = ()  # rows left out, columns unlike those of training


@dataclass(frozen=True)
class Predictions:
    """Rows in the order of the first input, then those only later inputs have."""

    ids: list[str]  # normalised
    id_table: Any
    probabilities: Tensor  # (n, Z)
    present: Tensor  # (M, n)
    classes: tuple[str, ...]
    parties: tuple[str, ...]
    place: dict[int, Tensor]  # party number -> (n,) row of its embeddings, -1 where it has none
    embeddings: dict[int, Tensor]
    own: Tensor | None = None  # (n, ...) the active party's encoded rows
    choice: Tensor | None = None  # (n,) classes by the run's rule; None: the likeliest
    said: tuple[str, ...] = ()  # what a row of each class is said to be; (): its name

    def table(self) -> Any:
        """id column(s), class, p_<class> ..., parties (joined by +)."""
        import pyarrow as pa

        columns = {name: self.id_table[name] for name in self.id_table.column_names}
        choice = self.probabilities.argmax(1) if self.choice is None else self.choice
        names = np.array(self.said or self.classes, object)[choice.numpy()]
        columns[free("class", columns)] = pa.array(names, pa.string())
        for z, name in enumerate(self.classes):
            columns[free(f"p_{name}", columns)] = pa.array(self.probabilities[:, z].numpy())
        columns[free("parties", columns)] = pa.array(self.contributors(), pa.string())
        return pa.table(columns)

    def contributors(self) -> list[str]:
        """Each row's parties as one text: there are few subsets and many rows, so each subset is
        spelt once, by its number in binary digits."""
        bits = 1 << torch.arange(len(self.present))
        codes = (self.present.long() * bits[:, None]).sum(0).tolist()

        def spelt(code: int) -> str:
            return "+".join(name for m, name in enumerate(self.parties) if code >> m & 1)

        spelt_of = {code: spelt(code) for code in set(codes)}
        return [spelt_of[code] for code in codes]


def free(name: str, taken: Mapping[str, Any]) -> str:
    """The name, with an underscore where an id column has it already."""
    return name if name not in taken else free(f"{name}_", taken)


def _read_input(
    party: StoredParty, path: Path, device: str = "cpu", keep_encoded: bool = False
) -> Input:
    """A party's ids and embeddings of all rows of a file; needs the columns its encoder was fitted
    on."""
    info = scan(path)
    require_columns(info, [*party.id_columns, *party.encoder.columns])
    columns = list(party.id_columns)
    table = read_columns(path, columns, text=columns)
    ids = collect(
        [table[c].to_pylist() for c in columns], party.id_rules, path.name, party.on_bad_ids
    )
    if not len(ids.values):
        raise UserError(f"{path.name} has no row with a usable id")
    kept = torch.from_numpy(ids.rows)
    encoder = party.encoder
    survey = encoder.survey(path.name) if isinstance(encoder, TableEncoder) else None
    batches = list(encoded_batches(encoder, path, survey))
    embeddings = party.embed(batches, device)[kept]
    encoded = torch.cat(batches)[kept] if keep_encoded else None
    warnings = []
    if ids.counts.dropped:
        warnings.append(
            f"{ids.counts.dropped:,} rows have no id or share one with another row: they are not "
            "predicted"
        )
    if isinstance(encoder, TableEncoder) and survey is not None:
        warnings += drift.differences(encoder.pictures, survey)
    of_party = tuple(f"{party.name}: {text}" for text in warnings)
    return Input(party, ids, embeddings, table.take(ids.rows), encoded, of_party)


def predict(
    run: Run,
    inputs: Mapping[str, Path],
    device: str = "auto",
    examples: Mapping[str, str] | None = None,
    attributes: Path | None = None,
    *,
    strict: bool = False,
    observer: Observer = SILENT,
) -> Predictions:
    """Class probabilities of every row that any input has.

    Two and more classes without a label are told apart by name from `examples` (class -> id of a
    row) or a file of `attributes`.

    strict     refuse where there would be a warning
    observer   hears the warnings as notes
    """
    if not inputs:
        raise UserError("predict needs at least one --input PARTY=FILE")
    owner, device = run.need_owner(), choose_device(device)
    wanted = _unseen_classes(owner, examples or {})
    class_attributes = None if attributes is None else read_attributes(attributes, owner.classes)
    stored = sorted((run.need_party(name) for name in inputs), key=lambda party: party.index)
    read = []
    for done, party in enumerate(stored):
        observer.progress(f"reading {party.name}", done, len(stored))
        keep_encoded = owner.has_own_model and party.index == 0
        read.append(_read_input(party, Path(inputs[party.name]), device, keep_encoded))
    warnings = [*_id_warnings(read), *(text for i in read for text in i.warnings)]
    if strict and warnings:
        more = f" (and {len(warnings) - 1} more)" if len(warnings) > 1 else ""
        raise UserError(f"--strict: {warnings[0]}{more}; nothing was written")
    for text in warnings[:MOST_WARNINGS]:
        observer.note(f"warning: {text}")
    if len(warnings) > MOST_WARNINGS:
        observer.note(f"warning: and {len(warnings) - MOST_WARNINGS} more such differences")
    ids, id_table = _join_ids(read)
    number = {value: i for i, value in enumerate(ids)}
    place = {i.party.index: torch.full((len(ids),), -1) for i in read}
    for i in read:
        place[i.party.index][[number[v] for v in i.ids.values]] = torch.arange(len(i.ids.values))
    shown = _example_rows(wanted, number, _present_parties(owner, place), stored[0].id_rules)
    embeddings = {i.party.index: i.embeddings for i in read}
    encoded = read[0].encoded  # the active party's input comes first
    own = None if encoded is None else encoded[place[0].clamp(min=0)]
    predicted = predict_rows(owner, ids, id_table, embeddings, place, own, shown, class_attributes)
    if predicted.said != owner.classes:
        either = next(text for text, name in zip(predicted.said, owner.classes) if text != name)
        observer.note(
            f"nothing says which rows are of which class without labels: their class is '{either}', "
            "and the probabilities of these are of groups in no known order; name them with "
            "--example CLASS=ID or --attributes FILE.csv"
        )
    return predicted


def _present_parties(owner: StoredOwner, place: Mapping[int, Tensor]) -> Tensor:
    """(M, n): which party has which row; `place` as in `Predictions`, a party without rows may be
    left out."""
    rows = len(next(iter(place.values())))
    nobody = torch.full((rows,), -1)
    return torch.stack([place.get(m, nobody) >= 0 for m in range(len(owner.parties))])


def predict_rows(
    owner: StoredOwner,
    ids: list[str],
    id_table: Any,
    embeddings: dict[int, Tensor],
    place: dict[int, Tensor],
    own: Tensor | None = None,
    examples: Mapping[int, int] | None = None,
    attributes: Tensor | None = None,
) -> Predictions:
    """Predictions from what the parties sent; the arguments as in `Predictions` and
    `StoredOwner.probabilities`."""
    present = _present_parties(owner, place)
    parts = [torch.zeros(0, len(owner.classes))]
    for rows in torch.split(torch.arange(len(ids)), ROWS):
        sent = {m: f[place[m][rows].clamp(min=0)] for m, f in embeddings.items()}
        encoded = None if own is None else own[rows]
        shown = among(rows, examples or {})
        parts.append(owner.probabilities(sent, present[:, rows], encoded, shown, attributes))
    probabilities = torch.cat(parts)
    return Predictions(
        ids,
        id_table,
        probabilities,
        present,
        owner.classes,
        owner.parties,
        place,
        embeddings,
        own,
        owner.choose(probabilities),
        owner.class_names(owner.unseen if attributes is not None else (examples or {})),
    )


def _unseen_classes(owner: StoredOwner, examples: Mapping[str, str]) -> dict[int, str]:
    """Class numbers in the place of names; each must be a class without a label."""
    without = [owner.classes[z] for z in owner.unseen]
    for name in examples:
        if name not in owner.classes:
            raise UserError(
                f"--example: '{name}' is not a class; the classes are {', '.join(owner.classes)}"
            )
        if name not in without:
            raise UserError(
                f"--example: class '{name}' has labelled rows; an example is for a class without "
                f"any ({', '.join(without) or 'this run has none'})"
            )
    return {owner.classes.index(name): text for name, text in examples.items()}


def _example_rows(
    wanted: Mapping[int, str], number: Mapping[str, int], present: Tensor, rules: IdRules
) -> dict[int, int]:
    """The rows (by class) that have the ids given; several id columns are written with commas."""
    row_of = {}
    for z, text in wanted.items():
        parts = text.split(",") if rules.columns > 1 else [text]
        if len(parts) != rules.columns:
            raise UserError(
                f"--example: an id of this run has {rules.columns} parts with commas between, not "
                f"'{text}'"
            )
        spelt = collect([[part] for part in parts], rules, "--example").values[0]
        if spelt not in number:
            raise UserError(f"--example: no row to be predicted has the id '{text}'")
        if not bool(present[:, number[spelt]].all()):
            raise UserError(
                f"--example: not every party has the row '{text}'; give one that all of them have"
            )
        row_of[z] = number[spelt]
    return row_of


def _id_warnings(inputs: Sequence[Input]) -> list[str]:
    """Inputs whose rows do not find each other; UserError where spelling is the reason for most."""
    first, *others = inputs
    lines = []
    for other in others:
        shared = len(set(first.ids.values) & set(other.ids.values))
        names = (first.party.name, other.party.name)
        near = near_matches(first.ids, other.ids)
        near_lines = near_match_lines(near, names)
        if max(map(len, near.values()), default=0) > shared:
            raise UserError(
                f"{shared:,} ids of {names[0]} and {names[1]} match, and {near_lines[0]}; write the ids "
                "alike in both files, as the files of training had them (leading zeros need a "
                "column of text)"
            )
        lines += near_lines
        if not shared:
            lines.append(
                f"no row of {names[1]} is among those of {names[0]}: each is predicted from one "
                "party alone"
            )
    return lines


def _join_ids(inputs: Sequence[Input]) -> tuple[list[str], Any]:
    """All ids once, and the id columns as they stand in the first input that has each; as text
    where the inputs differ in type."""
    import pyarrow as pa

    seen: dict[str, None] = {}
    parts = []
    names = inputs[0].id_table.column_names
    for i in inputs:
        new = pa.array([value not in seen for value in i.ids.values], pa.bool_())
        seen |= dict.fromkeys(i.ids.values)
        part = i.id_table.filter(new)
        if part.num_rows:
            parts.append(part.rename_columns(names).replace_schema_metadata())
    if any(part.schema != parts[0].schema for part in parts):
        as_text = pa.schema([(name, pa.string()) for name in names])
        parts = [part.cast(as_text) for part in parts]
    return list(seen), pa.concat_tables(parts)


def write_predictions(predictions: Predictions, out: Path) -> None:
    """Parquet or CSV by the suffix; whole or not at all."""
    write = writer(out)
    with integrity.whole_file(out) as part:
        write(predictions.table(), part)


def writer(out: Path) -> Any:
    """The function that writes a table to a file of this name."""
    if out.suffix == ".parquet":
        import pyarrow.parquet as pq

        return pq.write_table
    if out.suffix == ".csv":
        return _write_csv
    raise UserError(f"{out.name}: predictions are written as .parquet or .csv")


def _write_csv(table: Any, out: Any) -> None:
    """A CSV in which no spreadsheet finds a formula: a text that would be one gets an apostrophe in
    front."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.csv as pacsv

    for at, name in enumerate(table.column_names):
        column = table.column(at)
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
            table = table.set_column(at, name, column)
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            # a number with its sign is none
            text = pc.and_(
                pc.match_substring_regex(column, FORMULA),
                pc.invert(pc.match_substring_regex(column, r"^\s*[+-]?[0-9.,]+\s*$")),
            )
            escaped = pc.binary_join_element_wise("'", column, "")
            table = table.set_column(at, name, pc.if_else(text, escaped, column))
    pacsv.write_csv(table, out)
