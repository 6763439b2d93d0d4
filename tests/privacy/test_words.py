"""The audit in words: which finding leads, and how figures are written."""

import math
from typing import Any

import pytest

from protoevfl.privacy.words import crossing, labels_sent, members, percent, sections, worst


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
    ("labels", "tables", "columns_sent"),
    [("all", True, True), ("all", False, False), ("shared", True, False)],
)
def test_columns_that_were_sent_are_not_said_to_have_stayed(
    labels: str, tables: bool, columns_sent: bool
) -> None:
    facts = {
        "crossed": {"by_type": {"Embeddings": {"up": 8, "down": 0}}, "up": 8, "down": 0},
        "config": {"labels": labels},
        "level": "open",
        "columns": {"insurer": {"age": {}}} if tables else {},
    }
    text = " ".join(str(part) for part in crossing(facts))
    assert ("nearly exactly" in text) == columns_sent
    assert ("Raw columns" in text) != columns_sent


def test_plain_requests_are_not_made_of_labels() -> None:
    def crossed(name: str) -> dict[str, Any]:
        return {"by_type": {name: {"up": 0, "down": 14}}}

    assert not labels_sent(crossed("Embed"))
    assert labels_sent(crossed("Learn"))
    assert labels_sent(crossed("BackwardBatch"))


def test_statistics_of_unshared_rows_are_told_and_their_absence_too() -> None:
    assert "nothing was sent" in str(members({"rows": 7, "pools": {}}))
    figures = {"means": 9.0, "auc": 0.5, "matched": 0.0}
    text = str(members({"rows": 7, "pools": {"telco": figures}}))
    assert "telco" in text
    assert "50.0 %" in text


def test_a_half_names_the_party_its_level_and_every_column() -> None:
    facts = {
        "party": "telco",
        "active": "bank",
        "what": "its rows",
        "level": "few",
        "levels": {"open": {"town": 0.99, "pay": 0.6}, "few": {"town": 0.2, "pay": 0.1}},
    }
    text = str(sections(facts))
    for word in ("telco", "bank", "town", "0.99", "0.20", "2 of 2 columns", "0 of 2 columns"):
        assert word in text
