"""Prediction for new files: joined by id, any party missing, rows of one party alone."""

import csv
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
import torch

from protoevfl.artifacts.run_dir import Run, open_run
from protoevfl.errors import UserError
from protoevfl.pipeline.predict import predict, write_predictions, writer
from protoevfl.pipeline.simulate import train_files
from protoevfl.settings.config import Config


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
    assert alone.table()["customer_id"][0].as_py() == some.ids[0]  # written "100007.0" in the file


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
