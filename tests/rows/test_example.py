"""The example files go through the whole way: configuration, ids, alignment, features, labels."""

from pathlib import Path

import numpy as np

from protoevfl.rows.align import plain_intersection
from protoevfl.rows.example import write_example
from protoevfl.rows.features import TableEncoder
from protoevfl.rows.files import read_columns
from protoevfl.rows.ids import Ids, collect
from protoevfl.rows.labels import encode_labels
from protoevfl.settings.config import load, resolve


def ids_of(
    folder: Path, names: tuple[str, ...] = ("bank.parquet", "insurer.csv", "telco.csv.gz")
) -> dict[str, Ids]:
    rules = load(folder / "protoevfl.toml").id_rules
    return {
        n: collect(
            [read_columns(folder / n, ["customer_id"], ["customer_id"])[0].to_pylist()], rules, n
        )
        for n in names
    }


def test_whole_way(tmp_path: Path) -> None:
    config = load(write_example(tmp_path, rows=1000))
    files = resolve(config)
    assert list(files) == ["bank", "insurer", "telco"]
    aligned = plain_intersection(ids_of(tmp_path), config.alignment.minimum)
    assert 0.3 * 800 < len(aligned["bank.parquet"].rows) < 0.55 * 800  # 0.75 ** 3 = 0.42
    for party in files.values():
        table = read_columns(party.config.file, party.spec.features)
        features = TableEncoder.fit(table, party.spec).transform(table)
        assert np.isfinite(features).all()
        assert features.shape[1] >= len(party.spec.features)
    labels = read_columns(config.party("bank").file, [config.label.column])[0]
    codes, names = encode_labels(labels, "bank")
    assert names == ("no", "yes")
    assert 0.1 < codes.mean() < 0.4


def test_same_seed_same_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_example(tmp_path / name, rows=200)
    for file in ("bank.parquet", "insurer.csv", "new/truth.csv"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_new_customers_are_in_no_training_file(tmp_path: Path) -> None:
    write_example(tmp_path, rows=300)
    known = {value for ids in ids_of(tmp_path).values() for value in ids.values}
    new = ids_of(tmp_path, ("new/bank.parquet", "new/telco.csv.gz", "new/truth.csv"))
    assert all(len(ids.values) == 60 and not known & set(ids.values) for ids in new.values())


def test_every_company_knows_something_about_the_label(tmp_path: Path) -> None:
    """Each party's own features beat the majority, and all together beat each: the example has a
    point."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score

    write_example(tmp_path, rows=3000)
    truth = encode_labels(read_columns(tmp_path / "new/truth.csv", ["default"])[0], "truth")[0]
    parts = []
    for party in resolve(load(tmp_path / "protoevfl.toml")).values():
        table = read_columns(tmp_path / "new" / party.config.file.name, party.spec.features)
        parts.append(TableEncoder.fit(table, party.spec).transform(table))
    fit = np.arange(len(truth)) < 400

    def auc(x: np.ndarray) -> float:
        model = LogisticRegression(max_iter=500).fit(x[fit], truth[fit])
        return float(roc_auc_score(truth[~fit], model.predict_proba(x[~fit])[:, 1]))

    alone = [auc(x) for x in parts]
    assert min(alone) > 0.6
    assert auc(np.concatenate(parts, axis=1)) > max(alone) + 0.02
