"""What one company gives away, from its own file alone."""

from dataclasses import replace
from pathlib import Path

import pytest

from protoevfl.artifacts.run_dir import Run
from protoevfl.errors import UserError
from protoevfl.pipeline.own_half import by_level, of_file, of_run
from protoevfl.pipeline.simulate import method_and_privacy
from protoevfl.rows.encoders import fit_encoder
from protoevfl.settings.config import Config, resolve
from protoevfl.settings.presets import build


def test_few_numbers_give_away_less_than_features(config: Config) -> None:
    method, privacy = method_and_privacy(config)
    levels = of_file(resolve(config)["insurer"], method, privacy)
    assert list(levels) == ["open", "few", "sealed"]
    assert levels["open"].keys() == levels["few"].keys() == levels["sealed"].keys()
    assert min(levels["open"].values()) > 0.8
    assert sum(levels["few"].values()) < 0.8 * sum(levels["open"].values())


def test_an_owner_that_steers_sealed_scores_stays_within_the_bounds(config: Config) -> None:
    """Whatever column its labels are made of: .3 of a number, .5 of a category, and the slack of a
    few hundred rows. Without steering the bounds themselves are shown."""
    method, privacy = method_and_privacy(config)
    file = resolve(config)["insurer"]
    measured = of_file(file, method, privacy)["sealed"]
    encoder = fit_encoder(file.info.path, file.spec, None)
    bounds = by_level(encoder, file.info.path, method, privacy)["sealed"]
    assert bounds == {"premium": 0.3, "claims": 0.3, "bonus": 0.3, "region": 0.5}
    assert min(measured.values()) > 0.05  # each column was steered to
    assert all(measured[name] < bound + 0.1 for name, bound in bounds.items())


def test_other_methods_are_not_measured(config: Config, run: Run) -> None:
    _, privacy = method_and_privacy(config)
    insurer = run.need_party("insurer")
    file = config.party("insurer").file
    assert by_level(insurer.encoder, file, build("vanilla", "default", "adult", {}), privacy) == {}


def test_a_trained_party_measures_the_rows_it_shares(config: Config, run: Run) -> None:
    file = config.party("insurer").file
    (level, scores), *others = of_run(run.need_party("insurer"), file).items()
    assert (level, others) == ("open", [])
    assert set(scores) == set(run.need_party("insurer").encoder.columns)


def test_the_label_party_and_a_shortened_file_are_refused(
    config: Config, run: Run, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="holds the labels"):
        of_run(replace(run.need_party("insurer"), alignment=None), config.party("insurer").file)
    lines = config.party("insurer").file.read_text(encoding="utf-8").splitlines()
    short = tmp_path / "insurer.csv"
    short.write_text("\n".join(lines[:30]), encoding="utf-8")
    with pytest.raises(UserError, match="fewer rows than when the run was made"):
        of_run(run.need_party("insurer"), short)
