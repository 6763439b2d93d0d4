"""An audit of a tiny run: complete, readable, and it tells a defended run from an undefended
one."""

import json
import math
from pathlib import Path

import pytest

from protoevfl.audit import attacked, audit
from protoevfl.audit.record import Warm, one_way_of, privacy_of, record, record_both
from protoevfl.bench.world import RunConfig
from protoevfl.cli.main import main
from protoevfl.messages import Learn
from protoevfl.privacy.policy import PrivacySettings
from protoevfl.privacy.report import markdown, page

TINY = {
    "warm.epochs": 4,
    "warm.batch": 32,
    "rounds.batch": 32,
    "rounds.count": 2,
    "rounds.epochs": 1,
    "head.epochs": 3,
    "head.members": 1,
}
BARE = {"privacy.prototype_noise": 0.0, "privacy.class_noise": 0.0}
GUARD = {"privacy.prototype_noise": 4.0, "privacy.releases": 1}
CELL = {"dataset": "digits", "aligned": 60, "pool": 80, "parties": 3}


@pytest.fixture(scope="module")
def facts() -> dict[str, object]:
    made = audit(RunConfig(**CELL, overrides={**TINY, **BARE}), [0, 1], device="cpu", known=(0,))  # type: ignore[arg-type]
    return json.loads(json.dumps(made, default=str))  # type: ignore[no-any-return]


def test_an_undefended_run_is_broken_and_has_no_guarantee(facts: dict) -> None:  # type: ignore[type-arg]
    solved = [f["worst"]["accuracy"] for f in facts["canary"] if f["threat"] == "passive"]
    assert solved[0] > 0.75
    assert facts["guess_bound"] == 1.0
    assert "no guarantee for labels" in markdown(facts)


def test_the_report_is_complete_and_loads_nothing(facts: dict) -> None:  # type: ignore[type-arg]
    text, html = markdown(facts), page(facts)
    for title in (
        "In short",
        "What crosses",
        "labels",
        "single people",
        "columns",
        "guaranteed",
        "costs",
        "Settings",
    ):
        assert title in text
        assert title in html
    assert "http" not in html
    assert "<script" not in html
    assert "linear system" in text
    assert "one-way" in text


def test_a_guarded_run_stays_within_its_proof() -> None:
    made = audit(
        RunConfig(**{**CELL, "parties": 2}, overrides={**TINY, **GUARD}),
        [0, 1],
        device="cpu",
        known=(0,),
    )  # type: ignore[arg-type]
    assert made["guess_bound"] < 0.15
    assert math.isclose(made["ledger"][0]["epsilon"], 1.36, abs_tol=0.01)
    passive = next(f for f in made["canary"] if f["threat"] == "passive")
    assert passive["worst"]["accuracy"] < 0.3  # 2 cases of 60 rows; undefended: above 0.75
    assert "14.4 %" in markdown(json.loads(json.dumps(made, default=str)))


def test_the_active_party_is_not_guarded_and_others_are() -> None:
    config = RunConfig(**CELL, overrides={**TINY, **GUARD})  # type: ignore[arg-type]
    said = {
        p: q for p, q, _ in record(config, [0], device="cpu")[0].transcript if isinstance(q, Learn)
    }
    bare = {
        p: q
        for p, q, _ in record(config, [0], privacy=PrivacySettings(), device="cpu")[0].transcript
        if isinstance(q, Learn) and q.round == 0
    }
    assert (said[1].prototypes - bare[1].prototypes).norm() > 0.1 * bare[1].prototypes.norm()
    assert set(said) == {0, 1, 2}


def test_one_way_sends_nothing_down() -> None:
    config = one_way_of(RunConfig(**CELL, overrides=TINY))  # type: ignore[arg-type]
    recording = record(config, [0], device="cpu")[0]
    assert recording.crossed["down"] == 0
    assert recording.pseudo_labels == {}


def test_privacy_settings_are_taken_out_of_the_overrides() -> None:
    plain, privacy = privacy_of(
        RunConfig(overrides={"rounds.count": 1, "privacy.rank": 3, "privacy.audit": True})
    )
    assert plain.overrides == {"rounds.count": 1}
    assert privacy.rank == 3


def test_the_command_writes_three_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = [f"--set={k}={v}" for k, v in {**TINY, **GUARD}.items()]
    cell = ["--aligned=60", "--pool=80", "--parties=2", "--seeds=0", "--known=0", "--device=cpu"]
    assert main(["audit", *cell, *settings, "--out", str(tmp_path / "a"), "--quiet"]) == 0
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == [
        "audit.html",
        "audit.json",
        "audit.md",
    ]
    assert "labelled rows" in capsys.readouterr().out
    again = tmp_path / "cell.json"
    again.write_text(
        json.dumps(
            {"dataset": "digits", "aligned": 60, "pool": 80, "parties": 2, "overrides": TINY}
        )
    )
    assert (
        main(
            [
                "audit",
                str(again),
                "--seeds=0",
                "--known=0",
                "--out",
                str(tmp_path / "b"),
                "--device=cpu",
            ]
        )
        == 0
    )


def test_a_bad_source_is_one_clear_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.json"
    path.write_text("[1]")
    assert main(["audit", str(path), "--out", str(tmp_path / "o")]) == 2
    assert "holds no run configuration" in capsys.readouterr().err


def test_shared_warm_up_changes_nothing() -> None:
    config = RunConfig(**CELL, overrides=TINY)  # type: ignore[arg-type]
    warm: Warm = {}
    record(one_way_of(config), [0], device="cpu", warm=warm)
    shared = record(config, [0], device="cpu", warm=warm)[0]
    alone = record(config, [0], device="cpu")[0]
    assert len(warm) == 1
    assert shared.metrics["accuracy"] == alone.metrics["accuracy"]
    assert all((shared.own[m] == alone.own[m]).all() for m in alone.own)


def test_one_way_has_no_canary_because_nothing_was_sent() -> None:
    small = {name: value for name, value in TINY.items() if not name.startswith("rounds")}
    config = RunConfig(**{**CELL, "parties": 2}, preset="one_way", overrides=small)  # type: ignore[arg-type]
    facts = json.loads(json.dumps(audit(config, [0], device="cpu", known=(0,)), default=str))
    text = markdown(facts)
    assert "nothing in it about single people" in text
    assert "nothing about labels can be learnt" in text


def test_records_of_the_table_hold_every_figure() -> None:
    config = RunConfig(**CELL, method="one_shot", overrides={"epochs": 1, "privacy.audit": True})  # type: ignore[arg-type]
    (record,) = attacked(config, [0], device="cpu")
    assert record["attack"]["unaided"] > 0.9  # clusters of gradients are the classes
    assert record["attack"]["canary"] > 0.9
    assert record["attack"]["guess_bound"] == 1.0
    assert record["overrides"]["privacy.audit"]
    assert record["metrics"]["accuracy"] > 0


def test_a_run_and_its_canaries_go_together() -> None:
    config = RunConfig(**CELL, overrides=TINY)  # type: ignore[arg-type]
    real, hidden = record_both(config, [0], canaries=2, device="cpu", warm={})
    alone = record(config, [0], device="cpu")[0]
    assert abs(real[0].metrics["accuracy"] - alone.metrics["accuracy"]) < 0.03
    assert [h.metrics for h in hidden] == [{}, {}]
    first, second = (h.world.owner.labels for h in hidden)
    assert not first.equal(second)
    assert first.bincount().equal(real[0].world.owner.labels.bincount())
