"""Prediction for new files: joined by id, any party missing, rows of one party alone."""

import csv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
import torch
from sklearn.datasets import load_digits

from protoevfl.artifacts.run_dir import Run, open_run
from protoevfl.errors import UserError
from protoevfl.observer import Observer
from protoevfl.pipeline.predict import predict, write_predictions, writer
from protoevfl.pipeline.simulate import train_files
from protoevfl.settings.config import Config, load


def test_all_parties(run: Run, new: dict[str, Path]) -> None:
    found = predict(run, new)
    truth = pacsv.read_csv(new["bank"].parent / "truth.csv")
    assert found.table().column_names == ["customer_id", "class", "p_no", "p_yes", "parties"]
    assert [int(v) for v in found.ids] == truth["customer_id"].to_pylist()
    assert set(found.contributors()) == {"bank+insurer+telco"}
    right = [
        a == b
        for a, b in zip(
            found.table()["class"].to_pylist(), truth["default"].to_pylist(), strict=True
        )
    ]
    # the classes count the same, so more of the rare one are guessed
    assert sum(right) / len(right) > 0.68
    assert torch.allclose(found.probabilities.sum(1), torch.ones(len(right)), atol=1e-5)


def test_the_rule_of_the_run_names_the_classes(run: Run, new: dict[str, Path]) -> None:
    assert run.owner is not None
    likeliest = predict(run, new)
    careful = replace(run, owner=replace(run.owner, decision={1: 0.1}))
    named = predict(careful, new)
    assert torch.equal(named.probabilities, likeliest.probabilities)
    yes = [name == "yes" for name in named.table()["class"].to_pylist()]
    assert yes == (likeliest.probabilities[:, 1].double() >= 0.1).tolist()
    assert sum(yes) > likeliest.table()["class"].to_pylist().count("yes")


def test_a_missing_party_only_takes_itself_away(run: Run, new: dict[str, Path]) -> None:
    some = predict(run, {"insurer": new["insurer"], "bank": new["bank"]})
    assert set(some.contributors()) == {"bank+insurer"}
    assert not torch.allclose(some.probabilities, predict(run, new).probabilities)
    alone = predict(run, {"telco": new["telco"]})
    assert set(alone.contributors()) == {"telco"}
    assert alone.ids == some.ids


def test_rows_are_joined_by_id_and_use_the_parties_that_have_them(
    run: Run, new: dict[str, Path], tmp_path: Path
) -> None:
    bank = pq.read_table(new["bank"])
    n = bank.num_rows
    order = list(range(n - 40))[::-1]
    # the last 40 customers are unknown to the bank
    pq.write_table(bank.take(order), tmp_path / "bank.parquet")
    found = predict(run, {"bank": tmp_path / "bank.parquet", "telco": new["telco"]})
    assert len(found.ids) == n
    assert found.contributors() == ["bank+telco"] * (n - 40) + ["telco"] * 40
    both, telco = (
        predict(run, {k: new[k] for k in ("bank", "telco")}),
        predict(run, {"telco": new["telco"]}),
    )
    at = {v: i for i, v in enumerate(both.ids)}
    assert torch.allclose(
        found.probabilities[: n - 40],
        both.probabilities[[at[v] for v in found.ids[: n - 40]]],
        atol=1e-6,
    )
    assert torch.allclose(found.probabilities[n - 40 :], telco.probabilities[n - 40 :], atol=1e-6)


def test_written_files_keep_the_type_of_the_ids(
    run: Run, new: dict[str, Path], tmp_path: Path
) -> None:
    found = predict(run, {"bank": new["bank"]})
    write_predictions(found, tmp_path / "p.parquet")
    write_predictions(found, tmp_path / "p.csv")
    table = pq.read_table(tmp_path / "p.parquet")
    assert table.schema.field("customer_id").type == pa.int64()
    assert pacsv.read_csv(tmp_path / "p.csv")["class"].to_pylist() == table["class"].to_pylist()
    with pytest.raises(UserError, match="parquet or"):
        write_predictions(found, tmp_path / "p.xlsx")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["p.csv", "p.parquet"]


class Notes(Observer):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, text: str) -> None:
        self.lines.append(text)


def notes_on(run: Run, inputs: dict[str, Path]) -> list[str]:
    notes = Notes()
    predict(run, inputs, observer=notes)
    return notes.lines


def changed(path: Path, column: str, values: list[object], to: Path) -> Path:
    """The bank's new rows with one column replaced."""
    table = pq.read_table(path)
    place = table.schema.get_field_index(column)
    pq.write_table(table.set_column(place, column, pa.array(values)), to)
    return to


