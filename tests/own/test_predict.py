"""Prediction for new files: joined by id, any party missing, rows of one party alone."""

from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
import torch

from protoevfl.errors import UserError
from protoevfl.own.predict import predict, write_predictions
from protoevfl.own.run_dir import Run


def test_all_parties(run: Run, new: dict[str, Path]) -> None:
    found = predict(run, new)
    truth = pacsv.read_csv(new["bank"].parent / "truth.csv")
    assert found.table().column_names == ["customer_id", "class", "p_no", "p_yes", "parties"]
    assert [int(v) for v in found.ids] == truth["customer_id"].to_pylist()
    assert set(found.contributors()) == {"bank+insurer+telco"}
    right = [a == b for a, b in zip(found.table()["class"].to_pylist(), truth["default"].to_pylist(), strict=True)]
    assert sum(right) / len(right) > 0.68  # the classes count the same, so more of the rare one are guessed
    assert torch.allclose(found.probabilities.sum(1), torch.ones(len(right)), atol=1e-5)


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
    pq.write_table(bank.take(order), tmp_path / "bank.parquet")  # the last 40 customers are unknown to the bank
    found = predict(run, {"bank": tmp_path / "bank.parquet", "telco": new["telco"]})
    assert len(found.ids) == n
    assert found.contributors() == ["bank+telco"] * (n - 40) + ["telco"] * 40
    both, telco = predict(run, {k: new[k] for k in ("bank", "telco")}), predict(run, {"telco": new["telco"]})
    at = {v: i for i, v in enumerate(both.ids)}
    assert torch.allclose(
        found.probabilities[: n - 40], both.probabilities[[at[v] for v in found.ids[: n - 40]]], atol=1e-6
    )
    assert torch.allclose(found.probabilities[n - 40 :], telco.probabilities[n - 40 :], atol=1e-6)


def test_written_files_keep_the_type_of_the_ids(run: Run, new: dict[str, Path], tmp_path: Path) -> None:
    found = predict(run, {"bank": new["bank"]})
    write_predictions(found, tmp_path / "p.parquet")
    write_predictions(found, tmp_path / "p.csv")
    table = pq.read_table(tmp_path / "p.parquet")
    assert table.schema.field("customer_id").type == pa.int64()
    assert pacsv.read_csv(tmp_path / "p.csv")["class"].to_pylist() == table["class"].to_pylist()
    with pytest.raises(UserError, match="parquet or"):
        write_predictions(found, tmp_path / "p.xlsx")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["p.csv", "p.parquet"]


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
