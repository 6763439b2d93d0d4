from dataclasses import replace
from pathlib import Path

from protoevfl.artifacts.run_dir import open_run
from protoevfl.report.origin import origin
from protoevfl.report.parts import Folded, Table, Words


def test_rows_of_each_kind_settings_and_versions(trained: Path) -> None:
    run = open_run(trained)
    parts = origin(run).parts
    rows, classes = (part for part in parts if isinstance(part, Table))
    assert [line[0] for line in rows.lines] == ["bank", "insurer", "telco"]
    facts = run.parties["bank"].facts or {}
    assert rows.lines[0][1] == f"{facts['rows']:,}"
    kept = sum(int(str(line[2]).replace(",", "")) for line in classes.lines)
    assert kept == len(run.need_owner().test.labels)
    settings, versions = (part.parts[0] for part in parts if isinstance(part, Folded))
    assert isinstance(settings, Table)
    assert isinstance(versions, Table)
    assert ("warm.epochs", "3") in settings.lines
    assert not any("seed" in str(line[0]) for line in settings.lines)


def test_parties_whose_folder_is_elsewhere_have_dashes(trained: Path) -> None:
    run = open_run(trained)
    ours = replace(run, parties={"bank": run.parties["bank"]})
    parts = origin(ours).parts
    rows = next(part for part in parts if isinstance(part, Table))
    assert set(rows.lines[1][1:]) == {"–"}
    assert any(isinstance(p, Words) and "insurer and telco" in p.text for p in parts)
