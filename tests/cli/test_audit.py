"""`protoevfl audit`: settings from a file or from options, three files, and one clear line for what
cannot be read."""

import json
from pathlib import Path
from typing import Any

import pytest

import protoevfl.audit
from protoevfl.bench.world import RunConfig
from protoevfl.cli.audit import read_config, short
from protoevfl.cli.main import main
from protoevfl.errors import UserError


def file(folder: Path, content: Any, name: str = "cell.json") -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def test_a_file_of_settings_gives_the_run_it_describes(tmp_path: Path) -> None:
    given = {
        "dataset": "adult",
        "aligned": 60,
        "classes": [3, 5],
        "pool": None,
        "overrides": {"rounds.count": 2},
    }
    found = read_config(file(tmp_path, given), {})
    assert found == RunConfig(
        dataset="adult", aligned=60, classes=(3, 5), overrides={"rounds.count": 2}
    )


def test_the_last_record_counts_and_what_is_no_setting_is_passed_over(tmp_path: Path) -> None:
    one, other = RunConfig(aligned=50), RunConfig(aligned=70, classes=(1,), setting="zero_shot")
    lines = [
        json.dumps({**some.identity(), "seed": 0, "metrics": {"accuracy": 0.5}})
        for some in (one, other)
    ]
    found = read_config(file(tmp_path, "\n".join(lines) + "\n\n", "records.jsonl"), {})
    assert found == other


def test_options_go_before_the_file(tmp_path: Path) -> None:
    path = file(tmp_path, {"aligned": 60, "overrides": {"rounds.count": 2, "head.epochs": 3}})
    assert read_config(path, {"rounds.count": 1}).overrides == {"rounds.count": 1, "head.epochs": 3}
    assert read_config(file(tmp_path, {"aligned": 60}), {"rounds.count": 1}).overrides == {
        "rounds.count": 1
    }


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.json", b"", "is no protoevfl.toml"),
        ("x.jsonl", b"", "is no protoevfl.toml"),
        ("x.jsonl", b"\n\n", "is no protoevfl.toml"),
        ("x.json", b"{'aligned': 60}", "is no protoevfl.toml"),
        ("x.json", b'{"aligned": 60', "is no protoevfl.toml"),
        ("x.json", b"\xff\xfe\x00", "is no protoevfl.toml"),
        ("x.jsonl", b"\x89PNG\r\n\x1a\n\x00\xff", "is no protoevfl.toml"),
        ("x.json", b"[1]", "holds no run configuration; its fields are aligned, classes, dataset"),
        ("x.json", b'"digits"', "holds no run configuration"),
        ("x.json", b'{"alignd": 60}', "holds no run configuration"),
        (
            "x.json",
            b'{"aligned": 60, "presett": "one_way"}',
            "has no key 'presett'; did you mean 'preset'",
        ),
        ("x.json", b'{"aligned": "60"}', "aligned must be a whole number, not '60'"),
        ("x.json", b'{"aligned": true}', "aligned must be a whole number, not True"),
        ("x.json", b'{"open": 1}', "open must be true or false, not 1"),
        ("x.json", b'{"dataset": 5}', "dataset must be a text, not 5"),
        ("x.json", b'{"dataset": "digits", "classes": 3}', "classes must be a list, not 3"),
        ("x.json", b'{"pool": "all"}', "pool must be a whole number, not 'all'"),
        (
            "x.json",
            b'{"aligned": 60, "overrides": null}',
            "overrides must be",
        ),
        (
            "x.json",
            b'{"aligned": 60, "overrides": ["rounds.count=1"]}',
            "overrides must be",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: bytes, message: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        read_config(path, {})
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    assert main(["audit", str(path), "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert said.count("\n") == 1


def test_an_absent_file_or_a_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot read .*none\.json: No such file"):
        read_config(tmp_path / "none.json", {})
    with pytest.raises(UserError, match=r"cannot read .*: Is a directory"):
        read_config(tmp_path, {})


def test_short_is_what_comes_before_the_details() -> None:
    text = "# Audit\n\n## In short\n\nshort ± 3\n\n## What crosses\n\nlong"
    assert short(text) == "# Audit\n\n## In short\n\nshort ± 3"
    assert short("no sections\n") == "no sections"
    assert short("") == ""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the attacks were asked for; they are not run."""
    calls: list[Any] = []

    def attack(config: RunConfig, seeds: list[int], **how: Any) -> dict[str, Any]:
        calls.append((config, seeds, how))
        return {"config": config.identity(), "who": "Zoë"}

    monkeypatch.setattr(protoevfl.audit, "audit", attack)
    monkeypatch.setattr(
        "protoevfl.privacy.report.markdown",
        lambda facts: f"## In short\n{facts['who']} ±\n## What crosses\nmore",
    )
    monkeypatch.setattr("protoevfl.privacy.report.page", lambda facts: "<p>±</p>")
    return calls


def test_options_become_the_configuration(asked: list[Any], tmp_path: Path) -> None:
    options = [
        "--method=vanilla",
        "--aligned=50",
        "--parties=2",
        "--pool=30",
        "--seeds=0-1,5",
        "--known=0,2",
    ]
    assert (
        main(["audit", *options, "--set=epochs=3", "--set=privacy.rank=2", "--out", str(tmp_path)])
        == 0
    )
    ((config, seeds, how),) = asked
    given = {"epochs": 3, "privacy.rank": 2}
    assert config == RunConfig(method="vanilla", aligned=50, parties=2, pool=30, overrides=given)
    assert seeds == [0, 1, 5]
    del how["observer"]  # the bar
    assert how == {"device": "auto", "known": [0, 2]}


def test_no_known_labels_at_all_means_none_of_each_class(asked: list[Any], tmp_path: Path) -> None:
    assert main(["audit", "--known=", "--out", str(tmp_path)]) == 0
    assert asked[0][2]["known"] == [0]


def test_three_files_are_written_and_the_first_section_printed(
    asked: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "new" / "größer"
    assert main(["audit", "--out", str(folder)]) == 0
    shown = capsys.readouterr()
    assert shown.out == "## In short\nZoë ±\n"
    assert str(folder / "audit.html") in shown.err
    assert json.loads((folder / "audit.json").read_text(encoding="utf-8"))["who"] == "Zoë"
    assert (folder / "audit.md").read_text(encoding="utf-8").endswith("more")
    assert (folder / "audit.html").read_text(encoding="utf-8") == "<p>±</p>"


def test_json_is_one_object_on_stdout(
    asked: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", "--json", "--out", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out)["config"]["dataset"] == "digits"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--seeds=", "--out=x"], "--seeds needs at least one number"),
        (["--seeds=a", "--out=x"], "--seeds takes numbers"),
        (["--known=-1", "--out=x"], "--known takes numbers"),
        (["--set=epochs", "--out=x"], "--set takes name=value"),
    ],
)
def test_bad_options_are_refused_before_any_attack(
    asked: list[Any],
    options: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["audit", *options]) == 2
    assert message in capsys.readouterr().err
    assert asked == []


def test_a_folder_that_cannot_be_made_is_refused_before_any_attack(
    asked: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "taken").write_text("a file")
    assert main(["audit", "--out", str(tmp_path / "taken")]) == 2
    assert "cannot write to" in capsys.readouterr().err
    assert asked == []
