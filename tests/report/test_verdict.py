"""The first sentence: it pays, it does not, nobody can say; never more than the interval shows."""

import pytest

from protoevfl.report.parts import Interval, Table, Words
from protoevfl.report.verdict import sentence, verdict
from tests.report.made_up import made_up


@pytest.mark.parametrize(
    ("difference", "low", "high", "begins"),
    [
        (0.05, 0.04, 0.06, "Joining pays:"),
        (0.05, -0.001, 0.1, "Joining is not shown to pay:"),
        (0.0, -0.02, 0.02, "Joining is not shown to pay:"),
        (-0.05, -0.06, -0.04, "Joining does not pay:"),
        (0.0, 0.0, 0.0, "Joining does not pay here:"),
    ],
)
def test_the_answer_follows_the_interval(
    difference: float, low: float, high: float, begins: str
) -> None:
    gain = {"measure": "auc", "difference": difference, "low": low, "high": high}
    assert sentence(gain, 0.9, 0.9 - difference).startswith(begins)


def test_the_numbers_are_those_of_the_run() -> None:
    measured = made_up()
    lead = verdict(measured).parts[0]
    assert isinstance(lead, Words)
    for value in (measured.figures["test"]["auc"], measured.figures["alone"]["auc"]):
        assert f"{100 * value:.1f}" in lead.text
    (interval,) = (part for part in verdict(measured).parts if isinstance(part, Interval))
    gain = measured.figures["gain"]
    assert (interval.value, interval.low) == (gain["difference"], gain["low"])
    (table,) = (part for part in verdict(measured).parts if isinstance(part, Table))
    assert table.lines[3][1] == f"{measured.figures['test']['brier']:.3f}"


def test_equal_models_are_said_to_gain_nothing() -> None:
    lead = verdict(made_up(joint=1.0, alone=1.0)).parts[0]
    assert isinstance(lead, Words)
    assert lead.text.startswith("Joining does not pay here")
    assert lead.manner == "lead doubt"


def test_without_an_own_model_there_is_no_verdict() -> None:
    lead, caution = verdict(made_up(has_own_model=False)).parts[:2]
    assert isinstance(lead, Words)
    assert isinstance(caution, Words)
    assert "cannot be said" in lead.text
    assert 'name = "local"' in caution.text


def test_few_rows_of_a_class_are_a_caution() -> None:
    parts = verdict(made_up(rows=40)).parts
    cautions = [p.text for p in parts if isinstance(p, Words) and p.manner == "caution"]
    assert any("Few test rows of no" in text for text in cautions)
