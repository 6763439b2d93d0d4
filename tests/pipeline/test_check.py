"""`check` shows everything at once: counts, problems with what to do, an estimate that is near the
truth."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from protoevfl.artifacts.run_dir import Run
from protoevfl.pipeline.check import check
from protoevfl.pipeline.estimate import Size, estimate
from protoevfl.settings.config import Config
from protoevfl.settings.method_choice import method_facts
from protoevfl.settings.presets import build
from tests.pipeline.example import small_example


def test_a_good_configuration(config: Config) -> None:
    report = check(config, with_estimate=False)
    assert not report.errors
    bank, insurer, telco = report.parties
    assert (bank.name, bank.format, insurer.format, telco.file) == (
        "bank",
        "parquet",
        "csv",
        "telco.csv.gz",
    )
    assert bank.columns == {
        "income": "double",
        "age": "int64",
        "branch": "string",
        "customer_since": "date32[day]",
        "overdraft": "bool",
    }
    assert set(insurer.missing) == {"premium"}
    assert bank.features == (8,)
    assert sum(report.classes.values()) == bank.rows
    assert report.common == sum(report.common_classes.values()) <= min(report.pairs.values())


def test_the_estimate_of_bytes_is_near_the_truth(config: Config, run: Run) -> None:
    report = check(config)
    assert report.estimate is not None
    truth = run.need_owner().metrics["bytes"]
    assert report.estimate["traffic"] == pytest.approx(truth["up"] + truth["down"], rel=0.1)
    assert 2**29 < report.estimate["memory"] < 2**30
    assert report.estimate["seconds"] > 0


@pytest.mark.parametrize("name", ["vanilla", "ss_vfl_i"])
def test_bytes_that_grow_with_epochs_are_scaled(name: str) -> None:
    method = build(
        name,
        "default",
        "table",
        {"epochs": 8} if name == "vanilla" else {"head.epochs": 8, "moco.epochs": 2},
    )
    size = Size((5,), tuple((i, i + 1) for i in range(5)), 256, 128, 10)
    found = estimate(method_facts(method), [size, size], 2)
    models = getattr(method, "models", 1)
    expected = 8 * 2 * 128 * 64 * 4 * models if name == "vanilla" else 128 * 64 * 4
    assert found.traffic == pytest.approx(expected, rel=0.15)


def test_all_problems_are_shown_at_once(tmp_path: Path) -> None:
    config = small_example(tmp_path, rows=400)
    bank = pq.read_table(config.party("bank").file)
    odd = pa.array([7] * bank.num_rows)
    gone = pa.array([None] * (bank.num_rows - 5) + [1, 2, 3, 4, 5], pa.int64())
    pq.write_table(pa.concat_tables([bank, bank.slice(0, 2)]), config.party("bank").file)
    insurer = config.party("insurer").file
    insurer.write_text(insurer.read_text().replace('"bonus"', '"default"'))
    telco = (
        bank.append_column("constant", odd).append_column("rare", gone).drop_columns(["default"])
    )
    pq.write_table(telco, tmp_path / "telco.parquet")
    parties = tuple(
        replace(p, file=tmp_path / "telco.parquet") if p.name == "telco" else p
        for p in config.parties
    )
    method = replace(config.method, overrides={"head.epoch": 3})
    report = check(replace(config, parties=parties, method=method))
    errors, warnings = " ".join(report.errors), " ".join(report.warnings)
    assert "2 rows repeat an id" in errors
    assert "did you mean" in errors or "no setting" in errors
    assert "'constant' is not used: it has the same value everywhere" in warnings
    assert "more than half of 'rare'" in warnings
    assert "insurer has a feature called 'default'" in warnings
    assert report.estimate is None
    dropping = replace(config, alignment=replace(config.alignment, on_bad_ids="drop"))
    assert any(
        "4 rows have no id or share one" in text
        for text in check(dropping, with_estimate=False).warnings
    )


def test_few_labels_and_few_test_rows_are_told(tmp_path: Path) -> None:
    config = small_example(tmp_path, rows=200, test=0.5)
    warnings = " ".join(check(config, with_estimate=False).warnings)
    assert "only 6" in warnings or "common rows have a label" in warnings
    assert "test rows only" in warnings


def test_ids_that_nearly_match_are_told(tmp_path: Path) -> None:
    config = small_example(tmp_path, rows=600)
    path = config.party("insurer").file
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:-40], *("00" + line for line in lines[-40:])]))
    report = check(config, with_estimate=False)
    assert not report.errors
    assert any("leading zeros" in text for text in report.warnings)


def test_no_overlap_says_why(tmp_path: Path) -> None:
    config = small_example(tmp_path, rows=300)
    path = config.party("insurer").file
    path.write_text(path.read_text().replace("\n1", "\n0001"))  # leading zeros
    report = check(config, with_estimate=False)
    assert report.common is None
    assert any("leading zeros" in text for text in report.errors)
    assert report.pairs["insurer"] == 0


def test_what_a_decoder_rebuilds_is_shown_for_every_party_that_sends_columns(
    tmp_path: Path,
) -> None:
    report = check(small_example(tmp_path, rows=500), with_estimate=False)
    found = {party.name: party.gives_away for party in report.parties}
    assert found["bank"] == {}  # it holds the labels: nothing of it leaves
    for name in ("insurer", "telco"):
        columns = {name: set(scores) for name, scores in found[name].items()}
        assert columns["open"] == columns["few"] != set()
        assert sum(found[name]["open"].values()) > sum(found[name]["few"].values())
