"""What an audit says of columns and of rows that nobody shares."""

from protoevfl.privacy.column_words import members
from protoevfl.privacy.words import sections


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