def test_rows_like_those_of_training_are_predicted_without_a_word(
    run: Run, new: dict[str, Path]
) -> None:
    assert notes_on(run, new) == []
    predict(run, new, strict=True)


@pytest.mark.parametrize("spell", ["{:08d}", "{}-x"])
def test_ids_that_miss_each_other_by_spelling_are_refused(
    run: Run, new: dict[str, Path], tmp_path: Path, spell: str
) -> None:
    ids = pq.read_table(new["bank"])["customer_id"].to_pylist()
    other = pacsv.read_csv(new["insurer"])
    dotted = pa.array([f"{v}.x" for v in other["customer_id"].to_pylist()])
    insurer = new["insurer"]
    if spell == "{}-x":  # the same ids with other punctuation
        insurer = tmp_path / "insurer.csv"
        pacsv.write_csv(other.set_column(0, "customer_id", dotted), insurer)
    bank = changed(new["bank"], "customer_id", [spell.format(v) for v in ids], tmp_path / "b.pq")
    with pytest.raises(UserError, match=r"0 ids of bank and insurer match, and .* would match but"):
        predict(run, {"bank": bank, "insurer": insurer})


def test_a_few_ids_spelt_otherwise_are_a_warning(
    run: Run, new: dict[str, Path], tmp_path: Path
) -> None:
    ids = pq.read_table(new["bank"])["customer_id"].to_pylist()
    spelt = [f"0{v}" if i < 7 else str(v) for i, v in enumerate(ids)]
    bank = changed(new["bank"], "customer_id", list(spelt), tmp_path / "bank.parquet")
    inputs = {"bank": bank, "insurer": new["insurer"]}
    (line,) = notes_on(run, inputs)
    assert line.startswith("warning: 7 more ids of bank and insurer would match but for leading")
    with pytest.raises(UserError, match="--strict: 7 more ids"):
        predict(run, inputs, strict=True)


def test_inputs_without_a_common_row_are_a_warning(
    run: Run, new: dict[str, Path], tmp_path: Path
) -> None:
    ids = pq.read_table(new["bank"])["customer_id"].to_pylist()
    bank = changed(new["bank"], "customer_id", [v + 10**7 for v in ids], tmp_path / "b.parquet")
    (line,) = notes_on(run, {"bank": bank, "insurer": new["insurer"]})
    assert line.startswith("warning: no row of insurer is among those of bank")


def test_ids_come_back_as_they_stand_in_the_file(
    run: Run, new: dict[str, Path], tmp_path: Path
) -> None:
    ids = [f" {v}.0" for v in pq.read_table(new["bank"])["customer_id"].to_pylist()]
    bank = changed(new["bank"], "customer_id", list(ids[:-5]) + [None] * 5, tmp_path / "b.parquet")
    dropping = replace(run.need_party("bank"), on_bad_ids="drop")
    run = replace(run, parties={**run.parties, "bank": dropping})
    found = predict(run, {"bank": bank, "insurer": new["insurer"]})
    mine = found.table()["customer_id"].to_pylist()
    others = [v.strip().removesuffix(".0") for v in ids[-5:]]
    assert mine == [*ids[:-5], *others]  # its own file's, then as the insurer writes them
    assert notes_on(run, {"bank": bank})[0] == (
        "warning: bank: 5 rows have no id or share one with another row: they are not predicted"
    )


@pytest.mark.parametrize(
    ("column", "change", "line"),
    [
        ("income", lambda v: v * 1000, "about 1000 times what it was"),
        ("income", lambda v: v / 10, "about 1/10 of what it was"),
        ("income", lambda v: None, "is empty in all"),
        ("branch", lambda v: "moon", "that training did not have ('moon')"),
    ],
)
def test_columns_unlike_those_of_training_are_said_and_counted(
    run: Run,
    new: dict[str, Path],
    tmp_path: Path,
    column: str,
    change: Callable[[Any], object],
    line: str,
) -> None:
    values = pq.read_table(new["bank"])[column].to_pylist()
    bank = changed(new["bank"], column, [change(v) for v in values], tmp_path / "bank.parquet")
    lines = notes_on(run, {"bank": bank})
    assert lines[0].startswith(f"warning: bank: column '{column}'")
    assert line in lines[0]
    with pytest.raises(UserError, match=f"--strict: bank: column '{column}'"):
        predict(run, {"bank": bank}, strict=True)


