"""The commands on own files, as a user types them."""

import json
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from protoevfl.cli.main import main
from protoevfl.progress import OUTPUT

FAST = ["--set", "warm.epochs=2", "--set", "head.epochs=6"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An example with a trained run."""
    here = tmp_path_factory.mktemp("cli")
    assert main(["init", "--example", str(here / "demo"), "--rows", "900"]) == 0
    assert main(["--quiet", "train", str(here / "demo" / "protoevfl.toml"), *FAST]) == 0
    return here / "demo"


@pytest.fixture(autouse=True)
def loud() -> None:
    OUTPUT.quiet = OUTPUT.json = False


def test_init_writes_a_template_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "protoevfl.toml"
    assert main(["init", str(path)]) == 0
    assert "[[party]]" in path.read_text()
    assert main(["init", str(path)]) == 2
    assert "not replaced" in capsys.readouterr().err


def test_init_refuses_options_of_the_other_example(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, option, says in (
        ("flights", ["--rows", "900"], "--rows is for made-up"),
        ("shop", ["--from", "x.tar.gz"], "--from goes with --example flights"),
        ("flights", ["--from", str(tmp_path / "x.tar.gz")], "x.tar.gz cannot be read"),
    ):
        assert main(["init", "--example", str(tmp_path / name), *option]) == 2
        assert says in capsys.readouterr().err.replace("\n", " ")
    assert not list(tmp_path.iterdir())


def test_check_prints_tables_or_json_and_fails_on_errors(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = folder / "protoevfl.toml"
    assert main(["check", str(config), "--no-estimate"]) == 0
    out = capsys.readouterr().out
    assert "shared with all" in out
    assert "telco.csv.gz" in out
    assert "ready: protoevfl align" in out
    assert main(["check", str(config), "--no-estimate", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["errors"] == []
    broken = folder / "broken.toml"
    broken.write_text(config.read_text().replace('"customer_id"', '"customer"', 1))
    assert main(["check", str(broken), "--no-estimate"]) == 2
    assert (
        "ERROR    bank.parquet has no column 'customer' (did you mean 'customer_id'?)"
        in capsys.readouterr().out
    )
    broken.write_text(config.read_text().replace("seed =", "sead ="))
    assert main(["check", str(broken)]) == 2
    assert "did you mean 'seed'?" in capsys.readouterr().err


def test_align_then_train_uses_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = str(folder / "protoevfl.toml")
    assert main(["align", config, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert all(len({side["digest"] for side in pair.values()}) == 1 for pair in found.values())
    assert main(["align", config]) == 2
    assert main(["train", config, "--out", str(folder / "second"), *FAST, "--json"]) == 0
    metrics = json.loads(capsys.readouterr().out)
    assert metrics["test"]["auc"] > 0.7
    kept = json.loads((folder / "second" / "telco" / "alignment.json").read_text())
    assert kept["digest"] == found["telco"]["bank"]["digest"]
    assert main(["train", config]) == 2
    assert "exists" in capsys.readouterr().err


def test_train_can_be_logged_and_tracked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config, log = str(folder / "protoevfl.toml"), folder / "log.txt"
    assert (
        main(["--log-file", str(log), "train", config, "--out", str(folder / "third"), *FAST]) == 0
    )
    assert "warm-up 1/1" in log.read_text()
    assert "always 'no'" in capsys.readouterr().out
    assert main(["train", config, "--out", str(folder / "fourth"), "--track", "paper"]) == 2
    assert "--track takes" in capsys.readouterr().err
    assert not (folder / "fourth").exists()


@pytest.mark.parametrize("test_rows", [0, 20])
def test_a_run_without_test_rows_is_not_sent_to_value(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    test_rows: int,
) -> None:
    metrics = {"rows": test_rows, "bytes": {"up": 1, "down": 1}, "seconds": 1.0, "rounds": 1}
    trained = SimpleNamespace(metrics=metrics)
    monkeypatch.setattr("protoevfl.pipeline.simulate.train_files", lambda *_, **__: trained)
    monkeypatch.setattr("protoevfl.cli.own_tables.show_metrics", lambda *_: None)
    assert main(["train", str(folder / "protoevfl.toml"), "--overwrite"]) == 0
    assert ("protoevfl value" in capsys.readouterr().err) == bool(test_rows)


def test_strict_refuses_and_writes_nothing(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = pq.read_table(folder / "new" / "bank.parquet")
    place = table.schema.get_field_index("income")
    cents = pa.array([100 * value for value in table["income"].to_pylist()])
    pq.write_table(table.set_column(place, "income", cents), tmp_path / "bank.parquet")
    call = ["predict", str(folder / "run"), "--input", f"bank={tmp_path / 'bank.parquet'}"]
    out = tmp_path / "new.csv"
    assert main([*call, "--strict", "--out", str(out)]) == 2
    assert "error: --strict: bank: column 'income'" in capsys.readouterr().err
    assert not out.exists()
    assert main([*call, "--out", str(out)]) == 0
    assert "warning: bank: column 'income'" in capsys.readouterr().err


def test_inspect_and_evaluate(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(folder / "run")
    assert main(["inspect", run]) == 0
    assert "every checksum is right" in capsys.readouterr().out
    assert main(["inspect", run, "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["parties"]) == {"bank", "insurer", "telco"}
    assert main(["evaluate", run]) == 0
    assert "bank+insurer+telco" in capsys.readouterr().out
    new = folder / "new"
    assert (
        main(
            [
                "evaluate",
                run,
                "--input",
                f"telco={new / 'telco.csv.gz'}",
                "--labels",
                str(new / "truth.csv"),
                "--json",
            ]
        )
        == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert list(found["subsets"]) == ["telco"]
    assert main(["inspect", str(folder)]) == 2


def test_predict_with_and_without_parties(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, new, out = str(folder / "run"), folder / "new", folder / "p.parquet"
    inputs = [
        "--input",
        f"bank={new / 'bank.parquet'}",
        "--input",
        f"insurer={new / 'insurer.csv'}",
    ]
    assert main(["predict", run, *inputs, "--out", str(out)]) == 0
    assert "from bank+insurer" in capsys.readouterr().err
    assert pq.read_table(out).column_names == ["customer_id", "class", "p_no", "p_yes", "parties"]
    assert main(["predict", run, *inputs, "--out", str(out)]) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert main(["predict", run, *inputs[:2], "--out", str(out), "--overwrite"]) == 0
    assert set(pq.read_table(out)["parties"].to_pylist()) == {"bank"}
    for bad, message in (
        (["--input", "bank"], "PARTY=FILE"),
        ([*inputs[:2], *inputs[:2]], "twice"),
        ([*inputs, "--out", "p.doc"], "parquet or"),
        ([], "at least one"),
        ([*inputs, "--example", "yes"], "CLASS=ID"),
        ([*inputs, "--example", "yes=1", "--example", "yes=2"], "twice"),
        ([*inputs, "--example", "yes=1"], "class 'yes' has labelled rows"),
        ([*inputs, "--attributes", str(folder / "none.csv")], "cannot read"),
    ):
        assert main(["predict", run, "--out", str(folder / "q.csv"), *bad]) == 2
        assert message in capsys.readouterr().err
    assert not (folder / "q.csv").exists()


def test_value_prints_and_draws(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, picture = str(folder / "run"), folder / "value.svg"
    assert main(["value", run, "--draws", "100", "--picture", str(picture)]) == 0
    assert "Shapley value in points of AUC" in capsys.readouterr().out
    assert picture.is_file()
    assert main(["value", run, "--draws", "100", "--metric", "accuracy", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert sum(p["value"] for p in found["parties"]) == pytest.approx(
        found["everyone"] - found["nobody"]
    )
    assert main(["value", run, "--metric", "f1"]) == 2
