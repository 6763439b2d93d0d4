"""Tables of a page: what every row lacks has no column, numbers sort by their value."""

from protoevfl.report.html import NOTHING, Entry, Table, figure_text, text


def test_a_column_that_no_row_fills_is_left_out() -> None:
    rows = [[text("a"), Entry(""), figure_text(None)], [text("b"), Entry(""), figure_text(1.0)]]
    table = Table("t", ("name", "nothing", "number"), rows)
    assert table.head == ["name", "number"]
    assert [[entry.shown for entry in row] for row in table.rows] == [["a", NOTHING], ["b", "1.0"]]


def test_numbers_sort_by_their_value_not_by_what_is_shown() -> None:
    assert (figure_text(12.345).shown, figure_text(12.345).sort) == ("12.3", "12.345")
    assert figure_text(None).sort == ""
