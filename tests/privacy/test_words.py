"""The audit in words: which finding leads, and what is said of what crossed."""

from typing import Any

import pytest

from protoevfl.privacy.words import crossing, labels_sent, worst


def finding(
    threat: str, accuracy: float, advantage: float, communicates: bool = True
) -> dict[str, object]:
    return {
        "threat": threat,
        "advantage": advantage,
        "worst": {"accuracy": accuracy, "communicates": communicates},
    }


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
