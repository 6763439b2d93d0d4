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
        assert columns["open"] == columns["few"] == columns["sealed"] != set()
        assert sum(found[name]["open"].values()) > sum(found[name]["few"].values())


def test_every_bad_column_of_every_party_is_listed_once(tmp_path: Path) -> None:
    config = small_example(tmp_path, rows=400)
    path = config.party("insurer").file
    header, *lines = path.read_text().splitlines()
    more = [f"{line},{i}{',.'[i % 2]}5,{'€$'[i % 2]} {i}" for i, line in enumerate(lines)]
    quoted = [line.replace(f",{i},5,", f',"{i},5",') for i, line in enumerate(more)]
    path.write_text("\n".join([header + ",price,fee", *quoted]) + "\n")
    bank = config.party("bank").file
    table = pq.read_table(bank)
    pixels = pa.array([[1, 2]] * table.num_rows)
    pq.write_table(table.append_column("pixels", pixels), bank)
    report = check(config, with_estimate=False)
    assert len(report.errors) == 3
    for column in ("price", "fee", "pixels"):
        assert sum(f"column '{column}'" in line for line in report.errors) == 1
    assert {p.name: p.features for p in report.parties}["insurer"] != ()  # the others were read


def test_how_texts_are_read_is_said_per_column_and_in_json(tmp_path: Path) -> None:
    config = small_example(tmp_path, rows=400)
    path = config.party("insurer").file
    header, *lines = path.read_text().splitlines()
    rows = [f'{line},"{i},5",0{1 + i % 9}/02/2020' for i, line in enumerate(lines)]
    path.write_text("\n".join([header + ",price,paid", *rows]) + "\n")
    report = check(config, with_estimate=False)
    insurer = next(p for p in report.to_dict()["parties"] if p["name"] == "insurer")
    assert insurer["readings"] == {
        "price": "numbers with a decimal comma ('0,5' is 0.5)",
        "paid": "dates with the day first ('01/02/2020' is 2020-02-01)",
    }
    assert any("'paid' holds dates whose day and month" in line for line in report.warnings)


def test_ids_that_count_the_rows_are_told(tmp_path: Path) -> None:
    config = small_example(tmp_path, rows=400)
    path = config.party("insurer").file
    header, *lines = path.read_text().splitlines()
    rows = [f"{i}{line[line.index(',') :]}" for i, line in enumerate(lines)]
    path.write_text("\n".join([header, *rows]) + "\n")
    warnings = check(config, with_estimate=False).warnings
    assert any("insurer: the ids in 'customer_id' count the rows" in line for line in warnings)


def test_a_column_of_another_party_that_tells_the_label_is_told(tmp_path: Path) -> None:
    config = small_example(tmp_path, rows=400)
    bank = pq.read_table(config.party("bank").file)
    labels = dict(zip(bank["customer_id"].to_pylist(), bank["default"].to_pylist(), strict=True))
    path = config.party("insurer").file
    header, *lines = path.read_text().splitlines()
    told = [{"yes": 7, "no": 1}.get(labels.get(int(line.split(",")[0])), 4) for line in lines]
    rows = [f"{line},{value}" for line, value in zip(lines, told, strict=True)]
    path.write_text("\n".join([header + ",stage", *rows]) + "\n")
    lines = [t for t in check(config, with_estimate=False).warnings if "alone tells" in t]
    assert len(lines) == 1
    assert "insurer: column 'stage' alone tells 'default'" in lines[0]
