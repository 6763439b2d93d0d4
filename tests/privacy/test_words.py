"""The audit in words: which finding leads, and how figures are written."""

import math

import pytest

from protoevfl.privacy.words import crossing, percent, worst


def finding(
    threat: str, accuracy: float, advantage: float, communicates: bool = True
) -> dict[str, object]:
    return {
        "threat": threat,
        "advantage": advantage,
        "worst": {"accuracy": accuracy, "communicates": communicates},
    }


@pytest.mark.parametrize(
    ("value", "half", "shown"),
    [
        (None, None, "-"),
        (0.5, None, "50.0 %"),
        (0.5, math.nan, "50.0 %"),
        (1.0, 0.02, "100.0 ± 2.0 %"),
    ],
)
def test_an_interval_is_shown_where_there_is_one(
    value: float | None, half: float | None, shown: str
) -> None:
    assert percent(value, half) == shown


def test_the_finding_that_gains_most_from_the_messages_leads_not_the_most_accurate() -> None:
    facts = {"findings": [finding("passive", 0.9, 0.1), finding("colluding", 0.6, 0.4)]}
    assert worst(facts)["threat"] == "colluding"
    assert worst(facts, threat="passive")["advantage"] == 0.1


def test_of_canaries_what_was_sent_comes_before_what_was_guessed() -> None:
    facts = {
        "canary": [finding("passive", 0.3, 0.0, communicates=False), finding("colluding", 0.2, 0.0)]
    }
    assert worst(facts, "canary")["threat"] == "colluding"


@pytest.mark.parametrize(
    ("labels", "attributes", "columns_sent"),
    [("all", True, True), ("all", False, False), ("shared", True, False)],
)
def test_columns_that_were_sent_are_not_said_to_have_stayed(
    labels: str, attributes: bool, columns_sent: bool
) -> None:
    facts = {
        "crossed": {"by_type": {"Embeddings": {"up": 8, "down": 0}}, "up": 8, "down": 0},
        "config": {"labels": labels},
        "attributes": {"age": {}} if attributes else {},
    }
    text = " ".join(str(part) for part in crossing(facts))
    assert ("nearly exactly" in text) == columns_sent
    assert ("Raw columns" in text) != columns_sent
