"""An audit as Markdown and HTML: the same sections, escaped for either."""

import pytest

from protoevfl.privacy import report
from protoevfl.privacy.page_parts import Section, Table


@pytest.fixture(autouse=True)
def told(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = ("a < b", Table(("who | what", "n"), (("<script>", "1"),)))
    monkeypatch.setattr(report, "sections", lambda facts: [Section("In short", parts)])


def test_a_bar_inside_a_cell_does_not_end_it() -> None:
    text = report.markdown({})
    assert "## In short" in text
    assert "| who \\| what | n |" in text
    assert "| --- | --- |" in text


def test_the_page_escapes_what_it_is_told_and_loads_nothing() -> None:
    html = report.page({})
    assert "a &lt; b" in html
    assert "<td>&lt;script&gt;</td>" in html
    assert "<script>" not in html
    assert "http" not in html
