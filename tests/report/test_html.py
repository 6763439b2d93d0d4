"""Small pieces of HTML: escaped, sortable, with a filter where there is much."""

from protoevfl.report.html import figure_text, paragraph, table, text


def test_what_comes_from_records_is_escaped() -> None:
    assert "<b>" not in table("t", ["<b>"], [[text("<b>")]])
    assert paragraph("a < b") == "<p>a &lt; b</p>"
    assert 'data-v="&quot;&gt;"' in table("t", ["h"], [[text('">')]])


def test_long_tables_have_a_filter_and_empty_ones_say_so() -> None:
    rows = [[text(i)] for i in range(9)]
    assert 'type="search"' in table("t", ["h"], rows)
    assert 'type="search"' not in table("t", ["h"], rows[:8])
    assert "Nothing recorded" in table("t", ["h"], [])


def test_numbers_sort_by_their_value_not_by_what_is_shown() -> None:
    assert (figure_text(12.345).html, figure_text(12.345).sort) == ("12.3", "12.345")
    assert figure_text(None).sort == ""