def test_formulas_in_ids_of_any_type_are_defused(tmp_path: Path) -> None:
    ids = pa.array(["＝1+1", " =1+1", "C2"]).dictionary_encode()
    writer(tmp_path / "p.csv")(pa.table({"id": ids}), tmp_path / "p.csv")
    with (tmp_path / "p.csv").open(newline="") as file:
        assert [line[0] for line in csv.reader(file)] == ["id", "'＝1+1", "' =1+1", "C2"]


def test_no_spreadsheet_finds_a_formula_in_a_csv(tmp_path: Path) -> None:
    ids = ["=cmd|' /C calc'!A0", "+1+2", "@SUM(A1)", "\tx", "-2", "+49170", "C1", None, "a=b"]
    table = pa.table({"id": ids, "p": [0.5] * len(ids)})
    writer(tmp_path / "p.csv")(table, tmp_path / "p.csv")
    with (tmp_path / "p.csv").open(newline="") as file:
        found = [line[0] for line in list(csv.reader(file))[1:]]
    assert found[:4] == ["'" + text for text in ids[:4]]  # type: ignore[operator]
    assert found[4:] == ["-2", "+49170", "C1", "", "a=b"]


def test_an_id_column_called_class_stays(run: Run, new: dict[str, Path]) -> None:
    found = predict(run, {"bank": new["bank"]})
    renamed = pa.table({"class": found.id_table["customer_id"]})
    object.__setattr__(found, "id_table", renamed)
    assert found.table().column_names == ["class", "class_", "p_no", "p_yes", "parties"]


def test_bad_inputs_are_one_clear_line(run: Run, new: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="at least one"):
        predict(run, {})
    with pytest.raises(UserError, match="no party 'shop'"):
        predict(run, {"shop": new["bank"]})
    with pytest.raises(UserError, match="has no column 'income'"):
        predict(run, {"bank": new["insurer"]})
    table = pq.read_table(new["bank"])
    pq.write_table(pa.concat_tables([table, table.slice(0, 2)]), tmp_path / "twice.parquet")
    with pytest.raises(UserError, match="2 rows repeat an id"):
        predict(run, {"bank": tmp_path / "twice.parquet"})
    with pytest.raises(UserError, match="does not exist"):
        predict(run, {"bank": tmp_path / "absent.parquet"})


