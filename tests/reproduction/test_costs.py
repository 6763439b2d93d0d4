"""Curves of accuracy against bytes and rounds: every point is a run that was told its length."""

from collections import defaultdict

from protoevfl.reproduction.costs import COMMUNICATION, CONVERGENCE, ROUNDS, TRAINING_TIME
from protoevfl.settings.presets import build


def test_every_length_is_a_run_of_its_own() -> None:
    """Two points of a curve with one configuration would be one run drawn twice."""
    curves = defaultdict(list)
    for cell in CONVERGENCE.cells:
        curves[cell.config.dataset, cell.config.method].append(cell)
    for cells in curves.values():
        assert len({str(c.config.overrides) for c in cells}) == len(cells) >= 5
        assert len({c.tags["length"] for c in cells}) == len(cells)


def test_what_a_curve_changes_is_a_setting_of_the_method() -> None:
    for cell in CONVERGENCE.cells:
        c = cell.config
        build(c.method, c.preset, c.dataset, c.overrides)  # an unknown field is an error


def test_bytes_rounds_and_curves_share_their_runs() -> None:
    curves = [c.config for c in CONVERGENCE.cells]
    assert [c.config for c in ROUNDS.cells] == curves
    assert [c.config for c in COMMUNICATION.cells][: len(curves)] == curves


def test_all_methods_are_timed_on_the_same_rows() -> None:
    by_method = defaultdict(set)
    for cell in TRAINING_TIME.cells:
        by_method[cell.config.method].add(
            (cell.config.dataset, cell.config.aligned, cell.config.setting)
        )
        assert not cell.config.overrides
    assert len(by_method) > 1
    assert len(set(map(frozenset, by_method.values()))) == 1
