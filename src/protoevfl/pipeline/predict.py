"""Predict for new rows: ids are joined across the inputs, and each row uses the parties that have
it.

    input files -> each party's embeddings of its own rows -> rows grouped by the set of parties ->
    probabilities

No party has to be there: one input is enough, and a row that only one party knows is predicted from
that party.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protoevfl.artifacts import integrity
from protoevfl.artifacts.owner import ROWS, StoredOwner, among
from protoevfl.artifacts.party import StoredParty
from protoevfl.artifacts.run_dir import Run
from protoevfl.distributed import choose_device
from protoevfl.errors import UserError
from protoevfl.rows.attributes import read_attributes
from protoevfl.rows.encoders import encoded_batches
from protoevfl.rows.files import read_columns, require_columns, scan
from protoevfl.rows.ids import IdRules, Ids, collect


@dataclass(frozen=True)
class Input:
    """One party's new rows: ids, embeddings (n, d) and the id columns as they stand in the file."""

    party: StoredParty
    ids: Ids
    embeddings: Tensor
    id_table: Any  # pyarrow Table of the kept rows, in the order of ids.values
    # (n, ...) rows as the own model takes them; the active party's only
    encoded: Tensor | None = None


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

    def table(self) -> Any:
        """id column(s), class, p_<class> ..., parties (joined by +)."""
        import pyarrow as pa

        columns = {name: self.id_table[name] for name in self.id_table.column_names}
        choice = self.probabilities.argmax(1) if self.choice is None else self.choice
        names = np.array(self.classes, object)[choice.numpy()]
        columns[free("class", columns)] = pa.array(names, pa.string())
        for z, name in enumerate(self.classes):
            columns[free(f"p_{name}", columns)] = pa.array(self.probabilities[:, z].numpy())
        columns[free("parties", columns)] = pa.array(self.contributors(), pa.string())
        return pa.table(columns)

    def contributors(self) -> list[str]:
        codes = (
            (self.present.long() * (1 << torch.arange(len(self.present)))[:, None]).sum(0).tolist()
        )
        spelt = {
            c: "+".join(p for m, p in enumerate(self.parties) if c >> m & 1) for c in set(codes)
        }
        return [spelt[c] for c in codes]


def free(name: str, taken: Mapping[str, Any]) -> str:
    """The name, with an underscore where an id column has it already."""
    return name if name not in taken else free(f"{name}_", taken)


def read_input(
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
    batches = list(encoded_batches(party.encoder, path))
    embeddings = party.embed(batches, device)[kept]
    encoded = torch.cat(batches)[kept] if keep_encoded else None
    return Input(party, ids, embeddings, table.take(ids.rows), encoded)


def predict(
    run: Run,
    inputs: Mapping[str, Path],
    device: str = "auto",
    examples: Mapping[str, str] | None = None,
    attributes: Path | None = None,
) -> Predictions:
    """Class probabilities of every row that any input has.

    Two and more classes without a label are told apart by name from `examples` (class -> id of a
    row) or a file of `attributes`.
    """
    if not inputs:
        raise UserError("predict needs at least one --input PARTY=FILE")
    owner, device = run.need_owner(), choose_device(device)
    wanted = unseen_classes(owner, examples or {})
    told = None if attributes is None else read_attributes(attributes, owner.classes)
    stored = sorted((run.need_party(name) for name in inputs), key=lambda party: party.index)
    read = [
        read_input(
            party, Path(inputs[party.name]), device, owner.has_own_model and party.index == 0
        )
        for party in stored
    ]
    ids, id_table = join_ids(read)
    number = {value: i for i, value in enumerate(ids)}
    place = {i.party.index: torch.full((len(ids),), -1) for i in read}
    for i in read:
        place[i.party.index][[number[v] for v in i.ids.values]] = torch.arange(len(i.ids.values))
    shown = example_rows(wanted, number, present_parties(owner, place), stored[0].id_rules)
    embeddings = {i.party.index: i.embeddings for i in read}
    encoded = read[0].encoded  # the active party's input comes first
    own = None if encoded is None else encoded[place[0].clamp(min=0)]
    return predict_rows(owner, ids, id_table, embeddings, place, own, shown, told)


def present_parties(owner: StoredOwner, place: Mapping[int, Tensor]) -> Tensor:
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
    present = present_parties(owner, place)
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
    )


def unseen_classes(owner: StoredOwner, examples: Mapping[str, str]) -> dict[int, str]:
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
                "any "
                f"({', '.join(without) or 'this run has none'})"
            )
    return {owner.classes.index(name): text for name, text in examples.items()}


def example_rows(
    wanted: Mapping[int, str], number: Mapping[str, int], present: Tensor, rules: IdRules
) -> dict[int, int]:
    """The rows (by class) that have the ids given; several id columns are written with commas."""
    found = {}
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
        found[z] = number[spelt]
    return found


def join_ids(inputs: Sequence[Input]) -> tuple[list[str], Any]:
    """All ids once, and the id columns of the first input that has each; a text id in its one
    spelling."""
    import pyarrow as pa

    seen: dict[str, None] = {}
    tables = []
    for i in inputs:
        new = np.array([v not in seen for v in i.ids.values], np.bool_)
        seen |= dict.fromkeys(i.ids.values)
        tables.append((i, i.id_table.filter(pa.array(new)), np.flatnonzero(new)))
    names = inputs[0].id_table.column_names
    parts = [table.rename_columns(names) for _, table, _ in tables]
    if any(
        part.schema != parts[0].schema or pa.types.is_string(part.schema.types[0]) for part in parts
    ):
        parts = [
            _as_text(i, part, new, names) for part, (i, _, new) in zip(parts, tables, strict=True)
        ]
    return list(seen), pa.concat_tables([part.replace_schema_metadata() for part in parts])


def _as_text(one: Input, part: Any, new: NDArray[np.int64], names: list[str]) -> Any:
    import pyarrow as pa

    if len(names) == 1:  # the one spelling, so that 7 and "7.0" are written alike
        return pa.table({names[0]: pa.array([one.ids.values[k] for k in new], pa.string())})
    return part.cast(pa.schema([(name, pa.string()) for name in names]))


def write_predictions(found: Predictions, out: Path) -> None:
    """Parquet or CSV by the suffix; whole or not at all."""
    write = writer(out)
    with integrity.whole_file(out) as part:
        write(found.table(), part)


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
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            # a number with its sign is none
            text = pc.and_(
                pc.match_substring_regex(column, r"^[=+\-@\t\r]"),
                pc.invert(pc.match_substring_regex(column, r"^[+-]?[0-9.,]+$")),
            )
            escaped = pc.binary_join_element_wise("'", column, "")
            table = table.set_column(at, name, pc.if_else(text, escaped, column))
    pacsv.write_csv(table, out)