@pytest.fixture(scope="module")
def unlabelled(config: Config, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run with two more classes that nobody has labelled."""
    out = tmp_path_factory.mktemp("unlabelled") / "run"
    quick = {
        "unseen.least_rows": 50,
        "rounds.count": 0,
        "head.members": 1,
        "head.epochs": 5,
        "warm.epochs": 1,
    }
    method = replace(config.method, overrides={**config.method.overrides, **quick})
    label = replace(config.label, classes=("no", "yes", "maybe", "never"))
    train_files(replace(config, label=label, method=method), out)
    return open_run(out)


def test_examples_and_attributes_name_unseen_classes(
    unlabelled: Run, new: dict[str, Path], tmp_path: Path
) -> None:
    telco = pacsv.read_csv(new["telco"])
    # an example's place among the rows of all parties is not
    pacsv.write_csv(telco.slice(40), tmp_path / "telco.csv")
    inputs = {**new, "telco": tmp_path / "telco.csv"}  # its place among all rows
    plain = predict(unlabelled, inputs).probabilities
    maybe, never = (40 + int(plain[40:, z].argmax()) for z in (2, 3))
    ids = predict(unlabelled, {"bank": new["bank"]}).ids
    for first, second in ((maybe, never), (never, maybe)):
        p = predict(
            unlabelled, inputs, examples={"maybe": f" {ids[first]}.0", "never": ids[second]}
        ).probabilities
        assert p[first, 2] > p[first, 3]
        assert p[second, 3] > p[second, 2]
    (tmp_path / "a.csv").write_text("no,0,1\nyes,1,0\nmaybe,2,-1\nnever,-1,2\n")
    (tmp_path / "b.csv").write_text("no,0,1\nyes,1,0\nnever,2,-1\nmaybe,-1,2\n")
    a, b = (
        predict(unlabelled, inputs, attributes=tmp_path / f"{n}.csv").probabilities for n in "ab"
    )
    assert (a[maybe, 2] > a[maybe, 3]) != (b[maybe, 2] > b[maybe, 3])
    with pytest.raises(UserError, match="not every party has the row"):
        predict(unlabelled, inputs, examples={"maybe": ids[0]})


def test_classes_that_nothing_names_are_said_to_be_either(
    unlabelled: Run, new: dict[str, Path], tmp_path: Path
) -> None:
    """Rows of two classes without labels are told apart, which is which is not known."""

    def said(**names: Any) -> set[str]:
        return set(predict(unlabelled, new, **names).table()["class"].to_pylist())

    (tmp_path / "a.csv").write_text("no,0,1\nyes,1,0\nmaybe,2,-1\nnever,-1,2\n")
    assert said() & {"maybe", "never"} == set()
    assert said() <= {"no", "yes", "maybe or never"}
    owner = unlabelled.need_owner()
    assert owner.class_names({2}) == owner.classes  # the other one by elimination
    assert said(attributes=tmp_path / "a.csv") <= {"no", "yes", "maybe", "never"}


def digits_of_three_companies(folder: Path, nobody_labelled: tuple[int, ...]) -> Config:
    """Lines 0 to 2, 3 to 4 and 5 to 7 of the pictures as columns: 400 shared rows, labels of these
    only, 200 further rows of each company, and 600 new ones with their truth."""
    bunch = load_digits()
    order = np.random.default_rng(5).permutation(len(bunch.target))
    shared, new, rest = order[:400], order[400:1000], order[1000:]
    cuts = {"top": (0, 24), "middle": (24, 40), "bottom": (40, 64)}
    for m, (name, (first, last)) in enumerate(cuts.items()):
        rows = np.concatenate([shared, rest[200 * m : 200 * (m + 1)]])
        for file, these in ((f"{name}.csv", rows), (f"new_{name}.csv", new)):
            columns = {f"c{j}": bunch.data[these, j] for j in range(first, last)}
            table = pa.table({"id": these, **columns})
            if file == "top.csv":
                known = [
                    f"digit {z}" if i < 400 and z not in nobody_labelled else None
                    for i, z in enumerate(bunch.target[these])
                ]
                table = table.append_column("digit", pa.array(known))
            pacsv.write_csv(table, folder / file)
    names = ", ".join(f'"digit {z}"' for z in range(10))
    parties = "".join(f'[[party]]\nname = "{n}"\nfile = "{n}.csv"\nid = "id"\n' for n in cuts)
    (folder / "protoevfl.toml").write_text(
        f'[label]\nparty = "top"\ncolumn = "digit"\nclasses = [{names}]\n{parties}'
        "[method]\noverrides = { 'rounds.count' = 0 }\n"
    )
    return load(folder / "protoevfl.toml")


def test_rows_of_two_classes_of_a_table_that_nobody_labelled_are_told_apart(
    tmp_path: Path,
) -> None:
    """Files of three companies, digits 2 and 7 in no label: their rows are set apart from the
    others and from each other, said to be either, and named by one example of each."""
    config = digits_of_three_companies(tmp_path, nobody_labelled=(2, 7))
    train_files(config, tmp_path / "run")
    inputs = {p.name: tmp_path / f"new_{p.file.name}" for p in config.parties}
    found = predict(open_run(tmp_path / "run"), inputs)
    truth = load_digits().target[[int(i) for i in found.ids]]
    said = np.array(found.table()["class"].to_pylist())
    without = np.isin(truth, (2, 7))
    assert "digit 2 or digit 7" in said
    assert not {"digit 2", "digit 7"} & set(said)
    assert (said[without] == "digit 2 or digit 7").mean() > 0.75  # 0.98
    assert (said[~without] == [f"digit {z}" for z in truth[~without]]).mean() > 0.8  # 0.94
    examples = {f"digit {z}": found.ids[int((truth == z).argmax())] for z in (2, 7)}
    named = predict(open_run(tmp_path / "run"), inputs, examples=examples).table()["class"]
    right = np.array(named.to_pylist()) == [f"digit {z}" for z in truth]
    assert right[without].mean() > 0.7


def test_bad_examples_are_one_clear_line(
    unlabelled: Run, run: Run, new: dict[str, Path], tmp_path: Path
) -> None:
    for examples, message in (
        ({"perhaps": "1"}, "'perhaps' is not a class; the classes are no, yes, maybe, never"),
        ({"yes": "1"}, r"class 'yes' has labelled rows; .* \(maybe, never\)"),
        ({"maybe": "nobody"}, "no row to be predicted has the id 'nobody'"),
    ):
        with pytest.raises(UserError, match=message):
            predict(unlabelled, {"bank": new["bank"]}, examples=examples)
    with pytest.raises(UserError, match="this run has none"):
        predict(run, new, examples={"yes": "1"})
    (tmp_path / "a.csv").write_text("no,0,1\nyes,1,0\n")
    with pytest.raises(UserError, match="no line for class maybe, never"):
        predict(unlabelled, new, attributes=tmp_path / "a.csv")
